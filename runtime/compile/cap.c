/* Caps of memory: how much of it a plan may need, and what is said where it
 * needs more. */
#include "recompute.h"

#include "../memory/memory.h"

#include <stdio.h>
#include <string.h>

size_t fli_cap_room(const fl_compiled *c, const fli_plan *p,
                    const fli_window *w) {
  size_t used = fli_memory_live(w->rt, w->device) + p->scratch;
  if (!c->memory)
    return SIZE_MAX;
  return c->memory > used ? c->memory - used : 0;
}

/* --- what is said --- */

typedef struct cap_holder {
  fl_site site;
  const char *op;
  size_t bytes;
} cap_holder;

#define HOLDERS 3 /* that are named */
#define LINES   64
#define TEXT    32

static const char *cap_bytes(size_t bytes, char *text) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
  double n = (double)bytes;
  int k = 0;
  while (n >= 1024 && k < 3) {
    n /= 1024;
    k++;
  }
  snprintf(text, TEXT, k ? "%.2f %s" : "%.0f %s", n, units[k]);
  return text;
}

static void cap_hold(cap_holder *h, int *n, const fli_entry *e, size_t bytes) {
  int k = 0;
  while (k < *n && (h[k].site != e->site || h[k].op != e->op->info.name))
    k++;
  if (k == LINES)
    return;
  if (k == *n)
    h[(*n)++] = (cap_holder){.site = e->site, .op = e->op->info.name};
  h[k].bytes += bytes;
}

/* Whether memory of the slot is taken when step `peak` runs; by which step. */
static bool cap_live(const fli_plan *p, uint32_t slot, uint32_t peak,
                     uint32_t *by) {
  bool live = false;
  for (uint32_t i = 0; i <= peak && i < p->n_steps; i++) {
    const fli_step *x = &p->steps[i];
    for (uint32_t k = 0; k < x->n_made && !live; k++)
      if (p->numbers[x->made + k] == slot) {
        live = true;
        *by = i;
      }
    for (uint32_t k = 0; k < x->n_last && i < peak; k++)
      if (p->numbers[x->last + k] == slot && !p->held[slot])
        return false;
  }
  return live;
}

/* The lines whose results take most. The last launch of a kernel is named. */
static void cap_lines(const fli_plan *p, const fli_window *w, char *text,
                      size_t room) {
  cap_holder h[LINES];
  char bytes[TEXT];
  int n = 0;
  size_t at = 0;
  text[0] = 0;
  for (uint32_t k = 0; k < fli_plan_slots(p); k++) {
    uint32_t by, of = k < p->n_slots ? k : p->copies[k - p->n_slots];
    if (!cap_live(p, k, p->peak_step, &by))
      continue;
    uint32_t e = p->steps[by].entry;
    e = e < p->n ? e : p->repeats[e - p->n].entry;
    cap_hold(h, &n, &w->entries[e], w->slots[of].bytes);
  }
  for (int k = 0; k < HOLDERS && at < room; k++) {
    int most = -1;
    for (int i = 0; i < n; i++)
      if (h[i].bytes && (most < 0 || h[i].bytes > h[most].bytes))
        most = i;
    if (most < 0)
      return;
    at += (size_t)snprintf(
        text + at, room - at, "%s%s by %s%s%s",
        k ? ", " : "; most of it: ", cap_bytes(h[most].bytes, bytes),
        h[most].op, h[most].site ? " at " : "",
        h[most].site ? fl_site_text(w->rt, h[most].site) : "");
    h[most].bytes = 0;
  }
}

bool fli_cap_holds(const fl_compiled *c, const fli_plan *p, const fli_window *w,
                   fl_status *status) {
  char cap[TEXT], over[TEXT], used[TEXT], peak[TEXT], lines[512];
  size_t live = fli_memory_live(w->rt, w->device);
  size_t need = p->peak + p->scratch;
  if (live + need <= c->memory)
    return true;
  cap_lines(p, w, lines, sizeof lines);
  *status = fli_fail(
      FL_ENOMEM,
      "compile: memory = %s is %s too little: tensors had %s before, and the "
      "call needs %s, with all computed again and cut into chunks that can "
      "be%s",
      cap_bytes(c->memory, cap), cap_bytes(live + need - c->memory, over),
      cap_bytes(live, used), cap_bytes(need, peak), lines);
  return false;
}

/* --- what kernels need --- */

size_t fli_cap_begin(const fli_window *w) {
  return fli_memory_peak(w->rt, w->device, 0);
}

bool fli_cap_end(const fl_compiled *c, fli_plan *p, const fli_window *w,
                 size_t before, size_t peak) {
  size_t most = fli_memory_peak(w->rt, w->device, peak);
  if (most > peak)
    fli_memory_peak(w->rt, w->device, most);
  if (most > before + p->peak + p->scratch)
    p->scratch = most - before - p->peak;
  return most > c->memory;
}
