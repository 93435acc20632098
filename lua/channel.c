/* Bounded queues between threads. No Lua function is called while one is
 * locked; a wait checks every 50 ms whether it has been interrupted. */
#include "thread.h"

#include <stdlib.h>
#include <time.h>

#define SLICE 0.05

struct fll_channel {
  atomic_int rc;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  fll_parcel *first, *last;
  int64_t count, capacity;
  bool closed;
};

typedef struct handle {
  uint64_t magic;
  fll_channel *c;
  uint64_t more;
} handle;

void fll_channel_retain(fll_channel *c) {
  atomic_fetch_add_explicit(&c->rc, 1, memory_order_relaxed);
}

void fll_channel_release(fll_channel *c) {
  if (atomic_fetch_sub_explicit(&c->rc, 1, memory_order_acq_rel) != 1)
    return;
  while (c->first) {
    fll_parcel *p = c->first;
    c->first = p->next;
    fll_parcel_free(p);
  }
  pthread_mutex_destroy(&c->lock);
  pthread_cond_destroy(&c->changed);
  free(c);
}

static handle *new_handle(lua_State *L) {
  return fll_newobject(L, FLL_CHANNEL, sizeof(handle), 0);
}

void fll_channel_push(lua_State *L, fll_channel *c) {
  handle *h = new_handle(L);
  fll_channel_retain(c);
  h->c = c;
}

fll_channel *fll_channel_test(lua_State *L, int i) {
  handle *h = fll_totype(L, i, FLL_CHANNEL, sizeof *h);
  return h ? h->c : NULL;
}

static fll_channel *check(lua_State *L) {
  handle *h = fll_checktype(L, 1, FLL_CHANNEL, sizeof *h);
  if (!h->c)
    fll_error(L, "the channel has been collected");
  return h->c;
}

/* channel(capacity) */
static int make(lua_State *L) {
  fll_enter(L);
  int64_t capacity =
      lua_isnoneornil(L, 1) ? 16 : fll_checkint(L, 1, "channel", "capacity");
  if (capacity < 1)
    fll_error(L, "channel: capacity: expected at least 1, got %lld",
              (long long)capacity);
  handle *h = new_handle(L);
  fll_channel *c = calloc(1, sizeof *c);
  if (!c)
    return luaL_error(L, "out of memory");
  pthread_condattr_t a;
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_mutex_init(&c->lock, NULL);
  pthread_cond_init(&c->changed, &a);
  pthread_condattr_destroy(&a);
  atomic_init(&c->rc, 1);
  c->capacity = capacity;
  h->c = c;
  return 1;
}

/* --- waiting --- */

double fll_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Until a change, or a moment has passed; locked. */
void fll_wait(pthread_cond_t *changed, pthread_mutex_t *lock, double until) {
  double now = fll_now(), at = until < now + SLICE ? until : now + SLICE;
  struct timespec t = {.tv_sec = (time_t)at};
  t.tv_nsec = (long)((at - (double)t.tv_sec) * 1e9);
  pthread_cond_timedwait(changed, lock, &t);
}

double fll_deadline(lua_State *L, int i, const char *where) {
  if (lua_isnoneornil(L, i))
    return 1e300;
  if (lua_type(L, i) != LUA_TNUMBER)
    fll_error(L, "%s: timeout: expected seconds, got %s", where,
              fll_typename(L, i));
  return fll_now() + lua_tonumber(L, i);
}

typedef enum outcome { DONE, CLOSED, TIMEOUT, STOPPED } outcome;

