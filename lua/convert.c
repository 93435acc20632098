/* What a tensor is and has, as Lua values: sizes, numbers, tables, bytes; other
 * dtypes and devices; copies; pieces. */
#include "fll.h"

#include <stdio.h>

#define PIECES (1 << 24) /* tensors of a list */

static fl_tensor *self(lua_State *L, const char *where) {
  return fll_checktensor(L, 1, where, "x");
}

/* --- sizes and facts --- */

static int dim(lua_State *L) {
  fll_enter(L);
  lua_pushinteger(L, fl_tensor_meta(self(L, "dim"))->ndim);
  return 1;
}

static int per_dim(lua_State *L, const char *where, int n, const int64_t *v) {
  if (lua_isnoneornil(L, 2)) {
    fll_pushshape(L, n, v);
    return 1;
  }
  int64_t given = fll_checkint(L, 2, where, "dim");
  int64_t d = fll_dim(L, given, where, "dim");
  d = d < 0 ? d + n : d;
  if (d < 0 || d >= n)
    fll_error(L, "%s: there is no dim %lld in a tensor of %d dims", where,
              (long long)given, n);
  lua_pushinteger(L, v[d]);
  return 1;
}

static int size(lua_State *L) {
  fll_enter(L);
  const fl_meta *m = fl_tensor_meta(self(L, "size"));
  return per_dim(L, "size", m->ndim, m->shape);
}

static int stride(lua_State *L) {
  fll_enter(L);
  fl_tensor *t = self(L, "stride");
  return per_dim(L, "stride", fl_tensor_meta(t)->ndim, fl_tensor_strides(t));
}

static int numel(lua_State *L) {
  fll_enter(L);
  lua_pushinteger(L, fl_tensor_numel(self(L, "numel")));
  return 1;
}

static int nbytes(lua_State *L) {
  fll_enter(L);
  fl_tensor *t = self(L, "nbytes");
  lua_pushinteger(L, fl_tensor_numel(t) *
                         (lua_Integer)fl_dtype_size(fl_tensor_meta(t)->dtype));
  return 1;
}

static int element_size(lua_State *L) {
  fll_enter(L);
  fl_tensor *t = self(L, "element_size");
  lua_pushinteger(L, (lua_Integer)fl_dtype_size(fl_tensor_meta(t)->dtype));
  return 1;
}

static int storage_offset(lua_State *L) {
  fll_enter(L);
  lua_pushinteger(L, fl_tensor_offset(self(L, "storage_offset")));
  return 1;
}

/* The layouts of memory by the attribute `layout` of copy; 0 is "keep". */
enum { KEEP, CONTIGUOUS, CHANNELS_LAST };

static int check_layout(lua_State *L, int i, const char *where) {
  static const char *const names[] = {"contiguous", "channels_last", NULL};
  if (lua_type(L, i) != LUA_TSTRING)
    fll_error(L,
              "%s: layout: expected \"contiguous\" or \"channels_last\", got "
              "%s",
              where, fll_typename(L, i));
  const char *got = lua_tostring(L, i);
  for (int k = 0; names[k]; k++)
    if (strcmp(got, names[k]) == 0)
      return CONTIGUOUS + k;
  return fll_error(L,
                   "%s: layout: there is no \"%s\", only \"contiguous\" and "
                   "\"channels_last\"",
                   where, got);
}

/* Channels-last are 4 dims, N, C, H and W, of which C has the smallest step. */
static void check_images(lua_State *L, const fl_tensor *t, const char *where) {
  const fl_meta *m = fl_tensor_meta(t);
  if (m->ndim != 4)
    fll_error(L,
              "%s: layout = \"channels_last\" is for 4 dims, (N, C, H, W), not "
              "for %s%s",
              where, fli_shape_text(m->ndim, m->shape),
              m->ndim == 5 ? ": volumes stay contiguous" : "");
}

