/* Internals of the host engine: host.c has waiting, queues and rendezvous of
 * groups, shared.c the collectives over the shared memory laid out here. */
#ifndef FL_HOST_H
#define FL_HOST_H

#include "comm.h"

#include <pthread.h>
#include <stdatomic.h>

#define FL_HOST_RANKS 64
#define PIECE         ((size_t)256 << 10) /* bytes; a multiple of all dtypes */

typedef struct word { /* a futex word: one writer, many waiters */
  _Alignas(FL_ALIGN) _Atomic unsigned value;
  _Atomic unsigned sleepers;
} word;

typedef struct call_record { /* a call, to be compared between ranks */
  char engine[8];
  uint64_t seq;
  int kind, reduce, way, peer, dtype;
  size_t count;
  fl_meta x;
  char site[96];
} call_record;

typedef struct member {
  word step;
  call_record records[2]; /* by parity of the call's number: ranks are at most
                     one call apart */
} member;

typedef struct pair { /* ring buffer of two slots, from a member to another */
  word put, taken;    /* slots written, slots read */
  call_record record;
} pair;

typedef struct area { /* rendezvous of the group */
  word joined, listed;
  _Atomic int first; /* 1 + the rank that wrote the list of members */
  int size, ranks[FL_HOST_RANKS];
} area;

typedef struct task { /* an asynchronous call in the queue of a lane */
  struct task *next;
  fl_comm_call call;
  fl_comm_note note; /* call.note points here */
} task;

typedef struct lane {
  pthread_mutex_t lock;
  pthread_cond_t moved;  /* signalled when anything below changes */
  uint64_t done, worked; /* the last call, and the worker's last */
  fl_status status;      /* the first failure; it stays */
  char why[1024];
  task *first, *last;
  pthread_t thread;
  bool started, quit;
  bool active; /* a call is running, which checks its own time-out */
} lane;

typedef struct host {
  fl_comm table;
  fl_comm_options o;
  pthread_t owner;
} host;

typedef struct host_link {
  fl_comm_link base;
  host *host;
  char *memory;
  size_t bytes;
  size_t at_member, at_pair, at_stage, at_part, at_slot;
  size_t piece, part, slot; /* bytes of one of two halves */
  unsigned step;            /* of this rank */
  bool fresh;               /* the records of this call are not compared yet */
  int place;                /* of this call's record */
  int half;                 /* of the staging buffer, for the last piece */
  int spins;
  atomic_bool stop;
  lane lanes[FL_COMM_LANES];
} host_link;

void fl_host_set(word *w, unsigned value);
/* Waits until the word reaches `value`, or the board reports a failure. */
fl_status fl_host_await(host_link *l, const fl_comm_note *n, word *w,
                        unsigned value);
fl_status fl_host_together(host_link *l, const fl_comm_call *c);
/* Compares the records of a call that another engine will execute; `seq` is its
 * number among this engine's calls. */
fl_status fl_host_agree(host_link *l, const fl_comm_call *c, uint64_t seq);
fl_status fl_host_pass(host_link *l, const fl_comm_call *c);

#endif
