#include "server/upload/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "common/base/endian.h"
#include "server/store/blob.h"
#include "server/store/drop.h"
#include "server/upload/multipart_upload.h"
#include "server/store/keep.h"
#include "server/upload/live.h"
#include "server/upload/upload_grant.h"
#include "server/upload/parts.h"
#include "server/upload/upload_reply.h"

/* --- rows --- */

static uint64_t take_u64(struct slice *s)
{
    uint64_t v = be_get(s->p, 8);

    *s = slice_from(*s, 8);
    return v;
}

enum {
    SESSION_FIXED = 1 + 4 * 8 + DIGEST_BYTES,
    PARTIAL_ROW = 1 + 3 * 8,
    SEALED_ROW = 1 + 8 + DIGEST_BYTES
};

void session_encode(const struct session *s, struct buf *out)
{
    buf_byte(out,
             s->upload_grant ? 2 : 1); /* version of this layout; of upload grants it is the same */
    buf_be(out, 8, s->begun_unix_s);
    buf_be(out, 8, s->done.seq);
    buf_be(out, 8, s->done.entries);
    buf_be(out, 8, s->done.bytes);
    buf_add(out, s->done.root.b, DIGEST_BYTES);
    buf_str(out, s->repo);
    buf_byte(out, 0);
    buf_str(out, s->name);
}

static bool copy_text(char *to, size_t room, struct slice s)
{
    if (s.n >= room) {
        return false;
    }
    memcpy(to, s.p, s.n);
    to[s.n] = '\0';
    return true;
}

static bool session_decode(struct slice row, struct session *out)
{
    if (row.n < SESSION_FIXED || (row.p[0] != 1 && row.p[0] != 2)) {
        return false;
    }
    out->upload_grant = row.p[0] == 2;
    row = slice_from(row, 1);
    out->begun_unix_s = take_u64(&row);
    out->done.seq = take_u64(&row);
    out->done.entries = take_u64(&row);
    out->done.bytes = take_u64(&row);
    memcpy(out->done.root.b, row.p, DIGEST_BYTES);
    row = slice_from(row, DIGEST_BYTES);
    return copy_text(out->repo, sizeof out->repo, slice_cut(&row, '\0')) &&
           copy_text(out->name, sizeof out->name, row);
}

static void session_file_encode(const struct session_file *f, struct buf *out)
{
    buf_byte(out, f->sealed ? 'f' : 'p');
    buf_be(out, 8, f->bytes);
    if (f->sealed) {
        buf_add(out, f->digest.b, DIGEST_BYTES);
    } else {
        buf_be(out, 8, f->total);
        buf_be(out, 8, f->stage);
    }
}

static bool session_file_decode(struct slice row, struct session_file *out)
{
    *out = (struct session_file){.total = UINT64_MAX};
    if (row.n == 0 || row.n != (row.p[0] == 'f' ? SEALED_ROW : PARTIAL_ROW)) {
        return false;
    }
    out->sealed = row.p[0] == 'f';
    row = slice_from(row, 1);
    out->bytes = take_u64(&row);
    if (out->sealed) {
        out->total = out->bytes;
        memcpy(out->digest.b, row.p, DIGEST_BYTES);
    } else {
        out->total = take_u64(&row);
        out->stage = take_u64(&row);
    }
    return true;
}

/* path.p == NULL: the session. */
static void session_key(struct buf *out, const char *id, struct slice path)
{
    buf_clear(out);
    buf_add(out, id, UPLOAD_ID);
    if (path.p != NULL) {
        buf_byte(out, 0);
        buf_adds(out, path);
    }
}

bool session_row_is_upload_grant(struct slice row)
{
    return row.n != 0 && row.p[0] == 2;
}

static int id_new(struct slice node, char id[UPLOAD_ID + 1], struct err *e)
{
    uint8_t raw[UPLOAD_ID / 2];

    if (getrandom(raw, sizeof raw, 0) != (ssize_t)sizeof raw) {
        return err_sys(e, "getrandom");
    }
    for (size_t i = 0; i < sizeof raw; i++) {
        snprintf(id + 2 * i, 3, "%02x", raw[i]);
    }
    if (node.n != 0) {
        memcpy(id, node.p, min_u64(node.n, UPLOAD_ID / 2));
    }
    return 0;
}

bool session_new(const struct put *p, bool upload_grant, uint64_t now_unix_s, struct session *s,
                 struct upload_reply *out, int *rc, struct err *e)
{
    *s = (struct session){
        .row = BUF_INIT(4096), .upload_grant = upload_grant, .begun_unix_s = now_unix_s};
    *rc = id_new(p->node, s->id, e);
    if (*rc != 0) {
        return false;
    }
    if (!copy_text(s->repo, sizeof s->repo, p->repo) ||
        !copy_text(s->name, sizeof s->name, p->name) ||
        p->location.n + UPLOAD_ID + 2 > sizeof out->location) {
        upload_refuse(out, 400, "the tree's name is too long");
        return false;
    }
    session_encode(s, &s->row);
    return true;
}

