/* x[...] and x[...] = value. What is between the brackets is read into a plan;
 * then selections and ranges become views and index tensors become gathers and
 * scatters, all ordinary operators and so differentiable. While the plan runs
 * no function of Lua's is called: intermediates belong to the run and go with
 * it. Combining several index tensors is in advanced.c. */
#include "index.h"

#include <math.h>

/* --- a run: operators whose results it owns --- */

void fll_run_open(fll_plan_run *r, lua_State *L, fl_lua *st) {
  r->st = st;
  r->status = FL_OK;
  r->site = fll_site_here(L, st);
  r->device = st->device;
  r->generator = NULL;
  r->n = 0;
}

void fll_run_close(fll_plan_run *r) {
  while (r->n)
    fl_tensor_release(r->temps[--r->n]);
}

fl_tensor *fll_keep(fll_plan_run *r, fl_tensor *t) {
  if (r->n == FLL_TEMPS) {
    fl_tensor_release(t);
    r->status = fli_fail(FL_ESIZE, "x[...]: too many steps");
    return NULL;
  }
  return r->temps[r->n++] = t;
}

fl_tensor *fll_do(fll_plan_run *r, const fl_op *op, const fl_attrs *a, int n,
                  const fl_operand *in, bool inplace) {
  fl_tensor *out[FL_MAX_OUT] = {NULL};
  if (r->status != FL_OK)
    return NULL;
  fl_call c = {.op = op,
               .n_in = n,
               .in = in,
               .attrs = a,
               .base = 1,
               .inplace = inplace,
               .site = r->site,
               .device = r->device,
               .generator = r->generator,
               .out = out};
  r->status = fl_call_run(r->st->rt, &c);
  return r->status == FL_OK ? fll_keep(r, out[0]) : NULL;
}

fl_tensor *fll_do_ints(fll_plan_run *r, const fl_op *op, fl_tensor *x, int n,
                       const int64_t *v) {
  fl_attrs a = {.used = 0};
  fl_status s = fl_attrs_list(&a, 0, n, v);
  if (r->status == FL_OK)
    r->status = s;
  return fll_do(r, op, &a, 1, &(fl_operand){.tensor = x, .dtype = FL_NODTYPE},
                false);
}

/* --- reading the plan --- */

static int bad_position(lua_State *L, int64_t i, int dim, const fl_meta *m) {
  if (i == 0)
    return fll_error(L, "x[0]: positions count from 1: x[1] is the first, "
                        "x[-1] the last");
  return fll_error(L,
                   "x[...]: position %lld is out of range 1..%lld (dim %d "
                   "of %s)",
                   (long long)i, (long long)m->shape[dim], dim + 1,
                   fli_shape_text(m->ndim, m->shape));
}

static bool index_whole(lua_State *L, int i, int64_t *v) {
  int exact;
  *v = lua_tointegerx(L, i, &exact);
  return exact && lua_type(L, i) == LUA_TNUMBER;
}

/* The table at the top is {}, {a}, {a, b} or {a, b, step}. */
static void read_range(lua_State *L, fll_item *it) {
  int64_t v[3];
  bool given[3];
  for (int k = 0; k < 3; k++) {
    lua_rawgeti(L, -1, k + 1);
    given[k] = !lua_isnil(L, -1);
    if (given[k] && !index_whole(L, -1, &v[k]))
      fll_error(L,
                "x[...]: a range is {first, last, step} of integers, got "
                "%s",
                fll_typename(L, -1));
    lua_pop(L, 1);
  }
  it->kind = given[0] || given[1] || given[2] ? FLL_RANGE : FLL_ALL;
  it->step = given[2] ? v[2] : 1;
  if (it->step == 0)
    fll_error(L, "x[...]: the step of a range cannot be 0");
  it->a = given[0] ? v[0] : it->step > 0 ? 1 : -1;
  it->b = given[1]                ? v[1]
          : given[0] && !given[2] ? it->a
          : it->step > 0          ? -1
                                  : 1;
}

static bool is_word(lua_State *L, const char *word) {
  return lua_type(L, -1) == LUA_TSTRING && lua_rawlen(L, -1) == strlen(word) &&
         strcmp(lua_tostring(L, -1), word) == 0;
}

/* One element between the brackets, on top of the stack. */
static void read_item(lua_State *L, fll_item *it) {
  fll_tensor *h = fll_test(L, -1);
  if (h) {
    fl_dtype d = fl_tensor_meta(h->t)->dtype;
    it->tensor = h->t;
    if (d == FL_BOOL)
      it->kind = FLL_MASK;
    else if (d == FL_I64 || d == FL_I32)
      it->kind = FLL_INDEX;
    else
      fll_error(L,
                "x[...]: an index tensor is i64, i32 or bool (a mask), "
                "this one is %s",
                fl_dtype_name(d));
  } else if (index_whole(L, -1, &it->a)) {
    it->kind = FLL_INT;
  } else if (lua_type(L, -1) == LUA_TNUMBER) {
    double n = lua_tonumber(L, -1); /* a NaN may print as "-nan" */
    fll_error(L, "x[...]: positions are integers, got %g",
              n != n ? fabs(n) : n);
  } else if (lua_istable(L, -1)) {
    read_range(L, it);
  } else if (is_word(L, "...")) {
    it->kind = FLL_REST;
  } else if (is_word(L, "new")) {
    it->kind = FLL_NEW;
  } else {
    fll_error(L,
              "x[...]: expected a position, a range {first, last, step}, "
              "{} for all, \"...\", \"new\", a mask or an index tensor, got %s",
              fll_typename(L, -1));
  }
}

