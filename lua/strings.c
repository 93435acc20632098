/* string.find, match, gmatch, gsub, rep, reverse, lower and upper, in section
 * 6.4 of Lua's manual, over patterns.c: Lua's own run to their end, which may
 * be hours away, whatever asks them to stop. */
#include "strings.h"

#include <ctype.h>
#include <lauxlib.h>

void fll_poll(lua_State *L) {
  luaL_checkstack(L, 1, NULL);
  fll_getkey(L, FLL_STATE);
  fl_lua *st = lua_touserdata(L, -1);
  lua_pop(L, 1);
  if (st && st->rt && fl_runtime_interrupted(st->rt))
    fll_error(L, "interrupted!");
}

/* --- what was matched --- */

/* Capture k of a match [s, end): its text, or its place with
 * FLL_POSITION_CAPTURE as the length. Without captures the first is the whole
 * match. */
static const char *capture(fll_pattern *m, int k, const char *s,
                           const char *end, ptrdiff_t *length) {
  if (k >= m->captures) {
    if (k != 0)
      luaL_error(m->L, "invalid capture index %%%d", k + 1);
    *length = end - s;
    return s;
  }
  *length = m->capture[k].length;
  if (*length == FLL_OPEN_CAPTURE)
    luaL_error(m->L, "unfinished capture");
  return m->capture[k].at;
}

static void push_capture(fll_pattern *m, int k, const char *s,
                         const char *end) {
  ptrdiff_t length;
  const char *at = capture(m, k, s, end, &length);
  if (length == FLL_POSITION_CAPTURE)
    lua_pushinteger(m->L, at - m->subject + 1);
  else
    lua_pushlstring(m->L, at, (size_t)length);
}

/* All of them; the number that was pushed. */
static int push_captures(fll_pattern *m, const char *s, const char *end) {
  int n = m->captures == 0 ? 1 : m->captures;
  luaL_checkstack(m->L, n, "too many captures");
  for (int k = 0; k < n; k++)
    push_capture(m, k, s, end);
  return n;
}

/* --- find, match --- */

/* A place that counts from 1, or from the end, as one from 0. */
static size_t place(lua_Integer i, size_t size) {
  if (i > 0)
    return (size_t)i - 1;
  if (i == 0 || i < -(lua_Integer)size)
    return 0;
  return size + (size_t)i;
}

/* All characters with a meaning lie between 32 and 95. */
#define MARK(c) (UINT64_C(1) << ((c)-32))

static bool is_plain(const char *p, size_t size) {
  const uint64_t marks = MARK('^') | MARK('$') | MARK('*') | MARK('+') |
                         MARK('?') | MARK('.') | MARK('(') | MARK('[') |
                         MARK('%') | MARK('-');
  for (size_t k = 0; k < size; k++) {
    unsigned c = (unsigned char)p[k] - 32u;
    if (c < 64 && (marks >> c & 1))
      return false;
  }
  return true;
}

static int search(lua_State *L, bool find) {
  size_t size, length;
  const char *s = luaL_checklstring(L, 1, &size);
  const char *p = luaL_checklstring(L, 2, &length);
  size_t from = place(luaL_optinteger(L, 3, 1), size);
  if (from > size) {
    luaL_pushfail(L);
    return 1;
  }
  const char *at = s + from, *end = s + size;
  if (find && (lua_toboolean(L, 4) || is_plain(p, length))) {
    ptrdiff_t left = FLL_STRIDE;
    at = fll_find_text(L, &left, at, end, p, length);
    if (!at) {
      luaL_pushfail(L);
      return 1;
    }
    lua_pushinteger(L, at - s + 1);
    lua_pushinteger(L, at - s + (lua_Integer)length);
    return 2;
  }
  fll_pattern m;
  bool anchored = *p == '^';
  fll_pattern_set(&m, L, s, size, p + anchored, length - anchored);
  do {
    if (!anchored && !(at = fll_pattern_seek(&m, at)))
      break;
    const char *found = fll_pattern_match(&m, at);
    if (found && !find)
      return push_captures(&m, at, found);
    if (found) {
      lua_pushinteger(L, at - s + 1);
      lua_pushinteger(L, found - s);
      return 2 + (m.captures ? push_captures(&m, NULL, NULL) : 0);
    }
  } while (at++ < end && !anchored);
  luaL_pushfail(L);
  return 1;
}

