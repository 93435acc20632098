/* Optimizer steps: all tensors of a step in one launch, one pass over the
 * memory of each, cut into pieces of the whole list so that many small tensors
 * cost no more than one large. `xs` is all parameters, then all gradients, then
 * groups of state in the order of optim_typed.c's a[2], a[3] ...; these kernels
 * write their inputs. Also the norm over many tensors. Formulas are PyTorch's.
 */
#include "../../runtime/math/math.h"
#include "move.h"
#include "optim.h"

#define PIECE  (16 << 10) /* elements a thread takes at once */
#define CHUNK  1024       /* elements converted at once */
#define GROUPS 5          /* parameter, gradient and three of state */

typedef struct memory {
  char *data;
  fl_dtype dtype;
} memory;

typedef struct stepping {
  recipe r;
  step_loop loop;
  fl_dtype type;  /* what the loop computes in: F32 or F64 */
  int groups;     /* arrays of the loop */
  unsigned write; /* bit g: group g is written */
  int64_t count;
  const int64_t *start; /* elements before tensor i, and all of them */
  const memory *at;     /* (groups, count) */
} stepping;

/* n elements of tensor i from element k on, by way of buffers for what is not
 * of the loop's type. */
static void convert_step(const stepping *c, int64_t i, int64_t k, int64_t n) {
  double room[GROUPS][CHUNK];
  void *a[GROUPS];
  for (int64_t end = k + n; k < end; k += CHUNK) {
    n = end - k < CHUNK ? end - k : CHUNK;
    for (int g = 0; g < c->groups; g++) {
      const memory *m = &c->at[g * c->count + i];
      a[g] = m->data + k * (int64_t)fl_dtype_size(m->dtype);
      if (m->dtype == c->type)
        continue;
      FL_CPU(convert)(n, c->type, room[g], m->dtype, a[g]);
      a[g] = room[g];
    }
    c->loop(&c->r, n, a);
    for (int g = 0; g < c->groups; g++) {
      const memory *m = &c->at[g * c->count + i];
      if (m->dtype != c->type && (c->write >> g & 1))
        FL_CPU(convert)
      (n, m->dtype, m->data + k * (int64_t)fl_dtype_size(m->dtype), c->type,
       room[g]);
    }
  }
}

/* The tensor that element k of the list lies in. */
static int64_t tensor_of(const stepping *c, int64_t k) {
  int64_t i = 0, above = c->count;
  while (above - i > 1) {
    int64_t mid = (i + above) / 2;
    *(c->start[mid] <= k ? &i : &above) = mid;
  }
  return i;
}

/* Elements begin .. end of the list as if it were one tensor. */
static void step_task(void *context, int64_t begin, int64_t end) {
  const stepping *c = context;
  for (int64_t i = tensor_of(c, begin); begin < end; i++) {
    int64_t k = begin - c->start[i], n = c->start[i + 1] - begin;
    void *a[GROUPS];
    bool same = true;
    n = n < end - begin ? n : end - begin;
    for (int g = 0; g < c->groups; g++) {
      const memory *m = &c->at[g * c->count + i];
      same &= m->dtype == c->type;
      a[g] = m->data + k * (int64_t)fl_dtype_size(m->dtype);
    }
    if (same)
      c->loop(&c->r, n, a);
    else if (n > 0)
      convert_step(c, i, k, n);
    begin += n;
  }
}

/* Whether tensor i of the list and its groups have one order of elements
 * without gaps. */
static bool optim_dense(const stepping *c, const fl_view *in, int64_t i) {
  bool same = fl_dense(&in[i]);
  for (int g = 1; g < c->groups && same; g++)
    same = fl_same_strides(&in[i], &in[g * c->count + i]);
  return same;
}

/* The tensors in[from], in[from + 1] ... as `groups` groups, made contiguous
 * where their orders differ (in one block of scratch); fills count, start, at
 * and type. */
