/* When garbage is collected. Lua cannot see tensor bytes: a handle weighs 40
 * bytes whatever it holds. So handles are counted, and the bytes that nothing
 * but handles keeps alive are watched; those are what a collection can free.
 *
 * A minor step (7 us whatever the heap) every HANDLES new handles keeps small
 * temporaries in the cache; one more when the bytes only Lua holds exceed 1.1
 * times what the last one left + F, with a full collection where that did not
 * bring them below 1.1 times + F/2. In a host's state, whose collector may be
 * incremental, the same places advance its cycle instead. */
#include "fll.h"

#define HANDLES 256
#define MIB     ((size_t)1 << 20)

static size_t slack(fl_lua *st, size_t live) {
  size_t f = live / 25;
  size_t least = st->generational ? MIB : 4 * MIB;
  return f > least ? f : least;
}

static size_t tenth_more(size_t n) {
  return n + n / 10;
}

static void set_soft(fl_lua *st) {
  size_t live;
  st->last = fl_handles_bytes(st->rt, &live);
  st->soft = tenth_more(st->last) + slack(st, live);
}

static void step(lua_State *L, fl_lua *st) {
  lua_gc(L, LUA_GCSTEP, st->generational ? 0 : 32);
}

/* Called when it may be time; nothing of ours is held by C alone here. */
void fll_collect(lua_State *L, fl_lua *st) {
  if (!st->rt) {
    st->fresh = -1;
    luaL_error(L, "flare: the runtime of this state is closed");
  }
  bool due = st->fresh < 0;
  if (due)
    st->fresh = HANDLES;
  if (st->collecting || !lua_gc(L, LUA_GCISRUNNING))
    return;
  size_t live, bytes = fl_handles_bytes(st->rt, &live);
  size_t before = st->last;
  bool heavy = bytes > tenth_more(before) + slack(st, live);
  if (!due && !heavy) {
    st->soft = tenth_more(before) + slack(st, live);
    return;
  }
  st->collecting = true;
  step(L, st);
  if (heavy) {
    bytes = fl_handles_bytes(st->rt, &live);
    if (bytes > tenth_more(before) + slack(st, live) / 2)
      lua_gc(L, LUA_GCCOLLECT);
  }
  st->collecting = false;
  st->fresh = HANDLES;
  if (heavy)
    set_soft(st);
}

/* The allocator found no memory: all garbage goes, in two rounds because what a
 * finaliser drops is freed by the second. Handles closed meanwhile keep their
 * tensors until they are collected, for one may be an operand. */
bool fll_reclaim(void *context, fl_device device, size_t bytes) {
  fl_lua *st = context;
  bool again = false;
  if (st->L && !st->reclaiming) {
    size_t live, left;
    fl_handles_bytes(st->rt, &live);
    st->reclaiming = st->collecting = true;
    lua_State *L = st->L;
    lua_gc(L, LUA_GCCOLLECT);
    lua_gc(L, LUA_GCCOLLECT);
    st->L = L;
    st->reclaiming = st->collecting = false;
    fl_handles_bytes(st->rt, &left);
    set_soft(st);
    again = left < live;
  }
  if (st->host.reclaim && st->host.reclaim(st->host.context, device, bytes))
    again = true;
  return again;
}

static void tune(lua_State *L, fl_lua *st) {
  lua_gc(L, LUA_GCINC, 120, 0, 0);
  lua_gc(L, LUA_GCGEN, 0, 0);
  st->generational = true;
  set_soft(st);
}

void fll_gc_open(lua_State *L, fl_lua *st, bool tuned) {
  st->fresh = HANDLES;
  set_soft(st);
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
static int collect(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_gc(L, LUA_GCCOLLECT);
  lua_gc(L, LUA_GCCOLLECT);
  set_soft(st);
  return 0;
}

void fll_gc_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"collector", collector}, {"collect", collect}, {NULL, NULL}};
  fll_register(L, functions);
}
