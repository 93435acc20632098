/* The program `flare`: a Lua 5.4 interpreter with flare inside. Opens a state,
 * makes the embedded Lua files loadable and hands over to repl/main.lua, which
 * reads the options. This file alone may print, exit and handle signals. */
#include "repl.h"

#include <flarelua.h>

#include <lauxlib.h>
#include <lualib.h>

#include "../lua/embed.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static fl_lua *running; /* what Ctrl-C stops */
static volatile sig_atomic_t asked;

bool flare_interrupted(void) {
  return asked != 0;
}

lua_State *flare_state(void) {
  return running ? fl_lua_state(running) : NULL;
}

lua_State *flare_coroutine(void) {
  return running ? fl_lua_coroutine(running) : NULL;
}

static void stop_hook(lua_State *L, lua_Debug *ar) {
  (void)ar;
  luaL_where(L, 0); /* level 0: a hook is no function of its own */
  lua_pushliteral(L, "interrupted!");
  lua_concat(L, 2);
  lua_error(L);
}

/* The first Ctrl-C stops the script with an error, one more ends the process.
 * A script has no hook before, since that makes every instruction slower; Lua
 * lets a signal handler set one. It stays, so that a loop around pcall ends. A
 * coroutine is not reached by it: it ends at its next call of flare.
 */
static void on_interrupt(int signal_number) {
  if (asked++)
    signal(signal_number, SIG_DFL);
  fl_lua_interrupt(running);
  lua_State *L = fl_lua_state(running);
  lua_Hook hook = lua_gethook(L);
  if (!hook || hook == flare_alert_hook)
    lua_sethook(L, stop_hook, LUA_MASKCOUNT, 1);
}

/* Without SA_RESTART: a read at the prompt ends, too. */
static void watch_interrupts(void) {
  struct sigaction a = {.sa_handler = on_interrupt};
  sigemptyset(&a.sa_mask);
  sigaction(SIGINT, &a, NULL);
}

static void forget_interrupt(void) {
  asked = 0;
  fl_lua_resume(running);
  lua_State *L = fl_lua_state(running);
  if (lua_gethook(L) == stop_hook)
    lua_sethook(L, NULL, 0, 0);
}

/* Ctrl-C from here on is new; true if there was one. */
static int resume(lua_State *L) {
  lua_pushboolean(L, asked != 0);
  watch_interrupts();
  forget_interrupt();
  return 1;
}

/* Ctrl-C does nothing until resume is called; what it has asked for is
 * forgotten. */
static int ignore_interrupts(lua_State *L) {
  (void)L;
  signal(SIGINT, SIG_IGN);
  forget_interrupt();
  return 0;
}

/* What calm(f) makes: f as an error handler. What stopped the script must not
 * stop the handler. A script stays stopped: it waits for no device any more. */
static int calm_handler(lua_State *L) {
  lua_State *script = fl_lua_state(running);
  if (lua_gethook(script) == stop_hook) {
    lua_sethook(script, NULL, 0, 0);
  } else {
    resume(L);
    lua_pop(L, 1);
  }
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_call(L, lua_gettop(L) - 1, 1);
  return 1;
}

static int calm(lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushcclosure(L, calm_handler, 1);
  return 1;
}

/* package.searchers: a file of the program, by the name of the module. */
static int main_search(lua_State *L) {
  const fll_module *m = flare_repl_modules;
  const char *name = luaL_checkstring(L, 1);
  for (; m->name; m++)
    if (strcmp(m->name, name) == 0) {
      lua_pushfstring(L, "@<flare>/repl/%s", m->file);
      if (luaL_loadbufferx(L, m->text, m->size, lua_tostring(L, -1), "t") !=
          LUA_OK)
        return lua_error(L);
      fll_set_globals(L);
      lua_pushstring(L, m->file);
      return 2;
    }
  lua_pushfstring(L, "no embedded module '%s'", name);
  return 1;
}

/* FLARE_PATH names folders of Lua files that come before the embedded ones. */
static void add_path(lua_State *L) {
  const char *path = getenv("FLARE_PATH");
  if (!path || !*path)
    return;
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "path");
  lua_pushfstring(L, "%s/?.lua;%s/?/init.lua;%s", path, path,
                  lua_tostring(L, -1));
  lua_setfield(L, -3, "path");
  lua_pop(L, 2);
}

