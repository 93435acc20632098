/* What the planner knows while it goes through a window: which launch has
 * written what, and the groups of launches that become one kernel each. */
#ifndef FL_COMPILE_FUSE_H
#define FL_COMPILE_FUSE_H

#include "compile.h"
#include "form.h"

#include "../expr/tile.h"

#define FUSE_OPEN    16  /* groups at once */
#define FUSE_MEMBERS 128 /* launches of a group */
#define FUSE_NODES   384 /* of a group's expression */
#define FUSE_VALUES  192 /* elements of memory that a group knows */
#define FUSE_LOOPS   8   /* of a window */
#define FUSE_READERS 3   /* so many and more are not told apart */
#define FUSE_NONE    UINT32_MAX

typedef struct fuse_leaf {
  fl_leaf_kind kind;
  fl_reduction reduction;
  uint32_t number; /* operand of a number; FUSE_NONE: it is memory */
  uint32_t time;   /* memory: as launches before this one have left it */
  int slot;
  fl_dtype dtype;
  int node, source, mask; /* of the graph, as those of fl_leaf; -1 */
  fl_form at;
} fuse_leaf;

typedef struct fuse_value { /* an element of memory that is known */
  uint32_t def;             /* operand that wrote it; FUSE_NONE: older */
  int slot, mask;           /* a node: it is known where that is true; -1 */
  fl_dtype dtype;
  bool sum;          /* it is added to what lies there */
  fl_storing column; /* FL_STORE_SUM...: it is summed over dims (column.c) */
  fl_dtype round;    /* the sum is, first; FL_NODTYPE */
  fl_form at;
  fl_value value;
} fuse_value;

typedef struct fuse_position { /* a dim of the nest without a loop */
  fl_position is;              /* `value`: a node, stored positions */
  uint32_t entry;              /* the launch whose index it is */
} fuse_position;

typedef struct fuse_group {
  bool open, inlined, body; /* the last: it has a launch with a body (rows.h) */
  bool tall; /* its rows are too long to be used again after a reduction */
  uint32_t age, step;
  fli_apart apart; /* of its first launch, from the launch `from` */
  uint32_t from;
  int n, n_leaves, n_values, n_written, n_positions, most_dims;
  fli_nest nest;
  uint32_t inner;  /* dims that reductions reduce, a bit each */
  int reduce_from; /* the first leaf that may be such a reduction */
  fli_nest first;  /* of the first launch, and its coordinates */
  fl_form first_at[FL_MAX_DIMS];
  uint32_t entry[FUSE_MEMBERS];
  fuse_leaf leaves[FL_TILE_LEAVES];
  fuse_position positions[FL_TILE_POSITIONS];
  fuse_value values[FUSE_VALUES];
  fuse_value written[FL_TILE_STORES]; /* one for each slot */
  fli_graph graph;
} fuse_group;

/* What a launch of the window is to the planner: itself, or, if its row has
 * bodies (rows.h), one launch for each of them. */
typedef enum fuse_role {
  FUSE_LAUNCH,
  FUSE_BODY,  /* a body, or what it leaves */
  FUSE_BEGIN, /* the copy of x, or zeros, that a sum is added to */
  FUSE_SUM,   /* the sum */
  FUSE_WHOLE  /* both, as the row's own kernel */
} fuse_role;

typedef struct fuse_part {
  uint32_t origin; /* entry of the window */
  fuse_role role;
  const char *text; /* of the body; NULL: the launch itself */
  int parts;        /* of the origin */
  uint32_t reduced; /* dims of its space that the text reduces */
  int64_t count;    /* elements of a row of the origin */
  int n_more;
  int8_t more[FL_MAX_OUT];   /* its last inputs: these results of the row */
  int8_t writes[FL_MAX_OUT]; /* its results: of the row, or -1 - k: input k */
} fuse_part;

typedef struct fuse_step { /* of the plan: a group, or else a launch */
  fuse_group *group;
  uint32_t entry;
  fli_apart apart; /* of a launch of its own */
  uint32_t from;
} fuse_step;

typedef struct fuse {
  const fl_compiled *c;
  const fli_window *w;
  fli_plan *p;
  fl_runtime *rt;
  fl_status status; /* the first failure */
  uint32_t now;     /* the launch that is being added */
  /* why `now` did not fit into the first open group that it was tried with, and
   * a launch of that group */
  fli_apart apart, values; /* the latter: why values could not be had */
  uint32_t from;
  uint32_t merged; /* open groups whose launches become one group, a bit each */
  int most;        /* launches of a group */
  bool tiles;      /* the backend has the kernel */
  bool epilogues;  /* and that for expressions behind a row */
  const bool *closed; /* launches of the window that are not opened */
  uint32_t failed;    /* one whose parts do not all fuse; FUSE_NONE */
  bool *runs;         /* launches whose results are needed */
  /* the window's launches and operands, without equal results, and opened */
  uint32_t n, n_args;
  fli_entry *entries;
  fuse_part *parts;
  fli_arg *args;
  /* of slots */
  uint32_t *readers; /* open groups that read it, a bit each */
  uint32_t *last;    /* operand that wrote it last, FUSE_NONE */
  int8_t *writer;    /* the open group that writes it, -1 */
  uint8_t *opaque;   /* some launch that is not fused touches it */
  uint8_t *reads;    /* launches that read it; FUSE_READERS: or more */
  /* of operands that are written */
  uint32_t *before;   /* the one that wrote the slot before */
  uint32_t *entry_of; /* its launch */
  uint8_t *needed;    /* some kernel reads it from memory */
  fuse_group *groups[FUSE_OPEN];
  uint32_t n_steps, room, operands_room, members_room;
  fuse_step *steps;
  struct fli_recompute *recompute; /* or NULL (recompute.h) */
  fli_window repeated;             /* with launches that run a second time */
  fli_window chunked; /* with loops in place of launches (chunk.h) */
  uint32_t *origin;   /* of their launches in the window, repeated ones behind
                         the others; NULL: there are none */
  uint32_t n_loops;
  struct fli_loop *loops[FUSE_LOOPS];
} fuse;

