/* Arguments of the kernel in adam8.cu. */
#ifndef FL_CUDA_ADAM8_H
#define FL_CUDA_ADAM8_H

#define ADAM8_THREADS 256
#define ADAM8_LANE    8 /* elements of a lane */
#define ADAM8_CODES   256

typedef struct adam8_now { /* of a step; from optim.cu's "prepare" */
  double lr, rate, root;
} adam8_now;

typedef struct adam8_args {
  flc_fault fault;
  void *p;
  const void *g;
  unsigned char *codes[2]; /* of the mean, of the mean square */
  float *scales[2];
  const float *maps;
  int64_t n, blocks;
  int block, decoupled;
  double decay, b1, b2, eps;
  adam8_now now;
  const adam8_now *later; /* not NULL: instead of `now` */
} adam8_args;

#endif
