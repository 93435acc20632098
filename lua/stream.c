/* Streams and events of a device as Lua objects, pinned memory, the search for
 * tensors that streams use without order. */
#include "fll.h"

#include <stdlib.h>

typedef struct stream {
  uint64_t magic; /* 16 bytes would be a tensor's size */
  fl_device device;
  int number;
  bool open;
} stream;

typedef struct event {
  uint64_t magic;
  fl_mark *mark; /* NULL: closed */
  uint64_t more; /* likewise */
} event;

static stream *push_stream(lua_State *L, fl_lua *st, fl_device d, int number) {
  stream *s = fll_newobject(L, FLL_STREAM, sizeof *s, 0);
  s->device = d;
  s->number = number;
  s->open = true;
  fl_stream_retain(st->rt, d, number);
  return s;
}

static stream *to_stream(lua_State *L, int i, const char *where) {
  stream *s = fll_totype(L, i, FLL_STREAM, sizeof *s);
  if (!s)
    fll_error(L, "%s: expected a stream made by flare.stream(), got %s", where,
              fll_typename(L, i));
  if (!s->open)
    fll_error(L, "%s: the stream is closed", where);
  return s;
}

static event *to_event(lua_State *L, int i, const char *where) {
  event *e = fll_totype(L, i, FLL_EVENT, sizeof *e);
  if (!e)
    fll_error(L, "%s: expected an event made by flare.event(), got %s", where,
              fll_typename(L, i));
  if (!e->mark)
    fll_error(L, "%s: the event is closed", where);
  return e;
}

static fl_device device_at(lua_State *L, fl_lua *st, int i, const char *where) {
  return lua_isnoneornil(L, i) ? st->device : fll_checkdevice(L, st, i, where);
}

/* --- streams --- */

/* stream(device, handle): another library's. */
static int adopt_stream(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_device d = device_at(L, st, 1, "stream");
  intptr_t handle = (intptr_t)fll_checkint(L, 2, "stream", "handle");
  stream *s = fll_newobject(L, FLL_STREAM, sizeof *s, 0);
  fll_check(L, st, fl_stream_adopt(st->rt, d, handle, &s->number));
  s->device = d;
  s->open = true;
  return 1;
}

/* stream(device): opens a stream that no other handle has;
 * stream(device, handle): adopts one of the driver's. */
static int new_stream(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int number;
  if (!lua_isnoneornil(L, 2))
    return adopt_stream(L);
  fl_device d = device_at(L, st, 1, "stream");
  stream *s = fll_newobject(L, FLL_STREAM, sizeof *s, 0);
  fl_status status = fl_stream_new(st->rt, d, &number);
  if (status == FL_OK) {
    s->device = d;
    s->number = number;
    s->open = true;
    return 1;
  }
  lua_gc(L, LUA_GCCOLLECT, 0); /* others may have been forgotten */
  fll_check(L, st, fl_stream_new(st->rt, d, &number));
  s->device = d;
  s->number = number;
  s->open = true;
  return 1;
}

/* current_stream(device): the one that calls go to; default_stream(device):
 * the one they go to at first. */
static int current_stream(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_device d = device_at(L, st, 1, "current_stream");
  push_stream(L, st, d, fl_stream_current(st->rt, d));
  return 1;
}

static int default_stream(lua_State *L) {
  fl_lua *st = fll_enter(L);
  push_stream(L, st, device_at(L, st, 1, "default_stream"), 0);
  return 1;
}

/* s:run(f, ...): whatever happens, the stream before is in use again. */
static int stream_run(lua_State *L) {
  fl_lua *st = fll_enter(L);
  stream s = *to_stream(L, 1, "run");
  int was = fl_stream_current(st->rt, s.device);
  if (lua_isnoneornil(L, 2))
    fll_error(L, "run: expected a function, got %s", fll_typename(L, 2));
  fll_check(L, st, fl_stream_use(st->rt, s.device, s.number));
  int status = lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0);
  if (st->rt)
    fl_stream_use(st->rt, s.device, was);
  st->L = L;
  if (status != LUA_OK)
    return lua_error(L);
  return lua_gettop(L) - 1;
}

static int stream_wait(lua_State *L) {
  fl_lua *st = fll_enter(L);
  stream *s = to_stream(L, 1, "wait");
  stream *other = fll_totype(L, 2, FLL_STREAM, sizeof *other);
  event *e = fll_totype(L, 2, FLL_EVENT, sizeof *e);
  if (!other && !e)
    fll_error(L, "wait: expected a stream or an event, got %s",
              fll_typename(L, 2));
  if (other) {
    other = to_stream(L, 2, "wait");
    e = fll_newobject(L, FLL_EVENT, sizeof *e, 0);
    fll_check(L, st, fl_mark_new(st->rt, other->device, &e->mark));
    fll_check(L, st, fl_mark_record(e->mark, other->number));
  } else
    e = to_event(L, 2, "wait");
  fll_check(L, st, fl_mark_wait(e->mark, s->device, s->number));
  if (other) {
    fl_mark_free(e->mark);
    e->mark = NULL;
  }
  lua_settop(L, 1);
  return 1;
}

