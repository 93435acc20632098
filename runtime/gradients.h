/* Autograd: recording, the backward pass, functions of the host on the tape. A
 * part of flare.h. */
#ifndef FL_GRADIENTS_H
#define FL_GRADIENTS_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- recording --- */

/* Turns recording on or off; returns what it was. A runtime opens with it on.
 */
FL_API bool fl_grad_mode(fl_runtime *rt, bool on);
/* Whether calls are recorded now. */
FL_API bool fl_grad_enabled(fl_runtime *rt);
/* Sets where recording was turned off, for messages; returns what it was. */
FL_API fl_site fl_grad_site(fl_runtime *rt, fl_site site);
/* Makes a tensor a leaf whose gradient is computed, or ends that. EDTYPE: its
 * dtype has no gradients; EAUTOGRAD: it is the result of recorded calls, which
 * cannot end. */
FL_API fl_status fl_tensor_require_grad(fl_tensor *t, bool on);
/* Whether it is such a leaf or the result of recorded calls. */
FL_API bool fl_tensor_requires_grad(fl_tensor *t);
/* Whether it is no result of recorded calls. */
FL_API bool fl_tensor_is_leaf(fl_tensor *t);
/* The operator that made it, and that call's line; NULL and 0 for a leaf. */
FL_API const char *fl_tensor_node_name(fl_tensor *t);
FL_API fl_site fl_tensor_node_site(fl_tensor *t);
/* The graph behind t, a line for each node, newest first, at most `most`; ""
 * for a closed tensor. */
FL_API const char *fl_tape_text(fl_tensor *t, int most);

/* What the tape has recorded so far, for fl_tape_saved. */
FL_API uint64_t fl_tape_now(fl_runtime *rt);
/* Calls `each` with the memory, as of fl_tensor_memory, of values that nodes
 * behind t have saved and that were made after `since`, but for t itself and
 * memory of less than `least` bytes. A failure of `each` ends it. */
typedef fl_status (*fl_saved_fn)(void *context, fl_tensor *bytes);
FL_API fl_status fl_tape_saved(fl_tensor *t, uint64_t since, size_t least,
                               fl_saved_fn each, void *context);

/* --- gradients --- */

/* The gradient, borrowed until the next call that may change it; NULL: there is
 * none. */
FL_API fl_tensor *fl_tensor_grad(fl_tensor *t);
/* Replaces it; `grad` gets a reference, NULL removes the gradient. ESHAPE,
 * EDTYPE, EDEVICE: it does not fit t; EARG: t is its own gradient. */
FL_API fl_status fl_tensor_set_grad(fl_tensor *t, fl_tensor *grad);
/* Backward keeps the gradient of t, which is no leaf, as well. EAUTOGRAD: t
 * requires none. */
FL_API fl_status fl_tensor_retain_grad(fl_tensor *t);
/* A new gradient of the leaf t is written into `flat`, a contiguous tensor on
 * its device, from element `from` on, and lies there as a tensor of t's shape
 * and flat's dtype. flat NULL: anywhere. ESHAPE, EAUTOGRAD. */
FL_API fl_status fl_tensor_place_grad(fl_tensor *t, fl_tensor *flat,
                                      int64_t from);
/* The memory of `flat`, a contiguous tensor, is there for a while only: of what
 * lies in it the tape keeps no values, and the host gives them again by `key`
 * (fl_tape_host.lent) when backward needs them. EAUTOGRAD. */
FL_API fl_status fl_tensor_lend(fl_tensor *flat, int64_t key);
/* t, which has no history, becomes a leaf whose gradients `leaf` gets; both
 * have one shape. EAUTOGRAD. */
FL_API fl_status fl_tensor_stand_in(fl_tensor *t, fl_tensor *leaf);

/* A tensor without values that has the shape and the history of t, as a root of
 * the backward pass: t's values are not needed for that. NULL if t has no
 * history. */
FL_API fl_status fl_tensor_root(fl_tensor *t, fl_tensor **root);

