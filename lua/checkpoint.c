/* Checkpoints: of f's arguments, f runs again in backward, with the same random
 * numbers and autocast mode, instead of keeping what it has computed. What f
 * makes is closed at once, or a pass would hold more than without. Launches of
 * the second run wait until it has ended: those that only its results need,
 * such as f's last product, never run, since backward needs no results. */
#include "scope.h"

/* Marks what f, ctx's, may have stored: in what it captured, in its arguments
 * and in global variables. */
static void reach_stored(lua_State *L, fl_lua *st, int ctx, int keep) {
  int top = lua_gettop(L);
  lua_getfield(L, ctx, "f");
  fll_reach(L, st, top + 1, keep, FLL_REACH);
  lua_getfield(L, ctx, "inputs");
  fll_reach(L, st, top + 2, keep, FLL_REACH);
  lua_rawgeti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
  lua_pushnil(L);
  while (st->to_visit >= 0 && lua_next(L, top + 3)) {
    fll_reach(L, st, top + 5, keep, FLL_REACH);
    lua_pop(L, 1);
  }
  lua_settop(L, top);
}

static size_t live_bytes(fl_lua *st) {
  size_t live;
  fl_handles_bytes(st->rt, &live);
  return live + fl_deferred_bytes(st->rt);
}

/* Ends the scope of a run of f: closes what f made, except what it has stored
 * and what the n values at first, ... refer to. Those of the n that f has not
 * stored are FLL_SPARE from now on. The collector closes what f made if there
 * is too much to look through, or if that is little: `before` bytes were live.
 */
static void end_run(lua_State *L, fl_lua *st, int ctx, int first, int n,
                    size_t before) {
  enum { MOST = 50000, LITTLE = 128 << 10 };
  if (live_bytes(st) < before + LITTLE) {
    fll_scope_end(L, st, 0, true, 0);
    return;
  }
  int keep = fll_reach_begin(L, st, MOST);
  reach_stored(L, st, ctx, keep);
  bool all = st->to_visit < 0;
  st->to_visit = INT64_MAX;
  for (int i = first; i < first + n; i++) {
    fll_tensor *h = fll_test(L, i);
    if (h) {
      lua_pushvalue(L, i);
      if (lua_rawget(L, keep) == LUA_TNIL && !all)
        h->fate |= FLL_SPARE;
      lua_pop(L, 1);
    }
    fll_reach(L, st, i, keep, FLL_REACH);
  }
  fll_scope_end(L, st, keep, all, 0);
  lua_settop(L, keep - 1);
}

/* Pushes f's arguments as leaves of their own; ctx is at 1. Returns how many.
 */
static int push_again(lua_State *L, fl_lua *st) {
  lua_getfield(L, 1, "args");
  int args = lua_gettop(L), n = (int)lua_tointeger(L, -1);
  lua_getfield(L, 1, "inputs");
  luaL_checkstack(L, 2 * n + 20, "too many arguments");
  int first = lua_gettop(L) + 1;
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, args + 1, i);
    fll_tensor *h = fll_test(L, -1);
    if (!h)
      continue;
    bool requires = fl_tensor_requires_grad(h->t);
    fll_tensor *y = fll_new(L, st, lua_upvalueindex(2));
    fl_tensor *t;
    h = fll_test(L, -2);
    if (!h)
      fll_error(L, "an argument of checkpoint was closed");
    fll_check(L, st, fl_tensor_detach(h->t, &t));
    fll_fill(y, t);
    lua_remove(L, -2);
    if (requires)
      fll_check(L, st, fl_tensor_require_grad(t, true));
  }
  return first;
}

/* Runs f again on the n arguments at first, on top of the stack, with the
 * random numbers and the autocast mode of the forward pass. */
static int call_again(lua_State *L, fl_lua *st, int first, int n) {
  fl_generator *g = fl_runtime_generator(st->rt), now = *g;
  lua_getfield(L, 1, "seed");
  lua_getfield(L, 1, "offset");
  *g = (fl_generator){(uint64_t)lua_tointeger(L, -2),
                      (uint64_t)lua_tointeger(L, -1)};
  lua_getfield(L, 1, "autocast");
  fl_dtype low = (fl_dtype)lua_tointeger(L, -1);
  lua_pop(L, 3);
  lua_getfield(L, 1, "f");
  for (int i = 0; i < n; i++)
    lua_pushvalue(L, first + i);
  fll_modes modes = {.grad = true, .autocast = low};
  int s = fll_with_modes(L, st, FLL_GRAD_MODE | FLL_AUTOCAST_MODE, &modes, n);
  if (st->rt)
    *g = now;
  return s;
}

