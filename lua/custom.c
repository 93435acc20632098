/* Lua functions inside the backward pass: what the runtime calls back (hooks,
 * backward functions) and operators with a gradient of their own; checkpoints
 * are in checkpoint.c. A Lua error never crosses the runtime: it is stored in
 * the registry and becomes FL_ELUA. */
#include "scope.h"

/* --- calling Lua from the pass --- */

typedef struct request {
  fl_lua *st;
  int64_t key;
  int n_in, n_out;
  fl_tensor *const *in; /* borrowed, may be NULL */
  fl_tensor **out;      /* new references */
} request;

fl_status fll_protect(fl_lua *st, lua_CFunction f, void *data) {
  lua_State *L = st->L;
  if (!L || !lua_checkstack(L, 20))
    return fli_fail(FL_ENOMEM, "out of memory: Lua's stack");
  fll_frame frame;
  lua_pushcfunction(L, f);
  lua_pushlightuserdata(L, data);
  int scopes = st->scopes;
  fll_callback_begin(L, st, &frame);
  int s = lua_pcall(L, 1, 0, 0);
  fll_callback_end(L, st, &frame);
  if (st->rt && st->scopes > scopes)
    fll_scope_drop(L, st, scopes);
  if (s == LUA_OK)
    return st->closing ? fli_fail(FL_ECLOSED, "the runtime was closed by a "
                                              "function that it had called")
                       : FL_OK;
  const char *text = lua_tostring(L, -1);
  fl_status status = fli_fail(FL_ELUA, "%s", text ? text : "error in Lua code");
  fll_getkey(L, FLL_ERROR); /* a table with room: nothing is allocated */
  lua_insert(L, -2);
  lua_rawseti(L, -2, 1);
  lua_pop(L, 1);
  st->error = true;
  return status;
}

static void push_or_nil(lua_State *L, fl_lua *st, fl_tensor *t) {
  if (t)
    fll_push(L, st, t);
  else
    lua_pushnil(L);
}

/* A gradient that was computed by Lua functions with gradients of their own, in
 * a pass that is recorded: its graph's functions go to the results of the pass.
 */
static void keep_graph(lua_State *L, fl_lua *st, int i) {
  fll_tensor *h = fll_test(L, i);
  if (!h->flags || !fl_grad_enabled(st->rt) ||
      fll_getkey(L, FLL_PASS) != LUA_TTABLE)
    return;
  lua_pushvalue(L, i);
  lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  lua_pop(L, 1);
}

static int run_hook(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  if (!fll_function(L, r->key))
    fll_error(L, "a hook is gone: the tensor it was put on, or a result "
                 "of it, must be kept until backward");
  push_or_nil(L, r->st, r->in[0]);
  lua_call(L, 1, 1);
  fll_tensor *h = fll_test(L, -1);
  if (h) {
    r->out[0] = fl_tensor_retain(h->t);
    keep_graph(L, r->st, lua_gettop(L));
  } else if (!lua_isnil(L, -1))
    fll_error(L, "a hook returns a gradient or nothing, not %s",
              fll_typename(L, -1));
  return 0;
}

static fl_status hook(void *context, int64_t key, fl_tensor *of,
                      fl_tensor **grad) {
  (void)of;
  fl_tensor *given = *grad, *result = NULL;
  request r = {context, key, 1, 1, &given, &result};
  fl_status s = fll_protect(r.st, run_hook, &r);
  if (s == FL_OK && result && result != given)
    *grad = result;
  else
    fl_tensor_release(result);
  return s;
}

/* Where the function of a key is written. Nothing here raises: it comes from
 * inside the runtime. */
static fl_site written_at(void *context, int64_t key) {
  fl_lua *st = context;
  lua_State *L = st->L;
  lua_Debug ar;
  fl_site site = 0;
  if (!L || !lua_checkstack(L, 6) || !fll_function(L, key))
    return 0;
  if (lua_istable(L, -1)) { /* a record */
    lua_pushliteral(L, "backward");
    lua_rawget(L, -2);
    lua_remove(L, -2);
  }
  if (lua_isfunction(L, -1) && !lua_iscfunction(L, -1)) {
    lua_getinfo(L, ">S", &ar);
    lua_pushnil(L);
    site = fl_site_intern(st->rt, ar.short_src, ar.linedefined);
  }
  lua_pop(L, 2);
  return site;
}

