/* The profiler's rows for Lua: kept as they are, a million of them are 100 MB,
 * and read one by one; what they add up to is stdlib/flare/profile.lua. */
#include "fll.h"

typedef struct rows {
  uint64_t magic;
  size_t n;
  fl_profile_row row[];
} rows;

/* profile_start(most, ranges, peaks, meta) */
static int profile_start(lua_State *L) {
  fl_lua *st = fll_enter(L);
  unsigned flags = (lua_toboolean(L, 2) ? FL_PROFILE_RANGES : 0u) |
                   (lua_toboolean(L, 3) ? FL_PROFILE_PEAKS : 0u) |
                   (lua_toboolean(L, 4) ? FL_PROFILE_META : 0u);
  fll_check(L, st,
            fl_profile_start(st->rt, (size_t)luaL_optinteger(L, 1, 0), flags));
  return 0;
}

/* A list of {device, bytes, holders} where anything was held. */
static void push_peaks(lua_State *L, fl_lua *st) {
  fl_device devices[64];
  int n = fl_device_list(st->rt, devices, 64);
  lua_newtable(L);
  for (int k = 0; k < n && k < 64; k++) {
    const char *held;
    size_t bytes = fl_profile_peak(st->rt, devices[k], &held);
    if (bytes == 0)
      continue;
    lua_createtable(L, 0, 3);
    lua_pushstring(L, fl_device_name(st->rt, devices[k]));
    lua_setfield(L, -2, "device");
    lua_pushinteger(L, (lua_Integer)bytes);
    lua_setfield(L, -2, "bytes");
    lua_pushstring(L, held);
    lua_setfield(L, -2, "holders");
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  }
}

static size_t step_bytes(const fl_profile_step *s) {
  return s ? sizeof *s + s->n * sizeof *s->launches : 0;
}

/* profile_stop(): the rows, how many there are, how many were not kept, and
 * the peaks of memory. */
static int profile_stop(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_profile_row *list;
  size_t n;
  uint64_t lost;
  fll_check(L, st, fl_profile_stop(st->rt, &list, &n, &lost));
  size_t steps = 0;
  for (size_t k = 0; k < n; k++)
    steps += step_bytes(list[k].step);
  rows *r =
      fll_newobject(L, FLL_PROFILE, sizeof *r + n * sizeof *list + steps, 0);
  r->n = n;
  if (n)
    memcpy(r->row, list, n * sizeof *list);
  char *to = (char *)&r->row[n];
  for (size_t k = 0; k < n; to += step_bytes(r->row[k++].step))
    if (r->row[k].step)
      r->row[k].step = memcpy(to, r->row[k].step, step_bytes(r->row[k].step));
  lua_pushinteger(L, (lua_Integer)n);
  lua_pushinteger(L, (lua_Integer)lost);
  push_peaks(L, st);
  return 4;
}

static rows *check_rows(lua_State *L) {
  rows *r = lua_touserdata(L, 1);
  size_t have = r ? lua_rawlen(L, 1) : 0;
  return fll_checktype(L, 1, FLL_PROFILE, have > sizeof *r ? have : sizeof *r);
}

/* The line of the script: where a part of the library was asked for, if the
 * row's own is the library's. */
static const char *line_of(fl_lua *st, fl_site site, fl_profile_part part) {
  const char *text = fl_site_text(st->rt, site);
  size_t n = strlen(st->library);
  return n > 1 && part.caller && strncmp(text, st->library + 1, n - 1) == 0
             ? fl_site_text(st->rt, part.caller)
             : text;
}

static void set_number(lua_State *L, const char *name, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, name);
}

static void set_text(lua_State *L, const char *name, const char *value) {
  lua_pushstring(L, value);
  lua_setfield(L, -2, name);
}

static void set_flag(lua_State *L, const char *name, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, name);
}

/* {kind, shapes, read, written, kept, apart, number, from, {op, line, module,
 * backward, again}, ...}: numbers of steps count from 1. */
