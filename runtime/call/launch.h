/* What the paths of a call share: the general one (call.c), the fast one
 * (flat.c) and that of users' kernels (raw.c). */
#ifndef FL_LAUNCH_H
#define FL_LAUNCH_H

#include "call.h"

/* Around a launch while rt->profile is set (profile.c). */
typedef struct fli_note { /* who has called a launch that waits */
  const char *called;
  uint64_t call;
  fl_profile_part part;
  bool backward;
} fli_note;
typedef struct fli_profiled { /* what is known of a launch before it is sent */
  const char *op;
  fl_site site;
  fl_device device;
  fl_dtype dtype;
  bool transfer;
  double flops, bytes;
  const fli_note *note;  /* NULL: it is sent when it is called */
  fl_profile_step *step; /* NULL, or the row's from now on */
  fl_profile_flow flow;
} fli_profiled;
size_t fli_profile_begin(fl_runtime *rt, const fli_profiled *what,
                         fl_stream *s);
/* The launches up to rt->called = NULL belong to one call of an operator. */
void fli_profile_call(fl_runtime *rt, const char *op);
void fli_profile_end(fl_runtime *rt, size_t row, fl_stream *s);
fli_note fli_profile_note(fl_runtime *rt);
/* dtype and flow of a launch with these operands and results. */
void fli_profile_operands(int n_in, const fl_operand *in, int n_out,
                          fl_tensor *const *out, fli_profiled *what);
/* Whether calls in meta mode are rows, too. */
bool fli_profile_meta(const fl_runtime *rt);

/* On the backend; a failure that the device has reported since comes first. */
fl_status fli_send(fl_runtime *rt, fl_device d, fl_kernel kernel,
                   const fl_launch *l);

/* The scratch memory of one launch (scratch.c). */
#define FLI_SCRATCH 32 /* blocks that need no list of their own */
typedef struct fli_scratch {
  fl_scratch base; /* its release frees all from `keep` on */
  fl_runtime *rt;
  fl_device device;
  fl_site site;
  int room;
  fli_block **blocks, *few[FLI_SCRATCH];
} fli_scratch;
void fli_scratch_open(fli_scratch *s, fl_runtime *rt, fl_device d,
                      fl_site site);
void fli_scratch_close(fli_scratch *s);

/* A launch that a graph has, to be made again in its place: its number and its
 * scratch memory, block by block in the order in which it was taken. */
typedef struct fli_again {
  fl_scratch base;
  uint64_t seq;
  int n;
  const struct fli_scratch_note *notes;
} fli_again;
void fli_again_open(fli_again *a, uint64_t seq, int n,
                    const struct fli_scratch_note *notes);

static inline void fli_view_of(const fl_tensor *t, fl_view *v) {
  v->data = fli_tensor_ptr(t);
  v->dtype = t->meta.dtype;
  v->ndim = t->meta.ndim;
  for (int i = 0; i < v->ndim; i++) {
    v->shape[i] = t->meta.shape[i];
    v->stride[i] = t->stride[i];
  }
}

/* Remembers launch `seq` and the shapes of its first one or two inputs. `op`
 * lives as long as the runtime. */
static inline void fli_note_launch(fl_runtime *rt, const char *op, fl_site site,
                                   uint64_t seq, int n,
                                   const fl_meta *const *metas) {
  fli_launch_note *note = &rt->ring[seq % FLI_RING];
  note->seq = seq;
  note->op = op;
  note->site = site;
  note->n = (uint8_t)(n < 2 ? n : 2);
  for (int k = 0; k < note->n; k++) {
    const fl_meta *m = metas[k];
    note->ndim[k] = m ? (uint8_t)m->ndim : 0;
    for (int i = 0; m && i < m->ndim && i < 4; i++)
      note->shape[k][i] = m->shape[i];
  }
}

#endif
