/* Stopping Lua code that runs: stop.c. */
#ifndef FLL_STOP_H
#define FLL_STOP_H

#include "fll.h"

/* From now on this coroutine, and those that it makes, look after so many
 * instructions whether to stop. */
#define FLL_HOOK_COUNT 1000
void fll_stop_hook(lua_State *L, int count);

/* The same for the running coroutine and the main one; xpcall is guarded. */
void fll_interruptible(lua_State *L, fl_lua *st, bool on);

/* For a state without a hook that another thread may stop: coroutines have the
 * hook from the start, debug.sethook leaves it there, xpcall is guarded. */
void fll_stop_guards(lua_State *L);

#endif
