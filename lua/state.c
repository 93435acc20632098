/* The life of a runtime inside a lua_State: opening, closing, the registry, and
 * the helpers that make closures, types and scratch memory. What a host calls
 * is in host.c. */
#include "fll.h"

#include <stdlib.h>

const char fll_keys[FLL_KEYS] = {0};

fl_lua *fll_state_of(lua_State *L) {
  fll_getkey(L, FLL_STATE);
  fl_lua *st = lua_touserdata(L, -1);
  lua_pop(L, 1);
  if (!st || !st->rt)
    luaL_error(L, "flare: the runtime of this state is closed");
  return st;
}

/* --- callbacks of the runtime --- */

static bool interrupted(void *context) {
  fl_lua *st = context;
  if (atomic_load_explicit(&st->interrupted, memory_order_relaxed))
    return true;
  if (!st->host.interrupted)
    return false;
  st->callbacks++;
  bool stop = st->host.interrupted(st->host.context);
  st->callbacks--;
  return stop;
}

static void log_message(void *context, const char *message) {
  fl_lua *st = context;
  st->callbacks++;
  if (st->host.log)
    st->host.log(st->host.context, message);
  st->callbacks--;
}

/* --- opening and closing --- */

/* The runtime goes; handles that are left become closed tensors. */
void fll_shut(fl_lua *st) {
  fl_runtime *rt = st->rt;
  if (rt)
    fll_threads_end(st);
  st->rt = NULL;
  st->closing = false;
  st->fresh = -1;
  st->L = NULL;
  if (rt) {
    fl_tape_set_host(rt, &(fl_tape_host){0});
    fl_runtime_close(rt);
  }
  fll_lending_release(st->lending);
  st->lending = NULL;
  free(st->traceback);
  st->traceback = NULL;
}

/* A finalizer runs in the middle of anything that allocates. Lua's collector
 * answers nothing for its length; older ones only say that they stand still. */
static bool in_finalizer(lua_State *L) {
#if LUA_VERSION_RELEASE_NUM >= 50404
  return lua_gc(L, LUA_GCCOUNT) < 0;
#else
  return !lua_gc(L, LUA_GCISRUNNING);
#endif
}

void fll_shut_soon(fl_lua *st) {
  if (st->rt && (st->callbacks || in_finalizer(st->main))) {
    st->closing = true;
    st->modes_of = NULL; /* the next call looks again */
  } else {
    fll_shut(st);
  }
}

static int state_gc(lua_State *L) {
  fl_lua *st = lua_touserdata(L, 1);
  if (st && lua_rawlen(L, 1) == sizeof *st)
    fll_shut(st);
  return 0;
}

static void check_lua(lua_State *L) {
  if (lua_version(L) != LUA_VERSION_NUM)
    luaL_error(L, "flare is built for Lua %d.%d, this is %d.%d",
               LUA_VERSION_NUM / 100, LUA_VERSION_NUM % 100,
               (int)lua_version(L) / 100, (int)lua_version(L) % 100);
  luaL_checkversion(L);
}

/* The state's userdata goes into the registry first, so that it is the last one
 * of ours whose finaliser runs. */
static fl_lua *push_state(lua_State *L) {
  fl_lua *st = lua_newuserdatauv(L, sizeof *st, 1);
  memset(st, 0, sizeof *st);
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, state_gc);
  lua_setfield(L, -2, "__gc");
  lua_pushliteral(L, "flare.state");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
  lua_pushvalue(L, -1);
  fll_setkey(L, FLL_STATE);
  return st;
}

static void open_runtime(lua_State *L, fl_lua *st, const fl_lua_options *o) {
  fl_runtime_options r = {.struct_size = sizeof r};
  if (o && o->runtime) {
    size_t n = o->runtime->struct_size;
    memcpy(&st->host, o->runtime, n < sizeof st->host ? n : sizeof st->host);
    r = st->host;
    r.struct_size = sizeof r;
  }
  r.interrupted = interrupted;
  r.reclaim = fll_reclaim;
  r.log = log_message;
  r.context = st;
  st->L = L;
  st->owner = pthread_self();
  if (fl_runtime_open(&r, &st->rt) != FL_OK) {
    st->rt = NULL;
    luaL_error(L, "%s", fl_error());
  }
}

/* require "flare.core" is asked for by the library's init.lua: what lies beside
 * that file is the library. */
void fll_find_library(lua_State *L, fl_lua *st) {
  lua_Debug ar;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    lua_getinfo(L, "S", &ar);
    size_t n = strlen(ar.source);
    static const char tail[] = "flare/init.lua";
    size_t t = sizeof tail - 1;
    bool inside = strcmp(ar.source, "@<flare>/init.lua") == 0;
    if ((inside || (n >= t && strcmp(ar.source + n - t, tail) == 0)) &&
        n - 8 < sizeof st->library) {
      memcpy(st->library, ar.source, n - 8);
      st->library[n - 8] = 0;
      return;
    }
  }
}

