/* A thread that makes calls which may never come back, for somebody who can
 * stop to wait for them. */
#ifndef FL_CUDA_CARRIER_H
#define FL_CUDA_CARRIER_H

#include <pthread.h>
#include <stdbool.h>

typedef struct flc_carrier flc_carrier;

/* NULL with a message if there can be no thread. */
flc_carrier *flc_carrier_start(void);
/* f(x), a call at a time: the one before is done. */
void flc_carrier_ask(flc_carrier *c, int (*f)(void *), void *x);
/* Whether the last call has come back, and what with. True if there was none;
 * of NULL as well. */
bool flc_carrier_done(flc_carrier *c, int *result);
/* False: it is left behind, in its call, with all that the call uses. */
bool flc_carrier_end(flc_carrier *c);

/* A thread that gets no signals; EAGAIN, as of pthread_create. */
int flc_thread(pthread_t *thread, void *(*f)(void *), void *x);

#endif
