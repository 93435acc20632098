/* Worker threads: each is an operating system thread with a Lua state and a
 * runtime of its own. It gets a text to run and values, and gives values back.
 * Nothing but parcels and channels passes between it and the others. */
#include "thread.h"
#include "stop.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define PATIENCE 5.0 /* seconds for a thread to end */

typedef struct worker {
  atomic_int rc; /* the handle and the thread */
  atomic_bool stop;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  pthread_t thread;
  bool done, failed, left;
  fll_parcel *given, *result;
  char *source, *path, *cpath, *name, *error;
  bool embedded;
  int threads;
  fl_budget *budget; /* of the state that spawned it */
  lua_State *L;      /* while it may be stopped */
} worker;

typedef struct fll_worker {
  uint64_t magic;
  worker *w;
  uint64_t joined;
  struct fll_worker *prev, *next; /* of the state, while w is there */
} handle;

static void link_handle(fl_lua *st, handle *h) {
  h->next = st->workers;
  if (h->next)
    h->next->prev = h;
  st->workers = h;
}

static void unlink_handle(fl_lua *st, handle *h) {
  if (h->prev)
    h->prev->next = h->next;
  else
    st->workers = h->next;
  if (h->next)
    h->next->prev = h->prev;
  h->prev = h->next = NULL;
  h->w = NULL;
}

static void worker_release(worker *w) {
  if (atomic_fetch_sub_explicit(&w->rc, 1, memory_order_acq_rel) != 1)
    return;
  fll_parcel_free(w->given);
  fll_parcel_free(w->result);
  free(w->source);
  free(w->path);
  free(w->cpath);
  free(w->name);
  free(w->error);
  fl_budget_release(w->budget);
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  free(w);
}

static char *copy_text(const char *s) {
  size_t n = strlen(s) + 1;
  char *p = malloc(n);
  return p ? memcpy(p, s, n) : NULL;
}

/* --- in the thread --- */

static bool thread_stopped(void *context) {
  worker *w = context;
  return atomic_load_explicit(&w->stop, memory_order_relaxed);
}

static int traceback(lua_State *L) {
  const char *text = luaL_tolstring(L, 1, NULL);
  luaL_traceback(L, L, text, 1);
  return 1;
}

static void set_path(lua_State *L, const char *field, const char *path) {
  lua_getglobal(L, "package");
  lua_pushstring(L, path);
  lua_setfield(L, -2, field);
  lua_pop(L, 1);
}

/* Ends loops that call nothing of flare; locked. A hook from the start would
 * double the time of every loop. Lua allows lua_sethook while the state runs
 * (from a signal handler): its fields are single words, and it marks the
 * frames of Lua functions that are running. A frame that begins or ends in the
 * meantime may be missed, so every wait for the thread calls this again. Only
 * the main coroutine is reached, which cannot yield: the words of its C frames
 * that a mark may hit are unused. */
static void hook_worker(worker *w) {
  if (w->L)
    fll_stop_hook(w->L, 1);
}

static void stop_worker(worker *w) {
  atomic_store(&w->stop, true);
  pthread_mutex_lock(&w->lock);
  hook_worker(w);
  pthread_mutex_unlock(&w->lock);
}

/* From NULL on, the state is out of reach for stop_worker. */
static void set_state(worker *w, lua_State *L) {
  pthread_mutex_lock(&w->lock);
  w->L = L;
  if (atomic_load(&w->stop))
    hook_worker(w);
  pthread_mutex_unlock(&w->lock);
}

static int thread_prepare(lua_State *L) {
  worker *w = lua_touserdata(L, 1);
  fll_openlibs(L, w->embedded);
  set_path(L, "path", w->path);
  set_path(L, "cpath", w->cpath);
  fl_runtime_options r = {.struct_size = sizeof r,
                          .threads = w->threads,
                          .interrupted = thread_stopped,
                          .context = w,
                          .budget = w->budget};
  fl_lua_options o = {
      .struct_size = sizeof o, .runtime = &r, .tune_collector = true};
  fll_open(L, &o);
  /* values that are unpacked for the text need the types of the module */
  luaL_requiref(L, "flare.core", luaopen_flare_core, 0);
  fll_stop_guards(L);
  set_state(w, L);
  return 0;
}

/* Runs as a closure of ours: upvalues are state and metatable. */
static int body(lua_State *L) {
  fl_lua *st = fll_enter(L);
  worker *w = lua_touserdata(L, 1);
  if (luaL_loadbufferx(L, w->source, strlen(w->source), w->name, "t") != LUA_OK)
    return lua_error(L);
  fll_parcel *given = w->given;
  w->given = NULL;
  int function = lua_gettop(L);
  int n = fll_parcel_unpack(L, st, given);
  lua_remove(L, function + 1); /* the box */
  lua_call(L, n, LUA_MULTRET);
  int top = lua_gettop(L);
  fll_parcel_pack(L, st, 2, top, "results of a thread");
  w->result = fll_parcel_take(L, top + 1);
  return 0;
}