/* The program's files are looked for behind package.preload, or behind the
 * folders of FLARE_PATH, where there are any. */
static void add_searcher(lua_State *L) {
  const char *path = getenv("FLARE_PATH");
  lua_getglobal(L, "package");
  lua_getfield(L, -1, "searchers");
  lua_Integer at = (lua_Integer)lua_rawlen(L, -1) + 1;
  for (; at > 2 && !(path && *path); at--) {
    lua_rawgeti(L, -1, at - 1);
    lua_rawseti(L, -2, at);
  }
  lua_pushcfunction(L, main_search);
  lua_rawseti(L, -2, at);
  lua_pop(L, 2);
}

static int main_run(lua_State *L) {
  int argc = (int)lua_tointeger(L, 1);
  char **argv = lua_touserdata(L, 2);
  lua_settop(L, 0);
  add_path(L);
  add_searcher(L);
  luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
  lua_pushcfunction(L, flare_open_terminal);
  lua_setfield(L, -2, "flare.repl.terminal");
  lua_pushcfunction(L, flare_open_process);
  lua_setfield(L, -2, "flare.repl.process");
  lua_pushcfunction(L, flare_open_alert);
  lua_setfield(L, -2, "flare.repl.alert");
  lua_pop(L, 1);
  lua_getglobal(L, "os");
  lua_pushcfunction(L, flare_execute);
  lua_setfield(L, -2, "execute");
  lua_pop(L, 1);
  watch_interrupts();
  lua_getglobal(L, "require");
  lua_pushliteral(L, "flare.repl.main");
  lua_call(L, 1, 1);
  lua_createtable(L, argc, 2);
  for (int i = 0; i < argc; i++) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i);
  }
  lua_pushcfunction(L, resume);
  lua_pushcfunction(L, calm);
  lua_pushcfunction(L, ignore_interrupts);
  lua_call(L, 4, 1);
  return 1;
}

/* Option -E: the libraries must not see Lua's variables when they open. */
static void forget_environment(int argc, char **argv) {
  static const char *const names[] = {
      "LUA_INIT",  "LUA_INIT_5_4",  "LUA_PATH",  "LUA_PATH_5_4",
      "LUA_CPATH", "LUA_CPATH_5_4", "FLARE_PATH"};
  bool found = false;
  for (int i = 1; i < argc && argv[i][0] == '-' && !found; i++)
    found = strcmp(argv[i], "-E") == 0;
  for (size_t i = 0; found && i < sizeof names / sizeof *names; i++)
    unsetenv(names[i]);
}

/* The compiler of kernels takes several MiB for each and gives them back: left
 * to itself, malloc returns them to the system, and the next kernel meets a
 * thousand page faults, which take longer than all else where they are slow. */
static void keep_memory(void) {
#if defined(__GLIBC__)
  mallopt(M_TRIM_THRESHOLD, 64 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
#endif
}

/* Who is started without stdin, stdout or stderr must not get a file of its own
 * with that number, into which others print. */
static void hold_places(void) {
  int fd;
  do
    fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd < 3);
  if (fd >= 0)
    close(fd);
}

/* What still runs in a library must not see it taken down: a script that was
 * interrupted in a call of LAPACK ends at once and with its own status. */
#if defined(__GLIBC__)
static void leave_at_once(int status, void *context) {
  (void)context;
  if (fl_threads_left() > 0) {
    fflush(NULL);
    _exit(status);
  }
}
#endif

int main(int argc, char **argv) {
#if defined(__GLIBC__)
  on_exit(leave_at_once, NULL);
#endif
  hold_places();
  forget_environment(argc, argv);
  keep_memory();
  fl_lua_options options = {.struct_size = sizeof options,
                            .tune_collector = true};
  if (fl_lua_open(&options, &running) != FL_OK) {
    fprintf(stderr, "flare: %s\n", fl_error());
    return EXIT_FAILURE;
  }
  lua_State *L = fl_lua_state(running);
  lua_pushcfunction(L, main_run);
  lua_pushinteger(L, argc);
  lua_pushlightuserdata(L, argv);
  int status = EXIT_FAILURE;
  if (lua_pcall(L, 2, 1, 0) == LUA_OK)
    status = (int)lua_tointeger(L, -1);
  else
    fprintf(stderr, "flare: %s\n", luaL_tolstring(L, -1, NULL));
  fl_lua_close(running);
  return status;
}
