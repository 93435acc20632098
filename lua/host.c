/* flarelua.h for host programs: states of our own, scripts, calls, results. All
 * of it runs protected; errors come back as FL_ELUA. */
#include "embed.h"
#include "stop.h"
#include "strings.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* --- the library as text inside --- */

/* A copy of the globals; a name that is not in it is looked up and assigned
 * among the script's. */
static void keep_globals(lua_State *L) {
  if (fll_getkey(L, FLL_GLOBALS) == LUA_TNIL) {
    lua_newtable(L);
    lua_pushglobaltable(L);
    lua_pushnil(L);
    while (lua_next(L, -2)) {
      lua_pushvalue(L, -2);
      lua_insert(L, -2);
      lua_rawset(L, -5);
    }
    lua_createtable(L, 0, 2);
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "__index");
    lua_insert(L, -2);
    lua_setfield(L, -2, "__newindex");
    lua_setmetatable(L, -2);
    fll_setkey(L, FLL_GLOBALS);
  }
  lua_pop(L, 1);
}

void fll_set_globals(lua_State *L) {
  if (fll_getkey(L, FLL_GLOBALS) != LUA_TTABLE || !lua_setupvalue(L, -2, 1))
    lua_pop(L, 1);
}

static int load_embedded(lua_State *L) {
  const fll_module *m = lua_touserdata(L, lua_upvalueindex(1));
  static const char folder[] = "flare/";
  const char *file = m->file;
  if (strncmp(file, folder, sizeof folder - 1) == 0)
    file += sizeof folder - 1;
  lua_settop(L, 1);
  const char *chunk = lua_pushfstring(L, "@<flare>/%s", file);
  fll_push_text(L, m);
  if (luaL_loadbufferx(L, lua_tostring(L, -1), m->size, chunk, "t") != LUA_OK)
    return lua_error(L);
  fll_set_globals(L);
  lua_pushvalue(L, 1);
  lua_pushstring(L, chunk + 1);
  lua_call(L, 2, 1);
  return 1;
}

/* source("flare/nn/linear.lua"): the text of a file of the library that is
 * inside, nil if there is none. */
int fll_source(lua_State *L) {
  const char *file = luaL_checkstring(L, 1);
  for (const fll_module *m = fll_stdlib; m->name; m++)
    if (strcmp(m->file, file) == 0) {
      fll_push_text(L, m);
      return 1;
    }
  lua_pushnil(L);
  return 1;
}

static void prepend_path(lua_State *L, const char *path) {
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  lua_pushfstring(L, "%s;%s", path, lua_tostring(L, -1));
  lua_setfield(L, -3, "path");
  lua_pop(L, 2);
}

static void preload(lua_State *L, bool embedded) {
  keep_globals(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, luaopen_flare_core);
  lua_setfield(L, -2, "flare.core");
  for (const fll_module *m = fll_stdlib; m->name && embedded; m++) {
    lua_pushlightuserdata(L, (void *)(uintptr_t)m);
    lua_pushcclosure(L, load_embedded, 1);
    lua_setfield(L, -2, m->name);
  }
  lua_pop(L, 1);
}

/* Lua's libraries, with functions that stop when the state is to stop. */
static void open_libraries(lua_State *L) {
  luaL_openlibs(L);
  fll_own_strings(L);
  fll_own_tables(L);
}

void fll_openlibs(lua_State *L, bool embedded) {
  open_libraries(L);
  preload(L, embedded);
}

/* The library's files come from the folder FLARE_PATH, if that is set. */
static void find_library(lua_State *L) {
  const char *path = getenv("FLARE_PATH");
  preload(L, !path);
  if (path) {
    lua_pushfstring(L, "%s/?.lua;%s/?/init.lua", path, path);
    prepend_path(L, lua_tostring(L, -1));
    lua_pop(L, 1);
  }
}

static fl_status is_null(const char *where, const char *what) {
  return fli_fail(FL_EARG, "%s: %s is NULL", where, what);
}

