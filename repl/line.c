/* Reading lines from a person, behind a few functions for the prompt's Lua
 * code: libedit where it is built in, plain fgets elsewhere and when the input
 * is no terminal. */
#include "repl.h"

#include <lauxlib.h>

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#ifdef FLARE_HAVE_LIBEDIT
#include <editline/readline.h>
#endif

static int is_terminal(lua_State *L) {
  int fd = (int)luaL_optinteger(L, 1, 0);
  lua_pushboolean(L, isatty(fd));
  return 1;
}

/* Columns of the terminal at fd, nil if it is none. */
static int line_width(lua_State *L) {
  struct winsize w;
  if (ioctl((int)luaL_optinteger(L, 1, 1), TIOCGWINSZ, &w) != 0 || !w.ws_col)
    return 0;
  lua_pushinteger(L, w.ws_col);
  return 1;
}

static bool has_input(int milliseconds) {
  struct pollfd p = {.fd = 0, .events = POLLIN};
  return poll(&p, 1, milliseconds) > 0 && (p.revents & POLLIN);
}

#ifdef FLARE_HAVE_LIBEDIT
static int peek_byte(void);
#else
static int peek_byte(void) {
  int c = getc(stdin);
  if (c != EOF)
    ungetc(c, stdin);
  return c;
}
#endif

/* The next byte of the input, if it is there already, which stays there. */
static int peek(lua_State *L) {
  if (!has_input(0))
    return 0;
  int c = peek_byte();
  if (c < 0)
    return 0;
  char byte = (char)c;
  lua_pushlstring(L, &byte, 1);
  return 1;
}

/* Turns the buffer of stdin off, before anything has been read from it, so
 * that poll sees all that is waiting. */
