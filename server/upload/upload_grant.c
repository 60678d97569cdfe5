#include "server/upload/upload_grant.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/codec/jwrite.h"
#include "server/store/blob.h"
#include "server/store/keep.h"
#include "server/upload/live.h"
#include "server/upload/parts.h"
#include "server/upload/upload_reply.h"

enum {
    UPLOAD_GRANTS_MAX = 64,
    KEY_BYTES = 8192,
    SEEN = 1
}; /* of one digest and tree that are reported; then the scan may end */

bool upload_grant_begin(struct store *s, const struct put *p, struct session *out,
                        struct upload_reply *reply, int *rc, struct err *e)
{
    *rc = session_load(s, p, out, e);
    if (*rc == E_NOTFOUND || (*rc == 0 && !out->upload_grant)) {
        upload_refuse(reply, 404, "no such upload, or it has ended; request a new one");
        *rc = 0;
        return false;
    }
    return *rc == 0;
}

/* --- who holds a digest --- */

struct look {
    struct store *store;
    const struct put *put;
    bool yes;
    struct buf *upload_grants; /* or NULL: one will do */
    struct err *e;
};

static int on_upload_grant(struct look *l, struct slice id)
{
    struct put named = *l->put;
    struct session found;
    int rc;

    named.upload_id = id;
    rc = session_load(l->store, &named, &found, l->e);
    if (rc == 0 && found.upload_grant) {
        l->yes = true;
        if (l->upload_grants != NULL && l->upload_grants->n < UPLOAD_GRANTS_MAX * UPLOAD_ID) {
            buf_adds(l->upload_grants, id);
        }
    }
    session_free(&found);
    return rc == E_NOTFOUND ? 0 : rc;
}

static int on_upload(void *arg, struct slice repo, char kind, struct slice key)
{
    struct look *l = arg;
    int rc = key.n == UPLOAD_ID ? on_upload_grant(l, key) : 0;

    (void)repo;
    (void)kind;
    return rc != 0 ? rc : l->yes && l->upload_grants == NULL ? SEEN : 0;
}

int upload_grant_tree_holds(struct store *s, struct slice repo, struct slice name,
                            const struct digest *d, bool *yes, struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES), value = BUF_INIT(KEY_BYTES);
    int rc;

    holder_key(&key, d, repo, 't', name);
    rc = key.rc != 0 ? E_NOTFOUND : store_get(s, TABLE_HOLDER, buf_slice(&key), &value, e);
    *yes = rc == 0;
    buf_free(&key);
    buf_free(&value);
    return rc == E_NOTFOUND ? 0 : rc;
}

int upload_grant_tree_has(struct store *s, const struct put *p, const struct digest *d, bool *yes,
                          struct buf *upload_grants, struct err *e)
{
    struct look l = {.store = s, .put = p, .upload_grants = upload_grants, .e = e};
    bool there = false;
    int rc = blob_exists(s, d, &there, e);

    if (rc == 0 && there) {
        rc = upload_grant_tree_holds(s, p->repo, p->name, d, &l.yes, e);
    }
    if (rc == 0 && there && (!l.yes || upload_grants != NULL)) {
        rc = holder_each_of(s, d, p->repo, 'u', on_upload, &l, e);
        rc = rc == SEEN ? 0 : rc;
    }
    *yes = rc == 0 && l.yes;
    return rc;
}

/* --- which one brings it --- */

static void remembered_key(struct slice repo, struct slice name, struct slice what, struct buf *key)
{
    buf_byte(key, 0); /* ids begin with a hex digit */
    buf_adds(key, repo);
    buf_byte(key, 0);
    buf_adds(key, name);
    buf_byte(key, 0);
    buf_adds(key, what);
}

void upload_grant_remember(const struct session *s, struct slice what, struct batch *b)
{
    struct buf key = BUF_INIT(1024);

    remembered_key(slice_str(s->repo), slice_str(s->name), what, &key);
    batch_put(b, TABLE_UPLOAD, buf_slice(&key), slice_of(s->id, UPLOAD_ID));
    buf_free(&key);
}

void upload_grant_forget(struct store *store, const struct session *s, struct slice what,
                         struct batch *b)
{
    struct buf key = BUF_INIT(1024);
    struct buf id = BUF_INIT(64);

    remembered_key(slice_str(s->repo), slice_str(s->name), what, &key);
    if (store_get(store, TABLE_UPLOAD, buf_slice(&key), &id, NULL) == 0 &&
        slice_eqs(buf_slice(&id), s->id)) {
        batch_del(b, TABLE_UPLOAD, buf_slice(&key));
    }
    buf_free(&key);
    buf_free(&id);
}

