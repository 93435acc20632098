/* The module flare.core: puts the table together, and what fits nowhere else:
 * devices, memory, interruption, the clock. The library makes the public
 * `flare` out of it. */
#include "provenance.h"
#include "stop.h"

#include <limits.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* --- devices and memory; a device is a name, left out: the default one --- */

static fl_device device_at(lua_State *L, fl_lua *st, int i, const char *where) {
  return lua_isnoneornil(L, i) ? st->device : fll_checkdevice(L, st, i, where);
}

static int devices(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_device list[64];
  int n = fl_device_list(st->rt, list, 64);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n && i < 64; i++) {
    lua_pushstring(L, fl_device_name(st->rt, list[i]));
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* Waits for a device, or for all of them; raises the first failure there was.
 */
static int synchronize(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(
      L, st,
      fl_device_sync(st->rt, lua_isnoneornil(L, 1)
                                 ? -1
                                 : fll_checkdevice(L, st, 1, "synchronize")));
  return 0;
}

static int load_backend(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (fl_backend_load(st->rt, luaL_checkstring(L, 1)) != FL_OK)
    return fll_failed(L, "%s", fl_error());
  lua_pushboolean(L, 1);
  return 1;
}

/* backend_control(backend, what, value): its own knobs. */
static int backend_control(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st,
            fl_backend_control(st->rt, luaL_checkstring(L, 1),
                               luaL_checkstring(L, 2), luaL_checknumber(L, 3)));
  return 0;
}

/* backend_query(backend, what, argument): a backend's words about itself. */
static int backend_query(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *name = luaL_checkstring(L, 1);
  char *text;
  if (fl_backend_query(st->rt, name, luaL_checkstring(L, 2),
                       luaL_optstring(L, 3, ""), &text) != FL_OK)
    return fll_failed(L, "%s", fl_error());
  lua_pushstring(L, text);
  free(text);
  return 1;
}

static void set_number(lua_State *L, const char *key, uint64_t n) {
  lua_pushinteger(L, (lua_Integer)n);
  lua_setfield(L, -2, key);
}

static int memory_stats(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_memory_stats s = {0};
  size_t live;
  fl_memory_get(st->rt, device_at(L, st, 1, "memory.stats"), &s);
  lua_createtable(L, 0, 16);
  set_number(L, "live", s.live);
  set_number(L, "peak", s.peak_live);
  set_number(L, "reserved", s.reserved);
  set_number(L, "peak_reserved", s.peak_reserved);
  set_number(L, "limit", s.limit);
  set_number(L, "blocks", s.blocks);
  set_number(L, "largest_free", s.largest_free);
  set_number(L, "allocations", s.allocations);
  set_number(L, "segments", s.segments);
  set_number(L, "flushes", s.flushes);
  set_number(L, "moved", s.moved);
  set_number(L, "lua_only", fl_handles_bytes(st->rt, &live));
  set_number(L, "storages", live);
  set_number(L, "tensors", fl_tensor_count(st->rt));
  set_number(L, "steps", st->steps);
  set_number(L, "fulls", st->fulls);
  return 1;
}

static int memory_limit(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int64_t bytes =
      lua_isnoneornil(L, 1) ? 0 : fll_checkint(L, 1, "memory.limit", "bytes");
  if (bytes < 0)
    fll_error(L, "memory.limit: bytes: cannot be negative");
  fl_memory_limit(st->rt, device_at(L, st, 2, "memory.limit"), (size_t)bytes);
  return 0;
}

static int memory_flush(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_memory_flush(st->rt, device_at(L, st, 1, "memory.flush"));
  return 0;
}

static int memory_reset_peak(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_memory_reset_peak(st->rt, device_at(L, st, 1, "memory.reset_peak"));
  return 0;
}

/* memory.holders(most, device): the biggest live blocks by birth line. */
static int memory_holders(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int most = (int)luaL_optinteger(L, 1, 10);
  lua_pushstring(L, fl_memory_holders(
                        st->rt, device_at(L, st, 2, "memory.holders"), most));
  return 1;
}

/* memory.fail(skip, count): for tests; see flare.h. */
static int memory_fail(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int64_t skip = luaL_optinteger(L, 1, 0), count = luaL_optinteger(L, 2, 0);
  lua_pushinteger(L, fl_memory_fail(st->rt, skip, count));
  return 1;
}

/* Before each allocation everything that is garbage goes, so that the greatest
 * sum is what exact reference counting would have needed. */
typedef struct exact {
  fl_lua *st;
  fl_device device;
  size_t peak;
} exact;

static void before_allocation(void *context, fl_device d, int64_t bytes,
                              size_t live) {
  exact *e = context;
  fl_memory_stats s;
  if (bytes < 0 || d != e->device || !e->st->L || e->st->collecting)
    return;
  lua_State *L = e->st->L;
  fll_frame f;
  fll_callback_begin(L, e->st, &f);
  e->st->collecting = e->st->reclaiming = true;
  lua_gc(L, LUA_GCCOLLECT);
  e->st->collecting = e->st->reclaiming = false;
  fll_callback_end(L, e->st, &f);
  fl_memory_get(e->st->rt, d, &s);
  live = s.live + (size_t)bytes;
  if (live > e->peak)
    e->peak = live;
}

/* memory.needed(f, ...): the bytes on the default device that f would have
 * needed with exact reference counting; slow. */
static int memory_needed(lua_State *L) {
  exact e = {.st = fll_enter(L)};
  e.device = e.st->device;
  luaL_checktype(L, 1, LUA_TFUNCTION);
  fl_memory_trace(e.st->rt, before_allocation, &e);
  int s = lua_pcall(L, lua_gettop(L) - 1, 0, 0);
  e.st->L = L;
  if (e.st->rt)
    fl_memory_trace(e.st->rt, NULL, NULL);
  if (s != LUA_OK)
    return lua_error(L);
  lua_pushinteger(L, (lua_Integer)e.peak);
  return 1;
}

