/* Messages over sockets of ZeroMQ, by libzmq, which is loaded when a context
 * is first made: core.zmq. Sockets are numbers of their context. What stands
 * here of its interface is fixed since version 4. */
#include "../fll.h"
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

#define MOST 16 /* sockets of a context */

enum { ZMQ_MORE = 2, ZMQ_DONTWAIT = 1, ZMQ_LINGER = 17, ZMQ_SUBSCRIBE = 6 };
enum { ZMQ_ROUTER = 6, ZMQ_IN = 1, ZMQ_ENDPOINT = 32 };

typedef struct zmq_item {
  void *socket;
  int fd;
  short events, revents;
} zmq_item;

typedef struct zmq_part {
  _Alignas(void *) unsigned char room[64];
} zmq_part;

/* What is called of the library. */
typedef struct zmq_table {
  void *(*ctx_new)(void);
  int (*ctx_shutdown)(void *), (*ctx_term)(void *);
  void *(*socket)(void *, int);
  int (*close)(void *);
  int (*setsockopt)(void *, int, const void *, size_t);
  int (*getsockopt)(void *, int, void *, size_t *);
  int (*bind)(void *, const char *), (*connect)(void *, const char *);
  int (*send)(void *, const void *, size_t, int);
  int (*poll)(zmq_item *, int, long);
  int (*proxy)(void *, void *, void *);
  int (*msg_init)(zmq_part *), (*msg_close)(zmq_part *);
  int (*msg_recv)(zmq_part *, void *, int), (*msg_more)(const zmq_part *);
  void *(*msg_data)(zmq_part *);
  size_t (*msg_size)(const zmq_part *);
  int (*error)(void);
  const char *(*text)(int);
} zmq_table;

typedef struct zmq_context {
  uint64_t magic;
  void *library, *context;
  zmq_table f;
  void *sockets[MOST];
  int n;
  void *echo; /* the socket of the thread */
  pthread_t thread;
} zmq_context;

static const struct {
  const char *name;
  int kind;
} kinds[] = {{"pub", 1}, {"sub", 2}, {"req", 3}, {"dealer", 5}, {"router", 6}};

static bool load_table(zmq_context *z) {
  const fll_symbol all[] = {{&z->f.ctx_new, "zmq_ctx_new"},
                            {&z->f.ctx_shutdown, "zmq_ctx_shutdown"},
                            {&z->f.ctx_term, "zmq_ctx_term"},
                            {&z->f.socket, "zmq_socket"},
                            {&z->f.close, "zmq_close"},
                            {&z->f.setsockopt, "zmq_setsockopt"},
                            {&z->f.getsockopt, "zmq_getsockopt"},
                            {&z->f.bind, "zmq_bind"},
                            {&z->f.connect, "zmq_connect"},
                            {&z->f.send, "zmq_send"},
                            {&z->f.poll, "zmq_poll"},
                            {&z->f.proxy, "zmq_proxy"},
                            {&z->f.msg_init, "zmq_msg_init"},
                            {&z->f.msg_close, "zmq_msg_close"},
                            {&z->f.msg_recv, "zmq_msg_recv"},
                            {&z->f.msg_more, "zmq_msg_more"},
                            {&z->f.msg_data, "zmq_msg_data"},
                            {&z->f.msg_size, "zmq_msg_size"},
                            {&z->f.error, "zmq_errno"},
                            {&z->f.text, "zmq_strerror"}};
  return fll_library_bind(z->library, all, sizeof all / sizeof *all);
}

static int zmq_close_context(lua_State *L) {
  zmq_context *z = fll_totype(L, 1, FLL_ZMQ, sizeof *z);
  if (!z || !z->library)
    return 0;
  if (z->context) {
    z->f.ctx_shutdown(z->context);
    if (z->echo)
      pthread_join(z->thread, NULL);
    for (int i = 0; i < z->n; i++)
      z->f.close(z->sockets[i]);
    while (z->f.ctx_term(z->context) != 0 && z->f.error() == EINTR)
      continue;
  }
  dlclose(z->library);
  z->library = z->context = NULL;
  return 0;
}

static zmq_context *check_context(lua_State *L) {
  zmq_context *z = fll_checktype(L, 1, FLL_ZMQ, sizeof *z);
  if (!z->context)
    fll_error(L, "zmq: the context is closed");
  return z;
}

static int zmq_failed(lua_State *L, zmq_context *z, const char *what) {
  return fll_failed(L, "%s: %s", what, z->f.text(z->f.error()));
}

/* open() -> a context, or nil and a message */
static int zmq_open(lua_State *L) {
  fll_enter(L);
  zmq_context *z = fll_newobject(L, FLL_ZMQ, sizeof *z, 0);
  z->library = fll_library_open("libzmq.so.5", "libzmq.5.dylib");
  if (!z->library)
    return fll_failed(L, "libzmq is not here: install libzmq5 (zeromq)");
  if (!load_table(z))
    return fll_failed(L, "libzmq is older than version 4");
  z->context = z->f.ctx_new();
  if (!z->context)
    return zmq_failed(L, z, "libzmq");
  return 1;
}

/* A socket of the context that is bound or connected to an address. */
static void *new_socket(zmq_context *z, int kind, const char *address,
                        bool binds) {
  int linger = 1000; /* ms for what was sent when the program ends */
  void *s = z->f.socket(z->context, kind);
  if (!s)
    return NULL;
  z->f.setsockopt(s, ZMQ_LINGER, &linger, sizeof linger);
  if (kind == 2)
    z->f.setsockopt(s, ZMQ_SUBSCRIBE, "", 0);
  if ((binds ? z->f.bind : z->f.connect)(s, address) == 0)
    return s;
  z->f.close(s);
  return NULL;
}