/* --- opening and closing --- */

/* flare's library is written in Lua and needs these; without this check a host
 * that has not opened them gets an error from some line inside the library. */
static void need_libraries(lua_State *L) {
  static const char *const names[] = {"package", "string", "table", "math",
                                      "utf8"};
  for (size_t k = 0; k < sizeof names / sizeof *names; k++)
    if (lua_getglobal(L, names[k]) != LUA_TTABLE)
      luaL_error(L,
                 "flare needs Lua's library '%s' in the state, as "
                 "luaL_requiref(L, \"%s\", luaopen_%s, 1) opens it",
                 names[k], names[k], names[k]);
  lua_settop(L, 1);
}

typedef struct opening {
  const fl_lua_options *options;
  fl_lua *f;
  bool own;
} opening;

static int open_protected(lua_State *L) {
  opening *o = lua_touserdata(L, 1);
  fl_lua_options options = {.struct_size = sizeof options};
  if (o->options)
    memcpy(&options, o->options,
           o->options->struct_size < sizeof options ? o->options->struct_size
                                                    : sizeof options);
  if (o->own) {
    options.tune_collector = true;
    open_libraries(L);
  }
  need_libraries(L);
  find_library(L);
  if (options.path)
    prepend_path(L, options.path);
  o->f = fll_open(L, &options);
  o->f->owns_state = o->own;
  if (options.interruptible || (o->own && o->f->host.interrupted))
    fll_interruptible(L, o->f, true);
  return 0;
}

static fl_status check_options(const char *where, const fl_lua_options *o) {
  fl_status s = fli_check_sized(where, "fl_lua_options", o);
  size_t end = offsetof(fl_lua_options, runtime) + sizeof o->runtime;
  if (s != FL_OK || !o || o->struct_size < end)
    return s;
  return fli_check_sized(where, "fl_runtime_options", o->runtime);
}

static fl_status open_in(lua_State *L, opening *o) {
  if (!lua_checkstack(L, 20))
    return fli_fail(FL_ENOMEM, "out of memory: Lua's stack");
  lua_pushcfunction(L, open_protected);
  lua_pushlightuserdata(L, o);
  if (lua_pcall(L, 1, 0, 0) == LUA_OK)
    return FL_OK;
  const char *text = lua_tostring(L, -1);
  fl_status s = fli_fail(FL_ELUA, "%s", text ? text : "cannot open");
  lua_pop(L, 1);
  return s;
}

fl_status fl_lua_open(const fl_lua_options *options, fl_lua **f) {
  opening o = {options, NULL, true};
  if (!f)
    return is_null("fl_lua_open", "f");
  fl_status s = check_options("fl_lua_open", options);
  if (s != FL_OK)
    return s;
  lua_State *L = luaL_newstate();
  if (!L)
    return fli_fail(FL_ENOMEM, "out of memory: a Lua state");
  fll_heap *heap = fll_heap_open(L);
  s = open_in(L, &o);
  if (s != FL_OK) {
    lua_close(L);
    fll_heap_close(heap);
    return s;
  }
  *f = o.f;
  o.f->heap = heap;
  return FL_OK;
}

fl_status fl_lua_attach(lua_State *L, const fl_lua_options *options,
                        fl_lua **f) {
  opening o = {options, NULL, false};
  if (!L || !f)
    return is_null("fl_lua_attach", L ? "f" : "L");
  fl_status s = check_options("fl_lua_attach", options);
  if (s == FL_OK)
    s = open_in(L, &o);
  if (s == FL_OK)
    *f = o.f;
  return s;
}

/* Whether Lua code of f's state is running, called by us or by the host. */
static bool runs(const fl_lua *f) {
  lua_Debug ar;
  return f->entries || lua_getstack(f->main, 0, &ar);
}

static void close_state(fl_lua *f) {
  fll_heap *heap = f->heap;
  fll_threads_end(f);
  lua_close(f->main);
  fll_heap_close(heap);
}

