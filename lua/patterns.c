/* Lua's patterns, as section 6.4.1 of its reference manual defines them: one
 * item after the other, with backtracking. What is captured, and what a program
 * gets to see of it, is in strings.c. */
#include "strings.h"

#include <ctype.h>

#define DEPTH 200 /* nested calls, as many as Lua allows */

static const char *match(fll_pattern *m, const char *s, const char *p);

/* --- single characters --- */

/* Whether c is in the class %letter; other letters stand for themselves. */
static inline bool in_class(int c, int letter) {
  int in;
  switch (letter | 0x20) {
  case 'a':
    in = isalpha(c);
    break;
  case 'c':
    in = iscntrl(c);
    break;
  case 'd':
    in = isdigit(c);
    break;
  case 'g':
    in = isgraph(c);
    break;
  case 'l':
    in = islower(c);
    break;
  case 'p':
    in = ispunct(c);
    break;
  case 's':
    in = isspace(c);
    break;
  case 'u':
    in = isupper(c);
    break;
  case 'w':
    in = isalnum(c);
    break;
  case 'x':
    in = isxdigit(c);
    break;
  case 'z': /* of older versions, not in the manual any more */
    in = c == 0;
    break;
  default:
    return letter == c;
  }
  if (letter >= 'a')
    return in != 0;
  return letter >= 'A' ? !in : letter == c; /* 0x01 | 0x20 is no letter */
}

/* Whether c is in the set that begins at `[` and ends with `]` at `last`. */
static inline bool in_set(int c, const char *p, const char *last) {
  bool yes = true;
  p++;
  if (*p == '^') {
    yes = false;
    p++;
  }
  while (p < last) {
    int low = (unsigned char)*p;
    if (low == '%') {
      if (in_class(c, (unsigned char)p[1]))
        return yes;
      p += 2;
    } else if (p[1] == '-' && p + 2 < last) {
      if (low <= c && c <= (unsigned char)p[2])
        return yes;
      p += 3;
    } else {
      if (low == c)
        return yes;
      p++;
    }
  }
  return !yes;
}

/* The pattern behind the single character, class or set at p. */
static const char *item_end(fll_pattern *m, const char *p) {
  const char *end = m->pattern_end;
  if (*p == '%') {
    if (p + 1 == end)
      luaL_error(m->L, "malformed pattern (ends with '%%')");
    return p + 2;
  }
  if (*p != '[')
    return p + 1;
  p++;
  if (*p == '^')
    p++;
  /* the first character belongs to the set, even `]` */
  do {
    if (p == end)
      luaL_error(m->L, "malformed pattern (missing ']')");
    if (*p++ == '%' && p < end)
      p++;
  } while (*p != ']');
  return p + 1;
}

static inline bool item_takes(const char *p, const char *item_last, int c) {
  switch (*p) {
  case '.':
    return true;
  case '%':
    return in_class(c, (unsigned char)p[1]);
  case '[':
    return in_set(c, p, item_last);
  default:
    return (unsigned char)*p == c;
  }
}

static inline bool takes(const fll_pattern *m, const char *s, const char *p,
                         const char *end) {
  return s < m->subject_end && item_takes(p, end - 1, (unsigned char)*s);
}

/* --- repetitions --- */

/* The end of the longest run of the item from s on. */
static const char *run_end(fll_pattern *m, const char *s, const char *p,
                           const char *end) {
  if (*p == '.')
    return m->subject_end;
  while (s < m->subject_end) {
    const char *stop = m->subject_end;
    if (stop - s > FLL_STRIDE / 4)
      stop = s + FLL_STRIDE / 4;
    const char *from = s;
    if (*p == '[')
      while (s < stop && in_set((unsigned char)*s, p, end - 1))
        s++;
    else if (*p == '%')
      while (s < stop && in_class((unsigned char)*s, (unsigned char)p[1]))
        s++;
    else
      while (s < stop && *s == *p)
        s++;
    fll_count(m->L, &m->left, s - from);
    if (s < stop)
      break;
  }
  return s;
}

/* `*` and `+`: as many as there are, then one less at a time down to `least`.
 */
static const char *longest(fll_pattern *m, const char *s, const char *least,
                           const char *p, const char *end) {
  s = run_end(m, s, p, end);
  for (; s >= least; s--) {
    const char *found = match(m, s, end + 1);
    if (found)
      return found;
  }
  return NULL;
}

