/* Tensors: making, asking, reading and writing them. A part of flare.h. */
#ifndef FL_TENSORS_H
#define FL_TENSORS_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- making tensors --- */

/* A contiguous tensor with undefined contents, or zeros. shape has ndim sizes,
 * 0 to FL_MAX_DIMS of them (NULL if ndim is 0). New reference. ESHAPE: a size
 * is negative; ESIZE: too many dims or bytes; ENOMEM with the figures. */
FL_API fl_status fl_tensor_new(fl_runtime *rt, fl_dtype dtype, int ndim,
                               const int64_t *shape, fl_device d,
                               fl_tensor **t);
FL_API fl_status fl_tensor_zeros(fl_runtime *rt, fl_dtype dtype, int ndim,
                                 const int64_t *shape, fl_device d,
                                 fl_tensor **t);
/* A contiguous CPU tensor over the caller's memory, which is aligned for the
 * dtype and is not copied. done(context, data) is called once, when no tensor
 * uses it any more, on whichever thread ends the last use; NULL: nothing is
 * called. New reference; after a failure `done` is not called. */
FL_API fl_status fl_tensor_wrap(fl_runtime *rt, void *data, fl_dtype dtype,
                                int ndim, const int64_t *shape,
                                void (*done)(void *context, void *data),
                                void *context, fl_tensor **t);
/* A CPU tensor with undefined contents in pinned memory, which devices copy
 * from and to by themselves; ordinary memory where no device has such. New
 * reference. */
FL_API fl_status fl_tensor_new_pinned(fl_runtime *rt, fl_dtype dtype, int ndim,
                                      const int64_t *shape, fl_tensor **t);
/* One reference more; returns t. */
FL_API fl_tensor *fl_tensor_retain(fl_tensor *t);
/* One reference less; the last one frees the tensor. */
FL_API void fl_tensor_release(fl_tensor *t);

/* --- asking --- */

/* Dtype and shape; the strides of its dims; the offset of its first element in
 * its storage. Borrowed: as long as the tensor. */
FL_API const fl_meta *fl_tensor_meta(const fl_tensor *t);
FL_API const int64_t *fl_tensor_strides(const fl_tensor *t);
FL_API int64_t fl_tensor_offset(const fl_tensor *t);
/* The number of elements. */
FL_API int64_t fl_tensor_numel(const fl_tensor *t);
/* Its device; -1 for NULL. */
FL_API fl_device fl_tensor_device(const fl_tensor *t);
/* A number that no other tensor of the runtime ever has; 0 for NULL. */
FL_API uint64_t fl_tensor_id(const fl_tensor *t);
/* Its runtime, borrowed; NULL when that is closed. */
FL_API fl_runtime *fl_tensor_runtime(const fl_tensor *t);
/* Whether its elements are in row-major order without gaps. */
FL_API bool fl_tensor_contiguous(const fl_tensor *t);
/* Gives t, a new contiguous tensor of like's shape, the order that like's dims
 * have in memory; t's elements move. For tensors of one value, which need no
 * copy. */
FL_API fl_status fl_tensor_lay_like(fl_tensor *t, const fl_tensor *like);
/* How often its storage was written in place. */
FL_API uint32_t fl_tensor_version(const fl_tensor *t);
/* The line that took its memory; 0: not known. */
FL_API fl_site fl_tensor_made(const fl_tensor *t);
/* Whether its runtime is closed; true for NULL. */
FL_API bool fl_tensor_closed(const fl_tensor *t);
/* Whether both have the same storage. */
FL_API bool fl_tensor_shares(const fl_tensor *a, const fl_tensor *b);
/* Whether it lies in pinned memory. */
FL_API bool fl_tensor_pinned(const fl_tensor *t);
/* From now on its memory, and so that of its views, may only be read: calls
 * that write it fail with FL_EARG. */
FL_API void fl_tensor_protect(fl_tensor *t);
/* The number of live tensors of a runtime, and the one made last, borrowed;
 * NULL: there is none. For finding leaks. */
FL_API uint64_t fl_tensor_count(fl_runtime *rt);
FL_API fl_tensor *fl_tensor_newest(fl_runtime *rt);

/* --- tensors and a garbage collector --- */

/* A garbage-collected host says that it has one handle more (+1) or less (-1)
 * on the tensor, beside the reference that the handle holds. */
FL_API void fl_tensor_handle(fl_tensor *t, int change);
/* Bytes that only such handles keep alive, over all devices; *live, if it is
 * not NULL, gets the bytes of all live storages. */
