/* Memory of tensors that goes to the host or away, and comes back: for programs
 * whose tensors are more than a device has. */
#include "../memory/stream.h"
#include "call.h"

static fl_status check_whole(const fl_tensor *t, bool away) {
  if (!t->rt || !t->storage)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  if (t->meta.dtype != FL_U8 || (size_t)t->numel != t->storage->bytes)
    return fli_fail(FL_EARG, "the whole memory of a tensor is expected");
  if (t->storage->away != away)
    return fli_fail(FL_EARG, "the memory is %s",
                    away ? "there already" : "evicted");
  return FL_OK;
}

static fl_status copy_whole(fl_tensor *t, fl_tensor *host, bool in) {
  FLI_TRY(check_whole(t, false));
  if (!host)
    return FL_OK;
  fl_runtime *rt = t->rt;
  fl_device d = t->storage->device;
  struct fli_pin *pin = host->storage ? fli_pin_of(host->storage) : NULL;
  if (!pin || !fli_pin_fits(pin, d) || !host->contiguous ||
      (size_t)host->numel * fl_dtype_size(host->meta.dtype) !=
          t->storage->bytes)
    return fli_fail(FL_EARG, "as many bytes in pinned memory are expected");
  if (!t->numel)
    return FL_OK;
  if (rt->watch)
    FLI_TRY(fli_streams_touch(t, in, "a copy", rt->copy_site));
  void *there = fli_tensor_ptr(t), *here = fli_tensor_ptr(host);
  FLI_TRY(
      in ? fli_copy(rt, d, FL_COPY_IN_PINNED, there, d, here, t->storage->bytes)
         : fli_copy(rt, d, FL_COPY_OUT_PINNED, here, d, there,
                    t->storage->bytes));
  if (rt->watch & FLI_WATCH_RACES)
    FLI_TRY(fli_race_check(rt, d, fl_stream_current(rt, d), host, !in, "a copy",
                           rt->copy_site));
  return fli_pin_used(pin, d);
}

fl_status fl_tensor_store(fl_tensor *t, fl_tensor *host) {
  FLI_NEED(t, "bytes");
  return copy_whole(t, host, false);
}

fl_status fl_tensor_fetch(fl_tensor *t, fl_tensor *host) {
  FLI_NEED(t, "bytes");
  return copy_whole(t, host, true);
}

fl_status fl_tensor_passed(fl_tensor *t) {
  FLI_NEED(t, "bytes");
  FLI_TRY(check_whole(t, false));
  FLI_TRY(fli_settle(t));
  if (t->rt->watch)
    FLI_TRY(fli_streams_touch(t, true, "an eviction", t->rt->copy_site));
  fli_block_passed(t->rt, t->storage->block);
  return FL_OK;
}

fl_status fl_tensor_evict(fl_tensor *t) {
  FLI_NEED(t, "bytes");
  FLI_TRY(fl_tensor_passed(t));
  fl_storage *s = t->storage;
  fli_storage_empty(t->rt, s);
  s->away = true;
  return FL_OK;
}

fl_status fl_tensor_refill(fl_tensor *t, fl_site site) {
  FLI_NEED(t, "bytes");
  FLI_TRY(check_whole(t, true));
  FLI_TRY(fli_storage_fill(t->rt, t->storage, site));
  t->storage->away = false;
  return FL_OK;
}
