/* The program's C side: what its files share. */
#ifndef FLARE_REPL_H
#define FLARE_REPL_H

#include <lua.h>

#include <stdbool.h>

/* The module flare.repl.terminal: raw mode and keys (terminal.c). */
int flare_open_terminal(lua_State *L);
/* The module flare.repl.process: starting and watching ranks (process.c). */
int flare_open_process(lua_State *L);

/* The module flare.repl.alert: connections that stop a script (alert.c). */
int flare_open_alert(lua_State *L);
/* The hook by which it does. */
void flare_alert_hook(lua_State *L, lua_Debug *ar);

/* os.execute that Ctrl-C stops along with its command (shell.c). */
int flare_execute(lua_State *L);

/* The main coroutine; for handlers of signals, too. */
lua_State *flare_state(void);
lua_State *flare_coroutine(void); /* that called flare last */

/* Whether a Ctrl-C has come since the last one was forgotten. */
bool flare_interrupted(void);

#endif