/* s:promise{x, y, ...}: what s has got until now writes them. */
static int stream_promise(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const stream *s = to_stream(L, 1, "promise");
  luaL_checktype(L, 2, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 2);
  fl_tensor **list = fll_scratch(L, ((size_t)n + 1) * sizeof(fl_tensor *));
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 2, k + 1);
    list[k] = fll_checktensor(L, -1, "promise", "a tensor of the list");
    lua_pop(L, 1);
  }
  fll_check(L, st, fl_stream_promise(st->rt, s->device, s->number, n, list));
  lua_settop(L, 1);
  return 1;
}

static int stream_synchronize(lua_State *L) {
  fl_lua *st = fll_enter(L);
  stream *s = to_stream(L, 1, "synchronize");
  fll_check(L, st, fl_stream_sync(st->rt, s->device, s->number));
  return 0;
}

/* s:record() -> a new event; s:record(e) -> e */
static int stream_record(lua_State *L) {
  fl_lua *st = fll_enter(L);
  stream *s = to_stream(L, 1, "record");
  lua_settop(L, 2);
  if (lua_isnil(L, 2)) {
    event *fresh = fll_newobject(L, FLL_EVENT, sizeof *fresh, 0);
    fll_check(L, st, fl_mark_new(st->rt, s->device, &fresh->mark));
  }
  event *e = to_event(L, -1, "record");
  if (fl_mark_device(e->mark) != s->device)
    fll_error(L, "record: the event is of %s, the stream of %s",
              fl_device_name(st->rt, fl_mark_device(e->mark)),
              fl_device_name(st->rt, s->device));
  fll_check(L, st, fl_mark_record(e->mark, s->number));
  return 1;
}

static int stream_device(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_pushstring(L, fl_device_name(st->rt, to_stream(L, 1, "device")->device));
  return 1;
}

/* s:handle(): as other libraries know it. */
static int stream_handle(lua_State *L) {
  fl_lua *st = fll_enter(L);
  stream *s = to_stream(L, 1, "handle");
  intptr_t handle;
  fll_check(L, st, fl_stream_handle(st->rt, s->device, s->number, &handle));
  lua_pushinteger(L, (lua_Integer)handle);
  return 1;
}

static int stream_close(lua_State *L) {
  fl_lua *st = fll_peek(L);
  stream *s = fll_checktype(L, 1, FLL_STREAM, sizeof *s);
  if (s->open && st->rt)
    fl_stream_release(st->rt, s->device, s->number);
  s->open = false;
  return 0;
}

static int stream_same(lua_State *L) {
  stream *a = fll_totype(L, 1, FLL_STREAM, sizeof *a);
  stream *b = fll_totype(L, 2, FLL_STREAM, sizeof *b);
  lua_pushboolean(L,
                  a && b && a->device == b->device && a->number == b->number);
  return 1;
}

static int stream_text(lua_State *L) {
  fl_lua *st = fll_peek(L);
  stream *s = fll_checktype(L, 1, FLL_STREAM, sizeof *s);
  lua_pushfstring(L, "flare.stream (%d of %s%s)", s->number,
                  st->rt ? fl_device_name(st->rt, s->device) : "?",
                  s->open ? "" : ", closed");
  return 1;
}

/* --- events --- */

static int new_event(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_device d = device_at(L, st, 1, "event");
  event *e = fll_newobject(L, FLL_EVENT, sizeof *e, 0);
  fll_check(L, st, fl_mark_new(st->rt, d, &e->mark));
  return 1;
}

/* The stream at 2, or the one in use on the event's device. */
static void stream_for(lua_State *L, fl_lua *st, const event *e,
                       const char *where, fl_device *d, int *number) {
  *d = fl_mark_device(e->mark);
  *number = fl_stream_current(st->rt, *d);
  if (lua_isnoneornil(L, 2))
    return;
  const stream *s = to_stream(L, 2, where);
  *d = s->device;
  *number = s->number;
}

static int event_record(lua_State *L) {
  fl_lua *st = fll_enter(L);
  event *e = to_event(L, 1, "record");
  fl_device d;
  int number;
  stream_for(L, st, e, "record", &d, &number);
  if (d != fl_mark_device(e->mark))
    fll_error(L, "record: the event is of %s, the stream of %s",
              fl_device_name(st->rt, fl_mark_device(e->mark)),
              fl_device_name(st->rt, d));
  fll_check(L, st, fl_mark_record(e->mark, number));
  lua_settop(L, 1);
  return 1;
}

static int event_wait(lua_State *L) {
  fl_lua *st = fll_enter(L);
  event *e = to_event(L, 1, "wait");
  fl_device d;
  int number;
  stream_for(L, st, e, "wait", &d, &number);
  fll_check(L, st, fl_mark_wait(e->mark, d, number));
  lua_settop(L, 1);
  return 1;
}

static int event_synchronize(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st, fl_mark_sync(to_event(L, 1, "synchronize")->mark));
  return 0;
}