fl_lua *fll_open(lua_State *L, const fl_lua_options *o) {
  check_lua(L);
  luaL_checkstack(L, 40, NULL);
  if (fll_getkey(L, FLL_STATE) == LUA_TUSERDATA) {
    fl_lua *st = lua_touserdata(L, -1);
    lua_pop(L, 1);
    if (st->rt)
      return st;
    luaL_error(L, "flare: the runtime of this state is closed");
  }
  lua_pop(L, 1);
  fl_lua *st = push_state(L);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_MAINTHREAD);
  st->main = lua_tothread(L, -1);
  lua_pop(L, 2);
  open_runtime(L, st, o);
  lua_createtable(L, 1, 0); /* with room, so that nothing is allocated later */
  lua_pushboolean(L, 0);
  lua_rawseti(L, -2, 1);
  fll_setkey(L, FLL_ERROR);
  lua_createtable(L, 2, 0);
  fll_setkey(L, FLL_OPERANDS);
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "v");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  fll_setkey(L, FLL_FUNCTIONS);
  lua_newtable(L);
  fll_setkey(L, FLL_SCOPES);
  fll_ops_open(L, st);
  fll_tensor_open(L, st);
  fll_autograd_open(L, st);
  fll_site_open(L, st);
  fll_gc_open(L, st, o && o->tune_collector);
  fll_modes_start(L, st);
  return st;
}

/* --- closures, types, scratch --- */

void fll_pushfunction(lua_State *L, lua_CFunction f) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_pushnil(L);
  lua_pushcclosure(L, f, 3);
}

void fll_register(lua_State *L, const luaL_Reg *reg) {
  for (; reg->name; reg++) {
    fll_pushfunction(L, reg->func);
    lua_setfield(L, -2, reg->name);
  }
}

void fll_newtype(lua_State *L, int key, const char *name, const luaL_Reg *reg) {
  /* Roomy: Lua looks __add and __gc up several times for each operation, and
   * in a table that is nearly full these names may stand in line. */
  lua_createtable(L, 0, 128);
  lua_pushvalue(L, -1);
  fll_setkey(L, key);
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__name");
  lua_pushstring(L, name);
  lua_setfield(L, -2, "__metatable");
  for (; reg && reg->name; reg++)
    if (strncmp(reg->name, "__", 2) == 0) {
      fll_pushfunction(L, reg->func);
      lua_setfield(L, -2, reg->name);
    }
}

void fll_newclass(lua_State *L, int key, const char *name, const luaL_Reg *reg,
                  const luaL_Reg *methods) {
  fll_newtype(L, key, name, reg);
  lua_newtable(L);
  fll_register(L, methods);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
}

static uint64_t magic_of(int key) {
  return 0xf1a7e0b1ull << 32 | (uint64_t)key;
}

void *fll_newobject(lua_State *L, int key, size_t size, int values) {
  uint64_t *p = lua_newuserdatauv(L, size, values);
  memset(p, 0, size);
  *p = magic_of(key);
  fll_getkey(L, key);
  lua_setmetatable(L, -2);
  return p;
}

void *fll_totype(lua_State *L, int i, int key, size_t size) {
  uint64_t *p = lua_touserdata(L, i);
  if (!p || lua_rawlen(L, i) != size || *p != magic_of(key) ||
      !lua_getmetatable(L, i))
    return NULL;
  fll_getkey(L, key);
  bool same = lua_rawequal(L, -1, -2);
  lua_pop(L, 2);
  return same ? p : NULL;
}

void *fll_checktype(lua_State *L, int i, int key, size_t size) {
  void *p = fll_totype(L, i, key, size);
  if (p)
    return p;
  fll_getkey(L, key);
  lua_getfield(L, -1, "__name");
  fll_error(L, "bad argument #%d (%s expected, got %s)", i, lua_tostring(L, -1),
            fll_typename(L, i));
}

const char *fll_typename(lua_State *L, int i) {
  if (lua_type(L, i) == LUA_TUSERDATA || lua_type(L, i) == LUA_TTABLE) {
    if (fll_is_closed(L, i))
      return "a closed tensor";
    if (luaL_getmetafield(L, i, "__name") == LUA_TSTRING)
      return lua_tostring(L, -1); /* stays on the stack: an error follows */
  }
  if (lua_type(L, i) == LUA_TNUMBER)
    return lua_isinteger(L, i) ? "an integer" : "a number";
  return lua_type(L, i) == LUA_TNONE ? "no value" : luaL_typename(L, i);
}

void *fll_scratch(lua_State *L, size_t bytes) {
  return lua_newuserdatauv(L, bytes, 0);
}

/* --- boxes --- */

static int box_gc(lua_State *L) {
  fll_box *b = fll_totype(L, 1, FLL_BOX, sizeof *b);
  if (b)
    fll_emptybox(b);
  return 0;
}

fll_box *fll_newbox(lua_State *L, void (*release)(void *)) {
  if (fll_getkey(L, FLL_BOX) != LUA_TTABLE) {
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, box_gc);
    lua_setfield(L, -2, "__gc");
    fll_setkey(L, FLL_BOX);
  }
  lua_pop(L, 1);
  fll_box *b = fll_newobject(L, FLL_BOX, sizeof *b, 0);
  b->release = release ? release : free;
  return b;
}

void fll_emptybox(fll_box *b) {
  if (b->p)
    b->release(b->p);
  b->p = NULL;
  b->n = b->room = 0;
}

char *fll_boxroom(lua_State *L, fll_box *b, size_t more) {
  if (more > b->room - b->n) {
    size_t room = b->room ? b->room : 256;
    while (room - b->n < more && room < SIZE_MAX / 2)
      room *= 2;
    char *p = room - b->n < more ? NULL : realloc(b->p, room);
    if (!p)
      luaL_error(L, "out of memory: %d MB", (int)(room >> 20));
    b->p = p;
    b->room = room;
  }
  return b->p + b->n;
}

void fll_boxadd(lua_State *L, fll_box *b, const void *p, size_t n) {
  if (n) {
    memcpy(fll_boxroom(L, b, n), p, n);
    b->n += n;
  }
}
