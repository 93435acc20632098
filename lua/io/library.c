/* Opening a shared library and reading a table of its functions. */
#include "library.h"

#include <dlfcn.h>
#include <string.h>

void *fll_library_open(const char *name, const char *other) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library && other)
    library = dlopen(other, RTLD_NOW | RTLD_LOCAL);
  return library;
}

bool fll_library_bind(void *library, const fll_symbol *symbols, size_t n) {
  for (size_t i = 0; i < n; i++) {
    void *p = dlsym(library, symbols[i].name);
    if (!p)
      return false;
    memcpy(symbols[i].place, &p, sizeof p);
  }
  return true;
}
