/* The program's C side: what main.c and line.c share. */
#ifndef FLARE_REPL_H
#define FLARE_REPL_H

#include <lua.h>

/* The module flare.repl.line: reading lines from a person (line.c). */
int flare_open_line(lua_State *L);

#endif
