/* Generators of random numbers as Lua objects: two integers, seed and offset,
 * that can be read, set and saved. And tensors filled from them in place. */
#include "index.h"

typedef struct generator {
  uint64_t magic; /* 16 bytes would be a tensor's size */
  fl_generator own;
  fl_generator *g; /* `own`, or the runtime's */
} generator;

static generator *new_generator(lua_State *L) {
  generator *g = fll_newobject(L, FLL_GENERATOR, sizeof *g, 0);
  g->g = &g->own;
  return g;
}

static generator *check(lua_State *L, int i) {
  return fll_checktype(L, i, FLL_GENERATOR, sizeof(generator));
}

fl_generator *fll_checkgenerator(lua_State *L, int i, const char *where) {
  generator *g = fll_totype(L, i, FLL_GENERATOR, sizeof *g);
  if (!g)
    fll_error(L,
              "%s: generator: expected one made by flare.generator(seed), "
              "got %s",
              where, fll_typename(L, i));
  return g->g;
}

static uint64_t check_seed(lua_State *L, int i, const char *where) {
  return (uint64_t)fll_checkint(L, i, where, "seed");
}

/* flare.generator(seed) */
static int make(lua_State *L) {
  fll_enter(L);
  uint64_t seed = lua_isnoneornil(L, 1) ? 0 : check_seed(L, 1, "generator");
  new_generator(L)->own.seed = seed;
  return 1;
}

/* The one that operators take when none is given. */
static int default_generator(lua_State *L) {
  fl_lua *st = fll_enter(L);
  new_generator(L)->g = fl_runtime_generator(st->rt);
  return 1;
}

static int manual_seed(lua_State *L) {
  fl_lua *st = fll_enter(L);
  *fl_runtime_generator(st->rt) =
      (fl_generator){check_seed(L, 1, "manual_seed"), 0};
  return 0;
}

static int seed(lua_State *L) {
  fll_enter(L);
  *check(L, 1)->g = (fl_generator){check_seed(L, 2, "manual_seed"), 0};
  lua_settop(L, 1);
  return 1;
}

/* g:state() -> seed, offset; g:set_state(seed, offset) */
static int state(lua_State *L) {
  fll_enter(L);
  const fl_generator *g = check(L, 1)->g;
  lua_pushinteger(L, (lua_Integer)g->seed);
  lua_pushinteger(L, (lua_Integer)g->offset);
  return 2;
}

static int set_state(lua_State *L) {
  fll_enter(L);
  fl_generator *g = check(L, 1)->g;
  int64_t s = fll_checkint(L, 2, "set_state", "seed");
  int64_t o = fll_checkint(L, 3, "set_state", "offset");
  *g = (fl_generator){(uint64_t)s, (uint64_t)o};
  lua_settop(L, 1);
  return 1;
}

static int clone(lua_State *L) {
  fll_enter(L);
  fl_generator now = *check(L, 1)->g;
  new_generator(L)->own = now;
  return 1;
}

static int get(lua_State *L) {
  fll_enter(L);
  const char *name = lua_tostring(L, 2);
  const fl_generator *g = check(L, 1)->g;
  if (name && strcmp(name, "seed") == 0)
    lua_pushinteger(L, (lua_Integer)g->seed);
  else if (name && strcmp(name, "offset") == 0)
    lua_pushinteger(L, (lua_Integer)g->offset);
  else {
    lua_pushvalue(L, 2);
    lua_rawget(L, FLL_OWN);
  }
  return 1;
}

static int set(lua_State *L) {
  fll_enter(L);
  const char *name = luaL_checkstring(L, 2);
  fl_generator *g = check(L, 1)->g;
  if (strcmp(name, "seed") == 0)
    g->seed = (uint64_t)fll_checkint(L, 3, "generator", name);
  else if (strcmp(name, "offset") == 0)
    g->offset = (uint64_t)fll_checkint(L, 3, "generator", name);
  else
    fll_error(L, "generator: there is no '%s' to set; it has seed and offset",
              name);
  return 0;
}

static int tostring(lua_State *L) {
  const fl_generator *g = check(L, 1)->g;
  lua_pushfstring(L, "flare.generator: seed %I, offset %I",
                  (LUAI_UACINT)g->seed, (LUAI_UACINT)g->offset);
  return 1;
}

/* --- x:uniform_(low, high), x:normal_(mean, std) --- */

static double option(lua_State *L, int i, const char *where, double other) {
  if (lua_isnoneornil(L, i))
    return other;
  if (lua_type(L, i) != LUA_TNUMBER)
    fll_error(L, "%s: expected a number, got %s", where, fll_typename(L, i));
  return lua_tonumber(L, i);
}

static int fill(lua_State *L, const char *where, const char *op, double a,
                double b) {
  fl_lua *st = fll_enter(L);
  fl_tensor *x = fll_checktensor(L, 1, where, "x");
  const fl_meta *m = fl_tensor_meta(x);
  a = option(L, 2, where, a);
  b = option(L, 3, where, b);
  if (fl_dtype_kind(m->dtype) != FL_KIND_FLOAT)
    fll_error(L, "%s: expected floats, got %s", where, fl_dtype_name(m->dtype));
  fl_generator *own = NULL;
  if (fll_option(L, 4, "generator") != LUA_TNIL)
    own = fll_checkgenerator(L, lua_gettop(L), where);
  fll_plan_run r;
  const fl_op *row = fl_op_find(st->rt, op);
  fl_attrs attrs = *fl_op_defaults(row);
  fl_attrs_list(&attrs, 0, m->ndim, m->shape);
  attrs.v[1].f = a;
  attrs.v[2].f = b;
  attrs.v[3].i = m->dtype;
  fl_operand nothing[2] = {{.dtype = FL_NODTYPE}, {.dtype = FL_NODTYPE}};
  fll_run_open(&r, L, st);
  r.device = fl_tensor_device(x);
  r.generator = own;
  fl_tensor *y = fll_do(&r, row, &attrs, 2, nothing, false);
  fl_operand in[2] = {{.tensor = x, .dtype = FL_NODTYPE},
                      {.tensor = y, .dtype = FL_NODTYPE}};
  fll_do(&r, st->assign, NULL, 2, in, true);
  fll_run_close(&r);
  fll_check(L, st, r.status);
  lua_settop(L, 1);
  return 1;
}

static int uniform_(lua_State *L) {
  return fill(L, "uniform_", "rand", 0, 1);
}

static int normal_(lua_State *L) {
  return fill(L, "normal_", "randn", 0, 1);
}

const luaL_Reg fll_random_methods[] = {
    {"uniform_", uniform_}, {"normal_", normal_}, {NULL, NULL}};

void fll_random_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"generator", make},
                                       {"default_generator", default_generator},
                                       {"manual_seed", manual_seed},
                                       {NULL, NULL}};
  static const luaL_Reg meta[] = {
      {"__newindex", set}, {"__tostring", tostring}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"manual_seed", seed},
                                     {"state", state},
                                     {"set_state", set_state},
                                     {"clone", clone},
                                     {NULL, NULL}};
  fll_newtype(L, FLL_GENERATOR, "flare.generator", meta);
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_newtable(L);
  fll_register(L, methods);
  lua_pushcclosure(L, get, 3);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  fll_register(L, functions);
}
