/* The line of a module's forward that is no longer on Lua's stack: after
 * `return self.fc(x)`, a tail call, only the module that was called and the one
 * around it are known (both are in frames of Module:__call). The line is found
 * in the text of the outer one's forward. */
#include "fll.h"

#include <stdio.h>
#include <stdlib.h>

#define TAILS 128 /* results remembered by the two modules' addresses */

struct fll_tail {
  const void *outer, *inner;
  uint64_t epoch; /* addresses may be used again after a collection */
  fl_site site;
};

static bool is_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         (c >= 'A' && c <= 'Z');
}

/* Behind `(...)` at s, or [..](...): whether a statement ends there. */
static bool ends_statement(const char *s, const char *end) {
  int depth = 0;
  for (; s < end && (depth > 0 || strchr("([", *s)); s++)
    depth += (*s == '(' || *s == '[') - (*s == ')' || *s == ']');
  while (s < end && strchr(" \t\r;", *s))
    s++;
  return s == end || strncmp(s, "end", 3) == 0 || strncmp(s, "--", 2) == 0;
}

/* Whether the line has `return self.name(...)` and no more results. */
static bool returns_call(const char *line, size_t n, const char *name) {
  const char *end = line + n, *s = line;
  size_t m = strlen(name);
  for (; s + 6 < end; s++) {
    if (strncmp(s, "return", 6) != 0 || is_word(s[6]))
      continue;
    const char *at = s + 6;
    while (at < end && (is_word(*at) || strchr(" .", *at))) {
      if (*at == '.' && at + 1 + m < end && strncmp(at + 1, name, m) == 0 &&
          strchr("([", at[1 + m]))
        return ends_statement(at + 1 + m, end);
      at++;
    }
  }
  return false;
}

/* The only line from first to last of the text that returns a call of `name`;
 * 0: there is none, or more than one. */
static int find_line(const char *text, int first, int last, const char *name) {
  int found = 0;
  for (int line = 1; *text && line <= last; line++) {
    size_t n = strcspn(text, "\n");
    if (line >= first && returns_call(text, n, name)) {
      if (found)
        return 0;
      found = line;
    }
    text += n + (text[n] == '\n');
  }
  return found;
}

/* Pushes the source's text, "" if there is none or its file cannot be read. */
static const char *push_source(lua_State *L, const char *source) {
  if (*source != '@')
    return lua_pushstring(L, *source == '=' ? "" : source);
  luaL_Buffer b;
  luaL_buffinit(L, &b);
  FILE *f = fopen(source + 1, "rb");
  size_t n = 1;
  while (f && n > 0 && luaL_bufflen(&b) < (1 << 22)) {
    n = fread(luaL_prepbuffer(&b), 1, LUAL_BUFFERSIZE, f);
    luaL_addsize(&b, n);
  }
  if (f)
    fclose(f);
  luaL_pushresult(&b);
  return lua_tostring(L, -1);
}

/* (outer, inner) -> line, short_src; nothing if outer's forward is not the
 * user's. Fields are read, so this runs protected. */
static int tail_line(lua_State *L) {
  fl_lua *st = lua_touserdata(L, lua_upvalueindex(1));
  lua_Debug ar;
  lua_settop(L, 2);
  if (lua_getfield(L, 1, "forward") != LUA_TFUNCTION || lua_iscfunction(L, -1))
    return 0;
  lua_getinfo(L, ">S", &ar);
  if (fll_is_library(st, ar.source))
    return 0;
  const char *name = "";
  if (fll_push_name_in(L, 1, 2)) { /* "blocks.2": the list's name */
    lua_pushlstring(L, lua_tostring(L, -1), strcspn(lua_tostring(L, -1), "."));
    name = lua_tostring(L, -1);
  }
  int line = ar.linedefined;
  if (*name && ar.lastlinedefined > line) {
    lua_pushfstring(L, "%s:%d:%s", ar.source, line, name);
    if (fll_getkey(L, FLL_TAILS) != LUA_TTABLE) {
      lua_pop(L, 1);
      lua_newtable(L);
      lua_pushvalue(L, -1);
      fll_setkey(L, FLL_TAILS);
    }
    lua_pushvalue(L, -2);
    if (lua_rawget(L, -2) == LUA_TNIL) {
      int found =
          find_line(push_source(L, ar.source), line, ar.lastlinedefined, name);
      lua_settop(L, lua_gettop(L) - 2);
      lua_pushvalue(L, -2);
      lua_pushinteger(L, found ? found : line);
      lua_rawset(L, -3);
      line = found ? found : line;
    } else {
      line = (int)lua_tointeger(L, -1);
    }
  }
  lua_pushinteger(L, (lua_Integer)fl_site_intern(st->rt, ar.short_src, line));
  return 1;
}

fl_site fll_site_tail(lua_State *L, fl_lua *st, lua_Debug *inner,
                      lua_Debug *outer) {
  fl_site site = 0;
  if (!lua_checkstack(L, LUA_MINSTACK))
    return 0;
  if (!st->tails && !(st->tails = calloc(TAILS, sizeof *st->tails)))
    return 0;
  int top = lua_gettop(L);
  if (lua_getlocal(L, outer, 1) && lua_istable(L, -1) &&
      lua_getlocal(L, inner, 1) && lua_istable(L, -1)) {
    const void *a = lua_topointer(L, -2), *b = lua_topointer(L, -1);
    struct fll_tail *t =
        &st->tails[((uintptr_t)a * 31 + (uintptr_t)b) / 16 % TAILS];
    if (t->outer != a || t->inner != b || t->epoch != st->epoch) {
      lua_pushlightuserdata(L, st);
      lua_pushcclosure(L, tail_line, 1);
      lua_insert(L, -3);
      if (lua_pcall(L, 2, 1, 0) == LUA_OK)
        site = (fl_site)lua_tointeger(L, -1);
      *t = (struct fll_tail){a, b, st->epoch, site};
    }
    site = t->site;
  }
  lua_settop(L, top);
  return site;
}
