/* A launch's scratch memory: blocks of the device's allocator, freed when the
 * kernel has been queued. The stream's heap hands them out again in order. */
#include "../memory/capture.h"
#include "launch.h"

#include <string.h>

static bool grow_blocks(fli_scratch *s) {
  size_t bytes = (size_t)s->room * sizeof *s->blocks;
  fli_block **more = fli_malloc(s->rt, 2 * bytes);
  if (!more)
    return false;
  memcpy(more, s->blocks, bytes);
  if (s->blocks != s->few)
    fli_mfree(s->blocks);
  s->blocks = more;
  s->room *= 2;
  return true;
}

static bool note_block(fl_runtime *rt, void *memory, size_t bytes) {
  fli_scratch_log *k = rt->capture->scratch;
  if (k && k->n == k->room) {
    uint32_t room = k->room ? 2 * k->room : 32;
    fli_scratch_note *more = fli_malloc(rt, room * sizeof *more);
    if (!more)
      return false;
    if (k->n)
      memcpy(more, k->notes, k->n * sizeof *more);
    fli_mfree(k->notes);
    k->notes = more;
    k->room = room;
  }
  if (k)
    k->notes[k->n++] = (fli_scratch_note){memory, bytes};
  return true;
}

static void *get_block(fl_scratch *base, size_t bytes) {
  fli_scratch *s = (fli_scratch *)base;
  void *memory;
  if (base->taken == s->room && !grow_blocks(s))
    return NULL;
  if (fli_alloc(s->rt, s->device, bytes, s->site, &s->blocks[base->taken],
                &memory))
    return NULL;
  base->taken++;
  if (!FLI_LIKELY(!s->rt->capture) && !note_block(s->rt, memory, bytes))
    return NULL;
  return memory;
}

static void release_blocks(fl_scratch *base, int keep) {
  fli_scratch *s = (fli_scratch *)base;
  while (base->taken > keep)
    fli_free(s->rt, s->blocks[--base->taken]);
}

void fli_scratch_open(fli_scratch *s, fl_runtime *rt, fl_device d,
                      fl_site site) {
  s->base.get = get_block;
  s->base.release = release_blocks;
  s->base.taken = 0;
  s->rt = rt;
  s->device = d;
  s->site = site;
  s->room = FLI_SCRATCH;
  s->blocks = s->few;
}

/* --- the memory of an earlier launch --- */

static void *get_noted(fl_scratch *base, size_t bytes) {
  fli_again *a = (fli_again *)base;
  if (base->taken < a->n && a->notes[base->taken].bytes == bytes)
    return a->notes[base->taken++].memory;
  fli_fail(FL_EUNSUPPORTED, "a launch of a graph needs other memory");
  return NULL;
}

static void release_none(fl_scratch *base, int keep) {
  (void)base, (void)keep;
}

void fli_again_open(fli_again *a, uint64_t seq, int n,
                    const fli_scratch_note *notes) {
  *a = (fli_again){.base = {.get = get_noted, .release = release_none},
                   .seq = seq,
                   .n = n,
                   .notes = notes};
}

void fli_scratch_close(fli_scratch *s) {
  release_blocks(&s->base, 0);
  if (s->blocks != s->few)
    fli_mfree(s->blocks);
}
