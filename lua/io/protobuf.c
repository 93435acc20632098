/* Protocol buffers as Lua tables: core.protobuf(path, schema), through nanopb.
 * The file is read piece by piece; what a schema calls a span stays where it
 * is, and its place is given instead. Wrong files give nil and a message. */
#include "file.h"

#include <errno.h>
#include <pb_decode.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PIECE     ((size_t)1 << 16)
#define MAX_DEPTH 64

typedef struct reader {
  lua_State *L;
  fl_lua *st;
  fll_box *data; /* numbers on their way into a string */
  unsigned char *piece;
  size_t have, next; /* bytes in `piece`, and those handed out */
  int64_t at;        /* of its first byte in the file */
  int fd, error;
  const char *problem; /* found here, not by nanopb */
} reader;

/* What a schema can say of a field. */
typedef enum kind {
  INT,    /* an integer */
  FLOAT,  /* a number of 4 bytes */
  TEXT,   /* a string */
  SPAN,   /* bytes left in the file: {first, length} */
  FIXED,  /* packed numbers of 4 or 8 bytes: a list of strings, as they are */
  VARINTS /* packed integers: a list of strings of i64 */
} kind;
static const char *const kinds[] = {"int",   "float",   "text", "span",
                                    "fixed", "varints", NULL};

