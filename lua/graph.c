/* Who owns the Lua functions on the tape (hooks, custom functions). C keeps an
 * integer key and no strong reference, or every function that captures a tensor
 * would be a cycle that nothing collects. The functions lie in one table for
 * each graph, held as user value by the handles of that graph: results inherit
 * it from their inputs, so what keeps a graph alive keeps its functions alive.
 * A weak table in the registry finds the holder of a key. Graphs without
 * functions never come here.
 *
 * A graph's table: {[key] = function or record, parents = {tables}}.
 * A view's handle holds the handle it was made from, because writing through
 * the view puts functions on the base's graph too. A leaf's own table is {[key]
 * = hook, graph = ..., parent = ...} and is not inherited. */
#include "fll.h"

static fll_tensor *handle(lua_State *L, int i) {
  return lua_touserdata(L, i);
}

/* Pushes the handle that the one at i is a view of. */
static bool push_parent(lua_State *L, int i) {
  fll_tensor *h = handle(L, i);
  if (!(h->flags & FLL_H_PARENT))
    return false;
  lua_getiuservalue(L, i, 1);
  if (h->flags & FLL_H_OWN) {
    lua_getfield(L, -1, "parent");
    lua_remove(L, -2);
  }
  return true;
}

/* Pushes the table of the graph of the handle at i, not looking at parents. */
static bool push_graph(lua_State *L, int i) {
  fll_tensor *h = handle(L, i);
  if (!(h->flags & FLL_H_GRAPH))
    return false;
  lua_getiuservalue(L, i, 1);
  if (h->flags & FLL_H_OWN) {
    lua_getfield(L, -1, "graph");
    lua_remove(L, -2);
  }
  return true;
}

void fll_own_table(lua_State *L, int i) {
  i = lua_absindex(L, i);
  fll_tensor *h = handle(L, i);
  lua_getiuservalue(L, i, 1);
  if (h->flags & FLL_H_OWN)
    return;
  lua_newtable(L);
  lua_insert(L, -2);
  if (h->flags & FLL_H_GRAPH)
    lua_setfield(L, -2, "graph");
  else if (h->flags & FLL_H_PARENT)
    lua_setfield(L, -2, "parent");
  else
    lua_pop(L, 1);
  lua_pushvalue(L, -1);
  lua_setiuservalue(L, i, 1);
  h->flags |= FLL_H_OWN;
}

/* Pops a table or handle and attaches it as `what`. */
static void attach(lua_State *L, int i, uint8_t what) {
  fll_tensor *h = handle(L, i);
  if (h->flags & ~what) {
    fll_own_table(L, i);
    lua_insert(L, -2);
    lua_setfield(L, -2, what == FLL_H_GRAPH ? "graph" : "parent");
    lua_pop(L, 1);
  } else {
    lua_setiuservalue(L, i, 1);
  }
  h->flags = (uint8_t)(h->flags | what);
}

void fll_set_parent(lua_State *L, int view, int parent) {
  view = lua_absindex(L, view);
  parent = lua_absindex(L, parent);
  if (handle(L, view) == handle(L, parent))
    return;
  /* always the outermost one, so that chains of views do not grow */
  if (!push_parent(L, parent))
    lua_pushvalue(L, parent);
  attach(L, view, FLL_H_PARENT);
}

static bool is_parent(lua_State *L, int table, int of) {
  bool yes = false;
  lua_getfield(L, of, "parents");
  if (lua_istable(L, -1)) {
    lua_Integer n = (lua_Integer)lua_rawlen(L, -1);
    for (lua_Integer k = 1; k <= n && !yes; k++) {
      lua_rawgeti(L, -1, k);
      yes = lua_rawequal(L, -1, table);
      lua_pop(L, 1);
    }
  }
  lua_pop(L, 1);
  return yes;
}

/* The graph of the handle at i also has the functions of the table there. */
void fll_join_graph(lua_State *L, int i, int table) {
  i = lua_absindex(L, i);
  table = lua_absindex(L, table);
  luaL_checkstack(L, 12, NULL);
  if (!push_graph(L, i)) {
    lua_pushvalue(L, table);
    attach(L, i, FLL_H_GRAPH);
    return;
  }
  int old = lua_gettop(L);
  if (lua_rawequal(L, old, table) || is_parent(L, table, old)) {
    lua_pop(L, 1);
    return;
  }
  if (is_parent(L, old, table)) {
    lua_pushvalue(L, table);
  } else {
    lua_createtable(L, 0, 2);
    lua_createtable(L, 2, 0);
    lua_pushvalue(L, old);
    lua_rawseti(L, -2, 1);
    lua_pushvalue(L, table);
    lua_rawseti(L, -2, 2);
    lua_setfield(L, -2, "parents");
  }
  attach(L, i, FLL_H_GRAPH);
  lua_pop(L, 1);
}

void fll_graph_table(lua_State *L, fl_lua *st, int i) {
  (void)st;
  i = lua_absindex(L, i);
  if (push_graph(L, i))
    return;
  lua_newtable(L);
  lua_pushvalue(L, -1);
  attach(L, i, FLL_H_GRAPH);
}

