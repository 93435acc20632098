/* The profiler. A part of flare.h. */
#ifndef FL_PROFILE_H
#define FL_PROFILE_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- the profiler --- */

typedef struct fl_profile_part { /* sites; the path is the module's text */
  fl_site module, caller;
} fl_profile_part;
typedef struct fl_profile_launch { /* a call's, in a kernel of several */
  const char *op;
  fl_site site;
  fl_profile_part part;
  bool backward;
  bool again; /* another kernel computes it, too */
} fl_profile_launch;
/* A launch of a compiled function's window. */
typedef struct fl_profile_step {
  const char *kind;     /* "pointwise", "reduction", "product", ... */
  const char *apart;    /* why it begins a kernel, with %d for `from`; NULL: no
                           plan has run it */
  int32_t number, from; /* in the plan, from 0, and the kernel that it is apart
                           from; -1: none */
  double read, written, flops; /* bytes; FLOPs of all launches */
  double kept; /* of the bytes written: in memory that outlives the launches */
  char shapes[96];
  uint32_t n;                    /* launches */
  fl_profile_launch launches[1]; /* n of them */
} fl_profile_step;
/* Which tensors a launch reads and writes, by number; a view counts as the
 * tensor that it is of. Of its first operands alone: 0, there is none. */
#define FL_PROFILE_READS 4
typedef struct fl_profile_flow {
  uint64_t read[FL_PROFILE_READS], written;
  double read_bytes[FL_PROFILE_READS], written_bytes; /* of all results */
} fl_profile_flow;
typedef struct fl_profile_row {
  const char *op, *called; /* whose kernel; what was called, if composed */
  uint64_t call;           /* the number of that call */
  fl_site site;
  fl_profile_part part; /* of fl_profile_push */
  bool backward;        /* launched by a backward pass */
  bool transfer;        /* between memories, not a launch */
  fl_dtype dtype;       /* of the first input */
  fl_device device;
  double start_us, host_us, device_start_us, device_us; /* from the start */
  double flops, bytes; /* what the operator must do: its row's cost rule */
  size_t live, peak;   /* bytes on the device when it is launched; the most
                          until it has been (FL_PROFILE_PEAKS, else 0) */
  const fl_profile_step *step; /* NULL: it did not wait in a window */
  fl_profile_flow flow;        /* of a launch that did not */
} fl_profile_row;
enum {                        /* what it does, too */
       FL_PROFILE_RANGES = 1, /* show launches to the device's own tools */
       FL_PROFILE_PEAKS = 2,  /* the peak of memory of each row */
       FL_PROFILE_META = 4    /* a row for each call in meta mode, too: its
                                 flops and bytes, on no device's account */
};
/* Starts it: a row for each launch and each transfer until fl_profile_stop, at
 * most `most` (0: no limit). flags: of the enum. EARG: it is running;
 * EUNSUPPORTED: no backend shows ranges. */
FL_API fl_status fl_profile_start(fl_runtime *rt, size_t most, unsigned flags);
/* Stops it, waits for the devices and returns the n rows, borrowed until the
 * next start; *lost: rows that `most` left out. EARG: it is not running. */
FL_API fl_status fl_profile_stop(fl_runtime *rt, const fl_profile_row **rows,
                                 size_t *n, uint64_t *lost);
/* Launches from now on are a part of the module `path`, called at `caller`;
 * backward follows forward. Returns the part before, for fl_profile_pop. */
FL_API fl_profile_part fl_profile_push(fl_runtime *rt, const char *path,
                                       fl_site caller);
FL_API void fl_profile_pop(fl_runtime *rt, fl_profile_part before);
/* The peak of live bytes on a device at a launch of the last profile, and the
 * call sites that held them, as fl_memory_holders writes them (valid until the
 * next start). */
FL_API size_t fl_profile_peak(fl_runtime *rt, fl_device d, const char **held);

#ifdef __cplusplus
}
#endif
#endif
