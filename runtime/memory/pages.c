/* Segments of pages: ranges of addresses in which memory comes and goes, part
 * by part, where a backend can do that. Free spans that are too small for a
 * block have enough memory together: then it moves to other addresses, next to
 * each other, and leaves holes. So large blocks fit as long as there is memory,
 * whatever has come and gone before. */
#include "alloc.h"

#include <stdlib.h>

#define RANGE ((size_t)1 << 40) /* addresses of a segment at most */

static size_t part_of(const fli_heap *h) {
  return h->backend->part;
}

static size_t up(size_t bytes, size_t part) {
  return (bytes + part - 1) / part * part;
}

static size_t offset_of(const fli_span *s) {
  return (size_t)((char *)s->block.memory - (char *)s->segment->memory);
}

static fl_status move(fli_heap *h, void *to, void *from, size_t bytes) {
  return h->backend->remap(h->backend, h->device & 255, to, from, bytes);
}

/* --- spans and holes --- */

static fli_span *split(fli_span *s, size_t at) {
  fli_span *rest = calloc(1, sizeof *rest);
  if (!rest)
    return NULL;
  rest->block.memory = (char *)s->block.memory + at;
  rest->block.bytes = FLI_NOT_LIVE;
  rest->size = s->size - at;
  rest->segment = s->segment;
  rest->hole = s->hole;
  rest->before = s;
  rest->after = s->after;
  if (rest->after)
    rest->after->before = rest;
  s->after = rest;
  s->size = at;
  return rest;
}

static void become_hole(fli_span *s) {
  s->hole = true;
  if (s->after && s->after->hole)
    fli_span_join(s);
  if (s->before && s->before->hole)
    fli_span_join(s->before);
}

static void become_free(fli_span *s) {
  s->hole = false;
  fli_span_free(s);
}

/* Of a free span or a hole, the bytes from `at` on as a span of their own,
 * which is in no tree; NULL: the host has no memory, and nothing changes. */
static fli_span *carve(fli_span *s, size_t at, size_t bytes) {
  bool free_one = s->free;
  fli_span *middle = s, *rest = NULL;
  if (free_one)
    fli_span_unlist(s);
  if (at > 0)
    middle = split(s, at);
  if (middle && middle->size > bytes && !(rest = split(middle, bytes))) {
    if (middle != s)
      fli_span_join(s);
    middle = NULL;
  }
  if (free_one) {
    if (!middle || middle != s)
      fli_span_list(s);
    if (rest)
      fli_span_list(rest);
  }
  return middle;
}

/* --- ranges --- */

static fli_segment *range_new(fli_heap *h, int pool, size_t size) {
  fl_backend *b = h->backend;
  size_t left, bytes = RANGE;
  if (b->memory_info)
    b->memory_info(b, h->device & 255, &left, &bytes);
  bytes = up(bytes > RANGE ? RANGE : bytes, b->part);
  bytes = bytes > size ? bytes : size;
  fli_segment *g = calloc(1, sizeof *g);
  fli_span *s = calloc(1, sizeof *s);
  void *at;
  if (!g || !s || b->reserve(b, h->device & 255, bytes, &at)) {
    free(g);
    free(s);
    return NULL;
  }
  *g = (fli_segment){.heap = h,
                     .memory = at,
                     .size = bytes,
                     .pool = pool,
                     .pages = true,
                     .first = s};
  *s = (fli_span){.block = {.memory = at, .bytes = FLI_NOT_LIVE},
                  .size = bytes,
                  .segment = g,
                  .hole = true};
  fli_segment_list(h, g);
  return g;
}

static void range_count(fli_segment *g, size_t more, size_t less) {
  fli_memory *m = g->heap->all;
  g->here += more - less;
  g->heap->reserved += more - less;
  m->reserved += more - less;
  if (m->reserved > m->peak_reserved)
    m->peak_reserved = m->reserved;
}

/* Memory from the first span that is no hole to the last. */
static size_t run_of(const fli_span *s) {
  size_t bytes = 0;
  for (; s && !s->hole; s = s->after)
    bytes += s->size;
  return bytes;
}

void fli_pages_free(fli_segment *g) {
  fli_heap *h = g->heap;
  for (fli_span *s = g->first; s; s = s->after)
    if (!s->hole && (!s->before || s->before->hole))
      move(h, NULL, s->block.memory, run_of(s));
  h->backend->unreserve(h->backend, h->device & 255, g->memory, g->size);
  for (fli_span *s = g->first, *next; s; s = next) {
    next = s->after;
    if (s->free)
      h->idle -= s->size;
    free(s);
  }
  range_count(g, 0, g->here);
  fli_segment_unlist(g);
  free(g);
}

/* --- whole parts of free spans --- */

typedef struct whole {
  fli_span *span;
  size_t at, bytes; /* within it */
} whole;

static whole whole_of(fli_span *s) {
  size_t part = part_of(s->segment->heap), from = offset_of(s);
  size_t first = up(from, part), last = (from + s->size) / part * part;
  return last > first ? (whole){s, first - from, last - first} : (whole){NULL};
}

/* The smallest in the heap, so that large ones stay, but for neighbours of
 * `but`; without it the largest. */