static int dims_of(const fll_item *it) {
  if (it->kind == FLL_MASK)
    return fl_tensor_meta(it->tensor)->ndim;
  return it->kind != FLL_REST && it->kind != FLL_NEW;
}

/* "..." becomes as many {} as are needed. */
static void index_spread(lua_State *L, fll_plan *p, const fl_meta *m) {
  int used = 0, at = -1;
  for (int k = 0; k < p->n; k++) {
    used += dims_of(&p->item[k]);
    if (p->item[k].kind == FLL_REST) {
      if (at >= 0)
        fll_error(L, "x[...]: \"...\" can stand for dims once only");
      at = k;
    }
  }
  if (used > m->ndim)
    fll_error(L, "x[...]: %d positions for a tensor of %d dims %s", used,
              m->ndim, fli_shape_text(m->ndim, m->shape));
  if (at < 0)
    return;
  int more = m->ndim - used - 1; /* items to add; REST is one, and may go */
  memmove(&p->item[at + 1 + more], &p->item[at + 1],
          sizeof *p->item * (size_t)(p->n - at - 1));
  for (int k = at; k <= at + more; k++)
    p->item[k].kind = FLL_ALL;
  p->n += more;
}

static void read_plan(lua_State *L, fll_plan *p, const fl_meta *m) {
  p->n = 0;
  if (!lua_istable(L, 2)) {
    p->n = 1;
    lua_pushvalue(L, 2);
    read_item(L, &p->item[0]);
    lua_pop(L, 1);
  } else {
    lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
    if (n > 2 * FL_MAX_DIMS)
      fll_error(L, "x[...]: %d positions are too many", (int)n);
    for (lua_Integer k = 1; k <= n; k++) {
      lua_rawgeti(L, 2, k);
      if (lua_isnil(L, -1))
        fll_error(L, "x[...]: position %d is nil", (int)k);
      read_item(L, &p->item[p->n++]);
      lua_pop(L, 1);
    }
  }
  index_spread(L, p, m);
}

/* Positions counted from the end, and checks, against the sizes. */
static void index_settle(lua_State *L, fll_plan *p, const fl_meta *m) {
  int dim = 0;
  for (int k = 0; k < p->n; k++) {
    fll_item *it = &p->item[k];
    int64_t n = dim < m->ndim ? m->shape[dim] : 0, a = it->a, b = it->b;
    if (it->kind == FLL_INT) {
      it->a = a < 0 ? a + n : a - 1;
      if (a == 0 || it->a < 0 || it->a >= n)
        bad_position(L, a, dim, m);
    } else if (it->kind == FLL_RANGE) {
      a = a < 0 ? a + n + 1 : a;
      b = b < 0 ? b + n + 1 : b;
      bool empty = it->step > 0 ? b < a : a < b;
      if (a < 1 || a > n + empty)
        bad_position(L, it->a, dim, m);
      if (b > n || b < (empty ? 0 : 1))
        bad_position(L, it->b, dim, m);
      it->b = empty ? 0 : (b - a) / it->step + 1;
      it->a = empty ? 0 : a - 1;
    }
    dim += dims_of(it);
  }
}

/* --- carrying it out --- */

/* Applies positions and ranges; the tensors that are left are put down with the
 * dim they stand at. */
static fl_tensor *basic(fll_plan_run *r, const fll_plan *p, fl_tensor *x,
                        fll_gather *g) {
  int dim = 0;
  g->n = 0;
  for (int k = 0; k < p->n && x; k++) {
    const fll_item *it = &p->item[k];
    fl_operand in = {.tensor = x, .dtype = FL_NODTYPE};
    fl_attrs a = {.used = 0};
    a.v[0].i = dim;
    a.v[1].i = it->a;
    switch (it->kind) {
    case FLL_INT:
      x = fll_do(r, r->st->select, &a, 1, &in, false);
      continue;
    case FLL_RANGE:
      a.v[2].i = it->b;
      a.v[3].i = it->step;
      x = fll_do(r, r->st->narrow, &a, 1, &in, false);
      break;
    case FLL_NEW:
      x = fll_do(r, r->st->unsqueeze, &a, 1, &in, false);
      dim++;
      continue;
    case FLL_INDEX:
    case FLL_MASK:
      g->tensor[g->n] = it->tensor;
      g->dim[g->n++] = dim;
      break;
    default:
      break;
    }
    dim += dims_of(it);
  }
  return x;
}

