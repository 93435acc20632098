/* core.monitor inside of a host: its thread ends with the state that opened it,
 * also when Lua still holds the monitor, and a forked child can neither use it
 * nor hang on it. */
#include "check.h"

#include <dirent.h>
#include <flare/flarelua.h>

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char script[] =
    "local core = require 'flare.core'\n"
    "monitor = assert(core.monitor{root = '', library = 'none', period = 1,\n"
    "                              room = 4})\n"
    "function taken() return select(2, monitor:rows(0)) end\n";

/* Threads of this process, or -1. */
static int count_threads(void) {
  DIR *d = opendir("/proc/self/task");
  int n = 0;
  if (!d)
    return -1;
  while (readdir(d))
    n++;
  closedir(d);
  return n;
}

/* Waits until the thread has taken two rows more: it lives. */
static void see_rows(fl_lua *f) {
  int64_t first = 0, now = 0;
  CHECK(fl_lua_call(f, "taken", ">i", &first) == FL_OK);
  while (now < first + 2) {
    usleep(1000);
    CHECK(fl_lua_call(f, "taken", ">i", &now) == FL_OK);
  }
}

static void test_fork(fl_lua *f) {
  int status = -1;
  pid_t child = fork();
  if (child == 0) {
    int64_t n;
    bool good = fl_lua_call(f, "taken", ">i", &n) == FL_ELUA &&
                strstr(fl_error(), "which forked this one: open another one");
    fl_lua *other;
    good = good && fl_lua_open(NULL, &other) == FL_OK &&
           fl_lua_run(other, script, "=child") == FL_OK;
    if (good)
      see_rows(other);
    fl_lua_close(other);
    fl_lua_close(f);
    _exit(good ? 0 : 1);
  }
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
  fl_lua *f, *g;
  int before = count_threads();
  CHECK(fl_lua_open(NULL, &f) == FL_OK && fl_lua_open(NULL, &g) == FL_OK);
  CHECK(fl_lua_run(f, script, "=f") == FL_OK);
  CHECK(fl_lua_run(g, script, "=g") == FL_OK);
  see_rows(f);
  test_fork(f);
  fl_lua_close(f);
  see_rows(g); /* the other goes on */
  CHECK(fl_lua_run(g, "monitor:close() monitor:close()", "=g") == FL_OK);
  CHECK(fl_lua_run(g, "monitor:rows(0)", "=g") == FL_ELUA);
  CHECK(strstr(fl_error(), "monitor: it is closed"));
  fl_lua_close(g);
  CHECK(count_threads() == before);
  return check_done("lua_monitor");
}