/* `-`: as few as possible. */
static const char *shortest(fll_pattern *m, const char *s, const char *p,
                            const char *end) {
  for (;; s++) {
    const char *found = match(m, s, end + 1);
    if (found)
      return found;
    if (!takes(m, s, p, end))
      return NULL;
  }
}

/* --- captures, %b, %f, %1 --- */

static const char *open_capture(fll_pattern *m, const char *s, const char *p,
                                ptrdiff_t length) {
  int k = m->captures;
  if (k >= FLL_CAPTURES)
    luaL_error(m->L, "too many captures");
  m->capture[k].at = s;
  m->capture[k].length = length;
  m->captures = k + 1;
  const char *found = match(m, s, p);
  if (!found)
    m->captures--;
  return found;
}

static const char *close_capture(fll_pattern *m, const char *s, const char *p) {
  int k = m->captures - 1;
  while (k >= 0 && m->capture[k].length != FLL_OPEN_CAPTURE)
    k--;
  if (k < 0)
    luaL_error(m->L, "invalid pattern capture");
  m->capture[k].length = s - m->capture[k].at;
  const char *found = match(m, s, p);
  if (!found)
    m->capture[k].length = FLL_OPEN_CAPTURE;
  return found;
}

/* The end of the text at s that equals the capture with this digit. */
static const char *match_again(fll_pattern *m, const char *s, int digit) {
  int k = digit - '1';
  if (k < 0 || k >= m->captures || m->capture[k].length == FLL_OPEN_CAPTURE)
    luaL_error(m->L, "invalid capture index %%%d", k + 1);
  ptrdiff_t size = m->capture[k].length;
  if (size < 0 || size > m->subject_end - s) /* a position equals nothing */
    return NULL;
  fll_count(m->L, &m->left, size / 16);
  return memcmp(m->capture[k].at, s, (size_t)size) == 0 ? s + size : NULL;
}

/* %bxy, with x and y at p: the end of the balanced text at s. */
static const char *balance(fll_pattern *m, const char *s, const char *p) {
  if (m->pattern_end - p < 2)
    luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
  if (s >= m->subject_end || *s != *p)
    return NULL;
  char open = p[0], close = p[1];
  int64_t depth = 1;
  for (s++; s < m->subject_end;) {
    const char *from = s, *stop = m->subject_end;
    if (stop - s > FLL_STRIDE / 4)
      stop = s + FLL_STRIDE / 4;
    for (; s < stop; s++) {
      if (*s == close) {
        if (--depth == 0)
          return s + 1;
      } else if (*s == open) {
        depth++;
      }
    }
    fll_count(m->L, &m->left, s - from);
  }
  return NULL;
}

/* %f[set], with the set at p: whether a run of the set begins at s. */
static bool frontier(fll_pattern *m, const char *s, const char *p,
                     const char **end) {
  if (*p != '[')
    luaL_error(m->L, "missing '[' after '%%f' in pattern");
  *end = item_end(m, p);
  int before = s == m->subject ? 0 : (unsigned char)s[-1];
  return !in_set(before, p, *end - 1) && in_set((unsigned char)*s, p, *end - 1);
}

/* --- sequences --- */

/* %b, %f and %0 to %9: moves s and p on. False: p is another item. */
static bool match_special(fll_pattern *m, const char **s, const char **p) {
  const char *end;
  int kind = (unsigned char)(*p)[1];
  if (kind == 'b') {
    *s = balance(m, *s, *p + 2);
    *p += 4;
  } else if (kind == 'f') {
    bool yes = frontier(m, *s, *p + 2, &end);
    *s = yes ? *s : NULL;
    *p = end;
  } else if (isdigit(kind)) {
    *s = match_again(m, *s, kind);
    *p += 2;
  } else {
    return false;
  }
  return true;
}

/* The end of the match at s of the pattern from p on, or NULL. Calls itself
 * only where it may have to come back. */
