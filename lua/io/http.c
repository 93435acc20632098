/* An HTTP server by libmicrohttpd, which is loaded when a server is made, in
 * the thread of its caller: core.http. Requests come as events of poll; they
 * are numbers, which answers name. Lua is called by nothing here: the library's
 * callbacks fill queues. */
#include "../fll.h"
#include "library.h"

#include <dlfcn.h>
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef struct http_request {
  struct http_request *next;
  struct http_server *server;
  struct MHD_Connection *connection; /* NULL: it is over */
  struct MHD_Response *response;     /* to be queued */
  lua_Integer number;
  unsigned status;
  char *method, *path, *body, *out;
  size_t n_body, body_room, n_out, out_room, sent;
  bool whole;           /* the body is here */
  bool given;           /* poll has returned it */
  bool too_large;       /* the body */
  bool suspended, left; /* the client has */
  bool streams, ended;  /* there is a body to come, and its end is here */
  bool answered;        /* Lua is through with it */
} http_request;

/* What is called of the library. */
#define HTTP_CALLS(X)                                                          \
  X(MHD_add_response_header)                                                   \
  X(MHD_create_response_from_buffer)                                           \
  X(MHD_create_response_from_callback)                                         \
  X(MHD_destroy_response)                                                      \
  X(MHD_get_connection_info)                                                   \
  X(MHD_get_daemon_info)                                                       \
  X(MHD_is_feature_supported)                                                  \
  X(MHD_lookup_connection_value)                                               \
  X(MHD_queue_response)                                                        \
  X(MHD_quiesce_daemon)                                                        \
  X(MHD_resume_connection)                                                     \
  X(MHD_run)                                                                   \
  X(MHD_run_wait)                                                              \
  X(MHD_start_daemon)                                                          \
  X(MHD_stop_daemon)                                                           \
  X(MHD_suspend_connection)

#define HTTP_CALL(name) __typeof__(name) *name;
typedef struct http_table {
  HTTP_CALLS(HTTP_CALL)
} http_table;

typedef struct http_server {
  uint64_t magic;
  void *library;
  http_table f;
  struct MHD_Daemon *daemon;
  http_request *requests;
  lua_Integer last;
  size_t most; /* bytes of a body */
  int port;
} http_server;

/* --- requests --- */

static void free_request(http_request *r) {
  http_request **at = &r->server->requests;
  while (*at && *at != r)
    at = &(*at)->next;
  if (*at)
    *at = r->next;
  if (r->response)
    r->server->f.MHD_destroy_response(r->response);
  free(r->method);
  free(r->path);
  free(r->body);
  free(r->out);
  free(r);
}

static bool append_bytes(char **p, size_t *n, size_t *room, const char *from,
                         size_t more) {
  if (*n + more > *room) {
    size_t want = 2 * (*n + more);
    char *grown = realloc(*p, want);
    if (!grown)
      return false;
    *p = grown;
    *room = want;
  }
  memcpy(*p + *n, from, more);
  *n += more;
  return true;
}

static void hold(http_request *r) {
  if (r->suspended)
    return;
  r->suspended = true;
  r->server->f.MHD_suspend_connection(r->connection);
}

static void go_on(http_request *r) {
  if (!r->suspended || !r->connection)
    return;
  r->suspended = false;
  r->server->f.MHD_resume_connection(r->connection);
}

static http_request *new_request(http_server *s, struct MHD_Connection *c,
                                 const char *path, const char *method) {
  http_request *r = calloc(1, sizeof *r);
  if (!r)
    return NULL;
  r->server = s;
  r->next = s->requests;
  s->requests = r;
  r->connection = c;
  r->number = ++s->last;
  r->method = strdup(method);
  r->path = strdup(path);
  if (r->method && r->path)
    return r;
  free_request(r);
  return NULL;
}

