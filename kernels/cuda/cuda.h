/* What the CUDA backend's files share on the host's side. A family of kernels
 * is three files: softmax.cu (device code, C++ for NVRTC, embedded as text),
 * softmax.h (the one structure that each of its kernels gets) and softmax.c
 * (one fl_kernel for each row: reads the launch, fills the structure, picks the
 * specialisation and the grid, calls flc_run). No CUDA header is needed. */
#ifndef FL_CUDA_H
#define FL_CUDA_H

#include "../../runtime/view.h"
#include "op_slots.h"

/* --- the driver's types, as we need them --- */

typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;

/* --- a specialised kernel --- */

#define FLC_SPEC_ARGS 10

/* Entry `entry` of `file`.cu, a function template over ints (dtypes as
 * FL_F32..., sizes, flags): entry<t[0], ..., t[n-1]>. `text` is put before the
 * source: the formula of an elementwise row. file, entry and text must be
 * literals, or live as long as the process: they are compared by address. */
typedef struct flc_spec {
  const char *file, *entry, *text;
  int n;
  int t[FLC_SPEC_ARGS];
  bool soon; /* made at run time: compile faster, optimise a little less */
} flc_spec;

/* FLC_SPEC("softmax", "forward", x->dtype, 4) */
#define FLC_SPEC(file_, entry_, ...)                                           \
  ((flc_spec){.file = file_,                                                   \
              .entry = entry_,                                                 \
              .n = sizeof((int[]){__VA_ARGS__}) / sizeof(int),                 \
              .t = {__VA_ARGS__}})

typedef struct flc_grid {
  unsigned x, y, z; /* blocks; 0 is 1 */
  unsigned block;   /* threads, one dimension */
  unsigned shared;  /* bytes of dynamic shared memory, up to the chip's most */
  unsigned cluster; /* blocks of a cluster along x; 0: none */
  bool together;    /* all blocks run at the same time, or it fails */
  bool early;       /* may begin before the kernel in front of it has ended:
                       it calls fl_begin (early.cuh) first */
} flc_grid;

/* Queues the kernel on the launch's stream. It gets `args` by value as its one
 * parameter: __global__ void entry(const __grid_constant__ softmax_args a).
 * Compiles or loads it when it is met first. An empty grid (x, y or z of 0 with
 * nothing to do) must not be launched: return FL_OK before. */
fl_status flc_run(const fl_launch *l, const flc_spec *spec, flc_grid grid,
                  const void *args, size_t bytes);
#define FLC_RUN(l, spec, grid, args)                                           \
  flc_run(l, &(spec), grid, &(args), sizeof(args))

/* --- facts about the launch's device and stream --- */

typedef struct flc_chip {
  int major, minor; /* compute capability */
  int processors;   /* multiprocessors */
  int64_t l2;       /* bytes */
  int shared;       /* bytes of shared memory a block may ask for */
} flc_chip;
/* Whether a kernel may read this operand before the kernels in front of it have
 * ended: it is captured, and no launch of its graph writes there. */
bool flc_lasting(const fl_launch *l, const void *data);
const flc_chip *flc_chip_of(const fl_launch *l);
/* Of a probe: launches will ask for the kernel, which threads compile and load
 * meanwhile; `prepare` of the backend says whether it is there. */
fl_status flc_run_soon(const fl_launch *l, const flc_spec *spec);
/* Whether all kernels are there that `launch` asks for: 1, or 0 while threads
 * make them, or -1: it fails. Nothing is launched. */
int flc_soon(const fl_launch *l,
             fl_status (*launch)(const fl_launch *l, const void *what),
             const void *what);
/* Whether a block may have so much dynamic shared memory: 99 KiB at compute
 * capability 8.6, 8.9 and 12.0, 163 KiB at 8.0, 227 KiB at 9.0. Whatever
 * chooses tiles that may need more than 99 KiB asks this. */
static inline bool flc_fits(const flc_chip *chip, size_t shared) {
  return shared <= (size_t)chip->shared;
}
CUstream flc_stream_of(const fl_launch *l);

/* What a kernel reports a bad position to (flare.cuh: fl_position), and what
 * kernels that change state for good look at first (fl_faulty). */
typedef struct flc_fault {
  void *word; /* device memory, of the stream */
  uint64_t seq;
  int64_t base;
} flc_fault;
flc_fault flc_fault_of(const fl_launch *l);

/* In stream order: device memory to device memory, and bytes set. */
fl_status flc_copy(const fl_launch *l, void *to, const void *from,
                   size_t bytes);
