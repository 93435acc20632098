/* Storages whose bytes a mark keeps, copied when they are first written: a
 * `fl_kept` is what a storage holds at some moment. Marks of the same moment
 * share one. While it is the storage's own it costs nothing; the first write
 * takes a copy and lets it go, and going back makes it the storage's again. */
#include "../memory/capture.h"
#include "call.h"

#include <stdlib.h>

struct fl_kept {
  int rc;
  fl_tensor *whole; /* the storage as bytes; of foreign memory the tensor */
  fl_tensor *copy;  /* NULL: it is what the storage holds now */
  bool flat;        /* `whole` is bytes */
};

/* A header over a storage. */
static fl_status header_over(fl_storage *s, const fl_meta *m,
                             const int64_t *stride, int64_t offset,
                             fl_tensor **out) {
  fl_tensor *t;
  FLI_TRY(fli_tensor_header(s->rt, &t));
  fli_tensor_set_shape(t, m);
  if (stride)
    fli_tensor_set_strides(t, stride);
  t->offset = offset;
  fli_storage_retain(s);
  fli_tensor_attach(t, s);
  *out = t;
  return FL_OK;
}

/* A call in no mode. An open window does not see it: of the launches that wait,
 * none writes the storage, or its copy would be there. So a compiled function
 * has the launches that it has without marks. */
typedef struct plain {
  unsigned modes;
  struct fli_window *window;
  bool grad;
} plain;

static plain enter_plain(fl_runtime *rt) {
  plain p = {rt->modes, rt->window, fl_grad_mode(rt, false)};
  rt->modes = 0;
  rt->window = NULL;
  return p;
}

static void leave_plain(fl_runtime *rt, plain p) {
  rt->modes = p.modes;
  rt->window = p.window;
  fl_grad_mode(rt, p.grad);
}

static fl_status take_copy(fl_kept *k) {
  fl_runtime *rt = k->whole->rt;
  plain p = enter_plain(rt);
  fl_status s = fli_tensor_copy(rt, k->whole, FL_NODTYPE, 0, &k->copy);
  leave_plain(rt, p);
  return s;
}

static void let_go(fl_storage *s) {
  s->kept = NULL;
  s->exposed &= (uint8_t)~FLI_KEPT;
}

static void make_own(fl_kept *k, fl_storage *s) {
  s->kept = k;
  s->exposed |= FLI_KEPT;
}

fl_status fli_keep_write(fl_storage *s) {
  fl_kept *k = s->kept;
  if (!k || s->rt->meta || s->rt->capture) /* nothing is written now */
    return FL_OK;
  let_go(s); /* the copy reads it */
  fl_status status = take_copy(k);
  if (status)
    make_own(k, s);
  return status;
}

/* What can change without flare's noticing is copied at once. */
static bool is_watched(const fl_storage *s) {
  return s->block && !(s->exposed & FLI_EXPOSED) && !s->loan;
}

fl_status fl_keep(fl_tensor *t, fl_kept **out) {
  FLI_NEED(t, "t");
  FLI_NEED(out, "k");
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "keep: the tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  fl_storage *s = t->storage;
  *out = NULL;
  if (!s)
    return FL_OK;
  FLI_TRY(fli_capture_refuses(t->rt, s->device, "a mark"));
  FLI_TRY(fli_settle(t));
  if (s->kept) {
    s->kept->rc++;
    *out = s->kept;
    return FL_OK;
  }
  fl_kept *k = calloc(1, sizeof *k);
  if (!k)
    return fli_fail(FL_ENOMEM, "keep: out of memory");
  k->rc = 1;
  k->flat = s->block != NULL;
  fl_meta bytes = {.dtype = FL_U8, .ndim = 1, .shape = {(int64_t)s->bytes}};
  fl_status status = k->flat ? header_over(s, &bytes, NULL, 0, &k->whole)
                             : fl_tensor_detach(t, &k->whole);
  if (status == FL_OK && !is_watched(s))
    status = take_copy(k);
  else if (status == FL_OK)
    make_own(k, s);
  if (status) {
    fl_tensor_release(k->whole);
    free(k);
  } else
    *out = k;
  return status;
}

static fl_status check_kept(const fl_kept *k, const fl_tensor *t) {
  if (fl_tensor_closed(k->whole) || !k->whole->storage)
    return fli_fail(FL_ECLOSED, "the runtime of what was kept is closed");
  FLI_TRY(fli_need_memory(t, "back: "));
  return fl_tensor_shares(t, k->whole)
             ? FL_OK
             : fli_fail(FL_EARG, "back: the tensor has moved into other memory "
                                 "since the mark");
}

fl_status fl_kept_restore(fl_kept *k, fl_tensor *t) {
  FLI_NEED(k, "k");
  FLI_NEED(t, "t");
  FLI_TRY(check_kept(k, t));
  fl_runtime *rt = t->rt;
  fl_storage *s = k->whole->storage;
  if (!k->copy)
    return FL_OK;
  FLI_TRY(fli_capture_refuses(rt, s->device, "going back to a mark"));
  fl_tensor *same;
  fl_operand in[2] = {{.tensor = k->whole}, {.tensor = k->copy}};
  fl_call c = {.op = &rt->ops[FLI_OP_assign],
               .n_in = 2,
               .in = in,
               .inplace = true,
               .out = &same};
  FLI_TRY(fli_settle_all(rt));
  plain p = enter_plain(rt);
  fl_status status = fl_call_run(rt, &c); /* keeps what is there now */
  leave_plain(rt, p);
  if (status)
    return status;
  fl_tensor_release(same);
  if (is_watched(s)) {
    fl_tensor_release(k->copy);
    k->copy = NULL;
    make_own(k, s);
  }
  return FL_OK;
}

fl_status fl_kept_value(fl_kept *k, fl_tensor *t, fl_tensor **out) {
  FLI_NEED(k, "k");
  FLI_NEED(t, "t");
  FLI_NEED(out, "out");
  FLI_TRY(check_kept(k, t));
  if (k->copy && !k->flat)
    return (*out = fl_tensor_retain(k->copy)) ? FL_OK : FL_EARG;
  return header_over((k->copy ? k->copy : k->whole)->storage, &t->meta,
                     t->stride, t->offset, out);
}

size_t fl_kept_bytes(const fl_kept *k) {
  return k && k->copy && k->copy->storage ? k->copy->storage->bytes : 0;
}

void fl_kept_release(fl_kept *k) {
  if (!k || --k->rc)
    return;
  fl_storage *s = fl_tensor_closed(k->whole) ? NULL : k->whole->storage;
  if (s && s->kept == k)
    let_go(s);
  fl_tensor_release(k->copy);
  fl_tensor_release(k->whole);
  free(k);
}