static int string_find(lua_State *L) {
  return search(L, true);
}

static int string_match(lua_State *L) {
  return search(L, false);
}

/* --- gmatch --- */

typedef struct iteration {
  fll_pattern m;
  const char *at, *last; /* where to go on; the end of the last match */
} iteration;

/* Upvalues: subject, pattern, iteration. */
static int next_match(lua_State *L) {
  iteration *g = lua_touserdata(L, lua_upvalueindex(3));
  fll_pattern *m = &g->m;
  m->L = L;
  for (const char *s = g->at; s <= m->subject_end; s++) {
    s = fll_pattern_seek(m, s);
    if (!s)
      break;
    const char *end = fll_pattern_match(m, s);
    if (end && end != g->last) {
      g->at = g->last = end;
      return push_captures(m, s, end);
    }
  }
  return 0;
}

static int string_gmatch(lua_State *L) {
  size_t size, length;
  const char *s = luaL_checklstring(L, 1, &size);
  const char *p = luaL_checklstring(L, 2, &length);
  size_t from = place(luaL_optinteger(L, 3, 1), size);
  lua_settop(L, 2);
  iteration *g = lua_newuserdatauv(L, sizeof *g, 0);
  fll_pattern_set(&g->m, L, s, size, p, length);
  g->at = from > size ? s + size + 1 : s + from;
  g->last = NULL;
  lua_pushcclosure(L, next_match, 3);
  return 1;
}

/* --- gsub --- */

static void add_capture(fll_pattern *m, luaL_Buffer *b, int k, const char *s,
                        const char *end) {
  ptrdiff_t length;
  const char *at = capture(m, k, s, end, &length);
  if (length == FLL_POSITION_CAPTURE) {
    lua_pushinteger(m->L, at - m->subject + 1);
    luaL_addvalue(b);
  } else {
    luaL_addlstring(b, at, (size_t)length);
  }
}

/* Adds what the text at index 3 makes of a match. */
static void add_text(fll_pattern *m, luaL_Buffer *b, const char *s,
                     const char *end) {
  lua_State *L = m->L;
  size_t size;
  const char *text = lua_tolstring(L, 3, &size), *stop = text + size;
  for (const char *p; (p = memchr(text, '%', (size_t)(stop - text)));) {
    luaL_addlstring(b, text, (size_t)(p - text));
    int c = (unsigned char)*++p;
    if (c == '%') {
      luaL_addchar(b, '%');
    } else if (c == '0') {
      luaL_addlstring(b, s, (size_t)(end - s));
    } else if (isdigit(c)) {
      add_capture(m, b, c - '1', s, end);
    } else {
      luaL_error(L, "invalid use of '%c' in replacement string", '%');
    }
    text = p + 1;
  }
  luaL_addlstring(b, text, (size_t)(stop - text));
}

/* Adds what stands for a match; false: it stays as it is. */
static bool add_value(fll_pattern *m, luaL_Buffer *b, const char *s,
                      const char *end, int type) {
  lua_State *L = m->L;
  if (type == LUA_TFUNCTION) {
    lua_pushvalue(L, 3);
    int n = push_captures(m, s, end);
    lua_call(L, n, 1);
  } else if (type == LUA_TTABLE) {
    push_capture(m, 0, s, end);
    lua_gettable(L, 3);
  } else {
    add_text(m, b, s, end);
    return true;
  }
  if (!lua_toboolean(L, -1)) {
    lua_pop(L, 1);
    luaL_addlstring(b, s, (size_t)(end - s));
    return false;
  }
  if (!lua_isstring(L, -1))
    luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
  luaL_addvalue(b);
  return true;
}

