/* When garbage is collected. Lua cannot see tensor bytes: a handle weighs 40
 * bytes whatever it holds. So handles are counted, and the bytes that nothing
 * but handles keeps alive are watched; those are what a collection can free.
 *
 * A minor step (0.3 us beside what it frees, whatever the heap) every HANDLES
 * new handles keeps small temporaries in the cache, and every FEW that have
 * brought NEAR bytes larger ones. After one that left none of the handles made
 * since the one before, the next follows CLOSE bytes: a loop that drops all it
 * makes then uses one place, which stays in the second cache (of 2 MiB: 15 us
 * to copy 1 MiB, and 21 to 25 where five or nine places rotate). What two steps
 * have seen is old, so one that left something is never followed so soon.
 *
 * When the bytes only Lua holds exceed 1.1 times their level + F there is
 * another, with a full collection where that did not bring them below 1.1 times
 * + F/2; what a full one leaves is the new level. One that freed little, since
 * what is there is in use, is not tried again before there is a tenth more than
 * it left. On a GPU, which has more memory, and a second cache of 50 MiB, F is
 * ROOMY at least: a step for every fourth temporary of 1 MiB took an eighth of
 * what launching them takes. Measured: 1.04 to 1.10 times the peak of exact
 * reference counting over training steps, one or two full collections each. In
 * a host's state, whose collector may be incremental, the same places advance
 * its cycle instead. */
#include "fll.h"

#define HANDLES 256
#define FEW     8
#define LEAST   4
#define NEAR    (4 * MIB)
#define ROOMY   (16 * MIB)
#define CLOSE   (256 << 10)
#define PUT_OFF 32         /* steps that a compiled function may put off */
#define CREDIT  (64 << 10) /* KiB of Lua's memory that it may allocate */
#define MIB     ((size_t)1 << 20)

/* What is made now says where bytes are. */
static bool on_cpu(fl_lua *st) {
  const fl_tensor *t = fl_tensor_newest(st->rt);
  return !t || fl_tensor_device(t) == 0;
}

static size_t slack(fl_lua *st, size_t live) {
  size_t f = live / 25;
  size_t least = !on_cpu(st) ? ROOMY : st->generational ? 2 * MIB : 4 * MIB;
  return f > least ? f : least;
}

static size_t tenth_more(size_t n) {
  return n + n / 10;
}

/* When to look again: the nearer of the two limits. */
static void set_soft(fl_lua *st, size_t bytes, size_t live) {
  size_t far = tenth_more(st->last) + slack(st, live);
  size_t near = bytes + (st->transient ? CLOSE : on_cpu(st) ? NEAR : ROOMY);
  st->soft = near < far ? near : far;
}

/* After a full collection. */
static void gc_settle(lua_State *L, fl_lua *st) {
  size_t live;
  st->kilobytes = lua_gc(L, LUA_GCCOUNT);
  st->last = fl_handles_bytes(st->rt, &live);
  set_soft(st, st->last, live);
  st->fresh = HANDLES;
}

static void gc_full(lua_State *L, fl_lua *st) {
  lua_gc(L, LUA_GCCOLLECT);
  st->fulls++;
  gc_settle(L, st);
}

/* It puts off Lua's own full collections, which wait for debt: without ours,
 * what has become old would never go. */
static void gc_step(lua_State *L, fl_lua *st) {
  bool near = st->generational && on_cpu(st);
  lua_gc(L, LUA_GCSTEP, st->generational ? 0 : 32);
  st->turn = (uint16_t)++st->steps;
  st->transient = near && st->young == 0;
  st->young = 0;
  if (st->generational && lua_gc(L, LUA_GCCOUNT) / 2 > st->kilobytes)
    gc_full(L, st);
}

/* Puts off the collector's steps while a compiled function runs: a step would
 * make objects old that the function is about to drop. Memory that the function
 * allocates counts from CREDIT below zero, so that a function that makes more
 * garbage is collected after all. Not in coroutines, which may never end.
 * Returns false if steps are put off already, or there are none. */
bool fll_collector_rests(lua_State *L, fl_lua *st) {
  if (st->rests || st->collecting || !st->generational || L != st->main ||
      !lua_gc(L, LUA_GCISRUNNING))
    return false;
  lua_gc(L, LUA_GCSTEP, -CREDIT);
  st->rests = PUT_OFF;
  return true;
}

/* The function ends: a step closes what it has dropped, if launches wait for
 * that or a step was put off; else the collector goes on where it was. */
void fll_collector_resumes(lua_State *L, fl_lua *st, bool step) {
  if (!st->rests)
    return;
  step |= st->rests < PUT_OFF;
  st->rests = 0;
  if (st->collecting || !st->rt || !lua_gc(L, LUA_GCISRUNNING))
    return;
  if (!step) {
    lua_gc(L, LUA_GCSTEP, CREDIT);
    return;
  }
  st->collecting = true;
  gc_step(L, st);
  st->collecting = false;
  st->fresh = HANDLES;
}