static int event_query(lua_State *L) {
  fll_enter(L);
  lua_pushboolean(L, fl_mark_passed(to_event(L, 1, "query")->mark));
  return 1;
}

/* e:elapsed(later) in milliseconds */
static int event_elapsed(lua_State *L) {
  fl_lua *st = fll_enter(L);
  event *from = to_event(L, 1, "elapsed"), *to = to_event(L, 2, "elapsed");
  double us = 0;
  fll_check(L, st, fl_mark_elapsed(from->mark, to->mark, &us));
  lua_pushnumber(L, us / 1000);
  return 1;
}

static int event_close(lua_State *L) {
  event *e = fll_checktype(L, 1, FLL_EVENT, sizeof *e);
  fll_peek(L);
  fl_mark_free(e->mark);
  e->mark = NULL;
  return 0;
}

/* --- pinned memory, races --- */

/* Pushes a copy of the tensor at i in pinned memory. */
void fll_pin(lua_State *L, fl_lua *st, int i) {
  fll_tensor *h = fll_new(L, st, FLL_MT);
  fl_tensor *x = fll_checktensor(L, i, "pin_memory", "x"), *t = NULL;
  const fl_meta *m = fl_tensor_meta(x);
  fll_check(L, st,
            fl_tensor_new_pinned(st->rt, m->dtype, m->ndim, m->shape, &t));
  fll_fill(h, t);
  size_t n = (size_t)fl_tensor_numel(x) * fl_dtype_size(m->dtype);
  if (n && fl_tensor_borrow(t))
    fll_check(L, st, fl_tensor_read(x, fl_tensor_borrow(t), n));
}

/* x:pin_memory(): a copy on the CPU that devices read by themselves; x itself
 * if it is one. */
static int pin_memory(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fl_tensor *x = fll_checktensor(L, 1, "pin_memory", "x");
  lua_settop(L, 1);
  if (fl_tensor_device(x) != 0)
    fll_error(L,
              "pin_memory: the tensor is on %s: take it to \"cpu\" with "
              "x:to(\"cpu\", {async = true}), which gives a pinned one",
              fl_device_name(st->rt, fl_tensor_device(x)));
  if (fl_tensor_pinned(x))
    return 1;
  fll_pin(L, st, 1);
  return 1;
}

static int is_pinned(lua_State *L) {
  fll_enter(L);
  lua_pushboolean(L, fl_tensor_pinned(fll_checktensor(L, 1, "is_pinned", "x")));
  return 1;
}

/* debug_streams(on) -> what it was */
static int debug_streams(lua_State *L) {
  fl_lua *st = fll_enter(L);
  bool on = lua_isnone(L, 1) || lua_toboolean(L, 1);
  lua_pushboolean(L, fl_stream_races(st->rt, on));
  return 1;
}

bool fll_tostream(lua_State *L, int i, const char *where, fl_device *d,
                  int *number) {
  if (lua_isnoneornil(L, i))
    return false;
  const stream *s = to_stream(L, i, where);
  *d = s->device;
  *number = s->number;
  return true;
}

const luaL_Reg fll_stream_methods[] = {
    {"pin_memory", pin_memory}, {"is_pinned", is_pinned}, {NULL, NULL}};

static void new_type(lua_State *L, int key, const char *name,
                     const luaL_Reg *meta, const luaL_Reg *methods) {
  fll_newclass(L, key, name, meta, methods);
}

void fll_stream_core(lua_State *L) {
  static const luaL_Reg functions[] = {{"stream", new_stream},
                                       {"current_stream", current_stream},
                                       {"default_stream", default_stream},
                                       {"event", new_event},
                                       {"debug_streams", debug_streams},
                                       {NULL, NULL}};
  static const luaL_Reg stream_meta[] = {{"__gc", stream_close},
                                         {"__close", stream_close},
                                         {"__eq", stream_same},
                                         {"__tostring", stream_text},
                                         {NULL, NULL}};
  static const luaL_Reg stream_list[] = {{"run", stream_run},
                                         {"wait", stream_wait},
                                         {"promise", stream_promise},
                                         {"synchronize", stream_synchronize},
                                         {"record", stream_record},
                                         {"device", stream_device},
                                         {"handle", stream_handle},
                                         {"close", stream_close},
                                         {NULL, NULL}};
  static const luaL_Reg event_meta[] = {
      {"__gc", event_close}, {"__close", event_close}, {NULL, NULL}};
  static const luaL_Reg event_list[] = {{"record", event_record},
                                        {"wait", event_wait},
                                        {"synchronize", event_synchronize},
                                        {"query", event_query},
                                        {"elapsed", event_elapsed},
                                        {"close", event_close},
                                        {NULL, NULL}};
  fl_lua *st = fll_state_of(L);
  const char *debug = getenv("FLARE_DEBUG_STREAMS");
  new_type(L, FLL_STREAM, "flare.stream", stream_meta, stream_list);
  new_type(L, FLL_EVENT, "flare.event", event_meta, event_list);
  fll_register(L, functions);
  if (debug && strcmp(debug, "0") != 0)
    fl_stream_races(st->rt, true);
}
