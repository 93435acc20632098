/* Compiled functions: f runs as ever, but its launches wait until it ends, or
 * until values are read. The collector's steps are put off meanwhile; one at
 * the end closes what f has dropped, so that the runtime knows which tensors
 * are still held. */
#include "fll.h"

typedef struct compiled { /* its value: what the script compiled */
  uint64_t magic;
  fl_compiled *c;
} compiled;

/* A run of a compiled function that has not ended; it keeps the function. One
 * of the main thread, which always ends, is used again by the next run; that of
 * a coroutine may have to be ended by the collector. */
typedef struct window {
  uint64_t magic;
  fl_compiled *c; /* NULL: it has ended */
  bool rests;     /* the collector, because of this run */
} window;

static compiled *compiled_of(lua_State *L, int i) {
  return fll_checktype(L, i, FLL_COMPILED, sizeof(compiled));
}

static int compiled_gc(lua_State *L) {
  compiled *k = compiled_of(L, 1);
  fl_compiled_free(k->c);
  k->c = NULL;
  return 0;
}

static fl_status window_end(lua_State *L, fl_lua *st, window *w) {
  fl_compiled *c = w->c;
  bool rests = w->rests;
  w->c = NULL;
  w->rests = false; /* it is closed again when it is collected */
  if (rests)
    fll_collector_resumes(L, st, fl_compiled_position(c) != 0);
  return c && st->rt ? fl_compiled_end(c) : FL_OK;
}

/* After an error in f, or of a coroutine that nothing resumes: its launches
 * run, since what they write may be looked at. */
static int window_close(lua_State *L) {
  window *w = fll_checktype(L, 1, FLL_WINDOW, sizeof *w);
  window_end(L, fll_peek(L), w);
  return 0;
}

/* Pushes "file:line: " of the script's function that the compiled one at i was
 * made of, or of the call. */
static void push_line(lua_State *L, fl_lua *st, int i) {
  lua_Debug ar = {.linedefined = 0};
  if (lua_getiuservalue(L, i, 1) == LUA_TFUNCTION)
    lua_getinfo(L, ">S", &ar);
  else
    lua_pop(L, 1);
  if (ar.linedefined > 0 && strcmp(ar.short_src, "<flare>") != 0)
    lua_pushfstring(L, "%s:%d", ar.short_src, ar.linedefined);
  else
    lua_pushstring(L, fl_site_text(st->rt, fll_site_here(L, st)));
}

/* The function of the guard at `base` runs without compilation from now on: a
 * warning says so, if its calls are the reason. */
static void warn_varies(lua_State *L, fl_lua *st, int base) {
  fl_compiled_stats s;
  lua_getiuservalue(L, base, 1);
  fl_compiled_get(compiled_of(L, -1)->c, &s);
  if (s.varies) {
    push_line(L, st, lua_gettop(L));
    lua_pushfstring(
        L,
        "flare: %s: compile: calls of this function keep coming with new "
        "shapes or operators, so from now on it runs without compilation; pad "
        "its tensors to a few sizes, or compile a part whose shapes recur\n",
        lua_tostring(L, -1));
    lua_writestringerror("%s", lua_tostring(L, -1));
    lua_pop(L, 2);
  }
  lua_pop(L, 1);
}

/* f has returned: everything above the guard at `base` is its result. */
static int finish(lua_State *L, int status, lua_KContext base) {
  fl_lua *st = fll_enter(L);
  window *w = lua_touserdata(L, (int)base);
  fl_compiled *c = w->c;
  (void)status;
  st->L = L;
  bool waits = fl_compiled_waits(c);
  fl_status s = window_end(L, st, w);
  if (waits && !fl_compiled_waits(c))
    warn_varies(L, st, (int)base);
  fll_check(L, st, s);
  return lua_gettop(L) - (int)base;
}

static int finish_plain(lua_State *L, int status, lua_KContext context) {
  (void)status, (void)context;
  return lua_gettop(L);
}

/* Pushes a window that keeps the compiled function at i. */
static window *window_new(lua_State *L, int i) {
  window *w = fll_newobject(L, FLL_WINDOW, sizeof *w, 1);
  lua_pushvalue(L, i);
  lua_setiuservalue(L, -2, 1);
  return w;
}

static window *window_for(lua_State *L, const fl_lua *st) {
  window *w = lua_touserdata(L, lua_upvalueindex(6));
  if (w->c || L != st->main) /* it runs within itself, or in a coroutine */
    return window_new(L, lua_upvalueindex(4));
  lua_pushvalue(L, lua_upvalueindex(6));
  return w;
}

/* The compiled function itself: upvalues 4 to 6 are the userdata, f and a
 * window. */
