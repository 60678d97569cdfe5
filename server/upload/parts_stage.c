/* parts_stage.c - the one stage that an object's parts are written into, and how far its digest has been taken. */
#include "server/upload/parts_priv.h"

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
                       struct session_file *f, struct ingest **out, struct err *e)
{
    struct charge lost;
    struct batch *b;
    uint64_t bytes = 0;
    int rc = uploads_open_ingest(u, f->total, true, out, e);

    if (rc == 0 && f->stage != 0) {
        rc = rows_bytes(u->store, s, d, f, &bytes, e);
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
    f->stage = ingest_id(*out);
    parts_row_put(s, d, 0, f, b);
    charge_begin(&lost, u, s->id, bytes);
    rc = session_save(s, *out, &b, COMMIT_LAZY, e);
    if (rc == 0) {
        charge_keep(&lost, 0);
        charge_settle(&lost);
    }
    return rc;
}

int parts_stage_open(struct uploads *u, struct joint *j, const struct session *s, struct err *e)
{
    struct session_file f;
    struct ingest *in = NULL;
    struct hasher *h;
    int rc;

    if (!joint_opens(u, j, &rc)) {
        return rc;
    }
    rc = parts_row_load(u->store, s->id, &j->digest, 0, &f, e);
    if (rc == 0) {
        rc = f.stage != 0 ? uploads_resume(u, f.stage, 0, f.total, &in, e) : E_NOTFOUND;
    }
    if (rc == 0) {
        h = joint_hasher_take(j);
        if (h != NULL) {
            ingest_hasher_give(in, &h);
        }
    } else if (rc == E_NOTFOUND) {
        joint_hasher_put(j, NULL); /* what it has seen has to come again */
        rc = begin_stage(u, s, &j->digest, &f, &in, e);
    }
    if (rc != 0) {
        ingest_drop(&in);
    }
    joint_opened(u, j, in);
    return rc;
}

/* --- the digest --------------------------------------------------------------------------------------------------- */

int parts_hash_on(struct uploads *u, struct joint *j, const struct session_file *awaited,
                  uint32_t most, struct err *e)
{
    struct session_file f;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < most && ingest_hashed(j->in) < awaited->total; i++) {
        uint64_t before = ingest_hashed(j->in) / awaited->bytes; /* whole parts */
        if (parts_row_load(u->store, j->id, &j->digest, (uint32_t)before + 1, &f, NULL) != 0) {
            break;
        }
        rc = ingest_hash(j->in, before * awaited->bytes + f.bytes, e);
    }
    return rc;
}