static void push_step(lua_State *L, fl_lua *st, const fl_profile_step *s) {
  lua_createtable(L, (int)s->n, 7);
  set_text(L, "kind", s->kind);
  set_text(L, "shapes", s->shapes);
  set_number(L, "read", s->read);
  set_number(L, "written", s->written);
  set_number(L, "kept", s->kept);
  if (s->apart)
    set_text(L, "apart", s->apart);
  if (s->number >= 0) {
    lua_pushinteger(L, s->number + 1);
    lua_setfield(L, -2, "number");
  }
  if (s->from >= 0) {
    lua_pushinteger(L, s->from + 1);
    lua_setfield(L, -2, "from");
  }
  for (uint32_t k = 0; k < s->n; k++) {
    const fl_profile_launch *x = &s->launches[k];
    lua_createtable(L, 0, 5);
    set_text(L, "op", x->op);
    set_text(L, "line", line_of(st, x->site, x->part));
    set_text(L, "module",
             x->part.module ? fl_site_text(st->rt, x->part.module) : "");
    set_flag(L, "backward", x->backward);
    set_flag(L, "again", x->again);
    lua_rawseti(L, -2, (lua_Integer)k + 1);
  }
}

/* profile_row(rows, i): op, line, module ("" if none), device, dtype (nil if
 * none), backward, transfer; then start, host, device's start, device's time in
 * us, flops, bytes; then the operator that was called and the call's number,
 * live bytes, the peak of them, and the step of a compiled function, or nil. */
static int profile_row(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const rows *x = check_rows(L);
  lua_Integer i = luaL_checkinteger(L, 2);
  luaL_argcheck(L, i >= 1 && (size_t)i <= x->n, 2, "no such row");
  const fl_profile_row *r = &x->row[i - 1];
  lua_pushstring(L, r->op);
  lua_pushstring(L, line_of(st, r->site, r->part));
  lua_pushstring(L, r->part.module ? fl_site_text(st->rt, r->part.module) : "");
  lua_pushstring(L, fl_device_name(st->rt, r->device));
  if (r->dtype < FL_NODTYPE)
    lua_pushstring(L, fl_dtype_name(r->dtype));
  else
    lua_pushnil(L);
  lua_pushboolean(L, r->backward);
  lua_pushboolean(L, r->transfer);
  const double numbers[] = {r->start_us,  r->host_us, r->device_start_us,
                            r->device_us, r->flops,   r->bytes};
  for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
    lua_pushnumber(L, numbers[k]);
  lua_pushstring(L, r->called);
  lua_pushinteger(L, (lua_Integer)r->call);
  lua_pushinteger(L, (lua_Integer)r->live);
  lua_pushinteger(L, (lua_Integer)r->peak);
  if (r->step)
    push_step(L, st, r->step);
  else
    lua_pushnil(L);
  return 18;
}

/* profile_flow(rows, i): {written = a number of a tensor or nil, bytes = of all
 * results, {number, bytes} of each tensor read}. */
static int profile_flow(lua_State *L) {
  const rows *x = check_rows(L);
  lua_Integer i = luaL_checkinteger(L, 2);
  luaL_argcheck(L, i >= 1 && (size_t)i <= x->n, 2, "no such row");
  const fl_profile_flow *f = &x->row[i - 1].flow;
  lua_newtable(L);
  set_number(L, "bytes", f->written_bytes);
  if (f->written) {
    lua_pushinteger(L, (lua_Integer)f->written);
    lua_setfield(L, -2, "written");
  }
  for (int k = 0; k < FL_PROFILE_READS && f->read[k]; k++) {
    lua_createtable(L, 2, 0);
    lua_pushinteger(L, (lua_Integer)f->read[k]);
    lua_rawseti(L, -2, 1);
    lua_pushnumber(L, f->read_bytes[k]);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, k + 1);
  }
  return 1;
}

/* profile_push(path): a number for profile_pop */
static int profile_push(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_profile_part before =
      fl_profile_push(st->rt, luaL_checkstring(L, 1), fll_site_here(L, st));
  lua_pushinteger(L, (lua_Integer)before.module << 32 | before.caller);
  return 1;
}

static int profile_pop(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_Integer before = luaL_checkinteger(L, 1);
  fl_profile_pop(st->rt,
                 (fl_profile_part){(fl_site)(before >> 32), (fl_site)before});
  return 0;
}

void fll_profile_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"profile_start", profile_start},
                                       {"profile_stop", profile_stop},
                                       {"profile_row", profile_row},
                                       {"profile_flow", profile_flow},
                                       {"profile_push", profile_push},
                                       {"profile_pop", profile_pop},
                                       {NULL, NULL}};
  fll_newtype(L, FLL_PROFILE, "flare.profile.rows", NULL);
  lua_pop(L, 1);
  fll_register(L, functions);
}
