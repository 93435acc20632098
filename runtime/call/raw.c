/* Kernels of the user in a backend's language: from source to a launch on
 * memory of tensors. The backend compiles the source. */
#include "../memory/stream.h"
#include "launch.h"

#include <string.h>

#define MAX_ARGS 64

static fl_status backend_of(fl_runtime *rt, const char *name, fl_backend **b) {
  for (int k = 0; k < rt->n_backends; k++)
    if (strcmp(rt->backends[k]->name, name) == 0) {
      *b = rt->backends[k];
      return (*b)->raw_new ? FL_OK
                           : fli_fail(FL_EUNSUPPORTED,
                                      "the backend %s takes no source", name);
    }
  return fli_fail(FL_EARG, "there is no backend \"%s\"", name);
}

fl_status fl_raw_new(fl_runtime *rt, const char *backend,
                     const fl_raw_source *s, fl_raw **k, char **log) {
  FLI_NEED(rt, "rt");
  FLI_NEED(backend, "backend");
  FLI_NEED(s, "s");
  FLI_NEED(k, "k");
  FLI_NEED(log, "log");
  fl_backend *b = NULL;
  *log = NULL;
  FLI_TRY(backend_of(rt, backend, &b));
  return b->raw_new(b, s, k, log);
}

fl_status fl_raw_about(fl_runtime *rt, const char *backend, fl_raw *k,
                       int device, fl_raw_facts *facts) {
  FLI_NEED(rt, "rt");
  FLI_NEED(backend, "backend");
  FLI_NEED(k, "k");
  FLI_NEED(facts, "facts");
  fl_backend *b = NULL;
  FLI_TRY(backend_of(rt, backend, &b));
  return b->raw_facts(b, k, device, facts);
}

static fl_status device_of(const char *name, int n, const fl_raw_arg *args,
                           fl_device *d) {
  *d = -1;
  for (int k = 0; k < n; k++) {
    const fl_tensor *t = args[k].tensor;
    if (!t)
      continue;
    if (!t->rt)
      return fli_fail(FL_ECLOSED, "%s: argument %d is closed", name, k + 1);
    if (!t->storage)
      return fli_fail(FL_EARG, "%s: argument %d has no memory", name, k + 1);
    if (*d >= 0 && fl_tensor_device(t) != *d)
      return fli_fail(FL_EDEVICE, "%s: tensors on several devices", name);
    *d = fl_tensor_device(t);
  }
  return *d >= 0 ? FL_OK
                 : fli_fail(FL_EARG, "%s: no tensor among the arguments", name);
}

static fl_status raw_send(fl_runtime *rt, fl_backend *b, const fl_launch *l,
                          fl_device d) {
  fl_kernel kernel = b->raw_new ? b->kernel(b, "raw") : NULL;
  uint64_t failed;
  if (!kernel)
    return fli_fail(FL_EDEVICE, "%s: the %s backend runs no source", l->op,
                    b->name);
  if (!(b->flags & FL_BACKEND_ASYNC))
    return b->launch ? b->launch(b, kernel, l) : kernel(l);
  fl_status s = b->stream_peek(b, l->device, l->stream, &failed);
  if (!s && (s = b->launch(b, kernel, l)) != FL_EFAULT)
    return s;
  return rt->capture ? s : fli_stream_finish(rt, d);
}

/* With its place in the ring, and in the profile if there is one; what is known
 * of its work is the memory it was given. */
static fl_status raw_launch(fl_runtime *rt, const fl_launch *l, fl_device d,
                            fl_site site, int n, const fl_raw_arg *args) {
  fl_backend *b = fli_backend(rt, d);
  const fl_meta *metas[2];
  double bytes = 0;
  int n_metas = 0;
  for (int k = 0; k < n; k++) {
    const fl_tensor *t = args[k].tensor;
    if (t && n_metas < 2)
      metas[n_metas++] = &t->meta;
    if (t)
      bytes += (double)t->numel * (double)fl_dtype_size(t->meta.dtype);
  }
  fli_note_launch(rt, l->op, site, l->seq, n_metas, metas);
  if (rt->watch & FLI_WATCH_CAPTURE)
    FLI_TRY(fli_capture_launch(rt, d, l->op));
  for (int k = 0; k < n && rt->watch & FLI_WATCH_CAPTURE; k++)
    if (args[k].tensor)
      FLI_TRY(fli_capture_uses(args[k].tensor->storage, args[k].writes));
  if (!rt->profile)
    return raw_send(rt, b, l, d);
  fli_profiled what = {.op = l->op,
                       .site = site,
                       .device = d,
                       .dtype = FL_NODTYPE,
                       .bytes = bytes};
  size_t row = fli_profile_begin(rt, &what, l->stream);
  fl_status s = raw_send(rt, b, l, d);
  fli_profile_end(rt, row, l->stream);
  return s;
}

fl_status fl_raw_run(fl_runtime *rt, const char *name, fl_site site,
                     fl_raw_call *call, int n, const fl_raw_arg *args) {
  FLI_NEED(rt, "rt");
  FLI_NEED(name, "name");
  FLI_NEED(call, "call");
  FLI_TRY(fli_check_count(__func__, "n", n));
  if (n > 0)
    FLI_NEED(args, "args");
  void *pointers[MAX_ARGS], *values[MAX_ARGS];
  fl_device d;
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_settle_all(rt));
  if (n > MAX_ARGS)
    return fli_fail(FL_ESIZE, "%s: %d arguments are too many: at most %d", name,
                    n, MAX_ARGS);
  for (int k = 0; k < n; k++)
    if (!args[k].tensor && !args[k].value)
      return fli_fail(FL_EARG,
                      "%s: argument %d is neither a tensor nor a value", name,
                      k + 1);
  FLI_TRY(device_of(name, n, args, &d));
  /* a copy that lives as long as the records of the launch */
  name = fl_site_text(rt, fl_site_intern(rt, name, 0));
  for (int k = 0; k < n; k++)
    if (args[k].tensor && args[k].writes)
      FLI_TRY(fli_check_writable(args[k].tensor, name, ""));
  for (int k = 0; k < n && rt->watch; k++)
    if (args[k].tensor)
      FLI_TRY(fli_streams_touch(args[k].tensor, args[k].writes, name, site));
  for (int k = 0; k < n; k++) {
    pointers[k] = args[k].tensor ? fli_tensor_ptr(args[k].tensor) : NULL;
    values[k] = args[k].tensor ? (void *)&pointers[k] : args[k].value;
  }
  call->args = values;
  fl_launch l = {.op = name,
                 .raw = call,
                 .device = d & 255,
                 .stream = fli_stream(rt, d),
                 .seq = ++rt->seq};
  FLI_TRY(raw_launch(rt, &l, d, site, n, args));
  for (int k = 0; k < n; k++)
    if (args[k].tensor && args[k].writes) {
      args[k].tensor->storage->version++;
      args[k].tensor->storage->write_site = site;
    }
  return FL_OK;
}
