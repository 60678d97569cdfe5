#include "server/store/offer.h"

#include "server/store/blob.h"
#include "server/store/keep.h"
#include "server/store/live.h"
#include "server/store/upload_reply.h"

enum { OFFERS_MAX = 64 }; /* of one digest, that are looked at */

bool offer_begin(struct store *s, const struct put *p, struct session *out,
                 struct upload_reply *reply, int *rc, struct err *e)
{
    *rc = session_load(s, p, out, e);
    if (*rc == E_NOTFOUND || (*rc == 0 && !out->offer)) {
        upload_refuse(reply, 404, "no such upload: ask for one anew, it may have ended");
        *rc = 0;
        return false;
    }
    return *rc == 0;
}

/* --- who holds a digest --- */

struct look {
    const struct put *put;
    bool tree;
    struct buf ids;
};

static int on_holder(void *arg, struct slice repo, char kind, struct slice key)
{
    struct look *l = arg;

    if (!slice_eq(repo, l->put->repo)) {
        return 0;
    }
    if (kind == 't' && slice_eq(key, l->put->name)) {
        l->tree = true;
    } else if (kind == 'u' && key.n == UPLOAD_ID) {
        buf_adds(&l->ids, key); /* past the bound they are not looked at */
    }
    return 0;
}

static int keep_ours(struct store *s, const struct look *l, bool *yes, struct buf *offers,
                     struct err *e)
{
    struct slice rest = buf_slice(&l->ids);
    int rc = 0;

    while (rc == 0 && rest.n != 0) {
        struct put named = *l->put;
        struct session found;

        named.upload_id = slice_first(rest, UPLOAD_ID);
        rest = slice_from(rest, UPLOAD_ID);
        rc = session_load(s, &named, &found, e);
        if (rc == 0 && found.offer) {
            *yes = true;
            if (offers != NULL) {
                buf_adds(offers, named.upload_id);
            }
        }
        session_free(&found);
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    return rc;
}

int offer_tree_has(struct store *s, const struct put *p, const struct digest *d, bool *yes,
                   struct buf *offers, struct err *e)
{
    struct look l = {.put = p, .ids = BUF_INIT(OFFERS_MAX * UPLOAD_ID)};
    bool there = false;
    int rc = blob_exists(s, d, &there, e);

    *yes = false;
    if (rc == 0 && there) {
        rc = holder_each(s, d, on_holder, &l, e);
        *yes = rc == 0 && l.tree;
    }
    if (rc == 0 && there) {
        rc = keep_ours(s, &l, yes, offers, e);
    }
    buf_free(&l.ids);
    return rc;
}

/* --- the offer itself --- */

static int look_at_all(struct store *s, const struct put *p, struct upload_reply *out,
                       struct err *e)
{
    int rc = 0;

    CHECK(p->objects_count <= OFFER_OBJECTS_MAX);
    for (size_t i = 0; rc == 0 && i < p->objects_count; i++) {
        rc = offer_tree_has(s, p, &p->objects[i].digest, &out->held[i], NULL, e);
    }
    return rc;
}

int offer_run(struct uploads *u, const struct put *p, uint64_t now_unix_s, struct upload_reply *out,
              struct err *e)
{
    struct session s = {.row = BUF_INIT(4096), .offer = true, .begun_unix_s = now_unix_s};
    struct batch *b;
    int rc = session_id_new(s.id, e);

    if (rc == 0) {
        rc = look_at_all(u->store, p, out, e);
    }
    if (rc != 0) {
        return rc;
    }
    if (p->repo.n >= sizeof s.repo || p->name.n >= sizeof s.name) {
        upload_refuse(out, 400, "the tree's name is too long");
        return 0;
    }
    memcpy(s.repo, p->repo.p, p->repo.n);
    memcpy(s.name, p->name.p, p->name.n);
    session_encode(&s, &s.row);
    b = batch_new();
    batch_put(b, TABLE_UPLOAD, slice_of(s.id, UPLOAD_ID), buf_slice(&s.row));
    rc = store_commit(u->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        out->status = 200;
        memcpy(out->upload, s.id, sizeof out->upload);
    }
    session_free(&s);
    return upload_trouble(out, rc, e);
}
