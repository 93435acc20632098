/* Gradients from Lua: backward, grad, hooks, and what a tensor says of its
 * history. Functions written in Lua that take part in it are in custom.c. */
#include "scope.h"

#include <stdio.h>
#include <stdlib.h>

#define FEW 16

/* Tensors of a call, each retained: a hook may close its handle meanwhile. */
typedef struct list {
  uint64_t magic;
  int n;
  fl_tensor *few[FEW], **t;
} list;

/* The list is a userdata, so that an error releases what it holds. */
static int list_gc(lua_State *L) {
  list *l = fll_totype(L, 1, FLL_ARRAY, lua_rawlen(L, 1));
  while (l && l->n > 0)
    fl_tensor_release(l->t[--l->n]);
  return 0;
}

static list *new_list(lua_State *L, int n) {
  size_t extra = n > FEW ? (size_t)n * sizeof(fl_tensor *) : 0;
  list *l = fll_newobject(L, FLL_ARRAY, sizeof *l + extra, 0);
  l->t = n > FEW ? (fl_tensor **)(l + 1) : l->few;
  return l;
}

/* A tensor, or a table of tensors, as a list on top of the stack. `holes`: nil
 * and false elements give NULL; `n` >= 0: so many there must be. */
static list *check_list(lua_State *L, int i, int n, bool holes,
                        const char *where, const char *param) {
  bool one = !lua_istable(L, i);
  int count = one ? 1 : n >= 0 ? n : (int)lua_rawlen(L, i);
  list *l = new_list(L, count);
  if (one && n > 1)
    fll_error(L, "%s: %s: expected a table of %d tensors", where, param, n);
  for (int k = 0; k < count; k++) {
    if (one)
      lua_pushvalue(L, i);
    else
      lua_rawgeti(L, i, k + 1);
    if (holes && !lua_toboolean(L, -1))
      l->t[l->n++] = NULL;
    else {
      fl_tensor *t = fll_checktensor(L, -1, where, param);
      l->t[l->n++] = fl_tensor_retain(t);
    }
    lua_pop(L, 1);
  }
  return l;
}

int fll_option(lua_State *L, int i, const char *name) {
  if (!lua_istable(L, i)) {
    lua_pushnil(L);
    return LUA_TNIL;
  }
  lua_pushstring(L, name);
  return lua_rawget(L, i < 0 ? i - 1 : i);
}

static bool flag(lua_State *L, int i, const char *name) {
  fll_option(L, i, name);
  bool on = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return on;
}

static const char *named(const void *names, int i) {
  return ((const char *const *)names)[i];
}

void fll_checkoptions(lua_State *L, int i, const char *where,
                      const char *const *names) {
  if (lua_isnoneornil(L, i))
    return;
  if (!lua_istable(L, i))
    fll_error(L, "%s: options are a table such as {%s = ...}, got %s", where,
              names[0], fll_typename(L, i));
  int n = 0;
  while (names[n])
    n++;
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING)
      continue;
    const char *key = lua_tostring(L, -1);
    int k = 0;
    while (k < n && strcmp(names[k], key) != 0)
      k++;
    if (k < n)
      continue;
    const char *near = fll_nearest(key, n, named, names);
    fll_error(L, "%s: unknown option '%s'%s%s%s", where, key,
              near ? "; did you mean '" : "", near ? near : "",
              near ? "'?" : "");
  }
}

static unsigned pass_flags(lua_State *L, int i) {
  unsigned f = 0;
  if (flag(L, i, "retain_graph"))
    f |= FL_BACKWARD_RETAIN;
  if (flag(L, i, "create_graph"))
    f |= FL_BACKWARD_CREATE;
  if (flag(L, i, "allow_unused"))
    f |= FL_BACKWARD_UNUSED;
  return f;
}

/* The gradients to start from: an option, or NULL for ones. */
static fl_tensor **seeds(lua_State *L, int i, int n, const char *where) {
  if (fll_option(L, i, "gradient") == LUA_TNIL)
    return NULL;
  return check_list(L, lua_gettop(L), n, true, where, "gradient")->t;
}

