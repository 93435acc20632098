/* What flare.vmap (stdlib/flare/vmap.lua) is made of: levels, and tensors that
 * stand for one sample. */
#include "fll.h"

/* vmap_run(samples, f, ...): f(...) inside a level, which is closed whatever
 * happens. Levels are the runtime's, so f cannot yield out of it. */
static int vmap_run(lua_State *L) {
  fl_lua *st = fll_enter(L);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  fll_check(L, st, fl_vmap_open(st->rt, fll_checkint(L, 1, "vmap", "samples")));
  int s = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  st->L = L;
  if (st->rt)
    fl_vmap_close(st->rt);
  if (s != LUA_OK)
    return lua_error(L);
  return lua_gettop(L) - 1;
}

/* A tensor made of the one at 1, with its history. */
static int vmap_through(lua_State *L, const char *name,
                        fl_status (*f)(fl_runtime *, fl_tensor *,
                                       fl_tensor **)) {
  fl_lua *st = fll_enter(L);
  fll_checktensor(L, 1, "vmap", name);
  fll_tensor *h = fll_new(L, st, FLL_MT), *x = fll_test(L, 1);
  fl_tensor *t = NULL;
  fll_check(L, st, f(st->rt, x->t, &t));
  fll_fill(h, t);
  if (x->flags)
    fll_inherit_from(L, st, -1, 1);
  return 1;
}

/* vmap_in(x): a tensor that stands for x[1], x[2] ... */
static int vmap_in(lua_State *L) {
  return vmap_through(L, "x", fl_vmap_in);
}

/* vmap_out(y): what y stands for. */
static int vmap_out(lua_State *L) {
  return vmap_through(L, "y", fl_vmap_out);
}

void fll_vmap_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"vmap_run", vmap_run},
                                       {"vmap_in", vmap_in},
                                       {"vmap_out", vmap_out},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