void session_put(const struct session *s, struct batch *b)
{
    batch_put(b, TABLE_UPLOAD, slice_of(s->id, UPLOAD_ID), buf_slice(&s->row));
}

void session_locate(const struct session *s, const struct put *p, struct upload_reply *out)
{
    snprintf(out->location, sizeof out->location, SLICE_FMT "/%s", SLICE_ARG(p->location), s->id);
}

int session_load(struct store *s, const struct put *p, struct session *out, struct err *e)
{
    int rc;

    *out = (struct session){.row = BUF_INIT(4096)};
    if (!copy_text(out->id, sizeof out->id, p->upload_id) || p->upload_id.n != UPLOAD_ID) {
        return err_set(e, E_NOTFOUND, "no such upload");
    }
    rc = store_get(s, TABLE_UPLOAD, p->upload_id, &out->row, e);
    if (rc == 0 && !session_decode(buf_slice(&out->row), out)) {
        rc = err_set(e, E_CORRUPT, "upload %s: its row cannot be decoded", out->id);
    }
    if (rc == 0 && (!slice_eqs(p->repo, out->repo) || !slice_eqs(p->name, out->name))) {
        rc = err_set(e, E_NOTFOUND, "no such upload in this tree");
    }
    return rc;
}

bool session_begin(struct store *store, const struct put *p, struct session *s,
                   struct upload_reply *out, int *rc, struct err *e)
{
    *rc = session_load(store, p, s, e);
    if (*rc == 0 && s->upload_grant) {
        *rc = E_NOTFOUND;
    }
    if (*rc == E_NOTFOUND) {
        upload_refuse_gone(out);
        *rc = 0;
        return false;
    }
    return *rc == 0;
}

void session_free(struct session *s)
{
    buf_free(&s->row);
}

int session_file_load(struct store *s, const char *id, struct slice path, struct session_file *out,
                      struct err *e)
{
    struct buf key = BUF_INIT(8192);
    struct buf row = BUF_INIT(4096);
    int rc;

