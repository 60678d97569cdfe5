#include "common/os/pool.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "common/os/lock.h"

struct pool {
    struct lock lock;
    struct cond more;
    struct fair_queue jobs;
    unsigned nthreads;
    int nice;
    bool closing;
    pthread_t threads[];
};

static void on_pool_message(struct message *l)
{
    struct job *j = CONTAINER_OF(l, struct job, message);
    j->done(j);
}

/* Its item is in nobody's hands when work() begins: that may free the job. */
static void run_pool_job(struct job *j)
{
    if (j->done == NULL) {
        j->work(j);
        return;
    }
    CHECK(j->reply != NULL);
    j->work(j);
    j->message.deliver = on_pool_message;
    message_queue_post(j->reply, &j->message);
}

static void *run_worker(void *arg)
{
    struct pool *p = arg;

    if (p->nice != 0) { /* on Linux it is a thread's own */
        setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + p->nice);
    }
    lock_take(&p->lock);
    for (;;) {
        struct fair_item *it = fair_queue_pop(&p->jobs);
        struct fair_item running = {.flow = NULL};

        if (it == NULL && p->closing && p->jobs.waiting == 0) {
            break;
        }
        if (it == NULL) {
            cond_wait(&p->more, &p->lock);
            continue;
        }
        running.flow = it->flow;
        it->flow = NULL;
        lock_drop(&p->lock);
        run_pool_job(CONTAINER_OF(it, struct job, item));
        lock_take(&p->lock);
        fair_queue_leave(&p->jobs, &running);
        if (p->closing) {
            cond_broadcast(&p->more);
        }
    }
    lock_drop(&p->lock);
    return NULL;
}

struct pool *pool_open(const char *name, unsigned threads, int nice)
{
    struct pool *p = mem_new(sizeof *p + threads * sizeof p->threads[0]);

    CHECK(threads > 0);
    lock_init(&p->lock, LOCK_POOL);
    cond_init(&p->more);
    fair_queue_init(&p->jobs, 1, fair_share_of_one(threads));
    p->nthreads = threads;
    p->nice = nice;
    for (unsigned i = 0; i < threads; i++) {
        p->threads[i] = thread_start(name, run_worker, p);
    }
    return p;
}

void pool_submit(struct pool *p, struct job *j, uint64_t client)
{
    lock_take(&p->lock);
    CHECK(!p->closing);
    fair_queue_push(&p->jobs, &j->item, client, 1);
    cond_signal(&p->more);
    lock_drop(&p->lock);
}

void pool_move(struct pool *p, struct job *j, uint64_t client)
{
    lock_take(&p->lock);
    if (fair_queue_move(&p->jobs, &j->item, client)) {
        cond_signal(&p->more);
    }
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
    fair_queue_fini(&p->jobs);
    cond_fini(&p->more);
    lock_fini(&p->lock);
    free(p);
}

unsigned pool_waiting(struct pool *p)
{
    unsigned n;

    lock_take(&p->lock);
    n = p->jobs.waiting;
    lock_drop(&p->lock);
    return n;
}

unsigned pool_waiting_of(struct pool *p, uint64_t client)
{
    unsigned n;

    lock_take(&p->lock);
    n = fair_queue_waiting(&p->jobs, client);
    lock_drop(&p->lock);
    return n;
}