/* context:socket(kind, address, binds) -> its number and where it is bound, or
 * nil and a message */
static int zmq_socket(lua_State *L) {
  zmq_context *z = check_context(L);
  const char *name = luaL_checkstring(L, 2);
  const char *address = luaL_checkstring(L, 3);
  int kind = 0;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strcmp(kinds[i].name, name) == 0)
      kind = kinds[i].kind;
  if (!kind)
    fll_error(L, "zmq: there is no socket '%s'", name);
  if (z->n == MOST)
    return fll_failed(L, "zmq: a context has at most %d sockets", MOST);
  void *s = new_socket(z, kind, address, lua_toboolean(L, 4));
  if (!s)
    return zmq_failed(L, z, address);
  z->sockets[z->n++] = s;
  char at[256] = "";
  size_t n = sizeof at;
  z->f.getsockopt(s, ZMQ_ENDPOINT, at, &n);
  lua_pushinteger(L, z->n);
  lua_pushstring(L, at);
  return 2;
}

static void *check_socket(lua_State *L, zmq_context *z) {
  lua_Integer i = luaL_checkinteger(L, 2);
  luaL_argcheck(L, i >= 1 && i <= z->n, 2, "no such socket");
  return z->sockets[i - 1];
}

/* context:send(socket, frames) -> true, or nil and a message */
static int zmq_send_message(lua_State *L) {
  zmq_context *z = check_context(L);
  void *s = check_socket(L, z);
  luaL_checktype(L, 3, LUA_TTABLE);
  lua_Integer n = luaL_len(L, 3);
  for (lua_Integer i = 1; i <= n; i++) {
    lua_geti(L, 3, i);
    size_t size;
    const char *p = luaL_checklstring(L, -1, &size);
    while (z->f.send(s, p, size, i < n ? ZMQ_MORE : 0) < 0)
      if (z->f.error() != EINTR)
        return zmq_failed(L, z, "send");
    lua_pop(L, 1);
  }
  lua_pushboolean(L, 1);
  return 1;
}

/* context:receive(socket) -> the frames of a message, or nil if there is none
 */
static int zmq_receive(lua_State *L) {
  zmq_context *z = check_context(L);
  void *s = check_socket(L, z);
  fll_box *box = fll_newbox(L, NULL);
  zmq_part *part = (zmq_part *)fll_boxroom(L, box, sizeof *part);
  lua_newtable(L);
  for (lua_Integer i = 1;; i++) {
    z->f.msg_init(part);
    int got;
    do
      got = z->f.msg_recv(part, s, i == 1 ? ZMQ_DONTWAIT : 0);
    while (got < 0 && i > 1 && z->f.error() == EINTR);
    if (got < 0) {
      z->f.msg_close(part);
      lua_pushnil(L);
      return 1;
    }
    lua_pushlstring(L, z->f.msg_data(part), z->f.msg_size(part));
    lua_seti(L, -2, i);
    bool more = z->f.msg_more(part);
    z->f.msg_close(part);
    if (!more)
      return 1;
  }
}

/* context:poll(ms) -> a list of the sockets with a message; a signal ends it */
static int zmq_wait(lua_State *L) {
  zmq_context *z = check_context(L);
  zmq_item items[MOST];
  for (int i = 0; i < z->n; i++)
    items[i] = (zmq_item){.socket = z->sockets[i], .events = ZMQ_IN};
  int ready = z->f.poll(items, z->n, (long)luaL_checkinteger(L, 2));
  lua_newtable(L);
  for (int i = 0, n = 0; ready > 0 && i < z->n; i++) {
    if (!(items[i].revents & ZMQ_IN))
      continue;
    lua_pushinteger(L, i + 1);
    lua_seti(L, -2, ++n);
  }
  return 1;
}

static void *run_echo(void *p) {
  zmq_context *z = p;
  z->f.proxy(z->echo, z->echo, NULL); /* until the context is shut down */
  z->f.close(z->echo);
  return NULL;
}

/* context:echo(address): a thread sends back what arrives there. True, or nil
 * and a message. */
static int zmq_echo(lua_State *L) {
  zmq_context *z = check_context(L);
  const char *address = luaL_checkstring(L, 2);
  if (z->echo)
    fll_error(L, "zmq: there is an echo already");
  void *s = new_socket(z, ZMQ_ROUTER, address, true);
  if (!s)
    return zmq_failed(L, z, address);
  z->echo = s;
  sigset_t all, before;
  sigfillset(&all); /* signals are for the main thread */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int e = pthread_create(&z->thread, NULL, run_echo, z);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (e) {
    z->echo = NULL;
    z->f.close(s);
    return fll_failed(L, "zmq: %s", strerror(e));
  }
  lua_pushboolean(L, 1);
  return 1;
}

void fll_zmq_core(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", zmq_close_context},
                                  {"__close", zmq_close_context},
                                  {NULL, NULL}};
  static const luaL_Reg methods[] = {{"socket", zmq_socket},
                                     {"send", zmq_send_message},
                                     {"receive", zmq_receive},
                                     {"poll", zmq_wait},
                                     {"echo", zmq_echo},
                                     {"close", zmq_close_context},
                                     {NULL, NULL}};
  fll_newclass(L, FLL_ZMQ, "ZeroMQ context", meta, methods);
  fll_pushfunction(L, zmq_open);
  lua_setfield(L, -2, "zmq");
}