void fl_lua_close(fl_lua *f) {
  if (!f)
    return;
  if (f->owns_state && !runs(f)) {
    close_state(f);
    return;
  }
  f->closing_state = f->owns_state;
  if (f->rt)
    fll_shut_soon(f);
}

/* A call of the host is over; f may end with it. */
static fl_status leave_state(fl_lua *f, fl_status s) {
  f->entries--;
  if (f->closing)
    fll_shut_soon(f);
  if (!f->closing_state || runs(f))
    return s;
  close_state(f);
  return s == FL_OK ? fli_fail(FL_ECLOSED, "the Lua state was closed by a "
                                           "function that it had called")
                    : s;
}

fl_lua *fl_lua_of(lua_State *L) {
  if (!L || !lua_checkstack(L, 2))
    return NULL;
  fll_getkey(L, FLL_STATE);
  fl_lua *st = lua_touserdata(L, -1);
  lua_pop(L, 1);
  return st && st->rt && !st->closing ? st : NULL;
}

lua_State *fl_lua_state(fl_lua *f) {
  return f ? f->main : NULL;
}

lua_State *fl_lua_coroutine(fl_lua *f) {
  return !f ? NULL : f->L ? f->L : f->main;
}

fl_runtime *fl_lua_runtime(fl_lua *f) {
  return f ? f->rt : NULL;
}

void fl_lua_interrupt(fl_lua *f) {
  if (f)
    atomic_store_explicit(&f->interrupted, true, memory_order_relaxed);
}

void fl_lua_resume(fl_lua *f) {
  if (f)
    atomic_store_explicit(&f->interrupted, false, memory_order_relaxed);
}

/* --- protected work --- */

typedef struct work {
  fl_lua *f;
  const char *path, *types, *text, *name;
  int argc;
  const char *const *argv;
  va_list *args;
  char type;
  void *value;
  fl_tensor *tensor;
} work;

static char *copy_text(const char *s) {
  size_t n = strlen(s) + 1;
  char *p = malloc(n);
  return p ? memcpy(p, s, n) : NULL;
}

/* The message goes on; where it came from is kept for the host. */
static int note_traceback(lua_State *L) {
  fl_lua *f = lua_touserdata(L, lua_upvalueindex(1));
  lua_settop(L, 1);
  const char *text = luaL_tolstring(L, 1, NULL);
  luaL_traceback(L, L, text, 1);
  free(f->traceback);
  f->traceback = copy_text(lua_tostring(L, -1));
  lua_settop(L, 2);
  return 1;
}

static fl_status host_protect(lua_CFunction function, work *w) {
  fl_lua *f = w->f;
  lua_State *L = f->main;
  if (!f->rt || f->closing)
    return fli_fail(FL_ECLOSED, "the runtime of this Lua state is closed");
  if (!lua_checkstack(L, 20))
    return fli_fail(FL_ENOMEM, "out of memory: Lua's stack");
  lua_pushlightuserdata(L, f);
  lua_pushcclosure(L, note_traceback, 1);
  lua_pushcfunction(L, function);
  lua_pushlightuserdata(L, w);
  fl_status s = FL_OK;
  int base = lua_gettop(L) - 2;
  f->entries++;
  void *was = fli_numeric_enter();
  int outcome = lua_pcall(L, 1, 0, base);
  fli_numeric_leave(was);
  if (outcome != LUA_OK) {
    const char *text = lua_tostring(L, -1);
    s = fli_fail(FL_ELUA, "%s", text ? text : "error in Lua code");
  }
  lua_settop(L, base - 1);
  return leave_state(f, s);
}

const char *fl_lua_traceback(fl_lua *f) {
  return f && f->traceback ? f->traceback : "";
}

static int run_text(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  if (luaL_loadbufferx(L, w->text, strlen(w->text), w->name ? w->name : w->text,
                       "t") != LUA_OK)
    return lua_error(L);
  lua_call(L, 0, 0);
  return 0;
}