/* In a pass that is recorded, functions may put functions on the new graph; the
 * handles that they returned are collected, and what these carry goes to the
 * pass's roots and results. Pushes what an outer pass had collected. */
static void open_pass(lua_State *L, unsigned flags) {
  fll_getkey(L, FLL_PASS);
  if (flags & FL_BACKWARD_CREATE)
    lua_newtable(L);
  else
    lua_pushnil(L);
  fll_setkey(L, FLL_PASS);
}

static void close_pass(lua_State *L, fl_lua *st, int outer, int first, int n) {
  if (fll_getkey(L, FLL_PASS) == LUA_TTABLE) {
    lua_Integer count = (lua_Integer)lua_rawlen(L, -1);
    for (lua_Integer k = 1; k <= count; k++) {
      lua_rawgeti(L, -1, k);
      for (int i = first; i < first + n; i++)
        if (fll_test(L, i))
          fll_inherit_from(L, st, i, -1);
      if (fll_test(L, 1))
        fll_inherit_from(L, st, 1, -1);
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
  lua_pushvalue(L, outer);
  fll_setkey(L, FLL_PASS);
}

/* --- backward --- */

/* --- the gradient map: grads:get(x), pairs(grads) ---
 *
 * The gradients of one pass. They share memory with x.grad where the pass was
 * the first to give one; the next pass then adds into new memory, since it sees
 * that the map has the old. */

typedef struct grads {
  uint64_t magic;
  int n, room;
  fl_tensor **t; /* leaf, gradient, leaf ... */
} grads;

static int grads_gc(lua_State *L) {
  grads *g = fll_totype(L, 1, FLL_GRADS, sizeof *g);
  for (int k = 0; g && k < 2 * g->n; k++) {
    fl_tensor_handle(g->t[k], -1);
    fl_tensor_release(g->t[k]);
  }
  if (g) {
    free(g->t);
    g->t = NULL;
    g->n = g->room = 0;
  }
  return 0;
}

static fl_status note_gradient(void *context, fl_tensor *leaf,
                               fl_tensor *gradient) {
  grads *g = context;
  if (g->n == g->room) {
    int room = g->room ? 2 * g->room : 16;
    fl_tensor **t = realloc(g->t, 2 * (size_t)room * sizeof(fl_tensor *));
    if (!t)
      return fli_fail(FL_ENOMEM, "out of memory: the gradients of a pass");
    g->t = t;
    g->room = room;
  }
  fl_tensor *both[2] = {fl_tensor_retain(leaf), fl_tensor_retain(gradient)};
  for (int k = 0; k < 2; k++) {
    fl_tensor_handle(both[k], 1);
    g->t[2 * g->n + k] = both[k];
  }
  g->n++;
  return FL_OK;
}

/* A gradient with a history refers to its leaf, as that to it: neither Lua's
 * collector nor the reference counts free the two. */
void fll_warn_cycle(lua_State *L, fl_lua *st, const char *what) {
  fl_site site = fll_site_here(L, st);
  if (st->warned_cycle)
    return;
  st->warned_cycle = true;
  lua_pushfstring(
      L,
      "flare: %s: %s keeps the graph, and memory, until x.grad is cleared "
      "(x.grad = nil, zero_grad); flare.grad(loss, {x}, {create_graph = "
      "true}) returns the gradients instead\n",
      fl_site_text(st->rt, site), what);
  lua_writestringerror("%s", lua_tostring(L, -1));
  lua_pop(L, 1);
}

typedef struct recorded {
  grads *map; /* or NULL */
  bool history;
} recorded;

static fl_status note_recorded(void *context, fl_tensor *leaf,
                               fl_tensor *gradient) {
  recorded *r = context;
  r->history |= fl_tensor_requires_grad(gradient);
  return r->map ? note_gradient(r->map, leaf, gradient) : FL_OK;
}

/* Whether the script drops the result: the call's instruction wants none. Where
 * Lua's records are not as expected, it may want one. */
static bool drops_result(lua_State *L, const fl_lua *st) {
  enum { OPCODE_CALL = 68 };
  lua_Debug ar;
  if (!st->site_cache || LUA_VERSION_NUM != 504 || !lua_getstack(L, 1, &ar))
    return false;
  const char *record = (const char *)ar.i_ci;
  if (record[62] & 2)
    return false;
  uint32_t i = fll_word(((char *const *)(const void *)record)[4] - 4);
  return (i & 127) == OPCODE_CALL && i >> 24 == 1;
}

static grads *new_grads(lua_State *L, const fl_lua *st) {
  return drops_result(L, st) ? NULL
                             : fll_newobject(L, FLL_GRADS, sizeof(grads), 0);
}

/* Without userdata for the plain case: one root, no options. */
static int plain_backward(lua_State *L, fl_lua *st) {
  fll_collect_pass(L, st);
  fll_tensor *h = fll_test(L, 1);
  grads *g = new_grads(L, st); /* making it may run finalisers */
  if (!fll_test(L, 1))
    fll_error(L, "backward: tensor is closed");
  fl_tensor *t = fl_tensor_retain(h->t);
  fl_status s =
      fl_backward_each(st->rt, 1, &t, NULL, 0, g ? note_gradient : NULL, g);
  fl_tensor_release(t);
  st->L = L;
  fll_check(L, st, s);
  return g ? 1 : 0;
}

/* loss:backward(), loss:backward(gradient), loss:backward{retain_graph = ...};
 * flare.backward({a, b}, {gradient = {ga, gb}}). Returns the gradient map. */
static int backward(lua_State *L) {
  static const char *const options[] = {"retain_graph", "create_graph",
                                        "gradient", NULL};
  fl_lua *st = fll_enter(L);
  if (FLL_LIKELY(fll_test(L, 1) && lua_isnoneornil(L, 2)))
    return plain_backward(L, st);
  if (lua_isnoneornil(L, 1))
    fll_argerror(L, "backward", "x", "a tensor", 1);
  lua_settop(L, 3);
  if (fll_test(L, 2)) { /* backward(gradient, options) */
    if (lua_isnil(L, 3)) {
      lua_pop(L, 1);
      lua_newtable(L);
    } else {
      luaL_checktype(L, 3, LUA_TTABLE);
    }
    lua_pushvalue(L, 2);
    lua_setfield(L, 3, "gradient");
    lua_remove(L, 2);
  }
  fll_checkoptions(L, 2, "backward", options);
  list *roots = check_list(L, 1, -1, false, "backward", "x");
  fl_tensor **from = seeds(L, 2, roots->n, "backward");
  unsigned flags = pass_flags(L, 2);
  grads *g = new_grads(L, st);
  int map = lua_gettop(L);
  open_pass(L, flags);
  int outer = lua_gettop(L);
  fll_collect_pass(L, st);
  recorded r = {g, false};
  fl_status s = fl_backward_each(st->rt, roots->n, roots->t, from, flags,
                                 note_recorded, &r);
  st->L = L;
  close_pass(L, st, outer, 0, 0);
  fll_check(L, st, s);
  if (r.history)
    fll_warn_cycle(L, st, "backward{create_graph = true}");
  lua_settop(L, map);
  return g ? 1 : 0;
}

/* flare.grad(loss, {x, y}, options): the gradients, one value each. */
static int grad(lua_State *L) {
  static const char *const options[] = {"retain_graph", "create_graph",
                                        "allow_unused", "gradient", NULL};
  fl_lua *st = fll_enter(L);
  lua_settop(L, 3);
  fll_checkoptions(L, 3, "grad", options);
  list *roots = check_list(L, 1, -1, false, "grad", "outputs");
  list *inputs = check_list(L, 2, -1, false, "grad", "inputs");
  fl_tensor **from = seeds(L, 3, roots->n, "grad");
  int n = inputs->n;
  luaL_checkstack(L, n + 20, "grad: too many inputs");
  list *out = new_list(L, n);
  int first = lua_gettop(L) + 1;
  for (int k = 0; k < n; k++)
    fll_new(L, st, FLL_MT);
  unsigned flags = pass_flags(L, 3);
  open_pass(L, flags);
  int outer = lua_gettop(L);
  fl_status s =
      fl_grad(st->rt, roots->n, roots->t, from, n, inputs->t, flags, out->t);
  st->L = L;
  if (s != FL_OK)
    close_pass(L, st, outer, 0, 0);
  fll_check(L, st, s);
  for (int k = 0; k < n; k++)
    if (out->t[k]) {
      fll_fill(lua_touserdata(L, first + k), out->t[k]);
    } else {
      lua_pushnil(L);
      lua_replace(L, first + k);
    }
  for (int k = 0; k < n; k++) {
    if (fll_test(L, 1))
      fll_inherit_from(L, st, first + k, 1);
    for (int r = 1; lua_istable(L, 1) && r <= roots->n; r++) {
      lua_rawgeti(L, 1, r);
      fll_inherit_from(L, st, first + k, -1);
      lua_pop(L, 1);
    }
  }
  close_pass(L, st, outer, first, n);
  lua_settop(L, first + n - 1);
  return n;
}

/* --- asking the gradient map --- */

static int grads_get(lua_State *L) {
  fl_lua *st = fll_enter(L);
  grads *g = fll_checktype(L, 1, FLL_GRADS, sizeof *g);
  fl_tensor *x = fll_checktensor(L, 2, "grads", "x");
  for (int k = 0; k < g->n; k++)
    if (g->t[2 * k] == x) {
      fll_push(L, st, g->t[2 * k + 1]);
      return 1;
    }
  lua_pushnil(L);
  return 1;
}

static int grads_next(lua_State *L) {
  fl_lua *st = fll_enter(L);
  grads *g = fll_checktype(L, 1, FLL_GRADS, sizeof *g);
  fll_tensor *x = fll_test(L, 2);
  int k = 0;
  while (x && k < g->n && g->t[2 * k++] != x->t)
    continue;
  if (k == g->n)
    return 0;
  fll_push(L, st, g->t[2 * k]);
  fll_push(L, st, g->t[2 * k + 1]);
  return 2;
}

static int grads_pairs(lua_State *L) {
  fll_checktype(L, 1, FLL_GRADS, sizeof(grads));
  fll_pushfunction(L, grads_next);
  lua_pushvalue(L, 1);
  lua_pushnil(L);
  return 3;
}

static int grads_count(lua_State *L) {
  grads *g = fll_checktype(L, 1, FLL_GRADS, sizeof *g);
  lua_pushinteger(L, g->n);
  return 1;
}

static int grads_text(lua_State *L) {
  grads *g = fll_checktype(L, 1, FLL_GRADS, sizeof *g);
  lua_pushfstring(L, "flare.gradients of %d tensor%s: grads:get(x) is x's",
                  g->n, g->n == 1 ? "" : "s");
  return 1;
}

static int grads_index(lua_State *L) {
  fll_enter(L);
  if (lua_type(L, 2) == LUA_TSTRING && strcmp(lua_tostring(L, 2), "get") == 0) {
    fll_pushfunction(L, grads_get);
    return 1;
  } else if (lua_type(L, 2) == LUA_TSTRING) {
    fll_error(L, "gradients have no '%s': grads[x] is the one of the tensor x",
              lua_tostring(L, 2));
  }
  return grads_get(L);
}

/* --- hooks --- */

typedef struct hook {
  uint64_t magic;
  int64_t key;
  bool on;
} hook;

/* x:register_hook(f): f(grad) may return another gradient. Gives an object with
 * remove(). */
static int register_hook(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "register_hook", "x");
  if (!lua_isfunction(L, 2))
    fll_error(L, "register_hook: expected a function, got %s",
              fll_typename(L, 2));
  lua_settop(L, 2);
  hook *h = fll_newobject(L, FLL_HOOK, sizeof *h, 1);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, 3, 1);
  if (fl_tensor_is_leaf(t))
    fll_own_table(L, 1);
  else
    fll_graph_table(L, st, 1);
  lua_pushvalue(L, 2);
  h->key = fll_hold(L, st, 4);
  fl_status s = fl_tensor_add_hook(fll_test(L, 1)->t, h->key);
  if (s != FL_OK)
    fll_forget(st, h->key);
  fll_check(L, st, s);
  h->on = true;
  lua_settop(L, 3);
  return 1;
}

