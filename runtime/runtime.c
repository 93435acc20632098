/* Opens and closes the runtime object: its tables, its backends, its memory. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "memory/stream.h"
#include "tape/tape.h"
#include "call/graph.h"
#include "call/window.h"
#include "compile/compile.h"
#include "expr/tile.h"
#include "modes/complex.h"
#include "register/native.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- opening and closing --- */

static bool runtime_interrupted(void *context) {
  return fl_runtime_interrupted(context);
}

static fl_status open_backends(fl_runtime *rt) {
  int n;
  const fl_builtin_backend *list = fl_builtin_backends(&n);
  fl_backend_options o = {.threads = rt->options.threads,
                          .interrupted = runtime_interrupted,
                          .context = rt};
  for (int i = 0; i < n; i++) {
    fl_backend *b;
    FLI_TRY(list[i].open(&o, rt->cpu, &b));
    fl_status s = fl_backend_register(rt, b);
    if (s) {
      if (b->close)
        b->close(b);
      return s;
    }
    rt->owned |= 1u << (rt->n_backends - 1);
    if (i == 0)
      rt->cpu = b;
  }
  return FL_OK;
}

static const fli_mode_fn modes[FLI_MODES] = {
#define FL_MODE(NAME, name) fli_mode_##name,
#include "call/modes.def"
};

static const fli_upcalls upcalls = {.drain = fli_lending_drain,
                                    .kernels = fli_ops_backend,
                                    .node_release = fli_node_release,
                                    .node_unretain = fli_node_unretain,
                                    .end = fli_runtime_end,
                                    .native_free = fli_native_free,
                                    .mode = modes,
                                    .compose = fli_compose_call,
                                    .graph_apply = fli_graph_apply,
                                    .row_grad = fli_expr_row_grad,
                                    .spare = fli_graphs_spare,
                                    .keep_write = fli_keep_write,
                                    .flush = fli_window_flush,
                                    .plan = fli_compiled_plan,
                                    .grad = fl_grad};

/* The cores that this process may use. */
static int cores(void) {
#ifdef __linux__
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    return CPU_COUNT(&set);
#endif
  long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (int)n;
}

fl_status fl_runtime_open(const fl_runtime_options *options, fl_runtime **out) {
  FLI_NEED(out, "rt");
  FLI_TRY(FL_CHECK_SIZED(fl_runtime_options, options));
  fl_runtime *rt = calloc(1, sizeof *rt);
  if (!rt)
    return fli_fail(FL_ENOMEM, "out of memory: a runtime");
  if (options)
    memcpy(&rt->options, options,
           options->struct_size < sizeof rt->options ? options->struct_size
                                                     : sizeof rt->options);
  if (rt->options.threads < 1)
    rt->options.threads = cores();
  rt->owner = fli_self();
  rt->grad_enabled = true;
  rt->autocast = FL_NODTYPE;
  rt->generator.seed = 0x5eed;
  rt->up = &upcalls;
  rt->budget = fl_budget_retain(rt->options.budget);
  fl_status s = FL_OK;
  if (!rt->budget && !(rt->budget = fli_budget_new()))
    s = fli_fail(FL_ENOMEM, "out of memory: a runtime");
  if (s == FL_OK)
    s = fli_sites_open(rt);
  if (s == FL_OK)
    s = fli_alloc_open(rt);
  if (s == FL_OK)
    s = fli_ops_init(rt);
  if (s == FL_OK)
    fli_complex_init(rt);
  if (s == FL_OK)
    s = fli_tape_open(rt);
  if (s == FL_OK)
    s = open_backends(rt);
  if (s) {
    fl_runtime_close(rt);
    return s;
  }
  if (rt->options.memory_limit && !rt->options.budget)
    fl_memory_limit(rt, 0, rt->options.memory_limit);
  *out = rt;
  return FL_OK;
}

static void close_devices(fl_runtime *rt) {
  for (int k = rt->n_backends - 1; k >= 0; k--) {
    fl_backend *b = rt->backends[k];
    for (int i = 0; i < rt->n_devices[k]; i++)
      if (rt->streams[k][i] && b->stream_free)
        b->stream_free(b, rt->streams[k][i]);
    if (b->close && (rt->owned >> k & 1))
      b->close(b);
  }
}

void fl_runtime_close(fl_runtime *rt) {
  if (!rt)
    return;
  rt->closing = true;
  while (rt->batch) /* closed inside vmap, by a function of the host */
    fl_vmap_close(rt);
  fli_window_free(rt);
  fli_autocast_forget(rt);
  fli_profile_close(rt);
  fli_graphs_close(rt);
  for (int k = 0; k < rt->n_backends; k++)
    for (int i = 0; i < rt->n_devices[k]; i++)
      fl_device_sync(rt, k << 8 | i);
  fl_comm_close(rt);
  if (rt->ops)
    fli_tensors_close(rt);
  fli_tape_close(rt);
  fli_marks_close(rt);
  if (!fli_lending_keeps(rt))
    fli_runtime_end(rt);
}

void fli_runtime_end(fl_runtime *rt) {
  fli_alloc_close(rt);
  fli_pins_close(rt);
  fli_streams_close(rt);
  fli_races_close(rt);
  close_devices(rt);
  for (int i = 0; i < FLI_SMALL; i++)
    for (struct fli_small *p = rt->small[i], *next; p; p = next) {
      next = *(struct fli_small **)p;
      fli_mfree(p);
    }
  fli_exprs_close(rt);
  fli_tiles_close(rt);
  fli_ops_close(rt);
  fli_sites_close(rt);
  free(rt->text);
  fl_budget_release(rt->budget);
  free(rt);
}

int fl_runtime_threads(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", 0);
  return rt->options.threads;
}

fl_status fl_runtime_set_threads(fl_runtime *rt, int threads) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fl_backend_control(rt, "cpu", "threads", threads));
  rt->options.threads = threads;
  return FL_OK;
}

fl_generator *fl_runtime_generator(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", NULL);
  return &rt->generator;
}

fl_tensor *fl_tensor_newest(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", NULL);
  return rt->tensors;
}

uint64_t fl_tensor_count(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", 0);
  return rt->n_tensors;
}
