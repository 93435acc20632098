/* The terminal behind a few functions for the prompt's Lua code: raw mode, keys
 * as bytes, the size, and how wide characters are. The editor itself is Lua
 * (editor/); plain lines are read here where there is no terminal for it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* wcwidth */
#endif
#include "repl.h"

#include <lauxlib.h>

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#ifdef FLARE_HAVE_UTF8PROC
#include <utf8proc.h>
#endif

/* --- raw mode --- */

/* One terminal, one prompt: what the handlers of signals need. */
static struct {
  struct termios before;
  volatile sig_atomic_t raw;
  volatile sig_atomic_t resized, stopped, continued;
  bool registered;
} term;

static const char paste_on[] = "\033[?2004h";
static const char paste_off[] = "\033[?2004l\033[?25h\033[0m";

static void write_bytes(const char *text, size_t n) {
  while (n > 0) {
    ssize_t done = write(1, text, n);
    if (done < 0 && errno == EAGAIN) {
      struct pollfd p = {.fd = 1, .events = POLLOUT};
      poll(&p, 1, 1000);
    } else if (done < 0 && errno != EINTR) {
      return;
    } else if (done > 0) {
      text += done;
      n -= (size_t)done;
    }
  }
}

/* Only calls that a handler of signals may make. */
static void restore(void) {
  if (!term.raw)
    return;
  term.raw = 0;
  tcsetattr(0, TCSADRAIN, &term.before);
  /* a program at the terminal may answer to this, and is then understood */
  ssize_t written = write(1, paste_off, sizeof paste_off - 1);
  (void)written;
}

static void on_fatal(int number) {
  restore();
  signal(number, SIG_DFL);
  raise(number);
}

static void on_event(int number) {
  if (number == SIGWINCH)
    term.resized = 1;
  else if (number == SIGTSTP)
    term.stopped = 1;
  else
    term.continued = 1;
}

/* What is caught while the terminal is raw: a handler that a library has
 * set for a signal stays. */
static const struct {
  int number;
  void (*handler)(int);
} caught[] = {{SIGTERM, on_fatal}, {SIGHUP, on_fatal}, {SIGQUIT, on_fatal},
              {SIGSEGV, on_fatal}, {SIGBUS, on_fatal}, {SIGABRT, on_fatal},
              {SIGFPE, on_fatal},  {SIGILL, on_fatal}, {SIGWINCH, on_event},
              {SIGTSTP, on_event}, {SIGCONT, on_event}};

static void catch_signals(bool on) {
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
    struct sigaction old, a = {.sa_handler = on ? caught[i].handler : SIG_DFL};
    sigemptyset(&a.sa_mask);
    if (sigaction(caught[i].number, NULL, &old) != 0)
      continue;
    if (on ? old.sa_handler == SIG_DFL : old.sa_handler == caught[i].handler)
      sigaction(caught[i].number, &a, NULL);
  }
}

static bool enter_raw(void) {
  if (term.raw)
    return true;
  if (tcgetattr(0, &term.before) != 0)
    return false;
  struct termios t = term.before;
  t.c_iflag &= (tcflag_t) ~(BRKINT | ICRNL | INPCK | ISTRIP | IXON);
  t.c_cflag |= CS8;
  t.c_lflag &= (tcflag_t) ~(ECHO | ICANON | IEXTEN | ISIG);
  t.c_cc[VMIN] = 1;
  t.c_cc[VTIME] = 0;
  if (tcsetattr(0, TCSADRAIN, &t) != 0)
    return false;
  if (!term.registered)
    term.registered = atexit(restore) == 0;
  term.raw = 1;
  catch_signals(true);
  write_bytes(paste_on, sizeof paste_on - 1);
  return true;
}

/* raw(true) -> whether keys come one by one now; raw(false) gives the terminal
 * back as it was. */
static int terminal_raw(lua_State *L) {
  bool on = lua_toboolean(L, 1);
  fflush(stdout);
  if (on) {
    lua_pushboolean(L, enter_raw());
  } else {
    restore();
    catch_signals(false);
    lua_pushboolean(L, true);
  }
  return 1;
}