int upload_grant_recall(struct store *store, const struct put *p, struct slice what,
                        uint64_t now_unix_s, struct session *out, struct err *e)
{
    struct put named = *p;
    struct buf key = BUF_INIT(1024);
    struct buf id = BUF_INIT(64);
    int rc;

    *out = (struct session){.row = BUF_INIT(4096)};
    remembered_key(p->repo, p->name, what, &key);
    rc = key.rc != 0 ? E_NOTFOUND : store_get(store, TABLE_UPLOAD, buf_slice(&key), &id, e);
    if (rc == 0) {
        named.upload_id = buf_slice(&id);
        rc = session_load(store, &named, out, e);
    }
    if (rc == 0 && (!out->upload_grant || now_unix_s >= out->begun_unix_s + UPLOAD_EXPIRE_S / 2)) {
        rc = E_NOTFOUND;
    }
    buf_free(&key);
    buf_free(&id);
    return rc;
}

/* --- an object that is whole --- */

enum { WHAT_BYTES = 8 + DIGEST_HEX + 1 };

static struct slice what_of(const struct digest *d, char out[WHAT_BYTES])
{
    char hex[DIGEST_HEX + 1];

    digest_format(d, hex);
    snprintf(out, WHAT_BYTES, "brought/%s", hex);
    return slice_str(out);
}

void upload_grant_staged_object(const struct session *s, const struct digest *d,
                                uint64_t size_bytes, struct batch *b)
{
    struct session_file f = {.sealed = true, .bytes = size_bytes, .digest = *d};
    char what[WHAT_BYTES];

    session_file_put(s, UPLOAD_GRANT_FILE, &f, b);
    session_hold(s, SLICE_NONE, d, b);
    upload_grant_remember(s, what_of(d, what), b);
}

void staged_object_key(struct buf *out, struct slice repo, struct slice name,
                       const struct digest *d)
{
    char what[WHAT_BYTES];

    remembered_key(repo, name, what_of(d, what), out);
}

void upload_grant_forget_staged_object(struct store *store, const struct session *s,
                                       const struct digest *d, struct batch *b)
{
    char what[WHAT_BYTES];

    upload_grant_forget(store, s, what_of(d, what), b);
}

/* --- the upload grant itself --- */

static void answer_upload_grant(const struct session *s, struct upload_reply *out)
{
    out->status = 200;
    out->until_unix_s = s->begun_unix_s + UPLOAD_EXPIRE_S;
    memcpy(out->upload, s->id, sizeof out->upload);
}

/* What is here, what parts have come of before, and what is to come to this upload grant. */
static int check_granted_object(struct store *store, const struct put *p, const struct session *s,
                                const struct put_object *o, struct granted *f, struct batch *b,
                                struct err *e)
{
    uint64_t part_bytes = 0;
    int rc = upload_grant_tree_has(store, p, &o->digest, &f->held, NULL, e);

    memcpy(f->upload, s->id, sizeof f->upload);
    if (rc != 0 || f->held || f->part_bytes == 0) {
        return rc;
    }
    rc = parts_recall(store, p, o, s->begun_unix_s, f->upload, &part_bytes, e);
    if (rc == 0) {
        f->part_bytes = part_bytes;
    } else if (rc == E_NOTFOUND) {
        parts_await(s, o, f->part_bytes, b);
        rc = 0;
    }
    return rc;
}

static int look_at_all(struct store *store, const struct put *p, const struct session *s,
                       struct upload_reply *out, struct batch *b, struct err *e)
{
    uint64_t part_bytes[UPLOAD_GRANT_OBJECTS_MAX];
    int rc = 0;

    CHECK(p->objects_count <= UPLOAD_GRANT_OBJECTS_MAX);
    parts_divide(p->objects, p->objects_count, part_bytes);
    for (size_t i = 0; rc == 0 && i < p->objects_count; i++) {
        out->granted[i].part_bytes = part_bytes[i];
        rc = check_granted_object(store, p, s, &p->objects[i], &out->granted[i], b, e);
    }
    return rc;
}

static bool begin_again(struct store *store, const struct put *p, uint64_t now_unix_s,
                        struct upload_reply *out)
{
    struct session s;
    bool yes = upload_grant_recall(store, p, UPLOAD_GRANT_PIECES, now_unix_s, &s, NULL) == 0;

    if (yes) {
        answer_upload_grant(&s, out);
    }
    session_free(&s);
    return yes;
}

static int compare_granted_digests(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct digest));
}

/* What finishes it: the objects that are not here, nor come to an earlier upload grant, each once;
 * of one that files are put together in, the first list of them. Their count. */
static size_t awaited_of(const struct put *p, const struct session *s,
                         const struct upload_reply *out,
                         struct digest awaited[1 + UPLOAD_GRANT_OBJECTS_MAX])
{
    size_t n = 0, distinct = 0;

    if (p->again) {
        awaited[n++] = *AWAITED_ANY;
    }
    for (size_t i = 0; i < p->objects_count; i++) {
        if (!out->granted[i].held && strcmp(out->granted[i].upload, s->id) == 0) {
            awaited[n++] = p->objects[i].digest;
        }
    }
    qsort(awaited, n, sizeof awaited[0], compare_granted_digests);
    for (size_t i = 0; i < n; i++) {
        if (distinct == 0 || !digest_eq(&awaited[distinct - 1], &awaited[i])) {
            awaited[distinct++] = awaited[i];
        }
    }
    return distinct;
}

