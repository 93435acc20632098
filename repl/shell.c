/* os.execute of the program. Lua's own goes through system(), which ignores
 * SIGINT while the command runs: a loop of commands could not be stopped. */
#include "repl.h"

#include <lauxlib.h>

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

static volatile sig_atomic_t pressed;
static volatile pid_t child;

/* Ctrl-C in a terminal reaches the command as well; `kill -INT` does not. */
static void on_interrupt(int number, siginfo_t *info, void *context) {
  (void)context;
  int e = errno;
  pressed = 1;
  if (info->si_code == SI_USER && child > 0)
    kill(child, number);
  errno = e;
}

static int start_command(const char *command, pid_t *pid) {
  char *const argv[] = {"sh", "-c", (char *)command, NULL};
  posix_spawnattr_t a;
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGQUIT);
  int problem = posix_spawnattr_init(&a);
  if (problem)
    return problem;
  posix_spawnattr_setsigmask(&a, &none);
  posix_spawnattr_setsigdefault(&a, &defaults);
  posix_spawnattr_setflags(&a, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  problem = posix_spawn(pid, "/bin/sh", NULL, &a, argv, environ);
  posix_spawnattr_destroy(&a);
  return problem;
}

/* As a shell does: the program is interrupted if that has ended the command;
 * an editor or another prompt that takes Ctrl-C for itself is left alone. */
static bool ended_by_interrupt(int status) {
  return (WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) ||
         (WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGINT);
}

int flare_execute(lua_State *L) {
  const char *command = luaL_optstring(L, 1, NULL);
  if (!command) {
    lua_pushboolean(L, system(NULL));
    return 1;
  }
  struct sigaction heed = {.sa_sigaction = on_interrupt,
                           .sa_flags = SA_SIGINFO},
                   ignore = {.sa_handler = SIG_IGN}, before, quit;
  sigset_t block, mask;
  sigemptyset(&block);
  sigaddset(&block, SIGINT);
  sigprocmask(SIG_BLOCK, &block, &mask); /* until the command is there */
  sigaction(SIGINT, NULL, &before);
  bool ours = before.sa_handler != SIG_IGN;
  if (ours)
    sigaction(SIGINT, &heed, NULL);
  sigaction(SIGQUIT, &ignore, &quit);
  pid_t pid = 0;
  int status = -1, problem = start_command(command, &pid);
  pressed = 0;
  child = problem ? 0 : pid;
  sigprocmask(SIG_SETMASK, &mask, NULL);
  while (!problem && waitpid(pid, &status, 0) < 0 && errno == EINTR)
    continue;
  child = 0;
  if (ours)
    sigaction(SIGINT, &before, NULL);
  sigaction(SIGQUIT, &quit, NULL);
  if (problem) {
    errno = problem;
    return luaL_fileresult(L, 0, NULL);
  }
  if (pressed && ended_by_interrupt(status)) {
    raise(SIGINT);
    return luaL_error(L, "interrupted!");
  }
  errno = 0; /* luaL_execresult takes it for a failure of the call */
  return luaL_execresult(L, status);
}
