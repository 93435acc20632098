/* A launch's scratch memory: blocks of the device's allocator, freed when the
 * kernel has been queued. The stream's heap hands them out again in order. */
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

static void *get_block(fl_scratch *base, size_t bytes) {
  fli_scratch *s = (fli_scratch *)base;
  void *memory;
  if (base->taken == s->room && !grow_blocks(s))
    return NULL;
  if (fli_alloc(s->rt, s->device, bytes, s->site, &s->blocks[base->taken],
                &memory))
    return NULL;
  base->taken++;
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

void fli_scratch_close(fli_scratch *s) {
  release_blocks(&s->base, 0);
  if (s->blocks != s->few)
    fli_mfree(s->blocks);
}