static fl_status optim_collect(const fl_launch *l, stepping *c, int from) {
  int n = l->n_in - from;
  size_t bytes = 0;
  c->count = n / c->groups;
  memory *at = fl_scratch_get(l, (size_t)(n + 1) * sizeof *at);
  int64_t *start = fl_scratch_get(l, (size_t)(c->count + 1) * sizeof *start);
  if (!at || !start)
    return FL_ENOMEM;
  c->type = FL_F32;
  start[0] = 0;
  for (int i = 0; i < n; i++) {
    const fl_view *v = &l->in[from + i];
    at[i] = (memory){v->data, v->dtype};
    if (!optim_dense(c, l->in + from, i % c->count))
      bytes += (fl_view_bytes(v) + 63) / 64 * 64;
    if (v->dtype == FL_F64)
      c->type = FL_F64;
    if (i < c->count)
      start[i + 1] = start[i] + fl_view_numel(v);
  }
  char *room = bytes ? fl_scratch_get(l, bytes) : NULL;
  if (bytes && !room)
    return FL_ENOMEM;
  for (int i = 0; i < n && bytes; i++) {
    fl_view v = l->in[from + i];
    if (optim_dense(c, l->in + from, i % c->count))
      continue;
    at[i].data = v.data = room;
    fl_row_major(v.ndim, v.shape, v.stride);
    FL_CPU(move_view)(l, &v, &l->in[from + i]);
    room += ((size_t)fl_view_numel(&v) * fl_dtype_size(v.dtype) + 63) / 64 * 64;
  }
  c->at = at;
  c->start = start;
  return FL_OK;
}

/* Runs a rule over in[from] ...; nothing is written before all memory is there.
 */
static fl_status optim_step(const fl_launch *l, const recipe *r, int from,
                            int groups, unsigned write, int step) {
  stepping c = {.r = *r, .groups = groups, .write = write};
  fl_status s = optim_collect(l, &c, from);
  if (s != FL_OK || c.count == 0)
    return s;
  c.loop = FL_OF_FLOAT(optim, c.type)->step[step];
  fl_cpu_parallel(l, c.start[c.count], PIECE, step_task, &c);
  for (int64_t i = 0; i < groups * c.count; i++) {
    const fl_view *v = &l->in[from + i];
    if ((write >> (i / c.count) & 1) && c.at[i].data != (char *)v->data)
      FL_CPU(finish)(l, v, v->dtype, c.at[i].data); /* a strided one */
  }
  return FL_OK;
}

/* --- the rules; attribute 0 is always `moments`, groups of state --- */

static bool optim_flag(const fl_launch *l, int k) {
  return l->attrs->v[k].i != 0;
}

static double optim_real(const fl_launch *l, int k) {
  return l->attrs->v[k].f;
}

/* State: the momentum buffer, if momentum is not 0. */
FL_KERNEL(sgd_step) {
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_sgd_step_lr]),
              .momentum = optim_real(l, FL_ATTR_sgd_step_momentum),
              .damp = 1 - optim_real(l, FL_ATTR_sgd_step_dampening),
              .nesterov = optim_flag(l, FL_ATTR_sgd_step_nesterov),
              .decay = optim_real(l, FL_ATTR_sgd_step_weight_decay),
              .first = optim_flag(l, FL_ATTR_sgd_step_first),
              .maximize = optim_flag(l, FL_ATTR_sgd_step_maximize)};
  if (r.momentum != 0)
    return optim_step(l, &r, 1, 3, 1 | 4, STEP_SGD_MOMENTUM);
  return optim_step(l, &r, 1, 2 + (int)l->attrs->v[FL_ATTR_sgd_step_moments].i,
                    1, STEP_SGD);
}

/* State: first moment, second moment, with amsgrad the greatest second moment.
 */
FL_KERNEL(adam_step) {
  double t = fl_cpu_scalar(&l->in[FL_IN_adam_step_step]);
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_adam_step_lr]),
              .b1 = optim_real(l, FL_ATTR_adam_step_beta1),
              .b2 = optim_real(l, FL_ATTR_adam_step_beta2),
              .eps = optim_real(l, FL_ATTR_adam_step_eps),
              .decay = optim_real(l, FL_ATTR_adam_step_weight_decay),
              .decoupled = optim_flag(l, FL_ATTR_adam_step_decoupled),
              .amsgrad = optim_flag(l, FL_ATTR_adam_step_amsgrad),
              .maximize = optim_flag(l, FL_ATTR_adam_step_maximize)};
  r.rate = r.lr / (1 - pow(r.b1, t));
  r.root = 1 / sqrt(1 - pow(r.b2, t));
  if (r.amsgrad)
    return optim_step(l, &r, 2, 5, 1 | 4 | 8 | 16, STEP_AMSGRAD);
  return optim_step(l, &r, 2, 4, 1 | 4 | 8, STEP_ADAM);
}

/* State: mean of squares, then the mean of gradients if centered, then the
 * momentum buffer if momentum is not 0. */