/* Pushes the table for functions on the graph of results of the arguments at
 * [args, args + n): theirs if all that have one have the same, else a new one.
 */
void fll_common_graph(lua_State *L, int args, int n) {
  int found = 0, base = lua_gettop(L) + 1;
  luaL_checkstack(L, 8, NULL);
  lua_pushnil(L); /* base: the one */
  for (int i = args; i < args + n; i++) {
    if (!fll_test(L, i))
      continue;
    for (int k = 0; k < 2; k++) {
      if (k == 0 ? push_graph(L, i)
                 : push_parent(L, i) && push_graph(L, base + 1)) {
        found += found == 0 || !lua_rawequal(L, -1, base);
        lua_replace(L, base);
      }
      lua_settop(L, base);
    }
  }
  if (found != 1) {
    lua_newtable(L);
    lua_replace(L, base);
  }
}

/* Joins into the handle at `to` what the one at `from` carries. */
static void join_from(lua_State *L, int to, int from) {
  if (push_graph(L, from)) {
    fll_join_graph(L, to, -1);
    lua_pop(L, 1);
  }
  if (push_parent(L, from)) {
    if (!lua_rawequal(L, -1, to) && push_graph(L, lua_gettop(L))) {
      fll_join_graph(L, to, -1);
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
  }
}

void fll_inherit_from(lua_State *L, fl_lua *st, int result, int from) {
  (void)st;
  result = lua_absindex(L, result);
  from = lua_absindex(L, from);
  fll_tensor *r = fll_test(L, result), *f = fll_test(L, from);
  if (!r || !f || r == f || !(f->flags & (FLL_H_GRAPH | FLL_H_PARENT)) ||
      !fl_tensor_requires_grad(r->t) || fl_tensor_is_leaf(r->t))
    return;
  luaL_checkstack(L, 16, NULL);
  join_from(L, result, from);
  /* written through a view: the base's graph has it too */
  if (push_parent(L, result)) {
    join_from(L, lua_gettop(L), from);
    lua_pop(L, 1);
  }
}

/* From the argument at i: a tensor, a list of them, or options that have such.
 */
static void inherit_argument(lua_State *L, fl_lua *st, int result, int i,
                             int depth) {
  if (fll_test(L, i)) {
    fll_inherit_from(L, st, result, i);
  } else if (lua_istable(L, i) && depth > 0) {
    luaL_checkstack(L, 4, NULL);
    lua_pushnil(L);
    while (lua_next(L, i)) {
      inherit_argument(L, st, result, lua_gettop(L), depth - 1);
      lua_pop(L, 1);
    }
  }
}

void fll_inherit(lua_State *L, fl_lua *st, int result, int n, int top) {
  for (int r = result; r < result + n; r++)
    for (int i = 1; i <= top; i++)
      inherit_argument(L, st, r, i, 2);
}

/* Pops a value, puts it into the table at `table` under a new key. */
int64_t fll_hold(lua_State *L, fl_lua *st, int table) {
  int64_t key = ++st->next_key;
  table = lua_absindex(L, table);
  lua_rawseti(L, table, key);
  fll_getkey(L, FLL_FUNCTIONS);
  lua_pushvalue(L, table);
  lua_rawseti(L, -2, key);
  lua_pop(L, 1);
  return key;
}

bool fll_function(lua_State *L, int64_t key) {
  fll_getkey(L, FLL_FUNCTIONS);
  if (lua_rawgeti(L, -1, key) == LUA_TTABLE) {
    lua_remove(L, -2);
    if (lua_rawgeti(L, -1, key) != LUA_TNIL)
      return true;
  }
  lua_pop(L, 2);
  return false;
}

/* Closes what the record at the top kept for itself, a checkpoint's arguments.
 */
static void close_kept(lua_State *L, fl_lua *st) {
  if (!lua_istable(L, -1))
    return;
  bool list = lua_rawgeti(L, -1, 1) == LUA_TTABLE;
  for (int k = list ? (int)lua_rawlen(L, -1) : 0; k > 0; k--) {
    lua_rawgeti(L, -1, k);
    fll_tensor *h = fll_test(L, -1);
    if (h && h->fate & FLL_ALIAS)
      fll_close(st, h, 0);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
}

/* The node of a key is gone. May come in the middle of a collection: nothing
 * here allocates (assigning nil to a key that exists does not). */
void fll_forget(void *context, int64_t key) {
  fl_lua *st = context;
  lua_State *L = st->L;
  if (!L || !st->rt || !lua_checkstack(L, 6))
    return;
  fll_getkey(L, FLL_FUNCTIONS);
  if (lua_rawgeti(L, -1, key) == LUA_TTABLE) {
    if (lua_rawgeti(L, -1, key) != LUA_TNIL) {
      close_kept(L, st);
      lua_pushnil(L);
      lua_rawseti(L, -3, key);
    }
    lua_pop(L, 1);
    lua_pushnil(L);
    lua_rawseti(L, -3, key);
  }
  lua_pop(L, 2);
}
