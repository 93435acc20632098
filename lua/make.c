/* Making tensors: from nested tables, numbers and bytes; filled with one value;
 * like another one. What a row of the op table makes by itself (rand, eye,
 * linspace ...) is not here. */
#include "fll.h"

#include <math.h>
#include <stdio.h>

static const char *const make_options[] = {"dtype", "device", "requires_grad",
                                           "pinned", NULL};

typedef struct options {
  fl_dtype dtype; /* FL_NODTYPE: not given */
  fl_device device;
  bool requires_grad, pinned;
} options;

static options read_options(lua_State *L, fl_lua *st, int i,
                            const char *where) {
  options o = {FL_NODTYPE, st->device, false, false};
  if (lua_isnoneornil(L, i))
    return o;
  int top = lua_gettop(L);
  if (fll_option(L, i, "dtype") != LUA_TNIL)
    o.dtype = fll_checkdtype(L, top + 1, where);
  if (fll_option(L, i, "device") != LUA_TNIL)
    o.device = fll_checkdevice(L, st, top + 2, where);
  fll_option(L, i, "requires_grad");
  o.requires_grad = lua_toboolean(L, -1);
  fll_option(L, i, "pinned");
  o.pinned = lua_toboolean(L, -1);
  if (o.pinned) /* memory of the host */
    o.device = 0;
  lua_settop(L, top);
  return o;
}

/* --- from tables --- */

typedef struct build {
  lua_State *L;
  fl_meta m;
  int64_t at[FL_MAX_DIMS]; /* where we are, for messages */
  char *data;
  int64_t n; /* elements written */
} build;

/* "[2][3]" */
static const char *place(const build *b, int depth, char *text, size_t room) {
  size_t n = 0;
  text[0] = 0;
  for (int d = 0; d < depth && n + 24 < room; d++)
    n += (size_t)snprintf(text + n, room - n, "[%lld]", (long long)b->at[d]);
  return text;
}

static bool has_names(lua_State *L, int i) {
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) == LUA_TSTRING) {
      lua_pop(L, 1);
      return true;
    }
  }
  return false;
}

/* The shape is that of the first elements; the dtype follows the first leaf. */
static void measure(build *b, int i, bool dtype_given) {
  lua_State *L = b->L;
  int top = lua_gettop(L);
  lua_pushvalue(L, i);
  while (lua_istable(L, -1)) {
    if (b->m.ndim == FL_MAX_DIMS)
      fll_error(L, "tensor: tables are nested deeper than %d levels",
                FL_MAX_DIMS);
    b->m.shape[b->m.ndim++] = (int64_t)lua_rawlen(L, -1);
    if (lua_rawgeti(L, -1, 1) == LUA_TNIL)
      break;
  }
  if (!dtype_given)
    b->m.dtype = lua_isboolean(L, -1) ? FL_BOOL : FL_F32;
  lua_settop(L, top);
}

static int no_value(build *b, int depth, int i) {
  char where[160];
  place(b, depth, where, sizeof where);
  if (lua_isnil(b->L, i))
    return fll_error(b->L, "tensor: there is nothing at %s", where);
  if (fll_test(b->L, i))
    return fll_error(b->L,
                     "tensor: at %s is a tensor; tensors are joined by "
                     "flare.stack or flare.cat",
                     where);
  return fll_error(b->L, "tensor: expected %s at %s, got %s",
                   b->m.dtype == FL_BOOL ? "a boolean" : "a number", where,
                   fll_typename(b->L, i));
}

static int64_t integer_at(build *b, int depth, int i, int64_t low,
                          int64_t high) {
  char where[160];
  int exact;
  int64_t v = lua_tointegerx(b->L, i, &exact);
  if (!exact)
    fll_error(b->L, "tensor: %s at %s is no integer that fits %s",
              luaL_tolstring(b->L, i, NULL),
              place(b, depth, where, sizeof where), fl_dtype_name(b->m.dtype));
  if (v < low || v > high)
    fll_error(b->L, "tensor: %lld at %s does not fit %s (%lld..%lld)",
              (long long)v, place(b, depth, where, sizeof where),
              fl_dtype_name(b->m.dtype), (long long)low, (long long)high);
  return v;
}