/* libmicrohttpd calls it when the head of a request is here, for each part of
 * the body, at its end, and again when a suspended connection goes on. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *c,
                                  const char *path, const char *method,
                                  const char *version, const char *data,
                                  size_t *size, void **own) {
  http_request *r = *own;
  (void)version;
  if (!r) {
    r = *own = new_request(context, c, path, method);
    return r ? MHD_YES : MHD_NO;
  }
  if (*size > 0) {
    if (r->n_body + *size > r->server->most)
      r->too_large = true;
    else if (!append_bytes(&r->body, &r->n_body, &r->body_room, data, *size))
      return MHD_NO;
    *size = 0;
    return MHD_YES;
  }
  if (r->left)
    return MHD_NO;
  if (r->response) {
    enum MHD_Result ok =
        r->server->f.MHD_queue_response(c, r->status, r->response);
    r->server->f.MHD_destroy_response(r->response);
    r->response = NULL;
    return ok;
  }
  r->whole = true;
  hold(r);
  return MHD_YES;
}

static void on_end(void *context, struct MHD_Connection *c, void **own,
                   enum MHD_RequestTerminationCode why) {
  http_request *r = *own;
  (void)context;
  (void)c;
  (void)why;
  if (!r)
    return;
  *own = NULL;
  r->connection = NULL;
  r->suspended = false;
  if (!r->given || r->answered)
    free_request(r);
}

/* What comes next of a body that is written in pieces. */
static ssize_t read_out(void *context, uint64_t at, char *to, size_t most) {
  http_request *r = context;
  (void)at;
  if (r->left)
    return MHD_CONTENT_READER_END_WITH_ERROR;
  size_t n = r->n_out - r->sent;
  if (n == 0 && r->ended)
    return MHD_CONTENT_READER_END_OF_STREAM;
  if (n == 0) {
    r->n_out = r->sent = 0;
    hold(r);
    return 0;
  }
  if (n > most)
    n = most;
  memcpy(to, r->out + r->sent, n);
  r->sent += n;
  return (ssize_t)n;
}

/* --- servers --- */

static http_server *check_server(lua_State *L) {
  http_server *s = fll_checktype(L, 1, FLL_HTTP, sizeof *s);
  if (!s->daemon)
    fll_error(L, "http: the server is closed");
  return s;
}

static lua_Integer read_number(lua_State *L, const char *name,
                               lua_Integer other) {
  lua_getfield(L, 1, name);
  lua_Integer n = luaL_optinteger(L, -1, other);
  lua_pop(L, 1);
  return n;
}

static bool load_library(http_server *s) {
#define HTTP_CALL_ROW(name) {&s->f.name, #name},
  const fll_symbol all[] = {HTTP_CALLS(HTTP_CALL_ROW)};
  s->library =
      fll_library_open("libmicrohttpd.so.12", "libmicrohttpd.12.dylib");
  return s->library &&
         fll_library_bind(s->library, all, sizeof all / sizeof *all);
}

static int http_missing(lua_State *L) {
  return fll_failed(L, "libmicrohttpd is not here: install libmicrohttpd12 "
                       "(libmicrohttpd)");
}

static void be_silent(void *context, const char *format, va_list list) {
  (void)context;
  (void)format;
  (void)list;
}

static bool start(http_server *s, const struct sockaddr *at, unsigned most,
                  unsigned seconds) {
  unsigned flags = MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
  if (s->f.MHD_is_feature_supported(MHD_FEATURE_EPOLL) == MHD_YES)
    flags |= MHD_USE_EPOLL;
  if (at->sa_family == AF_INET6)
    flags |= MHD_USE_IPv6;
  s->daemon = s->f.MHD_start_daemon(
      flags, 0, NULL, NULL, on_request, s, MHD_OPTION_EXTERNAL_LOGGER,
      be_silent, NULL, MHD_OPTION_SOCK_ADDR, at, MHD_OPTION_CONNECTION_LIMIT,
      most, MHD_OPTION_CONNECTION_TIMEOUT, seconds, MHD_OPTION_NOTIFY_COMPLETED,
      on_end, s, MHD_OPTION_END);
  if (!s->daemon)
    return false;
  const union MHD_DaemonInfo *info =
      s->f.MHD_get_daemon_info(s->daemon, MHD_DAEMON_INFO_BIND_PORT);
  s->port = info ? info->port : 0;
  return true;
}

/* serve{host =, port =, connections =, body = bytes, timeout = seconds that a
 * client may be silent} -> a server; nil and a message */
