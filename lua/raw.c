/* Kernels from source, as flare/cuda/kernel.lua wants them: that reads the
 * signature and checks the arguments; here they become pointers. */
#include "fll.h"

#include <stdlib.h>
#include <string.h>

#define MAX_ARGS 64

typedef struct raw {
  uint64_t magic;
  fl_raw *k;
} raw;

/* raw_new(text, name, options, arch, image): a kernel, or nil, a message, and
 * the compiler's log. With an image there is no text. */
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
static const char *raw_kept(lua_State *L, int i) {
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
  fll_check(
      L, st,
      fl_raw_run(st->rt, raw_kept(L, 2), fll_site_here(L, st), &c, n, args));
  return 0;
}

/* --- the short way ---
 * What does not change from call to call is read once. A call whose arguments
 * are as they should be then takes place here; any other in kernel.lua, which
 * says what is wrong. */

enum { POINTER = 1, WRITTEN = 2, OUT = 4 };       /* flags of a parameter */
enum { BOOL, F32, F64, SIGNED, UNSIGNED, DTYPE }; /* what it is */

typedef struct param {
  uint8_t flags, kind, size; /* size: bytes of a number */
  uint8_t like;              /* an output has the shape of that parameter */
  fl_dtype dtype;            /* of a pointer */
} param;

typedef struct plan {
  uint64_t magic;
  fl_raw *k;
  const char *name;
  unsigned grid[3], block[3]; /* grid[0] 0: it covers parameter `counted` */
  size_t shared;
  int n, n_given, n_out, counted;
  param p[MAX_ARGS];
} plan;

static void read_type(param *p, const char *name) {
  int bits = atoi(name + 1);
  p->dtype = fl_dtype_find(name);
  p->size = (uint8_t)(bits / 8);
  p->kind = *name == 'i'                ? SIGNED
            : *name == 'u'              ? UNSIGNED
            : strcmp(name, "f32") == 0  ? F32
            : strcmp(name, "f64") == 0  ? F64
            : strcmp(name, "bool") == 0 ? BOOL
                                        : DTYPE;
}

/* raw_plan(kernel, name, grid x, y, z, block x, y, z, shared, params): three
 * values for each parameter: its type, flags, and what an output is like. */
static int raw_plan(lua_State *L) {
  fll_enter(L);
  raw *r = fll_checktype(L, 1, FLL_RAW, sizeof *r);
  const int list = 10;
  plan *q = fll_newobject(L, FLL_RAW_PLAN, sizeof *q, 0);
  q->k = r->k;
  q->name = raw_kept(L, 2);
  q->shared = (size_t)luaL_checkinteger(L, 9);
  q->n = (int)luaL_len(L, list) / 3;
  q->n_given = q->n_out = 0;
  q->counted = -1;
  luaL_argcheck(L, q->n <= MAX_ARGS, list, "too many parameters");
  for (int k = 0; k < 3; k++) {
    q->grid[k] = size_at(L, 3 + k);
    q->block[k] = size_at(L, 6 + k);
  }
  for (int k = 0; k < q->n; k++) {
    param *p = &q->p[k];
    for (int i = 1; i <= 3; i++)
      lua_rawgeti(L, list, 3 * k + i);
    read_type(p, luaL_checkstring(L, -3));
    p->flags = (uint8_t)luaL_checkinteger(L, -2);
    p->like = (uint8_t)luaL_checkinteger(L, -1);
    lua_pop(L, 3);
    *(p->flags & OUT ? &q->n_out : &q->n_given) += 1;
    int best = q->counted < 0 ? 0 : q->p[q->counted].flags & (WRITTEN | OUT);
    if (p->flags & POINTER && !best)
      if (q->counted < 0 || p->flags & (WRITTEN | OUT))
        q->counted = k;
  }
  return 1;
}

