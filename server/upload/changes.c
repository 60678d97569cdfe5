#include "server/upload/changes.h"

#include <stdlib.h>

#include "server/store/alias.h"
#include "server/store/blob.h"
#include "server/upload/elsewhere.h"
#include "server/upload/live.h"
#include "server/upload/upload_grant.h"
#include "server/upload/publish.h"
#include "server/upload/upload_reply.h"

enum { TRIES = 32, PARENT_MIN = 16, UPLOAD_GRANTS_BYTES = 1 << 16, WHERES_MAX = 4 };

struct where {
    struct slice folder;
    bool (*which)(const struct entry *en, const struct digest *d);
    struct digest digest;
};

struct edits {
    struct tree_edit *edit;
    size_t count;
    size_t room;
};

struct changes {
    struct uploads *u;
    struct arena arena;
    struct put put;
    struct slice parent; /* p == NULL: any */
    struct edits made;   /* as they came; a folder's removal stands for what lies in it */
    bool makes;          /* the tree, when it is not there */
    struct where where[WHERES_MAX];
    size_t wheres;
};

struct changes *changes_open(struct uploads *u, const struct put *p)
{
    struct changes *c = NEW(struct changes);

    c->u = u;
    c->put = put_copy(p, &c->arena);
    return c;
}

void changes_close(struct changes **cp)
{
    struct changes *c = *cp;

    *cp = NULL;
    if (c != NULL) {
        free(c->made.edit);
        arena_fini(&c->arena);
        free(c);
    }
}

const struct put *changes_put(const struct changes *c)
{
    return &c->put;
}

void changes_make(struct changes *c)
{
    c->makes = true;
}

int changes_see(struct changes *c, struct slice path, bool *yes, struct err *e)
{
    struct arena a = {0};
    struct entry en;
    struct snap sn;
    int rc = publish_base(c->u->store, &c->put, &sn, e);

    rc = rc != 0 ? rc : tree_get(c->u->store, &sn.root, path, &a, &en, e);
    *yes = rc == 0 && en.type == ENTRY_FILE;
    arena_fini(&a);
    return rc == E_NOTFOUND ? 0 : rc;
}

int changes_find(struct changes *c, const struct called *name, struct digest *out, bool *known,
                 struct err *e)
{
    return alias_find(c->u->store, name, out, known, e);
}

int changes_called(struct changes *c, const struct sha512 *name, const struct digest *d,
                   struct err *e)
{
    struct batch *b = batch_new();

    alias_put(b, name, d);
    return store_commit(c->u->store, &b, COMMIT_LAZY, e);
}

void changes_remove_where(struct changes *c, struct slice folder,
                          bool (*which)(const struct entry *en, const struct digest *d),
                          const struct digest *d)
{
    CHECK(c->wheres < WHERES_MAX);
    c->where[c->wheres++] = (struct where){arena_copy(&c->arena, folder), which, *d};
}

static struct tree_edit *add_tree_edit(struct edits *m, struct slice path, bool remove)
{
    if (m->count == m->room) {
        m->room = m->room != 0 ? 2 * m->room : 64;
        m->edit = reallocarray(m->edit, m->room, sizeof *m->edit);
        CHECK(m->edit != NULL);
    }
    m->edit[m->count] = (struct tree_edit){.entry = {.path = path}, .remove = remove};
    return &m->edit[m->count++];
}

static bool room_for_one(struct changes *c, struct upload_reply *out)
{
    if (c->made.count < UPLOAD_FILES_MAX) {
        return true;
    }
    upload_refuse(out, 413, "a commit has at most %d changes; split it into several commits",
                  UPLOAD_FILES_MAX);
    return false;
}

void changes_parent(struct changes *c, struct slice hex, struct upload_reply *out)
{
    if (hex.n < PARENT_MIN || hex.n > DIGEST_HEX) {
        upload_refuse(out, 400, "invalid parent: it must be the id of a commit");
        return;
    }
    c->parent = arena_copy(&c->arena, hex);
}

void changes_note(struct changes *c, struct slice title, struct slice message,
                  struct upload_reply *out)
{
    c->put.note.title = arena_copy(&c->arena, title);
    c->put.note.message = arena_copy(&c->arena, message);
    if (!note_fits(&c->put.note)) {
        upload_refuse(out, 413, "the summary of a commit has at most %d bytes, its description %d",
                      NOTE_TITLE_MAX, NOTE_MESSAGE_MAX);
    }
}

static void add_changed_file(struct changes *c, struct slice path, const struct digest *d,
                             uint64_t size_bytes)
{
    struct tree_edit *ed = add_tree_edit(&c->made, arena_copy(&c->arena, path), false);

    ed->entry.type = ENTRY_FILE;
    ed->entry.digest = *d;
    ed->entry.size_bytes = size_bytes;
}

int changes_file(struct changes *c, struct slice path, struct slice bytes, struct upload_reply *out,
                 struct err *e)
{
    struct batch *b;
    struct blob *blob = NULL;
    int rc;