/* The roots of a backward pass from the results at first to last, with their
 * gradients at 2, 3, ...; how many. A result that f has not stored needs its
 * history only. */
static int take_roots(lua_State *L, int first, int last, int n_dy,
                      fl_tensor **root, fl_tensor **seed, fl_status *status) {
  int roots = 0;
  *status = FL_OK;
  for (int i = first, k = 0; i <= last && *status == FL_OK; i++) {
    fll_tensor *y = fll_test(L, i);
    if (!y)
      continue;
    fll_tensor *dy = k < n_dy ? fll_test(L, 2 + k) : NULL;
    k++;
    if (!dy || !fl_tensor_requires_grad(y->t))
      continue;
    root[roots] = NULL;
    if (y->fate & FLL_SPARE)
      *status = fl_tensor_root(y->t, &root[roots]);
    if (*status == FL_OK && !root[roots])
      root[roots] = fl_tensor_retain(y->t);
    seed[roots] = dy->t;
    roots += *status == FL_OK;
  }
  return roots;
}

/* Closes the results at first to last that nothing will read, runs the launches
 * that wait for f's end, and then backward with the gradients at 2, 3, ... */
static fl_status pass_again(lua_State *L, fl_lua *st, int first, int n_dy) {
  int last = lua_gettop(L);
  size_t room = (size_t)(last - first + 2);
  fl_tensor **root = fll_scratch(L, sizeof *root * 2 * room);
  fl_tensor **seed = root + room;
  fl_status status;
  int roots = take_roots(L, first, last, n_dy, root, seed, &status);
  for (int i = first; i <= last; i++) {
    fll_tensor *y = fll_test(L, i);
    if (y && y->fate & FLL_SPARE && !fl_tensor_is_leaf(y->t))
      fll_close(st, y, 0);
  }
  fl_status ran = fl_defer_end(st->rt);
  status = status ? status : ran;
  if (roots && status == FL_OK)
    status = fl_backward(st->rt, roots, root, seed, 0);
  st->L = L;
  while (roots)
    fl_tensor_release(root[--roots]);
  return status;
}

/* The backward function: (ctx, dy1, dy2, ...) -> gradients of the arguments.
 * From the pass on the tape alone holds what f made, and releases it on its
 * way. */
int fll_recompute(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int n_dy = lua_gettop(L) - 1;
  if (fl_grad_enabled(st->rt))
    fll_error(L, "checkpoint: gradients of gradients do not go through "
                 "it; call the function itself");
  size_t before = live_bytes(st);
  fll_scope_begin(L, st); /* fll_protect ends it after an error */
  int first = push_again(L, st), n = lua_gettop(L) - first + 1;
  fll_check(L, st, fl_defer_begin(st->rt));
  int s = call_again(L, st, first, n);
  if (!st->rt)
    fll_error(L, "the runtime is closed");
  if (s != LUA_OK) {
    fl_defer_end(st->rt);
    return lua_error(L);
  }
  int last = lua_gettop(L);
  end_run(L, st, 1, first, last - first + 1, before);
  fll_check(L, st, pass_again(L, st, first + n, n_dy));
  luaL_checkstack(L, n + 10, NULL);
  for (int i = 0; i < n; i++) {
    fll_tensor *x = fll_test(L, first + i);
    if (fll_is_closed(L, first + i))
      fll_error(L, "checkpoint: the function closed its argument %d", i + 1);
    if (x && fl_tensor_grad(x->t))
      fll_push(L, st, fl_tensor_grad(x->t));
    else
      lua_pushnil(L);
  }
  for (int i = first; i <= last; i++) {
    fll_tensor *h = fll_test(L, i);
    if (h && h->fate & FLL_SPARE)
      fll_close(st, h, 0);
  }
  for (int i = 2; i < 2 + n_dy; i++)
    if (fll_test(L, i))
      fll_close(st, fll_test(L, i), 0);
  return n;
}

/* Replaces the argument at the top by what a checkpoint keeps of it. Of a
 * result it is an alias without history, whose handle fll_forget closes: the
 * script's own one may wait for the collector long after the pass. */
