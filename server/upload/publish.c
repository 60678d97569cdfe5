#include "server/upload/publish.h"

#include <inttypes.h>
#include <stdio.h>

#include "server/store/keep.h"
#include "server/store/rename.h"
#include "server/upload/upload_reply.h"

enum { TRIES = 32 };

/* The conditions of a put on the tree as it stands. False: answered with 412. */
static bool tree_conditions(const struct put *p, const struct snap *head, struct upload_reply *out)
{
    if (p->match == MATCH_ANY && head == NULL) {
        upload_refuse(out, 412, "the tree does not exist");
        return false;
    }
    if (p->if_none_match_any && head != NULL) {
        upload_refuse(out, 412, "the tree already exists");
        return false;
    }
    return true;
}

static int file_conditions(const struct publish *p, const struct snap *head,
                           struct upload_reply *out, struct err *e)
{
    const struct put *put = p->put;
    struct arena a = {0};
    struct entry en;
    int rc = E_NOTFOUND;

    if (put->match != MATCH_ANY && put->match != MATCH_FILE && !put->if_none_match_any) {
        return 0;
    }
    if (head != NULL) {
        rc = tree_get(p->store, &head->root, put->path, &a, &en, e);
    }
    if (rc != 0 && rc != E_NOTFOUND) {
        goto out;
    }
    if (rc == 0 && put->if_none_match_any) {
        upload_refuse(out, 412, "the file already exists");
    } else if (rc != 0 && (put->match == MATCH_ANY || put->match == MATCH_FILE)) {
        upload_refuse(out, 412, "the file does not exist");
    } else if (rc == 0 && put->match == MATCH_FILE && !digest_eq(&en.digest, &put->if_match)) {
        upload_refuse(out, 412, "the file was changed in the meantime");
    }
    rc = 0;
out:
    arena_fini(&a);
    return rc;
}

static int check_publish_head(const struct publish *p, const struct snap *head,
                              struct upload_reply *out, struct err *e)
{
    if (p->put->match == MATCH_ROOT &&
        (head == NULL || !digest_eq(&head->root, &p->put->if_match))) {
        upload_refuse(out, 412, "the tree was changed in the meantime; read its root again");
        return 0;
    }
    if (!p->file) {
        (void)tree_conditions(p->put, head, out);
        return 0;
    }
    return file_conditions(p, head, out, e);
}

void publish_hold(const struct put *p, const struct digest *d, struct batch *b)
{
    struct buf key = BUF_INIT(8192);

    holder_key(&key, d, p->repo, 't', p->name);
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    buf_free(&key);
}

static void hold_all(const struct publish *p, struct batch *b)
{
    for (size_t i = 0; i < p->count; i++) {
        if (!p->edits[i].remove) {
            publish_hold(p->put, &p->edits[i].entry.digest, b);
        }
    }
}

static void end_session(const struct session *s, const struct snap *done, struct batch *b)
{
    struct session ended = *s;
    struct buf row = BUF_INIT(4096);

    ended.done = *done;
    session_encode(&ended, &row);
    session_require(s, b);
    batch_put(b, TABLE_UPLOAD, slice_of(s->id, UPLOAD_ID), buf_slice(&row));
    buf_free(&row);
}

/* The branch's head, with what is said of the new version. */
static int move_published_head(const struct publish *p, const struct snap *head,
                               const struct digest *root, uint64_t entries, uint64_t bytes,
                               struct batch *b, struct snap *out, struct err *e)
{
    const struct put *put = p->put;
    int rc;

    if (put->branch.n != 0) {
        rc = branch_publish(p->store, put->repo, put->name, put->branch, root, entries, bytes,
                            &head->root, p->now_unix_s, b, out, e);
    } else {
        rc = head_publish(p->store, put->repo, put->name, root, entries, bytes,
                          head != NULL ? &head->root : NULL, false, p->now_unix_s, b, out, e);
    }
    if (rc == 0 && head == NULL) {
        rename_forget(b, put->repo, put->name);
    }
    if (rc == 0) {
        note_put(b, put->repo, put->name, out->seq, &put->note);
    }
    return rc;
}