static bool lies_as(const fl_tensor *t, int layout) {
  static const int order[] = {1, 3, 2, 0};
  const fl_meta *m = fl_tensor_meta(t);
  int64_t step = 1;
  if (layout == CONTIGUOUS || fl_tensor_numel(t) == 0)
    return fl_tensor_contiguous(t);
  for (int i = 0; i < 4; i++) {
    int d = order[i];
    if (m->shape[d] != 1 && fl_tensor_strides(t)[d] != step)
      return false;
    step *= m->shape[d];
  }
  return true;
}

static int is_contiguous(lua_State *L) {
  fll_enter(L);
  fl_tensor *t = self(L, "is_contiguous");
  int layout =
      lua_isnoneornil(L, 2) ? CONTIGUOUS : check_layout(L, 2, "is_contiguous");
  if (layout == CHANNELS_LAST)
    check_images(L, t, "is_contiguous");
  lua_pushboolean(L, lies_as(t, layout));
  return 1;
}

static int is_floating_point(lua_State *L) {
  fll_enter(L);
  fl_dtype d = fl_tensor_meta(self(L, "is_floating_point"))->dtype;
  lua_pushboolean(L, fl_dtype_kind(d) == FL_KIND_FLOAT);
  return 1;
}

static int shares(lua_State *L) {
  fll_enter(L);
  fl_tensor *a = self(L, "shares");
  lua_pushboolean(L, fl_tensor_shares(a, fll_checktensor(L, 2, "shares", "y")));
  return 1;
}

static int protect(lua_State *L) {
  fll_enter(L);
  fl_tensor_protect(self(L, "protect"));
  lua_settop(L, 1);
  return 1;
}

/* The first element's address, for C modules. */
static int data_ptr(lua_State *L) {
  fl_lua *st = fll_enter(L);
  void *p = fl_tensor_data(self(L, "data_ptr"));
  if (!p)
    fll_raise(L, st, FL_EUNSUPPORTED);
  lua_pushlightuserdata(L, p);
  return 1;
}

/* --- values --- */

/* A complex number: its real and its imaginary part. */
static int two_numbers(lua_State *L, fl_lua *st, fl_tensor *t) {
  double wide[2];
  float v[2];
  bool single = fl_tensor_meta(t)->dtype == FL_C64;
  fll_check(L, st,
            fl_tensor_read(t, single ? (void *)v : wide,
                           single ? sizeof v : sizeof wide));
  lua_pushnumber(L, single ? (double)v[0] : wide[0]);
  lua_pushnumber(L, single ? (double)v[1] : wide[1]);
  return 2;
}

static int item(lua_State *L) {
  fl_lua *st = fll_enter(L);
  double f = 0;
  int64_t i = 0;
  fl_tensor *t = self(L, "item");
  fl_dtype d = fl_tensor_meta(t)->dtype;
  fl_copy_site(st->rt, fll_site_here(L, st));
  if (fl_dtype_is_complex(d))
    return two_numbers(L, st, t);
  fll_check(L, st, fl_tensor_item(t, &f, &i));
  if (d == FL_BOOL)
    lua_pushboolean(L, i != 0);
  else if (fl_dtype_kind(d) == FL_KIND_FLOAT)
    lua_pushnumber(L, f);
  else
    lua_pushinteger(L, i);
  return 1;
}

void fll_pushvalue(lua_State *L, fl_dtype d, const void *p, int64_t i) {
  switch (d) {
  case FL_F64:
    lua_pushnumber(L, ((const double *)p)[i]);
    break;
  case FL_F32:
    lua_pushnumber(L, (double)((const float *)p)[i]);
    break;
  case FL_I64:
    lua_pushinteger(L, ((const int64_t *)p)[i]);
    break;
  case FL_I32:
    lua_pushinteger(L, ((const int32_t *)p)[i]);
    break;
  case FL_I16:
    lua_pushinteger(L, ((const int16_t *)p)[i]);
    break;
  case FL_I8:
    lua_pushinteger(L, ((const int8_t *)p)[i]);
    break;
  case FL_U8:
    lua_pushinteger(L, ((const uint8_t *)p)[i]);
    break;
  case FL_BOOL:
    lua_pushboolean(L, ((const uint8_t *)p)[i] != 0);
    break;
  default: /* f16 and bf16 are converted before */
    lua_pushnil(L);
  }
}