static inline const fli_arg *fli_fuse_arg(const fuse *f, uint32_t k) {
  return &f->args[k];
}
/* The operand that wrote the slot last before launch `time`. */
static inline uint32_t fli_fuse_before(const fuse *f, int slot, uint32_t time) {
  uint32_t k = f->last[slot];
  while (k != FUSE_NONE && f->entry_of[k] >= time)
    k = f->before[k];
  return k;
}
/* Whether a launch of the window writes operand k. */
static inline bool fli_fuse_writes(const fuse *f, const fli_entry *e, int k) {
  return k >= e->n_in ||
         fli_op_writes(e->op, fli_entry_attrs(f->w, e), e->n_in, k);
}
/* The part that the launch is; its text is NULL if it is a whole launch. */
static inline const fuse_part *fli_fuse_part(const fuse *f,
                                             const fli_entry *e) {
  static const fuse_part whole = {0};
  return f->parts ? &f->parts[e - f->entries] : &whole;
}
/* The launch of the window that launch i of f->w is. */
static inline uint32_t fli_fuse_origin(const fuse *f, uint32_t i) {
  return f->origin ? f->origin[i] : i;
}
/* Whether a launch of the planner writes operand k. */
static inline bool fli_fuse_part_writes(const fuse *f, const fli_entry *e,
                                        int k) {
  return fli_fuse_part(f, e)->role != FUSE_LAUNCH ? k >= e->n_in
                                                  : fli_fuse_writes(f, e, k);
}
/* Whether memory of the slot has to be written whatever reads it. */
static inline bool fli_fuse_stays(const fuse *f, int slot) {
  return !f->w->slots[slot].made || f->p->held[slot];
}

/* --- group.c --- */

/* Whether the launch can be part of a group; if not, why. */
fli_apart fli_fuse_apart(const fuse *f, const fli_entry *e);
static inline bool fli_fuse_can(const fuse *f, const fli_entry *e) {
  return fli_fuse_apart(f, e) == FLI_APART_NOT;
}
fuse_group *fli_fuse_group_new(fuse *f);
void fli_fuse_group_free(fuse_group *g);
/* Adds the launch to group i, an open one. False: it does not fit, and the
 * group is as it was (or f->status is set). `close`: open groups that have to
 * run before. */
bool fli_fuse_join(fuse *f, int i, uint32_t entry, uint32_t *close);
/* A group for it alone. */
bool fli_fuse_begin(fuse *f, int i, uint32_t entry, uint32_t *close);
/* Whether it could join; `close` as above. */
bool fli_fuse_could_join(fuse *f, int i, uint32_t entry, uint32_t *close);

/* --- merge.c --- */

/* Makes one group of a and b, open ones, and sets *at to it. False: they do not
 * become one, and are as they were (or f->status is set). */
bool fli_fuse_merge(fuse *f, int a, int b, int *at);
/* Whether only groups that are being merged have written the slot since launch
 * `time`, and not what lay there before it. */
bool fli_fuse_merge_loads(const fuse *f, int slot, uint32_t time);

/* --- value.c --- */

/* The value of an element of memory, as launches before `time` have left it, in
 * group i; -1: without mask. */
bool fli_fuse_resolve(fuse *f, int i, int slot, fl_dtype dtype,
                      const fl_form *at, uint32_t time, int mask, int depth,
                      uint32_t *close, fl_value *v);
/* The results of the launch whose coordinates are `of`: a value for each. */
bool fli_fuse_build(fuse *f, int i, const fli_entry *e, const fl_form *of,
                    int mask, int depth, uint32_t *close, fl_value *v);
bool fli_fuse_reduce(fuse *f, int i, fl_reduction kind, fl_value v,
                     fl_value *out);
/* Coordinates of the launch as a form of memory. */
fl_form fli_fuse_access(const fli_arg *a, const fl_form *of, int dims);
/* The shape that the launch's loops run over. */
const fl_meta *fli_fuse_space(const fuse *f, const fli_entry *e);

bool fli_fuse_coordinate(fuse *f, int i, const fl_form *at, fl_value *v);

