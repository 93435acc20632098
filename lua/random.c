/* Generators of random numbers as Lua objects: two integers, seed and offset,
 * that can be read, set and saved. And tensors filled from them in place. */
#include "index.h"

#include <math.h>

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

static generator *random_check(lua_State *L, int i) {
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
static int random_make(lua_State *L) {
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
  *random_check(L, 1)->g = (fl_generator){check_seed(L, 2, "manual_seed"), 0};
  lua_settop(L, 1);
  return 1;
}

/* g:state() -> seed, offset; g:set_state(seed, offset) */
static int state(lua_State *L) {
  fll_enter(L);
  const fl_generator *g = random_check(L, 1)->g;
  lua_pushinteger(L, (lua_Integer)g->seed);
  lua_pushinteger(L, (lua_Integer)g->offset);
  return 2;
}

static int set_state(lua_State *L) {
  fll_enter(L);
  fl_generator *g = random_check(L, 1)->g;
  int64_t s = fll_checkint(L, 2, "set_state", "seed");
  int64_t o = fll_checkint(L, 3, "set_state", "offset");
  *g = (fl_generator){(uint64_t)s, (uint64_t)o};
  lua_settop(L, 1);
  return 1;
}

static int clone(lua_State *L) {
  fll_enter(L);
  fl_generator now = *random_check(L, 1)->g;
  new_generator(L)->own = now;
  return 1;
}

static int random_get(lua_State *L) {
  fll_enter(L);
  const char *name = lua_tostring(L, 2);
  const fl_generator *g = random_check(L, 1)->g;
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

static int random_set(lua_State *L) {
  fll_enter(L);
  const char *name = luaL_checkstring(L, 2);
  fl_generator *g = random_check(L, 1)->g;
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
  const fl_generator *g = random_check(L, 1)->g;
  lua_pushfstring(L, "flare.generator: seed %I, offset %I",
                  (LUAI_UACINT)g->seed, (LUAI_UACINT)g->offset);
  return 1;
}

/* --- filling in place: x:uniform_(low, high), x:bernoulli_(p) ... --- */

typedef struct filling {
  fl_lua *st;
  fl_tensor *x;
  const fl_meta *m;
  const char *where;
  int n;       /* numbers given, */
  double v[2]; /* these */
  fll_plan_run r;
} filling;

/* x, up to two numbers, a table of options. */
static void random_begin(lua_State *L, filling *f, const char *where, int most,
                         bool floats, double a, double b) {
  static const char *const options[] = {"generator", NULL};
  f->st = fll_enter(L);
  f->where = where;
  f->x = fll_checktensor(L, 1, where, "x");
  f->m = fl_tensor_meta(f->x);
  f->v[0] = a;
  f->v[1] = b;
  f->n = 0;
  int i = 2;
  for (; i < 4 && lua_type(L, i) != LUA_TTABLE && !fll_test(L, i); i++) {
    if (lua_isnoneornil(L, i))
      continue;
    if (lua_type(L, i) != LUA_TNUMBER)
      fll_error(L, "%s: expected a number, got %s", where, fll_typename(L, i));
    if (i - 1 > most)
      fll_error(L, "%s takes %d number%s and a table of options", where, most,
                most == 1 ? "" : "s");
    f->v[i - 2] = lua_tonumber(L, i);
    f->n = i - 1;
  }
  i += fll_test(L, i) != NULL; /* bernoulli_'s tensor */
  if (floats && fl_dtype_kind(f->m->dtype) != FL_KIND_FLOAT)
    fll_error(L, "%s: expected floats, got %s", where,
              fl_dtype_name(f->m->dtype));
  fl_generator *own = NULL;
  fll_checkoptions(L, i, where, options);
  if (fll_option(L, i, "generator") != LUA_TNIL)
    own = fll_checkgenerator(L, lua_gettop(L), where);
  fll_run_open(&f->r, L, f->st);
  f->r.device = fl_tensor_device(f->x);
  f->r.generator = own;
}

/* y into x; x is returned. */
static int random_end(lua_State *L, filling *f, fl_tensor *y) {
  fl_operand in[2] = {{.tensor = f->x, .dtype = FL_NODTYPE},
                      {.tensor = y, .dtype = FL_NODTYPE}};
  if (y)
    fll_do(&f->r, f->st->assign, NULL, 2, in, true);
  fll_run_close(&f->r);
  fll_check(L, f->st, f->r.status);
  lua_settop(L, 1);
  return 1;
}

/* What a row makes with x's shape and dtype; the shape is its attribute `at`,
 * the dtype its last one. */
static fl_tensor *random_draw(filling *f, const char *op, fl_attrs *attrs,
                              int at) {
  const fl_op *row = fl_op_find(f->st->rt, op);
  fl_operand nothing[2] = {{.dtype = FL_NODTYPE}, {.dtype = FL_NODTYPE}};
  fl_attrs_list(attrs, at, f->m->ndim, f->m->shape);
  attrs->v[fl_op_get(row)->n_attr - 1].i = f->m->dtype;
  return fll_do(&f->r, row, attrs, 2, nothing, false);
}

/* No default, and whole numbers, if a is NaN. */
static int random_fill(lua_State *L, const char *where, const char *op,
                       double a, double b) {
  filling f;
  fl_lua *st = fll_enter(L);
  int most = fl_op_get(fl_op_find(st->rt, op))->n_attr - 2;
  random_begin(L, &f, where, most, a == a, a, b);
  const fl_op *row = fl_op_find(f.st->rt, op);
  fl_attrs attrs = *fl_op_defaults(row);
  for (int k = 0; k < fl_op_get(row)->n_attr - 2; k++)
    attrs.v[k + 1].f = f.v[k];
  return random_end(L, &f, random_draw(&f, op, &attrs, 0));
}

static int uniform_(lua_State *L) {
  return random_fill(L, "uniform_", "rand", 0, 1);
}

static int normal_(lua_State *L) {
  return random_fill(L, "normal_", "randn", 0, 1);
}

static int exponential_(lua_State *L) {
  return random_fill(L, "exponential_", "exponential", 1, 0);
}

static int cauchy_(lua_State *L) {
  return random_fill(L, "cauchy_", "cauchy", 0, 1);
}

static int log_normal_(lua_State *L) {
  return random_fill(L, "log_normal_", "log_normal", 1, 2);
}

static int geometric_(lua_State *L) {
  return random_fill(L, "geometric_", "geometric", NAN, 0);
}

/* The integers from 0 on that a dtype tells apart: how many. */
static double range_of(fl_dtype d) {
  switch (d) {
  case FL_F64:
    return 0x1p53;
  case FL_F32:
    return 0x1p24;
  case FL_F16:
    return 0x1p11;
  case FL_BF16:
  case FL_U8:
    return 0x1p8;
  case FL_BOOL:
    return 2;
  default:
    return ldexp(1, 8 * (int)fl_dtype_size(d) - 1);
  }
}

/* x:random_(), x:random_(high), x:random_(low, high): whole numbers from low on
 * that are below high. */
static int random_(lua_State *L) {
  filling f;
  random_begin(L, &f, "random_", 2, false, 0, 0);
  fl_attrs attrs = *fl_op_defaults(fl_op_find(f.st->rt, "randint"));
  double low = f.n == 2 ? f.v[0] : 0;
  double high = f.n == 2 ? f.v[1] : f.n == 1 ? f.v[0] : range_of(f.m->dtype);
  attrs.v[0].i = low <= -0x1p63 ? INT64_MIN : (int64_t)low;
  attrs.v[1].i = high >= 0x1p63 ? INT64_MAX : (int64_t)high;
  return random_end(L, &f, random_draw(&f, "randint", &attrs, 2));
}

/* x:bernoulli_(p): ones with this probability, or with those of a tensor;
 * x:bernoulli_(): with those that x holds, as x:bernoulli() does. */
static int bernoulli_(lua_State *L) {
  filling f;
  if (lua_isnoneornil(L, 2) || lua_istable(L, 2)) {
    fl_lua *st = fll_enter(L);
    fll_checktensor(L, 1, "bernoulli_", "x");
    return fll_run(L, st, fll_findop(st, "bernoulli"), true);
  }
  fll_tensor *given = fll_test(L, 2);
  random_begin(L, &f, "bernoulli_", 1, false, 0, 0);
  fl_operand p[3] = {{.tensor = given ? given->t : NULL, .dtype = FL_NODTYPE},
                     {.dtype = FL_NODTYPE},
                     {.dtype = FL_NODTYPE}};
  if (given) {
    p[0].tensor =
        fll_do_ints(&f.r, f.st->expand, given->t, f.m->ndim, f.m->shape);
  } else {
    fl_attrs full = *fl_op_defaults(f.st->full);
    fl_attrs_list(&full, 0, f.m->ndim, f.m->shape);
    full.v[1].f = f.v[0];
    full.v[2].i = f.m->dtype == FL_F64 ? FL_F64 : FL_F32;
    p[0].tensor = fll_do(&f.r, f.st->full, &full, 0, NULL, false);
  }
  fl_tensor *y = NULL;
  if (p[0].tensor)
    y = fll_do(&f.r, fl_op_find(f.st->rt, "bernoulli"), NULL, 3, p, false);
  return random_end(L, &f, y);
}

const luaL_Reg fll_random_methods[] = {{"uniform_", uniform_},
                                       {"normal_", normal_},
                                       {"exponential_", exponential_},
                                       {"cauchy_", cauchy_},
                                       {"log_normal_", log_normal_},
                                       {"geometric_", geometric_},
                                       {"random_", random_},
                                       {"bernoulli_", bernoulli_},
                                       {NULL, NULL}};

void fll_random_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"generator", random_make},
                                       {"default_generator", default_generator},
                                       {"manual_seed", manual_seed},
                                       {NULL, NULL}};
  static const luaL_Reg meta[] = {
      {"__newindex", random_set}, {"__tostring", tostring}, {NULL, NULL}};
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
  lua_pushcclosure(L, random_get, 3);
  lua_setfield(L, -2, "__index");
  lua_pop(L, 1);
  fll_register(L, functions);
}
