/* Column sums of a tile on a GPU: blocks keep to a part of the rows, threads to
 * their elements of a row, and add what sum stores sum in registers; a second
 * kernel adds the parts, in the same order every time. Names are those of
 * tile_text.c, and
 *   t<k>: a thread's sums of store k; part, over: the block's rows */
#include "tile_text.h"

#include <string.h>

#define THREADS 512 /* of a block of short rows, and of the second kernel */
#define JOINED  16  /* threads of the second kernel for a sum, at most */
#define KEPT    384 /* bytes of values and sums that a thread keeps */

#define EACH_SUM(k, p)                                                         \
  for (int k = 0; k < (p)->t->n_stores; k++)                                   \
    if (fl_store_sums(&(p)->t->stores[k]))

/* Whether there is a sum for each element of a row. */
static bool is_wide(const tile_plan *p, int k) {
  bool wide = false;
  for (int d = p->n_outer; d < p->n_dims; d++)
    wide = wide || p->store[k].coef[d];
  return wide;
}

static int64_t row_cells(const tile_plan *p, int k) {
  return is_wide(p, k) ? p->reduced : 1;
}

static const char *sum_type(const tile_plan *p, int k) {
  return value_type(p, store_value(p, k));
}

/* Sums of parts: each segment has its own, if rows are summed, too. */
static int sum_parts(const tile_plan *p, int k) {
  return is_wide(p, k) ? p->parts : p->parts * p->segments;
}

static bool in_memory(const tile_plan *p, int k) {
  return is_wide(p, k) && !p->kept;
}

static int thread_sums(const tile_plan *p, int k) {
  return is_wide(p, k) ? p->chunks * p->v : 1;
}

/* --- the plan --- */

static int power_up(int64_t n, int most) {
  int k = 1;
  while (k < n && k < most)
    k *= 2;
  return k;
}

/* Rows of any length, cut where a thread's sums would be too many. */
static void plan_one_pass(tile_plan *p, int64_t vectors, int bytes) {
  int64_t most = KEPT / 2 / (p->v * bytes);
  most = most < 1 ? 1 : most > 8 ? 8 : most;
  int least = power_up(vectors, 32);
  p->lanes = power_up(fl_ceil_div(vectors, most), THREADS / 2);
  p->lanes = p->lanes < least ? least : p->lanes;
  int64_t chunks = fl_ceil_div(vectors, p->lanes);
  p->chunks = (int)(chunks < most ? chunks : most);
  p->segment = (int64_t)p->lanes * p->v * p->chunks;
  p->segments = p->writes_inner ? (int)fl_ceil_div(p->reduced, p->segment) : 1;
  p->groups = THREADS / p->lanes;
}

/* Rows that are reduced are whole: false, if they do not fit the registers. */
static bool plan_passes(tile_plan *p, int64_t vectors, int bytes) {
  p->lanes = power_up(vectors, 32);
  p->chunks = (int)fl_ceil_div(vectors, p->lanes);
  p->groups = THREADS / p->lanes;
  if ((vectors <= 32 || p->reduced <= 1024) &&
      (int64_t)p->chunks * p->v * bytes <= KEPT)
    return true;
  p->groups = 1;
  for (p->lanes = 128; p->lanes <= 1024; p->lanes *= 2) {
    int64_t chunks = fl_ceil_div(vectors, p->lanes),
            keeps = chunks * p->v * bytes;
    p->chunks = (int)chunks;
    if (keeps <= (p->lanes == 1024 ? KEPT / 3 : KEPT / 2))
      return true;
  }
  p->lanes = 512;
  return false;
}