/* The number at i as p's bytes; false: it is not one of p's. */
static bool raw_pack(lua_State *L, int i, const param *p, uint64_t *to) {
  int type = lua_type(L, i), exact;
  if (p->kind == BOOL) {
    *to = (uint64_t)lua_toboolean(L, i);
    return type == LUA_TBOOLEAN;
  }
  if (type != LUA_TNUMBER || p->kind == DTYPE)
    return false;
  double d = lua_tonumber(L, i);
  float f = (float)d;
  if (p->kind == F32 || p->kind == F64) {
    memcpy(to, p->kind == F32 ? (void *)&f : (void *)&d, p->size);
    return true;
  }
  int64_t v = lua_tointegerx(L, i, &exact);
  int bits = p->size * 8 - (p->kind == SIGNED);
  memcpy(to, &v, sizeof v); /* the low bytes are first */
  if (bits >= 63)
    return exact && (p->kind == SIGNED || v >= 0);
  return exact && v >> bits <= 0 && v >> bits >= -(p->kind == SIGNED);
}

/* Whether tensor t fits p, on the device of those before it. */
static bool raw_fits(fl_lua *st, fl_tensor *t, const param *p, fl_device *d) {
  fl_device here = fl_tensor_device(t);
  if (fl_tensor_meta(t)->dtype != p->dtype || !fl_tensor_contiguous(t) ||
      (fl_grad_enabled(st->rt) && fl_tensor_requires_grad(t)))
    return false;
  if (*d < 0 && strncmp(fl_device_name(st->rt, here), "cuda", 4) == 0)
    *d = here;
  return *d == here;
}

/* raw_call(plan, otherwise, self, ...): results, of otherwise(self, ...) if it
 * cannot be done here. */
static int raw_call(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const plan *q = fll_checktype(L, 1, FLL_RAW_PLAN, sizeof *q);
  fl_raw_arg args[MAX_ARGS];
  uint64_t numbers[MAX_ARGS];
  fl_raw_call c = {.kernel = q->k, .shared = q->shared};
  fl_device d = -1;
  int at = 4, n = lua_gettop(L) - 3;
  bool good = n == q->n_given;
  for (int k = 0; k < q->n && good; k++) {
    const param *p = &q->p[k];
    if (p->flags & OUT)
      continue;
    fll_tensor *h = p->flags & POINTER ? fll_test(L, at) : NULL;
    args[k] = (fl_raw_arg){h ? h->t : NULL, p->flags & WRITTEN, &numbers[k]};
    good = p->flags & POINTER ? h && raw_fits(st, h->t, p, &d)
                              : raw_pack(L, at, p, &numbers[k]);
    at++;
  }
  for (int k = 0; k < 3; k++) {
    c.grid[k] = q->grid[k];
    c.block[k] = q->block[k];
  }
  if (good && d >= 0 && !c.grid[0]) {
    const param *p = &q->p[q->counted];
    int64_t threads = (int64_t)c.block[0] * c.block[1] * c.block[2],
            count = fl_tensor_numel(
                args[p->flags & OUT ? p->like : q->counted].tensor);
    c.grid[0] = (unsigned)((count + threads - 1) / threads);
    good = count > 0 && count <= INT32_MAX * threads;
  }
  if (!good || d < 0) {
    lua_remove(L, 1);
    lua_call(L, n + 1, LUA_MULTRET);
    return lua_gettop(L);
  }
  luaL_checkstack(L, q->n_out + 2, NULL);
  fll_getkey(L, FLL_TENSOR);
  int mt = lua_gettop(L);
  for (int k = 0; k < q->n; k++) {
    const param *p = &q->p[k];
    if (!(p->flags & OUT))
      continue;
    const fl_meta *m = fl_tensor_meta(args[p->like].tensor);
    fl_tensor *t;
    fll_tensor *h = fll_new(L, st, mt);
    fll_check(L, st, fl_tensor_new(st->rt, p->dtype, m->ndim, m->shape, d, &t));
    fll_fill(h, t);
    args[k] = (fl_raw_arg){t, true, NULL};
  }
  fll_check(L, st,
            fl_raw_run(st->rt, q->name, fll_site_here(L, st), &c, q->n, args));
  return q->n_out;
}

void fll_raw_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"raw_new", raw_new},   {"raw_about", raw_about}, {"raw_run", raw_run},
      {"raw_plan", raw_plan}, {"raw_call", raw_call},   {NULL, NULL}};
  fll_newtype(L, FLL_RAW, "flare.cuda.raw", NULL);
  fll_newtype(L, FLL_RAW_PLAN, "flare.cuda.plan", NULL);
  lua_pop(L, 2);
  fll_register(L, functions);
}