static int http_serve(lua_State *L) {
  fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_settop(L, 1);
  lua_getfield(L, 1, "host");
  const char *host = luaL_optstring(L, 2, "127.0.0.1");
  lua_Integer port = read_number(L, "port", 0);
  lua_Integer most = read_number(L, "connections", 512);
  lua_Integer body = read_number(L, "body", 16 << 20);
  lua_Integer seconds = read_number(L, "timeout", 60);
  char name[16];
  snprintf(name, sizeof name, "%d", (int)port);
  http_server *s = fll_newobject(L, FLL_HTTP, sizeof *s, 0);
  if (!load_library(s))
    return http_missing(L);
  s->most = (size_t)body;
  struct addrinfo *list,
      hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  int e = getaddrinfo(host, name, &hints, &list);
  if (e)
    return fll_failed(L, "%s: %s", host, gai_strerror(e));
  errno = 0;
  bool ok = start(s, list->ai_addr, (unsigned)most, (unsigned)seconds);
  e = errno;
  freeaddrinfo(list);
  if (!ok)
    return fll_failed(L, "%s:%s: %s", host, name,
                      e ? strerror(e) : "the server cannot be started");
  return 1;
}

static http_request *find_request(http_server *s, lua_Integer number) {
  http_request *r = s->requests;
  while (r && r->number != number)
    r = r->next;
  return r && r->given && !r->answered ? r : NULL;
}

/* A request that is not answered yet; NULL: its client has left. */
static http_request *check_request(lua_State *L, http_server *s) {
  return find_request(s, luaL_checkinteger(L, 2));
}

/* Suspended connections are not watched by the library, so whether their
 * clients are still there is asked here. */
static void find_leavers(http_server *s) {
  for (http_request *r = s->requests; r; r = r->next) {
    if (!r->suspended || r->left)
      continue;
    const union MHD_ConnectionInfo *info = s->f.MHD_get_connection_info(
        r->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    ssize_t n = recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
      r->left = true;
      go_on(r);
    }
  }
}

static void push_event(lua_State *L, const http_request *r, bool closed) {
  lua_createtable(L, 0, 5);
  lua_pushinteger(L, r->number);
  lua_setfield(L, -2, "request");
  if (closed) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "closed");
    return;
  }
  lua_pushstring(L, r->method);
  lua_setfield(L, -2, "method");
  lua_pushstring(L, r->path);
  lua_setfield(L, -2, "path");
  if (r->too_large) {
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, "too_large");
  }
  lua_pushlstring(L, r->body ? r->body : "", r->n_body);
  lua_setfield(L, -2, "body");
}

/* server:poll(milliseconds) -> a list of {request = number, method =, path =,
 * body =, too_large =}, and of {request = number, closed = true} where a client
 * has left before its answer was whole */
static int http_poll(lua_State *L) {
  http_server *s = check_server(L);
  lua_Integer ms = luaL_optinteger(L, 2, 0), n = 0;
  find_leavers(s);
  s->f.MHD_run_wait(s->daemon, (int32_t)ms);
  lua_newtable(L);
  /* a request that a client sends on a connection that is kept: next of list */
  for (http_request *r = s->requests, *next; r; r = next) {
    next = r->next;
    if (r->given && !r->connection && !r->answered) {
      push_event(L, r, true);
      free_request(r);
    } else if (r->whole && !r->given && !r->left) {
      r->given = true;
      push_event(L, r, false);
      free(r->body);
      r->body = NULL;
    } else {
      continue;
    }
    lua_rawseti(L, -2, ++n);
  }
  return 1;
}

/* server:header(request, name) -> its value or nil */
static int http_header(lua_State *L) {
  http_server *s = check_server(L);
  http_request *r = check_request(L, s);
  if (!r || !r->connection)
    return 0;
  lua_pushstring(L, s->f.MHD_lookup_connection_value(r->connection,
                                                     MHD_HEADER_KIND,
                                                     luaL_checkstring(L, 3)));
  return 1;
}

static void add_headers(lua_State *L, int i, const http_request *r) {
  if (!lua_istable(L, i))
    return;
  for (lua_pushnil(L); lua_next(L, i); lua_pop(L, 1))
    if (lua_type(L, -2) == LUA_TSTRING && lua_type(L, -1) == LUA_TSTRING)
      r->server->f.MHD_add_response_header(r->response, lua_tostring(L, -2),
                                           lua_tostring(L, -1));
}

/* server:respond(request, status, headers, body): the whole answer, or its
 * beginning if there is no body, which server:write goes on with -> false: the
 * client has left */
