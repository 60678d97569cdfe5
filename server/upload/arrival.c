#include "server/upload/arrival.h"

#include <inttypes.h>

#include "common/base/log.h"

/* Made durable that often while it comes: what a SIGKILL may cost. */
#define SAVE_BYTES ((uint64_t)64 << 20)

uint64_t arrival_bytes(const struct arrival *a)
{
    return a->in != NULL ? ingest_bytes(a->in) : 0;
}

void arrival_put(const struct arrival *a, const struct session_file *f, struct batch *b)
{
    session_require(a->session, b);
    if (f == NULL) {
        session_file_del(a->session, a->path, b);
    } else {
        session_file_put(a->session, a->path, f, b);
    }
}

int arrival_begin(struct arrival *a, struct batch **bp, struct err *e)
{
    struct session_file f = {.stage = ingest_id(a->in), .total = a->total};
    struct batch *b = bp != NULL ? *bp : batch_new();
    int rc;

    arrival_put(a, &f, b);
    rc = session_save(a->session, a->in, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        charge_keep(a->charge, 0);
    }
    if (bp != NULL) {
        *bp = NULL;
    }
    return rc;
}

int arrival_save(struct arrival *a, enum durability how, struct err *e)
{
    struct session_file f = {
        .stage = ingest_id(a->in), .bytes = ingest_bytes(a->in), .total = a->total};
    struct batch *b = batch_new();
    int rc;

    arrival_put(a, &f, b);
    rc = session_save(a->session, a->in, &b, how, e);
    if (rc == 0) {
        a->saved = f.bytes;
        charge_keep(a->charge, a->saved);
    }
    return rc;
}

int arrival_save_if_due(struct arrival *a, struct err *e)
{
    bool due =
        a->in != NULL && ingest_id(a->in) != 0 && ingest_bytes(a->in) - a->saved >= SAVE_BYTES;

    return due ? arrival_save(a, COMMIT_LAZY, e) : 0;
}

bool arrival_settle(struct arrival *a)
{
    uint64_t here = arrival_bytes(a);
    struct err e = {0};
    int rc = 0;

    if (a->in == NULL || ingest_id(a->in) == 0) {
        ingest_drop(&a->in);
        return false;
    }
    if (here > a->saved && ingest_state(a->in) == INGEST_WHOLE) {
        rc = err_set(&e, E_IO, "the hash is already finalized, so its state cannot be saved");
    } else if (here > a->saved) {
        rc = arrival_save(a, COMMIT_LAZY, &e);
    }
    if (rc == E_CHANGED) { /* the upload has ended */
        ingest_drop(&a->in);
        return false;
    }
    if (rc != 0) {
        log_warn("upload.save", "bytes=%" PRIu64 " lost=%" PRIu64 " why=\"%s\"", a->saved,
                 here - a->saved, e.text); /* less is there to go on from */
        (void)!ingest_cut(a->in, a->saved, here - a->saved, NULL);
    }
    return true;
}
