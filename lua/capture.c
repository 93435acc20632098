/* Launch graphs, as flare/cuda/graph.lua wants them: capturing what a function
 * does, and running it with other inputs. */
#include "fll.h"

typedef struct graph {
  uint64_t magic;
  fl_graph *g;
  uint64_t more; /* 16 bytes would be a tensor's size */
} graph;

static void drop(graph *k) {
  fl_graph_free(k->g);
  k->g = NULL;
}

/* Calls the function at 2, which gives one value; no error leaves. */
static int call(lua_State *L, fl_lua *st) {
  lua_pushvalue(L, 2);
  int status = lua_pcall(L, 0, 1, 0);
  st->L = L;
  return status;
}

/* Once as it is, so that the capture finds numbers that change. */
static void rehearse(lua_State *L, fl_lua *st) {
  fll_check(L, st, fl_graph_rehearse(st->rt, true));
  int status = call(L, st);
  if (status != LUA_OK) {
    if (st->rt)
      fl_graph_rehearse(st->rt, false);
    lua_error(L);
  }
  lua_pop(L, 1);
  lua_gc(L, LUA_GCCOLLECT, 0);
}

/* graph_capture(device, f): a graph of what f does; f gives a list of the
 * tensors that are its results. It is called twice. */
static int graph_capture(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_device d = fll_checkdevice(L, st, 1, "graph");
  lua_settop(L, 2);
  graph *k = fll_newobject(L, FLL_LAUNCHES, sizeof *k, 0);
  rehearse(L, st);
  fl_status s = fl_graph_begin(st->rt, d, &k->g);
  if (s != FL_OK)
    fl_graph_rehearse(st->rt, false);
  fll_check(L, st, s);
  int status = call(L, st);
  if (status != LUA_OK || !lua_istable(L, 4)) {
    drop(k);
    return status == LUA_OK ? fll_error(L, "graph: expected a list of tensors")
                            : lua_error(L);
  }
  int n = (int)lua_rawlen(L, 4);
  fl_tensor **list = fll_scratch(L, ((size_t)n + 1) * sizeof(fl_tensor *));
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 4, i + 1);
    fll_tensor *h = fll_test(L, -1);
    list[i] = h ? h->t : NULL;
    lua_pop(L, 1);
  }
  s = fl_graph_end(k->g, n, list);
  if (s != FL_OK)
    drop(k);
  fll_check(L, st, s);
  lua_settop(L, 3);
  return 1;
}

static const char *grad_text(fl_tensor *t) {
  return fl_tensor_requires_grad(t) ? "requires a gradient"
                                    : "requires no gradient";
}

/* Input i, at `given`, must be like that of the capture, at `own`. */
static void check_input(lua_State *L, int i, int given, int own) {
  fll_tensor *x = fll_test(L, given), *y = fll_test(L, own);
  if (!y) {
    if (!lua_rawequal(L, given, own))
      fll_error(L,
                "graph: input %d is not a tensor, so it must be the same in "
                "every call as in the capture",
                i);
    return;
  }
  if (!x)
    fll_error(L, "graph: input %d: expected a tensor, got %s", i,
              fll_typename(L, given));
  const fl_meta *m = fl_tensor_meta(x->t), *w = fl_tensor_meta(y->t);
  bool same = m->ndim == w->ndim;
  for (int k = 0; same && k < m->ndim; k++)
    same = m->shape[k] == w->shape[k];
  if (!same)
    fll_error(L,
              "graph: input %d has shape %s, the graph was captured with %s: "
              "make a graph for each shape",
              i, fli_shape_text(m->ndim, m->shape),
              fli_shape_text(w->ndim, w->shape));
  if (m->dtype != w->dtype)
    fll_error(L, "graph: input %d is %s, the graph was captured with %s", i,
              fl_dtype_name(m->dtype), fl_dtype_name(w->dtype));
  if (fl_tensor_requires_grad(x->t) != fl_tensor_requires_grad(y->t))
    fll_error(L,
              "graph: input %d %s, the one of the capture %s: results have no "
              "history, so differentiate inside of the function",
              i, grad_text(x->t), grad_text(y->t));
}

/* Copies x to y, without history. */
static fl_status copy_input(fl_lua *st, fl_site site, fl_tensor *x,
                            fl_tensor *y) {
  fl_operand in[2] = {{.tensor = y}, {.tensor = x}};
  fl_tensor *out = NULL;
  fl_call c = {.op = fl_op_find(st->rt, "assign"),
               .n_in = 2,
               .in = in,
               .inplace = true,
               .site = site,
               .out = &out};
  bool grad = fl_grad_mode(st->rt, false);
  fl_status s = fl_call_run(st->rt, &c);
  fl_grad_mode(st->rt, grad);
  if (s == FL_OK)
    fl_tensor_release(out);
  return s;
}

/* graph_run(graph, inputs of the capture, how many, inputs...) */
static int graph_run(lua_State *L) {
  fl_lua *st = fll_enter(L);
  graph *k = fll_checktype(L, 1, FLL_LAUNCHES, sizeof *k);
  int n = (int)luaL_checkinteger(L, 3), first = 4;
  fl_site site = fll_site_here(L, st);
  if (!k->g)
    fll_error(L, "graph: it is closed");
  if (lua_gettop(L) - first + 1 != n)
    fll_error(L, "graph: expected %d input%s, got %d", n, n == 1 ? "" : "s",
              lua_gettop(L) - first + 1);
  luaL_checkstack(L, n + 4, "too many inputs");
  for (int i = 0; i < n; i++)
    lua_rawgeti(L, 2, i + 1);
  for (int i = 0; i < n; i++)
    check_input(L, i + 1, first + i, first + n + i);
  for (int i = 0; i < n; i++) {
    fll_tensor *x = fll_test(L, first + i), *y = fll_test(L, first + n + i);
    if (y && x->t != y->t)
      fll_check(L, st, copy_input(st, site, x->t, y->t));
  }
  fll_check(L, st, fl_graph_run(k->g, site));
  return 0;
}

static int graph_stats(lua_State *L) {
  fll_enter(L);
  fl_graph_stats s;
  fl_graph_get(((graph *)fll_checktype(L, 1, FLL_LAUNCHES, sizeof(graph)))->g,
               &s);
  lua_pushinteger(L, (lua_Integer)s.launches);
  lua_pushinteger(L, (lua_Integer)s.runs);
  lua_pushinteger(L, (lua_Integer)s.bytes);
  return 3;
}

static int graph_close(lua_State *L) {
  graph *k = fll_checktype(L, 1, FLL_LAUNCHES, sizeof *k);
  fll_peek(L);
  drop(k);
  return 0;
}

void fll_capture_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"graph_capture", graph_capture},
                                       {"graph_run", graph_run},
                                       {"graph_stats", graph_stats},
                                       {"graph_close", graph_close},
                                       {NULL, NULL}},
                        type[] = {{"__gc", graph_close}, {NULL, NULL}};
  fll_newtype(L, FLL_LAUNCHES, "flare.launches", type);
  lua_pop(L, 1);
  fll_register(L, functions);
}
