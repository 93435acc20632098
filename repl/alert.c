/* Connections of the debugger: sockets on this machine that only this user can
 * open, and a signal for the bytes that come on one, so that a script that runs
 * is stopped without a look at the socket in its loops. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* F_SETSIG, struct ucred, accept4 */
#endif
#include "repl.h"

#include <lauxlib.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static const char callback = 0; /* its key in the registry */
static volatile sig_atomic_t due;

static int failed(lua_State *L, const char *what) {
  lua_pushnil(L);
  lua_pushfstring(L, "%s: %s", what, strerror(errno));
  return 2;
}

/* --- the signal --- */

void flare_alert_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lua_sethook(L, NULL, 0, 0);
  due = 0;
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &callback) == LUA_TFUNCTION) {
    lua_call(L, 0, 1);
    due = due || lua_toboolean(L, -1);
  }
  lua_pop(L, 1);
}

static void hook(lua_State *L) {
  if (L && !lua_gethook(L))
    lua_sethook(L, flare_alert_hook, LUA_MASKCOUNT, 1);
}

/* A script has no hook before, as for Ctrl-C. One that the debugger has set
 * asks due() at every line. Of coroutines, the last one that called flare is
 * known; it may be the one that runs. */
static void on_bytes(int number) {
  (void)number;
  due = 1;
  hook(flare_state());
  hook(flare_coroutine());
}

/* watch(file): from now on bytes or connections that come there are an alert.
 * The signal is one that is ignored where nothing handles it. */
static int watch(lua_State *L) {
  int fd = (int)luaL_checkinteger(L, 1);
  struct sigaction a = {.sa_handler = on_bytes, .sa_flags = SA_RESTART};
  struct f_owner_ex owner = {F_OWNER_TID, (pid_t)syscall(SYS_gettid)};
  sigemptyset(&a.sa_mask);
  if (sigaction(SIGURG, &a, NULL) != 0 || fcntl(fd, F_SETOWN_EX, &owner) != 0 ||
      fcntl(fd, F_SETSIG, SIGURG) != 0 ||
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC | O_NONBLOCK) != 0)
    return failed(L, "watching");
  lua_pushboolean(L, 1);
  return 1;
}

/* on(f): f is called at the next instruction after an alert, or by who finds it
 * due. If it returns true, it has not looked, and the alert stays due. */
static int on(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &callback);
  return 0;
}

/* Whether there was an alert that nothing has looked at. */
static int is_due(lua_State *L) {
  lua_pushboolean(L, due != 0);
  due = 0;
  return 1;
}

/* --- sockets --- */

static bool address(lua_State *L, struct sockaddr_un *a) {
  size_t n;
  const char *path = luaL_checklstring(L, 1, &n);
  memset(a, 0, sizeof *a);
  a->sun_family = AF_UNIX;
  if (n >= sizeof a->sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(a->sun_path, path, n + 1);
  return true;
}

static int closed(lua_State *L, int fd) {
  int e = errno;
  if (fd >= 0)
    close(fd);
  errno = e;
  return failed(L, lua_tostring(L, 1));
}

/* folder(path): makes a folder that only this user can enter; an error if there
 * is one that others can. */
static int folder(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  struct stat s;
  if (mkdir(path, 0700) != 0 && errno != EEXIST)
    return failed(L, path);
  if (lstat(path, &s) != 0)
    return failed(L, path);
  if (!S_ISDIR(s.st_mode) || s.st_uid != geteuid() || (s.st_mode & 077)) {
    lua_pushnil(L);
    lua_pushfstring(L, "%s: others than its owner can enter it", path);
    return 2;
  }
  lua_pushboolean(L, 1);
  return 1;
}

static struct sockaddr_un listens; /* removed when this process ends */
static pid_t listener;

static void stop_listening(void) {
  if (listener == getpid())
    unlink(listens.sun_path);
}

/* listen(path) -> a file */
static int listen_at(lua_State *L) {
  struct sockaddr_un a;
  if (!address(L, &a))
    return closed(L, -1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  unlink(a.sun_path);
  if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof a) != 0 ||
      chmod(a.sun_path, 0600) != 0 || listen(fd, 4) != 0)
    return closed(L, fd);
  if (!listener)
    atexit(stop_listening);
  listens = a;
  listener = getpid();
  lua_pushinteger(L, fd);
  return 1;
}

