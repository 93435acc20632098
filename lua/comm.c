/* Lua binding of jobs of several processes: joining a job, process groups,
 * communication engines, waiting for asynchronous collectives. The collectives
 * are operators; the user's interface is flare.dist, in Lua. */
#define _GNU_SOURCE /* dladdr */
#include "fll.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A state that is closing has no runtime any more, while groups still part. */
static bool comm_interrupted(void *context) {
  fl_runtime *rt = ((fl_lua *)context)->rt;
  return rt && fl_runtime_interrupted(rt);
}

static double comm_number(lua_State *L, const char *name, double otherwise) {
  lua_getfield(L, 1, name);
  double v = luaL_optnumber(L, -1, otherwise);
  lua_pop(L, 1);
  return v;
}

/* comm_open{key =, rank =, size =, here =, timeout =, first =, check =} */
static int comm_open(lua_State *L) {
  fl_lua *st = fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  fl_comm_options o = {.struct_size = sizeof o,
                       .rank = (int)comm_number(L, "rank", 0),
                       .size = (int)comm_number(L, "size", 1),
                       .here = (int)comm_number(L, "here", 0),
                       .timeout = comm_number(L, "timeout", 120),
                       .first = comm_number(L, "first", 600),
                       .interrupted = comm_interrupted,
                       .context = st};
  lua_getfield(L, 1, "check");
  o.check = lua_toboolean(L, -1);
  lua_getfield(L, 1, "key");
  o.key = luaL_checkstring(L, -1);
  fll_check(L, st, fl_comm_open(st->rt, &o));
  return 0;
}

static int comm_close(lua_State *L) {
  fl_comm_close(fll_enter(L)->rt);
  return 0;
}

/* comm_group{0, 2} -> its number */
static int comm_group(lua_State *L) {
  fl_lua *st = fll_enter(L);
  luaL_checktype(L, 1, LUA_TTABLE);
  int n = (int)lua_rawlen(L, 1), group = 0;
  int *ranks = fll_scratch(L, ((size_t)n + 1) * sizeof *ranks);
  for (int k = 0; k < n; k++) {
    lua_rawgeti(L, 1, k + 1);
    ranks[k] = (int)fll_checkint(L, -1, "group", "rank");
    lua_pop(L, 1);
  }
  fll_check(L, st, fl_comm_group(st->rt, n, ranks, &group));
  lua_pushinteger(L, group);
  return 1;
}

static int group_at(lua_State *L, int i) {
  return (int)luaL_checkinteger(L, i);
}

/* comm_members(group) -> rank or nil, {ranks} */
static int comm_members(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int rank = 0, size = 0;
  const int *ranks = NULL;
  fll_check(L, st,
            fl_comm_members(st->rt, group_at(L, 1), &rank, &size, &ranks));
  if (rank < 0)
    lua_pushnil(L);
  else
    lua_pushinteger(L, rank);
  lua_createtable(L, size, 0);
  for (int k = 0; k < size; k++) {
    lua_pushinteger(L, ranks[k]);
    lua_rawseti(L, -2, k + 1);
  }
  return 2;
}

/* comm_ticket(engine) -> a string for the others */
static int comm_ticket(lua_State *L) {
  fl_lua *st = fll_enter(L);
  unsigned char ticket[FL_COMM_TICKET];
  fll_check(L, st, fl_comm_ticket(st->rt, luaL_checkstring(L, 1), ticket));
  lua_pushlstring(L, (const char *)ticket, sizeof ticket);
  return 1;
}

/* comm_load(path): an engine of a shared object */
static int comm_load(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st, fl_comm_load(st->rt, luaL_checkstring(L, 1)));
  return 0;
}

/* comm_reset(groups, lead) */
static int comm_reset(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(
      L, st,
      fl_comm_reset(st->rt, (int)luaL_checkinteger(L, 1), lua_toboolean(L, 2)));
  return 0;
}

/* comm_discards() -> whether the function that asks is called as a statement */
static int comm_discards(lua_State *L) {
  lua_pushboolean(L, fll_discards(L, fll_enter(L), 1));
  return 1;
}

/* comm_groups() -> how many groups there are */
static int comm_groups(lua_State *L) {
  lua_pushinteger(L, fl_comm_groups(fll_enter(L)->rt));
  return 1;
}

static int push_folder(lua_State *L, const char *path, int n) {
  const char *end = path ? strrchr(path, '/') : NULL;
  if (!end)
    return n;
  lua_pushlstring(L, path, (size_t)(end - path));
  lua_rawseti(L, -2, n + 1);
  return n + 1;
}

/* comm_folders() -> where the program, this library and the runtime are: what
 * belongs to them is searched for from there. */
static int comm_folders(lua_State *L) {
  char path[PATH_MAX];
  Dl_info info;
  int n = 0;
  lua_newtable(L);
  ssize_t bytes = readlink("/proc/self/exe", path, sizeof path - 1);
  if (bytes > 0) {
    path[bytes] = 0;
    n = push_folder(L, path, n);
  }
  void *const inside[] = {(void *)comm_folders, (void *)fl_comm_open};
  for (int k = 0; k < 2; k++)
    if (dladdr(inside[k], &info))
      n = push_folder(L, info.dli_fname, n);
  return 1;
}

