#include "agent/pull/sealing.h"

#include <stdlib.h>

struct sealer {
    struct puller *pl;
    struct list gathering;
    size_t ngathering;
    struct shelf_sealing **batch; /* that the job is at */
    struct list in_batch;
    size_t nbatch;
    struct job job;
};

struct sealer *sealer_open(struct puller *pl)
{
    struct sealer *s = NEW(struct sealer);

    s->pl = pl;
    list_init(&s->gathering);
    list_init(&s->in_batch);
    return s;
}

void sealer_close(struct sealer **sp)
{
    struct sealer *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        CHECK(list_empty(&s->gathering) && list_empty(&s->in_batch));
        free(s);
    }
}

static void seal_work(struct job *j)
{
    struct sealer *s = CONTAINER_OF(j, struct sealer, job);

    shelf_seal(s->pl->agent->shelf, s->batch, s->nbatch);
}

static void seal_done(struct job *j)
{
    struct sealer *s = CONTAINER_OF(j, struct sealer, job);
    struct list *n;

    free(s->batch);
    while ((n = list_pop_front(&s->in_batch)) != NULL) {
        struct sealing *x = LIST_ITEM(n, struct sealing, node);
        x->done(x);
    }
    puller_feed(s->pl);
}

void sealer_feed(struct sealer *s)
{
    struct list *n;

    if (!list_empty(&s->in_batch) || s->ngathering == 0) {
        return;
    }
    s->batch = mem_array(s->ngathering, sizeof(struct shelf_sealing *));
    s->nbatch = 0;
    s->ngathering = 0;
    while ((n = list_pop_front(&s->gathering)) != NULL) {
        list_push_back(&s->in_batch, n);
        s->batch[s->nbatch++] = &LIST_ITEM(n, struct sealing, node)->one;
    }
    s->job = (struct job){.work = seal_work, .done = seal_done, .reply = s->pl->mail};
    pool_submit(s->pl->workers, &s->job, CLIENT_PROGRAM);
}

void sealing_add(struct sealer *s, struct sealing *x)
{
    list_push_back(&s->gathering, &x->node);
    s->ngathering++;
}