void flc_columns_plan(tile_plan *p, int processors) {
  int64_t vectors = fl_ceil_div(p->reduced, p->v);
  int bytes = flc_tile_kept_bytes(p);
  EACH_SUM(k, p)
  bytes += !is_wide(p, k) ? 0 : sum_type(p, k)[0] == 'd' ? 8 : 4;
  p->kept = p->f.phases <= TILE_PASSES;
  p->segments = p->kernels = 1;
  p->segment = p->reduced;
  p->resident = 0;
  if (p->f.phases == 1)
    plan_one_pass(p, vectors, bytes ? bytes : 1);
  else if (!plan_passes(p, vectors, bytes ? bytes : 1) || !p->kept) {
    p->kept = false;
    p->chunks = 1;
  }
  int threads = p->lanes * p->groups;
  int64_t blocks = (int64_t)processors * (threads < 512    ? 4
                                          : threads < 1024 ? 2
                                                           : 1),
          most = fl_ceil_div(p->turns, p->groups),
          parts = fl_ceil_div(blocks, p->over * p->segments);
  p->parts = (int)(parts < most ? parts : most);
}

size_t flc_columns_scratch(const tile_plan *p) {
  size_t cells = 0;
  EACH_SUM(k, p)
  cells += (size_t)(row_cells(p, k) * p->over * sum_parts(p, k));
  return cells * 8;
}

/* --- the first kernel --- */

/* Where the parts' sums of store k lie. */
static void put_parts(tile_text *to, const tile_plan *p, int k) {
  int64_t before = 0;
  EACH_SUM(i, p)
  before += i < k ? row_cells(p, i) * p->over * sum_parts(p, i) : 0;
  flc_put(to, "((%s *)(a.at[%d] + %lldLL))", sum_type(p, k),
          p->t->n_in + p->t->n_out, (long long)before * 8);
}

/* Opens the loop over the block's rows. */
void flc_columns_begin(tile_text *to, const tile_plan *p) {
  flc_put(to,
          "const int part = blockIdx.x %% %d;\nconst ix over = blockIdx.x / "
          "%d;\n",
          p->parts, p->parts);
  EACH_SUM(k, p) {
    flc_put(to, "%s t%d[%d] = {};\n", sum_type(p, k), k,
            in_memory(p, k) ? 1 : thread_sums(p, k));
    if (!in_memory(p, k))
      continue;
    flc_put(to, "%s *const p%d = ", sum_type(p, k), k);
    put_parts(to, p, k);
    flc_put(to, " + ((int64_t)part * %lldLL + over) * %lldLL;\n",
            (long long)p->over, (long long)p->reduced);
  }
  flc_put(to,
          "#pragma unroll 1\nfor (ix base = part * %d; base < %lld; base += "
          "%lld) {\nconst ix wanted = base + group;\nconst bool on = wanted < "
          "%lld;\nconst ix row = over * %lld + (on ? wanted : %lld);\n",
          p->groups, (long long)p->turns, (long long)p->parts * p->groups,
          (long long)p->turns, (long long)p->turns, (long long)p->turns - 1);
}

/* Adds value v to store k; `j`: of an element of a row. */
void flc_columns_add(tile_text *to, const tile_plan *p, int k, bool j) {
  int v = store_value(p, k);
  flc_put(to, rows_left(p) ? "if (on) " : "");
  if (j && in_memory(p, k))
    flc_put(to,
            "p%d[r + j] = (base == part * %d ? 0 : p%d[r + j]) + (%s)v%d;\n", k,
            p->groups, k, sum_type(p, k), v);
  else if (j && is_wide(p, k))
    flc_put(to, "t%d[c * %d + j] += (%s)v%d;\n", k, p->v, sum_type(p, k), v);
  else
    flc_put(to, "t%d[0] += (%s)v%d;\n", k, sum_type(p, k), v);
}

