/* parts_stage.c - the one stage that an object's parts are written into, and how far its digest has been taken. */
#include "server/upload/parts_priv.h"

#include <stdlib.h>

#include "server/store/blob.h"

/* What the rows of the object's parts say is here. */
static int rows_bytes(struct store *store, const struct session *s, const struct digest *d,
                      const struct session_file *f, uint64_t *bytes, struct err *e)
{
    struct session_file part;
    int rc = 0;

    *bytes = 0;
    for (uint32_t n = 1; rc == 0 && n <= parts_count(f->total, f->bytes); n++) {
        rc = parts_row_load(store, s->id, d, n, &part, e);
        *bytes += rc == 0 ? part.bytes : 0;
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    return rc;
}

/* A new one, where there is none yet, or its file is lost; parts that were in that one are, too. */
static int begin_stage(struct uploads *u, const struct session *s, const struct digest *d,
                       struct session_file *f, struct stage **out, struct err *e)
{
    struct charge lost;
    struct batch *b;
    uint64_t bytes = 0;
    int rc = uploads_stage(u, f->total, true, out, e);

    if (rc == 0 && f->stage != 0) {
        rc = rows_bytes(u->store, s, d, f, &bytes, e);
    }
    if (rc == 0) {
        rc = stage_sync(*out, e); /* its name, before rows tell of parts in it */
    }
    if (rc != 0) {
        return rc;
    }
    b = batch_new();
    session_require(s, b);
    if (f->stage != 0) {
        parts_rows_drop(u->store, s, d, f, b);
        parts_await(s, &(struct put_object){*d, f->total}, f->bytes, b);
    }
    f->stage = stage_id(*out);
    parts_row_put(s, d, 0, f, b);
    session_stage_put(s, f->stage, b);
    charge_begin(&lost, u, s->id, bytes);
    rc = store_commit(u->store, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        charge_keep(&lost, 0);
        charge_settle(&lost);
    }
    return rc;
}

int parts_stage_open(struct uploads *u, struct joint *j, const struct session *s, struct err *e)
{
    struct session_file f;
    struct stage *st = NULL;
    int rc;

    if (!joint_opens(u, j, &rc)) {
        return rc;
    }
    rc = parts_row_load(u->store, s->id, &j->digest, 0, &f, e);
    if (rc == 0) {
        rc = f.stage != 0 ? uploads_resume(u, f.stage, f.total, &st, e) : E_NOTFOUND;
        rc = rc == E_NOTFOUND ? begin_stage(u, s, &j->digest, &f, &st, e) : rc;
    }
    if (rc != 0) {
        stage_abort(&st);
    }
    joint_opened(u, j, st);
    return rc;
}

/* --- the digest --------------------------------------------------------------------------------------------------- */

int parts_hash_on(struct uploads *u, struct joint *j, const struct session_file *awaited,
                  uint32_t most, struct err *e)
{
    unsigned epoch;
    struct hasher *h = joint_hash_take(u, j, UINT64_MAX, &epoch);
    int rc = 0;

    for (uint32_t i = 0; h != NULL && rc == 0 && i < most && hasher_count(h) < awaited->total;
         i++) {
        struct session_file f;
        uint32_t next = (uint32_t)(hasher_count(h) / awaited->bytes) + 1;
        if (parts_row_load(u->store, j->id, &j->digest, next, &f, NULL) != 0) {
            break;
        }
        rc = hasher_add_file(h, stage_fd(j->stage), hasher_count(h) + f.bytes, e);
    }
    if (h != NULL && rc != 0) { /* part of a part: of no use */
        joint_hash_void(u, j);
    }
    if (h != NULL) {
        joint_hash_give(u, j, h, epoch);
    }
    return rc;
}
