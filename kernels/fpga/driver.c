/* Launches of operators as calls of the kernels: operands of f32, loops over
 * what a kernel does not loop over, and which operators there are. What a
 * driver does not take is FL_EUNSUPPORTED, without a message. */
#include "fpga.h"

#include "../../runtime/math/math.h"
#include "op_slots.h"

#include <stdlib.h>

enum { OP_ADD, OP_SUB, OP_MUL, OP_RELU, OP_COPY }; /* as in elementwise.c */

#define LONGEST 4096 /* row of the kernel softmax */
#define DEEPEST 512  /* head of the kernel attention */

static fpga_clock *start_part(fl_fpga *f, fl_fpga_part part) {
  f->calls[part]++;
  return &f->cycles[part];
}

static bool fits_int(int64_t n) {
  return n >= INT32_MIN && n <= INT32_MAX;
}

/* Whether the kernels can address the operand: f32, sizes and strides of 32
 * bits. */
static bool addressable(const fl_view *v) {
  if (v->dtype != FL_F32 || !fits_int(fl_view_numel(v)))
    return false;
  for (int i = 0; i < v->ndim; i++)
    if (!fits_int(v->stride[i]))
      return false;
  return true;
}

/* --- tables --- */

static double table_value(fl_fpga_table t, double x) {
  switch (t) {
  case FL_FPGA_GELU:
    return fl_gelu(x, 0.0);
  case FL_FPGA_GELU_TANH:
    return fl_gelu(x, 1.0);
  case FL_FPGA_SILU:
    return fl_silu(x);
  case FL_FPGA_TANH:
    return fl_tanh(x);
  case FL_FPGA_SIGMOID:
    return fl_sigmoid(x);
  default:
    return fl_exp(x);
  }
}

static const int32_t *table_of(fl_fpga *f, fl_fpga_table t) {
  if (f->tables[t])
    return f->tables[t];
  int32_t *y = malloc((TABLE + 1) * sizeof *y);
  if (!y) {
    fli_fail(FL_ENOMEM, "fpga: no memory for a table");
    return NULL;
  }
  double low = -16, step = (t == FL_FPGA_EXP ? 16.0 : 32.0) / TABLE;
  for (int k = 0; k <= TABLE; k++)
    y[k] = (int32_t)lrint(ldexp(table_value(t, low + k * step), TABLE_BITS));
  return f->tables[t] = y;
}

/* --- elementwise --- */

/* Two dims for the kernel, and those around them. */
static void run_elementwise(fl_fpga *f, int op, const fl_view *a,
                            const fl_view *b, const fl_view *y) {
  int64_t sa[FL_MAX_DIMS], sb[FL_MAX_DIMS],
      shape[FL_MAX_DIMS] = {1, 1}, da[FL_MAX_DIMS] = {0}, db[FL_MAX_DIMS] = {0},
      at[FL_MAX_DIMS] = {0};
  int n = 0;
  fl_broadcast_strides(a, y->ndim, sa);
  fl_broadcast_strides(b, y->ndim, sb);
  for (int i = 0; i < y->ndim; i++) {
    int64_t size = y->shape[i];
    if (size == 1)
      continue;
    if (n && da[n - 1] == sa[i] * size && db[n - 1] == sb[i] * size)
      size *= shape[--n];
    shape[n] = size;
    da[n] = sa[i];
    db[n++] = sb[i];
  }
  int last = n > 0 ? n - 1 : 0, rows = n > 1 ? n - 2 : -1;
  int64_t block = shape[last] * (rows < 0 ? 1 : shape[rows]);
  const float *pa = a->data, *pb = b->data;
  float *py = y->data;
  for (int64_t left = fl_view_numel(y); left > 0; left -= block) {
    int64_t oa = 0, ob = 0;
    for (int i = 0; i < rows; i++) {
      oa += at[i] * da[i];
      ob += at[i] * db[i];
    }
    fl_fpga_elementwise(start_part(f, FL_FPGA_ELEMENTWISE), pa + oa, pb + ob,
                        py, rows < 0 ? 1 : (int)shape[rows], (int)shape[last],
                        rows < 0 ? 0 : (int)da[rows], (int)da[last],
                        rows < 0 ? 0 : (int)db[rows], (int)db[last], op);
    py += block;
    for (int i = rows - 1; i >= 0 && ++at[i] == shape[i]; i--)
      at[i] = 0;
  }
}