fl_status fl_lua_run(fl_lua *f, const char *text, const char *name) {
  work w = {.f = f, .text = text, .name = name};
  if (!f || !text)
    return is_null("fl_lua_run", f ? "text" : "f");
  return host_protect(run_text, &w);
}

static int run_file(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  luaL_checkstack(L, w->argc + 10, "too many arguments");
  if (luaL_loadfilex(L, w->path, "t") != LUA_OK)
    return lua_error(L);
  lua_createtable(L, w->argc, 1);
  lua_pushstring(L, w->path);
  lua_rawseti(L, -2, 0);
  for (int i = 0; i < w->argc; i++) {
    lua_pushstring(L, w->argv[i]);
    lua_rawseti(L, -2, i + 1);
  }
  lua_setglobal(L, "arg");
  for (int i = 0; i < w->argc; i++)
    lua_pushstring(L, w->argv[i]);
  lua_call(L, w->argc, 0);
  return 0;
}

fl_status fl_lua_run_file(fl_lua *f, const char *path, int argc,
                          const char *const *argv) {
  work w = {.f = f, .path = path, .argc = argc, .argv = argv};
  if (!f || !path || (argc > 0 && !argv))
    return is_null("fl_lua_run_file", !f ? "f" : path ? "argv" : "path");
  return host_protect(run_file, &w);
}

/* Pushes what is at "a.b.c" from the globals. */
static void push_path(lua_State *L, const char *path) {
  lua_pushglobaltable(L);
  for (const char *s = path; *s;) {
    size_t n = strcspn(s, ".");
    lua_pushlstring(L, s, n);
    if (lua_isnil(L, -2))
      luaL_error(L, "'%s': there is nothing in front of '.%s'", path, s);
    lua_gettable(L, -2);
    lua_remove(L, -2);
    s += n + (s[n] == '.');
  }
}

static void push_argument(lua_State *L, work *w, char type) {
  switch (type) {
  case 'i':
    lua_pushinteger(L, va_arg(*w->args, int64_t));
    break;
  case 'd':
    lua_pushnumber(L, va_arg(*w->args, double));
    break;
  case 'b':
    lua_pushboolean(L, va_arg(*w->args, int));
    break;
  case 's':
    lua_pushstring(L, va_arg(*w->args, const char *));
    break;
  case 't': {
    fl_tensor *t = va_arg(*w->args, fl_tensor *);
    if (t)
      fl_lua_push(L, t);
    else
      lua_pushnil(L);
    break;
  }
  default:
    luaL_error(L, "types: there is no '%c' (i d b s t)", type);
  }
}

/* Whether the value at `i` is what a letter stands for. A number that a string
 * is wanted of becomes one. */
static bool host_fits(lua_State *L, int i, char type) {
  int ok = 1;
  switch (type) {
  case 'i':
    lua_tointegerx(L, i, &ok);
    return ok;
  case 'd':
    lua_tonumberx(L, i, &ok);
    return ok;
  case 'b':
    return true;
  case 's':
    return lua_tostring(L, i) != NULL;
  case 't':
    return fll_test(L, i) != NULL;
  default:
    return luaL_error(L, "types: there is no '%c' (i d b s t)", type);
  }
}

/* The n values from `first` on are checked, and kept until the next call, since
 * strings lie in them. */
static void host_keep(lua_State *L, const work *w, int first, int n,
                      const char *types) {
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++) {
    char type = types[k];
    if (!host_fits(L, first + k, type))
      luaL_error(L, "'%s', value %d: expected %s, got %s", w->path, k + 1,
                 type == 't'   ? "a tensor"
                 : type == 'i' ? "an integer"
                 : type == 's' ? "a string"
                               : "a number",
                 fll_typename(L, first + k));
    if (type == 's') {
      lua_pushvalue(L, first + k);
      lua_rawseti(L, -2, k + 1);
    }
  }
  lua_rawsetp(L, LUA_REGISTRYINDEX, w->f);
}

