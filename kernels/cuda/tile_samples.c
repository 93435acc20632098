/* Samples of tiles for the check of kernels, since tiles of users are in no
 * pack. */
#include "tile.h"
#include "driver/process.h"

#include <stdlib.h>

/* x / sum(x) of bf16, the sums as f32, and sums over the rows. */
static void visit_sample(flc_visitor *v, int64_t rows, int64_t reduced,
                         bool columns, bool stores_all, bool sums) {
  static const uint8_t types[] = {FL_F32, FL_F32};
  static const fl_instr divide = {FL_ROW_div, FL_F32, FL_F32, 2,
                                  0,          {0, 1}, {0}};
  static const uint16_t out[] = {0, 1, 2};
  static const flc_chip chip = {9, 0, 132, 50 << 20, 227 << 10};
  fl_program body = {.n_in = 2,
                     .n_instr = 1,
                     .n_out = 3,
                     .in_type = types,
                     .instrs = &divide,
                     .out = out};
  fl_form at = {.coef = {columns ? 1 : reduced, columns ? rows : 1}};
  fl_leaf leaves[] = {{FL_LEAF_LOAD, 0, 0, -1, -1, at},
                      {FL_LEAF_REDUCE, FL_REDUCE_SUM, -1, 0, -1, {0, {0}}}};
  fl_store stores[] = {{0, 1, {0, {1}}, 0, 0},
                       {1, 2, at, 0, 0},
                       {2, 2, {0, {0, 1}}, FL_STORE_SUM, 0}};
  fl_tile t = {.body = &body,
               .n_dims = 2,
               .n_inner = 1,
               .n_stores = 1 + stores_all + sums,
               .n_in = 1,
               .n_out = 2 + sums,
               .shape = {rows, reduced},
               .leaves = leaves,
               .stores = stores};
  uint64_t of[] = {(uint64_t)rows, (uint64_t)reduced, columns, stores_all,
                   sums};
  uint64_t key = flc_hash(FLC_HASH, of, sizeof of);
  const char *text = flc_text_find(key);
  tile_plan *p = text ? NULL : calloc(1, sizeof *p);
  if (p) {
    p->t = &t;
    p->aligned = 15;
    p->dtype[0] = p->dtype[2] = FL_BF16;
    p->dtype[1] = p->dtype[3] = FL_F32;
    text = flc_tile_texts(p, key, &chip);
    free(p);
  }
  for (uint64_t k = 0; text && (text = flc_text_find(key + k)); k++) {
    flc_spec spec = {.file = "tile", .entry = "tile", .soon = true};
    spec.text = text;
    v->spec(v, &spec, k == 0);
  }
}

void flc_visit_tile(flc_visitor *v) {
  visit_sample(v, 4096, 768, false, true, false);     /* a warp a row */
  visit_sample(v, 4096, 8192, false, true, false);    /* a block, values kept */
  visit_sample(v, 4096, 1 << 18, false, true, false); /* loaded again */
  visit_sample(v, 4096, 200, true, true, false);      /* columns */
  visit_sample(v, 768, 1 << 16, true, false, false);  /* columns in segments */
  visit_sample(v, 4096, 768, false, true, true); /* column sums beside rows */
  visit_sample(v, 4096, 8192, false, true, true);
  visit_sample(v, 4096, 1 << 18, false, true, true); /* sums in memory */
}