static int http_respond(lua_State *L) {
  size_t n;
  http_server *s = check_server(L);
  http_request *r = check_request(L, s);
  unsigned status = (unsigned)luaL_checkinteger(L, 3);
  const char *body = luaL_optlstring(L, 5, NULL, &n);
  lua_settop(L, 5);
  bool ok = r && r->connection && !r->streams && !r->left;
  if (ok && body)
    r->response = s->f.MHD_create_response_from_buffer(
        n, (void *)(uintptr_t)body, MHD_RESPMEM_MUST_COPY);
  else if (ok)
    r->response = s->f.MHD_create_response_from_callback(
        MHD_SIZE_UNKNOWN, 16384, read_out, r, NULL);
  if (ok && !r->response)
    fll_error(L, "http: not enough memory for an answer");
  if (ok) {
    add_headers(L, 4, r);
    r->status = status;
    r->streams = !body;
    r->answered = body != NULL;
    go_on(r);
  }
  lua_pushboolean(L, ok);
  return 1;
}

/* server:write(request, text): more of a body -> false: the client has left */
static int http_write(lua_State *L) {
  size_t n;
  http_server *s = check_server(L);
  http_request *r = check_request(L, s);
  const char *text = luaL_checklstring(L, 3, &n);
  bool ok = r && r->connection && r->streams && !r->ended && !r->left;
  if (ok && !append_bytes(&r->out, &r->n_out, &r->out_room, text, n))
    fll_error(L, "http: not enough memory for an answer");
  if (ok)
    go_on(r);
  lua_pushboolean(L, ok);
  return 1;
}

/* server:finish(request): the end of a body that was written */
static int http_finish(lua_State *L) {
  http_server *s = check_server(L);
  http_request *r = check_request(L, s);
  if (r && r->streams) {
    r->ended = r->answered = true;
    if (r->connection)
      go_on(r);
    else
      free_request(r);
  }
  return 0;
}

/* server:quiesce(): new connections are refused, those that are open go on */
static int http_quiesce(lua_State *L) {
  http_server *s = check_server(L);
  MHD_socket fd = s->f.MHD_quiesce_daemon(s->daemon);
  if (fd != MHD_INVALID_SOCKET)
    shutdown(fd, SHUT_RDWR);
  return 0;
}

static int http_port(lua_State *L) {
  lua_pushinteger(L, check_server(L)->port);
  return 1;
}

/* How many answers are not whole. */
static int http_answering(lua_State *L) {
  lua_Integer n = 0;
  for (http_request *r = check_server(L)->requests; r; r = r->next)
    n += r->connection != NULL;
  lua_pushinteger(L, n);
  return 1;
}

static void stop(http_server *s) {
  for (http_request *r = s->requests; r; r = r->next) {
    r->left = true;
    go_on(r); /* suspended connections must not be stopped */
  }
  s->f.MHD_run(s->daemon);
  s->f.MHD_stop_daemon(s->daemon);
  s->daemon = NULL;
  while (s->requests)
    free_request(s->requests);
}

static int http_close(lua_State *L) {
  http_server *s = fll_totype(L, 1, FLL_HTTP, sizeof *s);
  if (!s)
    return 0;
  if (s->daemon)
    stop(s);
  if (s->library)
    dlclose(s->library);
  s->library = NULL;
  return 0;
}

/* here() -> whether the library is; otherwise nil and a message */
static int http_here(lua_State *L) {
  http_server s = {0};
  bool here = load_library(&s);
  if (s.library)
    dlclose(s.library);
  if (!here)
    return http_missing(L);
  lua_pushboolean(L, 1);
  return 1;
}

void fll_http_core(lua_State *L) {
  static const luaL_Reg meta[] = {
      {"__gc", http_close}, {"__close", http_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {
      {"poll", http_poll},       {"header", http_header},
      {"respond", http_respond}, {"write", http_write},
      {"finish", http_finish},   {"quiesce", http_quiesce},
      {"port", http_port},       {"answering", http_answering},
      {"close", http_close},     {NULL, NULL}};
  static const luaL_Reg functions[] = {
      {"serve", http_serve}, {"here", http_here}, {NULL, NULL}};
  fll_newclass(L, FLL_HTTP, "HTTP server", meta, methods);
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "http");
}