FL_KERNEL(rmsprop_step) {
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_rmsprop_step_lr]),
              .b1 = optim_real(l, FL_ATTR_rmsprop_step_alpha),
              .eps = optim_real(l, FL_ATTR_rmsprop_step_eps),
              .decay = optim_real(l, FL_ATTR_rmsprop_step_weight_decay),
              .momentum = optim_real(l, FL_ATTR_rmsprop_step_momentum),
              .centered = optim_flag(l, FL_ATTR_rmsprop_step_centered)};
  int groups = 3 + (r.momentum != 0) + r.centered;
  unsigned write = 1 | 4 | 8 | 16;
  return optim_step(l, &r, 1, groups, write,
                    r.centered        ? STEP_RMSPROP_CENTERED
                    : r.momentum != 0 ? STEP_RMSPROP_MOMENTUM
                                      : STEP_RMSPROP);
}

/* State: sum of squares. */
FL_KERNEL(adagrad_step) {
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_adagrad_step_lr]),
              .eps = optim_real(l, FL_ATTR_adagrad_step_eps),
              .decay = optim_real(l, FL_ATTR_adagrad_step_weight_decay)};
  return optim_step(l, &r, 1, 3, 1 | 4, STEP_ADAGRAD);
}

/* State: the momentum. Chen et al. 2023, arXiv:2302.06675. */
FL_KERNEL(lion_step) {
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_lion_step_lr]),
              .b1 = optim_real(l, FL_ATTR_lion_step_beta1),
              .b2 = optim_real(l, FL_ATTR_lion_step_beta2),
              .decay = optim_real(l, FL_ATTR_lion_step_weight_decay)};
  return optim_step(l, &r, 1, 3, 1 | 4, STEP_LION);
}

/* xs is all that is written, then all that it moves towards. */
FL_KERNEL(lerp_step) {
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_lerp_step_weight])};
  return optim_step(l, &r, 1, 2, 1, STEP_LERP);
}

/* xs is all that is written, then what is written into it. */
FL_KERNEL(assign_step) {
  int n = l->n_in / 2;
  for (int i = 0; i < n; i++)
    FL_CPU(move_view)(l, &l->in[i], &l->in[n + i]);
  return FL_OK;
}

FL_KERNEL(scale_step) {
  recipe r = {.lr = fl_cpu_scalar(&l->in[FL_IN_scale_step_scale])};
  if (r.lr == 1)
    return FL_OK;
  return optim_step(l, &r, 1, 1, 1, STEP_SCALE);
}

/* --- norm over all tensors --- */

typedef struct measuring {
  const stepping *s;
  double p;
  double *parts; /* of each piece */
} measuring;

static void norm_task(void *context, int64_t begin, int64_t end) {
  const measuring *m = context;
  const stepping *c = m->s;
  double *part = &m->parts[begin / PIECE], room[CHUNK];
  int64_t i = tensor_of(c, begin);
  *part = 0;
  for (int64_t n; begin < end; begin += n) {
    while (c->start[i + 1] <= begin)
      i++;
    int64_t k = begin - c->start[i];
    fl_dtype d = c->at[i].dtype;
    const void *x = c->at[i].data + k * (int64_t)fl_dtype_size(d);
    n = c->start[i + 1] < end ? c->start[i + 1] - begin : end - begin;
    n = n < CHUNK ? n : CHUNK;
    if (d == FL_F64)
      *part = FL_CPU(optim_f64).norm(m->p, n, x, *part);
    else {
      if (d != FL_F32) {
        FL_CPU(convert)(n, FL_F32, room, d, x);
        x = room;
      }
      *part = FL_CPU(optim_f32).norm(m->p, n, x, *part);
    }
  }
}

/* In doubles and in pieces of fixed size, so that the sum depends on shapes
 * alone; what is infinite or NaN stays so. */
FL_KERNEL(global_norm) {
  const fl_view *y = &l->out[0];
  stepping c = {.groups = 1};
  measuring m = {.s = &c, .p = l->attrs->v[FL_ATTR_global_norm_p].f};
  fl_status s = optim_collect(l, &c, 0);
  if (s != FL_OK)
    return s;
  int64_t n = c.start[c.count], pieces = fl_ceil_div(n, PIECE);
  m.parts = fl_scratch_get(l, (size_t)(pieces + 1) * sizeof(double));
  if (!m.parts)
    return FL_ENOMEM;
  fl_cpu_parallel(l, n, PIECE, norm_task, &m);
  double total = 0;
  for (int64_t i = 0; i < pieces; i++)
    total =
        m.p == INFINITY ? fl_maximum(total, m.parts[i]) : total + m.parts[i];
  if (m.p == 2)
    total = sqrt(total);
  else if (m.p != 0 && m.p != 1 && m.p != INFINITY)
    total = pow(total, 1 / m.p);
  FL_CPU(convert)(1, y->dtype, y->data, FL_F64, &total);
  return FL_OK;
}
