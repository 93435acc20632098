/* What nodes of the tape have saved, for those who move it elsewhere until
 * backward needs it; histories without values. */
#include "tape.h"

#include <stdlib.h>

typedef struct saved_walk {
  fl_node **nodes;
  size_t n, room;
  fl_storage **seen;
  size_t n_seen, seen_room;
} saved_walk;

static bool saved_grow(void *list, size_t n, size_t *room, size_t each) {
  void **at = list;
  if (n < *room)
    return true;
  size_t more = *room ? 2 * *room : 64;
  void *p = realloc(*at, more * each);
  if (!p) {
    fli_fail(FL_ENOMEM, "out of memory: what the tape saved");
    return false;
  }
  *at = p;
  *room = more;
  return true;
}

static bool saved_enter(saved_walk *w, fl_node *n, uint64_t since) {
  if (!n || n->seq <= since)
    return true;
  for (size_t i = w->n; i-- > 0;)
    if (w->nodes[i] == n)
      return true;
  if (!saved_grow(&w->nodes, w->n, &w->room, sizeof *w->nodes))
    return false;
  w->nodes[w->n++] = n;
  return true;
}

/* Whether v was made after `since`, is large enough and not met before. */
static bool saved_counts(saved_walk *w, const fli_saved *v, uint64_t since,
                         size_t least) {
  const fl_tensor *t = v->value.tensor;
  if (!t || !t->storage || !t->rt)
    return false;
  fl_storage *s = t->storage;
  const fl_tensor *made = t->base ? t->base : t;
  if (v->slot >= 0 && (!made->node || made->node->seq <= since))
    return false;
  if (s->bytes < least || !s->block || s->pending || s->exposed || s->loan)
    return false;
  for (size_t i = 0; i < w->n_seen; i++)
    if (w->seen[i] == s)
      return false;
  if (!saved_grow(&w->seen, w->n_seen, &w->seen_room, sizeof *w->seen))
    return false;
  w->seen[w->n_seen++] = s;
  return true;
}

static fl_status saved_visit(saved_walk *w, const fl_node *n, uint64_t since,
                             size_t least, fl_saved_fn each, void *context) {
  for (int k = 0; k < n->n_saved; k++) {
    if (!saved_counts(w, &n->saved[k], since, least))
      continue;
    fl_tensor *bytes;
    FLI_TRY(fl_tensor_memory(n->saved[k].value.tensor, &bytes));
    fl_status s = each(context, bytes);
    fl_tensor_release(bytes);
    FLI_TRY(s);
  }
  return n->inner ? saved_visit(w, n->inner, since, least, each, context)
                  : FL_OK;
}

uint64_t fl_tape_now(fl_runtime *rt) {
  FLI_NEED_OR(rt, "rt", 0);
  return rt->node_seq;
}

fl_status fl_tape_saved(fl_tensor *t, uint64_t since, size_t least,
                        fl_saved_fn each, void *context) {
  FLI_NEED(t, "t");
  FLI_NEED(each, "each");
  if (!t->rt || !t->storage)
    return fli_fail(FL_ECLOSED, "tensor is closed or has no memory");
  FLI_TRY(fli_check_owner(t->rt));
  fl_node *first;
  FLI_TRY(fli_node_of(t, &first));
  saved_walk w = {0};
  fl_status s = saved_enter(&w, first, since) &&
                        saved_grow(&w.seen, 0, &w.seen_room, sizeof *w.seen)
                    ? FL_OK
                    : FL_ENOMEM;
  if (s == FL_OK)
    w.seen[w.n_seen++] = t->storage;
  for (size_t i = 0; i < w.n && s == FL_OK; i++) {
    const fl_node *n = w.nodes[i];
    s = saved_visit(&w, n, since, least, each, context);
    for (int k = 0; k < n->n_in && s == FL_OK; k++)
      s = saved_enter(&w, n->edges[k].node, since) ? FL_OK : FL_ENOMEM;
  }
  free(w.nodes);
  free(w.seen);
  return s;
}

fl_status fl_tensor_root(fl_tensor *t, fl_tensor **root) {
  FLI_NEED(t, "t");
  FLI_NEED(root, "root");
  *root = NULL;
  if (!t->rt)
    return fli_fail(FL_ECLOSED, "tensor is closed");
  FLI_TRY(fli_check_owner(t->rt));
  fl_node *n;
  FLI_TRY(fli_node_of(t, &n));
  if (!n)
    return FL_OK;
  FLI_TRY(fli_tensor_header(t->rt, root));
  fli_tensor_set_shape(*root, &t->meta);
  n->rc++;
  (*root)->node = n;
  (*root)->node_out = t->node_out;
  return FL_OK;
}
