/* A group that is there: NCCL's other functions do nothing. FAKE_HANG_IN is a
 * function that does not come back until its communicator is aborted ("deaf
 * NAME": not even then), after a Ctrl-C with FAKE_INTERRUPT; FAKE_FAIL_IN is
 * one that fails. It prints what happens then on stderr. A communicator is
 * freed at the end of the group of calls that aborts it, which must not be
 * while another call uses it. */
#include "../../../kernels/cuda/vendor/nccl.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FLC_DL(ret, name, params) ret name params;
#include "../../../kernels/cuda/vendor/dl_nccl.def"

static struct ncclComm { atomic_bool aborted; } groups[8];
static atomic_int inside;
static _Thread_local int depth;
static _Thread_local bool ending;

/* The blocking call `name`. */
static ncclResult_t call(const char *name, ncclComm_t comm) {
  const char *hang = getenv("FAKE_HANG_IN"), *fail = getenv("FAKE_FAIL_IN");
  bool deaf = hang && strncmp(hang, "deaf ", 5) == 0;
  if (fail && strcmp(fail, name) == 0)
    return 6;
  if (!hang || strcmp(hang + (deaf ? 5 : 0), name) != 0)
    return ncclSuccess;
  inside++;
  fprintf(stderr, "[in %s]\n", name);
  if (getenv("FAKE_INTERRUPT"))
    kill(getpid(), SIGINT);
  while (deaf || !comm->aborted)
    usleep(1000);
  usleep(20000); /* on its way out it looks at the communicator */
  fprintf(stderr, "[out]\n");
  inside--;
  return 3;
}

const char *ncclGetErrorString(ncclResult_t e) {
  return e == 6 ? "remote process exited" : "internal error";
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id,
                                    int rank, ncclConfig_t *config) {
  static int group;
  (void)size, (void)id, (void)rank;
  *comm = &groups[group++];
  return config->blocking == 1 ? call("ncclCommInitRankConfig", *comm) : 5;
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count,
                           ncclDataType_t type, int root, ncclComm_t comm,
                           CUstream stream) {
  (void)in, (void)out, (void)count, (void)type, (void)root;
  (void)stream;
  return call("ncclBroadcast", comm);
}

/* --- aborting --- */

static void release(void) {
  if (ending)
    fprintf(stderr, inside ? "[freed in mid-call]\n" : "[freed]\n");
  ending = false;
}

ncclResult_t ncclGroupStart(void) {
  depth++;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
  if (--depth == 0)
    release();
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  fprintf(stderr, comm->aborted ? "[aborted twice]\n" : "[aborted]\n");
  comm->aborted = true;
  ending = true;
  if (depth == 0)
    release();
  return ncclSuccess;
}
