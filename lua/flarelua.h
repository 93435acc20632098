/* flare inside Lua 5.4: opens a runtime in a state of its own or in the host's,
 * runs scripts, calls functions and reads results. A Lua state has one runtime
 * and is used by one thread at a time; as many such pairs as wanted may live in
 * a process. Nothing here prints or exits, and no Lua error leaves a function
 * that returns a fl_status: it becomes FL_ELUA, its text is fl_error(). */
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

/* `options` may be NULL. A new state with Lua's libraries, closed by
 * fl_lua_close. */
FL_API fl_status fl_lua_open(const fl_lua_options *options, fl_lua **f);
/* The host's state, which stays the host's, and finds the library by
 * `require "flare"` from then on; its fl_lua ends with the state, or
 * with fl_lua_close: then all tensors in the state are closed. Without options,
 * or where a runtime is open already, the same as `require "flare.core"`. */
FL_API fl_status fl_lua_attach(lua_State *L, const fl_lua_options *options,
                               fl_lua **f);
/* NULL is fine. From inside a function that Lua or the runtime has called, the
 * runtime is closed when its own call is over, which fails with FL_ECLOSED, and
 * a state of fl_lua_open when the outermost fl_lua_run or fl_lua_call returns;
 * `f` must not be used after that. */
FL_API void fl_lua_close(fl_lua *f);
FL_API fl_lua *fl_lua_of(lua_State *L); /* NULL: nothing is open there */
FL_API lua_State *fl_lua_state(fl_lua *f);
FL_API fl_runtime *fl_lua_runtime(fl_lua *f);

/* Stops what runs, soon, with the error "interrupted!": it stays asked for
 * until fl_lua_resume. From any thread and from signal handlers. Loops that
 * call nothing of flare's stop if the option `interruptible` was set. */
FL_API void fl_lua_interrupt(fl_lua *f);
FL_API void fl_lua_resume(fl_lua *f);

/* Runs a text as the chunk `name` ("=prompt", "@file.lua"), or a file with the
 * strings argv[0..argc) as its arguments and in the global `arg`. */
FL_API fl_status fl_lua_run(fl_lua *f, const char *text, const char *name);
FL_API fl_status fl_lua_run_file(fl_lua *f, const char *path, int argc,
                                 const char *const *argv);
/* Where the last FL_ELUA of `f` came from, "" if there was none. */
FL_API const char *fl_lua_traceback(fl_lua *f);

/* Calls the function found at a path of names from the globals ("model.step").
 * `types` has a letter for each argument and, after '>', for each result: i
 * int64_t, d double, b int (a boolean), s const char *, t fl_tensor *. Results
 * are written through pointers, all of them or, after an error, none: tensors
 * are new references, strings live until the next call here.
 *
 *   fl_lua_call(f, "train", "ti>d", x, (int64_t)10, &loss); */
FL_API fl_status fl_lua_call(fl_lua *f, const char *path, const char *types,
                             ...);
/* The value at a path of names, by a letter as above. */
FL_API fl_status fl_lua_get(fl_lua *f, const char *path, char type,
                            void *value);
/* Makes a tensor the global `name`. */
FL_API fl_status fl_lua_set(fl_lua *f, const char *name, fl_tensor *t);

/* For functions written against Lua's own interface. Pushing takes a reference
 * of its own and may raise; the tensor at an index is borrowed, NULL if there
 * is none (or a closed one). */
FL_API void fl_lua_push(lua_State *L, fl_tensor *t);
FL_API fl_tensor *fl_lua_tensor(lua_State *L, int index);
/* Raises what `s` and fl_error() say, at the script's line; FL_OK returns. */
FL_API void fl_lua_check(lua_State *L, fl_status s);

FL_API int luaopen_flare_core(lua_State *L);

#ifdef __cplusplus
}
#endif
#endif
