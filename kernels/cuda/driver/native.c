/* The kernel "native": a registered operator's kernel of the user's (raw.c),
 * with what the launch has as its arguments: memory, made contiguous and of the
 * kernel's type where it is not, attributes, and the number of elements. */
#include "process.h"

FLC_KERNEL(raw);

typedef union word { /* an argument */
  void *p;
  double f;
  int64_t i;
  bool b;
} word;

#define MOST (FL_MAX_NATIVE + FL_MAX_OUT + FL_MAX_ATTRS + 1)

static fl_raw *kernel_for(const fl_native *n, fl_dtype d) {
  for (int k = 0; k < n->n_kernels; k++)
    if (n->kernels[k].dtype == d)
      return n->kernels[k].kernel;
  return NULL;
}

/* The type of the first operand that the kernel may be for; else what there is,
 * f32 first. */
static fl_dtype native_choose(const fl_launch *l) {
  const fl_native *n = l->native;
  for (int k = 0; k < l->n_in; k++)
    if (n->in_as[k] == FL_NODTYPE && l->in[k].data &&
        !flc_is_number(&l->in[k])) {
      if (kernel_for(n, l->in[k].dtype))
        return l->in[k].dtype;
      break;
    }
  return kernel_for(n, FL_F32) ? FL_F32 : n->kernels[0].dtype;
}

static fl_dtype as(int how, fl_dtype kernel, fl_dtype own) {
  return how == FL_NODTYPE      ? kernel
         : how == FL_NATIVE_OWN ? own
                                : (fl_dtype)how;
}

static fl_status check_grid(const fl_launch *l, const fl_raw_call *c) {
  static const unsigned most[] = {0x7fffffff, 65535, 65535};
  static const unsigned threads[] = {1024, 1024, 64};
  for (int k = 0; k < 3; k++)
    if (c->grid[k] > most[k] || c->block[k] > threads[k] || c->block[k] < 1)
      return fli_fail(FL_EARG,
                      "%s: %u blocks of %u threads along %c: at most %u "
                      "blocks, and 1 to %u threads, are possible",
                      l->op, c->grid[k], c->block[k], "xyz"[k], most[k],
                      threads[k]);
  return FL_OK;
}

static fl_status set_inputs(const fl_launch *l, fl_dtype kernel, word *w) {
  for (int k = 0; k < l->n_in; k++) {
    const fl_view *v = &l->in[k];
    if (v->data && fl_view_numel(v) == 0)
      w[k].p = v->data;
    else if (v->data)
      w[k].p = (void *)(uintptr_t)flc_input(
          l, v, as(l->native->in_as[k], kernel, v->dtype));
    if (v->data && fl_view_numel(v) && !w[k].p)
      return FL_ENOMEM;
  }
  return FL_OK;
}

/* Results of another type than the kernel's go through memory of their own. */
static fl_status set_outputs(const fl_launch *l, fl_dtype kernel, fl_view *made,
                             word *w) {
  for (int k = 0; k < l->n_out; k++) {
    made[k] = l->out[k];
    made[k].dtype = as(l->native->out_as[k], kernel, l->out[k].dtype);
    size_t bytes =
        (size_t)fl_view_numel(&made[k]) * fl_dtype_size(made[k].dtype);
    if (made[k].dtype != l->out[k].dtype && bytes &&
        !(made[k].data = fl_scratch_get(l, bytes)))
      return FL_ENOMEM;
    w[k].p = made[k].data;
  }
  return FL_OK;
}

static void set_attributes(const fl_launch *l, word *w) {
  for (int k = 0; k < l->native->n_attr; k++) {
    const fl_attr *a = &l->attrs->v[k];
    if (l->native->attr[k] == 'd')
      w[k].f = a->f;
    else if (l->native->attr[k] == 'b')
      w[k].b = a->i != 0;
    else
      w[k].i = a->i;
  }
}

FLC_KERNEL(native) {
  const fl_native *n = l->native;
  fl_dtype kernel = native_choose(l);
  word words[MOST] = {{0}};
  void *args[MOST];
  fl_view made[FL_MAX_OUT];
  int64_t count = fl_view_numel(&l->out[0]);
  int at = l->n_in + l->n_out;
  fl_raw_call c = {.kernel = kernel_for(n, kernel),
                   .grid = {(unsigned)fl_ceil_div(count, 256), 1, 1},
                   .block = {256, 1, 1},
                   .args = args};
  fl_status s = n->configure ? n->configure(n->context, l, &c) : FL_OK;
  if (s || c.grid[0] == 0 || c.grid[1] == 0 || c.grid[2] == 0)
    return s;
  s = check_grid(l, &c);
  if (s == FL_OK)
    s = set_inputs(l, kernel, words);
  if (s == FL_OK)
    s = set_outputs(l, kernel, made, words + l->n_in);
  if (s)
    return s;
  set_attributes(l, words + at);
  words[at + n->n_attr].i = count;
  for (int k = 0; k <= at + n->n_attr; k++)
    args[k] = &words[k];
  fl_launch raw = *l;
  raw.raw = &c;
  s = fl_cuda_raw(&raw);
  for (int k = 0; k < l->n_out && s == FL_OK; k++)
    if (made[k].dtype != l->out[k].dtype)
      s = flc_move(l, &l->out[k], &made[k]);
  return s;
}