/* Numbers are f32 of their own. */
static bool take_operand(const fl_view *v, fl_view *to) {
  fl_view_copy(to, v);
  if (v->data != v->imm)
    return addressable(v);
  float x = 0;
  if (v->dtype == FL_F64) {
    double d;
    memcpy(&d, v->imm, sizeof d);
    x = (float)d;
  } else if (v->dtype == FL_F32) {
    memcpy(&x, v->imm, sizeof x);
  } else {
    return false;
  }
  memcpy(to->imm, &x, sizeof x);
  to->dtype = FL_F32;
  to->ndim = 0;
  return true;
}

static fl_status drive_two(fl_fpga *f, const fl_launch *l, int op) {
  fl_view a, b;
  if (!addressable(&l->out[0]) || !fl_contiguous(&l->out[0]) ||
      !take_operand(&l->in[0], &a) ||
      !take_operand(&l->in[l->n_in > 1 ? 1 : 0], &b))
    return FL_EUNSUPPORTED;
  run_elementwise(f, op, &a, &b, &l->out[0]);
  return FL_OK;
}

static fl_status drive_add(fl_fpga *f, const fl_launch *l) {
  return drive_two(f, l, OP_ADD);
}

static fl_status drive_sub(fl_fpga *f, const fl_launch *l) {
  return drive_two(f, l, OP_SUB);
}

static fl_status drive_mul(fl_fpga *f, const fl_launch *l) {
  return drive_two(f, l, OP_MUL);
}

static fl_status drive_relu(fl_fpga *f, const fl_launch *l) {
  return drive_two(f, l, OP_RELU);
}

static fl_status drive_copy(fl_fpga *f, const fl_launch *l) {
  return drive_two(f, l, OP_COPY);
}

/* The elements of v as neighbours: its memory, or a copy in scratch memory. */
static const float *packed(fl_fpga *f, const fl_launch *l, const fl_view *v) {
  if (fl_contiguous(v))
    return v->data;
  fl_view to;
  fl_view_copy(&to, v);
  fl_row_major(v->ndim, v->shape, to.stride);
  to.data = fl_scratch_get(l, fl_view_bytes(v));
  if (to.data)
    run_elementwise(f, OP_COPY, v, v, &to);
  return to.data;
}

/* --- functions by tables --- */

static fl_status look_all(fl_fpga *f, fl_fpga_table t, const float *x, float *y,
                          int64_t n) {
  const int32_t *table = table_of(f, t);
  if (!table)
    return FL_ENOMEM;
  fl_fpga_lookup(start_part(f, FL_FPGA_LOOKUP), x, table, y, (int)n,
                 t == FL_FPGA_TANH || t == FL_FPGA_SIGMOID ? 0 : 1);
  return FL_OK;
}

static fl_status drive_table(fl_fpga *f, const fl_launch *l, fl_fpga_table t) {
  const fl_view *x = &l->in[0], *y = &l->out[0];
  if (!addressable(x) || !addressable(y) || !fl_contiguous(y) ||
      x->data == (const void *)x->imm)
    return FL_EUNSUPPORTED;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  const float *from = packed(f, l, x);
  return from ? look_all(f, t, from, y->data, fl_view_numel(y)) : FL_ENOMEM;
}

static fl_status drive_gelu(fl_fpga *f, const fl_launch *l) {
  return drive_table(f, l,
                     l->attrs->v[FL_ATTR_gelu_approx].i ? FL_FPGA_GELU_TANH
                                                        : FL_FPGA_GELU);
}

static fl_status drive_silu(fl_fpga *f, const fl_launch *l) {
  return drive_table(f, l, FL_FPGA_SILU);
}

static fl_status drive_tanh(fl_fpga *f, const fl_launch *l) {
  return drive_table(f, l, FL_FPGA_TANH);
}

static fl_status drive_sigmoid(fl_fpga *f, const fl_launch *l) {
  return drive_table(f, l, FL_FPGA_SIGMOID);
}

/* --- products --- */

/* y = a b for matrices a (m, k), b (k, n) and y (m, n) with these strides. */
typedef struct product {
  const float *a, *b, *bias;
  float *y;
  int64_t m, n, k, a_row, a_col, b_row, b_col;
} product;

static void run_product(fl_fpga *f, const product *p) {
  fl_fpga_product(start_part(f, FL_FPGA_PRODUCT), p->a, p->b,
                  p->bias ? p->bias : p->b, p->y, (int)p->m, (int)p->n,
                  (int)p->k, (int)p->a_row, (int)p->a_col, (int)p->b_col,
                  (int)p->b_row, (int)p->n, p->bias != NULL);
}

