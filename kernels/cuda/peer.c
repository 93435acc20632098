/* Collectives over memory that the GPUs of one host have mapped of each other:
 * areas made, exchanged and mapped, and the choice of an algorithm. What the
 * kernels do with them is in peer.cu. */
#include "vendor/nccl.h"
#include "driver/backend.h"
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes up to which they are faster than NCCL; MOVED: of all parts. one_shot is
 * it up to so many bytes that a rank reads more than in two_shot, which meets
 * twice: 256 KiB with four ranks, 73 with eight; two read the same. */
#define OF_TWO    ((size_t)16 << 20)
#define TWO_SHOT  ((size_t)4 << 20)
#define MORE_READ ((size_t)384 << 10)
#define MOVED     ((size_t)4 << 20)

struct flc_peers {
  flc_device *device;
  int rank, size;
  bool only;     /* there is no other engine for what they are slower at */
  int64_t limit; /* ns that a kernel waits at most */
  CUdeviceptr area[PEER_RANKS];
  int *host; /* pinned: stop, late, begun */
  CUdeviceptr host_at;
  uint32_t phase;
  int half;
};

/* What the others need to know. */
typedef struct card {
  char host[48]; /* which one it is; "" without an area */
  CUipcMemHandle handle;
} card;

static void name_host(char *text, size_t room) {
  FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
  text[0] = 0;
  if (f && !fgets(text, (int)room, f))
    text[0] = 0;
  if (f)
    fclose(f);
}

static bool make_area(flc_peers *p, card *mine) {
  CUdeviceptr *area = &p->area[p->rank];
  if (flc_cu->MemAlloc(area, PEER_AREA))
    return false;
  return flc_cu->MemsetD8Async(*area, 0, PEER_STAGE, NULL) == 0 &&
         flc_cu->StreamSynchronize(NULL) == 0 &&
         flc_cu->IpcGetMemHandle(&mine->handle, *area) == 0 &&
         flc_cu->MemHostAlloc((void **)&p->host, 3 * sizeof(int),
                              CU_MEMHOSTALLOC_PORTABLE |
                                  CU_MEMHOSTALLOC_DEVICEMAP) == 0 &&
         flc_cu->MemHostGetDevicePointer(&p->host_at, p->host, 0) == 0;
}

static bool asked_for(const char *word) {
  const char *wish = getenv("FLARE_PEERS");
  return wish && strcmp(wish, word) == 0;
}

bool flc_peers_only(void) {
  return asked_for("only");
}

flc_peers *flc_peers_new(flc_device *d, int rank, int size, double limit,
                         unsigned char *to) {
  card mine = {.host = ""};
  memset(to, 0, FLC_CARD);
  if (size > PEER_RANKS || asked_for("0"))
    return NULL;
  flc_peers *p = calloc(1, sizeof *p);
  if (!p)
    return NULL;
  p->device = d;
  p->rank = rank;
  p->size = size;
  p->limit = (int64_t)(limit * 1e9);
  p->only = flc_peers_only();
  if (!make_area(p, &mine)) {
    flc_peers_free(p);
    return NULL;
  }
  memset(p->host, 0, 3 * sizeof(int));
  name_host(mine.host, sizeof mine.host);
  _Static_assert(sizeof mine <= FLC_CARD, "a card is too small");
  memcpy(to, &mine, sizeof mine);
  return p;
}

bool flc_peers_join(flc_peers *p, const unsigned char *cards) {
  card mine, theirs;
  memcpy(&mine, cards + (size_t)p->rank * FLC_CARD, sizeof mine);
  for (int k = 0; k < p->size; k++) {
    memcpy(&theirs, cards + (size_t)k * FLC_CARD, sizeof theirs);
    if (!theirs.host[0] || strcmp(theirs.host, mine.host) != 0)
      return false;
    if (k != p->rank &&
        flc_cu->IpcOpenMemHandle(&p->area[k], theirs.handle,
                                 CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS))
      return false;
  }
  return true;
}

