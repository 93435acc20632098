/* Lua files that are compiled into a library or program as text: what
 * cmake/embed.cmake writes and what looks modules up reads. */
#ifndef FLL_EMBED_H
#define FLL_EMBED_H

#include <lua.h>
#include <stddef.h>

typedef struct fll_module {
  const char *name; /* for require: "flare.nn.linear" */
  const char *file; /* below its folder: "flare/nn/linear.lua" */
  const char *text; /* compressed if packed < size */
  size_t size, packed;
} fll_module;

/* Pushes the text of a module. */
void fll_push_text(lua_State *L, const fll_module *m);
/* Gives the chunk on top, a file of the library, the globals as they were when
 * the state was opened: a script may assign to `table`, `type` or `debug`. */
void fll_set_globals(lua_State *L);

extern const fll_module fll_stdlib[]; /* stdlib/, in libflarelua; compressed */
extern const fll_module flare_repl_modules[]; /* repl/, in the program */

#endif
