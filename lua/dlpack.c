/* Exchanges tensors with other libraries' Lua modules by DLPack. A capsule owns
 * a DLPack struct until take() or from_dlpack takes it out. */
#include "fll.h"

#include <stdlib.h>

#include "dlpack.h"

typedef struct capsule {
  uint64_t magic;
  DLManagedTensorVersioned *managed; /* one of the two, or taken */
  DLManagedTensor *old;
} capsule;

static const char *const options[] = {"stream", "versioned", NULL};

/* {stream =, versioned =} at i. */
static bool read_options(lua_State *L, int i, const char *where,
                         fl_dlpack_options *o) {
  fll_checkoptions(L, i, where, options);
  *o = (fl_dlpack_options){sizeof *o, FL_DLPACK_WAIT};
  if (fll_option(L, i, "stream") != LUA_TNIL)
    o->stream = (intptr_t)fll_checkint(L, -1, where, "stream");
  return fll_option(L, i, "versioned") == LUA_TNIL || lua_toboolean(L, -1);
}

static int capsule_close(lua_State *L) {
  capsule *c = fll_totype(L, 1, FLL_CAPSULE, sizeof *c);
  if (!c)
    return 0;
  DLManagedTensorVersioned *managed = c->managed;
  DLManagedTensor *old = c->old;
  c->managed = NULL;
  c->old = NULL;
  if (managed && managed->deleter)
    managed->deleter(managed);
  if (old && old->deleter)
    old->deleter(old);
  return 0;
}

static capsule *check_capsule(lua_State *L, const char *where) {
  capsule *c = fll_checktype(L, 1, FLL_CAPSULE, sizeof *c);
  if (!c->managed && !c->old)
    fll_error(L, "%s: the tensor has been taken already", where);
  return c;
}

/* x:to_dlpack{stream =, versioned =}: a capsule. */
static int to_dlpack(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_dlpack_options o;
  lua_settop(L, 2);
  fll_checktensor(L, 1, "to_dlpack", "x");
  bool versioned = read_options(L, 2, "to_dlpack", &o);
  capsule *c = fll_newobject(L, FLL_CAPSULE, sizeof *c, 0);
  fl_tensor *t = fll_checktensor(L, 1, "to_dlpack", "x");
  fll_check(L, st,
            versioned ? fl_tensor_to_dlpack(t, &o, &c->managed)
                      : fl_tensor_to_dlpack_old(t, &o, &c->old));
  return 1;
}

/* c:take(): the struct as a light userdata; the caller calls its deleter. */
static int capsule_take(lua_State *L) {
  fll_peek(L);
  capsule *c = check_capsule(L, "take");
  lua_pushlightuserdata(L, c->managed ? (void *)c->managed : (void *)c->old);
  c->managed = NULL;
  c->old = NULL;
  return 1;
}

static int capsule_text(lua_State *L) {
  capsule *c = fll_checktype(L, 1, FLL_CAPSULE, sizeof *c);
  lua_pushfstring(L, "flare.dlpack (%s)",
                  c->managed ? "versioned"
                  : c->old   ? "without a version"
                             : "taken");
  return 1;
}

/* from_dlpack(capsule or light userdata, {stream =, versioned =}) */
static int from_dlpack(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_dlpack_options o;
  lua_settop(L, 2);
  bool versioned = read_options(L, 2, "from_dlpack", &o);
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fl_tensor *t = NULL;
  if (lua_islightuserdata(L, 1)) {
    void *m = lua_touserdata(L, 1);
    if (!m)
      fll_error(L, "from_dlpack: the pointer is NULL");
    fll_check(L, st,
              versioned ? fl_tensor_from_dlpack(st->rt, m, &o, &t)
                        : fl_tensor_from_dlpack_old(st->rt, m, &o, &t));
  } else {
    if (!fll_totype(L, 1, FLL_CAPSULE, sizeof(capsule)))
      fll_error(L,
                "from_dlpack: expected what x:to_dlpack() gives or a light "
                "userdata, got %s",
                fll_typename(L, 1));
    capsule *c = check_capsule(L, "from_dlpack");
    fll_check(L, st,
              c->managed ? fl_tensor_from_dlpack(st->rt, c->managed, &o, &t)
                         : fl_tensor_from_dlpack_old(st->rt, c->old, &o, &t));
    c->managed = NULL;
    c->old = NULL;
  }
  fll_fill(h, t);
  return 1;
}

const luaL_Reg fll_dlpack_methods[] = {{"to_dlpack", to_dlpack}, {NULL, NULL}};

void fll_dlpack_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"from_dlpack", from_dlpack},
                                       {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__gc", capsule_close},
                                  {"__close", capsule_close},
                                  {"__tostring", capsule_text},
                                  {NULL, NULL}};
  static const luaL_Reg list[] = {
      {"take", capsule_take}, {"close", capsule_close}, {NULL, NULL}};
  fll_newclass(L, FLL_CAPSULE, "flare.dlpack", meta, list);
  fll_register(L, functions);
}
