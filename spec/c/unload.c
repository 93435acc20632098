/* dlclose after fl_lua_close, whatever the script's threads still do: no thread
 * runs in memory that is gone. Each case is a process of its own; four run at
 * once, since they wait for most of their time. 77: there is no Lua as a shared
 * library here. */
#include "check.h"

#include <dlfcn.h>
#include <flare/flarelua.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct {
  const char *name, *text;
  bool ends; /* in time; else the library stays */
} cases[] = {
    {"an empty loop", "T = flare.spawn 'while true do end'", true},
    {"a loop around pcall", "T = flare.spawn 'while true do pcall(error) end'",
     true},
    {"a loop in a coroutine",
     "T = flare.spawn [[local f = coroutine.wrap(function() while true do end "
     "end) while true do pcall(f) end]]",
     true},
    {"a loop of calls",
     "T = flare.spawn [[local core = require 'flare.core' local x = "
     "core.ones(3) while true do x:add_(1) end]]",
     true},
    {"a thread that has one",
     "T = flare.spawn [[local flare = require 'flare' "
     "T = flare.spawn 'while true do end' while true do end]]",
     true},
    {"a thread that waits for one",
     "T = flare.spawn [[local flare = require 'flare' "
     "T = flare.spawn 'while true do end' T:join()]]",
     true},
    {"a channel that stays empty",
     "T = flare.spawn([[local c = ... c:pop()]], flare.core.channel(1))", true},
    {"two loops",
     "T = {flare.spawn 'while true do end', "
     "flare.spawn 'while true do end'}",
     true},
    {"a search that does not end",
     "T = flare.spawn [[string.find(('a'):rep(40), ('a-'):rep(30) .. 'b')]]",
     false},
    {"a message handler that does not end",
     "T = flare.spawn [[local function f() while true do end end xpcall(f, "
     "f)]]",
     true},
    {"a program that runs", "T = flare.spawn \"os.execute 'sleep 30'\"", false},
    {"a factorization",
     "T = flare.spawn [[local flare = require 'flare' "
     "flare.rand(2500, 2500):svd()]]",
     true},
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *symbol(void *h, const char *name) {
  void *f = dlsym(h, name);
  if (!f) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  return f;
}

/* Opens the library, runs the script, closes both; seconds that closing took.
 */
static double close_while_running(const char *path, const char *text) {
  fl_status (*open)(const fl_lua_options *, fl_lua **);
  fl_status (*run)(fl_lua *, const char *, const char *);
  const char *(*said)(void);
  void (*end)(fl_lua *);
  void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!h) {
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
  }
  *(void **)&open = symbol(h, "fl_lua_open");
  *(void **)&run = symbol(h, "fl_lua_run");
  *(void **)&said = symbol(h, "fl_error");
  *(void **)&end = symbol(h, "fl_lua_close");
  fl_lua *f;
  char script[1024];
  snprintf(script, sizeof script, "flare = require 'flare' %s", text);
  if (open(NULL, &f) || run(f, script, "=case")) {
    fprintf(stderr, "%s\n", said());
    exit(1);
  }
  usleep(300000);
  double began = now();
  end(f);
  double took = now() - began;
  dlclose(h);
  sleep(1);
  return took;
}

int main(int argc, char **argv) {
  const char *lua = argc > 1 ? argv[1] : "liblua5.4.so.0";
  char path[600];
  if (!dlopen(lua, RTLD_NOW | RTLD_GLOBAL))
    return 77;
  snprintf(path, sizeof path, "%s", argv[0]);
  strcpy(strrchr(path, '/'), "/../libflarelua.so");
  enum { CASES = sizeof cases / sizeof *cases, TOGETHER = 4 };
  pid_t child[CASES];
  for (int k = 0; k < CASES + TOGETHER; k++) {
    if (k < CASES && (child[k] = fork()) == 0) {
      double took = close_while_running(path, cases[k].text);
      _exit(cases[k].ends && took > 4 ? 3 : 0);
    }
    int done = k - TOGETHER + 1, status = 0;
    if (done < 0 || done >= CASES)
      continue;
    waitpid(child[done], &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: %s %d",
          cases[done].name, WIFSIGNALED(status) ? "signal" : "exit",
          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  }
  return check_done("unload");
}
