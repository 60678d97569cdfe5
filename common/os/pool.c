#include "common/os/pool.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "common/os/lock.h"

struct pool {
    struct lock lock;
    struct cond more;
    struct list jobs;
    unsigned waiting;
    unsigned nthreads;
    int nice;
    bool closing;
    pthread_t threads[];
};

static void on_letter(struct letter *l)
{
    struct job *j = CONTAINER_OF(l, struct job, letter);
    j->done(j);
}

static void *run_worker(void *arg)
{
    struct pool *p = arg;

    if (p->nice != 0) { /* on Linux it is a thread's own */
        setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + p->nice);
    }
    for (;;) {
        struct list *n;
        struct job *j;

        lock_take(&p->lock);
        while ((n = list_pop_front(&p->jobs)) == NULL && !p->closing) {
            cond_wait(&p->more, &p->lock);
        }
        if (n != NULL) {
            p->waiting--;
        }
        lock_drop(&p->lock);
        if (n == NULL) {
            return NULL;
        }
        j = LIST_ITEM(n, struct job, node);
        if (j->done == NULL) {
            j->work(j); /* may free the job */
        } else {
            CHECK(j->reply != NULL);
            j->work(j);
            j->letter.deliver = on_letter;
            mailbox_post(j->reply, &j->letter);
        }
    }
}

struct pool *pool_open(const char *name, unsigned threads, int nice)
{
    struct pool *p = mem_new(sizeof *p + threads * sizeof p->threads[0]);

    CHECK(threads > 0);
    lock_init(&p->lock, LOCK_POOL);
    cond_init(&p->more);
    list_init(&p->jobs);
    p->nthreads = threads;
    p->nice = nice;
    for (unsigned i = 0; i < threads; i++) {
        p->threads[i] = thread_start(name, run_worker, p);
    }
    return p;
}

void pool_submit(struct pool *p, struct job *j)
{
    lock_take(&p->lock);
    CHECK(!p->closing);
    list_push_back(&p->jobs, &j->node);
    p->waiting++;
    cond_signal(&p->more);
    lock_drop(&p->lock);
}

void pool_close(struct pool **pp)
{
    struct pool *p = *pp;

    if (p == NULL) {
        return;
    }
    *pp = NULL;
    lock_take(&p->lock);
    p->closing = true;
    cond_broadcast(&p->more);
    lock_drop(&p->lock);
    for (unsigned i = 0; i < p->nthreads; i++) {
        pthread_join(p->threads[i], NULL);
    }
    cond_fini(&p->more);
    lock_fini(&p->lock);
    free(p);
}

unsigned pool_waiting(struct pool *p)
{
    unsigned n;

    lock_take(&p->lock);
    n = p->waiting;
    lock_drop(&p->lock);
    return n;
}
