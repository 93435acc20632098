/* Waiting, for channels and threads. */
#ifndef FLL_THREAD_H
#define FLL_THREAD_H

#include "parcel.h"

#include <pthread.h>

double fll_now(void);
/* The moment that the timeout at index i means; far away if there is none. */
double fll_deadline(lua_State *L, int i, const char *where);
/* Until a change, that moment, or 50 ms have passed; `lock` is held. */
void fll_wait(pthread_cond_t *changed, pthread_mutex_t *lock, double until);
void fll_channel_open(lua_State *L);

#endif
