/* JSON: read by jansson (64-bit integers exact, duplicate keys refused, depth
 * limited), written here, with sorted keys and the shortest digits that give
 * the same number back. null is json.null; an empty table is {} unless it is
 * marked by json.array, as empty arrays that were read are. */
#include "../fll.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DEPTH 500

/* Upvalue 3 of the functions: the metatable that marks arrays. */

/* --- reading --- */

static void json_push(lua_State *L, const json_t *v, int mark);

static void push_array(lua_State *L, const json_t *v, int mark) {
  size_t n = json_array_size(v);
  lua_createtable(L, n < 1 << 24 ? (int)n : 0, 0);
  for (size_t i = 0; i < n; i++) {
    json_push(L, json_array_get(v, i), mark);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  if (n == 0) {
    lua_pushvalue(L, mark);
    lua_setmetatable(L, -2);
  }
}

static void push_object(lua_State *L, const json_t *v, int mark) {
  lua_createtable(L, 0, (int)json_object_size(v));
  json_t *object = (json_t *)(uintptr_t)v;
  for (void *i = json_object_iter(object); i;
       i = json_object_iter_next(object, i)) {
    lua_pushstring(L, json_object_iter_key(i));
    json_push(L, json_object_iter_value(i), mark);
    lua_rawset(L, -3);
  }
}

static void json_push(lua_State *L, const json_t *v, int mark) {
  luaL_checkstack(L, 6, "JSON is nested too deep");
  switch (json_typeof(v)) {
  case JSON_OBJECT:
    push_object(L, v, mark);
    break;
  case JSON_ARRAY:
    push_array(L, v, mark);
    break;
  case JSON_STRING:
    lua_pushlstring(L, json_string_value(v), json_string_length(v));
    break;
  case JSON_INTEGER:
    lua_pushinteger(L, json_integer_value(v));
    break;
  case JSON_REAL:
    lua_pushnumber(L, json_real_value(v));
    break;
  case JSON_NULL:
    lua_pushlightuserdata(L, NULL);
    break;
  default:
    lua_pushboolean(L, json_is_true(v));
  }
}

static void json_release(void *p) {
  json_decref(p);
}

/* decode(text): the value, or nil and where it went wrong. */
static int decode(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  json_error_t e;
  fll_box *b = fll_newbox(L, json_release);
  b->p = (char *)json_loadb(
      text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
  if (!b->p)
    return fll_failed(L, "JSON: %s (line %d, column %d, byte %d)", e.text,
                      e.line, e.column, e.position);
  json_push(L, (json_t *)(void *)b->p, FLL_OWN);
  fll_emptybox(b);
  return 1;
}

/* --- writing --- */

typedef struct writer {
  lua_State *L;
  fll_box *out;
  int mark, indent, depth;
} writer;

static void json_add(writer *w, const char *s) {
  fll_boxadd(w->L, w->out, s, strlen(s));
}

static void new_line(writer *w) {
  if (w->indent < 0)
    return;
  json_add(w, "\n");
  for (int i = 0; i < w->indent * w->depth; i++)
    json_add(w, " ");
}

/* The length of the UTF-8 character at s, 0 if it is none. */
static size_t utf8_length(const unsigned char *s, size_t n) {
  size_t k = s[0] < 0x80   ? 1
             : s[0] < 0xc2 ? 0
             : s[0] < 0xe0 ? 2
             : s[0] < 0xf0 ? 3
             : s[0] < 0xf5 ? 4
                           : 0;
  if (k > n)
    return 0;
  for (size_t i = 1; i < k; i++)
    if ((s[i] & 0xc0) != 0x80)
      return 0;
  bool overlong =
      (s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xf0 && s[1] < 0x90);
  bool outside = (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf4 && s[1] > 0x8f);
  return k > 1 && (overlong || outside) ? 0 : k;
}

static void write_string(writer *w, const char *text, size_t n) {
  const unsigned char *s = (const unsigned char *)text;
  char hex[8];
  json_add(w, "\"");
  for (size_t i = 0, k; i < n; i += k) {
    k = utf8_length(s + i, n - i);
    if (k == 0)
      fll_error(w->L, "json.encode: a string is not UTF-8 (byte %zu)", i + 1);
    if (s[i] == '"' || s[i] == '\\') {
      char escaped[3] = {'\\', (char)s[i], 0};
      json_add(w, escaped);
    } else if (s[i] == '\n') {
      json_add(w, "\\n");
    } else if (s[i] == '\t') {
      json_add(w, "\\t");
    } else if (s[i] < 0x20 || s[i] == 0x7f) {
      snprintf(hex, sizeof hex, "\\u%04x", s[i]);
      json_add(w, hex);
    } else {
      fll_boxadd(w->L, w->out, s + i, k);
    }
  }
  json_add(w, "\"");
}

static void write_number(writer *w, int i) {
  char text[40];
  if (lua_isinteger(w->L, i)) {
    snprintf(text, sizeof text, "%lld", (long long)lua_tointeger(w->L, i));
    json_add(w, text);
    return;
  }
  double v = lua_tonumber(w->L, i);
  if (!isfinite(v))
    fll_error(w->L, "json.encode: JSON has no %s",
              isnan(v) ? "NaN" : "infinity");
  for (int digits = 15; digits <= 17; digits++) {
    fli_snprintf(text, sizeof text, "%.*g", digits, v);
    if (fli_strtod(text, NULL) == v)
      break;
  }
  bool whole = true;
  for (char *s = text; *s; s++)
    whole = whole && (*s == '-' || (*s >= '0' && *s <= '9'));
  json_add(w, text);
  if (whole)
    json_add(w, ".0");
}

static void write_value(writer *w, int i);

static void write_array(writer *w, int i) {
  lua_Integer n = (lua_Integer)lua_rawlen(w->L, i);
  json_add(w, "[");
  w->depth++;
  for (lua_Integer k = 1; k <= n; k++) {
    if (k > 1)
      json_add(w, w->indent < 0 ? "," : ", ");
    lua_rawgeti(w->L, i, k);
    write_value(w, lua_gettop(w->L));
    lua_pop(w->L, 1);
  }
  w->depth--;
  json_add(w, "]");
}

typedef struct key {
  const char *s;
  size_t n;
} key;

static int by_bytes(const void *a, const void *b) {
  const key *x = a, *y = b;
  int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
  return c ? c : (x->n > y->n) - (x->n < y->n);
}

static size_t count_keys(writer *w, int i) {
  size_t n = 0;
  lua_pushnil(w->L);
  while (lua_next(w->L, i)) {
    lua_pop(w->L, 1);
    if (lua_type(w->L, -1) != LUA_TSTRING)
      fll_error(w->L, "json.encode: keys of an object are strings, got %s",
                fll_typename(w->L, -1));
    n++;
  }
  return n;
}

static void write_object(writer *w, int i) {
  lua_State *L = w->L;
  size_t n = count_keys(w, i), k = 0;
  key *keys = fll_scratch(L, (n + 1) * sizeof *keys);
  lua_pushnil(L);
  while (lua_next(L, i)) {
    lua_pop(L, 1);
    keys[k].s = lua_tolstring(L, -1, &keys[k].n);
    k++;
  }
  qsort(keys, n, sizeof *keys, by_bytes);
  json_add(w, "{");
  w->depth++;
  for (k = 0; k < n; k++) {
    if (strlen(keys[k].s) != keys[k].n) /* decode would refuse it */
      fll_error(L, "json.encode: a name has a zero byte: \"%s\\0...\"",
                keys[k].s);
    if (k)
      json_add(w, ",");
    new_line(w);
    write_string(w, keys[k].s, keys[k].n);
    json_add(w, w->indent < 0 ? ":" : ": ");
    lua_pushlstring(L, keys[k].s, keys[k].n);
    lua_rawget(L, i);
    write_value(w, lua_gettop(L));
    lua_pop(L, 1);
  }
  w->depth--;
  if (n)
    new_line(w);
  json_add(w, "}");
  lua_pop(L, 1);
}

static bool is_array(writer *w, int i) {
  bool marked = false;
  if (lua_getmetatable(w->L, i)) {
    marked = lua_rawequal(w->L, -1, w->mark);
    lua_pop(w->L, 1);
  }
  lua_Integer n = (lua_Integer)lua_rawlen(w->L, i), found = 0;
  if (n == 0)
    return marked;
  lua_pushnil(w->L);
  while (lua_next(w->L, i)) {
    lua_pop(w->L, 1);
    found++;
    if (!lua_isinteger(w->L, -1) || lua_tointeger(w->L, -1) < 1 ||
        lua_tointeger(w->L, -1) > n)
      fll_error(w->L, "json.encode: a table is either a list or has names, "
                      "this one has both (or holes)");
  }
  if (found != n)
    fll_error(w->L, "json.encode: a list has holes");
  return true;
}

static void write_value(writer *w, int i) {
  lua_State *L = w->L;
  size_t n;
  luaL_checkstack(L, 8, "json.encode");
  switch (lua_type(L, i)) {
  case LUA_TSTRING: {
    const char *s = lua_tolstring(L, i, &n);
    write_string(w, s, n);
    break;
  }
  case LUA_TNUMBER:
    write_number(w, i);
    break;
  case LUA_TBOOLEAN:
    json_add(w, lua_toboolean(L, i) ? "true" : "false");
    break;
  case LUA_TTABLE:
    if (w->depth >= MAX_DEPTH)
      fll_error(L,
                "json.encode: nested deeper than %d, or a table that holds "
                "itself",
                MAX_DEPTH);
    if (is_array(w, i))
      write_array(w, i);
    else
      write_object(w, i);
    break;
  case LUA_TLIGHTUSERDATA:
    if (!lua_touserdata(L, i)) {
      json_add(w, "null");
      break;
    } /* fall through */
  default:
    fll_error(L, "json.encode: %s has no form in JSON%s", fll_typename(L, i),
              fll_test(L, i) ? "; x:totable() gives numbers" : "");
  }
}

/* encode(value, {indent = 2}) */
static int encode(lua_State *L) {
  static const char *const options[] = {"indent", NULL};
  luaL_checkany(L, 1);
  lua_settop(L, 2);
  fll_checkoptions(L, 2, "json.encode", options);
  writer w = {L, NULL, FLL_OWN, -1, 0};
  if (fll_option(L, 2, "indent") != LUA_TNIL)
    w.indent = (int)fll_checkint(L, -1, "json.encode", "indent");
  w.out = fll_newbox(L, NULL);
  write_value(&w, 1);
  lua_pushlstring(L, w.out->p, w.out->n);
  fll_emptybox(w.out);
  return 1;
}

static int mark_array(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_pushvalue(L, FLL_OWN);
  lua_setmetatable(L, 1);
  return 1;
}

void fll_json_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"decode", decode}, {"encode", encode}, {"array", mark_array}};
  lua_newtable(L);
  lua_createtable(L, 0, 1);
  lua_pushliteral(L, "json.array");
  lua_setfield(L, -2, "__name");
  for (int i = 0; i < 3; i++) {
    fll_getkey(L, FLL_STATE);
    fll_getkey(L, FLL_TENSOR);
    lua_pushvalue(L, -3);
    lua_pushcclosure(L, functions[i].func, 3);
    lua_setfield(L, -3, functions[i].name);
  }
  lua_pop(L, 1);
  lua_pushlightuserdata(L, NULL);
  lua_setfield(L, -2, "null");
  lua_setfield(L, -2, "json");
}