static void put(build *b, int depth, int i) {
  lua_State *L = b->L;
  bool boolean = lua_isboolean(L, i);
  if (boolean != (b->m.dtype == FL_BOOL) ||
      (!boolean && lua_type(L, i) != LUA_TNUMBER))
    no_value(b, depth, i);
  void *p = b->data;
  int64_t n = b->n++;
  switch (b->m.dtype) {
  case FL_F64:
    ((double *)p)[n] = lua_tonumber(L, i);
    break;
  case FL_F32:
    ((float *)p)[n] = (float)lua_tonumber(L, i);
    break;
  case FL_I64:
    ((int64_t *)p)[n] = integer_at(b, depth, i, INT64_MIN, INT64_MAX);
    break;
  case FL_I32:
    ((int32_t *)p)[n] = (int32_t)integer_at(b, depth, i, INT32_MIN, INT32_MAX);
    break;
  case FL_I16:
    ((int16_t *)p)[n] = (int16_t)integer_at(b, depth, i, INT16_MIN, INT16_MAX);
    break;
  case FL_I8:
    ((int8_t *)p)[n] = (int8_t)integer_at(b, depth, i, INT8_MIN, INT8_MAX);
    break;
  case FL_U8:
    ((uint8_t *)p)[n] = (uint8_t)integer_at(b, depth, i, 0, UINT8_MAX);
    break;
  default: /* bool */
    ((uint8_t *)p)[n] = (uint8_t)lua_toboolean(L, i);
  }
}

/* Lua ends a table before a hole: what lies behind it would be lost. */
static void check_holes(build *b, int depth, int i, int64_t n) {
  lua_State *L = b->L;
  char where[160];
  n ? lua_pushinteger(L, n) : lua_pushnil(L);
  for (; lua_next(L, i); lua_pop(L, 1)) {
    int exact;
    int64_t k = lua_tointegerx(L, -2, &exact);
    bool option = depth == 0 && lua_type(L, -2) == LUA_TSTRING;
    if (option || (exact && k >= 1 && k <= n))
      continue;
    b->at[depth] = n + 1;
    place(b, depth + 1, where, sizeof where);
    lua_pushvalue(L, -2);
    fll_error(L, "tensor: there is nothing at %s, but something at the key %s",
              where, luaL_tolstring(L, -1, NULL));
  }
}

static void fill(build *b, int depth, int i) {
  lua_State *L = b->L;
  char where[160];
  if (depth == b->m.ndim) {
    if (lua_istable(L, i))
      fll_error(L,
                "tensor: there is a table at %s, deeper than at the first "
                "elements",
                place(b, depth, where, sizeof where));
    put(b, depth, i);
    return;
  }
  if (!lua_istable(L, i))
    fll_error(L, "tensor: expected a table of %lld at %s, got %s",
              (long long)b->m.shape[depth],
              place(b, depth, where, sizeof where), fll_typename(L, i));
  int64_t n = b->m.shape[depth], here = (int64_t)lua_rawlen(L, i);
  if (here != n)
    fll_error(L,
              "tensor: the table at %s has %lld elements, the ones before "
              "have %lld",
              place(b, depth, where, sizeof where), (long long)here,
              (long long)n);
  for (int64_t k = 1; k <= n; k++) {
    b->at[depth] = k;
    lua_rawgeti(L, i, k);
    fill(b, depth + 1, lua_gettop(L));
    lua_pop(L, 1);
  }
  check_holes(b, depth, i, n);
}

/* Turns the tensor at the top into one of the wanted dtype and device. */
static void convert(lua_State *L, fl_lua *st, fl_device d, fl_dtype dtype) {
  fll_tensor *h = fll_test(L, -1);
  fl_tensor *t = NULL;
  if (fl_tensor_meta(h->t)->dtype == dtype && fl_tensor_device(h->t) == d)
    return;
  fll_tensor *y = fll_new(L, st, FLL_MT);
  fll_check(L, st, fl_tensor_to(h->t, d, dtype, &t));
  fll_fill(y, t);
  fll_close(st, h, 0);
  lua_remove(L, -2);
}

static int finish(lua_State *L, fl_lua *st, const options *o) {
  if (o->pinned) {
    fll_pin(L, st, lua_gettop(L));
    fll_close(st, fll_test(L, -2), 0);
  }
  if (o->requires_grad)
    fll_check(L, st, fl_tensor_require_grad(fll_test(L, -1)->t, true));
  return 1;
}

