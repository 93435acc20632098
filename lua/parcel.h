/* Lua values packed to cross from one Lua state, and thread, to another:
 * numbers, strings, booleans, tables of those, tensors (their bytes, in blocks
 * that any thread may drop) and channels. */
#ifndef FLL_PARCEL_H
#define FLL_PARCEL_H

#include "fll.h"

/* Memory of tensors under way, or shared. Counted atomically. */
typedef struct fll_block {
  atomic_int rc;
  size_t bytes;
  void *p;
  fl_budget *budget; /* that the bytes count against */
} fll_block;

/* NULL: no memory, or the state's limit does not allow it. */
fll_block *fll_block_new(lua_State *L, fl_lua *st, size_t bytes);
void fll_block_release(fll_block *b);

typedef struct fll_channel fll_channel;
void fll_channel_retain(fll_channel *c);
void fll_channel_release(fll_channel *c);
void fll_channel_push(lua_State *L, fll_channel *c); /* as a Lua value */
fll_channel *fll_channel_test(lua_State *L, int i);  /* NULL: is none */

typedef struct fll_parcel {
  struct fll_parcel *next;
  char *data;
  size_t n, room;
  fl_budget *budget; /* counts the n bytes while it is under way; or NULL */
  struct fll_cargo {
    fll_block *block; /* one of the two */
    fll_channel *channel;
  } * cargo;
  size_t n_cargo, cargo_room;
} fll_parcel;

/* Packs the values at [first, last]; pushes a box that owns the parcel until
 * fll_parcel_take. */
fll_parcel *fll_parcel_pack(lua_State *L, fl_lua *st, int first, int last,
                            const char *where);
fll_parcel *fll_parcel_take(lua_State *L, int box);
void fll_parcel_free(fll_parcel *p);
/* Takes `p` over, pushes a box and then its values; returns how many. */
int fll_parcel_unpack(lua_State *L, fl_lua *st, fll_parcel *p);
/* A tensor in memory that crosses without being copied. */
int fll_shared(lua_State *L);

#endif