static int run(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int n = lua_gettop(L);
  compiled *k = lua_touserdata(L, lua_upvalueindex(4));
  if (!fl_compiled_waits(k->c)) {
    lua_pushvalue(L, lua_upvalueindex(5));
    lua_insert(L, 1);
    lua_callk(L, n, LUA_MULTRET, 0, finish_plain);
    return lua_gettop(L);
  }
  luaL_checkstack(L, n + 8, "too many arguments");
  window *w = window_for(L, st);
  lua_insert(L, 1);
  lua_toclose(L, 1);
  fll_check(L, st, fl_compiled_begin(k->c));
  w->c = k->c;
  w->rests = fl_compiled_waits(k->c) && fll_collector_rests(L, st);
  lua_pushvalue(L, lua_upvalueindex(5));
  lua_insert(L, 2);
  lua_callk(L, n, LUA_MULTRET, 1, finish);
  return finish(L, LUA_OK, 1);
}

/* compiled(f, exact, first, check, graphs, chunk, memory, wait, pure, of): the
 * compiled function, and the userdata that stats() takes. first: "again" for
 * what tests compute again; chunk: see fl_compiled_chunk; -1: never; of: what
 * the script compiled, if f is not that. */
static int new_compiled(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_Integer chunk = luaL_optinteger(L, 6, 0);
  lua_Integer memory = luaL_optinteger(L, 7, 0);
  unsigned wait = (lua_toboolean(L, 8) ? FL_COMPILED_WAIT : 0u) |
                  (lua_toboolean(L, 9) ? FL_COMPILED_PURE : 0u);
  lua_settop(L, 10);
  unsigned flags = wait | (lua_toboolean(L, 2) ? FL_COMPILED_EXACT : 0u) |
                   (lua_toboolean(L, 3) ? FL_COMPILED_FIRST : 0u) |
                   (lua_isstring(L, 3) ? FL_COMPILED_AGAIN : 0u) |
                   (lua_toboolean(L, 4) ? FL_COMPILED_CHECK : 0u) |
                   (lua_toboolean(L, 5) ? 0u : FL_COMPILED_NO_GRAPHS);
  lua_replace(L, 2);
  lua_settop(L, 2);
  compiled *k = fll_newobject(L, FLL_COMPILED, sizeof *k, 1);
  lua_pushvalue(L, lua_isnil(L, 2) ? 1 : 2);
  lua_setiuservalue(L, 3, 1);
  fll_check(L, st, fl_compiled_new(st->rt, flags, &k->c));
  fll_check(L, st,
            fl_compiled_chunk(k->c, chunk < 0 ? SIZE_MAX : (size_t)chunk));
  fll_check(L, st, fl_compiled_memory(k->c, (size_t)memory));
  fll_getkey(L, FLL_STATE);
  fll_getkey(L, FLL_TENSOR);
  lua_pushnil(L);
  lua_pushvalue(L, 3);
  lua_pushvalue(L, 1);
  window_new(L, 3);
  lua_pushcclosure(L, run, 6);
  lua_pushvalue(L, 3);
  return 2;
}

/* compiled_begin(object): the rest of the program belongs to the function. */
static int compiled_begin(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st, fl_compiled_begin(compiled_of(L, 1)->c));
  return 0;
}

static int compiled_stats(lua_State *L) {
  fl_compiled_stats s;
  fl_compiled_get(compiled_of(L, 1)->c, &s);
  lua_createtable(L, 0, 16);
  lua_pushinteger(L, (lua_Integer)s.windows);
  lua_setfield(L, -2, "windows");
  lua_pushinteger(L, (lua_Integer)s.planned);
  lua_setfield(L, -2, "planned");
  lua_pushinteger(L, (lua_Integer)s.replayed);
  lua_setfield(L, -2, "replayed");
  lua_pushinteger(L, (lua_Integer)s.unready);
  lua_setfield(L, -2, "unready");
  lua_pushinteger(L, (lua_Integer)s.traced);
  lua_setfield(L, -2, "traced");
  lua_pushstring(L, s.failure); /* nil, if there is none */
  lua_setfield(L, -2, "failure");
  lua_pushinteger(L, s.graphs);
  lua_setfield(L, -2, "graphs");
  lua_pushinteger(L, (lua_Integer)s.graph_bytes);
  lua_setfield(L, -2, "graph_bytes");
  lua_pushinteger(L, s.plans);
  lua_setfield(L, -2, "plans");
  lua_pushinteger(L, s.traces);
  lua_setfield(L, -2, "traces");
  lua_pushinteger(L, s.launches);
  lua_setfield(L, -2, "launches");
  lua_pushinteger(L, s.kernels);
  lua_setfield(L, -2, "kernels");
  lua_pushinteger(L, s.chunks);
  lua_setfield(L, -2, "chunks");
  lua_pushinteger(L, s.repeats);
  lua_setfield(L, -2, "repeats");
  lua_pushinteger(L, (lua_Integer)s.memory);
  lua_setfield(L, -2, "memory");
  lua_pushboolean(L, s.off);
  lua_setfield(L, -2, "off");
  if (s.without > 0) {
    lua_pushnumber(L, s.with);
    lua_setfield(L, -2, "with");
    lua_pushnumber(L, s.without);
    lua_setfield(L, -2, "without");
  }
  return 1;
}

