#include "server/upload/form_upload.h"

#include <inttypes.h>
#include <stdlib.h>

#include "server/upload/live.h"
#include "server/upload/publish.h"
#include "server/upload/upload_reply.h"

enum { BESIDE_MAX = 8 };

struct form_upload {
    struct uploads *u;
    struct arena arena;
    struct put put;
    struct ingest *in; /* NULL: no byte yet */
    bool whole;
    struct digest digest; /* when whole */
};

struct form_upload *form_upload_open(struct uploads *u, const struct put *p)
{
    struct form_upload *k = NEW(struct form_upload);

    k->u = u;
    k->put = put_copy(p, &k->arena);
    return k;
}

void form_upload_close(struct form_upload **kp)
{
    struct form_upload *k = *kp;

    *kp = NULL;
    if (k != NULL) {
        ingest_drop(&k->in);
        arena_fini(&k->arena);
        free(k);
    }
}

uint64_t form_upload_bytes(const struct form_upload *k)
{
    return k->in != NULL ? ingest_bytes(k->in) : 0;
}

const struct digest *form_upload_digest(struct form_upload *k)
{
    if (!k->whole && k->in != NULL) { /* it was hashed as it came */
        CHECK(ingest_finish(k->in, ingest_bytes(k->in), &k->digest, NULL) == 0);
    } else if (!k->whole) {
        digest_of(SLICE(""), &k->digest);
    }
    k->whole = true;
    return &k->digest;
}

int form_upload_write(struct form_upload *k, struct slice bytes, struct upload_reply *out,
                      struct err *e)
{
    int rc = 0;

    CHECK(!k->whole);
    if (k->put.max_bytes != 0 && bytes.n > k->put.max_bytes - form_upload_bytes(k)) {
        upload_refuse(out, 413, "files of this repo have at most %" PRIu64 " bytes (max_object)",
                      k->put.max_bytes);
        return 0;
    }
    if (k->in == NULL) {
        rc = uploads_open_ingest(k->u, UINT64_MAX, false, &k->in, e);
    }
    rc = rc != 0 ? rc : ingest_append(k->in, bytes, e);
    return upload_trouble(out, rc, e);
}

int form_upload_look(struct form_upload *k, struct blob **out, struct err *e)
{
    return k->in == NULL ? err_set(e, E_INVALID, "the file is empty")
                         : ingest_peek(k->in, ingest_bytes(k->in), out, e);
}

/* --- publishing ------------------------------------------------------------------------------- */

static struct tree_edit edit_of(struct slice path, const struct digest *d, uint64_t size_bytes)
{
    return (struct tree_edit){
        .entry = {.path = path, .type = ENTRY_FILE, .size_bytes = size_bytes, .digest = *d}};
}

/* Blobs first, held by the tree: a publish that has to begin anew cannot seal twice. */
static int seal_all(struct form_upload *k, const struct form_upload_beside *beside, size_t count,
                    struct tree_edit *edit, struct err *e)
{
    struct batch *b = batch_new();
    struct blob *blob[BESIDE_MAX + 1] = {NULL};
    uint64_t bytes = form_upload_bytes(k);
    int rc = ingest_seal(&k->in, b, &blob[count], e);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = blob_put_bytes(k->u->store, beside[i].bytes, b, &blob[i], e);
        if (rc == 0) {
            edit[1 + i] = edit_of(beside[i].path, blob_digest(blob[i]), beside[i].bytes.n);
            publish_hold(&k->put, blob_digest(blob[i]), b);
        }
    }
    if (rc == 0) {
        edit[0] = edit_of(k->put.path, &k->digest, bytes);
        publish_hold(&k->put, &k->digest, b);
        rc = store_commit(k->u->store, &b, COMMIT_LAZY, e);
    }
    for (size_t i = 0; i <= count; i++) {
        blob_release(&blob[i]);
    }
    batch_free(&b);
    return rc;
}

/* Something has that name: this very file, or another. */
static int judge_taken(struct form_upload *k, struct upload_reply *out, struct err *e)
{
    struct arena a = {0};
    struct snap head;
    struct entry en;
    int rc = publish_base(k->u->store, &k->put, &head, e);

    rc = rc != 0 ? rc : tree_get(k->u->store, &head.root, k->put.path, &a, &en, e);
    out->status = 0;
    buf_clear(&out->body);
    if (rc == 0 && en.type == ENTRY_FILE && digest_eq(&en.digest, &k->digest)) {
        upload_reply_tree(out, 200, &head);
    } else if (rc == 0 || rc == E_NOTFOUND) {
        upload_refuse(
            out, 409,
            "File already exists: " SLICE_FMT
            " is already here with other bytes; give a new build a new version or build number",
            SLICE_ARG(k->put.path));
        rc = 0;
    }
    arena_fini(&a);
    return rc;
}

int form_upload_publish(struct form_upload *k, struct slice tree, struct slice path,
                        const struct form_upload_beside *beside, size_t count, uint64_t now_unix_s,
                        struct upload_reply *out, struct err *e)
{
    struct tree_edit edit[BESIDE_MAX + 1];
    struct publish pub = {.store = k->u->store,
                          .put = &k->put,
                          .edits = edit,
                          .count = 1 + count,
                          .file = true,
                          .now_unix_s = now_unix_s};
    int rc;

    CHECK(count <= BESIDE_MAX && k->in != NULL);
    (void)form_upload_digest(k);
    k->put.name = arena_copy(&k->arena, tree);
    k->put.path = arena_copy(&k->arena, path);
    k->put.if_none_match_any = true;
    k->put.note.title = k->put.path;
    rc = publish_check(&pub, out, e);
    if (rc == 0 && out->status == 0) {
        rc = seal_all(k, beside, count, edit, e);
        rc = rc != 0 ? rc : publish_run(&pub, out, e);
    }
    if (rc == 0 && out->status == 412) {
        rc = judge_taken(k, out, e);
    }
    return upload_trouble(out, rc, e);
}
