/* sealing.c - files that came whole become blobs on the disk pool, each noted in a stage row of the same batch. A large one costs
 * a sync, and has a job to itself. Small ones share jobs and commits: what comes while both sealers are at work is the next
 * one's, so a lone file waits for nobody and a hundred thousand do not wait for as many commits. */
#include <stdlib.h>

#include "common/os/crash.h"
#include "server/sync/stage_row.h"
#include "server/sync/taking.h"

enum { SEALERS = 2, FILES_A_SEALER = 1024, BYTES_A_SEALER = 4 << 20 };

struct sealing { /* a job */
    struct job job;
    struct takes *all;
    struct list these;
    bool small;
    int rc;
    struct err why;
};

static void start_small(struct takes *x);

static int seal_one(struct taking *t, struct batch *b, struct err *e)
{
    struct run *r = t->all->run;
    size_t chunks = 0;
    const struct digest *chunk = hasher_chunks(t->hasher, &chunks);
    uint64_t part = t->has_row ? stage_id(t->stage) : 0;
    int rc;

    if (t->unchanged) {
        rc = 0; /* the bytes are the published ones: only the row is new */
    } else if (t->stage == NULL) {
        rc = blob_put_bytes(r->world.store, buf_slice(&t->small), b, NULL, e);
    } else {
        rc = stage_seal(&t->stage, &t->seen.digest, t->at, chunk, chunks, b, NULL, e);
    }
    if (rc == 0 && part != 0) {
        part_del(b, part);
    }
    if (rc == 0) {
        stage_row_put(b, slice_str(r->job->repo), t->entry.path, &t->seen);
    }
    return rc;
}

static void work(struct job *j)
{
    struct sealing *g = CONTAINER_OF(j, struct sealing, job);
    struct batch *b = batch_new();

    LIST_EACH (&g->these, it) {
        if (g->rc == 0) {
            g->rc = seal_one(LIST_ITEM(it, struct taking, node), b, &g->why);
        }
    }
    crash_point("sync.seal");
    if (g->rc == 0) {
        g->rc = store_commit(g->all->run->world.store, &b, COMMIT_LAZY, &g->why);
    }
    batch_free(&b);
}

static void done(struct job *j)
{
    struct sealing *g = CONTAINER_OF(j, struct sealing, job);
    struct takes *x = g->all;
    struct run *r = x->run;
    uint64_t files = 0;
    struct list *n;

    while ((n = list_pop_front(&g->these)) != NULL) {
        struct taking *t = LIST_ITEM(n, struct taking, node);
        if (g->rc == 0) {
            r->plan.fate[t->index] = FATE_STAGED;
            files++;
        }
        taking_free(t);
    }
    if (g->rc != 0) {
        takes_fail(x, g->rc, &g->why);
    }
    x->done += files;
    lock_take(&r->lock);
    r->look.files_done += files;
    lock_drop(&r->lock);
    x->sealers -= g->small;
    free(g);
    start_small(x);
    takes_look_over(x);
}

static struct sealing *sealing_new(struct takes *x, bool small)
{
    struct sealing *g = NEW(struct sealing);

    g->all = x;
    g->small = small;
    g->job = (struct job){.work = work, .done = done, .reply = x->run->box};
    list_init(&g->these);
    return g;
}

static void start_small(struct takes *x)
{
    struct sealing *g;
    uint64_t bytes = 0;

    if (x->sealers == SEALERS || list_empty(&x->whole)) {
        return;
    }
    g = sealing_new(x, true);
    for (size_t i = 0; i < FILES_A_SEALER && bytes < BYTES_A_SEALER && !list_empty(&x->whole);
         i++) {
        struct list *n = list_pop_front(&x->whole);
        bytes += LIST_ITEM(n, struct taking, node)->small.n;
        list_push_back(&g->these, n);
    }
    x->sealers++;
    pool_submit(x->run->world.disk, &g->job, x->run->client);
}

void sealing_add(struct taking *t)
{
    struct takes *x = t->all;

    list_remove(&t->node);
    if (t->stage == NULL) {
        list_push_back(&x->whole, &t->node);
        start_small(x);
    } else {
        struct sealing *g = sealing_new(x, false);
        list_push_back(&g->these, &t->node);
        pool_submit(x->run->world.disk, &g->job, x->run->client);
    }
}
