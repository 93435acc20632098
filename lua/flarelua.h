/* flare inside Lua 5.4: opens a runtime in a state of its own or in the host's,
 * runs scripts, calls functions and reads results. A Lua state has one runtime
 * and is used by one thread at a time; as many such pairs as wanted may live in
 * a process. Nothing here prints or exits, and no Lua error leaves a function
 * that returns a fl_status: it becomes FL_ELUA, its text is fl_error(). Calls
 * after the runtime is closed fail with FL_ECLOSED. The rules of flare.h hold
 * here, too. */
#ifndef FLARELUA_H
#define FLARELUA_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct lua_State lua_State;
typedef struct fl_lua fl_lua;

typedef struct fl_lua_options {
  size_t struct_size;                /* sizeof(fl_lua_options) */
  const fl_runtime_options *runtime; /* NULL: the defaults */
  const char *path;                  /* goes before package.path; or NULL */
  /* States that fl_lua_open makes collect garbage in generational mode, with a
   * pause of 120; a host's keep theirs unless this is set. */
  bool tune_collector;
  /* Lua's own loops stop by fl_lua_interrupt and by the runtime's `interrupted`
   * as well, by a count hook that takes about half of a loop's speed; calls of
   * flare always stop. States of fl_lua_open with an `interrupted` have it
   * anyway. */
  bool interruptible;
} fl_lua_options;

/* Makes a Lua state with Lua's libraries and a runtime; fl_lua_close ends both.
 * options: NULL for the defaults. ELUA, and what fl_runtime_open fails with. */
FL_API fl_status fl_lua_open(const fl_lua_options *options, fl_lua **f);
/* Opens a runtime in the host's state, which needs Lua's libraries, stays the
 * host's, and finds the library by `require "flare"` from then on. *f ends with
 * the state, or with fl_lua_close: then all tensors in the state are closed.
 * Without options, or where a runtime is open, the same as
 * `require "flare.core"`. ELUA. */
FL_API fl_status fl_lua_attach(lua_State *L, const fl_lua_options *options,
                               fl_lua **f);
/* Closes the runtime, and the state if fl_lua_open made it; `f` must not be
 * used after that. From inside a function that Lua or the runtime has called,
 * the runtime is closed when its own call is over, which fails with
 * FL_ECLOSED, and the state when the outermost fl_lua_run or fl_lua_call
 * returns. */
FL_API void fl_lua_close(fl_lua *f);
/* The fl_lua of a state, borrowed; NULL: no runtime is open there. */
FL_API fl_lua *fl_lua_of(lua_State *L);
/* Its main state and its runtime, borrowed. */
FL_API lua_State *fl_lua_state(fl_lua *f);
/* The coroutine that called flare last, or the state itself: it may be
 * suspended, and lives as long as it is the last. Safe in a signal handler. */
FL_API lua_State *fl_lua_coroutine(fl_lua *f);
FL_API fl_runtime *fl_lua_runtime(fl_lua *f);

/* Stops what runs, soon, with the error "interrupted!", and what is started
 * later as well, until fl_lua_resume. From any thread and from signal handlers,
 * while `f` is open. Loops that call nothing of flare's stop if the option
 * `interruptible` was set. */
FL_API void fl_lua_interrupt(fl_lua *f);
FL_API void fl_lua_resume(fl_lua *f);

/* Runs a text as the chunk `name` ("=prompt", "@file.lua"; NULL: the text), or
 * a file with the strings argv[0..argc) as its arguments and in the global
 * `arg`. ELUA: it did not compile, or an error was raised. */
FL_API fl_status fl_lua_run(fl_lua *f, const char *text, const char *name);
FL_API fl_status fl_lua_run_file(fl_lua *f, const char *path, int argc,
                                 const char *const *argv);
/* Lua's traceback of the last FL_ELUA, valid until the next one; "": there was
 * none. */
FL_API const char *fl_lua_traceback(fl_lua *f);

/* Calls the function found at a path of names from the globals ("model.step").
 * `types` has a letter for each argument and, after '>', for each result: i
 * int64_t, d double, b int (a boolean), s const char *, t fl_tensor * (NULL as
 * an argument: nil). Results are written through pointers, all of them or,
 * after an error, none: tensors are new references, strings live until the next
 * call here. ELUA: an error, no such function, a result of another type.
 *   fl_lua_call(f, "train", "ti>d", x, (int64_t)10, &loss); */
FL_API fl_status fl_lua_call(fl_lua *f, const char *path, const char *types,
                             ...);
/* Reads the value at a path of names, by a letter as above, into *value. */
FL_API fl_status fl_lua_get(fl_lua *f, const char *path, char type,
                            void *value);
/* Makes a tensor the global `name`, with a reference of Lua's own. */
FL_API fl_status fl_lua_set(fl_lua *f, const char *name, fl_tensor *t);

/* --- for functions written against Lua's own interface --- */

/* Pushes a tensor, with a reference of Lua's own. Raises a Lua error for NULL,
 * for a tensor of another runtime, and without a runtime. */
FL_API void fl_lua_push(lua_State *L, fl_tensor *t);
/* The tensor at an index of the stack, borrowed; NULL: there is none, or a
 * closed one. */
FL_API fl_tensor *fl_lua_tensor(lua_State *L, int index);
/* Raises a Lua error with fl_error()'s message at the script's line; returns
 * for FL_OK. */
FL_API void fl_lua_check(lua_State *L, fl_status s);

/* What `require "flare.core"` calls; for package.preload of a host that links
 * the library. */
FL_API int luaopen_flare_core(lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
