/* Libraries that are loaded when a script first needs them. */
#ifndef FLL_LIBRARY_H
#define FLL_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct fll_symbol {
  void *place; /* of a pointer to the function */
  const char *name;
} fll_symbol;

/* The library of that name, or of the other, which may be NULL; NULL if
 * neither opens. */
void *fll_library_open(const char *name, const char *other);

/* Sets the n places; false if the library lacks one of the functions. */
bool fll_library_bind(void *library, const fll_symbol *symbols, size_t n);

#endif
