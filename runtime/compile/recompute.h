/* Values that are computed a second time, where something far behind reads
 * them, instead of being kept from their launch on. recompute.c chooses them;
 * repeat.c puts the launches that make them into the planner's window, and runs
 * them beside those of the window. */
#ifndef FL_COMPILE_RECOMPUTE_H
#define FL_COMPILE_RECOMPUTE_H

#include "fuse.h"

struct fli_recompute {
  /* of slots: launches from this one on read a second copy; FUSE_NONE: none */
  uint32_t *from;
  bool any;
  /* of the window as the planner sees it without them, after equal results and
   * places; `cheap`: launches that fuse */
  bool noted;
  fli_arg *args;
  bool *runs;
  uint8_t *cheap;
  size_t chunk; /* as that of fl_compiled; 0: that one */
};

/* What the plan needs is made less: by default where it costs nearly nothing,
 * with a cap until it is kept. p is built; or, if `later` is no NULL and
 * becomes true, the search goes on in the next call for such a window: a call
 * then makes one plan. */
fl_status fli_recompute(fl_compiled *c, fli_plan *p, const fli_window *w,
                        bool *later);
void fli_recompute_forget(fli_plan *p);

/* --- cap.c --- */

/* Bytes that the plan may need, where the function has a cap. */
size_t fli_cap_room(const fl_compiled *c, const fli_plan *p,
                    const fli_window *w);
/* Whether the plan that is there holds the cap; if not, why. */
bool fli_cap_holds(const fl_compiled *c, const fli_plan *p, const fli_window *w,
                   fl_status *status);
/* Around a run: what kernels need beside the plan's memory. True: with it the
 * cap was exceeded, so the plan has to be made anew. */
size_t fli_cap_begin(const fli_window *w);
bool fli_cap_end(const fl_compiled *c, fli_plan *p, const fli_window *w,
                 size_t before, size_t peak);

/* --- repeat.c --- */

/* Remembers the launches for the choice. */
fl_status fli_repeat_note(fuse *f);
/* f->w becomes f->repeated, with the repeated launches right before the first
 * that reads what they make. */
fl_status fli_fuse_repeat(fuse *f);
void fli_repeat_close(fuse *f);
/* Repeated launches become members of kernels as what they repeat. */
void fli_repeat_finish(fuse *f);

#endif
