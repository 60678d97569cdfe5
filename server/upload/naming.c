#include "server/upload/naming.h"

#include "server/store/head.h"
#include "server/upload/publish.h"
#include "server/store/rename.h"
#include "server/upload/upload_reply.h"

enum { TRIES = 32 };

static int add_ref(struct store *s, const struct put *p, uint64_t now_unix_s, struct err *e)
{
    struct ref r = p->ref;

    r.created_unix_s = now_unix_s;
    return ref_create(s, p->repo, p->name, &r, e);
}

/* A label is a tag, too: it was given by `mirrorctl snapshot tag`. */
static int drop_label(struct store *s, const struct put *p, struct err *e)
{
    struct buf version = BUF_INIT(2 * REF_NAME_MAX);
    struct snap sn;
    int rc;

    buf_str(&version, "refs/tags/");
    buf_adds(&version, p->ref.name);
    rc = version.rc != 0 ? E_NOTFOUND : snap_find(s, p->repo, p->name, buf_slice(&version), &sn, e);
    buf_free(&version);
    return rc != 0 ? rc : snap_tag(s, p->repo, p->name, sn.seq, SLICE(""), e);
}

static int drop_ref(struct store *s, const struct put *p, struct err *e)
{
    int rc = ref_remove(s, p->repo, p->name, p->ref.kind, p->ref.name, e);

    return rc == E_NOTFOUND && p->ref.kind == REF_TAG ? drop_label(s, p, e) : rc;
}

/* A version of the same files that was made from none. The others stay, as versions do. */
static int squash(struct store *s, const struct put *p, uint64_t now_unix_s, struct err *e)
{
    struct batch *b = batch_new();
    struct snap sn;
    struct snap next;
    int rc = publish_base(s, p, &sn, e);

    if (rc == 0 && p->branch.n != 0) {
        rc = branch_publish(s, p->repo, p->name, p->branch, &sn.root, sn.entries, sn.bytes,
                            &sn.root, now_unix_s, b, &next, e);
    } else if (rc == 0) {
        rc = head_publish(s, p->repo, p->name, &sn.root, sn.entries, sn.bytes, &sn.root, false,
                          now_unix_s, b, &next, e);
    }
    if (rc == 0) {
        next.parent_seq = 0;
        snap_put(b, p->repo, p->name, &next);
        note_put(b, p->repo, p->name, next.seq, &p->note);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    return rc;
}

static int once(struct store *s, const struct put *p, uint64_t now_unix_s, struct err *e)
{
    switch (p->kind) {
    case PUT_REF_ADD:
        return add_ref(s, p, now_unix_s, e);
    case PUT_REF_DROP:
        return drop_ref(s, p, e);
    case PUT_SQUASH:
        return squash(s, p, now_unix_s, e);
    case PUT_TREE_MOVE:
        return rename_run(s, p->repo, p->name, p->to, e);
    case PUT_TREE_COPY:
        return rename_copy(s, p->repo, p->name, p->to, e);
    case PUT_TREE_DROP:
        return rename_drop(s, p->repo, p->name, e);
    case PUT_FILE:
    case PUT_DELETE:
    case PUT_UPLOAD_OPEN:
    case PUT_UPLOAD_FILE:
    case PUT_UPLOAD_STATUS:
    case PUT_UPLOAD_COMMIT:
    case PUT_UPLOAD_ABORT:
    case PUT_CREATE:
    case PUT_UPLOAD_GRANT:
    case PUT_OBJECTS_SHARE:
    case PUT_OBJECT:
    case PUT_PART:
    case PUT_PARTS_END:
    case PUT_APPEND_OPEN:
    case PUT_APPEND:
    case PUT_APPEND_STATUS:
    case PUT_APPEND_DROP:
    case PUT_PIECE_KNOWN:
    case PUT_OBJECT_KNOWN:
    case PUT_PIECE:
    case PUT_ASSEMBLE:
    case PUT_CHANGES:
    case PUT_FORM:
        break;
    }
    return err_set(e, E_INTERNAL, "internal error: this put does not change a name");
}

int naming_run(struct store *s, const struct put *p, uint64_t now_unix_s, struct upload_reply *out,
               struct err *e)
{
    int rc = E_CHANGED;

    for (int i = 0; rc == E_CHANGED && i < TRIES; i++) {
        rc = once(s, p, now_unix_s, e);
    }
    if (rc == 0) {
        out->status = 200;
        buf_clear(&out->body);
        buf_str(&out->body, "{}\n");
        out->published = true; /* what names lead to is cached */
        return 0;
    }
    if (rc == E_NOTFOUND) {
        upload_refuse(out, 404, "no such %s",
                      p->kind == PUT_TREE_MOVE || p->kind == PUT_TREE_COPY ||
                              p->kind == PUT_TREE_DROP
                          ? "tree"
                      : p->kind == PUT_REF_ADD                             ? "version"
                      : p->kind == PUT_SQUASH || p->ref.kind == REF_BRANCH ? "branch"
                                                                           : "tag");
    } else if (rc == E_EXISTS) {
        upload_refuse(out, 409, "%s", e->text);
    } else if (rc == E_CHANGED) {
        upload_refuse(out, 409, "not done: the tree changes too fast; try again");
    } else if (rc == E_TOOBIG) {
        upload_refuse(out, 413, "%s", e->text);
    } else if (rc == E_INVALID) {
        upload_refuse(out, 400, "%s", e->text);
    } else {
        return upload_trouble(out, rc, e);
    }
    return 0;
}