static void keep_argument(lua_State *L, fl_lua *st) {
  fll_tensor *h = fll_test(L, -1);
  fl_tensor *t;
  if (!h || fl_tensor_is_leaf(h->t))
    return;
  fll_tensor *y = fll_new(L, st, FLL_MT);
  h = fll_test(L, -2);
  if (!h)
    fll_error(L, "an argument of checkpoint was closed");
  fll_check(L, st, fl_tensor_detach(h->t, &t));
  fll_fill(y, t);
  y->fate |= FLL_ALIAS | FLL_KEPT;
  fll_check(L, st, fl_tensor_require_grad(t, true));
  lua_remove(L, -2);
}

/* Fills ctx, at the top, for f at 1 and its n arguments after it. Sets the
 * list of what is kept of these as element 1 of the record. */
static void fill_context(lua_State *L, fl_lua *st, int record, int n) {
  fl_generator g = *fl_runtime_generator(st->rt);
  lua_pushinteger(L, (lua_Integer)g.seed);
  lua_setfield(L, -2, "seed");
  lua_pushinteger(L, (lua_Integer)g.offset);
  lua_setfield(L, -2, "offset");
  lua_pushinteger(L, fl_autocast_now(st->rt));
  lua_setfield(L, -2, "autocast");
  lua_pushvalue(L, 1);
  lua_setfield(L, -2, "f");
  lua_pushinteger(L, n);
  lua_setfield(L, -2, "args");
  lua_createtable(L, n, 0);
  lua_createtable(L, n, 0);
  for (int i = 1; i <= n; i++) {
    fll_tensor *h = fll_test(L, i + 1);
    lua_pushinteger(L, h ? (lua_Integer)fl_tensor_version(h->t) : -1);
    lua_rawseti(L, -2, i);
    lua_pushvalue(L, i + 1);
    keep_argument(L, st);
    lua_rawseti(L, -3, i);
  }
  lua_setfield(L, -3, "_versions");
  lua_pushvalue(L, -1);
  lua_setfield(L, -3, "saved");
  lua_pushvalue(L, -1);
  lua_rawseti(L, record, 1);
  lua_setfield(L, -2, "inputs");
}

/* checkpoint(f, ...): f(...), of which only the arguments are kept. */
static int checkpoint(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int n = lua_gettop(L) - 1;
  if (!lua_isfunction(L, 1) && luaL_getmetafield(L, 1, "__call") == LUA_TNIL)
    fll_error(L, "checkpoint: expected a function or a module, got %s",
              fll_typename(L, 1));
  lua_settop(L, n + 1);
  luaL_checkstack(L, 2 * n + 30, "too many arguments");
  if (!fl_grad_enabled(st->rt)) {
    lua_call(L, n, LUA_MULTRET);
    return lua_gettop(L);
  }
  lua_createtable(L, 1, 4); /* the record */
  int record = lua_gettop(L);
  lua_createtable(L, 0, 6);
  fill_context(L, st, record, n);
  lua_setfield(L, record, "ctx");
  fll_pushfunction(L, fll_recompute);
  lua_setfield(L, record, "backward");
  fll_tensor *dummy = fll_new(L, st, FLL_MT);
  fl_tensor *t;
  int64_t none[1] = {0};
  fll_check(L, st, fl_tensor_zeros(st->rt, FL_F32, 0, none, 0, &t));
  fll_fill(dummy, t);
  fll_check(L, st, fl_tensor_require_grad(t, true));
  for (int i = 1; i <= n + 1; i++)
    lua_pushvalue(L, i);
  size_t before = live_bytes(st);
  fll_scope_begin(L, st);
  int s = fll_with_modes(L, st, FLL_GRAD_MODE, &(fll_modes){.grad = false}, n);
  if (!st->rt)
    fll_error(L, "the runtime is closed");
  if (s != LUA_OK) {
    fll_scope_drop(L, st, st->scopes - 1);
    return lua_error(L);
  }
  int first = record + 2, results = lua_gettop(L) - first + 1;
  lua_getfield(L, record, "ctx");
  end_run(L, st, lua_gettop(L), first, results, before);
  lua_pop(L, 1);
  if (fll_fresh_results(L, st, 2, n, first, results) > 0)
    fll_put_on_tape(L, st, "checkpoint", record, 2, n, first, results,
                    record + 1);
  return results;
}

void fll_checkpoint_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"checkpoint", checkpoint},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
