/* Numbers as text, with a decimal point in every locale of the host: what is
 * read again (defaults, expressions, generated source) must not depend on
 * setlocale. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* strtod_l */
#endif
#include "../types.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

/* The "C" locale is a constant of the C library: this allocates nothing. */
static locale_t open_c_locale(void) {
  return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

double fli_strtod(const char *text, char **end) {
  locale_t c = open_c_locale();
  if (!c)
    return strtod(text, end);
  double v = strtod_l(text, end, c);
  freelocale(c);
  return v;
}

int fli_vsnprintf(char *to, size_t room, const char *format, va_list args) {
  locale_t c = open_c_locale(), was = c ? uselocale(c) : (locale_t)0;
  int n = vsnprintf(to, room, format, args);
  if (c) {
    uselocale(was);
    freelocale(c);
  }
  return n;
}

int fli_snprintf(char *to, size_t room, const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = fli_vsnprintf(to, room, format, args);
  va_end(args);
  return n;
}

void *fli_numeric_enter(void) {
  char half[16]; /* localeconv is not safe with threads */
  snprintf(half, sizeof half, "%.1f", 0.5);
  if (strcmp(half, "0.5") == 0)
    return NULL;
  locale_t mine = duplocale(uselocale((locale_t)0));
  locale_t point = mine ? newlocale(LC_NUMERIC_MASK, "C", mine) : (locale_t)0;
  if (point)
    return uselocale(point);
  if (mine)
    freelocale(mine);
  return NULL;
}

void fli_numeric_leave(void *was) {
  if (was)
    freelocale(uselocale(was));
}
