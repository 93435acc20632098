/* Call sites: (file, line) interned to a number, so that calls, blocks and tape
 * nodes remember where they came from in four bytes. */
#include "../runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Programs that make chunk names without end (load of generated text) get this
 * many sites, some 25 MB; a line beyond them is "?". */
#define MOST_SITES ((uint32_t)1 << 18)

typedef struct site {
  uint32_t file; /* files.names[file] */
  int line;
} site;

/* Open addressing over numbers from 1 on; 0 is an empty slot. */
typedef struct index_table {
  uint32_t *slots, n_slots;
} index_table;

struct fli_sites {
  site *list; /* site n is list[n - 1] */
  char **names;
  uint32_t n, room, n_names, name_room, last; /* last: the name asked for */
  index_table sites, files;
  char text[512];
};

static uint32_t hash_name(const char *file) {
  uint32_t h = 2166136261u;
  for (; *file; file++)
    h = (h ^ (unsigned char)*file) * 16777619u;
  return h;
}

static uint32_t hash_site(uint32_t file, int line) {
  uint32_t h = file * 2654435761u ^ (uint32_t)line * 2246822519u;
  return h ^ h >> 15;
}

fl_status fli_sites_open(fl_runtime *rt) {
  rt->sites = calloc(1, sizeof *rt->sites);
  return rt->sites ? FL_OK : fli_fail(FL_ENOMEM, "out of memory: call sites");
}

void fli_sites_close(fl_runtime *rt) {
  struct fli_sites *s = rt->sites;
  if (!s)
    return;
  for (uint32_t i = 0; i < s->n_names; i++)
    free(s->names[i]);
  free(s->names);
  free(s->list);
  free(s->sites.slots);
  free(s->files.slots);
  free(s);
  rt->sites = NULL;
}

/* Room for one more element of `size` bytes. */
static bool grow_list(void **list, uint32_t n, uint32_t *room, size_t size) {
  if (n < *room)
    return true;
  uint32_t more = *room ? 2 * *room : 64;
  void *p = realloc(*list, more * size);
  if (!p)
    return false;
  *list = p;
  *room = more;
  return true;
}

static uint32_t hash_entry(const struct fli_sites *s, const index_table *t,
                           uint32_t i) {
  return t == &s->files ? hash_name(s->names[i])
                        : hash_site(s->list[i].file, s->list[i].line);
}

/* Keeps the table of n entries at most half full with one more. */
static bool grow_table(const struct fli_sites *s, index_table *t, uint32_t n) {
  if (2 * (n + 1) < t->n_slots)
    return true;
  uint32_t n_slots = t->n_slots ? 2 * t->n_slots : 256;
  uint32_t *slots = calloc(n_slots, sizeof *slots);
  if (!slots)
    return false;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t at = hash_entry(s, t, i) & (n_slots - 1);
    while (slots[at])
      at = (at + 1) & (n_slots - 1);
    slots[at] = i + 1;
  }
  free(t->slots);
  *t = (index_table){slots, n_slots};
  return true;
}

/* The name's number, from 0; UINT32_MAX without memory. */
static uint32_t intern_name(struct fli_sites *s, const char *file) {
  if (s->last < s->n_names && strcmp(s->names[s->last], file) == 0)
    return s->last;
  if (!grow_list((void **)&s->names, s->n_names, &s->name_room,
                 sizeof *s->names) ||
      !grow_table(s, &s->files, s->n_names))
    return UINT32_MAX;
  uint32_t mask = s->files.n_slots - 1, at = hash_name(file) & mask;
  for (; s->files.slots[at]; at = (at + 1) & mask)
    if (strcmp(s->names[s->files.slots[at] - 1], file) == 0)
      return s->last = s->files.slots[at] - 1;
  char *copy = s->n < MOST_SITES ? strdup(file) : NULL;
  if (!copy)
    return UINT32_MAX;
  s->names[s->n_names++] = copy;
  s->files.slots[at] = s->n_names;
  return s->n_names - 1;
}

/* Without memory a site is "unknown", not a failure. */
fl_site fl_site_intern(fl_runtime *rt, const char *file, int line) {
  FLI_NEED_OR(rt, "rt", 0);
  struct fli_sites *s = rt->sites;
  uint32_t name = file ? intern_name(s, file) : UINT32_MAX;
  if (name == UINT32_MAX ||
      !grow_list((void **)&s->list, s->n, &s->room, sizeof *s->list) ||
      !grow_table(s, &s->sites, s->n))
    return 0;
  uint32_t mask = s->sites.n_slots - 1, at = hash_site(name, line) & mask;
  for (; s->sites.slots[at]; at = (at + 1) & mask) {
    const site *e = &s->list[s->sites.slots[at] - 1];
    if (e->file == name && e->line == line)
      return s->sites.slots[at];
  }
  if (s->n >= MOST_SITES)
    return 0;
  s->list[s->n++] = (site){name, line};
  return s->sites.slots[at] = s->n;
}

const char *fl_site_text(fl_runtime *rt, fl_site n) {
  FLI_NEED_OR(rt, "rt", "?");
  struct fli_sites *s = rt->sites;
  if (n == 0 || n > s->n)
    return "?";
  const site *e = &s->list[n - 1];
  if (e->line <= 0)
    return s->names[e->file];
  snprintf(s->text, sizeof s->text, "%s:%d", s->names[e->file], e->line);
  return s->text;
}