typedef struct notice {
  fl_lua *st;
  fl_tensor *leaf; /* NULL: the pass is over */
} notice;

static int run_ready(lua_State *L) {
  notice *r = lua_touserdata(L, 1);
  fll_getkey(L, FLL_READY);
  push_or_nil(L, r->st, r->leaf);
  lua_call(L, 1, 0);
  return 0;
}

static fl_status ready(void *context, fl_tensor *leaf) {
  notice r = {context, leaf};
  return fll_protect(r.st, run_ready, &r);
}

/* on_ready(f): f(leaf) when a leaf's gradient is complete, f() at the end of a
 * backward pass; nil ends it. */
static int on_ready(lua_State *L) {
  fl_lua *st = fll_enter(L);
  bool on = !lua_isnoneornil(L, 1);
  lua_settop(L, 1);
  fll_setkey(L, FLL_READY);
  fl_tape_on_ready(st->rt, on ? ready : NULL, st);
  return 0;
}

typedef struct lent {
  fl_lua *st;
  int64_t key;
  fl_dtype dtype;
  fl_tensor **flat;
} lent;

static int run_lent(lua_State *L) {
  lent *r = lua_touserdata(L, 1);
  if (!fll_function(L, r->key))
    fll_error(L, "who lent a tensor is gone");
  lua_pushstring(L, fl_dtype_name(r->dtype));
  lua_call(L, 1, 1);
  fll_tensor *h = fll_test(L, -1);
  if (!h)
    fll_error(L, "what was lent must come back as a tensor, not %s",
              fll_typename(L, -1));
  *r->flat = fl_tensor_retain(h->t);
  return 0;
}

static fl_status give_lent(void *context, int64_t key, fl_dtype d,
                           fl_tensor **flat) {
  lent r = {context, key, d, flat};
  return fll_protect(r.st, run_lent, &r);
}

/* lend(flat, f): what the tape would keep of flat's memory, f(dtype) gives once
 * more in backward. f is the caller's to keep. */
static int lend(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *flat = fll_checktensor(L, 1, "lend", "flat");
  luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  if (fll_getkey(L, FLL_LENT) != LUA_TTABLE) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_createtable(L, 0, 1); /* weak: they may reach tensors of the graph */
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    fll_setkey(L, FLL_LENT);
  }
  lua_insert(L, 2);
  int64_t key = fll_hold(L, st, 2);
  fl_status s = fl_tensor_lend(flat, key);
  if (s != FL_OK) {
    fll_forget(st, key);
    fll_raise(L, st, s);
  }
  return 0;
}

/* stand_in(t, leaf): leaf gets the gradients of t. */
static int stand_in(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st,
            fl_tensor_stand_in(fll_checktensor(L, 1, "stand_in", "t"),
                               fll_checktensor(L, 2, "stand_in", "leaf")));
  return 0;
}

/* held(t): whether others than Lua hold it, the tape, say. */
static int held(lua_State *L) {
  fll_enter(L);
  fl_tensor *t = fll_checktensor(L, 1, "held", "t");
  lua_pushboolean(L, fl_tensor_held(t));
  return 1;
}

/* What was saved must be as it was: table at `saved`, versions in `ctx`. */
static void check_versions(lua_State *L, int record) {
  lua_getfield(L, record, "ctx");
  int ctx = lua_gettop(L);
  if (lua_getfield(L, ctx, "saved") == LUA_TTABLE &&
      lua_getfield(L, ctx, "_versions") == LUA_TTABLE) {
    int n = (int)lua_rawlen(L, ctx + 2);
    for (int k = 1; k <= n; k++) {
      lua_rawgeti(L, ctx + 1, k);
      lua_rawgeti(L, ctx + 2, k);
      fll_tensor *h = fll_test(L, -2);
      if (h && lua_tointeger(L, -1) != fl_tensor_version(h->t))
        fll_error(L, "saved tensor %d was changed in place since forward", k);
      lua_pop(L, 2);
    }
  }
  lua_settop(L, ctx - 1);
}