/* Stops the job as Ctrl-Z does elsewhere; returns when it goes on. */
static int terminal_suspend(lua_State *L) {
  (void)L;
  restore();
  catch_signals(false);
  term.stopped = 0;
  kill(0, SIGTSTP);
  enter_raw();
  return 0;
}

/* --- reading --- */

static void nothing(int signal_number) {
  (void)signal_number;
}

/* keep_going(): a write to a command that has ended fails and does not end the
 * program. Commands that start later get the default back, as SIG_IGN would not
 * let them. */
static int keep_going(lua_State *L) {
  struct sigaction a = {.sa_handler = nothing, .sa_flags = SA_RESTART}, before;
  (void)L;
  if (sigaction(SIGPIPE, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
    sigaction(SIGPIPE, &a, NULL);
  return 0;
}

static int is_terminal(lua_State *L) {
  int fd = (int)luaL_optinteger(L, 1, 0);
  lua_pushboolean(L, isatty(fd));
  return 1;
}

/* Columns and rows of the terminal at fd, nil if it is none. */
static int terminal_size(lua_State *L) {
  struct winsize w;
  if (ioctl((int)luaL_optinteger(L, 1, 1), TIOCGWINSZ, &w) != 0 || !w.ws_col)
    return 0;
  lua_pushinteger(L, w.ws_col);
  lua_pushinteger(L, w.ws_row ? w.ws_row : 24);
  return 2;
}

static bool has_input(int milliseconds) {
  struct pollfd p = {.fd = 0, .events = POLLIN};
  return poll(&p, 1, milliseconds) > 0 && (p.revents & POLLIN);
}

static bool take(volatile sig_atomic_t *flag) {
  bool was = *flag != 0;
  *flag = 0;
  return was;
}

/* keys(seconds) -> bytes; or nil and "timeout", "resize", "suspend",
 * "continue", "interrupt" or "end". Without seconds it waits for as long as it
 * takes. */
static int terminal_keys(lua_State *L) {
  int wait = -1;
  if (!lua_isnoneornil(L, 1))
    wait = (int)(luaL_checknumber(L, 1) * 1000);
  const char *event = NULL;
  char bytes[4096];
  while (!event) {
    if (take(&term.stopped))
      event = "suspend";
    else if (take(&term.continued))
      event = "continue";
    else if (take(&term.resized))
      event = "resize";
    else if (flare_interrupted())
      event = "interrupt";
    if (event)
      break;
    struct pollfd p = {.fd = 0, .events = POLLIN};
    int ready = poll(&p, 1, wait);
    if (ready < 0 && errno == EINTR)
      continue;
    if (ready == 0) {
      event = "timeout";
      break;
    }
    ssize_t n = ready < 0 ? 0 : read(0, bytes, sizeof bytes);
    if (n > 0) {
      lua_pushlstring(L, bytes, (size_t)n);
      return 1;
    }
    if (n == 0 || (errno != EINTR && errno != EAGAIN))
      event = "end";
  }
  if (strcmp(event, "continue") == 0) { /* others may have changed its modes */
    term.raw = 0;
    enter_raw();
  }
  lua_pushnil(L);
  lua_pushstring(L, event);
  return 2;
}

static int terminal_write(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  fflush(stdout);
  write_bytes(text, n);
  return 0;
}

/* The next byte of the input, if it is there already, which stays there. */
static int peek(lua_State *L) {
  if (!has_input(0))
    return 0;
  int c = getc(stdin);
  if (c < 0)
    return 0;
  ungetc(c, stdin);
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

/* A line of the standard input, nil at its end. */
static int terminal_read(lua_State *L) {
  luaL_Buffer b;
  char part[512];
  bool any = false;
  fputs(luaL_optstring(L, 1, ""), stdout);
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

/* --- characters --- */

enum { BAD = 0xfffd, VARIATION_16 = 0xfe0f, JOINER = 0x200d };

/* The code point at the n bytes of s; its length in *size. */
static int decode(const unsigned char *s, size_t n, size_t *size) {
  static const int least[] = {0, 0, 0x80, 0x800, 0x10000};
  *size = 1;
  if (s[0] < 0x80)
    return s[0];
  size_t length = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
  if (s[0] < 0xc2 || s[0] > 0xf4 || length > n)
    return BAD;
  int c = s[0] & (0xff >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xc0) != 0x80)
      return BAD;
    c = c << 6 | (s[i] & 0x3f);
  }
  if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
    return BAD;
  *size = length;
  return c;
}

#ifdef FLARE_HAVE_UTF8PROC
static int width_of(int c) {
  return utf8proc_charwidth(c);
}

static bool breaks(int before, int c, int *state) {
  return utf8proc_grapheme_break_stateful(before, c, state);
}
#else
static int width_of(int c) {
  int width = wcwidth((wchar_t)c);
  return width < 0 ? 1 : width;
}

static bool breaks(int before, int c, int *state) {
  (void)state;
  return c != JOINER && before != JOINER && (c < 0x300 || width_of(c) > 0);
}
#endif

static bool is_flag(int c) { /* a letter of a pair that names a country */
  return c >= 0x1f1e6 && c <= 0x1f1ff;
}

/* clusters(text) -> the positions of the last bytes of what a reader takes for
 * single characters, and the columns that each of them fills. */
static int terminal_clusters(lua_State *L) {
  size_t n, size;
  const unsigned char *s = (const unsigned char *)luaL_checklstring(L, 1, &n);
#ifndef FLARE_HAVE_UTF8PROC
  locale_t letters = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
  locale_t old = letters ? uselocale(letters) : (locale_t)0;
#endif
  lua_newtable(L);
  lua_newtable(L);
  lua_Integer count = 0;
  int before = 0, state = 0, width = 0;
  for (size_t at = 0; at < n; at += size) {
    int c = decode(s + at, n - at, &size);
    if (at == 0 || breaks(before, c, &state)) {
      count++;
      width = is_flag(c) ? 2 : width_of(c);
    } else if (c == VARIATION_16) {
      width = 2;
    } else if (width == 0) {
      width = width_of(c);
    }
    lua_pushinteger(L, (lua_Integer)(at + size));
    lua_rawseti(L, 2, count);
    lua_pushinteger(L, width);
    lua_rawseti(L, 3, count);
    before = c;
  }
#ifndef FLARE_HAVE_UTF8PROC
  if (letters) {
    uselocale(old);
    freelocale(letters);
  }
#endif
  return 2;
}

/* --- files that several prompts write --- */

/* locked(folder, f): calls f while no other prompt holds the lock of a folder,
 * which leaves no file behind. */
static int terminal_locked(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  lua_settop(L, 2);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0)
    while (flock(fd, LOCK_EX) != 0 && errno == EINTR && !flare_interrupted()) {
    }
  int status = lua_pcall(L, 0, 0, 0);
  if (fd >= 0)
    close(fd);
  return status == LUA_OK ? 0 : lua_error(L);
}

int flare_open_terminal(lua_State *L) {
  static const luaL_Reg functions[] = {{"is_terminal", is_terminal},
                                       {"keep_going", keep_going},
                                       {"size", terminal_size},
                                       {"raw", terminal_raw},
                                       {"suspend", terminal_suspend},
                                       {"keys", terminal_keys},
                                       {"write", terminal_write},
                                       {"peek", peek},
                                       {"unbuffer", unbuffer},
                                       {"read", terminal_read},
                                       {"clusters", terminal_clusters},
                                       {"locked", terminal_locked},
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
#ifdef FLARE_HAVE_UTF8PROC
  lua_pushboolean(L, true);
#else
  lua_pushboolean(L, false);
#endif
  lua_setfield(L, -2, "utf8proc");
  return 1;
}
