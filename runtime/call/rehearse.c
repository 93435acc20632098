/* The calls before a capture: a graph uses the numbers of its capture in every
 * run, so a number that was another one in the run before is refused. */
#include "../memory/capture.h"
#include "call.h"
#include "graph.h"

#include <string.h>

typedef struct rehearsed { /* a call */
  const fl_op *op;
  uint64_t numbers; /* a hash of its numbers and attributes */
} rehearsed;

struct fli_rehearsal {
  rehearsed *calls;
  uint32_t n, room;
  uint32_t at; /* the next call of the capture; n: calls are others */
};

static uint64_t rehearse_mix(uint64_t h, const void *word) {
  uint64_t bits;
  memcpy(&bits, word, sizeof bits);
  h = (h ^ bits) * 0x9E3779B97F4A7C15u;
  return h ^ h >> 32;
}

static uint64_t rehearse_hash(const fl_call *c) {
  const fl_attrs *a = c->attrs ? c->attrs : &c->op->defaults;
  uint64_t h = 0;
  for (int k = 0; k < c->n_in; k++)
    if (!c->in[k].tensor && c->in[k].dtype != FL_NODTYPE)
      h = rehearse_mix(h + (uint64_t)k, &c->in[k].i);
  for (int k = 0; k < c->op->info.n_attr; k++) /* others are never set */
    h = rehearse_mix(h, &a->v[k]);
  for (uint32_t k = 0; k < a->used; k++)
    h = rehearse_mix(h, &a->list[k]);
  return h;
}

void fli_rehearse_note(fl_runtime *rt, const fl_call *c) {
  struct fli_rehearsal *r = rt->rehearsal;
  if (!r)
    return;
  if (r->n == r->room) {
    uint32_t room = r->room ? 2 * r->room : 256;
    rehearsed *more = fli_malloc(rt, room * sizeof *more);
    if (!more)
      return; /* the capture compares fewer calls */
    if (r->calls)
      memcpy(more, r->calls, r->n * sizeof *more);
    fli_mfree(r->calls);
    r->calls = more;
    r->room = room;
  }
  r->calls[r->n++] = (rehearsed){c->op, rehearse_hash(c)};
}

bool fli_rehearse_differs(fl_runtime *rt, const fl_call *c) {
  struct fli_rehearsal *r = rt->rehearsal;
  if (!r || r->at >= r->n)
    return false;
  const rehearsed *was = &r->calls[r->at++];
  if (was->op == c->op)
    return was->numbers != rehearse_hash(c);
  r->at = r->n;
  return false;
}

bool fli_settled(fl_runtime *rt, fl_device d, fl_stream *s, uint64_t since) {
  fl_backend *b = fli_backend(rt, d);
  fl_kernel k = b->prepare ? b->kernel(b, "settled") : NULL;
  fl_launch l = {.op = "settled", .device = d & 255, .stream = s, .seq = since};
  bool ready = true;
  return !k || b->prepare(b, k, &l, &ready) || ready;
}

void fli_lasting(fl_runtime *rt, fl_device d, fl_stream *s,
                 const fl_view *ranges, int n) {
  fl_backend *b = fli_backend(rt, d);
  fl_kernel k = b->prepare ? b->kernel(b, "lasting") : NULL;
  fl_launch l = {
      .op = "lasting", .device = d & 255, .stream = s, .in = ranges, .n_in = n};
  bool ready;
  if (k)
    b->prepare(b, k, &l, &ready);
}

/* Backends that compare kernels choose for good, at once, or go on. */
static void rehearse_settle(fl_runtime *rt, bool on) {
  for (int k = 0; k < FLI_MAX_BACKENDS; k++) {
    fl_backend *b = rt->backends[k];
    if (b && b->control && b->kernel(b, "settled"))
      b->control(b, "settle", on);
  }
}

void fli_rehearse_end(fl_runtime *rt) {
  struct fli_rehearsal *r = rt->rehearsal;
  if (!r)
    return;
  rehearse_settle(rt, false);
  fli_mfree(r->calls);
  fli_mfree(r);
  rt->rehearsal = NULL;
}

fl_status fl_graph_rehearse(fl_runtime *rt, bool on) {
  FLI_NEED(rt, "rt");
  FLI_TRY(fli_check_owner(rt));
  FLI_TRY(fli_capture_refuses(rt, -1, "another graph"));
  fli_rehearse_end(rt);
  fli_mode_set(rt, FLI_MODE_CAPTURE, on);
  if (!on)
    return FL_OK;
  if (!(rt->rehearsal = fli_malloc(rt, sizeof *rt->rehearsal)))
    return FL_ENOMEM;
  *rt->rehearsal = (struct fli_rehearsal){0};
  rehearse_settle(rt, true);
  return FL_OK;
}
