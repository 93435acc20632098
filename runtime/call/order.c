/* Orders a launch on a device with several streams: its stream waits for the
 * blocks that it uses, and the race checker sees its operands. */
#include "../memory/capture.h"
#include "../memory/stream.h"
#include "../ops/ops.h"

fl_status fli_streams_launch(fl_runtime *rt, fl_device d, const fl_call *c,
                             int n_in, const fl_operand *in, int n_out,
                             fl_tensor *const *out) {
  bool async = fli_backend(rt, d)->flags & FL_BACKEND_ASYNC;
  int now = async ? fl_stream_current(rt, d) : -1;
  for (int k = 0; k < n_in + n_out && async; k++) {
    const fl_tensor *t = k < n_in ? in[k].tensor : out[k - n_in];
    if (t && t->storage && t->storage->block)
      FLI_TRY(fli_stream_uses(rt, d, t->storage->block));
  }
  FLI_TRY(fli_stream_note(rt, d));
  const char *op = c->op->info.name;
  bool reads = false;
  for (int k = 0; k < n_in; k++)
    reads = reads || in[k].tensor;
  /* constants of another device may be made: only work on them is refused */
  if (rt->watch & FLI_WATCH_CAPTURE && (reads || fli_capturing(rt, d))) {
    FLI_TRY(fli_capture_launch(rt, d, op));
    for (int k = 0; k < n_in; k++)
      if (in[k].tensor)
        FLI_TRY(fli_capture_uses(in[k].tensor->storage,
                                 fli_op_writes(c->op, c->attrs, n_in, k)));
    for (int k = 0; k < n_out; k++)
      FLI_TRY(fli_capture_uses(out[k]->storage, true));
  }
  if (!(rt->watch & FLI_WATCH_RACES))
    return FL_OK;
  for (int k = 0; k < n_in; k++)
    if (in[k].tensor)
      FLI_TRY(fli_race_check(rt, d, now, in[k].tensor,
                             fli_op_writes(c->op, c->attrs, n_in, k), op,
                             c->site));
  for (int k = 0; k < n_out; k++)
    FLI_TRY(fli_race_check(rt, d, now, out[k], true, op, c->site));
  return FL_OK;
}