static int hook_remove(lua_State *L) {
  fl_lua *st = fll_peek(L);
  hook *h = fll_checktype(L, 1, FLL_HOOK, sizeof *h);
  if (h->on && st->rt) {
    lua_getiuservalue(L, 1, 1);
    fll_tensor *x = fll_test(L, -1);
    if (x)
      fl_tensor_drop_hook(x->t, h->key);
    fll_forget(st, h->key);
  }
  h->on = false;
  return 0;
}

/* --- methods --- */

static int requires_grad_(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "requires_grad_", "x");
  bool on = lua_isnoneornil(L, 2) || lua_toboolean(L, 2);
  fll_check(L, st, fl_tensor_require_grad(t, on));
  lua_settop(L, 1);
  return 1;
}

static int retain_grad(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "retain_grad", "x");
  fll_check(L, st, fl_tensor_retain_grad(t));
  lua_settop(L, 1);
  return 1;
}

static int zero_grad(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "zero_grad", "x");
  fll_check(L, st, fl_tensor_set_grad(t, NULL));
  return 0;
}

/* x:graph(most): the graph behind x as a text, a line for each node;
 * x:graph{options}: as a picture, too (tape.lua). */
static int graph(lua_State *L) {
  fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "graph", "x");
  if (lua_istable(L, 2)) {
    lua_settop(L, 2);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "flare.tape");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "graph");
    lua_insert(L, 1);
    lua_settop(L, 3);
    lua_call(L, 2, LUA_MULTRET);
    return lua_gettop(L);
  }
  lua_pushstring(L, fl_tape_text(t, (int)luaL_optinteger(L, 2, 50)));
  return 1;
}

