#include "server/repo/hosted/assemble.h"

#include <stdio.h>
#include <stdlib.h>

#include "server/store/blob.h"
#include "server/store/drop.h"
#include "server/upload/upload_grant.h"
#include "server/upload/live.h"
#include "server/upload/upload_reply.h"
#include "server/repo/hf/xorb.h"
#include "server/repo/hf/xshard.h"

enum { OPEN_MAX = 8, WRITE_BYTES = 1 << 20 };

struct open_xorb { /* the chunks of one that was used lately */
    char hash[XSHARD_HASH_HEX + 1];
    struct blob *blob; /* NULL: this place is free */
    uint64_t used;
    uint32_t count;
    uint32_t at[XORB_CHUNKS_MAX]; /* of the heads */
};

struct assembly {
    struct uploads *u;
    const struct put *put;
    const struct session *session;
    struct upload_reply *reply;
    struct err *e;
    struct open_xorb *xorb; /* OPEN_MAX */
    uint64_t clock;
    struct ingest *in; /* the file at hand */
    uint8_t *out;      /* WRITE_BYTES, of which out_n wait to be written */
    size_t out_n;
    bool wrong; /* the file at hand came out wrong: one of its xorbs may be */
};

/* --- xorbs ------------------------------------------------------------------------------------ */

/* The bytes behind the last chunk are a footer that we do not need. */
static int index_xorb(struct open_xorb *x, struct err *e)
{
    uint64_t size = blob_size_bytes(x->blob);
    uint64_t at = 0;

    x->count = 0;
    while (at + XORB_HEAD_BYTES < size) {
        uint8_t head[XORB_HEAD_BYTES];
        struct xorb_chunk c;
        int rc = blob_read(x->blob, at, head, sizeof head, e);
        if (rc != 0) {
            return rc;
        }
        if (!xorb_head(head, &c) || at + XORB_HEAD_BYTES + c.stored > size ||
            x->count == XORB_CHUNKS_MAX) {
            return 0;
        }
        x->at[x->count++] = (uint32_t)at;
        at += XORB_HEAD_BYTES + c.stored;
    }
    return 0;
}

/* *out == NULL: there is none, the reply says so. */
static int find_xorb(struct assembly *a, const char *hash, struct open_xorb **out)
{
    struct open_xorb *oldest = &a->xorb[0];
    struct session_file f;
    char path[sizeof XORB_PATH + XSHARD_HASH_HEX];
    int rc;

    *out = NULL;
    for (size_t i = 0; i < OPEN_MAX; i++) {
        struct open_xorb *x = &a->xorb[i];
        if (x->blob != NULL && strcmp(x->hash, hash) == 0) {
            x->used = ++a->clock;
            *out = x;
            return 0;
        }
        oldest = x->used < oldest->used ? x : oldest;
    }
    snprintf(path, sizeof path, XORB_PATH "%s", hash);
    rc = session_file_load(a->u->store, a->session->id, slice_str(path), &f, a->e);
    if (rc == E_NOTFOUND || (rc == 0 && !f.sealed)) {
        upload_refuse(a->reply, 400, "xorb %.16s... is missing; upload it before the shard", hash);
        return 0;
    }
    blob_release(&oldest->blob);
    rc = rc != 0 ? rc : blob_open(a->u->store, &f.digest, &oldest->blob, a->e);
    if (rc == 0) {
        memcpy(oldest->hash, hash, sizeof oldest->hash);
        oldest->used = ++a->clock;
        rc = index_xorb(oldest, a->e);
        *out = oldest;
    }
    return rc;
}

/* --- a file ----------------------------------------------------------------------------------- */

static int flush_assembly(struct assembly *a)
{
    int rc = ingest_append(a->in, slice_of(a->out, a->out_n), a->e);

    a->out_n = 0;
    return rc;
}

static int add_chunk(struct assembly *a, const struct open_xorb *x, uint32_t i)
{
    uint8_t stored[XORB_HEAD_BYTES + 2 * XORB_CHUNK_BYTES];
    uint64_t left = blob_size_bytes(x->blob) - x->at[i];
    struct xorb_chunk c;
    int rc = 0;

    if (a->out_n + XORB_CHUNK_BYTES > WRITE_BYTES) {
        rc = flush_assembly(a);
    }
    rc = rc != 0 ? rc
                 : blob_read(x->blob, x->at[i], stored, (size_t)min_u64(left, sizeof stored), a->e);
    if (rc == 0 && !xorb_head(stored, &c)) {
        rc = err_set(a->e, E_CORRUPT, "the header of a chunk is damaged");
    }
    if (rc == 0) {
        rc = xorb_unpack(&c, stored + XORB_HEAD_BYTES, a->out + a->out_n, a->e);
        a->out_n += rc == 0 ? c.plain : 0;
    }
    return rc;
}

static int add_term(struct assembly *a, const struct xshard_term *t)
{
    uint64_t before = ingest_bytes(a->in) + a->out_n;
    struct open_xorb *x;
    int rc = find_xorb(a, t->xorb, &x);

    if (rc != 0 || x == NULL) {
        return rc;
    }
    if (t->first >= t->end || t->end > x->count) {
        a->wrong = true;
        upload_refuse(a->reply, 400, "the shard names chunks that xorb %.16s... does not have",
                      t->xorb);
        return 0;
    }
    for (uint32_t i = t->first; rc == 0 && i < t->end; i++) {
        rc = add_chunk(a, x, i);
    }
    if (rc == E_CORRUPT || rc == E_UNSUPPORTED) {
        a->wrong = true;
        upload_refuse(a->reply, 400, "xorb %.16s...: %s", t->xorb, a->e->text);
        return 0;
    }
    if (rc == 0 && ingest_bytes(a->in) + a->out_n - before != t->bytes) {
        upload_refuse(a->reply, 400, "the shard has another size of a term than its chunks");
    }
    return rc;
}

