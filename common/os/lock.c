#include "common/os/lock.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#ifdef LOCK_CHECK
static _Thread_local unsigned held[64]; /* how many of each rank this thread holds */

static void rank_taken(enum lock_rank rank)
{
    for (unsigned r = rank; r < ARRAY_LEN(held); r++) {
        CHECK(held[r] == 0); /* a lock of this rank or a later one is held already */
    }
    held[rank]++;
}

static void rank_dropped(enum lock_rank rank)
{
    CHECK(held[rank] > 0);
    held[rank]--;
}
#else
static void rank_taken(enum lock_rank rank)
{
    (void)rank;
}

static void rank_dropped(enum lock_rank rank)
{
    (void)rank;
}
#endif

void lock_init(struct lock *l, enum lock_rank rank)
{
    CHECK(pthread_mutex_init(&l->mutex, NULL) == 0);
    l->rank = rank;
}

void lock_fini(struct lock *l)
{
    CHECK(pthread_mutex_destroy(&l->mutex) == 0);
}

void lock_take(struct lock *l)
{
    rank_taken(l->rank);
    CHECK(pthread_mutex_lock(&l->mutex) == 0);
}

bool lock_try(struct lock *l)
{
    if (pthread_mutex_trylock(&l->mutex) != 0) {
        return false;
    }
    rank_taken(l->rank);
    return true;
}

void lock_drop(struct lock *l)
{
    enum lock_rank rank = l->rank; /* whoever waits may free the lock once it is dropped */

    CHECK(pthread_mutex_unlock(&l->mutex) == 0);
    rank_dropped(rank);
}

void cond_init(struct cond *c)
{
    pthread_condattr_t attr;

    CHECK(pthread_condattr_init(&attr) == 0);
    CHECK(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&c->cond, &attr) == 0);
    pthread_condattr_destroy(&attr);
}

void cond_fini(struct cond *c)
{
    CHECK(pthread_cond_destroy(&c->cond) == 0);
}

void cond_wait(struct cond *c, struct lock *l)
{
    CHECK(pthread_cond_wait(&c->cond, &l->mutex) == 0);
}

bool cond_wait_ms(struct cond *c, struct lock *l, uint64_t ms)
{
    struct timespec until;
    int rc;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    rc = pthread_cond_timedwait(&c->cond, &l->mutex, &until);
    CHECK(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void cond_signal(struct cond *c)
{
    CHECK(pthread_cond_signal(&c->cond) == 0);
}

void cond_broadcast(struct cond *c)
{
    CHECK(pthread_cond_broadcast(&c->cond) == 0);
}

bool thread_try(const char *name, void *(*run)(void *), void *arg, pthread_t *out)
{
    sigset_t all;
    sigset_t before;
    int failed;

    sigfillset(&all);
    /* A fault in a thread that blocks its signal ends the process without a word. */
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    failed = pthread_create(out, NULL, run, arg);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    CHECK(failed == 0 || failed == EAGAIN);
    if (failed == 0) {
        pthread_setname_np(*out, name);
    }
    return failed == 0;
}

pthread_t thread_start(const char *name, void *(*run)(void *), void *arg)
{
    pthread_t t;

    CHECK(thread_try(name, run, arg, &t));
    return t;
}