/* Whether the process at the other end of a connection is this user's, or the
 * administrator's where that is allowed. */
static bool is_own(int fd, bool administrator) {
  struct ucred who;
  socklen_t n = sizeof who;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) == 0 &&
         (who.uid == geteuid() || (administrator && who.uid == 0));
}

static int refused(lua_State *L, int fd, const char *what) {
  close(fd);
  lua_pushnil(L);
  lua_pushstring(L, what);
  return 2;
}

/* connect(path) -> a file: a connection to a script of this user */
static int connect_to(lua_State *L) {
  struct sockaddr_un a;
  if (!address(L, &a))
    return closed(L, -1);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0)
    return closed(L, fd);
  if (!is_own(fd, false))
    return refused(L, fd, "the socket is another user's");
  fcntl(fd, F_SETFL, O_NONBLOCK);
  lua_pushinteger(L, fd);
  return 1;
}

/* accept(file) -> a connection of this user; nil: there is none */
static int accept_own(lua_State *L) {
  int fd = accept4((int)luaL_checkinteger(L, 1), NULL, NULL,
                   SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0)
    return failed(L, "accepting");
  if (!is_own(fd, true))
    return refused(L, fd, "another user's connection was refused");
  lua_pushinteger(L, fd);
  return 1;
}

/* --- what a call prints --- */

#define MOST (1 << 20) /* bytes of it that are kept */

static void push_printed(lua_State *L, int fd) {
  luaL_Buffer b;
  off_t size = lseek(fd, 0, SEEK_END);
  size_t n = size < 0 ? 0 : size > MOST ? MOST : (size_t)size;
  char *text = luaL_buffinitsize(L, &b, n + 1);
  ssize_t got = n ? pread(fd, text, n, 0) : 0;
  luaL_pushresultsize(&b, got > 0 ? (size_t)got : 0);
}

/* capture(f) -> what f() printed, and its first result; an error of f's is
 * raised. The file in memory never blocks the script. */
static int capture(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  int fd = memfd_create("flare", MFD_CLOEXEC);
  int out = fcntl(1, F_DUPFD_CLOEXEC, 3), err = fcntl(2, F_DUPFD_CLOEXEC, 3);
  fflush(NULL);
  if (fd >= 0 && out >= 0 && err >= 0) {
    dup2(fd, 1);
    dup2(fd, 2);
  }
  int status = lua_pcall(L, 0, 1, 0);
  fflush(NULL);
  if (fd >= 0 && out >= 0 && err >= 0) {
    dup2(out, 1);
    dup2(err, 2);
  }
  if (fd >= 0)
    push_printed(L, fd);
  else
    lua_pushliteral(L, "");
  int files[] = {fd, out, err};
  for (int k = 0; k < 3; k++)
    if (files[k] >= 0)
      close(files[k]);
  if (status != LUA_OK) {
    lua_pop(L, 1);
    return lua_error(L);
  }
  lua_insert(L, -2);
  return 2;
}

/* pair() -> two ends of a connection */
static int pair(lua_State *L) {
  int fd[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd))
    return failed(L, "socketpair");
  lua_pushinteger(L, fd[0]);
  lua_pushinteger(L, fd[1]);
  return 2;
}

/* ids() -> the numbers of this user and of this process */
static int ids(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)geteuid());
  lua_pushinteger(L, (lua_Integer)getpid());
  return 2;
}

int flare_open_alert(lua_State *L) {
  static const luaL_Reg functions[] = {{"watch", watch},
                                       {"on", on},
                                       {"due", is_due},
                                       {"folder", folder},
                                       {"listen", listen_at},
                                       {"connect", connect_to},
                                       {"accept", accept_own},
                                       {"capture", capture},
                                       {"pair", pair},
                                       {"ids", ids},
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
  return 1;
}
