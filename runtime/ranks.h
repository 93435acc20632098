/* Jobs of several processes (ranks, counted from 0): joining a job, process
 * groups, and the engines that carry their tensors. A part of flare.h; the
 * collectives are operators. */
#ifndef FL_RANKS_H
#define FL_RANKS_H

#include "comm.h"
#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Joins a job: group 0 then has all its ranks; before, it has this process
 * alone. `o` is copied. EARG: this runtime has joined a job
 * already, or rank, size or time-outs are out of range. */
FL_API fl_status fl_comm_open(fl_runtime *rt, const fl_comm_options *o);
/* Leaves the job: groups and engines end, after the work of the devices. */
FL_API void fl_comm_close(fl_runtime *rt);
/* Recovers from a failure that all ranks have survived: clears all calls and
 * links, so that the sequence numbers of the ranks agree again, and removes the
 * groups from number `groups` on. All ranks call it between two collectives,
 * the last one with `lead`, which clears the verdict. Then groups are attached
 * again. EARG: no job, or there is no group number groups - 1. */
FL_API fl_status fl_comm_reset(fl_runtime *rt, int groups, bool lead);
/* How many groups there are; 0 before the first use. */
FL_API int fl_comm_groups(const fl_runtime *rt);
/* Makes a group of n ranks of the job; *group is its number. Every rank of the
 * job makes all groups in the same order, member or not. EARG: a rank is twice
 * in it or does not exist, or there are too many groups. */
FL_API fl_status fl_comm_group(fl_runtime *rt, int n, const int *ranks,
                               int *group);
/* This process's rank in the group (-1: not a member), its size, and the
 * members' numbers in the job, valid as long as the group. */
FL_API fl_status fl_comm_members(fl_runtime *rt, int group, int *rank,
                                 int *size, const int **ranks);
/* Writes the FL_COMM_TICKET bytes by which an engine ("host", "nccl", "mpi")
 * identifies a group; the group's rank 0 asks, and the program takes them to
 * the other members. EUNSUPPORTED: there is no such engine; EARG: no job. */
FL_API fl_status fl_comm_ticket(fl_runtime *rt, const char *engine,
                                unsigned char *ticket);
/* Makes an engine carry a group's tensors on the devices that it supports, d
 * among them; see comm.h. All members call it, in the same order, with rank 0's
 * ticket. Returns when all have. EARG: the engine does not carry tensors of d;
 * ECOMM: another rank failed. */
FL_API fl_status fl_comm_attach(fl_runtime *rt, int group, const char *engine,
                                fl_device d, const unsigned char *ticket);
/* Loads an engine from a shared object, which stays loaded, with a function
 *   fl_status flare_comm_open(const fl_comm_options *o, fl_comm **c);
 * EFILE; EARG: no job, or too many engines. */
FL_API fl_status fl_comm_load(fl_runtime *rt, const char *path);
/* The name of the engine for tensors on d, NULL: none is attached. */
FL_API const char *fl_comm_engine(fl_runtime *rt, int group, fl_device d);
/* Identifies the last call of a group, for fl_comm_wait, which waits for it and
 * returns its failure, and fl_comm_done, whether it is complete. Only calls
 * with the attribute `async` need them; a call that is not known is complete.
 */
FL_API fl_status fl_comm_last(fl_runtime *rt, int group, fl_device d, int *lane,
                              uint64_t *seq);
FL_API fl_status fl_comm_wait(fl_runtime *rt, int group, fl_device d, int lane,
                              uint64_t seq);
FL_API bool fl_comm_done(fl_runtime *rt, int group, fl_device d, int lane,
                         uint64_t seq);
/* Whether another rank of this host is in a call, or has made one, that this
 * rank has still to make: a rank that pauses then would keep the other waiting.
 * False without a job. */
FL_API bool fl_comm_behind(const fl_runtime *rt);
/* Why the job has failed, with the state of each rank; "" if it has not. The
 * text is valid until the next call. */
FL_API const char *fl_comm_verdict(fl_runtime *rt);
/* Reports to all ranks that this one has failed, and why; nothing without a
 * job.
 */
FL_API void fl_comm_fail(fl_runtime *rt, const char *why);
/* For launchers: opens the board of a job of so many ranks (1 to FL_COMM_RANKS)
 * without being one of them. `key`: the job's, as in fl_comm_options. The
 * caller calls the board's close. On any thread. */
FL_API fl_status fl_comm_watch(const char *key, int size, fl_board **b);

#ifdef __cplusplus
}
#endif
#endif
