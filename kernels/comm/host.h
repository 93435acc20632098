/* The host engine's own: host.c waits, orders and opens groups; shared.c does
 * the collectives over the memory that is laid out here. */
#ifndef FL_HOST_H
#define FL_HOST_H

#include "comm.h"

#include <pthread.h>
#include <stdatomic.h>

#define FL_HOST_RANKS 64
#define PIECE         ((size_t)256 << 10) /* bytes; a multiple of all dtypes */

typedef struct word { /* one writer, many who wait */
  _Alignas(FL_ALIGN) _Atomic unsigned value;
  _Atomic unsigned sleepers;
} word;

typedef struct deed { /* a call, to be compared with the others' */
  char engine[8];
  uint64_t seq;
  int kind, reduce, way, peer, dtype;
  size_t count;
  fl_meta x;
  char site[96];
} deed;

typedef struct member {
  word step;
  deed deeds[2]; /* by the call's number: two cannot be apart by more */
} member;

typedef struct pair { /* from one member to another */
  word put, taken;    /* letters */
  deed deed;
} pair;

typedef struct area {
  word joined, told;
  _Atomic int first; /* 1 + the rank that says who the members are */
  int size, ranks[FL_HOST_RANKS];
} area;

typedef struct task { /* an asynchronous call in the queue of a lane */
  struct task *next;
  fl_comm_call call;
  fl_comm_note note; /* call.note points here */
} task;

typedef struct lane {
  pthread_mutex_t lock;
  pthread_cond_t moved;
  uint64_t done, worked; /* the last call, and the last of the worker's */
  fl_status status;      /* the first failure; it stays */
  char why[1024];
  task *first, *last;
  pthread_t thread;
  bool started, quit;
  bool active; /* a call is under way, and looks at the time itself */
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
  size_t at_member, at_pair, at_stage, at_part, at_letter;
  size_t piece, part, letter; /* bytes of a half */
  unsigned step;              /* of this rank */
  bool fresh;                 /* nothing of the call was compared yet */
  int place;                  /* of this call's deed */
  int half;                   /* of the stage, of the last piece */
  int spins;
  atomic_bool stop;
  lane lanes[FL_COMM_LANES];
} host_link;

void fl_host_set(word *w, unsigned value);
/* Until the word has come to `value`, or the board says otherwise. */
fl_status fl_host_await(host_link *l, const fl_comm_note *n, word *w,
                        unsigned value);
fl_status fl_host_together(host_link *l, const fl_comm_call *c);
/* Compares a call, this engine's call `seq`, that another engine is to do. */
fl_status fl_host_agree(host_link *l, const fl_comm_call *c, uint64_t seq);
fl_status fl_host_pass(host_link *l, const fl_comm_call *c);

#endif