fl_status flc_zero(const fl_launch *l, void *p, size_t bytes);
/* Reads device memory now: waits for the stream. For the few kernels whose work
 * depends on values. */
fl_status flc_read(const fl_launch *l, void *to, const void *from,
                   size_t bytes);

/* Whether every run has to give the same bits: then no sums of floats by
 * atomics. */
bool flc_deterministic(void);

/* --- views --- */

/* Bytes of an element, for a specialisation. */
static inline int flc_size(const fl_view *v) {
  return (int)fl_element_size(v);
}
/* A number given as an operand lies in host memory. */
static inline bool flc_is_number(const fl_view *v) {
  return v->data == (const void *)v->imm;
}
double flc_number(const fl_view *v);
int64_t flc_number_int(const fl_view *v);
/* The bits of a value as an element of a dtype. */
uint64_t flc_element(fl_dtype d, double v);
/* The elements of a view, contiguous, as `dtype`: its own memory if it is so
 * already, else a copy in scratch. NULL: failed, with the message set. A number
 * becomes one element in device memory. */
const void *flc_input(const fl_launch *l, const fl_view *v, fl_dtype dtype);

/* The numbers of an optimizer's step (optim.h): into `now`, or, if the script
 * keeps one of them on the device, by a kernel into *later. b1 and b2 are
 * Adam's, and `t` the input that counts its steps; NULL: it has none. */
struct optim_now;
fl_status flc_optim_now(const fl_launch *l, const fl_view *lr, const fl_view *t,
                        double b1, double b2, struct optim_now *now,
                        const struct optim_now **later);
/* Any view into any other of the same shape (broadcast `from`): strides and
 * dtypes differ as they like. */
fl_status flc_move(const fl_launch *l, const fl_view *to, const fl_view *from);
/* What floats compute in: F64 stays, the rest F32. */
static inline fl_dtype flc_wide(fl_dtype d) {
  return d == FL_F64 ? FL_F64 : FL_F32;
}
static inline bool flc_aligned(const void *p, size_t bytes) {
  return (uintptr_t)p % bytes == 0;
}

/* --- kernels by name: each family's functions, fl_cuda_<row> --- */

/* By the CPU's kernel: operands are copied there, results back; it waits. */
fl_status flc_on_host(const fl_launch *l);

#define FLC_KERNEL(name)                                                       \
  fl_status fl_cuda_##name(const fl_launch *l);                                \
  fl_status fl_cuda_##name(const fl_launch *l)

/* An elementwise program as part of a kernel that has the elements of `input`,
 * which lie side by side in memory: its text, and where its other operands are
 * for each of them in turn. False: there are gaps between elements. */
struct expr_args;
bool flc_expr_inside(const fl_launch *l, int input, const char **text,
                     struct expr_args *a);

/* --- specialisations worth having ready ---
 * Each family has one such function, listed in FLC_FAMILIES: it passes the
 * visitor every specialisation that an ordinary program meets (all dtypes and
 * layouts whose kernels the pack must hold for a machine without a compiler).
 * `quick` marks one of each entry for the quick check. */
typedef struct flc_visitor flc_visitor;
struct flc_visitor {
  void (*spec)(flc_visitor *v, const flc_spec *s, bool quick);
};
typedef void (*flc_visit)(flc_visitor *v);
#define FLC_FAMILIES(F)                                                        \
  F(map)                                                                       \
  F(reduce)                                                                    \
  F(scan)                                                                      \
  F(softmax)                                                                   \
  F(norm)                                                                      \
  F(loss)                                                                      \
  F(index)                                                                     \
  F(bag)                                                                       \
  F(sort)                                                                      \
  F(shape)                                                                     \
  F(random)                                                                    \
  F(adam8)                                                                     \
  F(optim)                                                                     \
  F(pooling)                                                                   \
  F(rnn)                                                                       \
  F(gemm)                                                                      \
  F(moments)                                                                   \
  F(padded)                                                                    \
  F(grouped)                                                                   \
  F(skinny)                                                                    \
  F(quantized)                                                                 \
  F(conv)                                                                      \
  F(depthwise)                                                                 \
  F(attention)                                                                 \
  F(grid)                                                                      \
  F(resample)                                                                  \
  F(cumulate)                                                                  \
  F(linalg)                                                                    \
  F(fft)                                                                       \
  F(complex)                                                                   \
  F(peer)                                                                      \
  F(expr)                                                                      \
  F(tile)
#define FLC_VISIT(family) void flc_visit_##family(flc_visitor *v);
FLC_FAMILIES(FLC_VISIT)
#undef FLC_VISIT

#endif