static int string_gsub(lua_State *L) {
  size_t size, length;
  const char *s = luaL_checklstring(L, 1, &size), *end = s + size;
  const char *p = luaL_checklstring(L, 2, &length);
  int type = lua_type(L, 3);
  lua_Integer most = luaL_optinteger(L, 4, (lua_Integer)size + 1), n = 0;
  bool anchored = *p == '^', changed = false;
  if (type != LUA_TNUMBER && type != LUA_TSTRING && type != LUA_TFUNCTION &&
      type != LUA_TTABLE)
    return luaL_typeerror(L, 3, "string/function/table");
  fll_pattern m;
  luaL_Buffer b;
  fll_pattern_set(&m, L, s, size, p + anchored, length - anchored);
  luaL_buffinit(L, &b);
  const char *kept = s; /* what is not in the buffer yet */
  for (const char *last = NULL; n < most && (!anchored || !last);) {
    if (!anchored && !(s = fll_pattern_seek(&m, s)))
      break;
    const char *found = fll_pattern_match(&m, s);
    if (found && found != last) {
      n++;
      luaL_addlstring(&b, kept, (size_t)(s - kept));
      changed |= add_value(&m, &b, s, found, type);
      kept = s = last = found;
    } else if (s < end && !anchored) {
      s++;
    } else {
      break;
    }
  }
  if (changed) {
    luaL_addlstring(&b, kept, (size_t)(end - kept));
    luaL_pushresult(&b);
  } else {
    lua_pushvalue(L, 1);
  }
  lua_pushinteger(L, n);
  return 2;
}

/* --- long strings --- */

/* Fills [p + done, p + size) with what repeats after `done` bytes. */
static void repeat(lua_State *L, char *p, size_t done, size_t size) {
  ptrdiff_t left = FLL_STRIDE;
  size_t most = 16 * FLL_STRIDE;
  for (size_t back = done; done < size;) {
    size_t n = back < size - done ? back : size - done;
    if (n > most)
      n = most;
    memcpy(p + done, p + done - back, n);
    done += n;
    if (back < most && 2 * back <= done)
      back *= 2;
    fll_count(L, &left, (ptrdiff_t)n / 4);
  }
}

static int string_rep(lua_State *L) {
  size_t size, between;
  const char *s = luaL_checklstring(L, 1, &size);
  lua_Integer n = luaL_checkinteger(L, 2);
  const char *separator = luaL_optlstring(L, 3, "", &between);
  size_t one = size + between, most = INT_MAX;
  if (n <= 0) {
    lua_pushliteral(L, "");
    return 1;
  }
  if (one < size || one > most / (size_t)n)
    return luaL_error(L, "resulting string too large");
  luaL_Buffer b;
  size_t total = (size_t)n * size + (size_t)(n - 1) * between;
  char *p = luaL_buffinitsize(L, &b, total);
  memcpy(p, s, size);
  if (n > 1) {
    memcpy(p + size, separator, between);
    repeat(L, p, one, total);
  }
  luaL_pushresultsize(&b, total);
  return 1;
}

static int change_case(lua_State *L, bool upper) {
  size_t size;
  const char *s = luaL_checklstring(L, 1, &size);
  luaL_Buffer b;
  char *p = luaL_buffinitsize(L, &b, size);
  ptrdiff_t left = FLL_STRIDE;
  for (size_t done = 0; done < size;) {
    size_t stop = size - done < FLL_STRIDE ? size : done + FLL_STRIDE;
    fll_count(L, &left, (ptrdiff_t)(stop - done));
    if (upper)
      for (; done < stop; done++)
        p[done] = (char)toupper((unsigned char)s[done]);
    else
      for (; done < stop; done++)
        p[done] = (char)tolower((unsigned char)s[done]);
  }
  luaL_pushresultsize(&b, size);
  return 1;
}

static int string_lower(lua_State *L) {
  return change_case(L, false);
}

static int string_upper(lua_State *L) {
  return change_case(L, true);
}

static int string_reverse(lua_State *L) {
  size_t size;
  const char *s = luaL_checklstring(L, 1, &size);
  luaL_Buffer b;
  char *p = luaL_buffinitsize(L, &b, size);
  ptrdiff_t left = FLL_STRIDE;
  for (size_t done = 0; done < size;) {
    size_t stop = size - done < FLL_STRIDE ? size : done + FLL_STRIDE;
    fll_count(L, &left, (ptrdiff_t)(stop - done));
    for (; done < stop; done++)
      p[done] = s[size - 1 - done];
  }
  luaL_pushresultsize(&b, size);
  return 1;
}

void fll_own_strings(lua_State *L) {
  static const luaL_Reg functions[] = {{"find", string_find},
                                       {"match", string_match},
                                       {"gmatch", string_gmatch},
                                       {"gsub", string_gsub},
                                       {"rep", string_rep},
                                       {"lower", string_lower},
                                       {"upper", string_upper},
                                       {"reverse", string_reverse},
                                       {NULL, NULL}};
  lua_getglobal(L, LUA_STRLIBNAME);
  luaL_setfuncs(L, functions, 0);
  lua_pop(L, 1);
}
