/* A thread that reads the machine's sensors into a ring of rows, and what Lua
 * reads of them: core.monitor. The thread runs no Lua; it ends when the monitor
 * is closed or collected, at the latest with its state. */
#include "../fll.h"
#include "sensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST_ROWS (1 << 24)

typedef struct monitor {
  uint64_t magic;
  fll_sensors *sensors; /* NULL: closed */
  int n;                /* columns */
  int period;           /* milliseconds; 0: there is no thread */
  pid_t process;        /* a forked child has no thread, and may have copied
                           locks that are held */
  pthread_t thread;
  bool running;
  int wake[2];             /* a pipe: the thread ends when something is there */
  pthread_mutex_t reading; /* the sensors; taken before `lock` */
  pthread_mutex_t lock;    /* the ring, for a moment only */
  double *ring, *fresh;    /* `room` rows; the one that is being read */
  size_t room, taken;      /* rows so far: row k lies at k % room */
  double cost;             /* seconds of the processor */
} monitor;

/* --- the thread --- */

static void take_row(monitor *m) {
  pthread_mutex_lock(&m->reading);
  fll_sensors_read(m->sensors, m->fresh, false);
  pthread_mutex_lock(&m->lock);
  memcpy(m->ring + m->taken++ % m->room * m->n, m->fresh,
         m->n * sizeof *m->fresh);
  pthread_mutex_unlock(&m->lock);
  pthread_mutex_unlock(&m->reading);
}

static void *sample_always(void *p) {
  monitor *m = p;
  struct pollfd wake = {.fd = m->wake[0], .events = POLLIN};
  while (poll(&wake, 1, m->period) == 0) {
    struct timespec t;
    take_row(m);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    pthread_mutex_lock(&m->lock);
    m->cost = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    pthread_mutex_unlock(&m->lock);
  }
  return NULL;
}

/* 0, or an errno. */
static int start_thread(monitor *m) {
  sigset_t all, before;
  if (pipe(m->wake) != 0) {
    m->wake[0] = m->wake[1] = -1;
    return errno;
  }
  for (int k = 0; k < 2; k++)
    fcntl(m->wake[k], F_SETFD, FD_CLOEXEC);
  sigfillset(&all); /* signals are for the program's threads */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int e = pthread_create(&m->thread, NULL, sample_always, m);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  m->running = e == 0;
  return e;
}

static int monitor_close(lua_State *L) {
  monitor *m = fll_totype(L, 1, FLL_MONITOR, sizeof *m);
  if (!m || !m->sensors)
    return 0;
  bool forked = m->process != getpid();
  if (m->running && !forked) {
    while (write(m->wake[1], "", 1) < 0 && errno == EINTR)
      continue;
    pthread_join(m->thread, NULL);
  }
  for (int k = 0; k < 2; k++)
    if (m->wake[k] >= 0)
      close(m->wake[k]);
  fll_sensors_close(m->sensors, forked);
  m->sensors = NULL;
  free(m->ring);
  return 0;
}

/* --- for Lua --- */

static monitor *check_monitor(lua_State *L) {
  monitor *m = fll_checktype(L, 1, FLL_MONITOR, sizeof *m);
  if (!m->sensors)
    fll_error(L, "monitor: it is closed");
  if (m->process != getpid())
    fll_error(L,
              "monitor: it belongs to process %d, which forked this one: "
              "open another one here",
              (int)m->process);
  return m;
}

static const char *text_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name); /* stays on the stack, as the text is needed */
  return lua_tostring(L, -1);
}

static lua_Integer number_field(lua_State *L, const char *name) {
  lua_getfield(L, 1, name);
  lua_Integer n = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return n;
}

/* monitor{root =, library =, gpus =, process =, period = milliseconds, room =
 * rows}: the first row is read before it returns. */
static int monitor_open(lua_State *L) {
  fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  fll_sensor_options o = {.root = text_field(L, "root"),
                          .library = text_field(L, "library"),
                          .gpus = text_field(L, "gpus"),
                          .process = (long)number_field(L, "process")};
  lua_Integer period = number_field(L, "period"),
              room = number_field(L, "room");
  if (period < 0 || period > INT_MAX || room < 1 || room > MOST_ROWS)
    fll_error(L,
              "monitor: room must be 1 to %d rows, and period 0 or more "
              "milliseconds",
              MOST_ROWS);
  monitor *m = fll_newobject(L, FLL_MONITOR, sizeof *m, 0);
  m->period = (int)period;
  m->room = (size_t)room;
  m->process = getpid();
  m->wake[0] = m->wake[1] = -1;
  pthread_mutex_init(&m->reading, NULL);
  pthread_mutex_init(&m->lock, NULL);
  m->sensors = fll_sensors_open(&o);
  if (!m->sensors)
    return fll_failed(L, "monitor: out of memory");
  m->n = fll_sensors_columns(m->sensors)->n;
  m->ring = calloc((m->room + 1) * m->n, sizeof *m->ring);
  if (!m->ring)
    return fll_failed(L, "monitor: no memory for %d rows", (int)m->room);
  m->fresh = m->ring + m->room * m->n;
  take_row(m);
  int e = m->period > 0 ? start_thread(m) : 0;
  if (e != 0)
    return fll_failed(L, "monitor: its thread does not start: %s", strerror(e));
  return 1;
}

