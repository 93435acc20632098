/* Who holds a device's memory: live bytes by call site, and the message when
 * memory runs out. */
#include "alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "12.0 MB": three digits, powers of ten as in the limits people set. */
static const char *bytes_text(char out[16], size_t bytes) {
  static const char *const units[] = {"KB", "MB", "GB", "TB", "PB", "EB"};
  double v = (double)bytes / 1000;
  int u = 0;
  if (bytes < 1000) {
    snprintf(out, 16, "%zu B", bytes);
    return out;
  }
  for (; v >= 999.5 && u < 5; u++)
    v /= 1000;
  snprintf(out, 16, "%.*f %s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, units[u]);
  return out;
}

typedef struct holding {
  fl_site site;
  size_t bytes;
} holding;

static int by_site(const void *a, const void *b) {
  fl_site x = ((const holding *)a)->site, y = ((const holding *)b)->site;
  return (x > y) - (x < y);
}

static int by_bytes(const void *a, const void *b) {
  size_t x = ((const holding *)a)->bytes, y = ((const holding *)b)->bytes;
  return x != y ? (x < y) - (x > y) : by_site(a, b);
}

static size_t heap_holdings(const fli_heap *h, holding *list) {
  size_t n = 0;
  for (const fli_segment *g = h->segments; g; g = g->next)
    for (const fli_span *s = g->first; s; s = s->after) {
      const fli_block *b = s->slab ? s->slab->blocks : &s->block;
      for (uint32_t i = 0; i < (s->slab ? s->slab->carved : 1); i++)
        if (b[i].bytes != FLI_NOT_LIVE)
          list[n++] = (holding){b[i].site, b[i].bytes};
    }
  return n;
}

/* Live bytes of each site, the most first; *list is the caller's to free. */
static size_t holdings(const fli_memory *all, holding **list) {
  size_t n = 0, m = 0;
  *list = malloc((all->blocks + 1) * sizeof **list);
  if (!*list)
    return 0;
  for (const fli_heap *h = all->heaps; h; h = h->next)
    n += heap_holdings(h, *list + n);
  qsort(*list, n, sizeof **list, by_site);
  for (size_t i = 0; i < n; i++) {
    if (m && (*list)[m - 1].site == (*list)[i].site)
      (*list)[m - 1].bytes += (*list)[i].bytes;
    else
      (*list)[m++] = (*list)[i];
  }
  qsort(*list, m, sizeof **list, by_bytes);
  return m;
}

size_t fli_largest_free(const fli_memory *m) {
  size_t most = 0;
  for (const fli_heap *h = m->heaps; h; h = h->next) {
    size_t here = h->kept ? 0 : fli_span_largest(h);
    most = here > most ? here : most;
  }
  return most;
}

size_t fli_limit_of(const fli_memory *m) {
  return m->budget ? fli_budget_limit(m->budget) : m->limit;
}

fl_status fli_out_of_memory(fli_heap *h, size_t bytes, const char *why) {
  char asked[16], live[16], reserved[16], limit[16], largest[16], part[16];
  char most[256] = "", there_is[96] = "";
  size_t at = 0, left = 0, total = 0;
  const fli_memory *m = h->all;
  fl_backend *b = h->backend;
  holding *list;
  if (b->memory_info &&
      b->memory_info(b, h->device & 255, &left, &total) == FL_OK) {
    char there[16];
    snprintf(there_is, sizeof there_is, "; the device has %s free of %s",
             bytes_text(part, left), bytes_text(there, total));
  }
  size_t used = m->budget ? fli_budget_used(m->budget) : 0;
  if (used > m->reserved)
    snprintf(there_is, sizeof there_is,
             "; other threads and shared memory have %s of the limit",
             bytes_text(part, used - m->reserved));
  size_t n = holdings(m, &list);
  for (size_t i = 0; i < n && i < 3 && list[i].bytes; i++) {
    at += (size_t)snprintf(
        most + at, sizeof most - at, "%s%s %s",
        i ? ", " : "; held most: ", bytes_text(part, list[i].bytes),
        fl_site_text(h->rt, list[i].site));
    if (at >= sizeof most)
      break;
  }
  free(list);
  return fli_fail(
      FL_ENOMEM,
      "out of memory on %s%s: asked for %s; live %s in %zu blocks, reserved "
      "%s, limit %s, largest free block %s%s%s",
      fl_device_name(h->rt, h->device), why, bytes_text(asked, bytes),
      bytes_text(live, m->live), m->blocks, bytes_text(reserved, m->reserved),
      fli_limit_of(m) ? bytes_text(limit, fli_limit_of(m)) : "none",
      bytes_text(largest, fli_largest_free(m)), there_is, most);
}

char *fli_holders_text(fl_runtime *rt, const fli_memory *m, int most) {
  char part[16], *all = NULL;
  holding *list;
  size_t n = holdings(m, &list), at = 0;
  for (size_t i = 0; i < n && (int64_t)i < most; i++) {
    const char *where = fl_site_text(rt, list[i].site);
    size_t room = strlen(where) + sizeof part + 2;
    char *text = realloc(all, at + room);
    if (!text)
      break;
    all = text;
    at += (size_t)snprintf(text + at, room, "%s%s %s", at ? "\n" : "",
                           bytes_text(part, list[i].bytes), where);
  }
  free(list);
  return all;
}