static bool refill(reader *r) {
  r->at += (int64_t)r->have;
  r->have = r->next = 0;
  for (;;) {
    ssize_t n = fll_file_fault_due(r->st)
                    ? -1
                    : pread(r->fd, r->piece, PIECE, (off_t)r->at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      r->error = errno;
    else if (n == 0)
      r->problem = "it ends in the middle of a field";
    if (n <= 0)
      return false;
    r->have = (size_t)n;
    return true;
  }
}

static bool protobuf_give(pb_istream_t *s, pb_byte_t *to, size_t n) {
  reader *r = s->state;
  while (n > 0) {
    if (r->next == r->have && !refill(r))
      return false;
    size_t k = r->have - r->next;
    k = k < n ? k : n;
    if (to) {
      memcpy(to, r->piece + r->next, k);
      to += k;
    }
    r->next += k;
    n -= k;
  }
  return true;
}

/* Passes over n bytes without reading them. */
static bool protobuf_pass(pb_istream_t *s, size_t n) {
  reader *r = s->state;
  if (n > s->bytes_left) {
    r->problem = "a field is longer than what holds it";
    return false;
  }
  s->bytes_left -= n;
  if (n <= r->have - r->next) {
    r->next += n;
    return true;
  }
  r->at += (int64_t)(r->next + n);
  r->have = r->next = 0;
  return true;
}

static bool wrong(reader *r, const char *problem) {
  r->problem = problem;
  return false;
}

static bool length_of(pb_istream_t *s, size_t *n) {
  uint64_t v;
  if (!pb_decode_varint(s, &v))
    return false;
  if (v > s->bytes_left)
    return wrong(s->state, "a field is longer than what holds it");
  *n = (size_t)v;
  return true;
}

static bool push_text(pb_istream_t *s) {
  reader *r = s->state;
  size_t n;
  if (!length_of(s, &n))
    return false;
  luaL_Buffer b;
  char *p = luaL_buffinitsize(r->L, &b, n);
  bool fine = pb_read(s, (pb_byte_t *)p, n);
  luaL_pushresultsize(&b, fine ? n : 0);
  return fine;
}

static bool push_span(pb_istream_t *s) {
  reader *r = s->state;
  size_t n;
  if (!length_of(s, &n))
    return false;
  lua_createtable(r->L, 0, 2);
  lua_pushinteger(r->L, (lua_Integer)(r->at + (int64_t)r->next));
  lua_setfield(r->L, -2, "first");
  lua_pushinteger(r->L, (lua_Integer)n);
  lua_setfield(r->L, -2, "length");
  return protobuf_pass(s, n);
}

static bool push_fixed(pb_istream_t *s, pb_wire_type_t wire) {
  char word[8];
  if (wire == PB_WT_STRING)
    return push_text(s);
  size_t n = wire == PB_WT_64BIT ? 8 : 4;
  reader *r = s->state;
  if (!pb_read(s, (pb_byte_t *)word, n))
    return false;
  lua_pushlstring(r->L, word, n);
  return true;
}

static bool push_varints(pb_istream_t *s, pb_wire_type_t wire) {
  reader *r = s->state;
  uint64_t v;
  pb_istream_t all;
  if (wire != PB_WT_STRING) {
    if (!pb_decode_varint(s, &v))
      return false;
    lua_pushlstring(r->L, (const char *)&v, sizeof v);
    return true;
  }
  if (!pb_make_string_substream(s, &all))
    return false;
  r->data->n = 0;
  while (all.bytes_left > 0) {
    if (!pb_decode_varint(&all, &v))
      return false;
    fll_boxadd(r->L, r->data, &v, sizeof v);
  }
  lua_pushlstring(r->L, r->data->n ? r->data->p : "", r->data->n);
  return pb_close_string_substream(s, &all);
}

static bool push_number(pb_istream_t *s, kind k) {
  reader *r = s->state;
  uint64_t v;
  float f;
  if (k == INT) {
    if (!pb_decode_varint(s, &v))
      return false;
    lua_pushinteger(r->L, (lua_Integer)v);
    return true;
  }
  if (!pb_decode_fixed32(s, &f))
    return false;
  lua_pushnumber(r->L, (lua_Number)f);
  return true;
}

/* A packed list of numbers, appended to the table at the top. */
static bool add_packed(pb_istream_t *s, kind k) {
  reader *r = s->state;
  pb_istream_t all;
  if (!pb_make_string_substream(s, &all))
    return false;
  lua_Integer n = (lua_Integer)lua_rawlen(r->L, -1);
  while (all.bytes_left > 0) {
    if (!push_number(&all, k))
      return false;
    lua_rawseti(r->L, -2, ++n);
  }
  return pb_close_string_substream(s, &all);
}

static bool push_message(pb_istream_t *s, int schema, int depth);

static bool push_sub(pb_istream_t *s, int schema, int depth) {
  pb_istream_t sub;
  if (!pb_make_string_substream(s, &sub))
    return false;
  return push_message(&sub, schema, depth + 1) &&
         pb_close_string_substream(s, &sub);
}

/* The list of the field whose name is at the top, made if it is the first:
 * takes the name's place. */
static void push_list(lua_State *L, int table) {
  lua_pushvalue(L, -1);
  if (lua_rawget(L, table) == LUA_TNIL) {
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushvalue(L, -2);
    lua_pushvalue(L, -2);
    lua_rawset(L, table);
  }
  lua_remove(L, -2);
}

static bool protobuf_fits(kind k, pb_wire_type_t wire) {
  switch (k) {
  case INT:
    return wire == PB_WT_VARINT;
  case FLOAT:
    return wire == PB_WT_32BIT;
  case FIXED:
    return wire != PB_WT_VARINT;
  case VARINTS:
    return wire == PB_WT_VARINT || wire == PB_WT_STRING;
  default:
    return wire == PB_WT_STRING;
  }
}

static bool push_plain(pb_istream_t *s, kind k, pb_wire_type_t wire) {
  if (!protobuf_fits(k, wire))
    return wrong(s->state, "a field has another type than it should");
  switch (k) {
  case TEXT:
    return push_text(s);
  case SPAN:
    return push_span(s);
  case FIXED:
    return push_fixed(s, wire);
  case VARINTS:
    return push_varints(s, wire);
  default:
    return push_number(s, k);
  }
}

/* One field; its entry of the schema is at the top: {name, kind or schema,
 * many = whether it is a list}. */
static bool read_field(pb_istream_t *s, pb_wire_type_t wire, int out,
                       int depth) {
  reader *r = s->state;
  lua_State *L = r->L;
  int entry = lua_gettop(L);
  bool message = lua_rawgeti(L, entry, 2) == LUA_TTABLE;
  kind k = message ? TEXT : (kind)luaL_checkoption(L, -1, NULL, kinds);
  lua_getfield(L, entry, "many");
  bool many = lua_toboolean(L, -1) || k == FIXED || k == VARINTS;
  lua_rawgeti(L, entry, 1);
  if (many)
    push_list(L, out);
  if (many && (k == INT || k == FLOAT) && wire == PB_WT_STRING)
    return add_packed(s, k);
  if (message && wire != PB_WT_STRING)
    return wrong(r, "a field has another type than it should");
  if (!(message ? push_sub(s, entry + 1, depth) : push_plain(s, k, wire)))
    return false;
  if (many)
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
  else
    lua_rawset(L, out);
  return true;
}

static bool skip_field(pb_istream_t *s, pb_wire_type_t wire) {
  size_t n;
  if (wire != PB_WT_STRING)
    return pb_skip_field(s, wire);
  return length_of(s, &n) && protobuf_pass(s, n);
}

/* Pushes what `s` has up to its end as a table. */
static bool push_message(pb_istream_t *s, int schema, int depth) {
  reader *r = s->state;
  lua_State *L = r->L;
  if (depth > MAX_DEPTH)
    return wrong(r, "messages are nested too deep");
  luaL_checkstack(L, 12, "protobuf");
  lua_newtable(L);
  int out = lua_gettop(L);
  while (s->bytes_left > 0) {
    pb_wire_type_t wire;
    uint32_t number;
    bool eof;
    if (!pb_decode_tag(s, &wire, &number, &eof))
      return false;
    bool known = lua_rawgeti(L, schema, number) == LUA_TTABLE;
    if (!(known ? read_field(s, wire, out, depth) : skip_field(s, wire)))
      return false;
    lua_settop(L, out);
  }
  return true;
}

/* protobuf(path or open file, schema): the file's message as tables; nil,
 * message. A schema has an entry for each number of a field that is wanted. */
int fll_protobuf(lua_State *L) {
  fl_lua *st = fll_enter(L);
  const char *path, *what;
  luaL_checktype(L, 2, LUA_TTABLE);
  fll_check_input(L, 1);
  lua_settop(L, 2);
  struct stat stat;
  fll_fd *f = fll_newfd(L);
  reader r = {.L = L, .st = st, .data = fll_newbox(L, NULL)};
  if (!fll_open_input(L, st, 1, f, &stat, &path, &what))
    return fll_file_failed(L, path, what);
  r.fd = f->fd;
  r.piece = fll_scratch(L, PIECE);
  pb_istream_t s = {protobuf_give, &r, (size_t)stat.st_size, NULL};
  bool fine = push_message(&s, 2, 1);
  int64_t at = r.at + (int64_t)r.next;
  if (fine && at != (int64_t)stat.st_size)
    fine = wrong(&r, "the file became shorter while it was read");
  if (fine)
    return 1;
  errno = r.error;
  if (r.error)
    return fll_file_failed(L, path, NULL);
  const char *why = r.problem ? r.problem : "a field makes no sense";
  return fll_failed(L, "%s: not a good protobuf file: %s (byte %lld)", path,
                    why, (long long)at);
}