static int unbuffer(lua_State *L) {
  (void)L;
  setvbuf(stdin, NULL, _IONBF, 0);
  return 0;
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

/* --- keys --- */

/* A terminal in bracketed paste mode sends ESC [200~ text ESC [201~. The first
 * line of the text and what follows the last newline are given to libedit as
 * keys; the lines between are kept for line.pasted. */
static struct {
  char *keys; /* malloc'd: bytes to be read before those of the terminal */
  size_t at, n;
  char *lines;  /* malloc'd, complete lines, or NULL */
  bool partial; /* what follows them are the next keys */
  bool cancelled;
} input;

static int read_byte(void) {
  if (input.at < input.n)
    return (unsigned char)input.keys[input.at++];
  for (;;) {
    unsigned char c;
    ssize_t n = read(0, &c, 1);
    if (n == 1)
      return c;
    if (n == 0 || errno != EINTR || flare_interrupted())
      return -1;
  }
}

/* Puts bytes in front of what is read next. */
static void unread_bytes(const char *text, size_t n) {
  size_t rest = input.n - input.at;
  char *keys = malloc(n + rest + 1);
  if (!keys)
    return;
  memcpy(keys, text, n);
  if (rest)
    memcpy(keys + n, input.keys + input.at, rest);
  free(input.keys);
  input.keys = keys;
  input.at = 0;
  input.n = n + rest;
}

static int peek_byte(void) {
  int c = isatty(0) ? read_byte() : getc(stdin);
  char byte = (char)c;
  if (c >= 0 && isatty(0))
    unread_bytes(&byte, 1);
  else if (c >= 0)
    ungetc(c, stdin);
  return c;
}

/* Reads up to the end of the paste; returns a malloc'd text. */
static char *read_paste(size_t *length) {
  static const char end[] = "\033[201~";
  size_t n = 0, room = 0;
  char *text = NULL;
  for (;;) {
    int c = read_byte();
    if (c < 0)
      break;
    if (n + 2 > room) {
      char *more = realloc(text, room = room ? 2 * room : 1024);
      if (!more)
        break;
      text = more;
    }
    text[n++] = c == '\r' ? '\n' : (char)c;
    if (n >= 6 && memcmp(text + n - 6, end, 6) == 0) {
      n -= 6;
      break;
    }
  }
  *length = n;
  return text;
}

static void take_paste(void) {
  size_t n = 0;
  char *text = read_paste(&n);
  if (!text)
    return;
  for (size_t i = 0; i < n; i++)
    if (text[i] == '\t') /* not a request to complete */
      text[i] = ' ';
  char *first = memchr(text, '\n', n);
  if (!first) {
    unread_bytes(text, n);
  } else {
    char *last = text + n;
    while (last[-1] != '\n')
      last--;
    unread_bytes(last, (size_t)(text + n - last));
    input.partial = last < text + n;
    size_t between = (size_t)(last - first) - 1;
    free(input.lines);
    input.lines = malloc(between + 1);
    if (input.lines) {
      memcpy(input.lines, first + 1, between);
      input.lines[between] = 0;
    }
    unread_bytes(text, (size_t)(first - text) + 1);
  }
  free(text);
}

/* Whether the bytes after an ESC begin a paste; others are read again. */
static bool begins_paste(void) {
  static const char start[] = "[200~";
  char seen[sizeof start];
  size_t n = 0;
  while (n < 5) {
    if (input.at >= input.n && !has_input(n ? 20 : 0))
      break;
    int c = read_byte();
    if (c < 0)
      break;
    seen[n++] = (char)c;
    if (c != start[n - 1])
      break;
  }
  if (n == 5 && memcmp(seen, start, 5) == 0)
    return true;
  unread_bytes(seen, n);
  return false;
}

/* One character for libedit, -1 at the end or at a Ctrl-C. */
static int read_key(FILE *file) {
  (void)file;
  mbstate_t shift = {0};
  if (input.cancelled) {
    input.cancelled = false;
    return -1;
  }
  for (;;) {
    int c = read_byte();
    if (c < 0)
      return -1;
    bool from_terminal = input.at >= input.n;
    if (c == '\033' && from_terminal && begins_paste()) {
      take_paste();
      continue;
    }
    char byte = (char)c;
    wchar_t wide;
    size_t got = mbrtowc(&wide, &byte, 1, &shift);
    if (got == (size_t)-2)
      continue;
    return got == (size_t)-1 ? c : (int)wide;
  }
}

/* The lines of a paste after the first, and whether the last one is still to be
 * read; nil if there are none. */
static int pasted(lua_State *L) {
  if (!input.lines)
    return 0;
  lua_pushstring(L, input.lines);
  lua_pushboolean(L, input.partial);
  free(input.lines);
  input.lines = NULL;
  input.partial = false;
  return 2;
}

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

enum { MANY = 100 };

/* Asks before a long list. At a Ctrl-C the line is dropped. */
static bool wants_list(size_t n) {
  fprintf(rl_outstream, "\nDisplay all %zu possibilities? (y or n) ", n);
  fflush(rl_outstream);
  int c = read_byte();
  input.cancelled = c < 0;
  bool yes = c == 'y' || c == 'Y' || c == ' ';
  fputs(yes ? "y" : "\n", rl_outstream);
  if (!yes && c >= 0)
    rl_forced_update_display();
  return yes;
}

static size_t count_words(void) {
  size_t n = 0;
  while (words && words[n])
    n++;
  return n;
}

/* Whether all of them go on in the same way behind the n letters typed. */
static bool have_common_prefix(size_t n) {
  for (size_t i = 1; words && words[0] && words[i]; i++)
    if (strncmp(words[0], words[i], n + 1) != 0)
      return false;
  return words && words[0] && words[0][n];
}

static char **line_complete(const char *text, int start, int end) {
  lua_pushcfunction(state, ask_completer);
  lua_pushstring(state, rl_line_buffer);
  lua_pushinteger(state, start);
  lua_pushinteger(state, end);
  if (lua_pcall(state, 3, 0, 0) != LUA_OK)
    lua_pop(state, 1); /* no completion is better than an error in a line */
  rl_attempted_completion_over = 1;
  rl_completion_append_character = 0;
  size_t n = count_words();
  if (n > MANY && !have_common_prefix(strlen(text)) && !wants_list(n))
    return NULL;
  return rl_completion_matches(text, next_word);
}

/* Letters outside of ASCII, which libedit drops in the locale "C", or, up to
 * 0xff, takes for keys with Meta. */
static void read_letters(void) {
  setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1)
    setlocale(LC_CTYPE, "C.UTF-8");
  rl_getc_function = read_key;
  rl_completion_query_items = INT_MAX; /* `complete` asks by itself */
  rl_initialize();
  /* ed-command reads a line of editrc(5) and crashes at an open quote. */
  rl_parse_and_bind("bind -r ^[x");
  rl_parse_and_bind("bind -r ^[X");
  rl_parse_and_bind("bind -a -r :");
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
  rl_attempted_completion_function = line_complete;
  rl_completer_word_break_characters = " \t\n\"'`@$><=;|&{}()[]+-*/%^~,#";
  rl_basic_word_break_characters = rl_completer_word_break_characters;
  return 0;
}

static int read_line(lua_State *L) {
  const char *prompt = luaL_optstring(L, 1, "");
  if (!isatty(0))
    return read_plain(L, prompt);
  state = L;
  const char *name = getenv("TERM");
  bool brackets = name && *name && strcmp(name, "dumb") != 0;
  if (brackets)
    fputs("\033[?2004h", stdout);
  char *line = readline(prompt);
  if (brackets)
    fputs("\033[?2004l", stdout);
  fflush(stdout);
  if (!line)
    return 0;
  lua_pushstring(L, line);
  free(line);
  return 1;
}

static int line_remember(lua_State *L) {
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
                                       {"width", line_width},
                                       {"peek", peek},
                                       {"unbuffer", unbuffer},
                                       {"read", read_line},
#ifdef FLARE_HAVE_LIBEDIT
                                       {"remember", line_remember},
                                       {"pasted", pasted},
                                       {"set_completer", set_completer},
#endif
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
