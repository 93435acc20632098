/* Kernels from source, as flare/cuda/kernel.lua wants them: that reads the
 * signature and checks the arguments; here they become pointers. */
#include "fll.h"

#include <stdlib.h>

#define MAX_ARGS 64

typedef struct raw {
  uint64_t magic;
  fl_raw *k;
} raw;

/* raw_new(text, name, options, arch, image): a kernel, or nil, a message, and
 * what the compiler said. With an image there is no text. */
static int raw_new(lua_State *L) {
  fl_lua *st = fll_enter(L);
  size_t bytes = 0;
  const char *image = luaL_optlstring(L, 5, NULL, &bytes);
  fl_raw_source s = {.text = luaL_optstring(L, 1, ""),
                     .name = luaL_checkstring(L, 2),
                     .options = luaL_optstring(L, 3, NULL),
                     .arch = luaL_optstring(L, 4, NULL),
                     .image = image,
                     .bytes = bytes};
  char *log;
  raw *r = fll_newobject(L, FLL_RAW, sizeof *r, 0);
  if (fl_raw_new(st->rt, "cuda", &s, &r->k, &log) != FL_OK) {
    lua_pushnil(L);
    lua_pushstring(L, fl_error());
    lua_pushstring(L, log ? log : "");
    free(log);
    return 3;
  }
  free(log);
  return 1;
}

/* raw_about(kernel, device from 0, or -1): registers, bytes of shared and of
 * local memory, threads of a block, architecture, image, its entry's name. */
static int raw_about(lua_State *L) {
  fl_lua *st = fll_enter(L);
  raw *r = fll_checktype(L, 1, FLL_RAW, sizeof *r);
  fl_raw_facts f;
  fll_check(
      L, st,
      fl_raw_about(st->rt, "cuda", r->k, (int)luaL_checkinteger(L, 2), &f));
  const int numbers[] = {f.registers, f.shared, f.local, f.threads};
  for (int k = 0; k < 4; k++)
    if (numbers[k] < 0)
      lua_pushnil(L);
    else
      lua_pushinteger(L, numbers[k]);
  lua_pushstring(L, f.arch);
  if (!f.image)
    return 5;
  lua_pushlstring(L, f.image, f.bytes);
  lua_pushstring(L, f.entry);
  return 7;
}

fl_raw *fll_toraw(lua_State *L, int i) {
  raw *r = fll_totype(L, i, FLL_RAW, sizeof *r);
  return r ? r->k : NULL;
}

static unsigned size_at(lua_State *L, int i) {
  return (unsigned)luaL_checkinteger(L, i);
}

/* The string at i as one that lives as long as the state: launches and profiles
 * keep the names of kernels that are gone. */
static const char *kept(lua_State *L, int i) {
  luaL_checkstring(L, i);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, "flare.raw.names");
  lua_pushvalue(L, i);
  if (lua_rawget(L, -2) == LUA_TNIL) {
    lua_pushvalue(L, i);
    lua_pushvalue(L, i);
    lua_rawset(L, -4);
    lua_pop(L, 1);
    lua_pushvalue(L, i);
  }
  const char *name = lua_tostring(L, -1);
  lua_pop(L, 2);
  return name;
}

/* raw_run(kernel, name, grid x, y, z, block x, y, z, shared, writes, ...): what
 * follows are tensors, or the bytes of numbers as strings; bit k of `writes`:
 * tensor k is written. */
static int raw_run(lua_State *L) {
  fl_lua *st = fll_enter(L);
  raw *r = fll_checktype(L, 1, FLL_RAW, sizeof *r);
  fl_raw_arg args[MAX_ARGS];
  const int first = 11;
  int n = lua_gettop(L) - first + 1;
  uint64_t writes = (uint64_t)luaL_checkinteger(L, 10);
  fl_raw_call c = {.kernel = r->k, .shared = (size_t)luaL_checkinteger(L, 9)};
  luaL_argcheck(L, n <= MAX_ARGS, 1, "too many arguments");
  for (int k = 0; k < 3; k++) {
    c.grid[k] = size_at(L, 3 + k);
    c.block[k] = size_at(L, 6 + k);
  }
  for (int k = 0; k < n; k++) {
    fll_tensor *h = fll_test(L, first + k);
    args[k] = (fl_raw_arg){
        h ? h->t : NULL, writes >> k & 1,
        h ? NULL : (void *)(uintptr_t)luaL_checkstring(L, first + k)};
  }
  fll_check(L, st,
            fl_raw_run(st->rt, kept(L, 2), fll_site_user(L, st), &c, n, args));
  return 0;
}

void fll_raw_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"raw_new", raw_new},
                                       {"raw_about", raw_about},
                                       {"raw_run", raw_run},
                                       {NULL, NULL}};
  fll_newtype(L, FLL_RAW, "flare.cuda.raw", NULL);
  lua_pop(L, 1);
  fll_register(L, functions);
}
