/* Streams, events, races and pinned memory (stream.c, race.c, pin.c). */
#ifndef FL_STREAM_H
#define FL_STREAM_H

#include "memory.h"

enum {
  FLI_WATCH_STREAMS = 1, /* some device has several */
  FLI_WATCH_RACES = 2,   /* looked for: flare.debug_streams(true) */
  FLI_WATCH_CAPTURE = 4  /* launches become part of a graph */
};

/* A launch becomes part of the graph that is captured: after its note. */
fl_status fli_capture_launch(fl_runtime *rt, fl_device d, const char *op);
/* It uses the storage. */
fl_status fli_capture_uses(fl_storage *s, bool writes);
/* Before a launch while rt->watch is set. */
fl_status fli_streams_launch(fl_runtime *rt, fl_device d, const fl_call *c,
                             int n_in, const fl_operand *in, int n_out,
                             fl_tensor *const *out);
/* Adds the launch that is about to be sent to the ring of the stream in use. */
fl_status fli_stream_note(fl_runtime *rt, fl_device d);
/* The stream in use waits for what was promised of the block that it uses. */
fl_status fli_stream_uses(fl_runtime *rt, fl_device d, fli_block *b);
void fli_promise_drop(fl_mark *m); /* may be NULL */
/* Before something else that the stream in use does with t. */
fl_status fli_streams_touch(fl_tensor *t, bool writes, const char *what,
                            fl_site site);
/* The stream in use waits for others, a bit each. */
fl_status fli_stream_follow(fl_runtime *rt, fl_device d, uint32_t others);
/* The same for `stream`. */
fl_status fli_stream_order(fl_runtime *rt, fl_device d, int stream,
                           uint32_t others);
/* The host waits for them; failures are reported later. */
void fli_stream_settle(fl_runtime *rt, fl_device d, uint32_t which);
/* The host waits for the stream in use. */
fl_status fli_stream_finish(fl_runtime *rt, fl_device d);
/* An event behind all that the stream has to do; NULL: it has been waited for.
 */
fl_event *fli_stream_event(fl_runtime *rt, fl_device d, int stream);
void fli_marks_close(fl_runtime *rt);
void fli_streams_close(fl_runtime *rt);
static inline uint8_t fli_stream_now(fl_runtime *rt, fl_device d) {
  return rt->watch ? (uint8_t)fl_stream_current(rt, d) : 0;
}

/* Who has seen what of whom: of each clock (the host's is 0) how many accesses
 * are known to have passed. */
#define FLI_CLOCKS 64
typedef struct fli_clock {
  uint64_t seen[FLI_CLOCKS];
} fli_clock;
fli_clock *fli_stream_clock(fl_runtime *rt, fl_device d, int stream, int *id);
void fli_clock_join(fli_clock *c, const fli_clock *other);
void fli_host_seen(fl_runtime *rt, const fli_clock *c);
/* Before stream `stream` of d (< 0: the host) reads or writes t. */
fl_status fli_race_check(fl_runtime *rt, fl_device d, int stream,
                         const fl_tensor *t, bool writes, const char *op,
                         fl_site site);
void fli_trail_drop(fl_runtime *rt, const void *memory);
void fli_races_close(fl_runtime *rt);

/* Pinned memory of at least so many bytes; NULL: no backend has such memory. */
fl_status fli_pin_new(fl_runtime *rt, size_t bytes, struct fli_pin **out);
void *fli_pin_memory(const struct fli_pin *p);
/* From any thread; `data` is not used. */
void fli_pin_release(void *pin, void *data);
/* The pinned memory behind a storage, NULL if it is of another kind. */
struct fli_pin *fli_pin_of(const fl_storage *s);
/* A copy of pinned memory begins on the stream in use; false: it is not for
 * that device. */
bool fli_pin_fits(const struct fli_pin *p, fl_device d);
fl_status fli_pin_used(struct fli_pin *p, fl_device d);
void fli_pins_close(fl_runtime *rt);

#endif
