/* What all headers use: dtypes, statuses, limits and the plain view of memory
 * that a kernel gets. Tensors, operators and devices are elsewhere. */
#ifndef FL_TYPES_H
#define FL_TYPES_H

#include <stdarg.h>
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
#define FL_MAX_DTYPES 31 /* their numbers are below: a set fits 32 bits */
#define FL_ALIGN      64 /* bytes; every storage and scratch block starts so */

typedef enum fl_dtype {
#define FL_DTYPE(NAME, name, T, size, kind, C)   FL_##NAME,
#define FL_DTYPE_COMPLEX(NAME, name, part, size) FL_##NAME,
#include "dtype.def"
  FL_NODTYPE = 255 /* none; the same when dtypes are added */
} fl_dtype;

typedef enum fl_kind {
  FL_KIND_BOOL,
  FL_KIND_UINT,
  FL_KIND_INT,
  FL_KIND_FLOAT,
  FL_KIND_COMPLEX
} fl_kind;

typedef enum fl_status {
#define FL_STATUS(NAME, text) FL_##NAME,
#include "status.def"
  FL_STATUSES
} fl_status;

/* Sets of dtypes, a bit for each, from the rows of dtype.def. The order of the
 * enumerators means nothing: code asks the functions below and never compares
 * dtypes by < or <=. */
enum {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (FL_KIND_##kind == FL_KIND_FLOAT) << FL_##NAME
  FL_SET_FLOAT = 0
#include "dtype.def"
  ,
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (FL_KIND_##kind == FL_KIND_FLOAT && (size) < 4) << FL_##NAME
  FL_SET_LOW = 0
#include "dtype.def"
  ,
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (FL_KIND_##kind == FL_KIND_INT || FL_KIND_##kind == FL_KIND_UINT)          \
          << FL_##NAME
  FL_SET_INT = 0
#include "dtype.def"
  ,
#define FL_DTYPE_COMPLEX(NAME, name, part, size) | 1 << FL_##NAME
  FL_SET_COMPLEX = 0
#include "dtype.def"
  ,
#define FL_DTYPE(NAME, name, T, size, kind, C) | 1 << FL_##NAME
  FL_SET_REAL = 0
#include "dtype.def"
};

static inline bool fl_dtype_in(fl_dtype d, int set) {
  return (unsigned)d < FL_MAX_DTYPES && (set >> d & 1);
}

static inline bool fl_dtype_is_float(fl_dtype d) { /* not complex */
  return fl_dtype_in(d, FL_SET_FLOAT);
}

/* A float of less than 32 bits, which is computed in f32. */
static inline bool fl_dtype_is_low(fl_dtype d) {
  return fl_dtype_in(d, FL_SET_LOW);
}

/* f32 and f64. */
static inline bool fl_dtype_is_wide(fl_dtype d) {
  return fl_dtype_in(d, FL_SET_FLOAT & ~FL_SET_LOW);
}

static inline bool fl_dtype_is_int(fl_dtype d) { /* not bool */
  return fl_dtype_in(d, FL_SET_INT);
}

static inline bool fl_dtype_is_complex(fl_dtype d) {
  return fl_dtype_in(d, FL_SET_COMPLEX);
}

/* What kernels meet: complex tensors reach them as their parts. */
static inline bool fl_dtype_is_real(fl_dtype d) {
  return fl_dtype_in(d, FL_SET_REAL);
}

/* A loop over the dtypes for which one of the functions above is true. */
#define FL_EACH_DTYPE(d, is)                                                   \
  for (fl_dtype d = (fl_dtype)0; d < FL_MAX_DTYPES; d = (fl_dtype)(d + 1))     \
    if (is(d))

/* Bytes of one element, name ("f32") and kind; 0, "none" and FL_KIND_BOOL for a
 * number that is no dtype. */
FL_API size_t fl_dtype_size(fl_dtype d);
FL_API const char *fl_dtype_name(fl_dtype d);
FL_API fl_kind fl_dtype_kind(fl_dtype d);
/* The dtype of a name ("f32"); FL_NODTYPE: there is none, or name is NULL. */
FL_API fl_dtype fl_dtype_find(const char *name);
/* How many dtypes this library has: their numbers are below that. */
FL_API int fl_dtype_count(void);

/* Shape and dtype: what an operator's shape rule reads and writes. */
typedef struct fl_meta {
  fl_dtype dtype;
  int ndim; /* 0..FL_MAX_DIMS; 0 is one element */
  int64_t shape[FL_MAX_DIMS];
} fl_meta;

/* A kernel's operand: memory with shape and strides (in elements, may be 0 or
 * negative). A scalar operand lies in `imm`, its `data` points there and all
 * strides are 0; a copy of the view must point to its own `imm`
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

/* Whether the caller of `where` has set the struct_size of its `type`, which is
 * NULL or begins with struct_size. A size below that of `struct_size` itself is
 * EARG: otherwise all of it would be ignored. */
FL_API fl_status fli_check_sized(const char *where, const char *type,
                                 const void *given);
#define FL_CHECK_SIZED(type, given) fli_check_sized(__func__, #type, given)

/* The message of this thread's last failure, "" at first; valid until the next
 * failure. A success leaves it as it is. */
FL_API const char *fl_error(void);

/* strtod, snprintf and vsnprintf with a decimal point, whatever locale the host
 * has set: for text that is read again. */
FL_API double fli_strtod(const char *text, char **end);
FL_API int fli_snprintf(char *to, size_t room, const char *format, ...)
    FL_PRINTF(3, 4);
FL_API int fli_vsnprintf(char *to, size_t room, const char *format,
                         va_list args) FL_PRINTF(3, 0);
/* Between the two this thread writes and reads numbers with a decimal point,
 * for code that is not ours (Lua's string.format); leave takes what enter
 * returned. Costs nothing where the locale has a decimal point anyway. */
FL_API void *fli_numeric_enter(void);
FL_API void fli_numeric_leave(void *was);

/* The library that has this address stays in the process for good, whatever
 * dlclose is asked: a thread that cannot be ended runs its code. */
FL_API void fli_keep_loaded(const void *address);
/* How many threads of this process still run code which flare called and could
 * not stop (a function of LAPACK, os.execute). A program that ends while there
 * are some should use _exit: destructors free what they use. */
FL_API int fl_threads_left(void);
FL_API void fli_thread_left(int by); /* counts them */

/* "(2, 3)" in one of a few rotating thread-local buffers, for messages. */
FL_API const char *fli_shape_text(int ndim, const int64_t *shape);

#ifdef __cplusplus
}
#endif
#endif
