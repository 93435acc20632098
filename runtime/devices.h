/* Devices, their memory, and their streams. A part of flare.h. */
#ifndef FL_DEVICES_H
#define FL_DEVICES_H

#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- devices --- */

/* Adds a backend. The runtime borrows the table, which must outlive it, and
 * does not close it. EARG: the table is incomplete, of another version, or its
 * name is taken; ESIZE: there are eight. */
FL_API fl_status fl_backend_register(fl_runtime *rt, fl_backend *b);
/* Loads a shared object that has a function
 *   fl_backend *flare_backend_open(fl_backend *cpu);
 * and registers what it returns (NULL: it failed, after fli_fail). The object
 * stays loaded; the backend is closed with the runtime. EFILE, EARG. */
FL_API fl_status fl_backend_load(fl_runtime *rt, const char *path);
/* The device of a name: "cpu", "cuda:1", or "cuda", which is the first one, in
 * a job that of the rank's number on its host. EARG: there is none; EDEVICE:
 * the backend found no device, the message says why. */
FL_API fl_status fl_device_find(fl_runtime *rt, const char *name, fl_device *d);
/* "cpu", "cuda:0"; "?" if there is no such device. One of four buffers of the
 * thread, used in turn. */
FL_API const char *fl_device_name(fl_runtime *rt, fl_device d);
/* Writes the first `room` devices into `list` (NULL: none) and returns how many
 * there are. */
FL_API int fl_device_list(fl_runtime *rt, fl_device *list, int room);
/* What a backend reports about itself; `what` and `argument`, which may be
 * NULL, are its own ("doctor"). The caller frees *text with free(). EARG: there
 * is no such backend, or it has no such report. */
FL_API fl_status fl_backend_query(fl_runtime *rt, const char *backend,
                                  const char *what, const char *argument,
                                  char **text);
/* Sets a control of a backend, by the backend's own name for it. EARG: there is
 * no such backend or control, or the value is out of range. */
FL_API fl_status fl_backend_control(fl_runtime *rt, const char *backend,
                                    const char *what, double value);
/* Waits for all work of a device (d < 0: of all devices) and returns the first
 * failure, with the line of the script that launched it. */
FL_API fl_status fl_device_sync(fl_runtime *rt, fl_device d);
/* The backend of a device, borrowed; NULL if there is none. */
FL_API fl_backend *fl_device_backend(fl_runtime *rt, fl_device d);

/* --- memory --- */

typedef struct fl_memory_stats {
  size_t live, peak_live;         /* bytes in tensors */
  size_t reserved, peak_reserved; /* bytes taken from the backend */
  size_t limit;                   /* 0: none */
  size_t blocks;                  /* live blocks */
  size_t largest_free;            /* bytes */
  uint64_t allocations, segments, flushes;
  uint64_t moved; /* bytes of free memory that got other addresses */
} fl_memory_stats;
/* The figures of a device's allocator; all 0 if there is no such device. */
FL_API void fl_memory_get(fl_runtime *rt, fl_device d, fl_memory_stats *s);
/* The peaks start again from what is live and reserved now. */
FL_API void fl_memory_reset_peak(fl_runtime *rt, fl_device d);
/* What the device's driver says: bytes that are free, and all. EUNSUPPORTED: it
 * says nothing. */
FL_API fl_status fl_memory_driver(fl_runtime *rt, fl_device d, size_t *free,
                                  size_t *total);
/* Limits the bytes reserved on a device; 0: no limit. On the CPU the limit is
 * that of the runtime's budget. Memory in use stays where it is. */
FL_API void fl_memory_limit(fl_runtime *rt, fl_device d, size_t bytes);
/* Returns cached memory that no tensor uses to the device. */
FL_API void fl_memory_flush(fl_runtime *rt, fl_device d);
/* The budget of a runtime; every runtime has one. Borrowed: it is valid as long
 * as the runtime is open, unless the caller retains it. */
FL_API fl_budget *fl_runtime_budget(fl_runtime *rt);
/* One reference more, which is returned, and one less. On any thread. */
FL_API fl_budget *fl_budget_retain(fl_budget *b);
FL_API void fl_budget_release(fl_budget *b);
/* Counts bytes of the host's own memory against the limit, until as many are
 * given back. false: the limit does not allow it, nothing was counted. On any
 * thread. */
