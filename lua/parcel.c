/* Packing and unpacking, see parcel.h. A tensor's bytes are copied into a block
 * when it is packed, unless it lies in a block already (made by flare.shared,
 * or received); the receiver's tensor lies in the block itself. */
#include "parcel.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_DEPTH 100

/* --- blocks --- */

/* Takes bytes from the budget; garbage and cached memory make room if need be.
 */
static fl_budget *reserve_bytes(lua_State *L, fl_lua *st, size_t bytes) {
  fl_budget *budget = fl_runtime_budget(st->rt);
  for (int attempt = 0; !fl_budget_take(budget, bytes); attempt++) {
    if (attempt > 0)
      return NULL;
    lua_gc(L, LUA_GCCOLLECT);
    fl_memory_flush(st->rt, 0);
  }
  return fl_budget_retain(budget);
}

static void unreserve_bytes(fl_budget *budget, size_t bytes) {
  fl_budget_give(budget, bytes);
  fl_budget_release(budget);
}

fll_block *fll_block_new(lua_State *L, fl_lua *st, size_t bytes) {
  size_t room = (bytes + FL_ALIGN) / FL_ALIGN * FL_ALIGN;
  fl_budget *budget = room < bytes ? NULL : reserve_bytes(L, st, bytes);
  fll_block *b = budget ? malloc(sizeof *b) : NULL;
  if (!b || !(b->p = aligned_alloc(FL_ALIGN, room))) {
    if (budget)
      unreserve_bytes(budget, bytes);
    free(b);
    return NULL;
  }
  atomic_init(&b->rc, 1);
  b->bytes = bytes;
  b->budget = budget;
  return b;
}

void fll_block_release(fll_block *b) {
  if (!b || atomic_fetch_sub_explicit(&b->rc, 1, memory_order_acq_rel) != 1)
    return;
  free(b->p);
  unreserve_bytes(b->budget, b->bytes);
  free(b);
}

/* Which tensors of a state lie in blocks. A storage may be dropped by another
 * thread, and later than its state, so this is plain C behind a lock. */
typedef struct lent {
  struct fll_lending *of;
  fll_block *block;
  struct lent *prev, *next;
} lent;

struct fll_lending {
  atomic_int rc; /* the state, and each tensor */
  pthread_mutex_t lock;
  lent *first;
};

void fll_lending_release(struct fll_lending *l) {
  if (!l || atomic_fetch_sub_explicit(&l->rc, 1, memory_order_acq_rel) != 1)
    return;
  pthread_mutex_destroy(&l->lock);
  free(l);
}

static struct fll_lending *lending_of(fl_lua *st) {
  if (!st->lending) {
    struct fll_lending *l = calloc(1, sizeof *l);
    if (!l)
      return NULL;
    atomic_init(&l->rc, 1);
    pthread_mutex_init(&l->lock, NULL);
    st->lending = l;
  }
  return st->lending;
}

static void give_back(void *context, void *data) {
  lent *l = context;
  struct fll_lending *of = l->of;
  (void)data;
  pthread_mutex_lock(&of->lock);
  if (l->prev)
    l->prev->next = l->next;
  else
    of->first = l->next;
  if (l->next)
    l->next->prev = l->prev;
  pthread_mutex_unlock(&of->lock);
  fll_block_release(l->block);
  fll_lending_release(of);
  free(l);
}

/* The block that a tensor lies in from its first byte, retained; or NULL. */
static fll_block *block_of(fl_lua *st, fl_tensor *t, size_t bytes) {
  struct fll_lending *of = st->lending;
  void *p = of && fl_tensor_contiguous(t) ? fl_tensor_data(t) : NULL;
  fll_block *found = NULL;
  if (!p)
    return NULL;
  pthread_mutex_lock(&of->lock);
  for (lent *l = of->first; l && !found; l = l->next)
    if (l->block->p == p && bytes <= l->block->bytes)
      found = l->block;
  if (found)
    atomic_fetch_add(&found->rc, 1);
  pthread_mutex_unlock(&of->lock);
  return found;
}

/* Pushes a tensor that lies in the block. */
static void push_over(lua_State *L, fl_lua *st, fll_block *b, fl_dtype d,
                      int ndim, const int64_t *shape) {
  fll_tensor *h = fll_new(L, st, FLL_MT);
  struct fll_lending *of = lending_of(st);
  lent *l = of ? malloc(sizeof *l) : NULL;
  if (!l)
    luaL_error(L, "out of memory");
  fl_tensor *t = NULL;
  fl_copy_site(st->rt, fll_site_from(L, st, 0));
  fl_status s = fl_tensor_wrap(st->rt, b->p, d, ndim, shape, give_back, l, &t);
  fl_copy_site(st->rt, 0);
  if (s != FL_OK) {
    free(l);
    fll_raise(L, st, s);
  }
  atomic_fetch_add(&b->rc, 1);
  atomic_fetch_add(&of->rc, 1);
  pthread_mutex_lock(&of->lock);
  *l = (lent){of, b, NULL, of->first};
  if (of->first)
    of->first->prev = l;
  of->first = l;
  pthread_mutex_unlock(&of->lock);
  fll_fill(h, t);
}

