#include "agent/train/loader.h"

#include <stdlib.h>

#include "common/os/lock.h"

enum { AHEAD = 2 }; /* buffers: of the step that is learnt, and of the next */

struct step {
    int32_t *token;
    int32_t *target;
    int rc;
    struct err why;
};

struct loader {
    const struct data *data;
    const struct kops *k;
    struct loader_plan p;
    struct step step[AHEAD];
    struct lock lock;
    struct cond changed;
    uint64_t read;  /* steps that are in their buffers */
    uint64_t taken; /* steps that were given out; the last of them is still in use */
    bool closing;
    bool started;
    pthread_t reader;
};

/* --- the thread ------------------------------------------------------------------------------- */

/* Number of this rank's i-th sample of a step. */
static uint64_t sample_of(const struct loader *l, uint64_t step, int64_t i)
{
    const struct loader_plan *p = &l->p;
    int64_t micro = i / p->batch, in_batch = i % p->batch;

    return p->first + step * (uint64_t)(p->micros * p->ranks * p->batch) +
           (uint64_t)((micro * p->ranks + p->rank) * p->batch + in_batch);
}

static void read_step(struct loader *l, uint64_t number)
{
    struct step *s = &l->step[number % AHEAD];
    int64_t samples = l->p.micros * l->p.batch;

    s->rc = 0;
    for (int64_t i = 0; i < samples; i++) { /* a disk far away fetches all of them at once */
        data_expect(l->data, sample_of(l, number, i));
    }
    for (int64_t i = 0; s->rc == 0 && i < samples; i++) {
        s->rc = data_sample(l->data, sample_of(l, number, i), s->token + i * l->p.seq,
                            s->target + i * l->p.seq, &s->why);
    }
}

/* False when all is to end. A buffer is free when the step after the one that it holds has been
 * asked for. */
static bool wait_for_buffer(struct loader *l, uint64_t number)
{
    bool go;

    lock_take(&l->lock);
    while (!l->closing && number >= AHEAD && l->taken < number) {
        cond_wait(&l->changed, &l->lock);
    }
    go = !l->closing;
    lock_drop(&l->lock);
    return go;
}

static void *run_reader(void *arg)
{
    struct loader *l = arg;

    for (uint64_t number = 0; wait_for_buffer(l, number); number++) {
        read_step(l, number);
        lock_take(&l->lock);
        l->read = number + 1;
        cond_broadcast(&l->changed);
        lock_drop(&l->lock);
    }
    return NULL;
}

/* --- the caller ------------------------------------------------------------------------------- */

int loader_open(const struct data *d, const struct kops *k, const struct loader_plan *p,
                struct loader **out, struct err *e)
{
    struct loader *l = NEW(struct loader);
    uint64_t bytes = sizeof(int32_t);
    bool fits = mul_u64(bytes, (uint64_t)p->micros, &bytes) &&
                mul_u64(bytes, (uint64_t)p->batch, &bytes) &&
                mul_u64(bytes, (uint64_t)p->seq, &bytes);
    int rc = fits ? 0 : E_NOSPACE;

    *out = NULL;
    l->data = d;
    l->k = k;
    l->p = *p;
    lock_init(&l->lock, LOCK_LEAF);
    cond_init(&l->changed);
    for (size_t i = 0; rc == 0 && i < AHEAD; i++) {
        rc = k->host_alloc((void **)&l->step[i].token, bytes);
        rc = rc != 0 ? rc : k->host_alloc((void **)&l->step[i].target, bytes);
    }
    if (rc != 0) {
        rc = err_set(e, rc, "not enough host memory for the tokens of %d steps", AHEAD);
        goto out;
    }
    l->reader = thread_start("loader", run_reader, l);
    l->started = true;
    *out = l;
    l = NULL;
out:
    loader_close(&l);
    return rc;
}

void loader_close(struct loader **lp)
{
    struct loader *l = *lp;

    if (l == NULL) {
        return;
    }
    *lp = NULL;
    if (l->started) {
        lock_take(&l->lock);
        l->closing = true;
        cond_broadcast(&l->changed);
        lock_drop(&l->lock);
        pthread_join(l->reader, NULL);
    }
    for (size_t i = 0; i < AHEAD; i++) {
        l->k->host_free(l->step[i].token);
        l->k->host_free(l->step[i].target);
    }
    cond_fini(&l->changed);
    lock_fini(&l->lock);
    free(l);
}

int loader_next(struct loader *l, const int32_t **token, const int32_t **target, struct err *e)
{
    const struct step *s;

    lock_take(&l->lock);
    s = &l->step[l->taken++ % AHEAD];
    cond_broadcast(&l->changed);
    while (l->read < l->taken) {
        cond_wait(&l->changed, &l->lock);
    }
    lock_drop(&l->lock);
    if (s->rc != 0) {
        if (e != NULL) {
            *e = s->why;
        }
        return s->rc;
    }
    *token = s->token;
    *target = s->target;
    return 0;
}
