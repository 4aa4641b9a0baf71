/* A barrier that membar measures: `membar barrier --plugin ./libmine.so`. The library exports these three functions, with C
 * linkage. examples/plugin_barrier.c is one. */
#ifndef MEMBAR_BARRIER_H
#define MEMBAR_BARRIER_H

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a barrier for `threads` threads (at least 1), or returns NULL if it cannot. Called once a measurement, by a thread
 * that is not one of them. */
void *membar_barrier_create(unsigned threads);

/* Called by each thread once an episode, with its number, 0 to threads - 1, which never changes. Returns when all threads
 * have called it for this episode, and not before. What a thread wrote before the call, all threads see after it. */
void membar_barrier_wait(void *barrier, unsigned thread);

/* Frees the barrier. Nobody waits at it any more. */
void membar_barrier_destroy(void *barrier);

#ifdef __cplusplus
}
#endif
#endif
