/* Reading lines from a person, behind a few functions for the prompt's Lua
 * code: libedit where it is built in, plain fgets elsewhere and when the input
 * is no terminal. */
#include "repl.h"

#include <lauxlib.h>

#include <locale.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#ifdef FLARE_HAVE_LIBEDIT
#include <editline/readline.h>
#endif

static int is_terminal(lua_State *L) {
  int fd = (int)luaL_optinteger(L, 1, 0);
  lua_pushboolean(L, isatty(fd));
  return 1;
}

/* Columns of the terminal at fd, nil if it is none. */
static int width(lua_State *L) {
  struct winsize w;
  if (ioctl((int)luaL_optinteger(L, 1, 1), TIOCGWINSZ, &w) != 0 || !w.ws_col)
    return 0;
  lua_pushinteger(L, w.ws_col);
  return 1;
}

/* Whether more input is waiting already: a pasted block. */
static int pending(lua_State *L) {
  struct pollfd p = {.fd = 0, .events = POLLIN};
  lua_pushboolean(L, poll(&p, 1, 0) > 0 && (p.revents & POLLIN));
  return 1;
}

static int read_plain(lua_State *L, const char *prompt) {
  luaL_Buffer b;
  char part[512];
  bool any = false;
  fputs(prompt, stdout);
  fflush(stdout);
  luaL_buffinit(L, &b);
  while (fgets(part, sizeof part, stdin)) {
    size_t n = strlen(part);
    any = true;
    if (n && part[n - 1] == '\n') {
      luaL_addlstring(&b, part, n - 1);
      break;
    }
    luaL_addlstring(&b, part, n);
  }
  luaL_pushresult(&b);
  if (!any)
    lua_pushnil(L);
  return 1;
}

#ifdef FLARE_HAVE_LIBEDIT

static lua_State *state; /* the one prompt of the program */

/* --- completion: a Lua function gives all candidates at once --- */

static char **words; /* NULL-terminated, ours */

static void free_words(void) {
  for (char **w = words; w && *w; w++)
    free(*w);
  free(words);
  words = NULL;
}

static char *next_word(const char *text, int again) {
  static size_t at;
  (void)text;
  if (!again)
    at = 0;
  return words && words[at] ? strdup(words[at++]) : NULL;
}

static int ask_completer(lua_State *L) {
  lua_getfield(L, LUA_REGISTRYINDEX, "flare.repl.completer");
  lua_insert(L, 1);
  lua_call(L, 3, 1);
  luaL_checktype(L, -1, LUA_TTABLE);
  lua_Unsigned n = lua_rawlen(L, -1);
  free_words();
  words = calloc((size_t)n + 1, sizeof *words);
  for (lua_Unsigned i = 0; words && i < n; i++) {
    lua_rawgeti(L, -1, (lua_Integer)i + 1);
    words[i] = strdup(luaL_checkstring(L, -1));
    lua_pop(L, 1);
  }
  return 0;
}

static char **complete(const char *text, int start, int end) {
  (void)text;
  lua_pushcfunction(state, ask_completer);
  lua_pushstring(state, rl_line_buffer);
  lua_pushinteger(state, start);
  lua_pushinteger(state, end);
  if (lua_pcall(state, 3, 0, 0) != LUA_OK)
    lua_pop(state, 1); /* no completion is better than an error in a line */
  rl_attempted_completion_over = 1;
  rl_completion_append_character = 0;
  return rl_completion_matches(text, next_word);
}

/* Letters outside of ASCII, which libedit drops in the locale "C", or, up to
 * 0xff, takes for keys with Meta. */
static void read_letters(void) {
  setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1)
    setlocale(LC_CTYPE, "C.UTF-8");
  rl_initialize();
  for (int c = 0xa0; c <= 0xff; c++)
    rl_bind_key(c, rl_insert);
}

static int set_completer(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, "flare.repl.completer");
  state = L;
  rl_readline_name = "flare";
  if (isatty(0))
    read_letters();
  rl_attempted_completion_function = complete;
  rl_completer_word_break_characters = " \t\n\"'`@$><=;|&{}()[]+-*/%^~,#";
  rl_basic_word_break_characters = rl_completer_word_break_characters;
  return 0;
}

static int read_line(lua_State *L) {
  const char *prompt = luaL_optstring(L, 1, "");
  if (!isatty(0))
    return read_plain(L, prompt);
  state = L;
  char *line = readline(prompt);
  if (!line)
    return 0;
  lua_pushstring(L, line);
  free(line);
  return 1;
}

static int remember(lua_State *L) {
  const char *line = luaL_checkstring(L, 1);
  add_history(line);
  return 0;
}

#else

static int read_line(lua_State *L) {
  return read_plain(L, luaL_optstring(L, 1, ""));
}

#endif

/* `remember` and `set_completer` are there with libedit alone. */
int flare_open_line(lua_State *L) {
  static const luaL_Reg functions[] = {{"is_terminal", is_terminal},
                                       {"width", width},
                                       {"pending", pending},
                                       {"read", read_line},
#ifdef FLARE_HAVE_LIBEDIT
                                       {"remember", remember},
                                       {"set_completer", set_completer},
#endif
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