static void push_nested(lua_State *L, const fl_meta *m, int d, const char *p,
                        size_t step) {
  if (d == m->ndim) {
    fll_pushvalue(L, m->dtype, p, 0);
    return;
  }
  int64_t n = m->shape[d];
  lua_createtable(L, n < 1 << 30 ? (int)n : 0, 0);
  if (n == 0)
    return;
  step /= (size_t)n;
  for (int64_t i = 0; i < n; i++) {
    if (d + 1 == m->ndim)
      fll_pushvalue(L, m->dtype, p, i);
    else
      push_nested(L, m, d + 1, p + (size_t)i * step, step);
    lua_rawseti(L, -2, i + 1);
  }
}

/* Replaces the tensor at i by itself in host memory, half floats widened. The
 * result is on the stack; it is closed by its finaliser. */
static fl_tensor *readable(lua_State *L, fl_lua *st, int i) {
  fll_tensor *h = fll_new(L, st, FLL_MT), *x = fll_test(L, i);
  if (!x)
    fll_argerror(L, "read", "x", "a tensor", i);
  fl_dtype d = fl_tensor_meta(x->t)->dtype;
  fl_tensor *bare, *t = NULL;
  fl_copy_site(st->rt, fll_site_here(L, st));
  fll_check(L, st, fl_tensor_detach(x->t, &bare));
  fl_status s = fl_tensor_to(
      bare, 0, d == FL_F16 || d == FL_BF16 ? FL_F32 : FL_NODTYPE, &t);
  fl_tensor_release(bare);
  fll_check(L, st, s);
  fll_fill(h, t);
  return t;
}

/* No element does not mean no tables: there may be many empty ones. */
static void check_tables(lua_State *L, const fl_meta *m) {
  int64_t n = 1;
  for (int i = 0; i < m->ndim && m->shape[i] > 0; i++)
    if (__builtin_mul_overflow(n, m->shape[i], &n) || n > 1 << 30)
      fll_error(L, "totable: %s has too many rows for tables",
                fli_shape_text(m->ndim, m->shape));
}

/* x:totable(): nested tables, or the value of a 0-d tensor; complex numbers are
 * tables of two. */
static int totable(lua_State *L) {
  fl_lua *st = fll_enter(L);
  check_tables(L, fl_tensor_meta(self(L, "totable")));
  lua_settop(L, 1);
  readable(L, st, 1);
  fl_meta m = *fl_tensor_meta(fll_test(L, 2)->t);
  size_t bytes =
      (size_t)fl_tensor_numel(fll_test(L, 2)->t) * fl_dtype_size(m.dtype);
  void *p = fll_scratch(L, bytes + 8);
  if (fl_dtype_is_complex(m.dtype)) {
    if (m.ndim == FL_MAX_DIMS)
      fll_error(L,
                "totable: %d dims leave none for the parts of complex numbers",
                m.ndim);
    m.dtype = m.dtype == FL_C64 ? FL_F32 : FL_F64;
    m.shape[m.ndim++] = 2;
  }
  luaL_checkstack(L, FL_MAX_DIMS + 10, NULL);
  fll_check(L, st, fl_tensor_read(fll_test(L, 2)->t, p, bytes));
  fll_close(st, fll_test(L, 2), 0);
  push_nested(L, &m, 0, p, bytes);
  return 1;
}

