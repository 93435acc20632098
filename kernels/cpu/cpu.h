/* What the CPU's kernel files share. Every kernel file is compiled once for
 * each instruction set (FL_ISA is v2, v3, v4 of x86-64, or plain); backend.c
 * takes the table that this CPU can run. So a kernel is ordinary C that the
 * compiler vectorises, with intrinsics only under #ifdef __AVX512F__ and the
 * like.
 *
 * Results never depend on the number of threads: sums are cut by shape alone.
 */
#ifndef FL_CPU_H
#define FL_CPU_H

#include "../../runtime/view.h"
#include "op_slots.h"

#define FL_PASTE3_(a, b, c) a##b##_##c
#define FL_PASTE3(a, b, c)  FL_PASTE3_(a, b, c)
#ifndef FL_ISA
#define FL_ISA plain
#endif
/* FL_CPU(softmax) is fl_cpu_v4_softmax and so on: the name of everything in a
 * kernel file that is not static. */
#define FL_CPU(name) FL_PASTE3(fl_cpu_, FL_ISA, name)
#define FL_KERNEL(name)                                                        \
  fl_status FL_CPU(name)(const fl_launch *l);                                  \
  fl_status FL_CPU(name)(const fl_launch *l)

#define FL_FORCE static inline __attribute__((always_inline))

/* The table of functions that NAME_typed.c exports for a float dtype. */
#define FL_OF_FLOAT(name, dtype)                                               \
  ((dtype) == FL_F64 ? &FL_CPU(name##_f64) : &FL_CPU(name##_f32))

/* Elements that a sum in their own type may have before it goes on in double:
 * 4096 in 64 lanes keep the error of a float sum near one ulp. */
#define FL_ROW_BLOCK 4096

/* Columns that are reduced together, at most. */
#define FL_COLUMNS 512

/* --- threads (pool.c, compiled once) --- */

#define FL_CPU_MOST_THREADS 1024
typedef struct fl_cpu_pool fl_cpu_pool;
typedef void (*fl_cpu_task)(void *context, int64_t begin, int64_t end);
/* Calls f for pieces [0, grain), [grain, 2 grain) ... of [0, n), on several
 * threads when there is more than one piece and the launch has a pool. The
 * pieces are the same whatever the number of threads. */
void fl_cpu_parallel(const fl_launch *l, int64_t n, int64_t grain,
                     fl_cpu_task f, void *context);
/* The same for long work: stops between pieces when the user wants to, with
 * FL_EINTERRUPT, and the outputs are then for nothing. A launch that writes
 * over its input goes on to the end, or half of it would be seen. */
fl_status fl_cpu_stoppable(const fl_launch *l, int64_t n, int64_t grain,
                           fl_cpu_task f, void *context);
fl_status fl_cpu_pool_open(int threads, fl_cpu_pool **pool);
void fl_cpu_pool_close(fl_cpu_pool *pool);
int fl_cpu_pool_threads(const fl_cpu_pool *pool);
/* Between launches only; fewer threads may come than were asked for. */
void fl_cpu_pool_resize(fl_cpu_pool *pool, int threads);
size_t fl_cpu_pool_cache(const fl_cpu_pool *pool); /* bytes of a core's L2 */
/* true when the user wants to stop; long kernels ask between pieces of a
 * millisecond or so, from any thread, and return fl_cpu_stopped(l) */
bool fl_cpu_interrupted(const fl_launch *l);
fl_status fl_cpu_stopped(const fl_launch *l);
/* Whether it can ever be true. */
bool fl_cpu_can_stop(const fl_launch *l);
/* What answers that question; called on the launching thread only. */
void fl_cpu_pool_on_interrupt(fl_cpu_pool *pool,
                              bool (*interrupt)(void *context), void *context);

/* --- memory in the type a kernel computes in (convert.c) --- */

/* The elements of a view, contiguous and as `dtype`: the view's own memory if
 * it is so already, else a copy in scratch. NULL: out of memory (message set).
 */
const void *FL_CPU(input)(const fl_launch *l, const fl_view *v, fl_dtype dtype);
/* Where to write a result as `dtype`, contiguous: the view's own memory or
 * scratch; FL_CPU(finish) then converts and scatters it into the view. */
void *FL_CPU(output)(const fl_launch *l, const fl_view *v, fl_dtype dtype);
void FL_CPU(finish)(const fl_launch *l, const fl_view *v, fl_dtype dtype,
                    const void *from);
/* The elements of a view as `dtype` into `flat`. */
void FL_CPU(load)(const fl_launch *l, const fl_view *v, fl_dtype dtype,
                  void *flat);
/* The same for one strided row, and back; strides in elements. */
void FL_CPU(load_row)(int64_t n, fl_dtype to, void *out, fl_dtype from,
                      const void *in, int64_t stride);
void FL_CPU(store_row)(int64_t n, fl_dtype to, void *out, int64_t stride,
                       fl_dtype from, const void *in);
/* n contiguous elements from one dtype to another, floats to integers
 * truncating and saturating, NaN to 0. */
void FL_CPU(convert)(int64_t n, fl_dtype to, void *out, fl_dtype from,
                     const void *in);

/* The dtype a float kernel computes `d` in: F64 stays, the rest F32. */
static inline fl_dtype fl_cpu_wide(fl_dtype d) {
  return d == FL_F64 ? FL_F64 : FL_F32;
}

/* The value of a one-element operand of any dtype. */
double fl_cpu_scalar(const fl_view *v);
int64_t fl_cpu_scalar_int(const fl_view *v);

/* Position i as stored, counted from l->base: true if in [0, bound) once
 * shifted (then *i is), else false with the message "index 99 is out of
 * range 1..10". Index tensors are I64 or I32: take them with FL_CPU(input)(l,
 * v, FL_I64). */
static inline bool fl_cpu_position(const fl_launch *l, int64_t *i,
                                   int64_t bound) {
  *i -= l->base;
  return (uint64_t)*i < (uint64_t)bound;
}
fl_status fl_cpu_bad_position(const fl_launch *l, int64_t shifted,
                              int64_t bound);

/* --- products (gemm.c) --- */

typedef enum fl_cpu_act { /* the order of linear's enum */
                          FL_ACT_NONE,
                          FL_ACT_RELU,
                          FL_ACT_GELU,
                          FL_ACT_GELU_TANH,
                          FL_ACT_SILU,
                          FL_ACT_TANH,
                          FL_ACT_SIGMOID
} fl_cpu_act;

/* C (m x n, row stride ldc) = A (m x k) * B (k x n) [+ C if `add`], float or
 * double. ta/tb: A is stored k x m, B n x k (row strides lda, ldb either way).
 * Runs on the calling thread only. */
void FL_CPU(gemm_f32)(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                      const float *a, int64_t lda, const float *b, int64_t ldb,
                      bool add, float *c, int64_t ldc);
void FL_CPU(gemm_f64)(bool ta, bool tb, int64_t m, int64_t n, int64_t k,
                      const double *a, int64_t lda, const double *b,
                      int64_t ldb, bool add, double *c, int64_t ldc);
/* The same over the launch's threads, for any float dtype pair of wide type. */
fl_status FL_CPU(gemm)(const fl_launch *l, fl_dtype dtype, bool ta, bool tb,
                       int64_t m, int64_t n, int64_t k, const void *a,
                       int64_t lda, const void *b, int64_t ldb, bool add,
                       void *c, int64_t ldc);

#endif