/* tensor(data, options): nested tables, or one number. */
static int tensor(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int data = lua_type(L, 1);
  if (fll_test(L, 1))
    fll_error(L, "tensor: this is a tensor already; x:clone() copies it");
  if (data == LUA_TSTRING)
    fll_error(L, "tensor: bytes become a tensor by flare.from_bytes(data, "
                 "dtype, shape)");
  if (data != LUA_TTABLE && data != LUA_TNUMBER && data != LUA_TBOOLEAN)
    fll_error(L, "tensor: expected a number or a table of numbers, got %s",
              fll_typename(L, 1));
  lua_settop(L, 2);
  if (data == LUA_TTABLE && lua_rawlen(L, 1) == 0 && !lua_isnil(L, 2))
    fll_checklist(L, 1, "tensor", "numbers");
  if (lua_isnil(L, 2) && data == LUA_TTABLE && has_names(L, 1))
    lua_copy(L, 1, 2); /* {1, 2, dtype = "f64"} */
  fll_checkoptions(L, 2, "tensor", make_options);
  options o = read_options(L, st, 2, "tensor");
  build b = {.L = L};
  fl_dtype wanted = o.dtype;
  b.m.dtype = wanted == FL_F16 || wanted == FL_BF16 || wanted == FL_C64 ? FL_F32
              : wanted == FL_C128                                       ? FL_F64
                                  : wanted;
  luaL_checkstack(L, FL_MAX_DIMS + 20, NULL);
  measure(&b, 1, wanted != FL_NODTYPE);
  if (wanted == FL_NODTYPE)
    wanted = b.m.dtype;
  bool was = fl_meta_mode(st->rt, false);
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fl_tensor *t = NULL;
  fl_status s = fll_tensor_new(L, st, b.m.dtype, b.m.ndim, b.m.shape, 0, &t);
  fl_meta_mode(st->rt, was);
  fll_check(L, st, s);
  fll_fill(h, t);
  if (!(b.data = fl_tensor_borrow(t)))
    fll_check(L, st, FL_EFAULT);
  fill(&b, 0, 1);
  lua_settop(L, 3);
  convert(L, st, o.device, wanted);
  return finish(L, st, &o);
}

/* from_bytes(data, dtype, shape, options): a copy of a string's bytes. */
static int from_bytes(lua_State *L) {
  fl_lua *st = fll_enter(L);
  size_t n;
  int dims = 1;
  int64_t sizes[FL_MAX_DIMS];
  if (lua_type(L, 1) != LUA_TSTRING)
    fll_error(L, "from_bytes: expected a string, got %s", fll_typename(L, 1));
  const char *p = lua_tolstring(L, 1, &n);
  fl_dtype d = fll_checkdtype(L, 2, "from_bytes");
  size_t each = fl_dtype_size(d);
  lua_settop(L, 4);
  if (lua_isnil(L, 3))
    sizes[0] = (int64_t)(n / each);
  else
    fll_checksizes(L, 3, "from_bytes", &dims, sizes);
  fll_checkoptions(L, 4, "from_bytes", make_options);
  options o = read_options(L, st, 4, "from_bytes");
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fl_tensor *t = NULL;
  fll_check(L, st, fll_tensor_new(L, st, d, dims, sizes, 0, &t));
  fll_fill(h, t);
  if ((size_t)fl_tensor_numel(t) * each != n)
    fll_error(L, "from_bytes: %s of %s needs %lld bytes, got %zu",
              fli_shape_text(dims, sizes), fl_dtype_name(d),
              (long long)fl_tensor_numel(t) * (long long)each, n);
  fll_check(L, st, fl_tensor_write(t, p, n));
  convert(L, st, o.device, o.dtype == FL_NODTYPE ? d : o.dtype);
  return finish(L, st, &o);
}

/* --- filled --- */

int fll_checksizes(lua_State *L, int i, const char *where, int *n,
                   int64_t *sizes) {
  bool table = lua_istable(L, i);
  int count = 0, top = lua_gettop(L);
  if (table) {
    count = (int)(lua_rawlen(L, i) > FL_MAX_DIMS ? FL_MAX_DIMS + 1
                                                 : lua_rawlen(L, i));
  } else {
    while (i + count <= top && lua_type(L, i + count) == LUA_TNUMBER)
      count++;
    if (count == 0 && !lua_isnone(L, i))
      fll_error(L, "%s: shape: expected integers or a table of them, got %s",
                where, fll_typename(L, i));
  }
  if (count > FL_MAX_DIMS)
    fll_error(L, "%s: shape: at most %d dims are possible", where, FL_MAX_DIMS);
  for (int k = 0; k < count; k++) {
    if (table)
      lua_rawgeti(L, i, k + 1);
    sizes[k] = fll_checkint(L, table ? -1 : i + k, where, "shape");
    if (table)
      lua_pop(L, 1);
    if (sizes[k] < 0)
      fll_error(L, "%s: shape: sizes cannot be negative, got %lld", where,
                (long long)sizes[k]);
  }
  *n = count;
  return table ? 1 : count;
}

