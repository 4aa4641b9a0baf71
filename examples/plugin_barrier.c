/* A central barrier as a plugin, in C11. From this directory:
 *     cc -O2 -shared -fPIC -o libplugin_barrier.so plugin_barrier.c
 *     membar barrier --plugin ./libplugin_barrier.so */
#include "membar_barrier.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

struct barrier {
    unsigned threads;
    _Alignas(128) atomic_uint arrived;
    _Alignas(128) atomic_uint episode;
};

void *membar_barrier_create(unsigned threads) {
    struct barrier *b = aligned_alloc(128, sizeof *b);
    if (!b) return NULL;
    b->threads = threads;
    atomic_init(&b->arrived, 0);
    atomic_init(&b->episode, 0);
    return b;
}

void membar_barrier_wait(void *barrier, unsigned thread) {
    struct barrier *b = barrier;
    unsigned episode = atomic_load(&b->episode);
    (void)thread;
    if (atomic_fetch_add(&b->arrived, 1) == b->threads - 1) {
        atomic_store(&b->arrived, 0);
        atomic_store(&b->episode, episode + 1);
        return;
    }
    for (unsigned spins = 0; atomic_load(&b->episode) == episode; spins++)
        if (spins > 10000) sched_yield(); /* more threads than CPUs */
}

void membar_barrier_destroy(void *barrier) { free(barrier); }