/* --- the backward pass --- */

enum {
  FL_BACKWARD_RETAIN = 1, /* keep what was saved, to go again */
  FL_BACKWARD_CREATE = 2, /* record backward itself, to differentiate it */
  FL_BACKWARD_UNUSED = 4  /* fl_grad: inputs without influence give NULL */
};
/* Adds the gradients of sum(roots[i] * seeds[i]) to the leaves' gradients.
 * seeds NULL, or an element NULL: ones, for roots of one element. flags: of the
 * enum. EAUTOGRAD: a root does not depend on a leaf, or what the tape saved was
 * written since or is released. */
FL_API fl_status fl_backward(fl_runtime *rt, int n, fl_tensor *const *roots,
                             fl_tensor *const *seeds, unsigned flags);
/* The same; `each`, which may be NULL, is called with the gradient that this
 * pass gives a leaf, both borrowed. A failure of `each` ends the pass with its
 * status. */
typedef fl_status (*fl_grad_fn)(void *context, fl_tensor *leaf,
                                fl_tensor *grad);
FL_API fl_status fl_backward_each(fl_runtime *rt, int n,
                                  fl_tensor *const *roots,
                                  fl_tensor *const *seeds, unsigned flags,
                                  fl_grad_fn each, void *context);
/* The same for n_inputs `inputs`, leaves or not, whose gradients are returned
 * (new references) and added nowhere. With FL_BACKWARD_UNUSED an input without
 * influence gives NULL, else it is EAUTOGRAD. */
FL_API fl_status fl_grad(fl_runtime *rt, int n, fl_tensor *const *roots,
                         fl_tensor *const *seeds, int n_inputs,
                         fl_tensor *const *inputs, unsigned flags,
                         fl_tensor **grads);

/* --- functions of the host on the tape, which keeps their keys --- */

typedef struct fl_tape_host {
  /* Gradients dx (new references or NULL) from dy (borrowed, may be NULL). */
  fl_status (*backward)(void *context, int64_t key, int n_dy,
                        fl_tensor *const *dy, int n_dx, fl_tensor **dx);
  /* A hook: may put a replacement (a new reference) into *grad. */
  fl_status (*hook)(void *context, int64_t key, fl_tensor *of,
                    fl_tensor **grad);
  void (*forget)(void *context, int64_t key); /* may be NULL */
  /* All that was lent as `key` (a new reference), on the stream in use. */
  fl_status (*lent)(void *context, int64_t key, fl_dtype d, fl_tensor **flat);
  void *context;
  /* Where the function `key` is written, for messages; may be NULL. */
  fl_site (*where)(void *context, int64_t key);
} fl_tape_host;
/* Sets them, by a copy of the struct; NULL: there are none. */
FL_API void fl_tape_set_host(fl_runtime *rt, const fl_tape_host *host);
/* Makes n_out `outs`, fresh results without history, depend on n_in `ins`
 * (elements may be NULL) through the host's function `key`. `name` is copied.
 * EUNSUPPORTED: inside vmap. */
FL_API fl_status fl_tape_custom(fl_runtime *rt, const char *name, int64_t key,
                                fl_site site, int n_in, fl_tensor *const *ins,
                                int n_out, fl_tensor *const *outs);
/* Adds a hook, which gets the whole gradient of t once in each pass, and
 * removes the first with this key. EAUTOGRAD: t requires no gradient. */
FL_API fl_status fl_tensor_add_hook(fl_tensor *t, int64_t key);
FL_API void fl_tensor_drop_hook(fl_tensor *t, int64_t key);
/* `ready` is called when a leaf's gradient is complete, before fl_backward goes
 * on, and with NULL at the end of the pass. A failure ends the pass. ready
 * NULL: nothing is called. */
FL_API void fl_tape_on_ready(fl_runtime *rt,
                             fl_status (*ready)(void *context, fl_tensor *leaf),
                             void *context);

#ifdef __cplusplus
}
#endif
#endif
