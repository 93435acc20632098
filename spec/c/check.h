/* What the C tests share: CHECK counts and goes on, so that one run shows all
 * that is wrong; a test's main ends with `return check_done("alloc");`. */
#ifndef SPEC_CHECK_H
#define SPEC_CHECK_H

#include <stdio.h>

static int check_failures, check_count;

#define CHECK(what, ...)                                                       \
  do {                                                                         \
    check_count++;                                                             \
    if (!(what)) {                                                             \
      check_failures++;                                                        \
      fprintf(stderr, "%s:%d: %s", __FILE__, __LINE__, #what);                 \
      fprintf(stderr, "  " __VA_ARGS__);                                       \
      fprintf(stderr, "\n");                                                   \
    }                                                                          \
  } while (0)

static inline int check_done(const char *name) {
  printf("%s: %d checks, %d failed\n", name, check_count, check_failures);
  return check_failures ? 1 : 0;
}

#endif