static int run_upload_grant(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                            struct upload_reply *out, struct err *e)
{
    struct session s;
    struct batch *b = NULL;
    struct digest awaited[1 + UPLOAD_GRANT_OBJECTS_MAX];
    size_t count;
    int rc;

    if (p->again && begin_again(u->store, p, now_unix_s, out)) {
        return 0;
    }
    if (!session_new(p, true, now_unix_s, &s, out, &rc, e)) {
        goto out;
    }
    b = batch_new();
    session_put(&s, b);
    if (p->again) {
        upload_grant_remember(&s, UPLOAD_GRANT_PIECES, b);
    }
    rc = look_at_all(u->store, p, &s, out, b, e);
    count = rc == 0 ? awaited_of(p, &s, out, awaited) : 0;
    if (rc != 0 || (count != 0 && !live_admit(u, s.id, p->client, awaited, count, out))) {
        goto out;
    }
    rc = store_commit(u->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        answer_upload_grant(&s, out);
    } else {
        live_remove(u, s.id);
    }
out:
    batch_free(&b);
    session_free(&s);
    return upload_trouble(out, rc, e);
}

/* --- what another tree has --- */

/* held: this tree has it, or the upload grant does now. */
static int share_one(struct store *store, const struct put *p, const struct session *s,
                     const struct digest *d, struct batch *b, bool *held, struct err *e)
{
    bool there = false;
    int rc = upload_grant_tree_has(store, p, d, held, NULL, e);

    if (rc != 0 || *held) {
        return rc;
    }
    rc = upload_grant_tree_holds(store, p->repo, p->to, d, held, e);
    if (rc == 0 && *held) {
        rc = blob_exists(store, d, &there, e);
    }
    *held = *held && there;
    if (rc == 0 && *held) {
        session_hold(s, SLICE_NONE, d, b);
    }
    return rc;
}

static void share_failed(const struct digest *d, struct upload_reply *out)
{
    jwrite_open(&out->body, NULL, '{');
    jwrite_hex(&out->body, "sha256", d->b, DIGEST_BYTES);
    jwrite_str(&out->body, "error", "the source repository does not have that file");
    jwrite_close(&out->body, '}');
}

static int run_share(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                     struct upload_reply *out, struct err *e)
{
    struct session s;
    struct batch *b = NULL;
    bool held;
    int rc;

    CHECK(p->objects_count <= SHARE_OBJECTS_MAX);
    if (!session_new(p, true, now_unix_s, &s, out, &rc, e)) {
        goto out;
    }
    b = batch_new();
    session_put(&s, b);
    jwrite_open(&out->body, NULL, '{');
    jwrite_open(&out->body, "failed", '[');
    for (size_t i = 0; rc == 0 && i < p->objects_count; i++) {
        rc = share_one(u->store, p, &s, &p->objects[i].digest, b, &held, e);
        if (rc == 0 && !held) {
            share_failed(&p->objects[i].digest, out);
        }
    }
    jwrite_close(&out->body, ']');
    jwrite_close(&out->body, '}');
    rc = rc != 0 ? rc : store_commit(u->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        out->status = 200;
    } else {
        buf_clear(&out->body);
    }
out:
    batch_free(&b);
    session_free(&s);
    return upload_trouble(out, rc, e);
}

static int knows(struct store *store, const struct put *p, const struct session *s, bool *yes,
                 struct err *e)
{
    struct session_file f;
    uint64_t size_bytes = 0;
    int rc;

    if (p->kind == PUT_PIECE_KNOWN) {
        rc = session_file_load(store, s->id, p->path, &f, e);
        return rc == 0 && f.sealed ? blob_exists(store, &f.digest, yes, e) : rc;
    }
    rc = upload_grant_tree_has(store, p, &p->digest, yes, NULL, e);
    if (rc == 0 && *yes) {
        rc = blob_length(store, &p->digest, &size_bytes, e);
        *yes = rc == 0 && size_bytes == p->total;
    }
    return rc;
}

static int run_known(struct store *store, const struct put *p, struct upload_reply *out,
                     struct err *e)
{
    struct session s;
    bool yes = false;
    int rc;

    if (upload_grant_begin(store, p, &s, out, &rc, e)) {
        rc = knows(store, p, &s, &yes, e);
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == 0 && out->status == 0 && !yes) {
        upload_refuse(out, 404, "these bytes were not uploaded here");
    } else if (rc == 0 && out->status == 0) {
        out->status = 200;
    }
    session_free(&s);
    return rc;
}

int upload_grant_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                     struct upload_reply *out, struct err *e)
{
    return p->kind == PUT_UPLOAD_GRANT    ? run_upload_grant(u, p, now_unix_s, out, e)
           : p->kind == PUT_OBJECTS_SHARE ? run_share(u, p, now_unix_s, out, e)
                                          : run_known(u->store, p, out, e);
}