/* m:about() -> the names of the columns, a list of {name, uuid} of GPUs, and
 * lines about what is not measured */
static int monitor_about(lua_State *L) {
  monitor *m = check_monitor(L);
  const fll_columns *c = fll_sensors_columns(m->sensors);
  const fll_gpus *g = fll_sensors_gpus(m->sensors);
  const char *name, *uuid;
  lua_createtable(L, c->n, 0);
  for (int k = 0; k < c->n; k++) {
    lua_pushstring(L, c->name[k]);
    lua_rawseti(L, -2, k + 1);
  }
  lua_newtable(L);
  for (int k = 0; (name = fll_gpus_name(g, k, &uuid)); k++) {
    lua_createtable(L, 2, 0);
    lua_pushstring(L, name);
    lua_rawseti(L, -2, 1);
    lua_pushstring(L, uuid);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, k + 1);
  }
  lua_pushstring(L, c->missing);
  return 3;
}

static void push_row(lua_State *L, const double *row, int n) {
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++) {
    lua_pushnumber(L, row[k]);
    lua_rawseti(L, -2, k + 1);
  }
}

/* m:rows(after) -> the rows with a number above `after` that the ring still
 * has, each a list of numbers, NaN where there is none; and the number of the
 * last one */
static int monitor_rows(lua_State *L) {
  monitor *m = check_monitor(L);
  lua_Integer given = luaL_optinteger(L, 2, 0);
  size_t after = given > 0 ? (size_t)given : 0;
  pthread_mutex_lock(&m->lock);
  size_t taken = m->taken;
  pthread_mutex_unlock(&m->lock);
  size_t from = after < taken ? after : taken;
  from = taken - from > m->room ? taken - m->room : from;
  double *copy = fll_scratch(L, (taken - from) * m->n * sizeof *copy);
  pthread_mutex_lock(&m->lock);
  while (from < taken && m->taken - from > m->room) /* gone meanwhile */
    from++;
  for (size_t k = from; k < taken; k++)
    memcpy(copy + (taken - 1 - k) * m->n, m->ring + k % m->room * m->n,
           m->n * sizeof *copy);
  pthread_mutex_unlock(&m->lock);
  lua_newtable(L);
  for (size_t k = from; k < taken; k++) {
    push_row(L, copy + (taken - 1 - k) * m->n, m->n);
    lua_rawseti(L, -2, (lua_Integer)(k - from + 1));
  }
  lua_pushinteger(L, (lua_Integer)taken);
  return 2;
}

/* m:sample(): reads a row now, beside those of the thread. */
static int monitor_sample(lua_State *L) {
  take_row(check_monitor(L));
  return 0;
}

/* m:joules() -> a row with the time and the counters of energy, read now */
static int monitor_joules(lua_State *L) {
  monitor *m = check_monitor(L);
  double *row = fll_scratch(L, m->n * sizeof *row);
  pthread_mutex_lock(&m->reading);
  fll_sensors_read(m->sensors, row, true);
  pthread_mutex_unlock(&m->reading);
  push_row(L, row, m->n);
  return 1;
}

/* m:cost() -> seconds of the processor that the thread has used */
static int monitor_cost(lua_State *L) {
  monitor *m = check_monitor(L);
  pthread_mutex_lock(&m->lock);
  double cost = m->cost;
  pthread_mutex_unlock(&m->lock);
  lua_pushnumber(L, cost);
  return 1;
}

void fll_monitor_core(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__gc", monitor_close}, {"__close", monitor_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"about", monitor_about},
                                     {"rows", monitor_rows},
                                     {"sample", monitor_sample},
                                     {"joules", monitor_joules},
                                     {"cost", monitor_cost},
                                     {"close", monitor_close},
                                     {NULL, NULL}};
  fll_newclass(L, FLL_MONITOR, "monitor", meta, methods);
  fll_pushfunction(L, monitor_open);
  lua_setfield(L, -2, "monitor");
}