    if (!room_for_one(c, out)) {
        return 0;
    }
    b = batch_new();
    rc = blob_put_bytes(c->u->store, bytes, b, &blob, e);
    if (rc == 0) {
        add_changed_file(c, path, blob_digest(blob), bytes.n);
        publish_hold(&c->put, blob_digest(blob), b);
        rc = store_commit(c->u->store, &b, COMMIT_LAZY, e);
    }
    blob_release(&blob);
    batch_free(&b);
    return upload_trouble(out, rc, e);
}

int changes_object(struct changes *c, struct slice path, const struct digest *d,
                   uint64_t size_bytes, struct upload_reply *out, struct err *e)
{
    uint64_t there_bytes = 0;
    bool has = false;
    int rc;

    if (!room_for_one(c, out)) {
        return 0;
    }
    rc = upload_grant_tree_has(c->u->store, &c->put, d, &has, NULL, e);
    if (rc == 0 && !has) {
        rc = elsewhere_bring(c->u, &c->put, d, e);
        has = rc == 0;
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == 0 && has) {
        rc = blob_length(c->u->store, d, &there_bytes, e);
        has = rc == 0;
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == 0 && !has) {
        upload_refuse(
            out, 409,
            "the bytes of this file are missing; upload them before the commit: " SLICE_FMT,
            SLICE_ARG(path));
    } else if (rc == 0 && size_bytes != UINT64_MAX && there_bytes != size_bytes) {
        upload_refuse(
            out, 400,
            "the size in the commit differs from the size of the uploaded bytes: " SLICE_FMT,
            SLICE_ARG(path));
    } else if (rc == 0) {
        add_changed_file(c, path, d, there_bytes);
    }
    return rc;
}

int changes_remove(struct changes *c, struct slice path, struct upload_reply *out, struct err *e)
{
    (void)e;
    if (room_for_one(c, out)) {
        add_tree_edit(&c->made, arena_copy(&c->arena, path), true);
    }
    return 0;
}

/* --- the commit --- */

struct removal {
    struct changes *c;
    struct arena arena;
    struct edits all;
    size_t found;
    const struct where *where;
    uint64_t most; /* edits: each entry of the tree goes once, and what is asked for besides */
    /* what c makes, by path, then in its order; NULL: nobody has looked yet */
    const struct tree_edit **made;
    size_t made_count;
};

enum { TOO_MANY = 1 };

static int on_removed(void *arg, const struct entry *en)
{
    struct removal *r = arg;

    if (r->all.count >= r->most) {
        return TOO_MANY;
    }
    add_tree_edit(&r->all, arena_copy(&r->arena, en->path), true);
    r->found++;
    return 0;
}

static int on_maybe(void *arg, const struct entry *en)
{
    struct removal *r = arg;

    return r->where->which(en, &r->where->digest) ? on_removed(r, en) : 0;
}

static int compare_change_paths(const void *a, const void *b)
{
    const struct tree_edit *x = *(const struct tree_edit *const *)a;
    const struct tree_edit *y = *(const struct tree_edit *const *)b;
    int order = slice_cmp(x->entry.path, y->entry.path);

    return order != 0 ? order : x < y ? -1 : x > y;
}

static void sort_made(struct removal *r)
{
    const struct edits *m = &r->c->made;

    r->made = mem_array(m->count, sizeof *r->made);
    for (size_t i = 0; i < m->count; i++) {
        if (!m->edit[i].remove) {
            r->made[r->made_count++] = &m->edit[i];
        }
    }
    qsort(r->made, r->made_count, sizeof *r->made, compare_change_paths);
}

