/* Programs behind a pseudo-terminal, for specs in Lua: pty.spawn(columns, rows,
 * command) gives an object that reads what the program shows and writes what a
 * person types. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <lauxlib.h>
#include <lua.h>

typedef struct {
  int fd; /* -1 when it is closed */
  pid_t pid;
} terminal;

static const char *const kind = "spec.pty";

static terminal *check(lua_State *L) {
  return luaL_checkudata(L, 1, kind);
}

static void become(int fd, const char *command) {
  setsid();
  ioctl(fd, TIOCSCTTY, 0);
  for (int i = 0; i < 3; i++)
    dup2(fd, i);
  if (fd > 2)
    close(fd);
  execl("/bin/sh", "sh", "-c", command, (char *)NULL);
  _exit(127);
}

static int spawn(lua_State *L) {
  struct winsize size = {.ws_col = (unsigned short)luaL_checkinteger(L, 1),
                         .ws_row = (unsigned short)luaL_checkinteger(L, 2)};
  const char *command = luaL_checkstring(L, 3);
  terminal *t = lua_newuserdatauv(L, sizeof *t, 0);
  *t = (terminal){-1, -1};
  luaL_setmetatable(L, kind);
  int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (fd < 0 || grantpt(fd) != 0 || unlockpt(fd) != 0) {
    if (fd >= 0)
      close(fd);
    lua_pushnil(L);
    lua_pushliteral(L, "there are no pseudo-terminals");
    return 2;
  }
  int other = open(ptsname(fd), O_RDWR | O_NOCTTY);
  if (other < 0)
    return luaL_error(L, "the pseudo-terminal does not open");
  ioctl(fd, TIOCSWINSZ, &size);
  pid_t pid = fork();
  if (pid == 0)
    become(other, command);
  close(other);
  *t = (terminal){fd, pid};
  return 1;
}

/* t:read(seconds) -> bytes, "" if there are none in time, nil at the end. */
static int pty_read(lua_State *L) {
  terminal *t = check(L);
  struct pollfd p = {.fd = t->fd, .events = POLLIN};
  char bytes[8192];
  if (t->fd < 0)
    return 0;
  int ready = poll(&p, 1, (int)(luaL_checknumber(L, 2) * 1000));
  if (ready <= 0) {
    lua_pushliteral(L, "");
    return 1;
  }
  ssize_t n = read(t->fd, bytes, sizeof bytes);
  if (n <= 0) /* EIO when the program has gone */
    return 0;
  lua_pushlstring(L, bytes, (size_t)n);
  return 1;
}

static int pty_write(lua_State *L) {
  terminal *t = check(L);
  size_t n;
  const char *text = luaL_checklstring(L, 2, &n);
  while (n > 0) {
    ssize_t done = write(t->fd, text, n);
    if (done < 0 && errno != EINTR)
      return luaL_error(L, "the pseudo-terminal takes no more");
    if (done > 0) {
      text += done;
      n -= (size_t)done;
    }
  }
  return 0;
}

static int pty_resize(lua_State *L) {
  terminal *t = check(L);
  struct winsize size = {.ws_col = (unsigned short)luaL_checkinteger(L, 2),
                         .ws_row = (unsigned short)luaL_checkinteger(L, 3)};
  ioctl(t->fd, TIOCSWINSZ, &size); /* the program gets SIGWINCH */
  return 0;
}

/* t:modes() -> whether the terminal echoes and reads by lines. */
static int pty_modes(lua_State *L) {
  struct termios modes;
  if (tcgetattr(check(L)->fd, &modes) != 0)
    return 0;
  lua_pushboolean(L, (modes.c_lflag & ECHO) != 0);
  lua_pushboolean(L, (modes.c_lflag & ICANON) != 0);
  return 2;
}

static int pty_kill(lua_State *L) {
  terminal *t = check(L);
  if (t->pid > 0)
    kill(t->pid, (int)luaL_checkinteger(L, 2));
  return 0;
}

/* t:wait() -> the exit status, or 128 and the signal. */
static int pty_wait(lua_State *L) {
  terminal *t = check(L);
  int status = 0;
  if (t->pid <= 0)
    return 0;
  while (waitpid(t->pid, &status, 0) < 0 && errno == EINTR) {
  }
  t->pid = -1;
  lua_pushinteger(L, WIFEXITED(status) ? WEXITSTATUS(status)
                                       : 128 + WTERMSIG(status));
  return 1;
}

static int pty_close(lua_State *L) {
  terminal *t = check(L);
  if (t->fd >= 0)
    close(t->fd);
  if (t->pid > 0) {
    kill(t->pid, SIGKILL);
    waitpid(t->pid, NULL, 0);
  }
  *t = (terminal){-1, -1};
  return 0;
}

int luaopen_pty(lua_State *L);
__attribute__((visibility("default"))) int luaopen_pty(lua_State *L) {
  static const luaL_Reg methods[] = {
      {"read", pty_read},   {"write", pty_write}, {"resize", pty_resize},
      {"modes", pty_modes}, {"kill", pty_kill},   {"wait", pty_wait},
      {"close", pty_close}, {"__gc", pty_close},  {NULL, NULL}};
  luaL_newmetatable(L, kind);
  luaL_setfuncs(L, methods, 0);
  lua_pushvalue(L, -1);
  lua_setfield(L, -2, "__index");
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, spawn);
  lua_setfield(L, -2, "spawn");
  return 1;
}