/* comm_attach(group, engine, device, ticket) */
static int comm_attach(lua_State *L) {
  fl_lua *st = fll_enter(L);
  unsigned char ticket[FL_COMM_TICKET] = {0};
  size_t n;
  const char *text = luaL_optlstring(L, 4, "", &n);
  memcpy(ticket, text, n < sizeof ticket ? n : sizeof ticket);
  fll_check(L, st,
            fl_comm_attach(st->rt, group_at(L, 1), luaL_checkstring(L, 2),
                           fll_checkdevice(L, st, 3, "attach"), ticket));
  return 0;
}

/* comm_engine(group, device) -> its name, or nil */
static int comm_engine(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_pushstring(L, fl_comm_engine(st->rt, group_at(L, 1),
                                   fll_checkdevice(L, st, 2, "engine")));
  return 1;
}

/* comm_last(group, device) -> lane, number of the last call */
static int comm_last(lua_State *L) {
  fl_lua *st = fll_enter(L);
  int lane = 0;
  uint64_t seq = 0;
  fll_check(L, st,
            fl_comm_last(st->rt, group_at(L, 1),
                         fll_checkdevice(L, st, 2, "last"), &lane, &seq));
  lua_pushinteger(L, lane);
  lua_pushinteger(L, (lua_Integer)seq);
  return 2;
}

static int comm_wait(lua_State *L) {
  fl_lua *st = fll_enter(L);
  fll_check(L, st,
            fl_comm_wait(st->rt, group_at(L, 1),
                         fll_checkdevice(L, st, 2, "wait"),
                         (int)luaL_checkinteger(L, 3),
                         (uint64_t)luaL_checkinteger(L, 4)));
  return 0;
}

static int comm_done(lua_State *L) {
  fl_lua *st = fll_enter(L);
  lua_pushboolean(L, fl_comm_done(st->rt, group_at(L, 1),
                                  fll_checkdevice(L, st, 2, "done"),
                                  (int)luaL_checkinteger(L, 3),
                                  (uint64_t)luaL_checkinteger(L, 4)));
  return 1;
}

/* comm_behind() -> whether another rank waits, or will, for a call of this one
 */
static int comm_behind(lua_State *L) {
  lua_pushboolean(L, fl_comm_behind(fll_enter(L)->rt));
  return 1;
}

/* comm_verdict() -> text, "" while all is well */
static int comm_verdict(lua_State *L) {
  lua_pushstring(L, fl_comm_verdict(fll_enter(L)->rt));
  return 1;
}

static int comm_fail(lua_State *L) {
  fl_comm_fail(fll_enter(L)->rt, luaL_checkstring(L, 1));
  return 0;
}

/* --- for the launcher: the board of a job that it is no rank of --- */

typedef struct watcher {
  uint64_t magic; /* 16 bytes would be a tensor's size */
  fl_board *board;
  uint64_t more;
} watcher;

static watcher *to_watcher(lua_State *L) {
  watcher *w = fll_checktype(L, 1, FLL_BOARD, sizeof *w);
  if (!w->board)
    fll_error(L, "the board is closed");
  return w;
}

/* watch(key, size) -> a board */
static int comm_watch(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *key = luaL_checkstring(L, 1);
  watcher *w = fll_newobject(L, FLL_BOARD, sizeof *w, 0);
  fll_check(L, st, fl_comm_watch(key, (int)luaL_checkinteger(L, 2), &w->board));
  return 1;
}

/* b:exited(rank, status as of waitpid) */
static int board_exited(lua_State *L) {
  fl_board *b = to_watcher(L)->board;
  b->exited(b, (int)luaL_checkinteger(L, 2), (int)luaL_checkinteger(L, 3));
  return 0;
}

/* b:verdict() -> text, the rank to blame or nil; "" while all is well */
static int board_verdict(lua_State *L) {
  fl_board *b = to_watcher(L)->board;
  const size_t room = 32 << 10;
  char *text = fll_scratch(L, room);
  int guilty = b->verdict(b, text, room);
  lua_pushstring(L, text);
  if (guilty < 0)
    return 1;
  lua_pushinteger(L, guilty);
  return 2;
}

static int board_close(lua_State *L) {
  watcher *w = fll_checktype(L, 1, FLL_BOARD, sizeof *w);
  if (w->board)
    w->board->close(w->board);
  w->board = NULL;
  return 0;
}

void fll_comm_core(lua_State *L) {
  static const luaL_Reg functions[] = {
      {"open", comm_open},         {"close", comm_close},
      {"group", comm_group},       {"members", comm_members},
      {"ticket", comm_ticket},     {"attach", comm_attach},
      {"engine", comm_engine},     {"last", comm_last},
      {"wait", comm_wait},         {"done", comm_done},
      {"behind", comm_behind},     {"verdict", comm_verdict},
      {"fail", comm_fail},         {"watch", comm_watch},
      {"load", comm_load},         {"reset", comm_reset},
      {"discards", comm_discards}, {"groups", comm_groups},
      {"folders", comm_folders},   {NULL, NULL}};
  static const luaL_Reg meta[] = {
      {"__gc", board_close}, {"__close", board_close}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"exited", board_exited},
                                     {"verdict", board_verdict},
                                     {"close", board_close},
                                     {NULL, NULL}};
  fll_newclass(L, FLL_BOARD, "flare.board", meta, methods);
  lua_newtable(L);
  fll_register(L, functions);
  lua_setfield(L, -2, "comm");
}