static void take_gradient(lua_State *L, request *r, int k, int at) {
  fll_tensor *h = fll_test(L, at);
  if (h) {
    r->out[k] = fl_tensor_retain(h->t);
    keep_graph(L, r->st, at);
  } else if (lua_toboolean(L, at))
    fll_error(L, "gradient %d is not a tensor, but %s", k + 1,
              fll_typename(L, at));
}

/* A tensor's gradient that is left out, or one too many, is a slip. */
static void check_count(lua_State *L, int slots, int got, int args) {
  int last = 0;
  for (int k = 1; lua_rawgeti(L, slots, k) == LUA_TNUMBER; k++) {
    last = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  if (got > args || got < last)
    fll_error(L,
              "a backward function gave %d gradients for %d arguments: it "
              "returns one for each, nil where there is none",
              got, args);
}

/* Of a checkpoint, whose handles no script has seen: so many bytes must not
 * wait for the collector. */
static void close_handles(lua_State *L, fl_lua *st, int first) {
  for (int i = lua_gettop(L); i >= first; i--) {
    fll_tensor *h = fll_test(L, i);
    if (h)
      fll_close(st, h, 0);
  }
}

/* The function gives a gradient for each argument of forward, nil where there
 * is none; `slots` says which arguments were tensors. */
static int run_backward(lua_State *L) {
  request *r = lua_touserdata(L, 1);
  if (!fll_function(L, r->key))
    fll_error(L, "a backward function is gone: a result must be kept "
                 "until backward has run");
  int record = lua_gettop(L);
  check_versions(L, record);
  lua_getfield(L, record, "args");
  int args = (int)lua_tointeger(L, -1);
  lua_getfield(L, record, "slots");
  int slots = lua_gettop(L);
  luaL_checkstack(L, r->n_in + args + 10, "too many gradients");
  lua_getfield(L, record, "backward");
  bool ours = lua_tocfunction(L, -1) == fll_recompute;
  lua_getfield(L, record, "ctx");
  for (int k = 0; k < r->n_in; k++)
    push_or_nil(L, r->st, r->in[k]);
  lua_call(L, r->n_in + 1, LUA_MULTRET);
  check_count(L, slots, lua_gettop(L) - slots, args);
  luaL_checkstack(L, args + 4, NULL);
  for (int k = 0; k < r->n_out; k++) {
    if (lua_rawgeti(L, slots, k + 1) == LUA_TNUMBER)
      take_gradient(L, r, k, slots + (int)lua_tointeger(L, -1));
    lua_pop(L, 1);
  }
  if (ours)
    close_handles(L, r->st, slots + 1);
  return 0;
}

static fl_status backward(void *context, int64_t key, int n_dy,
                          fl_tensor *const *dy, int n_dx, fl_tensor **dx) {
  request r = {context, key, n_dy, n_dx, dy, dx};
  for (int k = 0; k < n_dx; k++)
    dx[k] = NULL;
  return fll_protect(r.st, run_backward, &r);
}

/* --- functions with a gradient of their own --- */

/* ctx:save(x, y, ...) */
static int ctx_save(lua_State *L) {
  fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  int n = lua_gettop(L) - 1;
  lua_createtable(L, n, 0);
  lua_createtable(L, n, 0);
  for (int k = 1; k <= n; k++) {
    lua_pushvalue(L, k + 1);
    lua_rawseti(L, n + 2, k);
    fll_tensor *h = fll_test(L, k + 1);
    lua_pushinteger(L, h ? (lua_Integer)fl_tensor_version(h->t) : -1);
    lua_rawseti(L, n + 3, k);
  }
  lua_setfield(L, 1, "_versions");
  lua_setfield(L, 1, "saved");
  return 0;
}

static bool wants_grad(lua_State *L, fl_lua *st, int first, int n) {
  if (!fl_grad_enabled(st->rt))
    return false;
  for (int i = first; i < first + n; i++) {
    fll_tensor *h = fll_test(L, i);
    if (h && fl_tensor_requires_grad(h->t))
      return true;
  }
  return false;
}

/* Calls what lies on the stack without recording; raises what it raises. */
static void call_bare(lua_State *L, fl_lua *st, int n) {
  int s = fll_with_modes(L, st, FLL_GRAD_MODE, &(fll_modes){.grad = false}, n);
  if (!st->rt)
    fll_error(L, "the runtime is closed");
  if (s != LUA_OK)
    lua_error(L);
}

/* Results become outputs of a node, so each needs a header of its own: one that
 * is an argument, shares memory with an argument or requires a gradient is
 * replaced by a new header over the same storage. Returns the number of results
 * that are tensors. */
int fll_fresh_results(lua_State *L, fl_lua *st, int args, int n, int first,
                      int results) {
  int tensors = 0;
  for (int i = first; i < first + results; i++) {
    fll_tensor *h = fll_test(L, i);
    if (!h)
      continue;
    tensors++;
    bool other = fl_tensor_requires_grad(h->t);
    for (int k = args; k < args + n && !other; k++) {
      fll_tensor *x = fll_test(L, k);
      other = x && fl_tensor_shares(x->t, h->t);
    }
    if (!other)
      continue;
    fll_tensor *y = fll_new(L, st, FLL_MT);
    fl_tensor *t;
    h = fll_test(L, i);
    if (!h)
      fll_error(L, "tensor is closed");
    fll_check(L, st, fl_tensor_detach(h->t, &t));
    fll_fill(y, t);
    lua_replace(L, i);
  }
  return tensors;
}

typedef struct tensors {
  int n_in, n_out;
  fl_tensor **in, **out;
} tensors;

/* Collects tensors of the arguments and results. No allocation after it. */
static void collect(lua_State *L, tensors *t, int args, int n, int first,
                    int results) {
  t->n_in = t->n_out = 0;
  for (int i = args; i < args + n; i++)
    if (fll_test(L, i))
      t->in[t->n_in++] = fll_test(L, i)->t;
  for (int i = first; i < first + results; i++)
    if (fll_test(L, i))
      t->out[t->n_out++] = fll_test(L, i)->t;
}

/* Puts the record at index `record` on the tape between the arguments at
 * [args, args + n) and the results at [first, first + results). `dummy`: one
 * more input, a leaf, so that there is a gradient to ask for. */
void fll_put_on_tape(lua_State *L, fl_lua *st, const char *name, int record,
                     int args, int n, int first, int results, int dummy) {
  tensors t;
  int top = lua_gettop(L), j = 0;
  luaL_checkstack(L, 30, NULL);
  lua_createtable(L, n, 0);
  for (int i = args; i < args + n; i++)
    if (fll_test(L, i)) {
      lua_pushinteger(L, i - args + 1);
      lua_rawseti(L, -2, ++j);
    } else if (fll_is_closed(L, i)) {
      fll_error(L,
                "%s: the function closed its argument %d, which would get "
                "no gradient",
                name, i - args + 1);
    }
  lua_setfield(L, record, "slots");
  lua_pushinteger(L, n);
  lua_setfield(L, record, "args");
  t.in = fll_scratch(L, sizeof(fl_tensor *) * (size_t)(n + results + 1));
  t.out = t.in + n + 1;
  fll_common_graph(L, args, n);
  int graph = lua_gettop(L);
  lua_pushvalue(L, record);
  int64_t key = fll_hold(L, st, graph);
  collect(L, &t, args, n, first, results);
  if (dummy)
    t.in[t.n_in++] = fll_test(L, dummy)->t;
  fl_status s = fl_tape_custom(st->rt, name, key, fll_site_here(L, st), t.n_in,
                               t.in, t.n_out, t.out);
  if (s != FL_OK) {
    fll_forget(st, key);
    fll_raise(L, st, s);
  }
  for (int i = first; i < first + results; i++) {
    if (!fll_test(L, i))
      continue;
    fll_join_graph(L, i, graph);
    for (int k = args; k < args + n; k++)
      fll_inherit_from(L, st, i, k);
  }
  lua_settop(L, top);
}

/* The function itself; upvalue 3 is {name =, forward =, backward =}. */
static int call_custom(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int n = lua_gettop(L);
  luaL_checkstack(L, 2 * n + 20, "too many arguments");
  lua_createtable(L, 0, 3); /* the record of this call */
  lua_createtable(L, 0, 4); /* ctx */
  fll_pushfunction(L, ctx_save);
  lua_setfield(L, -2, "save");
  lua_createtable(L, n, 0);
  for (int i = 1; i <= n; i++) {
    fll_tensor *h = fll_test(L, i);
    lua_pushboolean(L, h && fl_tensor_requires_grad(h->t));
    lua_rawseti(L, -2, i);
  }
  lua_setfield(L, -2, "needs");
  lua_pushvalue(L, -1);
  lua_setfield(L, n + 1, "ctx");
  lua_getfield(L, FLL_OWN, "backward");
  lua_setfield(L, n + 1, "backward");
  lua_getfield(L, FLL_OWN, "forward");
  lua_insert(L, n + 2); /* record, forward, ctx, arguments */
  for (int i = 1; i <= n; i++)
    lua_pushvalue(L, i);
  bool wanted = wants_grad(L, st, 1, n);
  call_bare(L, st, n + 1);
  int first = n + 2, results = lua_gettop(L) - first + 1;
  if (wanted && fll_fresh_results(L, st, 1, n, first, results) > 0) {
    lua_getfield(L, FLL_OWN, "name");
    lua_insert(L, first); /* a name that lives as long as needed */
    fll_put_on_tape(L, st, lua_tostring(L, first), n + 1, 1, n, first + 1,
                    results, 0);
  }
  return results;
}

static int make_custom(lua_State *L) {
  luaL_checkstack(L, 6, NULL);
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, call_custom, 3);
  return 1;
}

