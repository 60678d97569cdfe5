#include "server/sync/http/keep.h"

#include <event2/event.h>
#include <stdlib.h>

#include "common/os/clock.h"
#include "server/sync/stage_row.h"

struct keep {
    const struct engine_site *site;
    char *path, *validator;
    uint64_t max_bytes;
    struct hasher *hasher;
    struct buf small;    /* as long as it would lie in a row */
    struct stage *stage; /* from then on */
    uint64_t at;         /* bytes that came */
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
    k->small = BUF_INIT(BLOB_INLINE_BYTES);
    keep_begin(k);
    return k;
}

void keep_begin(struct keep *k)
{
    stage_abort(&k->stage);
    buf_clear(&k->small);
    hasher_free(&k->hasher);
    k->hasher = hasher_new();
    k->at = 0;
}

static int write_on(struct keep *k, struct slice bytes, struct err *e)
{
    int rc = 0;

    if (k->stage == NULL) {
        rc = stage_open(k->site->store, 0, false, &k->stage, e);
        if (rc == 0) {
            rc = stage_write(k->stage, k->small.p, k->small.n, 0, e);
        }
        if (rc != 0) { /* once more means from the beginning */
            stage_abort(&k->stage);
        }
    }
    return rc == 0 ? stage_write(k->stage, bytes.p, bytes.n, k->at, e) : rc;
}

int keep_add(struct keep *k, struct slice bytes, struct err *e)
{
    int rc;

    if (bytes.n > k->max_bytes - k->at) {
        return err_set(e, E_TOOBIG, "an index of more than %llu bytes",
                       (unsigned long long)k->max_bytes);
    }
    hasher_add(k->hasher, bytes.p, bytes.n);
    if (k->stage == NULL && k->at + bytes.n <= BLOB_INLINE_BYTES) {
        buf_adds(&k->small, bytes);
        k->at += bytes.n;
        return 0;
    }
    rc = write_on(k, bytes, e);
    if (rc == E_NOSPACE && k->site->make_room(k->site->make_room_arg, k->small.n + bytes.n) == 0) {
        rc = write_on(k, bytes, e);
    }
    k->at += bytes.n;
    return rc;
}

static void seal_work(struct job *j)
{
    struct keep *k = CONTAINER_OF(j, struct keep, job);
    struct batch *b = batch_new();
    size_t chunks = 0;
    const struct digest *chunk = hasher_chunks(k->hasher, &chunks);

    k->rc = k->stage == NULL
                ? blob_put_bytes(k->site->store, buf_slice(&k->small), b, NULL, &k->why)
                : stage_seal(&k->stage, &k->seen.digest, k->at, chunk, chunks, b, NULL, &k->why);
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
    hasher_final(k->hasher, &k->seen.digest);
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
    stage_abort(&k->stage);
    hasher_free(&k->hasher);
    buf_free(&k->small);
    free(k->path);
    free(k->validator);
    free(k);
}
