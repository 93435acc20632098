/* The reductions of a tile's kernel as CUDA text: sums of a thread, of the
 * threads of a row, of the blocks of a row that is cut into segments. Names are
 * those of tile_text.c, and
 *   z<n>: a vector's values for sum n; q<n>: moments (tile.cuh) of a row */
#include "tile_text.h"

#include <string.h>

int flc_sums_owner(const tile_plan *p, int v) {
  for (int k = 0; k < v && is_moment(p, v); k++)
    if (is_moment(p, k) && p->live[k] &&
        flc_tile_value(p, leaf_of(p, k)->source) ==
            flc_tile_value(p, leaf_of(p, v)->source))
      return k;
  return v;
}

/* What sums are, on their way. */
static const char *sum_type(const tile_plan *p, int k) {
  const char *type = value_type(p, k);
  return !is_moment(p, k) ? type
         : type[0] == 'd' ? "tile_moments<double>"
                          : "tile_moments<float>";
}

/* Partial sums of a thread for reduction `of`: in columns one for each of its
 * rows. */
static int partials(const tile_plan *p, int of) {
  int n = 0;
  if (p->columns)
    return p->v;
  if (is_moment(p, of)) /* which takes whole vectors */
    return 1;
  EACH_REDUCTION(k, p->f.phase[of])
  n += !is_moment(p, k);
  return n * p->v > 32 ? 1 : p->v;
}

static const char *identity(const tile_plan *p, int k) {
  static const char *const real[] = {"", "0", "1", "-INFINITY", "INFINITY"};
  static const char *const whole[] = {"", "0", "1", "INT64_MIN", "INT64_MAX"};
  fl_dtype d = fl_program_type(p->t->body, k);
  return (fl_dtype_is_float(d) ? real : whole)[leaf_of(p, k)->reduction];
}

void flc_sums_begin(tile_text *to, const tile_plan *p, int phase) {
  EACH_REDUCTION(k, phase) {
    int n = partials(p, k);
    flc_put(to, "%s s%d[%d]%s;\n", sum_type(p, k), k, n,
            is_moment(p, k) ? " = {}" : "");
    if (!is_moment(p, k))
      flc_put(to, "#pragma unroll\nfor (int j = 0; j < %d; j++) s%d[j] = %s;\n",
              n, k, identity(p, k));
  }
}

/* --- adding --- */

/* Rows take the values of a vector together. */
static bool is_held(const tile_plan *p, int k) {
  return is_moment(p, k) && !p->columns;
}

void flc_sums_hold(tile_text *to, const tile_plan *p, int phase) {
  EACH_REDUCTION(k, phase)
  if (is_held(p, k))
    flc_put(to, "%s z%d[%d];\n", value_type(p, k), k, p->v);
}

void flc_sums_add(tile_text *to, const tile_plan *p, int k, int v) {
  const char *at = partials(p, k) == 1 ? "0" : "j";
  if (is_held(p, k))
    flc_put(to, "z%d[j] = (%s)v%d;\n", k, value_type(p, k), v);
  else
    flc_put(to, "s%d[%s] = tile_join<%d>(s%d[%s], (%s)v%d);\n", k, at,
            leaf_of(p, k)->reduction, k, at, value_type(p, k), v);
}

void flc_sums_take(tile_text *to, const tile_plan *p, int phase) {
  EACH_REDUCTION(k, phase)
  if (is_held(p, k))
    flc_put(to, "tile_take(s%d[0], z%d);\n", k, k);
}

/* --- moments: settled after 1, 2, 4, ... turns, since the first elements say
 * little of the mean of many --- */

static bool settles_often(const tile_plan *p, int phase) {
  bool any = false;
  EACH_REDUCTION(k, phase)
  any = any || is_moment(p, k);
  return any && !p->kept;
}

void flc_sums_turns(tile_text *to, const tile_plan *p, int phase) {
  if (settles_often(p, phase))
    flc_put(to, "int turn = 0;\n");
}

void flc_sums_turn(tile_text *to, const tile_plan *p, int phase) {
  if (!settles_often(p, phase))
    return;
  flc_put(to, "turn++;\nif ((turn & (turn - 1)) == 0) {\n");
  EACH_REDUCTION(k, phase)
  if (is_moment(p, k))
    flc_put(to,
            "#pragma unroll\nfor (int j = 0; j < %d; j++) s%d[j] = "
            "tile_settled(s%d[j]);\n",
            partials(p, k), k, k);
  flc_put(to, "}\n");
}

/* --- joining the threads of a row --- */

/* Sums over the columns of a block, in `to`. */
static void put_columns_end(tile_text *to, const tile_plan *p, int k) {
  const char *type = sum_type(p, k);
  char name = is_moment(p, k) ? 'q' : 'r';
  flc_put(to, "%s %c%d[%d];\n", type, name, k, p->v);
  flc_put(to, "#pragma unroll\nfor (int j = 0; j < %d; j++) ", p->v);
  flc_put(to,
          is_moment(p, k) ? "q%d[j] = tile_settled(s%d[j]);\n"
                          : "r%d[j] = s%d[j];\n",
          k, k);
  if (p->lanes > 1)
    flc_put(to,
            "tile_columns<%d, %d, %d, %d>(%c%d, (%s *)shared, lane, group);\n",
            leaf_of(p, k)->reduction, p->lanes, p->groups, p->v, name, k, type);
}