typedef struct number {
  double f;
  int64_t i; /* the same where it is an integer */
} number;

static int make(lua_State *L, fl_lua *st, const options *o, int n,
                const int64_t *sizes, number value) {
  fl_tensor *out[FL_MAX_OUT];
  fl_attrs a = *fl_op_defaults(st->full);
  fll_check(L, st, fl_attrs_list(&a, 0, n, sizes));
  a.v[1].f = value.f;
  a.v[3].i = value.i;
  a.v[2].i = o->dtype == FL_NODTYPE ? FL_F32 : o->dtype;
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fl_call c = {.op = st->full,
               .attrs = &a,
               .base = 1,
               .site = fll_site_here(L, st),
               .device = o->device,
               .out = out};
  fll_check(L, st, fl_call_run(st->rt, &c));
  fll_fill(h, out[0]);
  return finish(L, st, o);
}

/* f(sizes..., options) or f({sizes}, options) or f{sizes, dtype = ...} */
static int filled(lua_State *L, const char *where, double value) {
  fl_lua *st = fll_enter(L);
  int n;
  int64_t sizes[FL_MAX_DIMS];
  int i = 1 + fll_checksizes(L, 1, where, &n, sizes);
  if (lua_gettop(L) > i)
    fll_error(L, "%s: too many arguments: it takes (shape, options)", where);
  if (i == 2 && lua_isnoneornil(L, 2) && lua_istable(L, 1))
    i = has_names(L, 1) ? 1 : 2;
  fll_checkoptions(L, i, where, make_options);
  options o = read_options(L, st, i, where);
  return make(L, st, &o, n, sizes, (number){value, (int64_t)value});
}

static int zeros(lua_State *L) {
  return filled(L, "zeros", 0);
}

static int ones(lua_State *L) {
  return filled(L, "ones", 1);
}

fl_status fll_tensor_new(lua_State *L, fl_lua *st, fl_dtype dtype, int ndim,
                         const int64_t *shape, fl_device d, fl_tensor **t) {
  fl_copy_site(st->rt, fll_site_here(L, st));
  fl_status s = fl_tensor_new(st->rt, dtype, ndim, shape, d, t);
  fl_copy_site(st->rt, 0);
  return s;
}

/* Values are whatever was there. */
static int empty(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (st->meta)
    return filled(L, "empty", 0);
  int n;
  int64_t sizes[FL_MAX_DIMS];
  int i = 1 + fll_checksizes(L, 1, "empty", &n, sizes);
  if (i == 2 && lua_isnoneornil(L, 2) && lua_istable(L, 1))
    i = has_names(L, 1) ? 1 : 2;
  fll_checkoptions(L, i, "empty", make_options);
  options o = read_options(L, st, i, "empty");
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fl_tensor *t = NULL;
  fll_check(L, st,
            fll_tensor_new(L, st, o.dtype == FL_NODTYPE ? FL_F32 : o.dtype, n,
                           sizes, o.device, &t));
  fll_fill(h, t);
  return finish(L, st, &o);
}

/* --- like another one --- */

/* Pushes {dtype =, device =, generator =, requires_grad =} of x, or as the
 * options at i say. */
static void push_like(lua_State *L, fl_lua *st, int i, const char *where) {
  static const char *const all[] = {"dtype", "device", "requires_grad",
                                    "generator", NULL};
  fl_tensor *x = fll_checktensor(L, 1, where, "x");
  fll_checkoptions(L, i, where, all);
  int top = lua_gettop(L);
  lua_createtable(L, 0, 4);
  for (int k = 0; all[k]; k++) {
    if (fll_option(L, i, all[k]) == LUA_TNIL && k < 2) {
      lua_pop(L, 1);
      lua_pushstring(L, k == 0 ? fl_dtype_name(fl_tensor_meta(x)->dtype)
                               : fl_device_name(st->rt, fl_tensor_device(x)));
    }
    lua_setfield(L, top + 1, all[k]);
  }
}