/* Writes a value that fits where the host wants it. */
static void host_store(lua_State *L, int i, char type, void *to) {
  if (type == 'i')
    *(int64_t *)to = lua_tointeger(L, i);
  else if (type == 'd')
    *(double *)to = lua_tonumber(L, i);
  else if (type == 'b')
    *(int *)to = lua_toboolean(L, i);
  else if (type == 's')
    *(const char **)to = lua_tostring(L, i);
  else
    *(fl_tensor **)to = fl_tensor_retain(fll_test(L, i)->t);
}

static int host_call(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  const char *results = strchr(w->types, '>');
  int n_args = results ? (int)(results - w->types) : (int)strlen(w->types);
  int n_results = results ? (int)strlen(results + 1) : 0;
  void *to[32];
  if (n_results > 32)
    luaL_error(L, "types: at most 32 results");
  luaL_checkstack(L, n_args + n_results + 10, "too many arguments");
  push_path(L, w->path);
  if (lua_isnil(L, -1))
    luaL_error(L, "there is no function '%s'", w->path);
  for (int i = 0; i < n_args; i++)
    push_argument(L, w, w->types[i]);
  for (int i = 0; i < n_results; i++)
    if (!(to[i] = va_arg(*w->args, void *)))
      luaL_error(L, "'%s': the pointer for result %d is NULL", w->path, i + 1);
  lua_call(L, n_args, n_results);
  int first = lua_gettop(L) - n_results + 1;
  if (n_results)
    host_keep(L, w, first, n_results, results + 1);
  for (int i = 0; i < n_results; i++)
    host_store(L, first + i, results[1 + i], to[i]);
  return 0;
}

fl_status fl_lua_call(fl_lua *f, const char *path, const char *types, ...) {
  va_list args;
  if (!f || !path || !types)
    return is_null("fl_lua_call", !f ? "f" : path ? "types" : "path");
  va_start(args, types);
  work w = {.f = f, .path = path, .types = types, .args = &args};
  fl_status s = host_protect(host_call, &w);
  va_end(args);
  return s;
}

static int host_get(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  push_path(L, w->path);
  host_keep(L, w, lua_gettop(L), 1, &w->type);
  host_store(L, lua_gettop(L), w->type, w->value);
  return 0;
}

fl_status fl_lua_get(fl_lua *f, const char *path, char type, void *value) {
  work w = {.f = f, .path = path, .type = type, .value = value};
  if (!f || !path || !value)
    return is_null("fl_lua_get", !f ? "f" : path ? "value" : "path");
  return host_protect(host_get, &w);
}

static int host_set(lua_State *L) {
  work *w = lua_touserdata(L, 1);
  fl_lua_push(L, w->tensor);
  lua_setglobal(L, w->name);
  return 0;
}

fl_status fl_lua_set(fl_lua *f, const char *name, fl_tensor *t) {
  work w = {.f = f, .name = name, .tensor = t};
  if (!f || !name || !t)
    return is_null("fl_lua_set", !f ? "f" : name ? "t" : "name");
  return host_protect(host_set, &w);
}

/* --- for functions written against Lua's own interface --- */

void fl_lua_push(lua_State *L, fl_tensor *t) {
  if (!L)
    return;
  fl_lua *st = fll_state_of(L);
  if (!t)
    fll_error(L, "NULL is no tensor");
  if (fl_tensor_runtime(t) != st->rt)
    fll_error(L, "a tensor of another runtime cannot enter this Lua state");
  luaL_checkstack(L, 6, NULL);
  fll_push(L, st, t);
}

fl_tensor *fl_lua_tensor(lua_State *L, int i) {
  fll_tensor *h = L ? fll_test(L, i) : NULL;
  return h ? h->t : NULL;
}

void fl_lua_check(lua_State *L, fl_status s) {
  if (!L)
    return;
  fll_check(L, fll_state_of(L), s);
}