/* Sums of the threads of a warp. */
static void put_lanes_end(tile_text *to, const tile_plan *p, int k) {
  int r = leaf_of(p, k)->reduction, n = partials(p, k);
  const char *type = sum_type(p, k);
  char name = is_moment(p, k) ? 'q' : 'v';
  flc_put(to,
          is_moment(p, k) ? "%s %c%d = tile_settled(s%d[0]);\n"
                          : "%s %c%d = s%d[0];\n",
          type, name, k, k);
  if (n > 1)
    flc_put(to,
            "#pragma unroll\nfor (int j = 1; j < %d; j++) v%d = "
            "tile_join<%d>(v%d, s%d[j]);\n",
            n, k, r, k, k);
  flc_put(to, "%c%d = tile_lanes<%d, %d>(%c%d);\n", name, k, r,
          p->lanes > 32 ? 32 : p->lanes, name, k);
  if (p->lanes > 32)
    flc_put(to,
            "__shared__ %s w%d[%d];\nif ((lane & 31) == 0) w%d[lane >> 5] = "
            "%c%d;\n",
            type, k, p->lanes / 32, k, name, k);
}

/* The mean and the deviation, of those that are used. */
static void put_moments(tile_text *to, const tile_plan *p, int phase) {
  static const char *const names[] = {"mean", "deviation"};
  for (int k = 0; k < n_in(p); k++) {
    if (!is_moment(p, k) || !p->live[k] || p->f.phase[k] != phase)
      continue;
    const char *name = names[leaf_of(p, k)->reduction - FL_REDUCE_MEAN];
    flc_put(to,
            p->columns ? "%s r%d[%d];\n" : "const %s v%d = ", value_type(p, k),
            k, p->v);
    if (p->columns)
      flc_put(to,
              "#pragma unroll\nfor (int j = 0; j < %d; j++) r%d[j] = ", p->v,
              k);
    flc_put(to, "tile_%s(q%d%s);\n", name, flc_sums_owner(p, k),
            p->columns ? "[j]" : "");
  }
}

/* The sums of all threads of a row, in each of them. */
void flc_sums_end(tile_text *to, const tile_plan *p, int phase) {
  EACH_REDUCTION(k, phase)
  (p->columns ? put_columns_end : put_lanes_end)(to, p, k);
  if (!p->columns && p->lanes > 32) {
    flc_put(to, "__syncthreads();\n");
    EACH_REDUCTION(k, phase)
    flc_put(to, "%c%d = tile_warps<%d, %d>(w%d);\n",
            is_moment(p, k) ? 'q' : 'v', k, leaf_of(p, k)->reduction,
            p->lanes / 32, k);
  }
  put_moments(to, p, phase);
}

/* Where the segments' sums of a reduction lie. */
static void put_parts(tile_text *to, const tile_plan *p, int k) {
  int which = 0;
  for (int i = 0; i < k; i++)
    which += flc_tile_cells(p, i);
  flc_put(to, "((%s *)(a.at[%d] + %lldLL))", sum_type(p, k),
          p->t->n_in + p->t->n_out,
          (long long)which * p->segments * p->rows * 8);
}

/* The sums of an earlier kernel's segments, in the same order every time. */
void flc_sums_again(tile_text *to, const tile_plan *p, int phase) {
  flc_sums_begin(to, p, phase);
  EACH_REDUCTION(k, phase) {
    int r = leaf_of(p, k)->reduction;
    flc_put(to, "#pragma unroll 4\nfor (int g = lane; g < %d; g += %d)\n",
            p->segments, p->lanes);
    if (p->columns)
      flc_put_each(to, p->v);
    flc_put(to, "s%d[%s] = tile_join<%d>(s%d[%s], ", k, p->columns ? "j" : "0",
            r, k, p->columns ? "j" : "0");
    put_parts(to, p, k);
    flc_put(to, "[(int64_t)g * %lldLL + row%s]);\n", (long long)p->rows,
            p->columns ? " + j" : "");
    flc_put(to, p->columns ? "}\n" : "");
  }
  flc_sums_end(to, p, phase);
}

void flc_sums_away(tile_text *to, const tile_plan *p, int phase) {
  flc_put(to, "if (%s%s) {\n", rows_left(p) ? "on" : "true",
          p->lanes > 1 ? " && lane == 0" : "");
  EACH_REDUCTION(k, phase) {
    if (p->columns)
      flc_put_each(to, p->v);
    put_parts(to, p, k);
    flc_put(to, "[(int64_t)blockIdx.y * %lldLL + row%s] = %c%d%s;\n",
            (long long)p->rows, p->columns ? " + j" : "",
            is_moment(p, k) ? 'q'
            : p->columns    ? 'r'
                            : 'v',
            k, p->columns ? "[j]" : "");
    flc_put(to, p->columns ? "}\n" : "");
  }
  flc_put(to, "}\n");
}

int flc_sums_shared(const tile_plan *p) {
  int bytes = 8;
  for (int k = 0; k < n_in(p); k++)
    if (is_moment(p, k) && p->live[k]) {
      int size = 4 * (int)fl_dtype_size(fl_program_type(p->t->body, k));
      bytes = size > bytes ? size : bytes;
    }
  return p->v * bytes;
}
