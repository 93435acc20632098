/* core.op_register: operators from outside, and the Lua functions that they may
 * have: for shapes, for launches, and before they are registered. These stay in
 * the registry, as the operators stay in the runtime. */
#include "fll.h"

typedef struct hooks {
  fl_lua *st;
  const fl_op_info *info; /* once it is registered */
  int launch, shape, init;
} hooks;

/* --- calling them --- */

typedef struct work { /* of one call, behind the protection */
  const hooks *h;
  int function;
  int n_in, n_out;
  const fl_meta *const *in;
  const fl_view *in_view, *out_view;
  const fl_attrs *attrs;
  fl_meta *out;
  fl_raw_call *call;
  const char *name;
  uint64_t fingerprint;
} work;

static void push_attr(lua_State *L, const fl_param *p, const fl_attrs *a) {
  const fl_attr *v = &a->v[p->slot];
  switch (p->kind) {
  case FL_P_REAL:
    lua_pushnumber(L, v->f);
    break;
  case FL_P_FLAG:
    lua_pushboolean(L, v->i != 0);
    break;
  case FL_P_DIMS:
  case FL_P_INTS:
  case FL_P_SHAPE:
    fll_pushshape(L, (int)v->list.n, a->list + v->list.at);
    break;
  case FL_P_DIM:
  case FL_P_NEWDIM:
  case FL_P_POS:
    lua_pushinteger(L, v->i + 1);
    break;
  default:
    lua_pushinteger(L, v->i);
  }
}

static void push_shape(lua_State *L, int n, const int64_t *shape) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, shape[i]);
    lua_rawseti(L, -2, i + 1);
  }
}

/* By name: shapes of tensors, values of attributes. */
static void push_names(lua_State *L, const work *w) {
  const fl_op_info *info = w->h->info;
  lua_newtable(L);
  for (int i = 0; i < info->n_params; i++) {
    const fl_param *p = &info->params[i];
    int k = p->slot;
    if (p->kind != FL_P_TENSOR)
      push_attr(L, p, w->attrs);
    else if (k < w->n_in && w->in && w->in[k])
      push_shape(L, w->in[k]->ndim, w->in[k]->shape);
    else if (k < w->n_in && w->in_view && w->in_view[k].data)
      push_shape(L, w->in_view[k].ndim, w->in_view[k].shape);
    else
      continue;
    lua_setfield(L, -2, p->name);
  }
  for (int k = 0; k < w->n_out && w->out_view; k++) {
    push_shape(L, w->out_view[k].ndim, w->out_view[k].shape);
    lua_setfield(L, -2, info->out_name[k]);
  }
}

static unsigned size_of(lua_State *L, const work *w, const char *what, int i) {
  int whole;
  lua_Integer n = lua_tointegerx(L, i, &whole);
  if (!whole || n < 0 || n > UINT32_MAX)
    fll_error(L, "%s: launch: %s must be whole numbers from 0, got %s", w->name,
              what,
              lua_isnumber(L, i) ? lua_tostring(L, i) : fll_typename(L, i));
  return (unsigned)n;
}

/* A number, or a list of up to three. */
static void read_sizes(lua_State *L, const work *w, const char *what, int i,
                       unsigned *sizes) {
  if (lua_isnil(L, i))
    return;
  if (!lua_istable(L, i)) {
    sizes[0] = size_of(L, w, what, i);
    return;
  }
  for (int k = 0; k < 3; k++) {
    if (lua_rawgeti(L, i, k + 1) != LUA_TNIL)
      sizes[k] = size_of(L, w, what, lua_gettop(L));
    lua_pop(L, 1);
  }
}

static int run_launch(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, w->function);
  push_names(L, w);
  lua_call(L, 1, 3);
  unsigned shared = 0;
  read_sizes(L, w, "blocks", 2, w->call->grid);
  read_sizes(L, w, "threads", 3, w->call->block);
  if (!lua_isnil(L, 4))
    shared = size_of(L, w, "bytes", 4);
  w->call->shared = shared;
  return 0;
}

static fl_status configure(void *context, const fl_launch *l, fl_raw_call *c) {
  const hooks *h = context;
  work w = {.h = h,
            .function = h->launch,
            .n_in = l->n_in,
            .n_out = l->n_out,
            .in_view = l->in,
            .out_view = l->out,
            .attrs = l->attrs,
            .call = c,
            .name = l->op};
  return fll_protect(h->st, run_launch, &w);
}

static int run_shape(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, w->function);
  push_names(L, w);
  lua_call(L, 1, w->n_out);
  for (int k = 0; k < w->n_out; k++) {
    if (!lua_istable(L, 2 + k))
      fll_error(L,
                "%s: shape must return a list of sizes for each of %d "
                "results, got %s",
                w->name, w->n_out, fll_typename(L, 2 + k));
    lua_Unsigned n = lua_rawlen(L, 2 + k);
    if (n > FL_MAX_DIMS)
      fll_error(L, "%s: shape: at most %d dims are possible", w->name,
                FL_MAX_DIMS);
    w->out[k].ndim = (int)n;
    for (int i = 0; i < (int)n; i++) {
      int whole;
      lua_rawgeti(L, 2 + k, i + 1);
      int64_t size = lua_tointegerx(L, -1, &whole);
      if (!whole || size < 0)
        fll_error(L, "%s: shape: sizes are whole numbers from 0", w->name);
      w->out[k].shape[i] = size;
      lua_pop(L, 1);
    }
  }
  return 0;
}

