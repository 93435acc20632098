/* What tensors offer to the rest of runtime/: storages, headers, layouts, and
 * memory that other libraries hold. The gradient and the like are in extra.h.
 */
#ifndef FL_TENSOR_H
#define FL_TENSOR_H

#include "../memory/memory.h"

/* --- tensor.c --- */

fl_status fli_storage_new(fl_runtime *rt, size_t bytes, fl_device d,
                          fl_site site, fl_storage **s);
/* The same, pending: without memory. */
fl_status fli_storage_pending(fl_runtime *rt, size_t bytes, fl_device d,
                              fl_storage **s);
/* Memory for a pending storage. */
fl_status fli_storage_fill(fl_runtime *rt, fl_storage *s, fl_site site);
/* Takes it away again: the storage is pending as before. */
void fli_storage_empty(fl_runtime *rt, fl_storage *s);
void fli_storage_retain(fl_storage *s);
int fli_storage_owners(const fl_storage *s); /* besides the window */
void fli_storage_release(fl_storage *s);

/* New reference; storage's reference is taken over. */
fl_status fli_tensor_header(fl_runtime *rt, fl_tensor **t);
void fli_tensor_attach(fl_tensor *t, fl_storage *s);
void fli_tensor_own(fl_tensor *t); /* ends being a view */
/* t lies in s from now on, with so many references that storages count. */
void fli_tensor_rehouse(fl_tensor *t, fl_storage *s, int refs);
fl_status fli_tensor_view(fl_tensor *x, const fl_meta *m, const int64_t *stride,
                          int64_t offset, fl_tensor **out);
void fli_tensor_set_shape(fl_tensor *t, const fl_meta *m);
void fli_tensor_set_strides(fl_tensor *t, const int64_t *stride);
fl_status fli_check_size(fl_dtype d, int ndim, const int64_t *shape,
                         size_t *bytes);
static inline void *fli_tensor_ptr(const fl_tensor *t) {
  return (char *)t->storage->data +
         t->offset * ((int64_t)1 << fli_shift(t->meta.dtype));
}
/* A fresh contiguous tensor; in meta mode without memory. `bytes` is what
 * fli_check_size computed. */
fl_status fli_tensor_make(fl_runtime *rt, const fl_meta *m, size_t bytes,
                          fl_device d, fl_site site, fl_tensor **out);
/* The same; while launches wait in a window it is pending: fli_storage_fill
 * gives it memory. */
fl_status fli_tensor_result(fl_runtime *rt, const fl_meta *m, size_t bytes,
                            fl_device d, fl_site site, fl_tensor **out);
/* Runs the window's launches if they use the storage. Code that uses a tensor's
 * memory without a launch calls it, or fli_settle, first. */
fl_status fli_settle_storage(fl_runtime *rt, const fl_storage *s);
static inline fl_status fli_settle(const fl_tensor *t) {
  return FLI_LIKELY(!t->rt->window && !t->storage->pending)
             ? FL_OK
             : fli_settle_storage(t->rt, t->storage);
}
void fli_tensors_close(fl_runtime *rt);
/* The same without history; `bare`: what it stands for inside vmap, too. */
fl_status fli_tensor_alias(fl_tensor *x, bool bare, fl_tensor **out);
/* Fails unless t has memory, and the caller is the owner thread. */
fl_status fli_need_memory(const fl_tensor *t, const char *who);

/* The n tensors that a caller passes to a public function as `what`: each is
 * there and of rt. */
fl_status fli_check_tensors(const char *function, const char *what,
                            const fl_runtime *rt, int n, fl_tensor *const *t);

/* --- layout.c --- */

/* Whether t is (N, C, H, W) with channels innermost, then W, H and N, with gaps
 * or without. False where that is the contiguous order as well. */
bool fli_channels_last(const fl_tensor *t);
/* A fresh result of 4 dims becomes channels-last. */
void fli_make_channels_last(fl_tensor *t);
/* Gives a fresh result y the order that x's dims have in memory, without gaps;
 * they have one shape. False: x has no order, as elements repeat. */
bool fli_order_like(const fl_tensor *x, fl_tensor *y);
/* Whether t's elements fill their memory without gaps; `order` gets the dims,
 * the one with the largest step first. */
bool fli_dense_order(const fl_tensor *t, int *order);
/* Whether dims of two tensors of one shape have the same order in memory. */
bool fli_same_order(int ndim, const int64_t *shape, const int64_t *a,
                    const int64_t *b);
/* The operands of a row that is pointwise, with dims in the order of the first
 * result's memory: a permuted result without gaps becomes contiguous. */
void fli_views_by_memory(int n_in, fl_view *in, int n_out, fl_view *out);
void fli_heads_layout(const fl_tensor *q, fl_tensor *y);
bool fli_overlaps_itself(const fl_tensor *t);
bool fli_same_place(const fl_tensor *a, const fl_tensor *b);

/* --- dlpack.c --- */

/* What others give as a tensor's memory: that it is there, and aligned. */
fl_status fli_check_memory(const char *who, const void *memory, size_t bytes,
                           fl_dtype d);
/* Takes in what was given back on other threads. */
void fli_lending_drain(fl_runtime *rt);
/* At the end of a runtime: whether something is still held. If so, the last
 * that is given back calls fli_runtime_end, on whatever thread. */
bool fli_lending_keeps(fl_runtime *rt);
fl_status fli_expose(fl_storage *s); /* tensor.c */
/* Whether t may be written by `op`; `suffix` goes behind its name in messages.
 */
fl_status fli_check_writable(const fl_tensor *t, const char *op,
                             const char *suffix);

#endif
