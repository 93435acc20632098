/* The fuzz target of every parser of files, for libFuzzer: the parser that the
 * environment names in FUZZ_PARSER (spec/support/parsers.lua has them) reads
 * the input as a file, for FUZZ_SECONDS of a processor if that is set. What it
 * may do is return a value, or nil and a message. Lines of Lua count as
 * coverage, as the blocks of C do. Built by the preset fuzz. */
#define _GNU_SOURCE
#include <flarelua.h>

#include <lauxlib.h>
#include <lua.h>

#include <sanitizer/lsan_interface.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static fl_lua *flare;
static int file; /* in memory */

static uint8_t lines[1 << 15]
    __attribute__((used, section("__libfuzzer_extra_counters")));

static void on_line(lua_State *L, lua_Debug *d) {
  lua_getinfo(L, "S", d);
  uint32_t h = (uint32_t)d->currentline * 2654435761u;
  for (const char *c = d->short_src; *c; c++)
    h = h * 31 + (uint8_t)*c;
  lines[(h ^ h >> 15) % sizeof lines]++;
}

/* A model may ask for endless work; that is its right. */
static void on_alarm(int number) {
  (void)number;
  fl_lua_interrupt(flare);
}

static const char script[] =
    "local parsers, path = require 'spec.support.parsers', ...\n"
    "local name = assert(os.getenv 'FUZZ_PARSER', 'FUZZ_PARSER names one')\n"
    "local read = assert(parsers.readers[name], 'there is no such parser')\n"
    "return function() return parsers.judge(read, path) end";

/* libFuzzer's own limit is one of the clock, which on a busy machine may pass
 * before the first input. SIGUSR1 makes it end with its figures. */
static void end_after(const char *seconds) {
  struct sigevent e = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
  struct itimerspec t = {.it_value = {.tv_sec = atol(seconds)}};
  timer_t timer;
  if (timer_create(CLOCK_PROCESS_CPUTIME_ID, &e, &timer) ||
      timer_settime(timer, 0, &t, NULL)) {
    perror("FUZZ_SECONDS");
    exit(1);
  }
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  char path[64];
  (void)argc, (void)argv;
  file = memfd_create("input", 0);
  snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  fl_runtime_options one = {.struct_size = sizeof one, .threads = 1};
  fl_lua_options o = {
      .struct_size = sizeof o, .runtime = &one, .path = "./?.lua"};
  if (file < 0 || fl_lua_open(&o, &flare)) {
    fprintf(stderr, "%s\n", fl_error());
    exit(1);
  }
  lua_State *L = fl_lua_state(flare);
  if (luaL_loadstring(L, script) ||
      (lua_pushstring(L, path), lua_pcall(L, 1, 1, 0))) {
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    exit(1);
  }
  signal(SIGVTALRM, on_alarm);
  const char *seconds = getenv("FUZZ_SECONDS");
  if (seconds)
    end_after(seconds);
  return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static unsigned runs;
  lua_State *L = fl_lua_state(flare);
  struct itimerval soon = {.it_value = {.tv_sec = 4}}, never = {0};
  if (ftruncate(file, 0) || pwrite(file, data, size, 0) != (ssize_t)size)
    return -1;
  lua_sethook(L, on_line, LUA_MASKLINE, 0);
  setitimer(ITIMER_VIRTUAL, &soon, NULL);
  lua_pushvalue(L, -1);
  int status = lua_pcall(L, 0, 1, 0);
  setitimer(ITIMER_VIRTUAL, &never, NULL);
  fl_lua_resume(flare);
  lua_sethook(L, NULL, 0, 0);
  if (status || lua_isstring(L, -1)) {
    fprintf(stderr, "finding: %s\n", lua_tostring(L, -1));
    abort();
  }
  lua_pop(L, 1);
  if (++runs % 256 == 0)
    lua_gc(L, LUA_GCCOLLECT);
  if (runs % 4096 == 0 && __lsan_do_recoverable_leak_check())
    abort();
  return 0;
}
