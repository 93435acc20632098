/* Scopes, what outlives them, and what custom.c and checkpoint.c share. */
#ifndef FLL_SCOPE_H
#define FLL_SCOPE_H

#include "fll.h"

/* scope.c: the handles made between the two are those of a list at the top of
 * FLL_SCOPES. The end closes them, except FLL_KEPT ones and those that are keys
 * of the table at `keep`, or all, which go to the list outside. */
void fll_scope_begin(lua_State *L, fl_lua *st);
void fll_scope_end(lua_State *L, fl_lua *st, int keep, bool all, fl_site site);
/* Ends all but n scopes and leaves what they made to the collector. Allocates
 * nothing. */
void fll_scope_drop(lua_State *L, fl_lua *st, int n);
/* Marks the handles that the value at i leads to, by tables and by the upvalues
 * of functions, as keys of the table at `keep`. */
#define FLL_REACH 16 /* tables deep */
void fll_reach(lua_State *L, fl_lua *st, int i, int keep, int depth);
/* Pushes the table and the set of those that count as visited. Returns the
 * first one's place. Where more than `most` values are visited, st->to_visit is
 * negative and marks are missing. */
int fll_reach_begin(lua_State *L, fl_lua *st, int64_t most);
/* Marks what objects that are at most `before` old (as st->keepers was) keep. A
 * younger one was made in the scope, which returns it if it is to last. */
void fll_reach_keepers(lua_State *L, fl_lua *st, int keep, lua_Integer before);

/* custom.c, for checkpoint.c */
int fll_fresh_results(lua_State *L, fl_lua *st, int args, int n, int first,
                      int results);
void fll_put_on_tape(lua_State *L, fl_lua *st, const char *name, int record,
                     int args, int n, int first, int results, int dummy);
int fll_recompute(lua_State *L); /* a checkpoint's backward function */

/* autograd.c */
/* Says once, at the script's line, that `what` makes a cycle. */
void fll_warn_cycle(lua_State *L, fl_lua *st, const char *what);

#endif