static int like(lua_State *L, const char *where, number value) {
  fl_lua *st = fll_enter(L);
  fll_checktensor(L, 1, where, "x");
  lua_settop(L, 2);
  push_like(L, st, 2, where);
  options o = read_options(L, st, 3, where);
  fl_tensor *x = fll_checktensor(L, 1, where, "x");
  fl_meta m = *fl_tensor_meta(x);
  make(L, st, &o, m.ndim, m.shape, value);
  x = fll_test(L, 1)->t;
  if (!fl_tensor_contiguous(x))
    fll_check(L, st, fl_tensor_lay_like(fll_test(L, -1)->t, x));
  return 1;
}

static int zeros_like(lua_State *L) {
  return like(L, "zeros_like", (number){0, 0});
}

static int ones_like(lua_State *L) {
  return like(L, "ones_like", (number){1, 1});
}

static int empty_like(lua_State *L) {
  return like(L, "empty_like", (number){0, 0});
}

static int full_like(lua_State *L) {
  fl_lua *st = fll_enter(L);
  if (lua_type(L, 2) != LUA_TNUMBER)
    fll_error(L, "full_like: value: expected a number, got %s",
              fll_typename(L, 2));
  number value = {lua_tonumber(L, 2), 0};
  if (lua_isinteger(L, 2))
    value.i = lua_tointeger(L, 2);
  lua_remove(L, 2);
  st->row = "full"; /* whose errors name what was called */
  st->known = "full_like";
  int n = like(L, "full_like", value);
  st->row = NULL;
  return n;
}

static int random_like(lua_State *L, const char *where, const char *op) {
  fl_lua *st = fll_enter(L);
  fll_checktensor(L, 1, where, "x");
  lua_settop(L, 2);
  push_like(L, st, 2, where);
  const fl_meta *m = fl_tensor_meta(fll_checktensor(L, 1, where, "x"));
  fll_pushshape(L, m->ndim, m->shape);
  lua_replace(L, 1);
  lua_replace(L, 2);
  return fll_run(L, st, fll_findop(st, op), false);
}

static int rand_like(lua_State *L) {
  return random_like(L, "rand_like", "rand");
}

static int randn_like(lua_State *L) {
  return random_like(L, "randn_like", "randn");
}

/* --- sequences --- */

/* arange(stop), arange(start, stop), arange(start, stop, step): without stop,
 * as in PyTorch. range(...): with stop, as in Torch7. Floats give floats. */
static int sequence(lua_State *L, const char *where, bool inclusive) {
  fl_lua *st = fll_enter(L);
  int n = 0;
  bool floats = false;
  while (n < 3 && lua_type(L, n + 1) == LUA_TNUMBER) {
    n++;
    floats = floats || !lua_isinteger(L, n);
  }
  if (n == 0)
    fll_error(L, "%s: expected numbers (start, stop, step), got %s", where,
              fll_typename(L, 1));
  lua_settop(L, n + 1);
  static const char *const names[] = {"dtype", "device", "requires_grad", NULL};
  fll_checkoptions(L, n + 1, where, names);
  if (n == 1) {
    lua_pushinteger(L, inclusive ? 1 : 0);
    lua_insert(L, 1);
    n++;
  }
  if (n == 2) {
    lua_pushinteger(L, 1);
    lua_insert(L, 3);
  }
  options o = read_options(L, st, 4, where);
  lua_settop(L, 3);
  lua_createtable(L, 0, 4);
  lua_pushstring(L, fl_dtype_name(o.dtype != FL_NODTYPE ? o.dtype
                                  : floats              ? FL_F32
                                                        : FL_I64));
  lua_setfield(L, 4, "dtype");
  lua_pushstring(L, fl_device_name(st->rt, o.device));
  lua_setfield(L, 4, "device");
  lua_pushboolean(L, o.requires_grad);
  lua_setfield(L, 4, "requires_grad");
  lua_pushboolean(L, inclusive);
  lua_setfield(L, 4, "inclusive");
  return fll_run(L, st, fll_findop(st, "arange"), false);
}

static int arange(lua_State *L) {
  return sequence(L, "arange", false);
}

static int range(lua_State *L) {
  return sequence(L, "range", true);
}

void fll_make_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"tensor", tensor},         {"from_bytes", from_bytes},
      {"zeros", zeros},           {"ones", ones},
      {"empty", empty},           {"zeros_like", zeros_like},
      {"ones_like", ones_like},   {"empty_like", empty_like},
      {"full_like", full_like},   {"rand_like", rand_like},
      {"randn_like", randn_like}, {"arange", arange},
      {"range", range},           {NULL, NULL}};
  fll_register(L, functions);
}
