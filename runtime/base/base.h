/* The base of runtime/: returning failures, facts about dtypes and shapes, call
 * sites, the ring of the last launches. */
#ifndef FL_BASE_H
#define FL_BASE_H

#include "../flare.h"

#define FLI_LIKELY(x) __builtin_expect(!!(x), 1)
#define FLI_TRY(call)                                                          \
  do {                                                                         \
    fl_status fli_s_ = (call);                                                 \
    if (FLI_LIKELY(fli_s_ == FL_OK))                                           \
      break;                                                                   \
    return fli_s_;                                                             \
  } while (0)

/* A public function's pointer that must be there: else its status, or `value`
 * where it returns none. */
#define FLI_NEED(p, what)                                                      \
  FLI_TRY(FLI_LIKELY((p) != NULL)                                              \
              ? FL_OK                                                          \
              : fli_fail(FL_EARG, "%s: %s is NULL", __func__, what))
#define FLI_NEED_OR(p, what, value)                                            \
  do {                                                                         \
    if (FLI_LIKELY((p) != NULL))                                               \
      break;                                                                   \
    fli_fail(FL_EARG, "%s: %s is NULL", __func__, what);                       \
    return value;                                                              \
  } while (0)

#define FLI_S(n) ((n) == 1 ? "" : "s") /* a plural's */

static inline bool fli_has_shape(const fl_meta *m, int ndim,
                                 const int64_t *shape) {
  if (m->ndim != ndim)
    return false;
  for (int i = 0; i < ndim; i++)
    if (m->shape[i] != shape[i])
      return false;
  return true;
}

static inline bool fli_same_shape(const fl_meta *a, const fl_meta *b) {
  return fli_has_shape(a, b->ndim, b->shape);
}

/* How many dtypes there are: no part of the interface. */
enum {
#define FL_DTYPE(NAME, name, T, size, kind, C)   +1
#define FL_DTYPE_COMPLEX(NAME, name, part, size) +1
  FLI_DTYPES = 0
#include "../dtype.def"
};
_Static_assert(FLI_DTYPES <= 16, "fli_shift has four bits for each of 16");

/* log2 of a dtype's bytes: fl_dtype_size without a call. */
static inline unsigned fli_shift(fl_dtype d) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (uint64_t)(size == 8   ? 3                                                 \
               : size == 4 ? 2                                                 \
               : size == 2 ? 1                                                 \
                           : 0)                                                \
          << (FL_##NAME * 4)
#define FL_DTYPE_COMPLEX(NAME, name, part, size)                               \
  | (uint64_t)(size == 16 ? 4 : 3) << (FL_##NAME * 4)
  return (unsigned)((0
#include "../dtype.def"
                     ) >>
                    (d * 4)) &
         15;
}

static inline bool fli_is_float(fl_dtype d) {
#define FL_DTYPE(NAME, name, T, size, kind, C)                                 \
  | (uint32_t)(FL_KIND_##kind == FL_KIND_FLOAT) << FL_##NAME
  return (0
#include "../dtype.def"
          ) >>
             (d & 31) &
         1;
}

static inline bool fli_is_complex(fl_dtype d) {
  return d == FL_C64 || d == FL_C128;
}

/* Of a complex dtype's two parts. */
static inline fl_dtype fli_part_dtype(fl_dtype d) {
  return d == FL_C128 ? FL_F64 : FL_F32;
}

/* --- dtype.c --- */

fl_dtype fli_promote(fl_dtype a, fl_dtype b);
double fli_half_value(fl_dtype d, uint16_t bits);
int64_t fli_to_integer(double f);

/* --- error.c --- */

/* The same failure, with a composed operator's name in front of the message of
 * a row inside it. */
fl_status fli_told(const char *name, fl_status s);
/* Of elements that a caller passes: not negative. */
fl_status fli_check_count(const char *function, const char *what, int n);

/* --- site.c --- */

fl_status fli_sites_open(fl_runtime *rt);
void fli_sites_close(fl_runtime *rt);

/* --- launches.c --- */

#define FLI_RING 256 /* launches remembered */

typedef struct fli_launch_note {
  uint64_t seq;
  const char *op;
  fl_site site;
  uint8_t n;
  uint8_t ndim[3];
  int64_t shape[3][4];
} fli_launch_note;

/* Launches that are run again and again, with the numbers of their first time:
 * those of a graph. */
typedef struct fli_noted {
  fli_launch_note *notes; /* by their numbers */
  uint32_t n, room;
  struct fli_noted *next; /* of the runtime's */
} fli_noted;
/* The note of launch `seq` in one of them, NULL if there is none. */
const fli_launch_note *fli_noted_find(const fl_runtime *rt, uint64_t seq);
/* Fails with the site of a launch whose failure came later, from the ring. */
fl_status fli_late_failure(fl_runtime *rt, fl_status s,
                           const fli_launch_note *n, uint64_t seq);
char *fli_text(fl_runtime *rt, size_t room); /* for fl_..._text */

#endif
