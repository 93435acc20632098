/* table.concat and sort, in section 6.6 of Lua's manual: the two that take
 * seconds for tables of millions without calling Lua code. */
#include "strings.h"

#include <lauxlib.h>

/* A value that is no table serves if it has these metamethods. */
static void check_table(lua_State *L, bool write) {
  if (lua_istable(L, 1))
    return;
  static const char *const needed[] = {"__index", "__len", "__newindex"};
  int found = 0, wanted = write ? 3 : 2;
  for (int k = 0; k < wanted; k++)
    if (luaL_getmetafield(L, 1, needed[k]) != LUA_TNIL) {
      found++;
      lua_pop(L, 1);
    }
  if (found < wanted)
    luaL_checktype(L, 1, LUA_TTABLE);
}

/* --- concat --- */

static void add_element(lua_State *L, luaL_Buffer *b, lua_Integer i) {
  lua_geti(L, 1, i);
  if (!lua_isstring(L, -1))
    luaL_error(L, "invalid value (%s) at index %I in table for 'concat'",
               luaL_typename(L, -1), (LUAI_UACINT)i);
  luaL_addvalue(b);
}

static int table_concat(lua_State *L) {
  check_table(L, false);
  lua_Integer last = luaL_len(L, 1);
  size_t between;
  const char *separator = luaL_optlstring(L, 2, "", &between);
  lua_Integer i = luaL_optinteger(L, 3, 1);
  last = luaL_optinteger(L, 4, last);
  ptrdiff_t left = FLL_STRIDE;
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  for (; i < last; i++) {
    add_element(L, &b, i);
    luaL_addlstring(&b, separator, between);
    fll_count(L, &left, 16);
  }
  if (i == last)
    add_element(L, &b, i);
  luaL_pushresult(&b);
  return 1;
}

/* --- sort --- */

/* Quicksort after Sedgewick, with the median of the first, middle and last
 * element as the pivot. It compares and exchanges in the same order as Lua's
 * own, so that elements that are equal for the order end up alike. */
#define RANDOM_FROM 100  /* elements */
#define POLL_EVERY  4096 /* a power of 2 */

static inline bool is_less(lua_State *L, int a, int b) {
  if (lua_isnil(L, 2))
    return lua_compare(L, a, b, LUA_OPLT);
  lua_pushvalue(L, 2);
  lua_pushvalue(L, a - 1); /* a and b count from the top */
  lua_pushvalue(L, b - 2);
  lua_call(L, 2, 1);
  bool less = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return less;
}

/* Stores the two elements on the stack: the top one at i, the other at j. */
static void store_two(lua_State *L, lua_Integer i, lua_Integer j) {
  lua_seti(L, 1, i);
  lua_seti(L, 1, j);
}

/* Exchanges elements i < j if they are the wrong way round. */
static bool order_two(lua_State *L, lua_Integer i, lua_Integer j) {
  lua_geti(L, 1, i);
  lua_geti(L, 1, j);
  bool wrong = is_less(L, -1, -2);
  if (wrong)
    store_two(L, i, j);
  else
    lua_pop(L, 2);
  return wrong;
}

/* Divides [low, high], whose last but one element is the pivot, also on top of
 * the stack. Returns the place of the pivot and pops it. */
static lua_Integer divide(lua_State *L, lua_Integer low, lua_Integer high) {
  lua_Integer i = low, j = high - 1;
  for (;;) {
    while (lua_geti(L, 1, ++i), is_less(L, -1, -2)) {
      if (i == high - 1)
        luaL_error(L, "invalid order function for sorting");
      if (i % POLL_EVERY == 0)
        fll_poll(L);
      lua_pop(L, 1);
    }
    while (lua_geti(L, 1, --j), is_less(L, -3, -1)) {
      if (j < i)
        luaL_error(L, "invalid order function for sorting");
      if (j % POLL_EVERY == 0)
        fll_poll(L);
      lua_pop(L, 1);
    }
    if (j < i)
      break;
    if (i % POLL_EVERY == 0 || j % POLL_EVERY == 0)
      fll_poll(L);
    store_two(L, i, j);
  }
  lua_pop(L, 1);
  store_two(L, high - 1, i);
  return i;
}

/* Sorts [low, high]; with random = 0 the middle is good enough. */
static void sort_range(lua_State *L, lua_Integer low, lua_Integer high,
                       unsigned long long random) {
  while (low < high) {
    order_two(L, low, high);
    if (high - low == 1)
      break;
    lua_Integer middle = (low + high) / 2, quarter = (high - low) / 4;
    if (random && high - low > RANDOM_FROM)
      middle = low + quarter + (lua_Integer)(random % (2 * quarter));
    if (!order_two(L, low, middle))
      order_two(L, middle, high);
    if (high - low == 2)
      break;
    lua_geti(L, 1, middle);
    lua_pushvalue(L, -1);
    lua_geti(L, 1, high - 1);
    store_two(L, middle, high - 1);
    middle = divide(L, low, high);
    lua_Integer smaller;
    if (middle - low < high - middle) {
      sort_range(L, low, middle - 1, random);
      smaller = middle - low;
      low = middle + 1;
    } else {
      sort_range(L, middle + 1, high, random);
      smaller = high - middle;
      high = middle - 1;
    }
    if ((high - low) / 128 > smaller)
      random = random * 6364136223846793005u + 1442695040888963407u;
  }
}

static int table_sort(lua_State *L) {
  check_table(L, true);
  lua_Integer n = luaL_len(L, 1);
  if (n < 2)
    return 0;
  luaL_argcheck(L, n < INT_MAX, 1, "array too big");
  if (!lua_isnoneornil(L, 2))
    luaL_checktype(L, 2, LUA_TFUNCTION);
  lua_settop(L, 2);
  luaL_checkstack(L, 40, "");
  sort_range(L, 1, n, 0);
  return 0;
}

void fll_own_tables(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"concat", table_concat}, {"sort", table_sort}, {NULL, NULL}};
  lua_getglobal(L, LUA_TABLIBNAME);
  luaL_setfuncs(L, functions, 0);
  lua_pop(L, 1);
}