static bool called_from_c(lua_State *L) {
  lua_Debug ar;
  if (!lua_getstack(L, 1, &ar))
    return true;
  lua_getinfo(L, "S", &ar);
  return ar.what[0] == 'C';
}

/* x[i], the common case. */
int fll_select(lua_State *L, fl_lua *st, fll_tensor *h, lua_Integer i) {
  const fl_meta *m = fl_tensor_meta(h->t);
  if (m->ndim == 0)
    fll_error(L,
              "x[%lld]: a tensor without dimensions has no elements to "
              "pick; its value is x:item()",
              (long long)i);
  int64_t n = m->shape[0], at = i < 0 ? i + n : i - 1;
  if (i == 0 || at < 0 || at >= n) {
    if (i == n + 1 && called_from_c(L)) { /* ipairs ends so */
      lua_pushnil(L);
      return 1;
    }
    bad_position(L, i, 0, m);
  }
  fll_tensor *y = fll_new(L, st, FLL_MT);
  if (!h->t) /* a finaliser closed it */
    fll_argerror(L, "x[...]", "x", "a tensor", 1);
  fl_attrs a;
  a.v[0].i = 0;
  a.v[1].i = at;
  a.used = 0;
  fl_operand in = {.tensor = h->t, .dtype = FL_NODTYPE};
  fl_tensor *out[FL_MAX_OUT];
  fl_call c = {.op = st->select,
               .n_in = 1,
               .in = &in,
               .attrs = &a,
               .base = 1,
               .site = fll_site_here(L, st),
               .out = out};
  fll_check(L, st, fl_call_run(st->rt, &c));
  fll_fill(y, out[0]);
  if (h->flags) {
    fll_set_parent(L, -1, 1);
  } else { /* the same, straight */
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    y->flags = FLL_H_PARENT;
  }
  return 1;
}

int fll_index_get(lua_State *L, fl_lua *st) {
  fll_plan p;
  fll_plan_run r;
  fll_gather g = {0};
  fll_tensor *y = fll_new(L, st, FLL_MT), *h = fll_test(L, 1);
  if (!h)
    fll_argerror(L, "x[...]", "x", "a tensor", 1);
  read_plan(L, &p, fl_tensor_meta(h->t));
  index_settle(L, &p, fl_tensor_meta(h->t));
  fll_run_open(&r, L, st);
  r.device = fl_tensor_device(h->t);
  fl_tensor *x = basic(&r, &p, h->t, &g);
  if (g.n && x)
    x = fll_gather_read(&r, &g, x);
  if (r.status == FL_OK)
    fll_fill(y, fl_tensor_retain(x));
  fll_run_close(&r);
  fll_check(L, st, r.status);
  if (fl_tensor_shares(y->t, h->t))
    fll_set_parent(L, -1, 1);
  else if (h->flags)
    fll_inherit_from(L, st, -1, 1);
  return 1;
}

/* The message behind the name of an operator, or NULL. */
static const char *behind_operator(fl_lua *st, const char *text) {
  const char *colon = strstr(text, ": ");
  char name[64];
  size_t n = colon ? (size_t)(colon - text) : 0;
  n -= n > 0 && text[n - 1] == '_';
  if (n == 0 || n >= sizeof name)
    return NULL;
  memcpy(name, text, n);
  name[n] = 0;
  return fll_findop(st, name) ? colon + 2 : NULL;
}

/* The user wrote an index, not the operators that carry it out. */
static void check_write(lua_State *L, fl_lua *st, fl_status status) {
  if (status == FL_OK)
    return;
  const char *text = fl_error(), *next;
  while ((next = behind_operator(st, text)))
    text = next;
  if (text != fl_error())
    fli_fail(status, "x[...] = value: %s", text);
  fll_check(L, st, status);
}

int fll_index_set(lua_State *L, fl_lua *st) {
  fll_plan p;
  fll_plan_run r;
  fll_gather g = {0};
  fll_tensor *h = fll_test(L, 1);
  fl_operand value;
  unsigned flags = 0;
  if (!h)
    fll_argerror(L, "x[...] = value", "x", "a tensor", 1);
  if (!fll_operand(L, 3, &value, &flags))
    fll_argerror(L, "x[...] = value", "value", "a tensor or a number", 3);
  read_plan(L, &p, fl_tensor_meta(h->t));
  index_settle(L, &p, fl_tensor_meta(h->t));
  fll_run_open(&r, L, st);
  r.device = fl_tensor_device(h->t);
  fl_tensor *x = basic(&r, &p, h->t, &g);
  if (g.n && x) {
    fll_gather_write(&r, &g, x, value);
  } else {
    fl_operand in[2] = {{.tensor = x, .dtype = FL_NODTYPE}, value};
    fll_do(&r, st->assign, NULL, 2, in, true);
  }
  fll_run_close(&r);
  check_write(L, st, r.status);
  if (flags)
    fll_inherit_from(L, st, 1, 3);
  return 0;
}