static fl_status shape(void *context, int n_in, const fl_meta *const *in,
                       const fl_attrs *attrs, int n_out, fl_meta *out) {
  const hooks *h = context;
  work w = {.h = h,
            .function = h->shape,
            .n_in = n_in,
            .n_out = n_out,
            .in = in,
            .attrs = attrs,
            .out = out,
            .name = h->info->name};
  return fll_protect(h->st, run_shape, &w);
}

static int run_init(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  lua_rawgeti(L, LUA_REGISTRYINDEX, w->function);
  lua_pushstring(L, w->name);
  lua_pushinteger(L, (lua_Integer)w->fingerprint);
  lua_call(L, 2, 0);
  return 0;
}

static fl_status register_start(void *context, const char *name,
                                uint64_t fingerprint) {
  const hooks *h = context;
  work w = {
      .h = h, .function = h->init, .name = name, .fingerprint = fingerprint};
  return fll_protect(h->st, run_init, &w);
}

/* --- reading the table --- */

static const char *text(lua_State *L, const char *name, bool must) {
  if (lua_getfield(L, 1, name) == LUA_TSTRING || (lua_isnil(L, -1) && !must))
    return lua_tostring(L, -1); /* the table keeps it */
  fll_error(L, "op.register: %s must be a string, got %s", name,
            fll_typename(L, -1));
}

/* A function's place in the registry, 0: there is none. */
static int function(lua_State *L, const char *name) {
  if (lua_getfield(L, 1, name) == LUA_TFUNCTION)
    return luaL_ref(L, LUA_REGISTRYINDEX);
  if (!lua_isnil(L, -1))
    fll_error(L, "op.register: %s must be a function, got %s", name,
              fll_typename(L, -1));
  return 0;
}

/* init is a function of Lua, or the name of one in the library. */
static const char *read_init(lua_State *L, hooks *h) {
  int type = lua_getfield(L, 1, "init");
  if (type == LUA_TSTRING)
    return lua_tostring(L, -1);
  h->init = function(L, "init");
  return NULL;
}

/* Kernels by the dtype's name. */
static bool read_kernels(lua_State *L, fl_native_kernel *kernels, int *n) {
  if (lua_getfield(L, 1, "kernels") != LUA_TTABLE)
    return false;
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    fl_raw *k = fll_toraw(L, -1);
    fl_dtype d = fll_checkdtype(L, -2, "op.register");
    if (!k)
      fll_error(L, "op.register: this is no kernel, but %s",
                fll_typename(L, -1));
    kernels[(*n)++] = (fl_native_kernel){d, k};
    lua_pop(L, 1);
  }
  return true;
}

/* The operator as a function, its fingerprint, and what op.info tells. */
static int push_operator(lua_State *L, fl_lua *st, const fl_op *op) {
  fll_op_function(L, st, op);
  lua_pushinteger(L, (lua_Integer)fl_op_fingerprint(op));
  fll_op_info(L, st, op);
  return 3;
}

/* What the host program has registered on this runtime. */
int fll_op_find(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_op *op = fl_op_find(st->rt, luaL_checkstring(L, 1));
  fll_check(L, st, op ? FL_OK : FL_EARG);
  return push_operator(L, st, op);
}

int fll_op_register(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_op *op;
  fl_native_kernel kernels[FL_MAX_DTYPES];
  luaL_checktype(L, 1, LUA_TTABLE);
  luaL_checkstack(L, 30, NULL);
  hooks *h = lua_newuserdatauv(L, sizeof *h, 0);
  *h = (hooks){.st = st};
  luaL_ref(L, LUA_REGISTRYINDEX);
  fl_op_spec s = {.struct_size = sizeof s,
                  .name = text(L, "name", true),
                  .signature = text(L, "signature", true),
                  .backend = text(L, "backend", false),
                  .library = text(L, "library", false),
                  .backward = text(L, "backward", false),
                  .expression = text(L, "expression", false),
                  .gradient = text(L, "gradient", false),
                  .init = read_init(L, h),
                  .context = h};
  s.symbol = text(L, "symbol", s.library != NULL);
  s.native = read_kernels(L, kernels, &s.n_native) ? kernels : NULL;
  h->launch = function(L, "launch");
  h->shape = function(L, "shape");
  s.configure = h->launch ? configure : NULL;
  s.shape = h->shape ? shape : NULL;
  s.start = h->init ? register_start : NULL;
  lua_getfield(L, 1, "fingerprint");
  s.fingerprint = (uint64_t)luaL_optinteger(L, -1, 0);
  lua_getfield(L, 1, "like");
  s.like = (int)luaL_optinteger(L, -1, 1) - 1;
  fll_check(L, st, fl_op_register(st->rt, &s, &op));
  h->info = fl_op_get(op);
  return push_operator(L, st, op);
}