static void release_block(void *p) {
  fll_block_release(p);
}

static void refuse_block(lua_State *L, fl_lua *st, const char *where,
                         size_t bytes) {
  fl_memory_stats s;
  char limit[48] = "";
  fl_memory_get(st->rt, 0, &s);
  if (s.limit)
    snprintf(limit, sizeof limit, ", the limit is %zu", s.limit);
  fll_error(L, "%s: out of memory: %zu bytes for a tensor%s", where, bytes,
            limit);
}

/* shared(shape, {dtype = }): zeros in memory that crosses threads as it is. */
int fll_shared(lua_State *L) {
  static const char *const options[] = {"dtype", NULL};
  fl_lua *st = fll_enter(L);
  int n;
  int64_t sizes[FL_MAX_DIMS];
  int i = 1 + fll_checksizes(L, 1, "shared", &n, sizes);
  fll_checkoptions(L, i, "shared", options);
  fl_dtype d = FL_F32;
  if (fll_option(L, i, "dtype") != LUA_TNIL)
    d = fll_checkdtype(L, lua_gettop(L), "shared");
  size_t bytes = fl_dtype_size(d);
  for (int k = 0; k < n; k++)
    if (__builtin_mul_overflow(bytes, (size_t)sizes[k], &bytes))
      fll_error(L, "shared: the size of %s overflows",
                fli_shape_text(n, sizes));
  fll_box *box = fll_newbox(L, release_block);
  fll_block *b = fll_block_new(L, st, bytes);
  if (!b)
    refuse_block(L, st, "shared", bytes);
  box->p = (char *)b;
  memset(b->p, 0, bytes);
  push_over(L, st, b, d, n, sizes);
  fll_emptybox(box);
  return 1;
}

/* --- packing --- */

void fll_parcel_free(fll_parcel *p) {
  if (!p)
    return;
  for (size_t i = 0; i < p->n_cargo; i++) {
    fll_block_release(p->cargo[i].block);
    if (p->cargo[i].channel)
      fll_channel_release(p->cargo[i].channel);
  }
  if (p->budget)
    unreserve_bytes(p->budget, p->n);
  free(p->cargo);
  free(p->data);
  free(p);
}

static void release_parcel(void *p) {
  fll_parcel_free(p);
}

typedef struct packer {
  lua_State *L;
  fl_lua *st;
  fll_parcel *p;
  const char *where;
} packer;

static void parcel_add(packer *k, const void *data, size_t n) {
  fll_parcel *p = k->p;
  if (n > p->room - p->n) {
    size_t room = 2 * p->room + n + 64;
    char *more = realloc(p->data, room);
    if (!more)
      luaL_error(k->L, "out of memory");
    p->data = more;
    p->room = room;
  }
  if (n)
    memcpy(p->data + p->n, data, n);
  p->n += n;
}

static void add_tag(packer *k, char tag) {
  parcel_add(k, &tag, 1);
}

static struct fll_cargo *add_cargo(packer *k) {
  fll_parcel *p = k->p;
  if (p->n_cargo == p->cargo_room) {
    size_t room = 2 * p->cargo_room + 4;
    void *more = realloc(p->cargo, room * sizeof *p->cargo);
    if (!more)
      luaL_error(k->L, "out of memory");
    p->cargo = more;
    p->cargo_room = room;
  }
  struct fll_cargo *c = &p->cargo[p->n_cargo++];
  *c = (struct fll_cargo){NULL, NULL};
  return c;
}

static void pack_tensor(packer *k, int i) {
  fl_tensor *t = fll_test(k->L, i)->t;
  const fl_meta *m = fl_tensor_meta(t);
  size_t bytes = (size_t)fl_tensor_numel(t) * fl_dtype_size(m->dtype);
  struct fll_cargo *c = add_cargo(k);
  int64_t head[2] = {m->dtype, m->ndim};
  add_tag(k, 'X');
  parcel_add(k, head, sizeof head);
  parcel_add(k, m->shape, sizeof(int64_t) * (size_t)m->ndim);
  c->block = block_of(k->st, t, bytes);
  if (c->block)
    return;
  c->block = fll_block_new(k->L, k->st, bytes);
  if (!c->block)
    refuse_block(k->L, k->st, k->where, bytes);
  fll_check(k->L, k->st, fl_tensor_read(t, c->block->p, bytes));
}

