/* y = softmax(scale q k^T) v of one head, for q (t, d), k and v (s, d): 16
 * queries and 16 keys at a time, with a running maximum and sum of each query.
 * While a tile of keys is used, the next one is read. */
#include "kernels.h"
#include "tile.h"

#define SHARE_BITS 15 /* of exponentials, which are at most 1 */

/* What a tile of queries has so far: sums of values, of exponentials, and the
 * maximum of scores. */
typedef struct state {
  float y[TILE][CHUNK], sum[TILE], most[TILE];
} state;

/* Exponentials of scores in Q0.15, and by what earlier sums shrink. `seen` is
 * how many keys of this tile the first query sees; the next one sees one more.
 */
static void weigh_scores(CLOCK float s[TILE][TILE], int m, int n, float scale,
                         int seen, const int32_t *exps, state *st,
                         uint16_t p[TILE][TILE], float shrink[TILE]) {
#pragma HLS INLINE off
  LOOP(LOOK_DEPTH + 2 * ADD_DEPTH, TILE); /* a row of 16 scores each cycle */
  for (int i = 0; i < m; i++) {
#pragma HLS PIPELINE II = 1
    float most = st->most[i], base;
    int32_t total = 0;
    for (int j = 0; j < n; j++) {
#pragma HLS UNROLL
      s[i][j] = j < seen + i ? s[i][j] * scale : -INFINITY;
      most = s[i][j] > most || s[i][j] != s[i][j] ? s[i][j] : most;
    }
    base = most == -INFINITY ? 0 : most;
    shrink[i] = exp_by(exps, st->most[i] - base);
    for (int j = 0; j < n; j++) {
#pragma HLS UNROLL
      float x = exp_by(exps, s[i][j] - base);
      p[i][j] = x == x ? (uint16_t)(ldexpf(x, SHARE_BITS) + 0.5f) : 0;
      total += p[i][j];
    }
    st->sum[i] = st->sum[i] * shrink[i] + ldexpf((float)total, -SHARE_BITS);
    st->most[i] = most;
  }
}

/* y = y shrink + p v, with one exponent for the tile of v. */
static void add_values(CLOCK uint16_t p[TILE][TILE], const float shrink[TILE],
                       const rows *v, int m, int n, int d, state *st) {
#pragma HLS INLINE off
  int64_t acc[TILE][CHUNK] = {{0}}; /* 48 bits */
#pragma HLS ARRAY_PARTITION variable = acc cyclic factor = 16 dim = 2
  int e = 0;
  for (int j = 0; j < n; j++)
#pragma HLS UNROLL
    e = v->e[j] > e ? v->e[j] : e;
  LOOP(MAC_DEPTH, (int64_t)n * beats_of(d, TILE));
  for (int j = 0; j < n; j++)
    for (int c = 0; c < d; c += TILE) {
#pragma HLS PIPELINE II = 1
      for (int t = 0; t < TILE; t++) {
#pragma HLS UNROLL
        int16_t q = c + t < d ? to_fixed(v->x[j][c + t], e) : 0;
        for (int i = 0; i < TILE; i++)
#pragma HLS UNROLL
          if (i < m && c + t < d)
            acc[i][c + t] += (int32_t)p[i][j] * q;
      }
    }
  LOOP(2 * ADD_DEPTH, (int64_t)m * beats_of(d, TILE));
  for (int i = 0; i < m; i++)
    for (int c = 0; c < d; c++) {
#pragma HLS PIPELINE II = 1
#pragma HLS UNROLL factor = 16
      st->y[i][c] =
          st->y[i][c] * shrink[i] + from_fixed(acc[i][c], e, 141 - SHARE_BITS);
    }
}

static void store_queries(CLOCK const state *st, int m, int d, int y_row,
                          float *y, float *stats) {
#pragma HLS INLINE off
  LOOP(DIV_DEPTH + WRITE_DEPTH, (int64_t)m * beats_of(d, lanes_of(y_row, 1)));
  for (int i = 0; i < m; i++) {
    stats[2 * i] = st->most[i];
    stats[2 * i + 1] = st->sum[i];
    for (int c = 0; c < d; c++) {
#pragma HLS PIPELINE II = 1
#pragma HLS UNROLL factor = 16
      y[(int64_t)i * y_row + c] =
          st->sum[i] == 0 ? 0 : st->y[i][c] / st->sum[i];
    }
  }
}

static void load_keys(CLOCK const float *k, int k_row, const float *v,
                      int v_row, int j, int n, int d, rows *to_k, rows *to_v) {
#pragma HLS INLINE off
  FORK(one, other);
  load_rows(ON(one) k + (int64_t)j * k_row, k_row, 1, n, d, to_k);
  load_rows(ON(other) v + (int64_t)j * v_row, v_row, 1, n, d, to_v);
  JOIN(one, other);
}

/* With causal, query i sees the keys up to i + s - t. stats (t, 2) gets the
 * maximum and the sum of each query; d is 1 to 512. */
void fl_fpga_attention(CLOCK const float *q, const float *k, const float *v,
                       const int32_t *table, float *y, float *stats, int t,
                       int s, int d, int q_row, int k_row, int v_row, int y_row,
                       float scale, int causal) {
#pragma HLS INTERFACE m_axi port = q bundle = gmem0 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = k bundle = gmem1 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = v bundle = gmem2 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = table bundle = gmem0 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = y bundle = gmem3 max_widen_bitwidth = 512
#pragma HLS INTERFACE m_axi port = stats bundle = gmem4
#pragma HLS INTERFACE s_axilite port = return
  rows queries, keys[2], values[2];
  state st;
  uint16_t p[TILE][TILE];
  float shrink[TILE];
  int32_t exps[TABLE + 1];
#pragma HLS ARRAY_PARTITION variable = keys complete dim = 1
#pragma HLS ARRAY_PARTITION variable = values complete dim = 1
  load_table(ON(clock) table, exps);
  for (int i = 0; i < t; i += TILE) {
    int m = tile_rows(t, i), seen = causal ? i + s - t + 1 : s;
    int last = seen + (causal ? m - 1 : 0); /* keys that some query sees */
    last = last > s ? s : last;
    for (int r = 0; r < TILE; r++) {
#pragma HLS UNROLL
      st.sum[r] = 0;
      st.most[r] = -INFINITY;
      for (int c = 0; c < CHUNK; c++)
        st.y[r][c] = 0;
    }
    load_rows(ON(clock) q + (int64_t)i * q_row, q_row, 1, m, d, &queries);
    if (last > 0)
      load_keys(ON(clock) k, k_row, v, v_row, 0, tile_rows(s, 0), d, &keys[0],
                &values[0]);
    for (int j = 0, here = 0; j < last; j += TILE, here = !here) {
      int n = tile_rows(s, j);
      float scores[TILE][TILE] = {{0}};
      FORK(reads, works);
      if (j + TILE < last)
        load_keys(ON(reads) k, k_row, v, v_row, j + TILE,
                  tile_rows(s, j + TILE), d, &keys[!here], &values[!here]);
      multiply_rows(ON(works) & queries, &keys[here], m, n, d, scores);
      weigh_scores(ON(works) scores, m, n, scale, causal ? seen - j : s, exps,
                   &st, p, shrink);
      add_values(ON(works) p, shrink, &values[here], m, n, d, &st);
      JOIN(reads, works);
    }
    store_queries(ON(clock) & st, m, d, y_row, y + (int64_t)i * y_row,
                  stats + 2 * (int64_t)i);
  }
}