/* Closes the loop, joins the threads' sums, and writes the block's. */
void flc_columns_end(tile_text *to, const tile_plan *p) {
  flc_put(to, p->lanes > 32 ? "__syncthreads();\n}\n" : "}\n");
  flc_put(to, "__shared__ double sums[%d];\n", 4 * p->lanes * p->groups);
  EACH_SUM(k, p) {
    if (in_memory(p, k))
      continue;
    if (!is_wide(p, k)) {
      flc_put(to,
              "t%d[0] = tile_block<%d>(t%d[0], (%s *)sums);\nif (threadIdx.x "
              "== 0) ",
              k, p->lanes * p->groups, k, sum_type(p, k));
      put_parts(to, p, k);
      flc_put(to,
              "[((int64_t)part * %d + blockIdx.y) * %lldLL + over] = t%d[0];\n",
              p->segments, (long long)p->over, k);
      continue;
    }
    flc_put(to, "tile_groups<%d, %d>(t%d, (%s *)sums, lane, group);\n",
            p->lanes, p->groups, k, sum_type(p, k));
    flc_put(to, "if (group == 0) {\n%s *const to = ", sum_type(p, k));
    put_parts(to, p, k);
    flc_put(to,
            " + ((int64_t)part * %lldLL + over) * %lldLL;\n#pragma unroll\nfor "
            "(int c = 0; c < %d; c++) {\nconst ix r = blockIdx.y * (ix)%lld + "
            "(c * %d + lane) * %d;\nif (r < %lld)\n",
            (long long)p->over, (long long)p->reduced, p->chunks,
            (long long)p->segment, p->lanes, p->v, (long long)p->reduced);
    flc_put_each(to, p->v);
    flc_put(to, "to[r + j] = t%d[c * %d + j];\n}\n}\n}\n", k, p->v);
  }
}

/* --- the second kernel --- */

/* Threads that share the parts of a sum. */
static int end_lanes(const tile_plan *p) {
  int most = 1;
  EACH_SUM(k, p)
  most = sum_parts(p, k) > most ? sum_parts(p, k) : most;
  return power_up(most, JOINED);
}

static int64_t sum_blocks(const tile_plan *p, int k) {
  return fl_ceil_div(row_cells(p, k) * p->over, THREADS / end_lanes(p));
}

int64_t flc_columns_blocks(const tile_plan *p, int *threads) {
  int64_t blocks = 0;
  EACH_SUM(k, p)
  blocks += sum_blocks(p, k);
  *threads = THREADS;
  return blocks;
}

static void put_total(tile_text *to, const tile_plan *p, int k) {
  const fl_store *x = &p->t->stores[k];
  const char *type = sum_type(p, k);
  int64_t cells = row_cells(p, k) * p->over;
  flc_put(to, "%s s = 0;\nif (cell < %lld)\n", type, (long long)cells);
  flc_put(to, "#pragma unroll 8\nfor (int g = lane; g < %d; g += %d) s += ",
          sum_parts(p, k), end_lanes(p));
  put_parts(to, p, k);
  flc_put(to,
          "[(int64_t)g * %lldLL + cell];\ns = tile_down<%d, %d>(s, (%s "
          "*)sums, column, lane);\nif (lane == 0 && cell < %lld) {\n",
          (long long)cells, THREADS / end_lanes(p), end_lanes(p), type,
          (long long)cells);
  flc_put(to, "const ix over = cell / %lld, r = cell %% %lld;\n",
          (long long)row_cells(p, k), (long long)row_cells(p, k));
  flc_put_coordinates(to, p, "over", 0, p->n_kept);
  if (is_wide(p, k))
    flc_put_coordinates(to, p, "r", p->n_outer, p->n_dims);
  if (x->round == FL_F16 || x->round == FL_BF16)
    flc_put(to, "s = tile_get<%s>(tile_put<%s>(s));\n", type,
            x->round == FL_F16 ? "f16" : "bf16");
  flc_put(to, "tile_store(out%d + ", x->operand);
  flc_put_form(to, p, &p->store[k], &x->at, false);
  flc_put(to, ", tile_put<%s>(s));\n}\n}\n",
          flc_memory_type(p, p->t->n_in + x->operand));
}

void flc_columns_text(tile_text *to, const tile_plan *p) {
  int64_t before = 0;
  int columns = THREADS / end_lanes(p);
  flc_put(to,
          "const int column = threadIdx.x %% %d, lane = threadIdx.x / "
          "%d;\n__shared__ double sums[%d];\n",
          columns, columns, THREADS);
  EACH_SUM(k, p) {
    int64_t end = before + sum_blocks(p, k);
    flc_put(to,
            "if (blockIdx.x >= %lld && blockIdx.x < %lld) {\nconst ix cell = "
            "(blockIdx.x - %lld) * %d + column;\n",
            (long long)before, (long long)end, (long long)before, columns);
    put_total(to, p, k);
    before = end;
  }
}