/* core.func{name = , forward = , backward = } */
static int func(lua_State *L) {
  static const char *const options[] = {"name", "forward", "backward", NULL};
  fll_enter(L);
  if (!lua_istable(L, 1))
    fll_error(L, "func: expected {forward = f, backward = f}, got %s",
              fll_typename(L, 1));
  lua_settop(L, 1);
  fll_checkoptions(L, 1, "func", options);
  for (int k = 1; k < 3; k++) {
    if (lua_getfield(L, 1, options[k]) != LUA_TFUNCTION)
      fll_error(L, "func: %s: expected a function, got %s", options[k],
                fll_typename(L, -1));
    lua_pop(L, 1);
  }
  if (lua_getfield(L, 1, "name") != LUA_TSTRING) {
    lua_pushliteral(L, "custom");
    lua_setfield(L, 1, "name");
  }
  lua_settop(L, 1);
  return make_custom(L);
}

/* core.custom(name, forward, backward) */
static int custom(lua_State *L) {
  fll_enter(L);
  luaL_checkstring(L, 1);
  luaL_checktype(L, 2, LUA_TFUNCTION);
  luaL_checktype(L, 3, LUA_TFUNCTION);
  lua_settop(L, 3);
  lua_createtable(L, 0, 3);
  lua_insert(L, 1);
  lua_setfield(L, 1, "backward");
  lua_setfield(L, 1, "forward");
  lua_setfield(L, 1, "name");
  return make_custom(L);
}

void fll_custom_open(lua_State *L, fl_lua *st) {
  fl_tape_host host = {backward, hook, fll_forget, give_lent, st, written_at};
  (void)L;
  fl_tape_set_host(st->rt, &host);
}

void fll_custom_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"func", func}, {"custom", custom},     {"on_ready", on_ready},
      {"lend", lend}, {"stand_in", stand_in}, {"held", held},
      {NULL, NULL}};
  fll_register(L, functions);
}
