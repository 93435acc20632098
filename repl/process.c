/* Processes for the launcher: ranks with a process group, cores and pipes of
 * their own; a watchdog that ends them if the launcher is killed; signals as
 * bytes in a pipe. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_setaffinity, pipe2 */
#endif
#include "repl.h"

#include <lauxlib.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int failed(lua_State *L, const char *what) {
  lua_pushnil(L);
  lua_pushfstring(L, "%s: %s", what, strerror(errno));
  return 2;
}

/* --- signals --- */

static int signal_pipe[2] = {-1, -1};

static void on_signal(int number) {
  unsigned char byte = (unsigned char)number;
  int e = errno;
  if (write(signal_pipe[1], &byte, 1) < 0)
    errno = e; /* full: there are enough of them */
  errno = e;
}

static bool ignored(int number) {
  struct sigaction a;
  return sigaction(number, NULL, &a) == 0 && a.sa_handler == SIG_IGN;
}

static const int heeded[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGCHLD};
#define HEEDED (sizeof heeded / sizeof *heeded)

/* nohup, and those who have their own way with pipes, are left alone. */
static bool left_alone(int number) {
  return (number == SIGHUP || number == SIGPIPE) && ignored(number);
}

/* signals() -> a file to read bytes from: the numbers of INT, TERM, HUP, PIPE
 * and CHLD as they come */
static int signals(lua_State *L) {
  struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return failed(L, "pipe");
  sigemptyset(&a.sa_mask);
  for (size_t k = 0; k < HEEDED; k++)
    if (!left_alone(heeded[k]))
      sigaction(heeded[k], &a, NULL);
  lua_pushinteger(L, signal_pipe[0]);
  return 1;
}

/* --- the watchdog --- */

#define WATCHED 4096

/* Reads process groups, negative ones are gone; at the end kills the rest. */
static void watch(int fd) {
  static int32_t groups[WATCHED];
  int32_t g;
  int n = 0;
  while (read(fd, &g, sizeof g) == (ssize_t)sizeof g) {
    if (g > 0 && n < WATCHED)
      groups[n++] = g;
    for (int k = 0; g < 0 && k < n; k++)
      if (groups[k] == -g)
        groups[k--] = groups[--n];
  }
  for (int k = 0; k < n; k++)
    kill(-groups[k], SIGKILL);
  _exit(0);
}

/* watchdog() -> a file: write(file, group) */
static int watchdog(lua_State *L) {
  int fd[2];
  if (pipe2(fd, O_CLOEXEC) != 0)
    return failed(L, "pipe");
  pid_t pid = fork();
  if (pid < 0)
    return failed(L, "fork");
  if (pid == 0) {
    setsid();
    if (chdir("/") != 0)
      _exit(1);
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    for (int k = 0; k < 1024; k++) /* the terminal and pipes of others, too */
      if (k != fd[0])
        close(k);
    watch(fd[0]);
  }
  close(fd[0]);
  lua_pushinteger(L, fd[1]);
  lua_pushinteger(L, pid);
  return 2;
}

/* watched(file, group): one more; negative: one less */
static int watched(lua_State *L) {
  int32_t g = (int32_t)luaL_checkinteger(L, 2);
  lua_pushboolean(L, write((int)luaL_checkinteger(L, 1), &g, sizeof g) ==
                         (ssize_t)sizeof g);
  return 1;
}

/* --- ranks --- */

typedef struct plan {
  char **argv, **env;
  int in, out, err; /* -1: as here */
  int keep;         /* a file that stays open, by the same number; -1 */
  cpu_set_t cpus;
  int n_cpus, dog;
  pid_t parent;
} plan;