static bool thread_run(worker *w) {
  lua_State *L = luaL_newstate();
  if (!L) {
    w->error = copy_text("out of memory");
    return false;
  }
  lua_pushcfunction(L, traceback);
  lua_pushcfunction(L, thread_prepare);
  lua_pushlightuserdata(L, w);
  bool ok = lua_pcall(L, 1, 0, 1) == LUA_OK;
  if (ok) {
    fll_pushfunction(L, body);
    lua_pushlightuserdata(L, w);
    ok = lua_pcall(L, 1, 0, 1) == LUA_OK;
  }
  set_state(w, NULL);
  lua_sethook(L, NULL, 0, 0);
  if (!ok) {
    const char *text = lua_tostring(L, -1);
    w->error = copy_text(text ? text : "error");
  }
  lua_close(L);
  return ok;
}

static void *thread_main(void *context) {
  worker *w = context;
  void *was = fli_numeric_enter();
  bool ok = thread_run(w);
  fli_numeric_leave(was);
  pthread_mutex_lock(&w->lock);
  w->failed = !ok;
  w->done = true;
  if (w->left)
    fli_thread_left(-1);
  pthread_cond_broadcast(&w->changed);
  pthread_mutex_unlock(&w->lock);
  worker_release(w);
  return NULL;
}

/* --- outside --- */

static worker *new_worker(lua_State *L, fl_lua *st) {
  handle *h = fll_newobject(L, FLL_WORKER, sizeof *h, 0);
  worker *w = calloc(1, sizeof *w);
  if (!w)
    luaL_error(L, "out of memory");
  pthread_condattr_t a;
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_mutex_init(&w->lock, NULL);
  pthread_cond_init(&w->changed, &a);
  pthread_condattr_destroy(&a);
  atomic_init(&w->rc, 1);
  atomic_init(&w->stop, false);
  w->done = true; /* until it is started */
  w->threads = 1;
  h->w = w;
  link_handle(st, h);
  return w;
}

static char *package_field(lua_State *L, const char *field) {
  lua_getglobal(L, "package");
  if (!lua_istable(L, -1)) {
    lua_pop(L, 1);
    return copy_text("");
  }
  lua_getfield(L, -1, field);
  const char *s = lua_tostring(L, -1);
  char *copy = copy_text(s ? s : "");
  lua_pop(L, 2);
  return copy;
}

static bool has_embedded(lua_State *L) {
  bool yes = false;
  if (lua_getfield(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE) == LUA_TTABLE) {
    yes = lua_getfield(L, -1, "flare") != LUA_TNIL;
    lua_pop(L, 1);
  }
  lua_pop(L, 1);
  return yes;
}

/* spawn(source, ...): runs the text in a new thread, with the values as its
 * arguments. spawn({source = , name = , threads = }, ...) says more. */
static int thread_spawn(lua_State *L) {
  static const char *const options[] = {"source", "name", "threads", NULL};
  fl_lua *st = fll_enter(L);
  int last = lua_gettop(L), threads = 1;
  const char *name = "=thread";
  if (lua_istable(L, 1)) {
    fll_checkoptions(L, 1, "spawn", options);
    if (fll_option(L, 1, "name") == LUA_TSTRING)
      name = lua_tostring(L, -1);
    if (fll_option(L, 1, "threads") != LUA_TNIL)
      threads = (int)fll_checkint(L, -1, "spawn", "threads");
    fll_option(L, 1, "source");
    lua_replace(L, 1);
  }
  if (lua_type(L, 1) != LUA_TSTRING)
    fll_error(L, "spawn: source: expected the text of a chunk, got %s%s",
              fll_typename(L, 1),
              lua_isfunction(L, 1) ? "; functions do not cross threads" : "");
  worker *w = new_worker(L, st);
  int result = lua_gettop(L);
  w->threads = threads;
  w->budget = fl_budget_retain(fl_runtime_budget(st->rt));
  w->source = copy_text(lua_tostring(L, 1));
  w->name = copy_text(name);
  w->path = package_field(L, "path");
  w->cpath = package_field(L, "cpath");
  w->embedded = has_embedded(L);
  if (!w->source || !w->name || !w->path || !w->cpath)
    return luaL_error(L, "out of memory");
  fll_parcel_pack(L, st, 2, last, "spawn");
  w->given = fll_parcel_take(L, lua_gettop(L));
  sigset_t all, was;
  sigfillset(&all);
  atomic_fetch_add(&w->rc, 1);
  w->done = false;
  pthread_sigmask(SIG_SETMASK, &all, &was); /* signals are the host's */
  int error = pthread_create(&w->thread, NULL, thread_main, w);
  pthread_sigmask(SIG_SETMASK, &was, NULL);
  if (error) {
    w->done = true;
    w->thread = 0;
    atomic_fetch_sub(&w->rc, 1);
    return fll_failed(L, "spawn: %s", strerror(error));
  }
  lua_settop(L, result);
  return 1;
}

