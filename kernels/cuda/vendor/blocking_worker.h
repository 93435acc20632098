/* A thread for calls that may never return, so that the caller can stop waiting
 * for them. */
#ifndef FL_CUDA_BLOCKING_WORKER_H
#define FL_CUDA_BLOCKING_WORKER_H

#include <pthread.h>
#include <stdbool.h>

typedef struct flc_worker flc_worker;

/* NULL with a message if there can be no thread. */
flc_worker *flc_worker_start(void);
/* f(x), a call at a time: the one before is done. */
void flc_worker_ask(flc_worker *c, int (*f)(void *), void *x);
/* Whether the last call has come back, and what with. True if there was none;
 * of NULL as well. */
bool flc_worker_done(flc_worker *c, int *result);
/* False: it is left behind, in its call, with all that the call uses. */
bool flc_worker_end(flc_worker *c);

/* A thread that gets no signals; EAGAIN, as of pthread_create. */
int flc_thread(pthread_t *thread, void *(*f)(void *), void *x);

#endif
