/* Sockets and pipes for the rendezvous of a job, as numbers of open files:
 * nothing here blocks but poll. What fails returns nil and a message. */
#include "../fll.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST 2048 /* files in a poll */

static int net_failed(lua_State *L, const char *what) {
  return fll_failed(L, "%s: %s", what, strerror(errno));
}

static void net_prepare(int fd) {
  int on = 1;
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

static int net_resolve(lua_State *L, bool passive, struct addrinfo **list) {
  const char *host = luaL_checkstring(L, 1);
  char port[16];
  struct addrinfo hints = {.ai_family = AF_UNSPEC,
                           .ai_socktype = SOCK_STREAM,
                           .ai_flags = passive ? AI_PASSIVE : 0};
  snprintf(port, sizeof port, "%d", (int)luaL_checkinteger(L, 2));
  int e = getaddrinfo(host, port, &hints, list);
  return e ? fll_failed(L, "%s: %s", host, gai_strerror(e)) : 0;
}

/* listen(host, port) -> file, port; exactly that address. Port 0: any. */
static int net_listen(lua_State *L) {
  struct addrinfo *list;
  int on = 1, n = net_resolve(L, true, &list);
  if (n)
    return n;
  int fd = socket(list->ai_family, list->ai_socktype, 0);
  struct sockaddr_storage at;
  socklen_t size = sizeof at;
  if (fd >= 0)
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  bool ok = fd >= 0 && bind(fd, list->ai_addr, list->ai_addrlen) == 0 &&
            listen(fd, 128) == 0 &&
            getsockname(fd, (struct sockaddr *)&at, &size) == 0;
  int e = errno;
  freeaddrinfo(list);
  errno = e;
  if (!ok) {
    n = net_failed(L, "listening");
    if (fd >= 0)
      close(fd);
    return n;
  }
  net_prepare(fd);
  lua_pushinteger(L, fd);
  lua_pushinteger(L, ntohs(at.ss_family == AF_INET6
                               ? ((struct sockaddr_in6 *)&at)->sin6_port
                               : ((struct sockaddr_in *)&at)->sin_port));
  return 2;
}

/* accept(file) -> a connection; nil: there is none */
static int net_accept(lua_State *L) {
  int fd = accept((int)luaL_checkinteger(L, 1), NULL, NULL);
  if (fd < 0)
    return net_failed(L, "accepting");
  net_prepare(fd);
  lua_pushinteger(L, fd);
  return 1;
}

/* connect(host, port, seconds) */
static int net_connect(lua_State *L) {
  struct addrinfo *list;
  int n = net_resolve(L, false, &list), e = 0;
  int ms = (int)(luaL_optnumber(L, 3, 5) * 1000);
  if (n)
    return n;
  socklen_t size = sizeof e;
  int fd = socket(list->ai_family, list->ai_socktype, 0);
  if (fd >= 0) {
    net_prepare(fd);
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (connect(fd, list->ai_addr, list->ai_addrlen) != 0)
      e = errno;
    if (e == EINPROGRESS) {
      e = poll(&p, 1, ms) == 1 ? 0 : ETIMEDOUT;
      if (!e)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &size);
    }
  } else
    e = errno;
  freeaddrinfo(list);
  if (!e) {
    lua_pushinteger(L, fd);
    return 1;
  }
  if (fd >= 0)
    close(fd);
  return fll_failed(L, "%s:%d: %s", lua_tostring(L, 1),
                    (int)lua_tointeger(L, 2), strerror(e));
}

/* read(file, most) -> what is there, "" if nothing is; nil at the end */
static int net_read(lua_State *L) {
  char bytes[16384];
  size_t most = (size_t)luaL_optinteger(L, 2, sizeof bytes);
  ssize_t n = read((int)luaL_checkinteger(L, 1), bytes,
                   most < sizeof bytes ? most : sizeof bytes);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    lua_pushliteral(L, "");
    return 1;
  }
  if (n <= 0)
    return n ? net_failed(L, "reading") : fll_failed(L, "closed");
  lua_pushlstring(L, bytes, (size_t)n);
  return 1;
}

/* write(file, text) -> how many bytes it took */
static int net_write(lua_State *L) {
  size_t size;
  int fd = (int)luaL_checkinteger(L, 1);
  const char *text = luaL_checklstring(L, 2, &size);
  ssize_t n = send(fd, text, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && errno == ENOTSOCK)
    n = write(fd, text, size);
  if (n < 0 && errno != EAGAIN && errno != EINTR)
    return net_failed(L, "writing");
  lua_pushinteger(L, n < 0 ? 0 : n);
  return 1;
}

/* poll({files to read}, {files to write}, milliseconds) -> {[file] = true} */
static int net_poll(lua_State *L) {
  struct pollfd p[MOST];
  int n = 0;
  for (int list = 1; list <= 2; list++)
    for (lua_Integer k = 1; k <= luaL_len(L, list) && n < MOST; k++) {
      lua_rawgeti(L, list, k);
      p[n++] = (struct pollfd){.fd = (int)lua_tointeger(L, -1),
                               .events = list == 1 ? POLLIN : POLLOUT};
      lua_pop(L, 1);
    }
  int ready = poll(p, (nfds_t)n, (int)luaL_checkinteger(L, 3));
  lua_newtable(L);
  for (int k = 0; k < n && ready > 0; k++)
    if (p[k].revents) {
      lua_pushboolean(L, 1);
      lua_rawseti(L, -2, p[k].fd);
    }
  return 1;
}

/* close(file, at once): without waiting for what was not sent or read */
static int net_close(lua_State *L) {
  struct linger now = {.l_onoff = 1};
  if (lua_toboolean(L, 2))
    setsockopt((int)luaL_checkinteger(L, 1), SOL_SOCKET, SO_LINGER, &now,
               sizeof now);
  close((int)luaL_checkinteger(L, 1));
  return 0;
}

/* pid(), parent(): of this process */
static int net_pid(lua_State *L) {
  lua_pushinteger(L, getpid());
  lua_pushinteger(L, getppid());
  return 2;
}

void fll_net_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"listen", net_listen}, {"accept", net_accept}, {"connect", net_connect},
      {"read", net_read},     {"write", net_write},   {"poll", net_poll},
      {"close", net_close},   {"pid", net_pid},       {NULL, NULL}};
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "net");
}
