/* Processes that work together (ranks, counted from 0): joining a job, groups
 * of its ranks, and the engines that carry their tensors. A part of flare.h;
 * the collectives are operators. */
#ifndef FL_RANKS_H
#define FL_RANKS_H

#include "comm.h"
#include "flare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Joins a job: group 0 becomes all its ranks (before, it is this process
 * alone). EARG: this runtime has joined one already. */
FL_API fl_status fl_comm_open(fl_runtime *rt, const fl_comm_options *o);
FL_API void fl_comm_close(fl_runtime *rt);
/* After a failure that all ranks have survived: forgets every call and link, so
 * that the numbers of calls agree again, and the groups beyond `groups`. All
 * ranks call it between two collectives; one of them, after the others, with
 * `lead`, which clears the verdict. Groups must be attached again. */
FL_API fl_status fl_comm_reset(fl_runtime *rt, int groups, bool lead);
FL_API int fl_comm_groups(const fl_runtime *rt); /* how many there are */
/* A group of some ranks, a number. Every rank of the job makes all groups in
 * the same order, its own or not. */
FL_API fl_status fl_comm_group(fl_runtime *rt, int n, const int *ranks,
                               int *group);
/* Rank (-1: not in it), size, and the members' numbers in the job; these live
 * as long as the group. */
FL_API fl_status fl_comm_members(fl_runtime *rt, int group, int *rank,
                                 int *size, const int **ranks);
/* Makes an engine ("host", "nccl", "mpi") carry a group's tensors of the
 * devices it is for; see comm.h. All members do it at the same time. */
FL_API fl_status fl_comm_ticket(fl_runtime *rt, const char *engine,
                                unsigned char *ticket);
FL_API fl_status fl_comm_attach(fl_runtime *rt, int group, const char *engine,
                                fl_device d, const unsigned char *ticket);
/* An engine in a shared object with a function
 *   fl_status flare_comm_open(const fl_comm_options *o, fl_comm **c); */
FL_API fl_status fl_comm_load(fl_runtime *rt, const char *path);
/* The engine for tensors of d, NULL: none yet. */
FL_API const char *fl_comm_engine(fl_runtime *rt, int group, fl_device d);
/* The last call of a group, to wait for if it is asynchronous. */
FL_API fl_status fl_comm_last(fl_runtime *rt, int group, fl_device d, int *lane,
                              uint64_t *seq);
FL_API fl_status fl_comm_wait(fl_runtime *rt, int group, fl_device d, int lane,
                              uint64_t seq);
FL_API bool fl_comm_done(fl_runtime *rt, int group, fl_device d, int lane,
                         uint64_t seq);
/* Why the job has failed and where everybody was, "" if it has not; a text that
 * lives until the next call. */
FL_API const char *fl_comm_verdict(fl_runtime *rt);
/* Tells all ranks that this one has failed, and why. */
FL_API void fl_comm_fail(fl_runtime *rt, const char *why);
/* For who starts ranks: the board of a job, without being one of them. */
FL_API fl_status fl_comm_watch(const char *key, int size, fl_board **b);

#ifdef __cplusplus
}
#endif
#endif
