#include "server/upload/elsewhere.h"

#include "server/store/blob.h"
#include "server/upload/live.h"
#include "server/upload/publish.h"

static int take_fetched(void *arg, struct slice bytes)
{
    return ingest_append(arg, bytes, NULL);
}

static int seal(struct uploads *u, const struct put *p, struct ingest **in, const struct digest *d,
                struct err *e)
{
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    struct digest got;
    int rc = ingest_finish(*in, ingest_bytes(*in), &got, e);

    if (rc == 0 && !digest_eq(&got, d)) {
        rc = err_set(e, E_CORRUPT, "another mirror sent other bytes than those of the digest");
    }
    rc = rc != 0 ? rc : ingest_seal(in, b, &blob, e);
    if (rc == 0) {
        publish_hold(p, d, b);
        rc = store_commit(u->store, &b, COMMIT_LAZY, e);
    }
    blob_release(&blob);
    batch_free(&b);
    return rc;
}

int elsewhere_bring(struct uploads *u, const struct put *p, const struct digest *d, struct err *e)
{
    struct ingest *in = NULL;
    int rc;

    if (u->source.fetch == NULL) {
        return err_set(e, E_NOTFOUND, "this mirror stands alone");
    }
    rc = uploads_open_ingest(u, UINT64_MAX, false, &in, e);
    rc = rc != 0 ? rc : u->source.fetch(u->source.arg, p->repo, p->name, d, take_fetched, in, e);
    rc = rc != 0 ? rc : seal(u, p, &in, d, e);
    ingest_drop(&in);
    return rc;
}