/* x:bytes(): the elements in row-major order, as they are in memory. */
static int bytes(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = self(L, "bytes");
  size_t n =
      (size_t)fl_tensor_numel(t) * fl_dtype_size(fl_tensor_meta(t)->dtype);
  luaL_Buffer b;
  char *p = luaL_buffinitsize(L, &b, n);
  t = self(L, "bytes");
  fl_copy_site(st->rt, fll_site_here(L, st));
  fll_check(L, st, fl_tensor_read(t, p, n));
  luaL_pushresultsize(&b, n);
  return 1;
}

/* --- other dtypes and devices --- */

/* How a conversion goes: the options of x:to(). */
typedef struct way {
  bool async, on_stream;
  int layout;
  fl_site site;
  fl_device device; /* of the stream */
  int stream;
} way;

/* x in another layout, and, unless dtype is FL_NODTYPE, as that. */
static fl_status lay_out(fl_lua *st, fl_tensor *x, fl_dtype dtype, const way *w,
                         fl_tensor **t) {
  const fl_op *copy = fll_findop(st, "copy")->op;
  fl_attrs a = *fl_op_defaults(copy);
  fl_operand in = {.tensor = x};
  if (dtype != FL_NODTYPE)
    a.v[0].i = dtype;
  a.v[1].i = w->layout;
  fl_call c = {
      .op = copy, .n_in = 1, .in = &in, .attrs = &a, .site = w->site, .out = t};
  return fl_call_run(st->rt, &c);
}

static fl_status convert_there(fl_lua *st, fl_tensor *x, fl_device d,
                               fl_dtype dtype, const way *w, fl_tensor **t) {
  bool turns = w->layout && !lies_as(x, w->layout);
  if (turns && d == fl_tensor_device(x))
    return lay_out(st, x, dtype, w, t);
  fl_status s = w->async ? fl_tensor_to_async(x, d, dtype, w->site, t)
                         : fl_tensor_to(x, d, dtype, t);
  if (s != FL_OK || !w->layout || lies_as(*t, w->layout))
    return s;
  fl_tensor *moved = *t;
  s = lay_out(st, moved, FL_NODTYPE, w, t);
  fl_tensor_release(moved);
  return s;
}

static fl_status convert_by(fl_lua *st, fl_tensor *x, fl_device d,
                            fl_dtype dtype, const way *w, fl_tensor **t) {
  int was = w->on_stream ? fl_stream_current(st->rt, w->device) : 0;
  fl_status s =
      w->on_stream ? fl_stream_use(st->rt, w->device, w->stream) : FL_OK;
  if (s == FL_OK)
    s = convert_there(st, x, d, dtype, w, t);
  if (w->on_stream)
    fl_stream_use(st->rt, w->device, was);
  return s;
}

static int convert(lua_State *L, fl_lua *st, fl_device d, fl_dtype dtype,
                   const way *w) {
  fll_tensor *h = fll_new(L, st, FLL_MT), *x = fll_test(L, 1);
  fl_tensor *t = NULL;
  if (!x)
    fll_argerror(L, "to", "x", "a tensor", 1);
  if (d < 0)
    d = fl_tensor_device(x->t);
  fl_copy_site(st->rt, fll_site_here(L, st));
  fll_check(L, st, convert_by(st, x->t, d, dtype, w, &t));
  if (t == x->t) {
    fl_tensor_release(t);
    lua_settop(L, 1);
    return 1;
  }
  fll_fill(h, t);
  if (x->flags)
    fll_inherit_from(L, st, -1, 1);
  return 1;
}

static bool is_dtype(const char *s, fl_dtype *d) {
  fl_dtype found = fl_dtype_find(s);
  if (found != FL_NODTYPE)
    *d = found;
  return found != FL_NODTYPE;
}

