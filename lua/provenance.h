/* Where operands were made, see provenance.c. */
#ifndef FLL_PROVENANCE_H
#define FLL_PROVENANCE_H

#include "fll.h"

fl_site fll_made(fl_tensor *t); /* by which line, or 0 */
/* For the message on top of the stack, which is about to be raised. */
void fll_note_operands(lua_State *L, fl_lua *st);
void fll_provenance_core(lua_State *L);

#endif
