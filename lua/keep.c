/* What a tensor's memory holds at a moment, for flare.session:
 * core.keep_memory. */
#include "fll.h"

typedef struct keeper {
  uint64_t magic;
  fl_kept *kept;    /* NULL: closed */
  uintptr_t number; /* the same for all of one moment */
} keeper;

/* keep_memory(x), or nil if it has no memory */
static int keep_tensor(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "keep", "x");
  keeper *k = fll_newobject(L, FLL_MEMORY, sizeof *k, 0);
  fll_check(L, st, fl_keep(t, &k->kept));
  if (!k->kept)
    return 0;
  k->number = (uintptr_t)k->kept;
  return 1;
}

static keeper *check_keeper(lua_State *L) {
  keeper *k = fll_checktype(L, 1, FLL_MEMORY, sizeof *k);
  if (!k->kept)
    fll_error(L, "back: the mark was dropped");
  return k;
}

/* k:restore(x): into the memory of x */
static int keep_restore(lua_State *L) {
  fl_lua *st = fll_enter(L);
  keeper *k = check_keeper(L);
  fll_check(L, st,
            fl_kept_restore(k->kept, fll_checktensor(L, 2, "back", "x")));
  return 0;
}

/* k:value(x) -> x as it was, which may share memory with x */
static int keep_value(lua_State *L) {
  fl_lua *st = fll_enter(L);
  keeper *k = check_keeper(L);
  fl_tensor *t = fll_checktensor(L, 2, "back", "x"), *y;
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fll_check(L, st, fl_kept_value(k->kept, t, &y));
  fll_fill(h, y);
  return 1;
}

/* k:bytes() -> of the copy, and a number that all keepers of it have */
static int keep_bytes(lua_State *L) {
  keeper *k = check_keeper(L);
  lua_pushinteger(L, (lua_Integer)fl_kept_bytes(k->kept));
  lua_pushinteger(L, (lua_Integer)k->number);
  return 2;
}

static int keep_close(lua_State *L) {
  keeper *k = fll_totype(L, 1, FLL_MEMORY, sizeof *k);
  if (k) {
    fl_kept_release(k->kept);
    k->kept = NULL;
  }
  return 0;
}

void fll_keep_core(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__gc", keep_close}, {"__close", keep_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"restore", keep_restore},
                                     {"value", keep_value},
                                     {"bytes", keep_bytes},
                                     {"close", keep_close},
                                     {NULL, NULL}};
  fll_newclass(L, FLL_MEMORY, "kept memory", meta, methods);
  fll_pushfunction(L, keep_tensor);
  lua_setfield(L, -2, "keep_memory");
}