/* --- pure functions --- */

#define PURE_MOST 64 /* arguments, results: compile/pure.lua has it, too */

/* The tensors of the table at i. */
static int tensors_at(lua_State *L, int i, fl_tensor **list) {
  int n = 0;
  luaL_checktype(L, i, LUA_TTABLE);
  for (; n < PURE_MOST && lua_rawgeti(L, i, n + 1) != LUA_TNIL; n++) {
    fll_tensor *h = fll_test(L, -1);
    list[n] = h ? h->t : NULL;
    if (!list[n])
      luaL_error(L, "a closed tensor");
    lua_pop(L, 1);
  }
  return n;
}

/* pure_note(object, arguments, results, lives, repeats): f has run. */
static int pure_note(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *in[PURE_MOST], *out[PURE_MOST];
  uint32_t lives[PURE_MOST];
  fl_compiled_call c = {.in = in, .out = out, .lives = lives};
  c.n_in = tensors_at(L, 2, in);
  c.n_out = tensors_at(L, 3, out);
  luaL_checktype(L, 4, LUA_TTABLE);
  for (;
       c.n_lives < PURE_MOST && lua_rawgeti(L, 4, c.n_lives + 1) == LUA_TNUMBER;
       lua_pop(L, 1))
    lives[c.n_lives++] = (uint32_t)lua_tointeger(L, -1);
  c.repeats = lua_toboolean(L, 5);
  fll_check(L, st, fl_compiled_note(compiled_of(L, 1)->c, &c));
  return 0;
}

/* pure_traced(object): the trace of the last call, or nil and why not. */
static int pure_traced(lua_State *L) {
  const char *why;
  fll_enter(L);
  int k = fl_compiled_traced(compiled_of(L, 1)->c, &why);
  if (k >= 0)
    lua_pushinteger(L, k);
  else
    lua_pushnil(L);
  lua_pushstring(L, why);
  return 2;
}

static int pure_position(lua_State *L) {
  fll_enter(L);
  lua_pushinteger(L, (lua_Integer)fl_compiled_position(compiled_of(L, 1)->c));
  return 1;
}

/* pure_enter(object, trace, arguments...): whether the trace fits; those that
 * are no tensors have been compared. */
static int pure_enter(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *in[PURE_MOST];
  int n = 0, top = lua_gettop(L);
  bool fits;
  for (int i = 3; i <= top && n < PURE_MOST; i++) {
    fll_tensor *h = fll_test(L, i);
    if (h && h->t)
      in[n++] = h->t;
  }
  fll_check(L, st,
            fl_compiled_enter(compiled_of(L, 1)->c,
                              (int)luaL_checkinteger(L, 2), n, in, &fits));
  lua_pushboolean(L, fits);
  return 1;
}

static int pure_feed(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st,
            fl_compiled_feed(compiled_of(L, 1)->c, luaL_checkinteger(L, 2),
                             luaL_checkinteger(L, 3)));
  return 0;
}

static int pure_results(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *const *list = NULL;
  int n;
  fll_check(L, st, fl_compiled_results(compiled_of(L, 1)->c, &n, &list));
  luaL_checkstack(L, n + 8, "too many results");
  for (int k = 0; k < n; k++)
    fll_push(L, st, list[k]);
  return n;
}

void fll_compile_core(lua_State *L) {
  static const luaL_Reg functions[] =
      {{"compiled", new_compiled},         {"compiled_begin", compiled_begin},
       {"compiled_stats", compiled_stats}, {"pure_note", pure_note},
       {"pure_traced", pure_traced},       {"pure_position", pure_position},
       {"pure_enter", pure_enter},         {"pure_feed", pure_feed},
       {"pure_results", pure_results},     {NULL, NULL}},
                        type[] = {{"__gc", compiled_gc}, {NULL, NULL}},
                        guard[] = {{"__gc", window_close},
                                   {"__close", window_close},
                                   {NULL, NULL}};
  fll_newtype(L, FLL_COMPILED, "flare.compiled", type);
  fll_newtype(L, FLL_WINDOW, "flare.window", guard);
  lua_pop(L, 2);
  fll_register(L, functions);
}