/* It is the offer's, until a commit names it. */
static int hold_assembled_file(struct assembly *a, const struct xshard_file *f)
{
    struct batch *b = batch_new();
    int rc = a->in != NULL ? ingest_seal(&a->in, b, NULL, a->e) : 0;

    if (rc == 0) {
        session_require(a->session, b);
        session_hold(a->session, SLICE_NONE, &f->sha256, b);
        rc = store_commit(a->u->store, &b, COMMIT_SYNC, a->e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(a->reply, 404, "this upload has ended in the meantime; start a new one");
        rc = 0;
    }
    batch_free(&b);
    return rc;
}

static int put_together(struct assembly *a, const struct xshard_file *f)
{
    struct xshard_term t;
    struct digest d;
    uint64_t total = 0;
    int rc;

    for (uint32_t i = 0; i < f->terms; i++) {
        xshard_term(f, i, &t);
        total += t.bytes;
    }
    a->out_n = 0;
    rc = uploads_open_ingest(a->u, total, false, &a->in, a->e);
    for (uint32_t i = 0; rc == 0 && a->reply->status == 0 && i < f->terms; i++) {
        xshard_term(f, i, &t);
        rc = add_term(a, &t);
    }
    if (rc != 0 || a->reply->status != 0) {
        return rc;
    }
    rc = flush_assembly(a);
    rc = rc != 0 ? rc : ingest_finish(a->in, ingest_bytes(a->in), &d, a->e);
    if (rc == 0 && !digest_eq(&d, &f->sha256)) {
        a->wrong = true;
        upload_refuse(a->reply, 400, "the chunks of a file do not match its SHA-256");
    }
    return rc;
}

/* Clients do not send what is here already: a broken xorb would stand in the way of every later
 * try. */
static int forget_xorb(struct assembly *a, const char *hash)
{
    char path[sizeof XORB_PATH + XSHARD_HASH_HEX];
    struct session_file f;
    struct charge charge;
    struct batch *b;
    int rc;

    snprintf(path, sizeof path, XORB_PATH "%s", hash);
    rc = session_file_load(a->u->store, a->session->id, slice_str(path), &f, a->e);
    if (rc != 0) {
        return rc == E_NOTFOUND ? 0 : rc; /* named more than once */
    }
    b = batch_new();
    session_file_del(a->session, slice_str(path), b);
    session_unhold(a->session, slice_str(path), &f.digest, b);
    rc = store_commit(a->u->store, &b, COMMIT_LAZY, a->e);
    batch_free(&b);
    if (rc == 0) {
        drop_unheld(a->u->store, &f.digest, 1);
        charge_begin(&charge, a->u, a->session->id, f.bytes);
        charge_keep(&charge, 0);
        charge_settle(&charge);
    }
    return rc;
}

static int forget_xorbs(struct assembly *a, const struct xshard_file *f)
{
    struct xshard_term t;
    int rc = 0;

    for (uint32_t i = 0; rc == 0 && i < f->terms; i++) {
        xshard_term(f, i, &t);
        rc = forget_xorb(a, t.xorb);
    }
    return rc;
}

static int on_xshard_file(void *arg, const struct xshard_file *f)
{
    struct assembly *a = arg;
    bool has = false;
    int rc = upload_grant_tree_has(a->u->store, a->put, &f->sha256, &has, NULL, a->e);

    if (rc == 0 && !has) {
        rc = put_together(a, f);
    }
    if (rc == 0 && a->reply->status == 0) {
        rc = hold_assembled_file(a, f);
    } else if (rc == 0 && a->wrong) {
        rc = forget_xorbs(a, f);
    }
    ingest_drop(&a->in);
    return rc != 0 ? rc : a->reply->status != 0;
}

static int forget_file(void *arg, const struct xshard_file *f)
{
    return forget_xorbs(arg, f);
}

static int forget_xet_session(struct uploads *u, const struct session *s, struct slice shard,
                              struct err *e)
{
    struct assembly a = {.u = u, .session = s, .e = e};
    struct batch *b = batch_new();
    int rc;

    upload_grant_forget(u->store, s, UPLOAD_GRANT_PIECES, b);
    rc = store_commit(u->store, &b, COMMIT_LAZY, e);
    batch_free(&b);
    return rc != 0 ? rc : xshard_each(shard, forget_file, &a, e);
}

static int assemble(struct uploads *u, const struct put *p, const struct session *s,
                    struct slice shard, struct upload_reply *reply, struct err *e)
{
    struct assembly a = {.u = u, .put = p, .session = s, .reply = reply, .e = e};
    int rc;

    a.xorb = mem_array(OPEN_MAX, sizeof *a.xorb);
    a.out = mem_new(WRITE_BYTES);
    rc = xshard_each(shard, on_xshard_file, &a, e);
    if (rc == E_PROTOCOL) {
        upload_refuse(reply, 400, "%s", e->text);
        rc = 0;
    }
    for (size_t i = 0; i < OPEN_MAX; i++) {
        blob_release(&a.xorb[i].blob);
    }
    free(a.out);
    free(a.xorb);
    if (rc >= 0 && reply->status == 0) {
        reply->status = 200;
    }
    return rc > 0 ? 0 : rc;
}

const struct assembler xet_assembler = {.piece_bytes_max = 72 << 20,
                                        .list_bytes_max = 128 << 20,
                                        .run = assemble,
                                        .forget = forget_xet_session};
