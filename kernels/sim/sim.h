/* A device that is not there, for tests of everything asynchronous where no GPU
 * is: several devices with memory of their own, streams with a thread each,
 * events, failures that come late. It runs the CPU's kernels, but for those
 * that FLARE_SIM_WITHOUT lists. This header is for sim.c (devices, memory,
 * control) and stream.c (what happens in order). */
#ifndef FL_SIM_H
#define FL_SIM_H

#include "../../runtime/backend.h"

#include <pthread.h>
#include <stdatomic.h>

/* Wishes of tests, also the `control` of the backend's table:
 *   memory_limit  bytes of each device, 0: none (FLARE_SIM_MEMORY)
 *   delay_us      before each launch and copy (FLARE_SIM_DELAY_US)
 *   fault         the device fails for good after so many launches more;
 *                 negative: never
 *   revive        forgets such faults
 *   compiling     fused kernels are there when `prepare` has been asked so
 *                 often (FLARE_SIM_COMPILING); negative: then it fails */
FL_API fl_status fl_sim_control(fl_backend *b, const char *what, double value);

#define FL_SIM_DEVICES 8

typedef struct fl_sim fl_sim;
typedef struct fl_sim_memory fl_sim_memory;
typedef struct fl_sim_task fl_sim_task;

struct fl_stream {
  fl_sim *sim;
  int device;
  fl_stream *next; /* of all streams */
  pthread_t thread;
  pthread_cond_t work;
  bool started, stop;
  fl_sim_task *head, *tail;
  uint64_t queued, done;  /* tasks */
  fl_graph_exec *capture; /* gets launches instead of the queue, or NULL */
  fl_graph_exec *update;  /* launches change it, or NULL */
  /* the first failure that is not reported yet; EFAULT stays */
  atomic_bool failed;
  fl_status status;
  uint64_t seq;
  char message[1024];
};

/* `lock` protects everything that changes below and in streams and events, but
 * is not held while a task runs. */
struct fl_sim {
  fl_backend table;
  fl_backend *cpu;
  pthread_mutex_t lock;
  pthread_cond_t progress; /* a task has run */
  int devices;
  fl_stream *streams;
  fl_stream *first[FL_SIM_DEVICES];
  fl_sim_memory *memory[FL_SIM_DEVICES];
  size_t used[FL_SIM_DEVICES];
  size_t memory_limit;
  int64_t delay_us;
  int64_t fault; /* launches to go; negative: none is planned */
  int64_t compiling;
};

/* Where the memory behind a device's address really is; NULL if the address is
 * none of that device. */
void *fl_sim_real(fl_sim *s, int device, const void *p);

fl_status fl_sim_launch(fl_backend *b, fl_kernel k, const fl_launch *l);
fl_status fl_sim_copy(fl_backend *b, int device, fl_stream *s,
                      fl_copy_kind kind, void *to, int from_device,
                      const void *from, size_t bytes);
fl_status fl_sim_stream_new(fl_backend *b, int device, fl_stream **s);
void fl_sim_stream_free(fl_backend *b, fl_stream *s);
fl_status fl_sim_stream_handle(fl_backend *b, int device, fl_stream *s,
                               intptr_t *handle);
fl_status fl_sim_stream_sync(fl_backend *b, int device, fl_stream *s,
                             uint64_t *failed);
fl_status fl_sim_stream_peek(fl_backend *b, int device, fl_stream *s,
                             uint64_t *failed);
fl_status fl_sim_event_new(fl_backend *b, int device, fl_event **e);
void fl_sim_event_free(fl_backend *b, fl_event *e);
fl_status fl_sim_event_record(fl_backend *b, fl_event *e, fl_stream *s);
fl_status fl_sim_event_wait(fl_backend *b, fl_event *e, fl_stream *s);
bool fl_sim_event_done(fl_backend *b, fl_event *e);
double fl_sim_event_elapsed(fl_backend *b, fl_event *from, fl_event *to);
fl_status fl_sim_capture_begin(fl_backend *b, int device, fl_stream *s);
fl_status fl_sim_capture_end(fl_backend *b, int device, fl_stream *s,
                             fl_graph_exec **exec);
fl_status fl_sim_exec_launch(fl_backend *b, fl_graph_exec *e, uint64_t seq);
void fl_sim_exec_free(fl_backend *b, fl_graph_exec *e);
fl_status fl_sim_exec_update(fl_backend *b, fl_graph_exec *e, bool on);
bool fl_sim_exec_fixed(fl_backend *b, const fl_graph_exec *e, uint64_t seq);
/* With the lock: returns when all that is queued anywhere has run. */
void fl_sim_wait_all(fl_sim *s);
void fl_sim_streams_close(fl_sim *s);

#endif