static outcome put(fl_lua *st, fll_channel *c, fll_parcel *p, double until) {
  outcome o = DONE;
  pthread_mutex_lock(&c->lock);
  while (!c->closed && c->count >= c->capacity) {
    if (fl_runtime_interrupted(st->rt))
      o = STOPPED;
    else if (fll_now() >= until)
      o = TIMEOUT;
    if (o != DONE)
      break;
    fll_wait(&c->changed, &c->lock, until);
  }
  if (c->closed)
    o = CLOSED;
  if (o == DONE) {
    p->next = NULL;
    if (c->last)
      c->last->next = p;
    else
      c->first = p;
    c->last = p;
    c->count++;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  return o;
}

static outcome take(fl_lua *st, fll_channel *c, fll_parcel **p, double until) {
  outcome o = DONE;
  pthread_mutex_lock(&c->lock);
  while (c->count == 0 && o == DONE) {
    if (c->closed)
      o = CLOSED;
    else if (fl_runtime_interrupted(st->rt))
      o = STOPPED;
    else if (fll_now() >= until)
      o = TIMEOUT;
    else
      fll_wait(&c->changed, &c->lock, until);
  }
  if (o == DONE) {
    *p = c->first;
    c->first = (*p)->next;
    if (!c->first)
      c->last = NULL;
    c->count--;
    pthread_cond_broadcast(&c->changed);
  }
  pthread_mutex_unlock(&c->lock);
  return o;
}

static int failed(lua_State *L, outcome o) {
  if (o == STOPPED)
    fll_error(L, "interrupted!");
  lua_pushnil(L);
  lua_pushstring(L, o == CLOSED ? "closed" : "timeout");
  return 2;
}

/* ch:push(value, timeout): true, or nil and "closed" or "timeout". Channels in
 * each other's queues are freed once one of them is popped. That is no error: a
 * reply may carry the channel of the requests, of which others still wait. */
static int push(lua_State *L) {
  fl_lua *st = fll_enter(L);
  check(L);
  if (lua_isnoneornil(L, 2))
    fll_error(L, "push: nil cannot be sent; a table can hold it");
  lua_settop(L, 3);
  double until = fll_deadline(L, 3, "push");
  fll_parcel *p = fll_parcel_pack(L, st, 2, 2, "push");
  for (size_t k = 0; k < p->n_cargo; k++)
    if (p->cargo[k].channel == check(L))
      fll_error(L, "push: a channel cannot be sent through itself, which would "
                   "keep both for ever");
  outcome o = put(st, check(L), p, until);
  if (o != DONE)
    return failed(L, o);
  fll_parcel_take(L, 4);
  lua_pushboolean(L, 1);
  return 1;
}

/* ch:pop(timeout): the value, or nil and "closed" (and empty) or "timeout". */
static int pop(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_parcel *p = NULL;
  fll_channel *c = check(L);
  double until = fll_deadline(L, 2, "pop");
  outcome o = take(st, c, &p, until);
  if (o != DONE)
    return failed(L, o);
  return fll_parcel_unpack(L, st, p);
}

static int close_channel(lua_State *L) {
  fll_channel *c = check(L);
  pthread_mutex_lock(&c->lock);
  c->closed = true;
  pthread_cond_broadcast(&c->changed);
  pthread_mutex_unlock(&c->lock);
  return 0;
}

static int is_closed(lua_State *L) {
  fll_channel *c = check(L);
  pthread_mutex_lock(&c->lock);
  bool closed = c->closed;
  pthread_mutex_unlock(&c->lock);
  lua_pushboolean(L, closed);
  return 1;
}

static int length(lua_State *L) {
  fll_channel *c = check(L);
  pthread_mutex_lock(&c->lock);
  int64_t n = c->count;
  pthread_mutex_unlock(&c->lock);
  lua_pushinteger(L, n);
  return 1;
}

static int same(lua_State *L) {
  fll_channel *a = fll_channel_test(L, 1), *b = fll_channel_test(L, 2);
  lua_pushboolean(L, a && a == b);
  return 1;
}

static int channel_gc(lua_State *L) {
  handle *h = fll_totype(L, 1, FLL_CHANNEL, sizeof *h);
  if (h && h->c) {
    fll_channel *c = h->c;
    h->c = NULL;
    fll_channel_release(c);
  }
  return 0;
}

void fll_channel_open(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__gc", channel_gc}, {"__len", length}, {"__eq", same}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"push", push},
                                     {"pop", pop},
                                     {"close", close_channel},
                                     {"closed", is_closed},
                                     {NULL, NULL}};
  static const luaL_Reg functions[] = {
      {"channel", make}, {"shared", fll_shared}, {NULL, NULL}};
  fll_register(L, functions);
  fll_newclass(L, FLL_CHANNEL, "flare.channel", meta, methods);
}
