/* Compiled functions. Between begin and end the launches of calls wait; end,
 * and whatever looks at memory before it, runs them: by a plan, with
 * elementwise launches fused, if the same launches have been seen before. All
 * else of a call happens at once, so a compiled function computes what it
 * computes otherwise, up to rounding. An error of a kernel is returned where
 * its launch runs. Included by flare.h. */
#ifndef FL_COMPILED_H
#define FL_COMPILED_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_compiled fl_compiled;
enum {                        /* how it compiles */
       FL_COMPILED_EXACT = 1, /* elementwise results are bit for bit those of
                                 calls at once */
       FL_COMPILED_FIRST = 2, /* for tests: makes plans for launches that it
                                 sees first, and keeps to plans */
       FL_COMPILED_CHECK = 4, /* runs without the plan as well, and returns
                                 FL_EFAULT where results differ by more than
                                 rounding; keeps to plans */
       FL_COMPILED_NO_GRAPHS = 8, /* plans launch their kernels one by one */
       FL_COMPILED_AGAIN = 16, /* for tests: computes again whatever it can */
       FL_COMPILED_WAIT = 32,  /* plans run from the first time on, which
                                  waits for kernels that the device has to
                                  compile; otherwise launches run without the
                                  plan until its kernels are there */
       FL_COMPILED_PURE = 64   /* its calls may be entered without its code */
};
/* `flags`: FL_COMPILED_... To be freed by the caller, before or after the
 * runtime is closed; freed between begin and end, it ends. */
FL_API fl_status fl_compiled_new(fl_runtime *rt, unsigned flags,
                                 fl_compiled **out);
FL_API void fl_compiled_free(fl_compiled *c);
/* Launches around a value that is larger run chunk by chunk of about so many
 * bytes, as products with the loss that follows them; 0: as is best for the
 * device, SIZE_MAX: never. For plans that are made from then on. */
FL_API fl_status fl_compiled_chunk(fl_compiled *c, size_t bytes);
/* At most so many bytes of the device are in tensors while a plan runs, with
 * those that were there before; 0: any number. Values are computed again and
 * chunks are smaller as far as that takes; end returns FL_ENOMEM, and nothing
 * has run, where it does not suffice. What kernels need beside tensors is known
 * when they have run once. */
FL_API fl_status fl_compiled_memory(fl_compiled *c, size_t bytes);
/* Whether launches of a call would wait. If not, calls need no begin and end:
 * too few calls had the launches of earlier ones, or plans have turned out
 * slower (CPU).
 * Between begin and end: whether those of this call do. */
FL_API bool fl_compiled_waits(const fl_compiled *c);
/* In pairs, which nest: the outermost one counts. begin fails only without
 * memory. end returns the first failure of the launches that have waited. */
FL_API fl_status fl_compiled_begin(fl_compiled *c);
FL_API fl_status fl_compiled_end(fl_compiled *c);

/* --- without a plan --- */

/* In pairs, which nest: from begin to end launches wait, or until memory is
 * looked at, and then run one by one. Those whose results nothing holds or
 * reads by then never run. end returns their first failure. */
FL_API fl_status fl_defer_begin(fl_runtime *rt);
FL_API fl_status fl_defer_end(fl_runtime *rt);
/* Bytes of the results of launches that wait. */
FL_API size_t fl_deferred_bytes(fl_runtime *rt);

/* --- pure functions --- */

/* What the code of a call has got, returned, and launched: between begin and
 * end, after all of it. */
typedef struct fl_compiled_call {
  int n_in, n_out, n_lives;
  fl_tensor *const *in, *const *out;
  const uint32_t *lives; /* in pairs: from which launch to which code that runs
                            in every call has launched, by its own numbers */
  bool repeats;          /* all else that the code gets is as in the call before
                          */
} fl_compiled_call;
FL_API fl_status fl_compiled_note(fl_compiled *c, const fl_compiled_call *call);
/* The trace of the call that has ended, which is made of a call like the one
 * before; -1: there is none, and *why, if not NULL, says what stands against
 * it, until the next call. A new one takes the place of the least recently used
 * of 16, and those of before tensors have moved are freed. */
FL_API int fl_compiled_traced(const fl_compiled *c, const char **why);
/* How many launches wait; -1: none can. */
FL_API int64_t fl_compiled_position(const fl_compiled *c);
/* After begin, instead of the code: a call of that trace with other tensors.
 * *fits is false, and the code has to run, if they are not as they were. Then
 * feed adds the launches from the one to the other, -1: the last; code that
 * runs in every call comes between. At last the results, which belong to c
 * until the call ends. */
FL_API fl_status fl_compiled_enter(fl_compiled *c, int trace, int n,
                                   fl_tensor *const *in, bool *fits);
FL_API fl_status fl_compiled_feed(fl_compiled *c, int64_t from, int64_t upto);
FL_API fl_status fl_compiled_results(fl_compiled *c, int *n,
                                     fl_tensor *const **list);

/* fl_tensor_data, to be used before the next call of the library only. Of
 * memory whose address fl_tensor_data has given out, no launch ever waits. */
FL_API void *fl_tensor_borrow(fl_tensor *t);

typedef struct fl_compiled_stats {
  uint64_t windows;    /* runs of waiting launches so far */
  uint64_t planned;    /* those that a plan ran */
  uint64_t replayed;   /* those of plans that a graph of launches ran */
  uint64_t turn;       /* the last such window */
  uint64_t traced;     /* calls of a pure function without its code */
  uint64_t unready;    /* windows that ran without their plan, since its kernels
                          were being compiled */
  const char *failure; /* why a kernel could not be compiled, NULL; its plan is
                          not used. Valid until the function is freed */
  int plans, graphs, traces; /* that it keeps */
  size_t graph_bytes; /* memory of the graphs of its plans' temporaries, which
                         those of other functions use, too */
  uint32_t launches, kernels; /* of the plan last used: before, after fusion */
  uint32_t chunks;            /* of its launches that run chunk by chunk */
  uint32_t repeats;           /* launches that run a second time */
  size_t memory; /* bytes of its results and temporaries, at most at a time */
  bool off; /* calls vary, or plans were slower (CPU), so calls run at once from
               now on */
  bool varies; /* off, since more calls had new launches than ran by a plan that
                  was there */
  double with, without; /* least seconds of a call by a plan, and at once, on
                           the CPU; 0: they were not timed */
} fl_compiled_stats;
/* What it has done so far; zeros for NULL. */
FL_API void fl_compiled_get(const fl_compiled *c, fl_compiled_stats *s);

#ifdef __cplusplus
}
#endif
#endif
