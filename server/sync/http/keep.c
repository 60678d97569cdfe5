#include "server/sync/http/keep.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/store/ingest.h"
#include "server/sync/seen.h"

struct keep {
    const struct engine_site *site;
    char *path, *validator;
    uint64_t max_bytes;
    struct ingest *in;
    uint64_t at; /* bytes that came */
    struct seen seen;
    struct job job;
    bool sealing;
    int rc;
    struct err why;
    void (*done)(void *arg, int rc, const struct err *why);
    void *arg;
};

struct keep *keep_open(const struct engine_site *site, const char *path, uint64_t max_bytes)
{
    struct keep *k = NEW(struct keep);

    k->site = site;
    k->path = mem_strdup(path);
    k->max_bytes = max_bytes;
    keep_begin(k);
    return k;
}

void keep_begin(struct keep *k)
{
    const struct ingest_how how = {.small = true,
                                   .hash_bytes = UINT64_MAX,
                                   .make_room = k->site->make_room,
                                   .make_room_arg = k->site->make_room_arg};

    ingest_drop(&k->in);
    k->at = 0;
    CHECK(ingest_open(k->site->store, &how, &k->in, NULL) == 0); /* it begins in memory */
}

int keep_add(struct keep *k, struct slice bytes, struct err *e)
{
    if (bytes.n > k->max_bytes - k->at) {
        return err_set(e, E_TOOBIG, "an index of more than %llu bytes",
                       (unsigned long long)k->max_bytes);
    }
    k->at += bytes.n;
    return ingest_append(k->in, bytes, e);
}

static void seal_work(struct job *j)
{
    struct keep *k = CONTAINER_OF(j, struct keep, job);
    struct batch *b = batch_new();

    k->rc = k->rc == 0 ? ingest_seal(&k->in, b, NULL, &k->why) : k->rc;
    if (k->rc == 0) {
        stage_row_put(b, k->site->repo, slice_str(k->path), &k->seen);
        k->rc = store_commit(k->site->store, &b, COMMIT_LAZY, &k->why);
    }
    batch_free(&b);
}

static void seal_done(struct job *j)
{
    struct keep *k = CONTAINER_OF(j, struct keep, job);

    k->sealing = false;
    if (k->done != NULL) {
        k->done(k->arg, k->rc, &k->why);
    }
}

void keep_seal(struct keep *k, int64_t mtime_ns, const char *validator,
               void (*done)(void *arg, int rc, const struct err *why), void *arg)
{
    k->done = done;
    k->arg = arg;
    k->validator = mem_strdup(validator != NULL ? validator : "");
    k->seen = (struct seen){.listed_size = k->at,
                            .listed_mtime_ns = SYNC_TIME_UNKNOWN,
                            .taken_unix_s = clock_unix_s(),
                            .size_bytes = k->at,
                            .mtime_ns = mtime_ns != SYNC_TIME_UNKNOWN ? mtime_ns : 0,
                            .validator = slice_str(k->validator)};
    k->rc = ingest_finish(k->in, k->at, &k->seen.digest, &k->why);
    k->sealing = true;
    k->job = (struct job){.work = seal_work, .done = seal_done, .reply = k->site->box};
    pool_submit(k->site->disk, &k->job, k->site->client);
}

const struct digest *keep_digest(const struct keep *k)
{
    return &k->seen.digest;
}

uint64_t keep_size(const struct keep *k)
{
    return k->at;
}

void keep_free(struct keep **kp)
{
    struct keep *k = *kp;

    *kp = NULL;
    if (k == NULL) {
        return;
    }
    k->done = NULL;
    while (k->sealing) { /* its letter is on the way to this loop */
        (void)!event_base_loop(k->site->base, EVLOOP_ONCE);
    }
    ingest_drop(&k->in);
    free(k->path);
    free(k->validator);
    free(k);
}