/* Called when it may be time; nothing of ours is held by C alone here. */
void fll_collect(lua_State *L, fl_lua *st) {
  if (!st->rt) {
    st->fresh = -1;
    luaL_error(L, "flare: the runtime of this state is closed");
  }
  size_t live, bytes = fl_handles_bytes(st->rt, &live);
  /* With a step for each handle all become old: the stack still has the one
   * before while the next is made. */
  bool heavy = HANDLES - st->fresh >= LEAST &&
               bytes > tenth_more(st->last) + slack(st, live);
  bool many = st->fresh < 0;
  if (many)
    st->fresh = HANDLES;
  if (st->rests && --st->rests > 0)
    return;
  if (st->collecting || !lua_gc(L, LUA_GCISRUNNING))
    return;
  if (!many && !heavy && !st->transient && HANDLES - st->fresh < FEW) {
    /* a few large ones: not before there are FEW, or it is heavy */
    size_t far = tenth_more(st->last) + slack(st, live);
    st->soft = bytes + NEAR / FEW < far ? bytes + NEAR / FEW : far;
    return;
  }
  st->collecting = true;
  gc_step(L, st);
  bytes = fl_handles_bytes(st->rt, &live);
  if (bytes < st->futile) /* slowly: that much may be needed again */
    st->futile -= (st->futile - bytes + 7) / 8;
  if (heavy && bytes > tenth_more(st->last) + slack(st, live) / 2 &&
      bytes > tenth_more(st->futile)) {
    size_t before = bytes;
    gc_full(L, st);
    bytes = st->last;
    st->futile = bytes > before - before / 10 ? bytes : 0;
  }
  st->collecting = false;
  /* only a full collection raises the level, or it would creep up */
  if (bytes < st->last)
    st->last = bytes;
  set_soft(st, bytes, live);
  st->fresh = HANDLES;
}

/* Before a backward pass: what the forward pass called by names is garbage, and
 * without those handles the pass can give back what it has used as it goes. */
void fll_collect_pass(lua_State *L, fl_lua *st) {
  size_t live, bytes;
  fl_handles_bytes(st->rt, &live);
  if (live < MIB || st->collecting || st->rests || !st->generational ||
      !lua_gc(L, LUA_GCISRUNNING))
    return;
  st->collecting = true;
  gc_step(L, st);
  st->collecting = false;
  bytes = fl_handles_bytes(st->rt, &live);
  set_soft(st, bytes, live);
  st->fresh = HANDLES;
}

/* The allocator found no memory: all garbage goes, in two rounds because what a
 * finaliser drops is freed by the second. Handles closed meanwhile keep their
 * tensors until they are collected, for one may be an operand. */
static const char spared = 0; /* the key of the value that gc_spare keeps */

bool fll_reclaim(void *context, fl_device device, size_t bytes) {
  fl_lua *st = context;
  bool again = false;
  if (st->L && !st->reclaiming && pthread_equal(st->owner, pthread_self())) {
    size_t live, left;
    fl_handles_bytes(st->rt, &live);
    st->reclaiming = st->collecting = true;
    lua_State *L = st->L;
    fll_frame f;
    fll_callback_begin(L, st, &f);
    lua_pushnil(L);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &spared);
    lua_gc(L, LUA_GCCOLLECT);
    lua_gc(L, LUA_GCCOLLECT);
    fll_callback_end(L, st, &f);
    st->reclaiming = st->collecting = false;
    fl_handles_bytes(st->rt, &left);
    gc_settle(L, st);
    again = left < live;
  }
  st->callbacks++;
  if (st->host.reclaim && st->host.reclaim(st->host.context, device, bytes))
    again = true;
  st->callbacks--;
  return again;
}

static void tune(lua_State *L, fl_lua *st) {
  lua_gc(L, LUA_GCINC, 120, 0, 0);
  lua_gc(L, LUA_GCGEN, 0, 0);
  st->generational = true;
  gc_settle(L, st);
}

void fll_gc_open(lua_State *L, fl_lua *st, bool tuned) {
  gc_settle(L, st);
  if (tuned)
    tune(L, st);
}

/* core.collector() says who drives; core.collector("flare") hands the state's
 * collector to us, as in the program `flare`; core.collector("host") hands it
 * back, incremental with Lua's own figures. */
static int collector(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (!lua_isnoneornil(L, 1)) {
    const char *who = luaL_checkstring(L, 1);
    if (strcmp(who, "flare") == 0) {
      tune(L, st);
    } else if (strcmp(who, "host") == 0) {
      lua_gc(L, LUA_GCINC, 200, 0, 0);
      st->generational = false;
    } else {
      fll_error(L, "collector: expected \"flare\" or \"host\", got \"%s\"",
                who);
    }
  }
  lua_pushstring(L, st->generational ? "flare" : "host");
  return 1;
}

/* Everything that is garbage, now. */
static int gc_collect(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_gc(L, LUA_GCCOLLECT);
  lua_gc(L, LUA_GCCOLLECT);
  gc_settle(L, st);
  return 0;
}

/* spare(value) keeps one value until a device runs short of memory, or until
 * the next call: spare(nil). spared() returns it. */
static int gc_spare(lua_State *L) {
  fll_enter(L);
  lua_settop(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &spared);
  return 0;
}

static int gc_spared(lua_State *L) {
  fll_enter(L);
  lua_rawgetp(L, LUA_REGISTRYINDEX, &spared);
  return 1;
}

void fll_gc_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"collector", collector},
                                       {"collect", gc_collect},
                                       {"spare", gc_spare},
                                       {"spared", gc_spared},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
