/* append_run.c - what needs no body of an object that is appended to: its beginning, which may find that it is here, how far it is,
 * and that no more will come. */
#include "server/store/alias.h"
#include "server/upload/append.h"
#include "server/store/blob.h"
#include "server/upload/brought.h"
#include "server/upload/offer.h"
#include "server/upload/publish.h"
#include "server/upload/upload_reply.h"

/* Its bytes are here, for this tree or the one that p->to names: the session has them from now on. *yes: answered with 201. */
static int take_over(struct uploads *u, const struct put *p, const struct digest *d,
                     const struct session *s, bool *yes, struct upload_reply *out, struct err *e)
{
    struct blob *blob = NULL;
    struct batch *b;
    bool has = false;
    int rc = offer_tree_has(u->store, p, d, &has, NULL, e);

    *yes = false;
    if (rc == 0 && !has && p->to.p != NULL) {
        rc = offer_tree_holds(u->store, p->repo, p->to, d, &has, e);
    }
    rc = rc == 0 && has ? blob_open(u->store, d, &blob, e) : rc;
    if (rc != 0 || !has) {
        return rc == E_NOTFOUND ? 0 : rc;
    }
    b = batch_new();
    session_put(s, b);
    brought_put(s, d, blob_size_bytes(blob), b);
    rc = store_commit(u->store, &b, COMMIT_SYNC, e);
    blob_release(&blob);
    if (rc == 0) {
        out->status = 201;
        *yes = true;
    }
    return rc == E_CHANGED ? 0 : rc; /* it went meanwhile */
}

static void answer_open(const struct put *p, const struct session *s, struct upload_reply *out)
{
    out->status = 202;
    out->offset_known = true;
    memcpy(out->upload, s->id, sizeof out->upload);
    session_locate(s, p, out);
}

static int run_open(struct uploads *u, const struct put *p, uint64_t now_unix_s,
                    struct upload_reply *out, struct err *e)
{
    struct session s = {0};
    struct batch *b = NULL;
    bool here = false, known = false;
    struct digest d;
    /* A tree that has another name: better told before the bytes come than behind them. */
    int rc = publish_check(&(struct publish){.store = u->store, .put = p}, out, e);

    if (rc != 0 || out->status != 0 || !session_new(p, true, now_unix_s, &s, out, &rc, e)) {
        goto out;
    }
    rc = alias_find(u->store, &p->called, &d, &known, e);
    if (rc == 0 && known) {
        rc = take_over(u, p, &d, &s, &here, out, e);
    }
    if (rc == 0 && !here && live_admit(u, s.id, p->client, AWAITED_ANY, 1, out)) {
        b = batch_new();
        session_put(&s, b);
        rc = store_commit(u->store, &b, COMMIT_LAZY, e);
        if (rc == 0) {
            answer_open(p, &s, out);
        } else {
            live_remove(u, s.id);
        }
    }
out:
    session_free(&s);
    return upload_trouble(out, rc, e);
}

static int run_status(struct uploads *u, const struct session *s, struct upload_reply *out,
                      struct err *e)
{
    struct session_file f = {0};
    int rc;

    if (live_disturb(u, s->id, BROUGHT_FILE)) {
        return err_set(e, E_BUSY, "another request still writes this upload");
    }
    rc = session_file_load(u->store, s->id, BROUGHT_FILE, &f, e);
    if (rc == 0 && f.sealed) {
        upload_refuse_gone(out);
    } else if (rc == 0 || rc == E_NOTFOUND) {
        out->status = 204;
        out->offset_known = true;
        out->offset = f.bytes;
        rc = 0;
    }
    return rc;
}

static int run_drop(struct uploads *u, const struct session *s, struct upload_reply *out,
                    struct err *e)
{
    int rc;

    if (live_disturb(u, s->id, BROUGHT_FILE)) {
        return err_set(e, E_BUSY, "another request still writes this upload");
    }
    rc = session_drop(u, s->id, e);
    out->status = 204;
    return rc;
}

int append_run(struct uploads *u, const struct put *p, uint64_t now_unix_s,
               struct upload_reply *out, struct err *e)
{
    struct session s;
    int rc;

    if (p->kind == PUT_APPEND_OPEN) {
        return run_open(u, p, now_unix_s, out, e);
    }
    if (offer_begin(u->store, p, &s, out, &rc, e)) {
        rc = p->kind == PUT_APPEND_STATUS ? run_status(u, &s, out, e) : run_drop(u, &s, out, e);
    }
    session_free(&s);
    return upload_trouble(out, rc, e);
}
