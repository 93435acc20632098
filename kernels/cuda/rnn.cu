/* The elementwise halves of recurrent cells, fused: LSTM (gates in the order
 * input, forget, cell, output) and GRU (reset, update, new), each with its
 * gradient. A thread has V neighbouring elements of a state. */
#include "device/divisor.cuh"
#include "rnn.h"

/* V elements from i on; 0 of what was left out. */
template <int D, int V> struct some {
  FL_W(D) at[V];

  some() {
  }
  some(const void *p, int64_t i) {
    if (!p) {
#pragma unroll
      for (int j = 0; j < V; j++)
        at[j] = 0;
      return;
    }
    fl_vec<FL_S(D), V> v = fl_read<FL_S(D), V>((const FL_S(D) *)p + i);
#pragma unroll
    for (int j = 0; j < V; j++)
      at[j] = fl_get<FL_W(D)>(v.at[j]);
  }
  void save(void *p, int64_t i) const {
    if (!p)
      return;
    fl_vec<FL_S(D), V> v;
#pragma unroll
    for (int j = 0; j < V; j++)
      v.at[j] = fl_put<FL_S(D)>(at[j]);
    fl_write((FL_S(D) *)p + i, v);
  }
};

/* Element s of the states is number j of its row, whose first of `parts` gates
 * is at g. */
#define EACH(parts)                                                            \
  for (int64_t s = fl_thread() * V; s < a.all; s += fl_threads() * V)          \
    if (int64_t row, j = fl_split(s, a.n, &row), n = a.n,                      \
        g = row * (parts)*n + j;                                               \
        true)
#define FOR_V _Pragma("unroll") for (int k = 0; k < V; k++)

/* gates and what is added to them, c -> h, c2, act. Over time the cell is kept
 * as it is computed: read from in[3] then, and written to out[3]. */
template <int D, int V>
__global__ void lstm(const __grid_constant__ rnn_args a) {
  typedef some<D, V> S;
  typedef some<D == FL_F64 ? FL_F64 : FL_F32, V> Wide;
  EACH(4) {
    S i(a.in[0], g), f(a.in[0], g + n), x(a.in[0], g + 2 * n),
        o(a.in[0], g + 3 * n), h;
    S hi(a.in[2], g), hf(a.in[2], g + n), hx(a.in[2], g + 2 * n),
        ho(a.in[2], g + 3 * n), c(a.in[1], s);
    Wide kept(a.in[3], s);
    FOR_V {
      i.at[k] = fl_sigmoid(i.at[k] + hi.at[k]);
      f.at[k] = fl_sigmoid(f.at[k] + hf.at[k]);
      x.at[k] = fl_tanh(x.at[k] + hx.at[k]);
      o.at[k] = fl_sigmoid(o.at[k] + ho.at[k]);
      c.at[k] = f.at[k] * (c.at[k] + kept.at[k]) + i.at[k] * x.at[k];
      h.at[k] = o.at[k] * fl_tanh(c.at[k]);
      kept.at[k] = c.at[k];
    }
    h.save(a.out[0], s);
    c.save(a.out[1], s);
    kept.save(a.out[3], s);
    i.save(a.out[2], g);
    f.save(a.out[2], g + n);
    x.save(a.out[2], g + 2 * n);
    o.save(a.out[2], g + 3 * n);
  }
}

/* dh, dc, c, c2, act; over time also what the step after has sent back to h and
 * to c, and the gradient of act -> dgates, dc1, and this as it is computed. */
template <int D, int V>
__global__ void lstm_back(const __grid_constant__ rnn_args a) {
  typedef some<D, V> S;
  typedef some<D == FL_F64 ? FL_F64 : FL_F32, V> Wide;
  EACH(4) {
    S dh(a.in[0], s), dc(a.in[1], s), c(a.in[2], s), c2(a.in[3], s);
    S i(a.in[4], g), f(a.in[4], g + n), x(a.in[4], g + 2 * n),
        o(a.in[4], g + 3 * n), back(a.in[5], s);
    S di(a.in[7], g), df(a.in[7], g + n), dx(a.in[7], g + 2 * n),
        d_o(a.in[7], g + 3 * n);
    Wide kept(a.in[6], s);
    FOR_V {
      FL_W(D) one = 1, t = fl_tanh(c2.at[k]), d = dh.at[k] + back.at[k];
      FL_W(D) u = dc.at[k] + kept.at[k] + d * o.at[k] * (one - t * t);
      FL_W(D) gi = i.at[k], gf = f.at[k], gx = x.at[k], go = o.at[k];
      i.at[k] = (u * gx + di.at[k]) * gi * (one - gi);
      f.at[k] = (u * c.at[k] + df.at[k]) * gf * (one - gf);
      x.at[k] = (u * gi + dx.at[k]) * (one - gx * gx);
      o.at[k] = (d * t + d_o.at[k]) * go * (one - go);
      c.at[k] = kept.at[k] = u * gf;
    }
    i.save(a.out[0], g);
    f.save(a.out[0], g + n);
    x.save(a.out[0], g + 2 * n);
    o.save(a.out[0], g + 3 * n);
    c.save(a.out[1], s);
    kept.save(a.out[2], s);
  }
}

template <int D, int V>
__global__ void gru(const __grid_constant__ rnn_args a) {
  typedef some<D, V> S;
  EACH(3) {
    S r(a.in[0], g), z(a.in[0], g + n), x(a.in[0], g + 2 * n), h(a.in[2], s);
    S hr(a.in[1], g), hz(a.in[1], g + n), hx(a.in[1], g + 2 * n);
    FOR_V {
      r.at[k] = fl_sigmoid(r.at[k] + hr.at[k]);
      z.at[k] = fl_sigmoid(z.at[k] + hz.at[k]);
      x.at[k] = fl_tanh(x.at[k] + r.at[k] * hx.at[k]);
      h.at[k] = x.at[k] + z.at[k] * (h.at[k] - x.at[k]);
    }
    h.save(a.out[0], s);
    r.save(a.out[1], g);
    z.save(a.out[1], g + n);
    x.save(a.out[1], g + 2 * n);
  }
}

template <int D, int V>
__global__ void gru_back(const __grid_constant__ rnn_args a) {
  typedef some<D, V> S;
  EACH(3) {
    S dy(a.in[0], s), hx(a.in[1], g + 2 * n), h(a.in[2], s);
    S r(a.in[3], g), z(a.in[3], g + n), x(a.in[3], g + 2 * n);
    FOR_V {
      FL_W(D) one = 1, d = dy.at[k], gr = r.at[k], gz = z.at[k], gx = x.at[k];
      FL_W(D) dx = d * (one - gz) * (one - gx * gx);
      r.at[k] = dx * hx.at[k] * gr * (one - gr);
      z.at[k] = d * (h.at[k] - gx) * gz * (one - gz);
      x.at[k] = dx;
      hx.at[k] = dx * gr;
      h.at[k] = d * gz;
    }
    r.save(a.out[0], g);
    z.save(a.out[0], g + n);
    x.save(a.out[0], g + 2 * n);
    r.save(a.out[1], g);
    z.save(a.out[1], g + n);
    hx.save(a.out[1], g + 2 * n);
    h.save(a.out[2], s);
  }
}