static fl_status drive_matmul(fl_fpga *f, const fl_launch *l) {
  const fl_view *va = &l->in[FL_IN_matmul_a], *vb = &l->in[FL_IN_matmul_b],
                *y = &l->out[0];
  fl_view a, b;
  if (!addressable(va) || !addressable(vb) || !addressable(y))
    return FL_EUNSUPPORTED;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  int batch = y->ndim - (va->ndim > 1) - (vb->ndim > 1);
  fl_as_matrix(va, false, &a);
  fl_as_matrix(vb, true, &b);
  int ra = a.ndim - 2, rb = b.ndim - 2;
  product p = {.m = a.shape[ra],
               .n = b.shape[rb + 1],
               .k = b.shape[rb],
               .a_row = a.stride[ra],
               .a_col = a.stride[ra + 1],
               .b_row = b.stride[rb],
               .b_col = b.stride[rb + 1]};
  if (p.k == 0)
    return FL_EUNSUPPORTED;
  if (rb == 0 && fl_contiguous(&a)) { /* one product of all rows */
    p.m = fl_view_numel(&a) / p.k;
    p.a_row = p.k;
    batch = 0;
  }
  int64_t sa[FL_MAX_DIMS], sb[FL_MAX_DIMS], at[FL_MAX_DIMS] = {0};
  a.ndim = ra;
  b.ndim = rb;
  fl_broadcast_strides(&a, batch, sa);
  fl_broadcast_strides(&b, batch, sb);
  p.y = y->data;
  for (int64_t left = fl_view_numel(y); left > 0; left -= p.m * p.n) {
    p.a = a.data;
    p.b = b.data;
    for (int i = 0; i < batch; i++) {
      p.a += at[i] * sa[i];
      p.b += at[i] * sb[i];
    }
    run_product(f, &p);
    p.y += p.m * p.n;
    for (int i = batch - 1; i >= 0 && ++at[i] == y->shape[i]; i--)
      at[i] = 0;
  }
  return FL_OK;
}

/* The activations of `linear`, in the order of its signature. */
static fl_status activate(fl_fpga *f, int act, const float *from,
                          const fl_view *y) {
  static const fl_fpga_table tables[] = {
      FL_FPGA_EXP,  FL_FPGA_EXP,  FL_FPGA_GELU,   FL_FPGA_GELU_TANH,
      FL_FPGA_SILU, FL_FPGA_TANH, FL_FPGA_SIGMOID};
  if (act > 1)
    return look_all(f, tables[act], from, y->data, fl_view_numel(y));
  fl_view x;
  fl_view_copy(&x, y);
  x.data = (void *)(uintptr_t)from;
  if (act == 1 || from != y->data)
    run_elementwise(f, act == 1 ? OP_RELU : OP_COPY, &x, &x, y);
  return FL_OK;
}

static fl_status drive_linear(fl_fpga *f, const fl_launch *l) {
  const fl_view *x = &l->in[FL_IN_linear_x], *w = &l->in[FL_IN_linear_weight],
                *bias = &l->in[FL_IN_linear_bias], *y = &l->out[0],
                *pre = &l->out[FL_OUT_linear_pre];
  if (!addressable(x) || !addressable(w) || !addressable(y) ||
      (bias->data && !addressable(bias)))
    return FL_EUNSUPPORTED;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  product p = {.n = w->shape[0],
               .k = w->shape[1],
               .b = w->data,
               .b_row = w->stride[1],
               .b_col = w->stride[0]};
  if (p.k == 0)
    return FL_EUNSUPPORTED;
  p.m = fl_view_numel(y) / p.n;
  p.a_row = x->ndim == 2 ? x->stride[0] : p.k;
  p.a_col = x->ndim == 2 ? x->stride[1] : 1;
  p.a = x->ndim == 2 ? x->data : packed(f, l, x);
  p.bias = bias->data ? packed(f, l, bias) : NULL;
  if (!p.a || (bias->data && !p.bias))
    return FL_ENOMEM;
  p.y = fl_view_numel(pre) > 0 ? pre->data : y->data;
  run_product(f, &p);
  return activate(f, (int)l->attrs->v[FL_ATTR_linear_act].i, p.y, y);
}

/* --- softmax, attention --- */

