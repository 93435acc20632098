/* Where the operands of a call that failed were made. The lines are noted as
 * text when the error is raised, so that no tensor is kept by it, and belong to
 * the message that was raised: core.provenance(message). */
#include "provenance.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LINES = 4, MOST_ARGUMENTS = 12, MOST_ITEMS = 8 };

typedef struct lines {
  fl_lua *st;
  fl_site failed; /* what was made there needs no telling */
  int n;
  size_t length;
  char text[1024];
} lines;

fl_site fll_made(fl_tensor *t) {
  fl_site site = fl_tensor_node_site(t);
  return site ? site : fl_tensor_made(t);
}

/* "f32 (8, 64) cpu, made at FILE:7", once. */
static void add_tensor(lines *l, fl_tensor *t) {
  char line[320];
  const fl_meta *m = fl_tensor_meta(t);
  fl_site site = fll_made(t);
  if (!site || site == l->failed || l->n == MOST_LINES)
    return;
  int n =
      snprintf(line, sizeof line, "%s%s %s %s, made at %s", l->n ? "\n" : "",
               fl_dtype_name(m->dtype), fli_shape_text(m->ndim, m->shape),
               fl_device_name(l->st->rt, fl_tensor_device(t)),
               fl_site_text(l->st->rt, site));
  if (n <= 0 || (size_t)n >= sizeof line ||
      l->length + (size_t)n >= sizeof l->text ||
      strstr(l->text, l->n ? line + 1 : line))
    return;
  memcpy(l->text + l->length, line, (size_t)n + 1);
  l->length += (size_t)n;
  l->n++;
}

/* The value on top: a tensor, or a plain list of tensors. Pops it. */
static void add_value(lua_State *L, lines *l) {
  fll_tensor *h = fll_test(L, -1);
  if (h && h->t)
    add_tensor(l, h->t);
  else if (lua_istable(L, -1) && !lua_getmetatable(L, -1))
    for (int i = 1; i <= MOST_ITEMS; i++) {
      lua_rawgeti(L, -1, i);
      h = fll_test(L, -1);
      if (h && h->t)
        add_tensor(l, h->t);
      lua_pop(L, 1);
    }
  else if (lua_istable(L, -1))
    lua_pop(L, 1);
  lua_pop(L, 1);
}

/* What the function at a level was called with. */
static void add_arguments(lua_State *L, lines *l, lua_Debug *ar) {
  int n = ar->currentline < 0 ? MOST_ARGUMENTS : ar->nparams;
  for (int i = 1; i <= n && lua_getlocal(L, ar, i); i++)
    add_value(L, l);
  for (int i = 1; ar->isvararg && i <= MOST_ARGUMENTS; i++) {
    if (!lua_getlocal(L, ar, -i))
      break;
    add_value(L, l);
  }
}

/* The calls between the error and the script: the operator's, and those of the
 * library around it, such as a model's. */
static void look(lua_State *L, lines *l) {
  lua_Debug ar;
  for (int level = 0; l->n < MOST_LINES && lua_getstack(L, level, &ar);
       level++) {
    lua_getinfo(L, "Slu", &ar);
    if (ar.currentline >= 0 && !fll_is_library(l->st, ar.source))
      return;
    add_arguments(L, l, &ar);
  }
}

void fll_note_operands(lua_State *L, fl_lua *st) {
  lines l = {.st = st};
  if (!st || !st->rt || !lua_checkstack(L, 8))
    return;
  l.failed = fll_site_from(L, st, 0);
  if (!strstr(lua_tostring(L, -1), "out of memory"))
    look(L, &l);
  fll_getkey(L, FLL_OPERANDS);
  lua_pushvalue(L, -2);
  lua_rawseti(L, -2, 1);
  lua_pushstring(L, l.text);
  lua_rawseti(L, -2, 2);
  lua_pop(L, 1);
}

static const char *operands_of(lua_State *L, const char *message) {
  fll_getkey(L, FLL_OPERANDS);
  lua_rawgeti(L, -1, 1);
  lua_rawgeti(L, -2, 2);
  size_t n;
  const char *said = lua_tolstring(L, -2, &n), *text = lua_tostring(L, -1);
  bool same = said && text && *text && strncmp(said, message, n) == 0;
  lua_pop(L, 3); /* the table has the text */
  return same ? text : NULL;
}

/* provenance(message): the lines that made the operands of the call that failed
 * with this message, nil if it is not the last error or there are none. */
static int provenance(lua_State *L) {
  const char *message = luaL_tolstring(L, 1, NULL);
  lua_pushstring(L, operands_of(L, message));
  return 1;
}

void fll_provenance_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"provenance", provenance},
                                       {NULL, NULL}};
  fll_register(L, functions);
}