void flc_peers_free(flc_peers *p) {
  if (!p)
    return;
  for (int k = 0; k < p->size; k++)
    if (p->area[k] && k != p->rank)
      flc_cu->IpcCloseMemHandle(p->area[k]);
  if (p->area[p->rank])
    flc_cu->MemFree(p->area[p->rank]);
  if (p->host)
    flc_cu->MemFreeHost(p->host);
  free(p);
}

/* Parts of the tensor that has most of them. */
static size_t parts_of(const flc_peers *p, fl_comm_kind kind) {
  return kind == FL_COMM_ALL_REDUCE || kind == FL_COMM_REDUCE ||
                 kind == FL_COMM_BROADCAST
             ? 1
             : (size_t)p->size;
}

fl_comm_way flc_peers_way(const flc_peers *p, const fl_comm_call *c) {
  fl_comm_way way = FL_COMM_ONE_SHOT;
  size_t bytes = c->count * fl_dtype_size(c->dtype), n, most = 0;
  if (c->way != FL_COMM_AUTO)
    return c->way;
  if (!p)
    return FL_COMM_NCCL;
  n = (size_t)p->size;
  switch (c->kind) {
  case FL_COMM_ALL_REDUCE:
    most = n == 2 ? OF_TWO : TWO_SHOT;
    /* of n - 1 operands, instead of an nth of each and then all other nths */
    if (bytes * (n - 1) * (n - 2) > MORE_READ * n)
      way = FL_COMM_TWO_SHOT;
    break;
  case FL_COMM_BROADCAST: /* all read from one */
    most = MOVED / (n - 1);
    break;
  case FL_COMM_ALL_GATHER:
  case FL_COMM_REDUCE_SCATTER:
  case FL_COMM_ALL_TO_ALL:
  case FL_COMM_GATHER:
  case FL_COMM_SCATTER:
    most = MOVED / n;
    break;
  case FL_COMM_REDUCE:
  case FL_COMM_BARRIER:
    break;
  default:
    return FL_COMM_NCCL;
  }
  return p->only || (most && bytes <= most) ? way : FL_COMM_NCCL;
}

/* --- calls --- */

static bool adds(fl_comm_kind kind) {
  return kind == FL_COMM_ALL_REDUCE || kind == FL_COMM_REDUCE ||
         kind == FL_COMM_REDUCE_SCATTER;
}

static flc_spec spec_of(fl_comm_kind kind, fl_dtype d, fl_comm_way way,
                        int size) {
  int dtype = d == FL_BOOL ? FL_U8 : (int)d, n = size <= 2   ? 2
                                                 : size <= 4 ? 4
                                                             : PEER_RANKS;
  if (!adds(kind))
    return FLC_SPEC("peer", "moved", FL_U8);
  if (way == FL_COMM_RING)
    return FLC_SPEC("peer", "ring", dtype);
  return way == FL_COMM_ONE_SHOT ? FLC_SPEC("peer", "one_shot", dtype, n)
                                 : FLC_SPEC("peer", "two_shot", dtype, n);
}

/* What this rank brings, and what it wants of whom. */
static void share_out(peer_args *a, const fl_comm_call *c) {
  bool root = c->peer == a->rank;
  a->parts = 1;
  a->to = a->size;
  switch (c->kind) {
  case FL_COMM_SCATTER:
    a->parts = root ? a->size : 0;
    a->part = a->rank;
    a->from = c->peer;
    a->to = c->peer + 1;
    break;
  case FL_COMM_BROADCAST:
    a->parts = root;
    a->from = c->peer;
    a->to = c->peer + 1;
    break;
  case FL_COMM_REDUCE:
  case FL_COMM_GATHER:
    a->to = root ? a->size : 0;
    break;
  case FL_COMM_ALL_TO_ALL:
  case FL_COMM_REDUCE_SCATTER:
    a->parts = a->size;
    a->part = a->rank;
    break;
  default:;
  }
}