static void read_way(lua_State *L, fl_lua *st, int i, way *w) {
  w->site = fll_site_here(L, st);
  w->async = fll_option(L, i, "async") != LUA_TNIL && lua_toboolean(L, -1);
  if (fll_option(L, i, "layout") != LUA_TNIL)
    w->layout = check_layout(L, lua_gettop(L), "to");
  if (w->layout == CHANNELS_LAST)
    check_images(L, self(L, "to"), "to");
  fll_option(L, i, "stream");
  w->on_stream = fll_tostream(L, lua_gettop(L), "to", &w->device, &w->stream);
}

/* x:to("f64"), x:to("sim:0"), x:to("sim:0", "f64"), x:to{device =, dtype =},
 * x:to(y): as y is. {layout =, stream =, async =} may follow. */
static int to(lua_State *L) {
  static const char *const options[] = {"device", "dtype", "layout",
                                        "stream", "async", NULL};
  way w = {false};
  fl_lua *st = fll_enter(L);
  fl_device d = -1;
  fl_dtype dtype = FL_NODTYPE;
  self(L, "to");
  lua_settop(L, 4);
  int last = lua_isnil(L, 4) ? lua_isnil(L, 3) ? 2 : 3 : 4;
  if (lua_istable(L, last) && !fll_test(L, last)) {
    fll_checkoptions(L, last, "to", options);
    read_way(L, st, last, &w);
  }
  fll_tensor *like = fll_test(L, 2);
  if (like) {
    d = fl_tensor_device(like->t);
    dtype = fl_tensor_meta(like->t)->dtype;
  } else if (lua_istable(L, 2)) {
    if (fll_option(L, 2, "device") != LUA_TNIL)
      d = fll_checkdevice(L, st, lua_gettop(L), "to");
    if (fll_option(L, 2, "dtype") != LUA_TNIL)
      dtype = fll_checkdtype(L, lua_gettop(L), "to");
  } else {
    for (int i = 2; i <= 3; i++) {
      if (i == 3 && (lua_isnil(L, i) || (i == last && lua_istable(L, i))))
        continue;
      if (lua_type(L, i) != LUA_TSTRING)
        fll_error(L, "to: expected a dtype, a device or a tensor, got %s",
                  fll_typename(L, i));
      const char *s = fll_checkname(L, i, "to", "x");
      if (is_dtype(s, &dtype))
        continue;
      bool device = strchr(s, ':') || strcmp(s, "cuda") == 0 ||
                    strcmp(s, "gpu") == 0 ||
                    fl_device_find(st->rt, s, &d) == FL_OK;
      if (device)
        d = fll_checkdevice(L, st, i, "to");
      else
        dtype = fll_checkdtype(L, i, "to");
    }
  }
  return convert(L, st, d, dtype, &w);
}

static int cpu(lua_State *L) {
  fl_lua *st = fll_enter(L);
  self(L, "cpu");
  lua_settop(L, 1);
  return convert(L, st, 0, FL_NODTYPE, &(way){false});
}

/* x:type() is the dtype's name, x:type("f64") converts. */
static int type(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = self(L, "type");
  if (!lua_isnoneornil(L, 2))
    return convert(L, st, -1, fll_checkdtype(L, 2, "type"), &(way){false});
  lua_pushstring(L, fl_dtype_name(fl_tensor_meta(t)->dtype));
  return 1;
}

/* x:f64(), x:double() ...: upvalue 3 is the dtype. */
static int to_dtype(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_dtype d = (fl_dtype)lua_tointeger(L, FLL_OWN);
  self(L, fl_dtype_name(d));
  lua_settop(L, 1);
  return convert(L, st, -1, d, &(way){false});
}

static const struct {
  const char *name;
  fl_dtype d;
} dtype_methods[] = {
    {"float", FL_F32},     {"double", FL_F64}, {"half", FL_F16},
    {"bfloat16", FL_BF16}, {"long", FL_I64},   {"int", FL_I32},
    {"short", FL_I16},     {"char", FL_I8},    {"byte", FL_U8}};

