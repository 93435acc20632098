/* Call sites: (file, line) interned to a number, so that calls, blocks and tape
 * nodes remember where they came from in four bytes. */
#include "../internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct site {
  char *file; /* shared by the sites of a file, owned by the first one */
  bool owner;
  int line;
  uint32_t hash;
} site;

struct fli_sites {
  site *list; /* site n is list[n - 1] */
  uint32_t n, room;
  uint32_t *slots; /* open addressing, 0 is empty */
  uint32_t n_slots;
  char text[512];
};

static uint32_t hash_of(const char *file, int line) {
  uint32_t h = 2166136261u ^ (uint32_t)line * 2654435761u;
  for (; *file; file++)
    h = (h ^ (unsigned char)*file) * 16777619u;
  return h;
}

fl_status fli_sites_open(fl_runtime *rt) {
  rt->sites = calloc(1, sizeof *rt->sites);
  return rt->sites ? FL_OK : fli_fail(FL_ENOMEM, "out of memory: call sites");
}

void fli_sites_close(fl_runtime *rt) {
  struct fli_sites *s = rt->sites;
  if (!s)
    return;
  for (uint32_t i = 0; i < s->n; i++)
    if (s->list[i].owner)
      free(s->list[i].file);
  free(s->list);
  free(s->slots);
  free(s);
  rt->sites = NULL;
}

static bool grow(struct fli_sites *s) {
  if (s->n == s->room) {
    uint32_t room = s->room ? 2 * s->room : 64;
    site *list = realloc(s->list, room * sizeof *list);
    if (!list)
      return false;
    s->list = list;
    s->room = room;
  }
  if (2 * (s->n + 1) < s->n_slots)
    return true;
  uint32_t n_slots = s->n_slots ? 2 * s->n_slots : 256;
  uint32_t *slots = calloc(n_slots, sizeof *slots);
  if (!slots)
    return false;
  for (uint32_t i = 0; i < s->n; i++) {
    uint32_t at = s->list[i].hash & (n_slots - 1);
    while (slots[at])
      at = (at + 1) & (n_slots - 1);
    slots[at] = i + 1;
  }
  free(s->slots);
  s->slots = slots;
  s->n_slots = n_slots;
  return true;
}

/* A site is a convenience: without memory it is "unknown", not a failure. */
fl_site fl_site_intern(fl_runtime *rt, const char *file, int line) {
  struct fli_sites *s = rt->sites;
  if (!file || !grow(s))
    return 0;
  uint32_t hash = hash_of(file, line), at = hash & (s->n_slots - 1);
  for (; s->slots[at]; at = (at + 1) & (s->n_slots - 1)) {
    site *e = &s->list[s->slots[at] - 1];
    if (e->hash == hash && e->line == line && strcmp(e->file, file) == 0)
      return s->slots[at];
  }
  site e = {.line = line, .hash = hash};
  for (uint32_t i = s->n; i-- > 0 && !e.file;)
    if (strcmp(s->list[i].file, file) == 0)
      e.file = s->list[i].file;
  if (!e.file) {
    e.file = strdup(file);
    e.owner = true;
    if (!e.file)
      return 0;
  }
  s->list[s->n++] = e;
  return s->slots[at] = s->n;
}

const char *fl_site_text(fl_runtime *rt, fl_site n) {
  struct fli_sites *s = rt->sites;
  if (n == 0 || n > s->n)
    return "?";
  site *e = &s->list[n - 1];
  if (e->line <= 0)
    return e->file;
  snprintf(s->text, sizeof s->text, "%s:%d", e->file, e->line);
  return s->text;
}