/* In the child: only what may be called after a fork of threads. */
static void become(const plan *p) {
  int32_t self = (int32_t)getpid();
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != p->parent)
    _exit(127);
  if (write(p->dog, &self, sizeof self) < 0)
    _exit(127);
  if (p->n_cpus)
    sched_setaffinity(0, sizeof p->cpus, &p->cpus);
  for (size_t k = 0; k < HEEDED; k++)
    if (!left_alone(heeded[k]))
      signal(heeded[k], SIG_DFL);
  if (p->in < 0 && isatty(0)) { /* a rank with the prompt has the terminal */
    signal(SIGTTOU, SIG_IGN);
    tcsetpgrp(0, getpid());
    signal(SIGTTOU, SIG_DFL);
  }
  if (p->in >= 0)
    dup2(p->in, 0);
  if (p->out >= 0)
    dup2(p->out, 1);
  if (p->err >= 0)
    dup2(p->err, 2);
  if (p->keep >= 0)
    fcntl(p->keep, F_SETFD, 0);
  execvpe(p->argv[0], p->argv, p->env);
  static const char text[] = "flare launch: the program cannot be started\n";
  if (write(2, text, sizeof text - 1) < 0)
    _exit(126);
  _exit(127);
}

/* A list of strings at the field of the table at 1, as C has them. */
static char **strings(lua_State *L, const char *field) {
  lua_getfield(L, 1, field);
  luaL_checktype(L, -1, LUA_TTABLE);
  size_t n = lua_rawlen(L, -1);
  char **list = lua_newuserdatauv(L, (n + 1) * sizeof *list, 1);
  lua_pushvalue(L, -2);
  lua_setiuservalue(L, -2, 1); /* keeps the strings */
  for (size_t k = 0; k < n; k++) {
    lua_rawgeti(L, -2, (lua_Integer)k + 1);
    list[k] = (char *)(uintptr_t)luaL_checkstring(L, -1);
    lua_pop(L, 1);
  }
  list[n] = NULL;
  return list;
}

static int file_at(lua_State *L, const char *field) {
  lua_getfield(L, 1, field);
  int fd = (int)luaL_optinteger(L, -1, -1);
  lua_pop(L, 1);
  return fd;
}

/* spawn{argv =, env =, cpus =, dog =, keep =, pipes = true} -> pid, out, err */
static int spawn(lua_State *L) {
  plan p = {.in = -1, .out = -1, .err = -1, .parent = getpid()};
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  p.argv = strings(L, "argv");
  p.env = strings(L, "env");
  p.dog = file_at(L, "dog");
  p.keep = file_at(L, "keep");
  CPU_ZERO(&p.cpus);
  lua_getfield(L, 1, "cpus");
  for (lua_Integer k = 1; lua_istable(L, -1) && k <= luaL_len(L, -1); k++) {
    lua_rawgeti(L, -1, k);
    CPU_SET((int)lua_tointeger(L, -1), &p.cpus);
    p.n_cpus++;
    lua_pop(L, 1);
  }
  lua_getfield(L, 1, "pipes");
  int out[2] = {-1, -1}, err[2] = {-1, -1};
  if (lua_toboolean(L, -1)) {
    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        (p.in = open("/dev/null", O_RDONLY | O_CLOEXEC)) < 0)
      return failed(L, "pipe");
    p.out = out[1];
    p.err = err[1];
  }
  pid_t pid = fork();
  if (pid == 0)
    become(&p);
  int e = errno;
  if (p.out >= 0) {
    close(p.out);
    close(p.err);
    close(p.in);
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
  }
  errno = e;
  if (pid < 0)
    return failed(L, "fork");
  setpgid(pid, pid); /* parent and child both try, so that neither waits */
  lua_pushinteger(L, pid);
  lua_pushinteger(L, out[0]);
  lua_pushinteger(L, err[0]);
  return 3;
}

/* ended() -> pid, status as of waitpid; nothing if no process has ended. The
 * process stays until reap(pid), so its number is not used again before. */
static int ended(lua_State *L) {
  siginfo_t i = {0};
  if (waitid(P_ALL, 0, &i, WEXITED | WNOHANG | WNOWAIT) != 0 || !i.si_pid)
    return 0;
  lua_pushinteger(L, i.si_pid);
  lua_pushinteger(L, i.si_code == CLD_EXITED ? (i.si_status & 255) << 8
                                             : i.si_status & 127);
  return 2;
}