static handle *thread_check(lua_State *L) {
  handle *h = fll_checktype(L, 1, FLL_WORKER, sizeof *h);
  if (!h->w)
    fll_error(L, "the thread is joined already");
  return h;
}

static bool wait_for(worker *w, fl_lua *st, double until) {
  pthread_mutex_lock(&w->lock);
  while (!w->done && fll_now() < until &&
         !(st && st->rt && fl_runtime_interrupted(st->rt))) {
    if (atomic_load(&w->stop))
      hook_worker(w);
    fll_wait(&w->changed, &w->lock, until);
  }
  bool done = w->done;
  pthread_mutex_unlock(&w->lock);
  return done;
}

/* t:join(timeout): true and what the text returned; nil and the message with
 * its traceback; nil and "timeout". */
static int thread_join(lua_State *L) {
  fl_lua *st = fll_enter(L);
  handle *h = thread_check(L);
  double until = fll_deadline(L, 2, "join");
  if (!wait_for(h->w, st, until)) {
    if (fl_runtime_interrupted(st->rt))
      fll_error(L, "interrupted!");
    lua_pushnil(L);
    lua_pushliteral(L, "timeout");
    return 2;
  }
  worker *w = h->w;
  if (!h->joined)
    pthread_join(w->thread, NULL);
  h->joined = 1;
  if (w->failed) {
    lua_pushnil(L);
    lua_pushstring(L, w->error ? w->error : "error");
    return 2;
  }
  lua_pushboolean(L, 1);
  fll_parcel *p = w->result;
  w->result = NULL;
  int n = p ? fll_parcel_unpack(L, st, p) : 0;
  unlink_handle(st, h);
  worker_release(w);
  if (p)
    lua_remove(L, -n - 1); /* the box */
  return n + 1;
}

/* t:stop(): asks it to end. Lua code and what waits or computes in the runtime
 * does within milliseconds; a C function of others' goes on to its end. */
static int stop(lua_State *L) {
  handle *h = thread_check(L);
  stop_worker(h->w);
  return 0;
}

static int thread_alive(lua_State *L) {
  handle *h = fll_checktype(L, 1, FLL_WORKER, sizeof *h);
  bool done = true;
  if (h->w) {
    pthread_mutex_lock(&h->w->lock);
    done = h->w->done;
    pthread_mutex_unlock(&h->w->lock);
  }
  lua_pushboolean(L, !done);
  return 1;
}

/* A thread that runs on has the code of these libraries under it. */
static void leave_running(worker *w) {
  lua_State *(*lua)(void) = luaL_newstate;
  void *(*own)(void *) = thread_main;
  fl_status (*runtime)(const fl_runtime_options *, fl_runtime **) =
      fl_runtime_open;
  const void *address[3];
  memcpy(&address[0], &lua, sizeof lua);
  memcpy(&address[1], &own, sizeof own);
  memcpy(&address[2], &runtime, sizeof runtime);
  for (int k = 0; k < 3; k++)
    fli_keep_loaded(address[k]);
  pthread_mutex_lock(&w->lock);
  w->left = !w->done;
  if (w->left)
    fli_thread_left(1);
  pthread_mutex_unlock(&w->lock);
  pthread_detach(w->thread);
}

/* A thread that was not joined is asked to stop, and given until then. */
static void end_worker(fl_lua *st, handle *h, double until) {
  worker *w = h->w;
  bool joined = h->joined;
  unlink_handle(st, h);
  stop_worker(w);
  bool done = wait_for(w, NULL, until);
  if (!joined && w->thread) { /* none: it was never started */
    if (done)
      pthread_join(w->thread, NULL);
    else
      leave_running(w);
  }
  worker_release(w);
}

static int worker_gc(lua_State *L) {
  handle *h = fll_totype(L, 1, FLL_WORKER, sizeof *h);
  if (h && h->w)
    end_worker(lua_touserdata(L, lua_upvalueindex(1)), h, fll_now() + PATIENCE);
  return 0;
}

void fll_threads_end(fl_lua *st) {
  double until = fll_now() + PATIENCE;
  for (handle *h = st->workers; h; h = h->next)
    stop_worker(h->w);
  while (st->workers)
    end_worker(st, st->workers, until);
}

void fll_thread_core(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__gc", worker_gc}, {"__close", worker_gc}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"join", thread_join},
                                     {"stop", stop},
                                     {"alive", thread_alive},
                                     {NULL, NULL}};
  static const luaL_Reg functions[] = {{"spawn", thread_spawn}, {NULL, NULL}};
  fll_register(L, functions);
  fll_newclass(L, FLL_WORKER, "flare.thread", meta, methods);
  fll_channel_open(L);
}