static const char *match_items(fll_pattern *m, const char *s, const char *p) {
  while (s && p != m->pattern_end) {
    fll_count(m->L, &m->left, 4);
    if (*p == '(')
      return p[1] == ')' ? open_capture(m, s, p + 2, FLL_POSITION_CAPTURE)
                         : open_capture(m, s, p + 1, FLL_OPEN_CAPTURE);
    if (*p == ')')
      return close_capture(m, s, p + 1);
    if (*p == '$' && p + 1 == m->pattern_end)
      return s == m->subject_end ? s : NULL;
    if (*p == '%' && match_special(m, &s, &p))
      continue;
    const char *end = item_end(m, p);
    bool one = takes(m, s, p, end);
    switch (*end) {
    case '*':
    case '-':
      if (one)
        return *end == '*' ? longest(m, s, s, p, end) : shortest(m, s, p, end);
      p = end + 1;
      break;
    case '+':
      return one ? longest(m, s, s + 1, p, end) : NULL;
    case '?': {
      const char *found = one ? match(m, s + 1, end + 1) : NULL;
      if (found)
        return found;
      p = end + 1;
      break;
    }
    default:
      if (!one)
        return NULL;
      s++;
      p = end;
    }
  }
  return s;
}

static inline const char *match(fll_pattern *m, const char *s, const char *p) {
  if (m->depth == 0)
    luaL_error(m->L, "pattern too complex");
  m->depth--;
  s = match_items(m, s, p);
  m->depth++;
  return s;
}

void fll_pattern_set(fll_pattern *m, lua_State *L, const char *subject,
                     size_t subject_size, const char *pattern,
                     size_t pattern_size) {
  m->L = L;
  m->subject = subject;
  m->subject_end = subject + subject_size;
  m->pattern = pattern;
  m->pattern_end = pattern + pattern_size;
  m->left = FLL_STRIDE;
  m->first = m->first_end = NULL;
}

const char *fll_pattern_match(fll_pattern *m, const char *s) {
  m->captures = 0;
  m->depth = DEPTH;
  return match(m, s, m->pattern);
}

/* --- plain text --- */

static const char *find_byte(lua_State *L, ptrdiff_t *left, const char *s,
                             const char *end, int c) {
  while (s < end) {
    size_t size = end - s > 16 * FLL_STRIDE ? 16 * FLL_STRIDE : end - s;
    const char *found = memchr(s, c, size);
    fll_count(L, left, (found ? found - s : (ptrdiff_t)size) / 16);
    if (found)
      return found;
    s += size;
  }
  return NULL;
}

/* Finds the single character that every match begins with, if there is one. */
static void find_first(fll_pattern *m) {
  const char *p = m->pattern, *stop = m->pattern_end;
  while (p < stop && *p == '(' && p - m->pattern < 4)
    p++;
  m->first = m->first_end = p;
  if (p == stop || memchr("().$", *p, 4))
    return;
  if (*p == '%' && (isdigit((unsigned char)p[1]) || p[1] == 'b' || p[1] == 'f'))
    return;
  const char *end = item_end(m, p);
  if (!memchr("*?-", *end, 3))
    m->first_end = end;
}

const char *fll_pattern_skip(fll_pattern *m, const char *s) {
  if (!m->first)
    find_first(m);
  const char *p = m->first, *last = m->first_end - 1, *end = m->subject_end;
  if (last < p)
    return s;
  if (*p != '%' && *p != '[')
    return find_byte(m->L, &m->left, s, end, *p);
  while (s < end) {
    const char *from = s, *stop = end;
    if (stop - s > FLL_STRIDE / 4)
      stop = s + FLL_STRIDE / 4;
    if (*p == '%')
      while (s < stop && !in_class((unsigned char)*s, (unsigned char)p[1]))
        s++;
    else
      while (s < stop && !in_set((unsigned char)*s, p, last))
        s++;
    fll_count(m->L, &m->left, s - from);
    if (s < stop)
      return s;
  }
  return NULL;
}

const char *fll_find_text(lua_State *L, ptrdiff_t *left, const char *s,
                          const char *end, const char *text, size_t size) {
  if (size == 0)
    return s;
  if (size > (size_t)(end - s))
    return NULL;
  end -= size - 1; /* of the places where it may begin */
  while ((s = find_byte(L, left, s, end, *text))) {
    if (memcmp(s + 1, text + 1, size - 1) == 0)
      return s;
    fll_count(L, left, 4 + (ptrdiff_t)(size / 16));
    s++;
  }
  return NULL;
}