const luaL_Reg fll_autograd_methods[] = {{"backward", backward},
                                         {"register_hook", register_hook},
                                         {"requires_grad_", requires_grad_},
                                         {"retain_grad", retain_grad},
                                         {"zero_grad", zero_grad},
                                         {"graph", graph},
                                         {NULL, NULL}};

void fll_autograd_open(lua_State *L, fl_lua *st) {
  static const luaL_Reg map[] = {
      {"__index", grads_index}, {"__pairs", grads_pairs},
      {"__len", grads_count},   {"__tostring", grads_text},
      {"__gc", grads_gc},       {NULL, NULL}};
  static const luaL_Reg array[] = {{"__gc", list_gc}, {NULL, NULL}};
  fll_newtype(L, FLL_GRADS, "flare.gradients", map);
  fll_newtype(L, FLL_ARRAY, "flare.list", array);
  fll_newtype(L, FLL_HOOK, "flare.hook", NULL);
  lua_createtable(L, 0, 1);
  fll_pushfunction(L, hook_remove);
  lua_setfield(L, -2, "remove");
  lua_setfield(L, -2, "__index");
  lua_pop(L, 2);
  fll_custom_open(L, st);
}

/* place(p, flat, from): p lies in flat from now on, from that position on. */
static int place(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "place", "p");
  fl_tensor *flat = fll_checktensor(L, 2, "place", "flat");
  uint64_t from = (uint64_t)fll_checkint(L, 3, "place", "from");
  fll_check(L, st, fl_tensor_place(t, flat, (int64_t)(from - 1)));
  return 0;
}

/* place_grad(p, flat, from): p's gradients are written into flat, from that
 * position on; nil: anywhere. */
static int place_grad(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "place_grad", "p"), *flat = NULL;
  uint64_t from = 1;
  if (!lua_isnoneornil(L, 2)) {
    flat = fll_checktensor(L, 2, "place_grad", "flat");
    from = (uint64_t)fll_checkint(L, 3, "place_grad", "from");
  }
  fll_check(L, st, fl_tensor_place_grad(t, flat, (int64_t)(from - 1)));
  return 0;
}

void fll_autograd_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"backward", backward},
                                       {"grad", grad},
                                       {"place", place},
                                       {"place_grad", place_grad},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