/* True: a change before it made that path. */
static bool made_before(struct removal *r, const struct tree_edit *ed)
{
    size_t low = 0, high;

    if (r->made == NULL) {
        sort_made(r);
    }
    high = r->made_count;
    while (low < high) { /* the first of that path */
        size_t mid = low + (high - low) / 2;
        if (slice_cmp(r->made[mid]->entry.path, ed->entry.path) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < r->made_count && r->made[low] < ed &&
           slice_eq(r->made[low]->entry.path, ed->entry.path);
}

/* What a removal means for the tree as it stands. */
static int remove_from(struct removal *r, size_t at, const struct digest *root,
                       struct upload_reply *out, struct err *e)
{
    struct slice path = r->c->made.edit[at].entry.path;
    bool folder = path.n == 0 || path.p[path.n - 1] == '/';
    struct entry en;
    int rc;

    r->found = 0;
    if (folder) {
        rc = tree_walk(r->c->u->store, root, path, SLICE_NONE, on_removed, r, e);
    } else {
        rc = tree_get(r->c->u->store, root, path, &r->arena, &en, e);
        if (rc == 0) {
            (void)on_removed(r, &en);
        } else if (rc == E_NOTFOUND && made_before(r, &r->c->made.edit[at])) {
            add_tree_edit(&r->all, path, true);
            return 0;
        }
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    if (rc == TOO_MANY) {
        upload_refuse(out, 413,
                      "the commit removes the same folder too many times; remove it once");
        return 0;
    }
    if (rc == 0 && r->found == 0) {
        upload_refuse(out, 404, "A file with this name doesn't exist: \"" SLICE_FMT "\"",
                      SLICE_ARG(path));
    }
    return rc;
}

/* The changes in their order, removals by what they mean. */
static int all_edits(struct removal *r, const struct digest *root, struct upload_reply *out,
                     struct err *e)
{
    const struct edits *m = &r->c->made;
    int rc = 0;

    for (size_t i = 0; rc == 0 && out->status == 0 && i < m->count; i++) {
        if (m->edit[i].remove) {
            rc = remove_from(r, i, root, out, e);
        } else {
            *add_tree_edit(&r->all, m->edit[i].entry.path, false) = m->edit[i];
        }
    }
    for (size_t i = 0; rc == 0 && out->status == 0 && i < r->c->wheres; i++) {
        r->where = &r->c->where[i];
        rc = tree_walk(r->c->u->store, root, r->where->folder, SLICE_NONE, on_maybe, r, e);
    }
    return rc;
}

static bool on_parent(const struct changes *c, const struct digest *root)
{
    char hex[DIGEST_HEX + 1];

    digest_format(root, hex);
    return c->parent.p == NULL || slice_starts(slice_of(hex, DIGEST_HEX), c->parent);
}

static int attempt_changes(struct changes *c, uint64_t now_unix_s, struct upload_reply *out,
                           struct err *e)
{
    struct removal r = {.c = c};
    struct put put = c->put;
    struct publish pub = {.store = c->u->store, .put = &put, .now_unix_s = now_unix_s};
    struct snap head;
    int rc = publish_base(c->u->store, &c->put, &head, e);

    if (rc == E_NOTFOUND && c->makes && put.branch.n == 0) {
        tree_empty_root(&head.root);
        put.if_none_match_any = true;
        rc = 0;
    } else if (rc == E_NOTFOUND) {
        upload_refuse(out, 404, "no such repository or branch; create it first");
        return 0;
    }
    if (rc == 0 && !on_parent(c, &head.root)) {
        upload_refuse(out, 412,
                      "the parent commit is no longer the newest one; fetch the changes and commit "
                      "on top of them");
        return 0;
    }
    if (rc == 0) {
        r.most = head.entries + UPLOAD_FILES_MAX;
        rc = all_edits(&r, &head.root, out, e);
    }
    if (rc == 0 && out->status == 0) {
        /* What was looked at is what is changed: with another head, look again. */
        put.match = put.if_none_match_any ? MATCH_NOTHING : MATCH_ROOT;
        put.if_match = head.root;
        pub.edits = r.all.edit;
        pub.count = r.all.count;
        rc = publish_run(&pub, out, e);
    }
    free(r.all.edit);
    free(r.made);
    arena_fini(&r.arena);
    return rc;
}

/* Their upload grants need not hold them any longer. What is left behind goes with the upload
 * grant. */
static void release_changes(struct changes *c)
{
    struct batch *b = batch_new();
    struct buf ids = BUF_INIT(UPLOAD_GRANTS_BYTES);

    for (size_t i = 0; i < c->made.count; i++) {
        struct tree_edit *ed = &c->made.edit[i];
        struct session s = {0};
        bool has;

        buf_clear(&ids);
        if (ed->remove ||
            upload_grant_tree_has(c->u->store, &c->put, &ed->entry.digest, &has, &ids, NULL) != 0) {
            continue;
        }
        memcpy(s.repo, c->put.repo.p, c->put.repo.n);
        for (size_t at = 0; at + UPLOAD_ID <= ids.n; at += UPLOAD_ID) {
            memcpy(s.id, ids.p + at, UPLOAD_ID);
            session_unhold(&s, SLICE_NONE, &ed->entry.digest, b);
        }
    }
    buf_free(&ids);
    if (store_commit(c->u->store, &b, COMMIT_LAZY, NULL) != 0) {
        batch_free(&b);
    }
}

int changes_commit(struct changes *c, uint64_t now_unix_s, struct upload_reply *out, struct err *e)
{
    int rc = 0;

    for (int i = 0; i < TRIES; i++) {
        rc = attempt_changes(c, now_unix_s, out, e);
        if (rc != 0 || out->status != 412 || c->parent.p != NULL || i + 1 == TRIES) {
            break;
        }
        out->status = 0;
        buf_clear(&out->body);
    }
    if (rc == 0 && out->status == 412 && c->parent.p == NULL) {
        out->status = 409;
    }
    if (rc == 0 && (out->status == 200 || out->status == 201)) {
        release_changes(c);
    }
    return upload_trouble(out, rc, e);
}