static fl_status drive_softmax(fl_fpga *f, const fl_launch *l) {
  const fl_view *x = &l->in[FL_IN_softmax_x], *y = &l->out[0];
  int dim = (int)l->attrs->v[FL_ATTR_softmax_dim].i;
  int64_t n = x->ndim ? x->shape[x->ndim - 1] : 1;
  if (!addressable(x) || !addressable(y) || !fl_contiguous(y) ||
      (x->ndim && dim != x->ndim - 1) || n > LONGEST)
    return FL_EUNSUPPORTED;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  const int32_t *exps = table_of(f, FL_FPGA_EXP);
  const float *from = packed(f, l, x);
  if (!exps || !from)
    return FL_ENOMEM;
  fl_fpga_softmax(start_part(f, FL_FPGA_SOFTMAX), from, exps, y->data,
                  (int)(fl_view_numel(y) / n), (int)n, (int)n);
  return FL_OK;
}

static int64_t dim_of(const fl_view *v, int from_last) {
  return from_last <= v->ndim ? v->shape[v->ndim - from_last] : 1;
}

static int64_t stride_of(const fl_view *v, int from_last) {
  return from_last <= v->ndim && dim_of(v, from_last) != 1
             ? v->stride[v->ndim - from_last]
             : 0;
}

/* Where a head of an operand begins. */
static float *head_of(const fl_view *v, int64_t batch, int64_t head) {
  return (float *)v->data + batch * stride_of(v, 4) + head * stride_of(v, 3);
}

/* Rows of neighbours, as the kernel reads and writes them. */
static bool has_rows(const fl_view *v) {
  return addressable(v) && (dim_of(v, 1) == 1 || stride_of(v, 1) == 1);
}

static fl_status drive_attention(fl_fpga *f, const fl_launch *l) {
  const fl_view *q = &l->in[FL_IN_attention_q], *k = &l->in[FL_IN_attention_k],
                *v = &l->in[FL_IN_attention_v], *y = &l->out[0],
                *lse = &l->out[FL_OUT_attention_lse];
  int64_t t = dim_of(q, 2), s = dim_of(k, 2), d = dim_of(q, 1);
  double scale = l->attrs->v[FL_ATTR_attention_scale].f;
  if (!has_rows(q) || !has_rows(k) || !has_rows(v) || !has_rows(y) ||
      l->in[FL_IN_attention_mask].data || !addressable(lse) ||
      l->attrs->v[FL_ATTR_attention_dropout].f > 0 || dim_of(v, 1) != d ||
      d > DEEPEST || s == 0 || d == 0)
    return FL_EUNSUPPORTED;
  if (fl_view_numel(y) == 0)
    return FL_OK;
  const int32_t *exps = table_of(f, FL_FPGA_EXP);
  float *stats = fl_scratch_get(l, (size_t)t * 2 * sizeof *stats);
  if (!exps || !stats)
    return FL_ENOMEM;
  scale = scale != scale ? 1 / sqrt((double)d) : scale;
  int64_t heads = dim_of(q, 3), group = heads / dim_of(k, 3);
  float *to = lse->data;
  for (int64_t b = 0; b < dim_of(q, 4); b++)
    for (int64_t h = 0; h < heads; h++) {
      fl_fpga_attention(
          start_part(f, FL_FPGA_ATTENTION), head_of(q, b, h),
          head_of(k, b, h / group), head_of(v, b, h / group), exps,
          head_of(y, b, h), stats, (int)t, (int)s, (int)d, (int)stride_of(q, 2),
          (int)stride_of(k, 2), (int)stride_of(v, 2), (int)stride_of(y, 2),
          (float)scale, l->attrs->v[FL_ATTR_attention_causal].i != 0);
      for (int64_t i = 0; i < t && fl_view_numel(lse) > 0; i++)
        *to++ = stats[2 * i] + logf(stats[2 * i + 1]);
    }
  return FL_OK;
}

/* --- operators --- */

/* The rows that have a driver. */
#define DRIVERS(D)                                                             \
  D(matmul)                                                                    \
  D(linear)                                                                    \
  D(softmax)                                                                   \
  D(attention)                                                                 \
  D(add)                                                                       \
  D(sub)                                                                       \
  D(mul)                                                                       \
  D(copy)                                                                      \
  D(relu)                                                                      \
  D(gelu)                                                                      \
  D(silu)                                                                      \
  D(tanh)                                                                      \
  D(sigmoid)

static const struct {
  const char *op;
  fl_fpga_driver drive;
} drivers[] = {
#define D(row) {#row, drive_##row},
    DRIVERS(D)
#undef D
};

fl_fpga_driver fl_fpga_find(const char *op) {
  for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++)
    if (strcmp(drivers[i].op, op) == 0)
      return drivers[i].drive;
  return NULL;
}

const char *fl_fpga_name(int i) {
  return (size_t)i < sizeof drivers / sizeof *drivers ? drivers[i].op : NULL;
}