/* Marks the nodes that marked ones are made of, with `positions` those that
 * their loads go along, too. */
void fli_fuse_used(const fuse_group *g, uint8_t *used, bool positions);

/* --- column.c --- */

/* Whether the value is made of reductions among the first n leaves. */
bool fli_fuse_reduces(const fuse_group *g, fl_value v, int n_leaves);
/* Whether a sum over these dims of the nest may be stored as a column sum;
 * `rows`: of one value for each row. */
bool fli_fuse_is_column(const fuse_group *g, uint32_t summed, bool rows);
/* Whether the group's column sums go with rows of these dims. */
bool fli_fuse_columns_fit(const fuse_group *g, uint32_t inner);
/* A launch's result as a column sum: what is summed, and what the sum is
 * rounded to. False: it is no sum. */
bool fli_fuse_column(fuse *f, int i, fl_value *y, fl_dtype *round);
/* Whether group i may become one with other rows, or none, whose reductions are
 * column sums; makes it one. */
bool fli_fuse_turns(fuse *f, int i, uint32_t inner);
bool fli_fuse_turn(fuse *f, int i);
/* Whether the launch copies a column sum; what is then stored. */
bool fli_fuse_copies_column(fuse *f, int i, uint32_t entry, fuse_value *y);

/* --- gather.c --- */

/* Whether the launch reads elements at positions that kernels can find. */
bool fli_fuse_gathers(const fuse *f, const fli_entry *e);
bool fli_fuse_aligned(const fuse *f, const fli_entry *e, int k);
/* Whether a form goes along a position. */
bool fli_fuse_along(const fli_nest *nest, const fl_form *at);
/* Goes back to n positions; nothing has cut the nest since. */
void fli_fuse_forget_positions(fuse_group *g, int n);
bool fli_fuse_build_gather(fuse *f, int i, const fli_entry *e,
                           const fl_form *of, int mask, int depth,
                           uint32_t *close, fl_value *y);
bool fli_fuse_build_begin(fuse *f, int i, const fli_entry *e, const fl_form *of,
                          int mask, int depth, uint32_t *close, fl_value *y);
bool fli_fuse_build_sum(fuse *f, int i, const fli_entry *e, const fl_form *of,
                        uint32_t *close, fl_value *y, fl_form *to);
/* A sum at positions as two launches. */
bool fli_fuse_open_sum(fuse *f, uint32_t i);

/* --- equal.c --- */

/* Leaves out launches that compute again what an earlier one has computed: what
 * reads their results reads the earlier one's. */
fl_status fli_fuse_equal(fuse *f);

/* --- place.c --- */

/* Lets launches write into the region that their result would be copied to; the
 * copies are left out. */
fl_status fli_fuse_place(fuse *f);

/* --- early.c --- */

/* The launches of the window in the order in which they are planned. */
fl_status fli_fuse_early(const fuse *f, uint32_t *order);

/* --- open.c --- */

/* Makes f->entries, f->parts, and room for the operands of parts. */
fl_status fli_fuse_open(fuse *f);

/* --- batch.c --- */

/* Makes one step of copies that are steps of their own, if their order allows
 * it. */
fl_status fli_fuse_batch(fuse *f);

/* --- emit.c --- */

/* Makes room for n operands of the plan's steps. */
fl_status fli_fuse_operands(fuse *f, uint32_t n);

fl_status fli_fuse_emit(fuse *f);

/* --- epilogue.c --- */

/* The step whose result step s could compute with in the kernel of that step,
 * if it ran right before s; -1: there is none. */
int fli_fuse_leader(const fuse *f, uint32_t s);
/* Whether the group is one launch that a library may run in the kernel of a
 * product that it reads, which is faster than to have sums of it in a tile. */
bool fli_fuse_in_product(const fuse *f, const fuse_group *g);
/* Makes one step of that of the leader, the launch `origin` of the window,
 * which is the last but a few, and x, an expression whose input `result` is its
 * result. */
fl_status fli_fuse_lead(fuse *f, uint32_t origin, int result, fli_step *x);
/* Leaves results of leaders that nothing else reads without memory. */
void fli_fuse_lead_finish(fuse *f);

/* --- memory.c --- */

/* Operand k of a step in memory, of so many: its slot, less than 0: it is not
 * in memory, and whether it is written. */
int fli_fuse_step_operand(const fuse *f, const fli_step *x, int k,
                          bool *writes);
int fli_fuse_step_operands(const fuse *f, const fli_step *x);

/* Orders the steps of the plan, lists when memory comes and goes, and finds out
 * how much of it there is at most. */
fl_status fli_fuse_memory(fuse *f);

/* --- explain.c --- */

/* Lists the launches that the kernel of g holds: those with a node that is
 * used. */
fl_status fli_explain_members(fuse *f, const fuse_group *g, const uint8_t *used,
                              fli_step *x);
/* Adds the leader, a launch of the window, before those of the kernel. */
fl_status fli_explain_leader(fuse *f, uint32_t origin, fli_step *x);
fl_status fli_explain_owners(fuse *f); /* when all are listed */

#endif