FL_API bool fl_budget_take(fl_budget *b, size_t bytes);
FL_API void fl_budget_give(fl_budget *b, size_t bytes);
/* For tests: after `skip` more allocations (memory and headers alike) the next
 * `count` fail; count < 0: all. Returns how many were made since the last call.
 */
FL_API int64_t fl_memory_fail(fl_runtime *rt, int64_t skip, int64_t count);
/* The call sites that hold most live memory, at most `most`, a line each:
 * "12.0 MB train.lua:41". */
FL_API const char *fl_memory_holders(fl_runtime *rt, fl_device d, int most);
/* Calls `event` before every allocation of tensor memory (bytes >= 0) and after
 * every free (bytes < 0), with the device's live bytes at that moment. An event
 * may free: one that collects all garbage before each allocation makes the
 * greatest `live + bytes` what exact reference counting would have needed.
 * event NULL ends it. */
FL_API void fl_memory_trace(fl_runtime *rt,
                            void (*event)(void *context, fl_device d,
                                          int64_t bytes, size_t live),
                            void *context);

/* --- streams: queues of work of one device, numbers; 0 is the first --- */

/* A stream that no other caller has, with one holder. ESIZE: there are 24
 * streams on the device, or 63 in all. */
FL_API fl_status fl_stream_new(fl_runtime *rt, fl_device d, int *stream);
/* One holder more, one less. Without holders the stream may be handed out
 * again; the work in it goes on. */
FL_API void fl_stream_retain(fl_runtime *rt, fl_device d, int stream);
FL_API void fl_stream_release(fl_runtime *rt, fl_device d, int stream);
/* Calls on tensors of the device go to this stream from now on. */
FL_API fl_status fl_stream_use(fl_runtime *rt, fl_device d, int stream);
/* The stream in use; 0 if there is no such device. */
FL_API int fl_stream_current(fl_runtime *rt, fl_device d);
/* The stream as other libraries know it: on "cuda" a cudaStream_t.
 * EUNSUPPORTED: the backend has no streams that others could use. */
FL_API fl_status fl_stream_handle(fl_runtime *rt, fl_device d, int stream,
                                  intptr_t *handle);
/* Another library's stream as one of the device's, by its handle, which must
 * live as long as the runtime. The caller releases it as any other. ESIZE,
 * EUNSUPPORTED. */
FL_API fl_status fl_stream_adopt(fl_runtime *rt, fl_device d, intptr_t handle,
                                 int *stream);
/* The work that is in the stream now writes these n tensors of the device: a
 * stream that uses one of them later waits for it on the device. EDEVICE: a
 * tensor of another device. */
FL_API fl_status fl_stream_promise(fl_runtime *rt, fl_device d, int stream,
                                   int n, fl_tensor *const *of);
/* Waits for the stream's work and returns its first failure. */
FL_API fl_status fl_stream_sync(fl_runtime *rt, fl_device d, int stream);
/* Turns the race checker on or off and returns what it was: a call on a tensor
 * that two streams use without order fails with FL_EDEVICE and names both
 * lines. */
FL_API bool fl_stream_races(fl_runtime *rt, bool on);

/* --- events: marks in a stream --- */

/* An event lies behind all that the stream had when it was recorded. One that
 * was never recorded has passed. After fl_runtime_close calls fail with
 * FL_ECLOSED. */
typedef struct fl_mark fl_mark;
/* A new event of the device; fl_mark_free ends it, also after the runtime is
 * closed. */
FL_API fl_status fl_mark_new(fl_runtime *rt, fl_device d, fl_mark **m);
FL_API void fl_mark_free(fl_mark *m);
/* Its device; -1 for NULL. */
FL_API fl_device fl_mark_device(const fl_mark *m);
/* Records the event behind what the stream of its device has now. */
FL_API fl_status fl_mark_record(fl_mark *m, int stream);
/* The stream's later work waits for the event, on the device; between devices
 * of two backends the host waits instead. */
FL_API fl_status fl_mark_wait(fl_mark *m, fl_device d, int stream);
/* The host waits for the event and gets the first failure before it;
 * EINTERRUPT. */
FL_API fl_status fl_mark_sync(fl_mark *m);
/* Whether it has passed; true for NULL and after the runtime is closed. */
FL_API bool fl_mark_passed(fl_mark *m);
/* The microseconds between two events of one device that have both passed. EARG
 * if they have not, EDEVICE, EUNSUPPORTED. */
FL_API fl_status fl_mark_elapsed(fl_mark *from, fl_mark *to, double *us);

#ifdef __cplusplus
}
#endif
#endif
