/* What everybody may know: dtypes, outcomes, limits and the plain view that a
 * kernel gets. No tensors, no operators, no devices here. */
#ifndef FL_TYPES_H
#define FL_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define FL_API          __attribute__((visibility("default")))
#define FL_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define FL_UNNAMED      __extension__ /* unions without a name, in C99, too */
#else
#define FL_API
#define FL_PRINTF(f, a)
#define FL_UNNAMED
#endif

#define FL_MAX_DIMS   8  /* of a tensor */
#define FL_MAX_ATTRS  12 /* of an operator */
#define FL_MAX_LIST   28 /* numbers in all list attributes of one call */
#define FL_MAX_OUT    5  /* results of an operator */
#define FL_MAX_NATIVE 16 /* inputs of a registered one */
#define FL_ALIGN      64 /* bytes; every storage and scratch block starts so */

typedef enum fl_dtype {
#define FL_DTYPE(NAME, name, T, size, kind, C)   FL_##NAME,
#define FL_DTYPE_COMPLEX(NAME, name, part, size) FL_##NAME,
#include "dtype.def"
  FL_DTYPES, /* how many there are; also "none" */
  FL_NODTYPE = FL_DTYPES,
  FL_REALS = FL_C64 /* how many are not complex: what kernels meet */
} fl_dtype;

typedef enum fl_status {
#define FL_STATUS(NAME, text) FL_##NAME,
#include "status.def"
  FL_STATUSES
} fl_status;

typedef enum fl_kind {
  FL_KIND_BOOL,
  FL_KIND_UINT,
  FL_KIND_INT,
  FL_KIND_FLOAT,
  FL_KIND_COMPLEX
} fl_kind;

/* Bytes of one element, name ("f32") and kind; d < FL_DTYPES. */
FL_API size_t fl_dtype_size(fl_dtype d);
FL_API const char *fl_dtype_name(fl_dtype d);
FL_API fl_kind fl_dtype_kind(fl_dtype d);

/* Shape and dtype: what an operator's shape rule reads and writes. */
typedef struct fl_meta {
  fl_dtype dtype;
  int ndim; /* 0..FL_MAX_DIMS; 0 is one element */
  int64_t shape[FL_MAX_DIMS];
} fl_meta;

/* A kernel's operand: memory with shape and strides (in elements, may be 0 or
 * negative). A scalar operand lies in `imm`, its `data` points there and all
 * strides are 0; whoever copies a view must move that pointer
 * (fl_view_copy). */
typedef struct fl_view {
  void *data;
  fl_dtype dtype;
  int ndim;
  int64_t shape[FL_MAX_DIMS];
  int64_t stride[FL_MAX_DIMS];
  unsigned char imm[8];
} fl_view;

static inline void fl_view_copy(fl_view *to, const fl_view *from) {
  *to = *from;
  if (from->data == (const void *)from->imm)
    to->data = to->imm;
}

static inline int64_t fl_numel(int ndim, const int64_t *shape) {
  int64_t n = 1;
  for (int i = 0; i < ndim; i++)
    n *= shape[i];
  return n;
}

/* Records a message for this thread and returns `s`, so that a failure is one
 * line: return fli_fail(FL_ESHAPE, "matmul: %s x %s", ...). */
FL_API fl_status fli_fail(fl_status s, const char *format, ...) FL_PRINTF(2, 3);

/* The last failure's message of this thread, "" at first. */
FL_API const char *fl_error(void);

/* "(2, 3)" in one of a few rotating thread-local buffers, for messages. */
FL_API const char *fli_shape_text(int ndim, const int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