    session_key(&key, id, path);
    rc = store_get(s, TABLE_UPLOAD, buf_slice(&key), &row, e);
    if (rc == 0 && !session_file_decode(buf_slice(&row), out)) {
        rc = err_set(e, E_CORRUPT, "upload %s: the row of a file cannot be decoded", id);
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

void session_file_put(const struct session *s, struct slice path, const struct session_file *f,
                      struct batch *b)
{
    struct buf key = BUF_INIT(8192), row = BUF_INIT(256);

    session_key(&key, s->id, path);
    session_file_encode(f, &row);
    batch_put(b, TABLE_UPLOAD, buf_slice(&key), buf_slice(&row));
    buf_free(&key);
    buf_free(&row);
}

void session_file_del(const struct session *s, struct slice path, struct batch *b)
{
    struct buf key = BUF_INIT(8192);

    session_key(&key, s->id, path);
    batch_del(b, TABLE_UPLOAD, buf_slice(&key));
    buf_free(&key);
}

int session_save(const struct session *s, struct ingest *in, struct batch **bp, enum durability how,
                 struct err *e)
{
    struct partial *p = partial_new(PARTIAL_UPLOAD, slice_str(s->id));
    int rc = ingest_save(in, p, bp, how, e);

    partial_free(&p);
    return rc;
}

void session_require(const struct session *s, struct batch *b)
{
    batch_require_value(b, TABLE_UPLOAD, slice_of(s->id, UPLOAD_ID), buf_slice(&s->row));
}

/* By the key of the row that it lives as long as. */
static void session_holder_key(const struct session *s, struct slice path, const struct digest *d,
                               struct buf *key)
{
    struct buf row = BUF_INIT(8192);

    session_key(&row, s->id, path);
    holder_key(key, d, slice_str(s->repo), 'u', buf_slice(&row));
    buf_free(&row);
}

void session_hold(const struct session *s, struct slice path, const struct digest *d,
                  struct batch *b)
{
    struct buf key = BUF_INIT(16 << 10);

    session_holder_key(s, path, d, &key);
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    buf_free(&key);
}

void session_unhold(const struct session *s, struct slice path, const struct digest *d,
                    struct batch *b)
{
    struct buf key = BUF_INIT(16 << 10);

    session_holder_key(s, path, d, &key);
    batch_del(b, TABLE_HOLDER, buf_slice(&key));
    buf_free(&key);
}

struct each_file {
    int (*each)(void *arg, struct slice path, const struct session_file *f);
    void *arg;
};

static int on_file_row(void *arg, struct slice key, struct slice value)
{
    struct each_file *x = arg;
    struct session_file f;

    return session_file_decode(value, &f) ? x->each(x->arg, slice_from(key, UPLOAD_ID + 1), &f) : 0;
}

int session_each_file(struct store *s, const char *id,
                      int (*each)(void *arg, struct slice path, const struct session_file *f),
                      void *arg, struct err *e)
{
    struct each_file x = {each, arg};
    char from[UPLOAD_ID + 1];
    char to[UPLOAD_ID + 1];

    memcpy(from, id, UPLOAD_ID);
    memcpy(to, id, UPLOAD_ID);
    from[UPLOAD_ID] = 0;
    to[UPLOAD_ID] = 1;
    return store_scan(s, TABLE_UPLOAD, slice_of(from, sizeof from), slice_of(to, sizeof to),
                      on_file_row, &x, e);
}

struct drop_session {
    struct uploads *u;
    const char *id;
    struct session session;
    struct batch *batch;
    struct buf held; /* digests */
};

static int drop_file(void *arg, struct slice path, const struct session_file *f)
{
    struct drop_session *d = arg;

    session_file_del(&d->session, path, d->batch);
    if (f->sealed) {
        if (d->session.upload_grant) {
            upload_grant_forget_staged_object(d->u->store, &d->session, &f->digest, d->batch);
        }
        session_unhold(&d->session, path, &f->digest, d->batch);
        session_unhold(&d->session, SLICE_NONE, &f->digest, d->batch);
        buf_add(&d->held, f->digest.b, DIGEST_BYTES);
        return 0;
    }
    if (parts_awaited(path).p != NULL) {
        upload_grant_forget(d->u->store, &d->session, parts_awaited(path), d->batch);
    }
    if (f->stage != 0) {
        partial_lose(d->u->store, f->stage);
    }
    return 0;
}

int session_drop(struct uploads *u, const char *id, struct err *e)
{
    struct slice key = slice_of(id, UPLOAD_ID);
    struct buf row = BUF_INIT(4096);
    struct drop_session d = {.u = u,
                             .id = id,
                             .batch = batch_new(),
                             .held = BUF_INIT((size_t)UPLOAD_FILES_MAX * DIGEST_BYTES)};
    int rc = store_get(u->store, TABLE_UPLOAD, key, &row, e);

    memcpy(d.session.id, id, UPLOAD_ID);
    if (rc == 0) {
        (void)session_decode(buf_slice(&row), &d.session); /* one that does not decode goes too */
        rc = session_each_file(u->store, id, drop_file, &d, e);
    }
    if (rc == 0 && d.session.upload_grant) {
        upload_grant_forget(u->store, &d.session, UPLOAD_GRANT_PIECES, d.batch);
    }
    batch_del(d.batch, TABLE_UPLOAD, key);
    rc = rc != 0 ? rc : store_commit(u->store, &d.batch, COMMIT_SYNC, e);
    batch_free(&d.batch);
    buf_free(&row);
    partials_drop_lost(u->store);
    /* What is nobody's share waits for the collector: an import across an air gap that is given
     * again finds what had come. */
    if (rc == 0 && live_is_counted(u, id)) {
        drop_unheld(u->store, (const struct digest *)(const void *)d.held.p,
                    d.held.n / DIGEST_BYTES);
    }
    if (rc == 0) {
        live_remove(u, id);
    }
    buf_free(&d.held);
    return rc;
}

/* --- for the keeper --- */

struct expire {
    uint64_t before_unix_s;
    char (*id)[UPLOAD_ID + 1];
    size_t count;
};

static int on_expire_row(void *arg, struct slice key, struct slice value)
{
    struct expire *x = arg;
    struct session s = {0};

    if (key.n != UPLOAD_ID || key.p[0] == '\0' ||
        (session_decode(value, &s) && s.begun_unix_s >= x->before_unix_s)) {
        return 0;
    }
    memcpy(x->id[x->count], key.p, UPLOAD_ID);
    return ++x->count == SESSIONS_MAX;
}

int upload_expire(struct uploads *u, uint64_t now_unix_s, uint64_t *dropped, struct err *e)
{
    struct expire x = {.before_unix_s =
                           now_unix_s > UPLOAD_EXPIRE_S ? now_unix_s - UPLOAD_EXPIRE_S : 0,
                       .id = mem_array(SESSIONS_MAX, sizeof *x.id)};
    int rc = store_scan(u->store, TABLE_UPLOAD, SLICE(""), SLICE_NONE, on_expire_row, &x, e);

    *dropped = 0;
    rc = rc > 0 ? 0 : rc;
    for (size_t i = 0; rc == 0 && i < x.count; i++) {
        if (multipart_uploads_used(u, x.id[i]) ||
            (!live_begin_commit(u, x.id[i]) && live_files(u, x.id[i]) != 0)) {
            continue; /* somebody is at it: next time */
        }
        rc = session_drop(u, x.id[i], e);
        *dropped += rc == 0;
    }
    free(x.id);
    return rc;
}