static int tensor_count(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_pushinteger(L, (lua_Integer)fl_tensor_count(st->rt));
  return 1;
}

static int launches(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_pushstring(L, fl_launches_text(st->rt, (int)luaL_optinteger(L, 1, 20)));
  return 1;
}

/* threads(n): how many threads the CPU's kernels use; n sets it. */
static int threads(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (!lua_isnoneornil(L, 1)) {
    int64_t n = fll_checkint(L, 1, "threads", "n");
    if (n < 1 || n > INT_MAX)
      fll_error(L, "threads: n must be at least 1, got %lld", (long long)n);
    fll_check(L, st, fl_runtime_set_threads(st->rt, (int)n));
  }
  lua_pushinteger(L, fl_runtime_threads(st->rt));
  return 1;
}

/* --- stopping --- */

/* interrupt() asks whatever runs to stop, interrupt(false) takes it back. */
static int interrupt(lua_State *L) {
  fl_lua *st = fll_enter(L);
  bool on = lua_isnoneornil(L, 1) || lua_toboolean(L, 1);
  atomic_store(&st->interrupted, on);
  return 0;
}

static int is_interrupted(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_pushboolean(L, fl_runtime_interrupted(st->rt));
  return 1;
}

void fll_ask_host(lua_State *L, fl_lua *st) {
  st->asks = FLL_ASKS;
  if (st->rt && fl_runtime_interrupted(st->rt))
    fll_error(L, "interrupted!");
}

static int interruptible(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_interruptible(L, st, lua_isnoneornil(L, 1) || lua_toboolean(L, 1));
  return 0;
}

/* --- odds and ends --- */

static int is_tensor(lua_State *L) {
  lua_pushboolean(L, fll_test(L, 1) != NULL);
  return 1;
}

/* Seconds from some moment on, never set back. */
static int core_now(lua_State *L) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
  return 1;
}

/* format(...): string.format with a decimal point in every locale, for texts
 * that are read again. */
static int format_text(lua_State *L) {
  void *was = fli_numeric_enter();
  lua_pushvalue(L, FLL_OWN);
  lua_insert(L, 1);
  int s = lua_pcall(L, lua_gettop(L) - 1, 1, 0);
  fli_numeric_leave(was);
  return s == LUA_OK ? 1 : lua_error(L);
}

static void add_format(lua_State *L) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_getglobal(L, "string");
  lua_getfield(L, -1, "format");
  lua_remove(L, -2);
  lua_pushcclosure(L, format_text, 3);
  lua_setfield(L, -2, "format");
}

/* has_kernel(row, device): or an expression runs there. */
static int has_kernel(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_op *op = fl_op_find(st->rt, luaL_checkstring(L, 1));
  fll_check(L, st, op ? FL_OK : FL_EARG);
  lua_pushboolean(
      L, fl_op_has_kernel(op, fll_checkdevice(L, st, 2, "has_kernel")));
  return 1;
}

static int is_terminal(lua_State *L) {
  lua_pushboolean(L, isatty((int)luaL_optinteger(L, 1, 1)));
  return 1;
}

int luaopen_flare_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"devices", devices},
                                       {"synchronize", synchronize},
                                       {"load_backend", load_backend},
                                       {"source", fll_source},
                                       {"backend_query", backend_query},
                                       {"op_register", fll_op_register},
                                       {"op_find", fll_op_find},
                                       {"has_kernel", has_kernel},
                                       {"backend_control", backend_control},
                                       {"tensors", tensor_count},
                                       {"launches", launches},
                                       {"threads", threads},
                                       {"interrupt", interrupt},
                                       {"interrupted", is_interrupted},
                                       {"interruptible", interruptible},
                                       {"is_tensor", is_tensor},
                                       {"clock", core_now},
                                       {"is_terminal", is_terminal},
                                       {NULL, NULL}};
  static const luaL_Reg memory[] = {
      {"stats", memory_stats},     {"limit", memory_limit},
      {"flush", memory_flush},     {"reset_peak", memory_reset_peak},
      {"holders", memory_holders}, {"fail", memory_fail},
      {"needed", memory_needed},   {NULL, NULL}};
  fll_find_library(L, fll_open(L, NULL));
  lua_newtable(L);
  fll_ops_core(L);
  fll_make_core(L);
  fll_random_core(L);
  fll_expr_core(L);
  fll_raw_core(L);
  fll_tensor_core(L);
  fll_autograd_core(L);
  fll_custom_core(L);
  fll_checkpoint_core(L);
  fll_compile_core(L);
  fll_capture_core(L);
  fll_modes_core(L);
  fll_scope_core(L);
  fll_module_core(L);
  fll_stream_core(L);
  fll_comm_core(L);
  fll_dlpack_core(L);
  fll_secret_core(L);
  fll_net_core(L);
  fll_http_core(L);
  fll_zmq_core(L);
  fll_monitor_core(L);
  fll_vmap_core(L);
  fll_evict_core(L);
  fll_keep_core(L);
  fll_gc_core(L);
  fll_error_core(L);
  fll_hint_core(L);
  fll_provenance_core(L);
  fll_missing_core(L);
  fll_profile_core(L);
  fll_register(L, functions);
  lua_newtable(L);
  fll_register(L, memory);
  lua_setfield(L, -2, "memory");
  fll_file_core(L);
  fll_json_core(L);
  fll_text_core(L);
  fll_thread_core(L);
  add_format(L);
  lua_pushliteral(L, FL_VERSION);
  lua_setfield(L, -2, "version");
  return 1;
}