static void parcel_pack(packer *k, int i, int depth) {
  lua_State *L = k->L;
  size_t n;
  int64_t whole;
  double real;
  switch (lua_type(L, i)) {
  case LUA_TNIL:
    add_tag(k, 'n');
    return;
  case LUA_TBOOLEAN:
    add_tag(k, lua_toboolean(L, i) ? 't' : 'f');
    return;
  case LUA_TNUMBER:
    if (lua_isinteger(L, i)) {
      whole = lua_tointeger(L, i);
      add_tag(k, 'i');
      parcel_add(k, &whole, sizeof whole);
    } else {
      real = lua_tonumber(L, i);
      add_tag(k, 'd');
      parcel_add(k, &real, sizeof real);
    }
    return;
  case LUA_TSTRING: {
    const char *s = lua_tolstring(L, i, &n);
    add_tag(k, 's');
    parcel_add(k, &n, sizeof n);
    parcel_add(k, s, n);
    return;
  }
  case LUA_TTABLE:
    if (depth >= MAX_DEPTH)
      fll_error(L, "%s: tables are nested deeper than %d, or hold themselves",
                k->where, MAX_DEPTH);
    luaL_checkstack(L, 6, NULL);
    add_tag(k, '{');
    lua_pushnil(L);
    while (lua_next(L, i)) {
      int top = lua_gettop(L);
      parcel_pack(k, top - 1, depth + 1);
      parcel_pack(k, top, depth + 1);
      lua_pop(L, 1);
    }
    add_tag(k, '}');
    return;
  default:
    break;
  }
  fll_channel *c = fll_channel_test(L, i);
  if (fll_test(L, i)) {
    pack_tensor(k, i);
  } else if (c) {
    fll_channel_retain(c);
    add_cargo(k)->channel = c;
    add_tag(k, 'C');
  } else {
    fll_error(L,
              "%s: numbers, strings, booleans, tables, tensors and channels "
              "can go to another thread, not %s",
              k->where, fll_typename(L, i));
  }
}

fll_parcel *fll_parcel_pack(lua_State *L, fl_lua *st, int first, int last,
                            const char *where) {
  fll_box *box = fll_newbox(L, release_parcel);
  packer k = {L, st, calloc(1, sizeof(fll_parcel)), where};
  if (!k.p)
    luaL_error(L, "out of memory");
  box->p = (char *)k.p;
  for (int i = first; i <= last; i++)
    parcel_pack(&k, i, 0);
  if (!(k.p->budget = reserve_bytes(L, st, k.p->n)))
    refuse_block(L, st, where, k.p->n);
  return k.p;
}

fll_parcel *fll_parcel_take(lua_State *L, int i) {
  fll_box *box = lua_touserdata(L, i);
  fll_parcel *p = (fll_parcel *)(void *)box->p;
  box->p = NULL;
  return p;
}

/* --- unpacking --- */

typedef struct reader {
  lua_State *L;
  fl_lua *st;
  fll_parcel *p;
  size_t at, cargo;
} reader;

static void parcel_get(reader *r, void *to, size_t n) {
  memcpy(to, r->p->data + r->at, n);
  r->at += n;
}

static void parcel_unpack(reader *r);

static void unpack_table(reader *r) {
  lua_newtable(r->L);
  while (r->p->data[r->at] != '}') {
    parcel_unpack(r);
    parcel_unpack(r);
    lua_rawset(r->L, -3);
  }
  r->at++;
}

static void parcel_unpack(reader *r) {
  lua_State *L = r->L;
  int64_t whole, head[2], shape[FL_MAX_DIMS];
  double real;
  size_t n;
  luaL_checkstack(L, 8, NULL);
  switch (r->p->data[r->at++]) {
  case 't':
    lua_pushboolean(L, 1);
    break;
  case 'f':
    lua_pushboolean(L, 0);
    break;
  case 'i':
    parcel_get(r, &whole, sizeof whole);
    lua_pushinteger(L, whole);
    break;
  case 'd':
    parcel_get(r, &real, sizeof real);
    lua_pushnumber(L, real);
    break;
  case 's':
    parcel_get(r, &n, sizeof n);
    lua_pushlstring(L, r->p->data + r->at, n);
    r->at += n;
    break;
  case '{':
    unpack_table(r);
    break;
  case 'X':
    parcel_get(r, head, sizeof head);
    parcel_get(r, shape, sizeof(int64_t) * (size_t)head[1]);
    push_over(L, r->st, r->p->cargo[r->cargo++].block, (fl_dtype)head[0],
              (int)head[1], shape);
    break;
  case 'C':
    fll_channel_push(L, r->p->cargo[r->cargo++].channel);
    break;
  default:
    lua_pushnil(L);
  }
}

int fll_parcel_unpack(lua_State *L, fl_lua *st, fll_parcel *p) {
  reader r = {L, st, p, 0, 0};
  int n = 0;
  luaL_checkstack(L, 10, NULL);
  fll_box *box = fll_newbox(L, release_parcel);
  box->p = (char *)p;
  while (r.at < p->n) {
    parcel_unpack(&r);
    n++;
  }
  fll_emptybox(box);
  return n;
}
