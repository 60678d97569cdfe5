/* lock.h - mutexes with a rank (locks.def), and condition variables on the monotonic clock.
 *
 * Ranks prevent deadlocks: locks are acquired in their order. With -DLOCK_CHECK (sanitizer
 * builds) acquiring them out of order aborts.
 */
#ifndef COMMON_OS_LOCK_H
#define COMMON_OS_LOCK_H

#include <pthread.h>

#include "common/base/check.h"

enum lock_rank {
#define LOCK(name) name,
#include "common/os/locks.def"
#undef LOCK
};

struct lock {
    pthread_mutex_t mutex;
    enum lock_rank rank;
};

void lock_init(struct lock *l, enum lock_rank rank);
void lock_fini(struct lock *l);
void lock_take(struct lock *l);
MUST_USE bool lock_try(struct lock *l); /* false: another thread holds it */
void lock_drop(struct lock *l);

struct cond {
    pthread_cond_t cond;
};

void cond_init(struct cond *c);
void cond_fini(struct cond *c);
void cond_wait(struct cond *c, struct lock *l);
bool cond_wait_ms(struct cond *c, struct lock *l, uint64_t ms); /* false when the time ran out */
void cond_signal(struct cond *c);
void cond_broadcast(struct cond *c);

/* A named thread with all signals blocked (main handles them). CHECKs that it started. */
pthread_t thread_start(const char *name, void *(*run)(void *), void *arg);
/* False when the system cannot start one more: for threads that strangers' requests start. */
MUST_USE bool thread_try(const char *name, void *(*run)(void *), void *arg, pthread_t *out);

#endif
