/* The ring of the last launches: it gives a failure that is noticed late the
 * line of the script that launched the kernel. */
#include "../runtime.h"

#include <stdio.h>
#include <stdlib.h>

fl_status fli_late_failure(fl_runtime *rt, fl_status s,
                           const fli_launch_note *n, uint64_t seq) {
  if (seq == 0 || n->seq != seq || n->site == 0)
    return s;
  char text[600];
  snprintf(text, sizeof text, "%s", fl_error());
  return fli_fail(s, "%s (launched at %s)", text, fl_site_text(rt, n->site));
}

const fli_launch_note *fli_noted_find(const fl_runtime *rt, uint64_t seq) {
  for (const fli_noted *k = rt->noted; k; k = k->next) {
    uint32_t low = 0, high = k->n;
    while (low < high) {
      uint32_t at = low + (high - low) / 2;
      if (k->notes[at].seq < seq)
        low = at + 1;
      else
        high = at;
    }
    if (low < k->n && k->notes[low].seq == seq)
      return &k->notes[low];
  }
  return NULL;
}

/* A growing text owned by the runtime. */
char *fli_text(fl_runtime *rt, size_t room) {
  char *p = realloc(rt->text, room);
  if (p)
    rt->text = p;
  return p;
}

const char *fl_launches_text(fl_runtime *rt, int most) {
  FLI_NEED_OR(rt, "rt", "");
  if (most < 1)
    return "";
  size_t room = (size_t)(most < FLI_RING ? most : FLI_RING) * 600 + 1, at = 0;
  char *text = fli_text(rt, room);
  if (!text)
    return "";
  text[0] = 0;
  for (uint64_t seq = rt->seq; seq > 0 && most-- > 0; seq--) {
    const fli_launch_note *n = &rt->ring[seq % FLI_RING];
    if (n->seq != seq)
      break;
    at += (size_t)snprintf(text + at, room - at, "#%llu %s %.200s",
                           (unsigned long long)seq, n->op,
                           fl_site_text(rt, n->site));
    for (int k = 0; k < n->n; k++)
      at += (size_t)snprintf(
          text + at, room - at, " %s%s",
          fli_shape_text(n->ndim[k] < 4 ? n->ndim[k] : 4, n->shape[k]),
          n->ndim[k] > 4 ? "..." : "");
    at += (size_t)snprintf(text + at, room - at, "\n");
  }
  return text;
}