static int reap(lua_State *L) {
  int status;
  waitpid((pid_t)luaL_checkinteger(L, 1), &status, WNOHANG);
  return 0;
}

/* kill(group, signal): all processes of it */
static int kill_group(lua_State *L) {
  lua_pushboolean(L, kill(-(pid_t)luaL_checkinteger(L, 1),
                          (int)luaL_checkinteger(L, 2)) == 0);
  return 1;
}

/* cpus() -> those that this process may use */
static int cpus(lua_State *L) {
  cpu_set_t set;
  lua_newtable(L);
  if (sched_getaffinity(0, sizeof set, &set) != 0)
    return 1;
  for (int k = 0, n = 0; k < CPU_SETSIZE; k++)
    if (CPU_ISSET(k, &set)) {
      lua_pushinteger(L, k);
      lua_rawseti(L, -2, ++n);
    }
  return 1;
}

/* environment() -> {"NAME=value", ...} */
static int environment(lua_State *L) {
  extern char **environ;
  lua_newtable(L);
  for (int k = 0; environ[k]; k++) {
    lua_pushstring(L, environ[k]);
    lua_rawseti(L, -2, k + 1);
  }
  return 1;
}

/* letter(text) -> a file from which it can be read once */
static int letter(lua_State *L) {
  size_t n;
  const char *text = luaL_checklstring(L, 1, &n);
  int fd[2];
  luaL_argcheck(L, n < 4096, 1, "too long");
  if (pipe2(fd, O_CLOEXEC) != 0)
    return failed(L, "pipe");
  ssize_t put = write(fd[1], text, n);
  close(fd[1]);
  if (put != (ssize_t)n)
    return failed(L, "pipe");
  lua_pushinteger(L, fd[0]);
  return 1;
}

/* hold(path): locks the file, which is made if it does not exist, until this
 * process ends. False: another process has locked it. */
static int hold(lua_State *L) {
  const char *path = luaL_checkstring(L, 1);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  bool taken =
      fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (taken)
    close(fd);
  lua_pushboolean(L, !taken);
  return 1;
}

/* private(path, text): a new file that only this user can read */
static int private_file(lua_State *L) {
  size_t n;
  const char *path = luaL_checkstring(L, 1);
  const char *text = luaL_checklstring(L, 2, &n);
  int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    return failed(L, path);
  ssize_t put = write(fd, text, n);
  close(fd);
  lua_pushboolean(L, put == (ssize_t)n);
  return 1;
}

/* temporary("/tmp/name-XXXXXX") -> a new folder that only this user can enter
 */
static int temporary_folder(lua_State *L) {
  char path[4096];
  const char *pattern = luaL_checkstring(L, 1);
  if (strlen(pattern) >= sizeof path) {
    errno = ENAMETOOLONG;
    return failed(L, pattern);
  }
  strcpy(path, pattern);
  if (!mkdtemp(path))
    return failed(L, pattern);
  lua_pushstring(L, path);
  return 1;
}

/* signal_name(number) -> "Killed" */
static int signal_name(lua_State *L) {
  lua_pushstring(L, strsignal((int)luaL_checkinteger(L, 1)));
  return 1;
}

int flare_open_process(lua_State *L) {
  static const luaL_Reg functions[] = {{"signals", signals},
                                       {"watchdog", watchdog},
                                       {"watched", watched},
                                       {"spawn", spawn},
                                       {"ended", ended},
                                       {"reap", reap},
                                       {"kill", kill_group},
                                       {"cpus", cpus},
                                       {"environment", environment},
                                       {"letter", letter},
                                       {"private", private_file},
                                       {"temporary", temporary_folder},
                                       {"hold", hold},
                                       {"signal_name", signal_name},
                                       {NULL, NULL}};
  luaL_newlib(L, functions);
#ifdef FLARE_SOURCE_DIR
  lua_pushliteral(L, FLARE_SOURCE_DIR);
  lua_setfield(L, -2, "source_folder");
#endif
  return 1;
}
