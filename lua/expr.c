/* flare.elementwise, flare.reduce and flare.kernel: kernels written as text or
 * as Lua functions, as values that are called. The function of a recorded one
 * is its user value; it runs once for each combination of inputs' dtypes. */
#include "fll.h"

#define MAX_IN 12

typedef struct kernel {
  uint64_t magic;
  fl_expr *e;
  fl_lua *st;
  bool reduces;
} kernel;

static kernel *check_kernel(lua_State *L) {
  return fll_checktype(L, 1, FLL_KERNEL, sizeof(kernel));
}

static int kernel_gc(lua_State *L) {
  kernel *k = fll_totype(L, 1, FLL_KERNEL, sizeof *k);
  if (k) {
    fl_expr_free(k->e);
    k->e = NULL;
  }
  return 0;
}

static int kernel_tostring(lua_State *L) {
  kernel *k = check_kernel(L);
  lua_pushfstring(L, "flare.kernel %s", fl_expr_signature(k->e));
  return 1;
}

/* --- making one --- */

static const char *text_option(lua_State *L, int i, const char *where,
                               const char *name) {
  const char *text = NULL;
  if (fll_option(L, i, name) == LUA_TSTRING)
    text = fll_checkname(L, -1, where, name);
  else if (!lua_isnil(L, -1))
    fll_error(L, "%s: option '%s' must be a string, got %s", where, name,
              fll_typename(L, -1));
  return text; /* stays on the stack */
}

static const char *text_argument(lua_State *L, int i, const char *where,
                                 const char *what) {
  if (lua_type(L, i) != LUA_TSTRING)
    fll_error(L, "%s: %s must be a string, got %s", where, what,
              fll_typename(L, i));
  return fll_checkname(L, i, where, "the text");
}

static int new_kernel(lua_State *L, const char *where, bool text,
                      const char *reduce, int options) {
  static const char *const both[] = {"name", "backward", NULL};
  static const char *const name_only[] = {"name", NULL};
  fl_lua *st = fll_enter(L);
  const char *texts[3] = {NULL, NULL, NULL};
  static const char *const what[] = {"the inputs, as \"T x, T y\",",
                                     "the outputs, as \"T z\",",
                                     "the expression, as \"z = x * y\","};
  for (int k = 0; k < 3 && text; k++)
    texts[k] = text_argument(L, k + 1, where, what[k]);
  fll_checkoptions(L, options, where, text && !reduce ? both : name_only);
  fl_expr_options o = {.struct_size = sizeof o,
                       .name = text_option(L, options, where, "name"),
                       .backward = text_option(L, options, where, "backward"),
                       .reduce = reduce,
                       .site = fll_site_here(L, st)};
  kernel *k = fll_newobject(L, FLL_KERNEL, sizeof *k, 1);
  k->st = st;
  k->reduces = reduce != NULL;
  fll_check(L, st,
            fl_expr_new(st->rt, texts[0], texts[1], texts[2], &o, &k->e));
  return 1;
}

static int elementwise(lua_State *L) {
  return new_kernel(L, "elementwise", true, NULL, 4);
}

static int reduce(lua_State *L) {
  const char *how = text_argument(L, 4, "reduce", "the reduction, as \"sum\",");
  return new_kernel(L, "reduce", true, how, 5);
}

static int from_function(lua_State *L) {
  if (!lua_isfunction(L, 1))
    fll_error(L, "kernel: expected a function, got %s", fll_typename(L, 1));
  new_kernel(L, "kernel", false, NULL, 2);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  return 1;
}

/* --- calling it --- */

/* Runs the function on tensors that stand for the inputs. */
static const fl_op *record(lua_State *L, kernel *k, int n,
                           const fl_operand *in) {
  fl_tensor *args[MAX_IN], *results[FL_MAX_OUT];
  const fl_op *op = NULL;
  int top = lua_gettop(L), failed;
  luaL_checkstack(L, n + 10, NULL);
  lua_getiuservalue(L, 1, 1);
  for (int i = 0; i < n; i++)
    fll_new(L, k->st, FLL_MT);
  fll_check(L, k->st, fl_trace_begin(k->e, n, in, args));
  for (int i = 0; i < n; i++)
    fll_fill(lua_touserdata(L, top + 2 + i), args[i]);
  fll_frame f;
  fll_callback_begin(L, k->st, &f);
  failed = lua_pcall(L, n, LUA_MULTRET, 0);
  fll_callback_end(L, k->st, &f);
  if (failed) {
    fl_trace_end(k->e, -1, NULL, NULL);
    lua_error(L);
  }
  int m = lua_gettop(L) - top;
  for (int i = 0; i < m && i < FL_MAX_OUT; i++) {
    fll_tensor *h = fll_test(L, top + 1 + i);
    if (!h) {
      fl_trace_end(k->e, -1, NULL, NULL);
      fll_error(L, "%s: result %d of the function must be a tensor, got %s",
                fl_expr_name(k->e), i + 1, fll_typename(L, top + 1 + i));
    }
    results[i] = h->t;
  }
  fll_check(L, k->st, fl_trace_end(k->e, m, results, &op));
  lua_settop(L, top);
  return op;
}

