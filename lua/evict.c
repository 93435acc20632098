/* core.memory_of and its kin: memory of tensors that goes to the host or away
 * and comes back, for flare.plan. */
#include "fll.h"

#include <stdlib.h>

/* memory_of(t): the memory behind a tensor, as a tensor of bytes. */
static int memory_of(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *bytes;
  fll_check(L, st,
            fl_tensor_memory(fll_checktensor(L, 1, "memory_of", "t"), &bytes));
  fll_push(L, st, bytes);
  fl_tensor_release(bytes);
  return 1;
}

/* store(bytes, host), fetch(bytes, host): copies on the stream in use. */
static int evict_copy(lua_State *L, const char *where,
                      fl_status (*copy)(fl_tensor *bytes, fl_tensor *host)) {
  fl_lua *st = fll_enter(L);
  fl_tensor *bytes = fll_checktensor(L, 1, where, "bytes");
  fl_tensor *host =
      lua_isnoneornil(L, 2) ? NULL : fll_checktensor(L, 2, where, "host");
  fll_check(L, st, copy(bytes, host));
  return 0;
}

static int evict_store(lua_State *L) {
  return evict_copy(L, "store", fl_tensor_store);
}

static int evict_fetch(lua_State *L) {
  return evict_copy(L, "fetch", fl_tensor_fetch);
}

static int evict(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st, fl_tensor_evict(fll_checktensor(L, 1, "evict", "bytes")));
  return 0;
}

static int passed(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st, fl_tensor_passed(fll_checktensor(L, 1, "passed", "bytes")));
  return 0;
}

static int refill(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st,
            fl_tensor_refill(fll_checktensor(L, 1, "refill", "bytes"),
                             fll_site_here(L, st)));
  return 0;
}

/* device_memory(device): free and all bytes by its driver, or nothing. */
static int device_memory(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_device d = fll_checkdevice(L, st, 1, "device_memory");
  size_t free_bytes, total;
  if (fl_memory_driver(st->rt, d, &free_bytes, &total) != FL_OK)
    return 0;
  lua_pushinteger(L, (lua_Integer)free_bytes);
  lua_pushinteger(L, (lua_Integer)total);
  return 2;
}

static int tape_now(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)fl_tape_now(fll_enter(L)->rt));
  return 1;
}

typedef struct saved {
  int n, room;
  fl_tensor **list;
} saved;

static fl_status saved_take(void *context, fl_tensor *bytes) {
  saved *s = context;
  if (s->n == s->room) {
    int room = s->room ? 2 * s->room : 32;
    fl_tensor **more = realloc(s->list, (size_t)room * sizeof *more);
    if (!more)
      return fli_fail(FL_ENOMEM, "out of memory: what the tape saved");
    s->list = more;
    s->room = room;
  }
  s->list[s->n++] = fl_tensor_retain(bytes);
  return FL_OK;
}

/* saved(y, since, least): a list of the memory that nodes behind y save. */
static int tape_saved(lua_State *L) {
  fl_lua *st = fll_enter(L);
  saved s = {0};
  fl_status failed = fl_tape_saved(
      fll_checktensor(L, 1, "saved", "y"), (uint64_t)luaL_checkinteger(L, 2),
      (size_t)luaL_checkinteger(L, 3), saved_take, &s);
  lua_createtable(L, s.n, 0);
  for (int k = 0; k < s.n; k++) {
    fll_push(L, st, s.list[k]);
    fl_tensor_release(s.list[k]);
    lua_rawseti(L, -2, k + 1);
  }
  free(s.list);
  fll_check(L, st, failed);
  return 1;
}

void fll_evict_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"memory_of", memory_of},
                                       {"store", evict_store},
                                       {"fetch", evict_fetch},
                                       {"evict", evict},
                                       {"passed", passed},
                                       {"refill", refill},
                                       {"tape_now", tape_now},
                                       {"saved", tape_saved},
                                       {"device_memory", device_memory},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