static int detach(lua_State *L) {
  fl_lua *st = fll_enter(L);
  self(L, "detach");
  fll_tensor *h = fll_new(L, st, FLL_MT), *x = fll_test(L, 1);
  fl_tensor *t = NULL;
  if (!x)
    fll_argerror(L, "detach", "x", "a tensor", 1);
  fll_check(L, st, fl_tensor_detach(x->t, &t));
  fll_fill(h, t);
  return 1;
}

/* --- by operators --- */

static int run_named(lua_State *L, fl_lua *st, const char *name) {
  return fll_run(L, st, fll_findop(st, name), false);
}

static int t(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const fl_meta *m = fl_tensor_meta(self(L, "t"));
  lua_settop(L, 1);
  if (m->ndim > 2)
    fll_error(L, "t: expected at most 2 dims, got %s; use transpose or permute",
              fli_shape_text(m->ndim, m->shape));
  if (m->ndim < 2)
    return 1;
  lua_pushinteger(L, 1);
  lua_pushinteger(L, 2);
  return run_named(L, st, "transpose");
}

/* x:view_as(y) and the like: upvalue 3 names the operator. */
static int as_other(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *name = lua_tostring(L, FLL_OWN);
  self(L, name);
  const fl_meta *m = fl_tensor_meta(fll_checktensor(L, 2, name, "other"));
  lua_settop(L, 1);
  fll_pushshape(L, m->ndim, m->shape);
  return run_named(L, st, name);
}

static int zero_(lua_State *L) {
  fl_lua *st = fll_enter(L);
  self(L, "zero_");
  lua_settop(L, 1);
  lua_pushinteger(L, 0);
  return fll_run(L, st, fll_findop(st, "assign"), true);
}

/* --- pieces --- */

/* Pushes x[first, first + length) along dim into the list on top. */
static void add_piece(lua_State *L, fl_lua *st, int dim, int64_t first,
                      int64_t length, int64_t number) {
  fl_attrs a;
  fl_tensor *out[FL_MAX_OUT];
  a.used = 0;
  a.v[0].i = dim;
  a.v[1].i = first;
  a.v[2].i = length;
  a.v[3].i = 1;
  fll_tensor *h = fll_new(L, st, FLL_MT), *x = fll_test(L, 1);
  if (!x)
    fll_argerror(L, "split", "x", "a tensor", 1);
  fl_operand in = {.tensor = x->t, .dtype = FL_NODTYPE};
  fl_call c = {.op = length < 0 ? st->select : st->narrow,
               .n_in = 1,
               .in = &in,
               .attrs = &a,
               .base = 1,
               .site = fll_site_here(L, st),
               .out = out};
  fll_check(L, st, fl_call_run(st->rt, &c));
  fll_fill(h, out[0]);
  fll_set_parent(L, -1, 1);
  lua_rawseti(L, -2, number);
}

static int piece_dim(lua_State *L, int i, const char *where, int64_t *size) {
  const fl_meta *m = fl_tensor_meta(self(L, where));
  int64_t given = lua_isnoneornil(L, i) ? 1 : fll_checkint(L, i, where, "dim");
  int64_t d = fll_dim(L, given, where, "dim");
  d = d < 0 ? d + m->ndim : d;
  if (d < 0 || d >= m->ndim)
    fll_error(L, "%s: there is no dim %lld in a tensor of %d dims", where,
              (long long)given, m->ndim);
  *size = m->shape[d];
  return (int)d;
}

/* Dims of an empty tensor may be as long as numbers go. */
static void some(lua_State *L, const char *where, int64_t pieces) {
  if (pieces > PIECES)
    fll_error(L, "%s: a list of %lld tensors, %d at most", where,
              (long long)pieces, PIECES);
}

static int in_pieces(lua_State *L, fl_lua *st, const char *where, int d,
                     int64_t size, int64_t each) {
  int64_t n = 0, at = 0;
  some(L, where, size / each);
  lua_newtable(L);
  do {
    int64_t length = size - at < each ? size - at : each;
    add_piece(L, st, d, at, length, ++n);
    at += each;
  } while (at < size);
  return 1;
}

