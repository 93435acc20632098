/* Functions of Lua's string and table libraries that heed an interrupt. They
 * take the places of Lua's own in states that flare makes; a host's state keeps
 * what the host has put there. They do the same as Lua's own, message for
 * message: spec/c/lua_strings.c compares them. */
#ifndef FLL_STRINGS_H
#define FLL_STRINGS_H

#include "fll.h"

/* Puts them into the libraries of a state of flare's own. */
void fll_own_strings(lua_State *L);
void fll_own_tables(lua_State *L);

/* Raises "interrupted!" if the state of L is to stop; takes a table look-up, so
 * a loop counts by fll_count. */
void fll_poll(lua_State *L);

/* Steps of about a nanosecond each between two polls, and the bytes that a loop
 * over a string may take at once. */
#define FLL_STRIDE 16384

/* `*left` starts as FLL_STRIDE. */
static inline void fll_count(lua_State *L, ptrdiff_t *left, ptrdiff_t steps) {
  *left -= steps;
  if (__builtin_expect(*left < 0, 0)) {
    *left = FLL_STRIDE;
    fll_poll(L);
  }
}

/* --- patterns.c: matching --- */

#define FLL_CAPTURES 32 /* Lua's limit */

/* The length of a capture that is not a text. */
enum { FLL_OPEN_CAPTURE = -1, FLL_POSITION_CAPTURE = -2 };

typedef struct fll_pattern {
  lua_State *L;
  const char *subject, *subject_end; /* the byte behind it is 0 */
  const char *pattern, *pattern_end; /* the same */
  ptrdiff_t left;                    /* steps until the next poll */
  const char *first, *first_end; /* the item that a match must begin with; both
                                  * NULL: not looked for yet; the same: none */
  int depth;                     /* calls that may still nest */
  int captures;
  struct {
    const char *at;
    ptrdiff_t length;
  } capture[FLL_CAPTURES];
} fll_pattern;

void fll_pattern_set(fll_pattern *m, lua_State *L, const char *subject,
                     size_t subject_size, const char *pattern,
                     size_t pattern_size);
/* The end of the match that begins right at s, or NULL. */
const char *fll_pattern_match(fll_pattern *m, const char *s);
const char *fll_pattern_skip(fll_pattern *m, const char *s);
/* The first place from s on where a match may begin, or NULL: most patterns
 * start with a character of some kind. */
static inline const char *fll_pattern_seek(fll_pattern *m, const char *s) {
  if (m->first && m->first == m->first_end)
    return s;
  return fll_pattern_skip(m, s);
}

/* The first occurrence of a text in [s, end), or NULL. */
const char *fll_find_text(lua_State *L, ptrdiff_t *left, const char *s,
                          const char *end, const char *text, size_t size);

#endif