/* The inputs at 2, 3, ...: how many. */
static int read_inputs(lua_State *L, kernel *k, int last, fl_operand *in,
                       unsigned *flags) {
  int want = fl_expr_inputs(k->e), n = last - 1;
  const char *name = fl_expr_name(k->e);
  if (want >= 0 && (n < want || (n > want && !k->reduces)))
    fll_error(L, "%s takes %d input%s, not %d: %s", name, want,
              want == 1 ? "" : "s", n, fl_expr_signature(k->e));
  if (want < 0 && n > MAX_IN)
    fll_error(L, "%s: %d inputs are too many: at most %d", name, n, MAX_IN);
  n = want < 0 ? n : want;
  for (int i = 0; i < n; i++)
    if (!fll_operand(L, i + 2, &in[i], flags))
      fll_error(L, "%s: input %d must be a tensor or a number, got %s", name,
                i + 1, fll_typename(L, i + 2));
  return n;
}

static const fl_op *op_for(lua_State *L, kernel *k, int n,
                           const fl_operand *in) {
  const fl_op *op;
  fll_check(L, k->st, fl_expr_op(k->e, n, in, &op));
  return op ? op : record(L, k, n, in);
}

/* What follows the inputs of a reduction: dims, or {dim = ..., keepdim = ...}.
 */
static void read_dims(lua_State *L, const kernel *k, int i, int last,
                      fl_attrs *a) {
  static const char *const names[] = {"dim", "keepdim", NULL};
  const char *name = fl_expr_name(k->e);
  int64_t dims[FL_MAX_DIMS];
  int n = 0, list = 0;
  if (lua_istable(L, i) && i == last) {
    fll_checkoptions(L, i, name, names);
    fll_option(L, i, "keepdim");
    a->v[1].i = lua_toboolean(L, -1);
    lua_pop(L, 1);
    fll_option(L, i, "dim");
    if (lua_isnil(L, -1) && lua_rawlen(L, i) > 0)
      lua_pushvalue(L, i);
    list = lua_gettop(L);
    if (lua_isnil(L, list))
      return;
  }
  bool table = list && lua_istable(L, list);
  int many = table ? (int)lua_rawlen(L, list) : list ? 1 : last - i + 1;
  if (many > FL_MAX_DIMS)
    fll_error(L, "%s: %d dims are too many", name, many);
  for (; n < many; n++) {
    if (table)
      lua_rawgeti(L, list, n + 1);
    int at = table ? lua_gettop(L) : list ? list : i + n;
    dims[n] = fll_dim(L, fll_checkint(L, at, name, "dim"), name, "dim");
  }
  fll_check(L, k->st, fl_attrs_list(a, 0, n, dims));
}

static int kernel_call(lua_State *L) {
  kernel *k = check_kernel(L);
  fl_lua *st = fll_enter(L);
  fl_operand in[MAX_IN];
  fl_tensor *out[FL_MAX_OUT] = {NULL};
  unsigned flags = 0;
  int top = lua_gettop(L), n = read_inputs(L, k, top, in, &flags);
  const fl_op *op = op_for(L, k, n, in);
  int n_out = fl_op_get(op)->n_out;
  fl_attrs attrs = *fl_op_defaults(op);
  if (top > n + 1)
    read_dims(L, k, n + 2, top, &attrs);
  lua_settop(L, top);
  for (int i = 0; i < n_out; i++)
    fll_new(L, st, FLL_MT);
  fl_call c = {.op = op,
               .n_in = n,
               .in = in,
               .attrs = &attrs,
               .base = 1,
               .site = fll_site_here(L, st),
               .device = st->device,
               .out = out};
  fll_check(L, st, fl_call_run(st->rt, &c));
  for (int i = 0; i < n_out; i++)
    fll_fill(lua_touserdata(L, top + 1 + i), out[i]);
  if (flags)
    fll_inherit(L, st, top + 1, n_out, top);
  return n_out;
}

/* k:source(x, y): its instructions for such inputs, as C or CUDA text. */
static int kernel_source(lua_State *L) {
  kernel *k = check_kernel(L);
  fl_operand in[MAX_IN];
  unsigned flags = 0;
  int n = read_inputs(L, k, lua_gettop(L), in, &flags);
  const fl_op *op = op_for(L, k, n, in);
  size_t length = fl_op_source(op, NULL, 0);
  char *text = fll_scratch(L, length + 1);
  fl_op_source(op, text, length + 1);
  lua_pushlstring(L, text, length);
  return 1;
}

void fll_expr_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"elementwise", elementwise},
                                       {"reduce", reduce},
                                       {"kernel", from_function},
                                       {NULL, NULL}};
  static const luaL_Reg meta[] = {{"__call", kernel_call},
                                  {"__gc", kernel_gc},
                                  {"__tostring", kernel_tostring},
                                  {NULL, NULL}};
  static const luaL_Reg methods[] = {{"source", kernel_source}, {NULL, NULL}};
  fll_newclass(L, FLL_KERNEL, "flare.kernel", meta, methods);
  fll_register(L, functions);
}