FL_API size_t fl_handles_bytes(fl_runtime *rt, size_t *live);
/* Whether something beside handles holds the tensor. */
FL_API bool fl_tensor_held(const fl_tensor *t);

/* --- values --- */

/* The first element in host memory, after waiting for the device; elements are
 * at fl_tensor_strides. Valid while a reference is held. NULL with a message
 * for devices whose memory the host cannot read, and for tensors without
 * memory. */
FL_API void *fl_tensor_data(fl_tensor *t);
/* Copies all elements in row-major order to or from host memory, whatever the
 * device and strides; waits for the device. bytes: numel * element size, else
 * ESIZE. Writing is an in-place write. */
FL_API fl_status fl_tensor_read(fl_tensor *t, void *to, size_t bytes);
FL_API fl_status fl_tensor_write(fl_tensor *t, const void *from, size_t bytes);
/* The value of a one-element tensor as a double and as an integer, each unless
 * NULL. Integers give *i exactly. ESHAPE: not one element; EDTYPE: complex. */
FL_API fl_status fl_tensor_item(fl_tensor *t, double *f, int64_t *i);

/* --- from tensor to tensor --- */

/* New reference: same storage and values, no history. */
FL_API fl_status fl_tensor_detach(fl_tensor *t, fl_tensor **out);
/* New reference: on another device and/or of another dtype (FL_NODTYPE: as it
 * is); `t` itself if nothing changes. Differentiable. Waits for the copy. */
FL_API fl_status fl_tensor_to(fl_tensor *t, fl_device d, fl_dtype dtype,
                              fl_tensor **out);
/* The same without waiting, where the host's side is pinned: what comes to the
 * host is there when the stream in use has passed. site: of the call. */
FL_API fl_status fl_tensor_to_async(fl_tensor *t, fl_device d, fl_dtype dtype,
                                    fl_site site, fl_tensor **out);
/* Copies, and tensors made without an operator, get this call site until the
 * next call. */
FL_API void fl_copy_site(fl_runtime *rt, fl_site site);
/* Moves the elements of t, which has no history, into `flat`, a contiguous
 * tensor of its dtype on its device, from element `from` on: they lie there
 * from now on. If t is contiguous, its views, and others that see nothing
 * beyond it, move along. ESHAPE, EAUTOGRAD. */
FL_API fl_status fl_tensor_place(fl_tensor *t, fl_tensor *flat, int64_t from);

/* --- memory that is elsewhere for a while --- */

/* New reference: all of the memory that t lies in, as a tensor of bytes. EARG:
 * the memory is not of the allocator. */
FL_API fl_status fl_tensor_memory(fl_tensor *t, fl_tensor **bytes);
/* Copies between `bytes`, as above, and `host`, as many bytes in pinned memory,
 * on the stream in use, without waiting. No version changes: the values are
 * those that were there. `host` NULL: nothing is copied. */
FL_API fl_status fl_tensor_store(fl_tensor *bytes, fl_tensor *host);
FL_API fl_status fl_tensor_fetch(fl_tensor *bytes, fl_tensor *host);
/* The stream in use comes after all that other streams did with the memory, so
 * it can have it again at once when it is free. */
FL_API fl_status fl_tensor_passed(fl_tensor *bytes);
/* Gives the memory to the allocator. Tensors in it, and what the tape saved of
 * them, stay; a call that uses one fails until fl_tensor_refill has given it
 * memory again. The stream in use comes after all that used the memory. */
FL_API fl_status fl_tensor_evict(fl_tensor *bytes);
FL_API fl_status fl_tensor_refill(fl_tensor *bytes, fl_site site);

/* --- what memory holds at a moment --- */

/* What t's storage holds now, copied when it is first written: until then it
 * costs no memory. Memory that others may write, such as that of
 * fl_tensor_data, is copied at once. New reference; NULL in meta mode, where t
 * has no memory. */
typedef struct fl_kept fl_kept;
FL_API fl_status fl_keep(fl_tensor *t, fl_kept **k);
/* Writes it back into the storage of t, a tensor on it. EARG: t has moved. */
FL_API fl_status fl_kept_restore(fl_kept *k, fl_tensor *t);
/* What t had then; it may share memory with t. New reference. */
FL_API fl_status fl_kept_value(fl_kept *k, fl_tensor *t, fl_tensor **out);
/* Bytes of the copy; 0: nothing was written since. */
FL_API size_t fl_kept_bytes(const fl_kept *k);
FL_API void fl_kept_release(fl_kept *k);

#ifdef __cplusplus
}
#endif
#endif