static whole whole_find(const fli_heap *h, const fli_span *but) {
  whole best = {NULL};
  for (const fli_segment *g = h->segments; g; g = g->next)
    for (fli_span *s = g->pages ? g->first : NULL; s; s = s->after) {
      if (!s->free || (but && (s->after == but || s->before == but)))
        continue;
      whole w = whole_of(s);
      bool better = but ? w.bytes < best.bytes : w.bytes > best.bytes;
      if (w.bytes && (!best.bytes || better))
        best = w;
    }
  return best;
}

static void trim_ranges(fli_heap *h) {
  for (fli_segment *g = h->segments, *next; g; g = next) {
    next = g->next;
    if (g->pages && g->here == 0)
      fli_pages_free(g);
  }
}

void fli_pages_trim(fli_heap *h, size_t keep) {
  size_t part = part_of(h);
  while (h->reserved > keep) {
    whole w = whole_find(h, NULL);
    size_t more = up(h->reserved - keep, part);
    size_t bytes = w.bytes < more ? w.bytes : more;
    fli_span *s = bytes ? carve(w.span, w.at + w.bytes - bytes, bytes) : NULL;
    if (!s)
      break;
    if (move(h, NULL, s->block.memory, bytes)) {
      become_free(s);
      break;
    }
    range_count(s->segment, 0, bytes);
    become_hole(s);
  }
  trim_ranges(h);
}

/* --- growing --- */

/* Where memory is missing for `size` bytes: at the beginning of a hole or, if
 * `back`, at its end. */
typedef struct place {
  fli_span *hole;
  size_t bytes;
  bool back;
} place;

static place place_in(fli_span *s, size_t size, size_t part) {
  size_t before = s->before && s->before->free ? s->before->size : 0;
  size_t after = s->after && s->after->free ? s->after->size : 0;
  bool back = after > before;
  size_t there = back ? after : before;
  size_t bytes = up(size > there ? size - there : 1, part);
  if (bytes >= s->size) {
    if (before + s->size + after < size)
      return (place){NULL};
    bytes = s->size;
  }
  return (place){s, bytes, back};
}

static place place_find(const fli_heap *h, int pool, size_t size) {
  place best = {NULL};
  for (const fli_segment *g = h->segments; g; g = g->next)
    for (fli_span *s = g->pages && g->pool == pool ? g->first : NULL; s;
         s = s->after) {
      if (!s->hole)
        continue;
      place p = place_in(s, size, part_of(h));
      if (p.hole && (!best.hole || p.bytes < best.bytes))
        best = p;
    }
  return best;
}

/* Moves free memory of the device's heaps into s, from `at` on; how much. */
static size_t gather(fli_span *s, size_t bytes) {
  fli_heap *h = s->segment->heap;
  size_t filled = 0;
  for (fli_heap *from = h->all->heaps; from; from = from->next)
    while (filled < bytes && !fli_heap_stays(from)) {
      whole w = whole_find(from, s);
      size_t n = w.bytes < bytes - filled ? w.bytes : bytes - filled;
      fli_span *gone = n ? carve(w.span, w.at + w.bytes - n, n) : NULL;
      if (!gone)
        break;
      if (move(h, (char *)s->block.memory + filled, gone->block.memory, n)) {
        become_free(gone);
        return filled;
      }
      range_count(gone->segment, 0, n);
      range_count(s->segment, n, 0);
      become_hole(gone);
      filled += n;
    }
  h->all->moved += filled;
  return filled;
}

static bool within(const fli_memory *m, size_t bytes) {
  return !m->limit ||
         (m->reserved <= m->limit && bytes <= m->limit - m->reserved);
}

/* Fills s, which is in no tree; how much. What does not come from free memory
 * is new, as far as the limit allows. */
static size_t fill(fli_span *s, size_t bytes, bool moves, fl_status *status) {
  fli_heap *h = s->segment->heap;
  size_t filled = moves ? gather(s, bytes) : 0, rest = bytes - filled;
  *status = FL_OK;
  if (!rest)
    return filled;
  *status = within(h->all, rest)
                ? move(h, (char *)s->block.memory + filled, NULL, rest)
                : FL_ENOMEM;
  if (*status)
    return filled;
  range_count(s->segment, rest, 0);
  h->all->segments_taken++;
  return bytes;
}

fl_status fli_pages_grow(fli_heap *h, int pool, size_t size, size_t most) {
  size_t part = part_of(h);
  place p = place_find(h, pool, size);
  if (!p.hole && range_new(h, pool, up(size, part)))
    p = place_find(h, pool, size);
  if (!p.hole)
    return FL_EUNSUPPORTED;
  bool moves = h->reserved + p.bytes > most;
  if (!moves && !within(h->all, p.bytes))
    return FL_ENOMEM;
  fli_span *s = carve(p.hole, p.back ? p.hole->size - p.bytes : 0, p.bytes);
  if (!s)
    return FL_ENOMEM;
  s->hole = false;
  fl_status status;
  size_t filled = fill(s, p.bytes, moves, &status);
  if (filled && filled < p.bytes) {
    fli_span *none = split(s, filled);
    if (none)
      become_hole(none);
    else if (move(h, NULL, s->block.memory, filled) == FL_OK) {
      range_count(s->segment, 0, filled);
      filled = 0;
    }
  }
  if (filled)
    become_free(s);
  else
    become_hole(s);
  return status == FL_OK || status == FL_EFAULT ? status : FL_ENOMEM;
}