/* One try. E_CHANGED: somebody was faster. */
static int attempt_publish(const struct publish *p, const struct snap *head,
                           struct upload_reply *out, struct err *e)
{
    struct batch *b = batch_new();
    struct digest base;
    struct digest root;
    struct snap sn = {0};
    uint64_t entries;
    uint64_t bytes;
    bool same;
    int rc;

    tree_empty_root(&base);
    if (head != NULL && !p->replace) {
        base = head->root;
    }
    rc = tree_edit(p->store, &base, p->edits, p->count, b, &root, &entries, &bytes, e);
    if (rc == E_INVALID) {
        upload_refuse(out, 409, "the paths of the files conflict: %s", e->text);
        rc = 0;
        goto out;
    }
    if (rc != 0) {
        goto out;
    }
    same = head != NULL && digest_eq(&root, &head->root);
    if (same) {
        sn = *head;
    } else {
        hold_all(p, b);
        rc = move_published_head(p, head, &root, entries, bytes, b, &sn, e);
        if (rc != 0) {
            goto out;
        }
    }
    if (p->session != NULL) {
        end_session(p->session, &sn, b);
    }
    rc = store_commit(p->store, &b, COMMIT_SYNC, e);
    if (rc == 0) {
        upload_reply_tree(out, same ? 200 : 201, &sn);
        out->published = !same;
    }
out:
    batch_free(&b);
    return rc;
}

int publish_base(struct store *s, const struct put *p, struct snap *out, struct err *e)
{
    return p->branch.n == 0 ? head_get(s, p->repo, p->name, out, e)
                            : ref_get(s, p->repo, p->name, REF_BRANCH, p->branch, out, e);
}

/* A tree is not made again by whoever writes to the name that it had. A status in *out: refused. */
static int refuse_moved(const struct publish *p, struct upload_reply *out, struct err *e)
{
    struct buf to = BUF_INIT(8192);
    int rc = p->put->kind == PUT_CREATE ? E_NOTFOUND
                                        : rename_find(p->store, p->put->repo, p->put->name, &to, e);

    if (rc == 0) {
        upload_refuse(out, 410, "this tree was renamed to " SLICE_FMT "; write there",
                      SLICE_ARG(buf_slice(&to)));
    }
    buf_free(&to);
    return rc == E_NOTFOUND ? 0 : rc;
}

/* *there: the tree has a head, in *head. */
static int read_publish_head(const struct publish *p, struct snap *head, bool *there,
                             struct upload_reply *out, struct err *e)
{
    int rc = publish_base(p->store, p->put, head, e);

    *there = rc == 0;
    if (rc == E_NOTFOUND && p->put->branch.n != 0) {
        upload_refuse(out, 404, "no such branch: " SLICE_FMT, SLICE_ARG(p->put->branch));
        return 0;
    }
    if (rc == E_NOTFOUND) {
        rc = refuse_moved(p, out, e);
    }
    if (rc != 0 || out->status != 0) {
        return rc;
    }
    return check_publish_head(p, *there ? head : NULL, out, e);
}

int publish_check(const struct publish *p, struct upload_reply *out, struct err *e)
{
    struct snap head;
    bool there;

    return read_publish_head(p, &head, &there, out, e);
}

int publish_run(const struct publish *p, struct upload_reply *out, struct err *e)
{
    int rc = E_CHANGED;

    for (int i = 0; rc == E_CHANGED && i < TRIES; i++) {
        struct snap head;
        bool there;

        rc = read_publish_head(p, &head, &there, out, e);
        if (rc != 0 || out->status != 0) {
            return rc;
        }
        rc = attempt_publish(p, there ? &head : NULL, out, e);
    }
    if (rc == E_CHANGED) {
        upload_refuse(out, 409, "not published: the tree changes too fast; try again");
        rc = 0;
    }
    return rc;
}
