/* The profiler's rows as Lua tables; what they add up to is
 * stdlib/flare/profile.lua. */
#include "fll.h"

static int profile_start(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st, fl_profile_start(st->rt, (size_t)luaL_optinteger(L, 1, 0)));
  return 0;
}

static void set_real(lua_State *L, const char *key, double v) {
  lua_pushnumber(L, v);
  lua_setfield(L, -2, key);
}

/* profile_stop(): a list of {op, site, backward, device, start, host,
 * device_start, device_time (all in us), flops, bytes}, and how many launches
 * were not kept. */
static int profile_stop(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_profile_row *rows;
  size_t n;
  uint64_t lost;
  fll_check(L, st, fl_profile_stop(st->rt, &rows, &n, &lost));
  lua_createtable(L, (int)n, 0);
  for (size_t i = 0; i < n; i++) {
    const fl_profile_row *r = &rows[i];
    lua_createtable(L, 0, 10);
    lua_pushstring(L, r->op);
    lua_setfield(L, -2, "op");
    lua_pushstring(L, fl_site_text(st->rt, r->site));
    lua_setfield(L, -2, "site");
    lua_pushboolean(L, r->backward);
    lua_setfield(L, -2, "backward");
    lua_pushstring(L, fl_device_name(st->rt, r->device));
    lua_setfield(L, -2, "device");
    set_real(L, "start", r->start_us);
    set_real(L, "host", r->host_us);
    set_real(L, "device_start", r->device_start_us);
    set_real(L, "device_time", r->device_us);
    set_real(L, "flops", r->flops);
    set_real(L, "bytes", r->bytes);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  lua_pushinteger(L, (lua_Integer)lost);
  return 2;
}

void fll_profile_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"profile_start", profile_start},
                                       {"profile_stop", profile_stop},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