fl_status flc_peers_run(flc_peers *p, const fl_comm_call *c, fl_comm_way way) {
  fl_launch l = {
      .op = fl_comm_op_name(c->kind), .device = c->device, .stream = c->stream};
  size_t unit = fl_dtype_size(c->dtype), parts = parts_of(p, c->kind);
  /* what is only moved is bytes */
  size_t size = adds(c->kind) ? unit : 1, count = c->count * unit / size;
  size_t most = (size_t)PEER_HALF / parts / 16 * 16 / size;
  flc_spec spec = spec_of(c->kind, c->dtype, way, p->size);
  int *host = (int *)(uintptr_t)p->host_at;
  peer_args a = {.step = (int64_t)count,
                 .limit = p->limit,
                 .rank = p->rank,
                 .size = p->size,
                 .reduce = (int)c->reduce,
                 .stop = host,
                 .late = host + 1,
                 .begun = (uint32_t *)(host + 2)};
  share_out(&a, c);
  for (int k = 0; k < p->size; k++)
    a.area[k] = (char *)(uintptr_t)p->area[k];
  if (c->kind == FL_COMM_REDUCE && c->peer != p->rank && c->in != c->out)
    FLC_TRY(p->device,
            flc_cu->MemcpyDtoDAsync((uintptr_t)c->out, (uintptr_t)c->in,
                                    count * size, c->stream->handle),
            l.op);
  size_t at = 0;
  do { /* a barrier has nothing to move, and meets once */
    a.in = (const char *)c->in + at * size;
    a.out = (char *)c->out + at * size;
    a.n = (int64_t)(count - at < most ? count - at : most);
    a.half = p->half ^= 1;
    a.phase = p->phase;
    p->phase += way == FL_COMM_ONE_SHOT   ? 1u
                : way == FL_COMM_TWO_SHOT ? 2u
                                          : 2u * (uint32_t)p->size - 2u;
    int64_t blocks =
        fl_ceil_div(a.n * (int64_t)(size * parts), 16 * PEER_THREADS);
    flc_grid grid = {
        .x = (unsigned)(blocks < PEER_BLOCKS ? blocks : PEER_BLOCKS),
        .block = PEER_THREADS};
    fl_status s = FLC_RUN(&l, spec, grid, a);
    if (s)
      return s;
  } while ((at += most) < count);
  return FL_OK;
}

void flc_peers_stop(flc_peers *p) {
  if (p)
    __atomic_store_n(&p->host[0], 1, __ATOMIC_RELEASE);
}

uint32_t flc_peers_next(const flc_peers *p) {
  return p->phase + 1;
}

bool flc_peers_begun(const flc_peers *p, uint32_t mark) {
  return (int)((uint32_t)__atomic_load_n(&p->host[2], __ATOMIC_ACQUIRE) -
               mark) >= 0;
}

int flc_peers_late(const flc_peers *p) {
  return p ? __atomic_load_n(&p->host[1], __ATOMIC_ACQUIRE) - 1 : -1;
}

void flc_visit_peer(flc_visitor *v) {
  static const fl_dtype dtypes[] = {FL_F64, FL_F32, FL_F16, FL_BF16,
                                    FL_I64, FL_I32, FL_I8,  FL_U8};
  static const fl_comm_way ways[] = {FL_COMM_ONE_SHOT, FL_COMM_TWO_SHOT,
                                     FL_COMM_RING};
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
    for (int w = 0; w < 3; w++)
      for (int n = 2; n <= (w == 2 ? 2 : PEER_RANKS); n *= 2) {
        flc_spec s = spec_of(FL_COMM_ALL_REDUCE, dtypes[d], ways[w], n);
        v->spec(v, &s, dtypes[d] == FL_BF16 && n == 2);
      }
  flc_spec s = spec_of(FL_COMM_BROADCAST, FL_U8, FL_COMM_ONE_SHOT, 2);
  v->spec(v, &s, true);
}
