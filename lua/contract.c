/* x:is("b t d", names, dtype): says what shape and dtype a tensor has, and
 * holds it to that. Names are sizes: with a table they are put there when they
 * are first met and compared from then on; without one those of the same
 * pattern are compared. It allocates nothing. */
#include "fll.h"

#include <ctype.h>

#define MOST 16 /* words in a pattern */

typedef struct word {
  const char *s;
  int n;
} word;

typedef struct pattern {
  const char *text;
  const fl_meta *m;
  word w[MOST];
  int n, rest; /* which one is "...", or -1 */
} pattern;

static int fail_size(lua_State *L, const pattern *p, int dim, lua_Integer want,
                     const word *w) {
  const fl_meta *m = p->m;
  const char *shape = fli_shape_text(m->ndim, m->shape);
  if (isdigit((unsigned char)w->s[0]))
    return fll_error(L, "is \"%s\": dim %d of %s is %lld, not %lld", p->text,
                     dim + 1, shape, (long long)m->shape[dim], (long long)want);
  return fll_error(L, "is \"%s\": dim %d of %s is %lld, but %.*s is %lld",
                   p->text, dim + 1, shape, (long long)m->shape[dim], w->n,
                   w->s, (long long)want);
}

static bool is_name(const word *w) {
  for (int i = 0; i < w->n; i++)
    if (!isalnum((unsigned char)w->s[i]) && w->s[i] != '_')
      return false;
  return true;
}

/* Number of the digits; -1: it is none. */
static int64_t contract_number(const word *w) {
  int64_t v = 0;
  for (int i = 0; i < w->n; i++) {
    if (!isdigit((unsigned char)w->s[i]) || v > INT64_MAX / 10 - 9)
      return -1;
    v = 10 * v + (w->s[i] - '0');
  }
  return v;
}

static void read_pattern(lua_State *L, pattern *p) {
  const char *s = p->text;
  p->n = 0;
  p->rest = -1;
  for (;;) {
    while (*s == ' ')
      s++;
    if (!*s)
      return;
    word w = {.s = s};
    while (*s && *s != ' ')
      s++;
    w.n = (int)(s - w.s);
    if (p->n == MOST)
      fll_error(L, "is \"%s\": at most %d words are possible", p->text, MOST);
    if (w.n == 3 && memcmp(w.s, "...", 3) == 0) {
      if (p->rest >= 0)
        fll_error(L, "is \"%s\": \"...\" can stand for dims once only",
                  p->text);
      p->rest = p->n;
    } else if (!is_name(&w) ||
               (isdigit((unsigned char)w.s[0]) && contract_number(&w) < 0)) {
      fll_error(L,
                "is \"%s\": '%.*s' is no name or number; \"_\" is any size, "
                "\"...\" any dims",
                p->text, w.n, w.s);
    }
    p->w[p->n++] = w;
  }
}

/* What is known of word k, -1 if nothing; it is `size` from then on. */
static lua_Integer known(lua_State *L, const pattern *p, int k, int64_t size,
                         bool table) {
  const word *w = &p->w[k];
  if (!table) {
    for (int j = 0; j < k; j++)
      if (p->w[j].n == w->n && memcmp(p->w[j].s, w->s, (size_t)w->n) == 0) {
        int dim = p->rest >= 0 && j > p->rest ? p->m->ndim - p->n + j : j;
        return p->m->shape[dim];
      }
    return -1;
  }
  lua_pushlstring(L, w->s, (size_t)w->n);
  lua_pushvalue(L, -1);
  if (lua_rawget(L, 3) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_pushinteger(L, size);
    lua_rawset(L, 3);
    return size;
  }
  int whole;
  lua_Integer v = lua_tointegerx(L, -1, &whole);
  if (!whole)
    fll_error(L, "is \"%s\": %.*s should be a size, it is %s", p->text, w->n,
              w->s, fll_typename(L, -1));
  lua_pop(L, 2);
  return v;
}

static int is(lua_State *L) {
  fll_enter(L);
  pattern p;
  fll_tensor *h = fll_test(L, 1);
  bool table = lua_istable(L, 3);
  if (!h)
    fll_argerror(L, "is", "x", "a tensor", 1);
  if (lua_type(L, 2) != LUA_TSTRING)
    fll_argerror(L, "is", "pattern", "a string like \"b t d\"", 2);
  if (!table && !lua_isnoneornil(L, 3))
    fll_argerror(L, "is", "names", "a table", 3);
  p.text = fll_checkname(L, 2, "is", "pattern");
  p.m = fl_tensor_meta(h->t);
  if (lua_gettop(L) > 4)
    fll_error(L, "is: too many arguments: it takes (pattern, names, dtype)");
  read_pattern(L, &p);
  int fixed = p.n - (p.rest >= 0);
  if (p.rest >= 0 ? p.m->ndim < fixed : p.m->ndim != fixed)
    fll_error(L, "is \"%s\": %s has %d dims, it should have %s%d", p.text,
              fli_shape_text(p.m->ndim, p.m->shape), p.m->ndim,
              p.rest >= 0 ? "at least " : "", fixed);
  for (int k = 0; k < p.n; k++) {
    const word *w = &p.w[k];
    int dim = p.rest >= 0 && k > p.rest ? p.m->ndim - p.n + k : k;
    if (k == p.rest || (w->n == 1 && w->s[0] == '_'))
      continue;
    int64_t size = p.m->shape[dim];
    lua_Integer want = isdigit((unsigned char)w->s[0])
                           ? contract_number(w)
                           : known(L, &p, k, size, table);
    if (want >= 0 && want != size)
      return fail_size(L, &p, dim, want, w);
  }
  if (!lua_isnoneornil(L, 4)) {
    fl_dtype d = fll_checkdtype(L, 4, "is");
    if (d != p.m->dtype)
      fll_error(L, "is \"%s\": x is %s, not %s", p.text,
                fl_dtype_name(p.m->dtype), fl_dtype_name(d));
  }
  lua_settop(L, 1);
  return 1;
}

const luaL_Reg fll_contract_methods[] = {{"is", is}, {NULL, NULL}};