/* x:split(size, dim) or x:split({sizes}, dim): a list of views. */
static int split(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int64_t size, at = 0;
  int d = piece_dim(L, 3, "split", &size);
  if (!lua_istable(L, 2)) {
    int64_t each = fll_checkint(L, 2, "split", "size");
    if (each < 1)
      fll_error(L, "split: size: expected at least 1, got %lld",
                (long long)each);
    return in_pieces(L, st, "split", d, size, each);
  }
  lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
  lua_createtable(L, (int)n, 0);
  for (lua_Integer k = 1; k <= n; k++) {
    lua_rawgeti(L, 2, k);
    int64_t length = fll_checkint(L, -1, "split", "sizes");
    lua_pop(L, 1);
    if (length < 0 || length > size - at)
      fll_error(L, "split: sizes do not add up to %lld", (long long)size);
    add_piece(L, st, d, at, length, k);
    at += length;
  }
  if (at != size)
    fll_error(L, "split: sizes add up to %lld, the dim has %lld", (long long)at,
              (long long)size);
  return 1;
}

/* x:chunk(n, dim): at most n views of equal size, the last one may be smaller.
 */
static int chunk(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int64_t size;
  int d = piece_dim(L, 3, "chunk", &size);
  int64_t n = fll_checkint(L, 2, "chunk", "n");
  if (n < 1)
    fll_error(L, "chunk: n: expected at least 1, got %lld", (long long)n);
  int64_t each = size / n + (size % n != 0);
  return in_pieces(L, st, "chunk", d, size, each ? each : 1);
}

/* x:unbind(dim): x[1], x[2], ... along dim. */
static int unbind(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int64_t size;
  int d = piece_dim(L, 2, "unbind", &size);
  some(L, "unbind", size);
  lua_createtable(L, size < 1 << 20 ? (int)size : 0, 0);
  for (int64_t i = 0; i < size; i++)
    add_piece(L, st, d, i, -1, i + 1);
  return 1;
}

const luaL_Reg fll_convert_methods[] = {
    {"dim", dim},
    {"size", size},
    {"stride", stride},
    {"numel", numel},
    {"nelement", numel},
    {"nbytes", nbytes},
    {"element_size", element_size},
    {"storage_offset", storage_offset},
    {"is_contiguous", is_contiguous},
    {"is_floating_point", is_floating_point},
    {"shares", shares},
    {"protect", protect},
    {"data_ptr", data_ptr},
    {"item", item},
    {"totable", totable},
    {"tolist", totable},
    {"bytes", bytes},
    {"to", to},
    {"cpu", cpu},
    {"type", type},
    {"detach", detach},
    {"t", t},
    {"zero_", zero_},
    {"split", split},
    {"chunk", chunk},
    {"unbind", unbind},
    {NULL, NULL}};

static void push_to(lua_State *L, const char *name, fl_dtype d) {
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_pushinteger(L, d);
  lua_pushcclosure(L, to_dtype, 3);
  lua_setfield(L, -2, name);
}

void fll_convert_methods_more(lua_State *L) {
  static const char *const names[][2] = {
      {"view_as", "view"}, {"reshape_as", "reshape"}, {"expand_as", "expand"}};
  for (int k = 0; k < 3; k++) {
    fll_getkey(L, FLL_STATE);
    fll_getkey(L, FLL_TENSOR);
    lua_pushstring(L, names[k][1]);
    lua_pushcclosure(L, as_other, 3);
    lua_setfield(L, -2, names[k][0]);
  }
  for (int d = 0; d < fl_dtype_count(); d++)
    push_to(L, fl_dtype_name((fl_dtype)d), (fl_dtype)d);
  for (size_t k = 0; k < sizeof dtype_methods / sizeof dtype_methods[0]; k++)
    push_to(L, dtype_methods[k].name, dtype_methods[k].d);
}
