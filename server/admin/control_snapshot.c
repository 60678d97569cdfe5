/* snapshot.*: of hosted trees, which have names and branches ("owner/name@branch"), and of synced
 * repos, which have one tree. */
#include <stdlib.h>

#include "server/admin/talk.h"
#include "server/repo/sync_conf.h"
#include "server/store/note.h"
#include "server/store/ref.h"

struct tree { /* what a request names */
    struct repo_set *set;
    struct repo *repo;
    struct slice repo_name, name;
    struct slice branch; /* "": the head */
};

/* The request's repo and tree. Release t->set in any case. whole: no name is a request for all
 * trees. */
static int need_tree(const struct talk *t, bool whole, struct tree *out, struct err *e)
{
    int rc = talk_need_repo(t, &out->set, &out->repo, e);

    if (rc != 0) {
        return rc;
    }
    out->repo_name = slice_str(out->repo->name);
    out->name = talk_text(t, "name");
    out->branch = SLICE("");
    if (!out->repo->synced) {
        struct slice branch = out->name;
        out->name = slice_cut(&branch, '@');
        out->branch = slice_eqs(branch, "main") ? SLICE("") : branch;
    }
    if (out->repo->synced) {
        out->name = SLICE(SYNC_TREE);
    } else if (out->name.n == 0 && !whole) {
        return err_set(e, E_USAGE, "a hosted repo has one tree for each name; give the NAME");
    }
    return 0;
}

/* The live one of its branch. */
static int branch_get(const struct talk *t, const struct tree *x, struct snap *out, struct err *e)
{
    int rc = x->branch.n == 0
                 ? head_get(t->deps->store, x->repo_name, x->name, out, e)
                 : ref_get(t->deps->store, x->repo_name, x->name, REF_BRANCH, x->branch, out, e);

    if (rc != E_NOTFOUND) {
        return rc;
    }
    return x->branch.n != 0
               ? err_set(e, rc, SLICE_FMT " has no branch " SLICE_FMT, SLICE_ARG(x->name),
                         SLICE_ARG(x->branch))
               : err_set(e, rc,
                         "%s%s" SLICE_FMT " has no snapshot: nothing was published there; see "
                         "`mirrorctl snapshot ls %s`",
                         x->repo->name, x->repo->synced ? "" : "/",
                         SLICE_ARG(x->repo->synced ? SLICE("") : x->name), x->repo->name);
}

static int need_snap(const struct talk *t, const struct tree *x, const char *key, struct snap *out,
                     struct err *e)
{
    struct slice version;
    bool named = !x->repo->synced;
    int rc = talk_need(t, key, &version, e);

    rc = rc != 0 ? rc : snap_find(t->deps->store, x->repo_name, x->name, version, out, e);
    if (rc == E_NOTFOUND) {
        return err_set(e, rc,
                       "%s%s" SLICE_FMT " has no version \"" SLICE_FMT
                       "\": no snapshot has that number or "
                       "label; see `mirrorctl snapshot ls %s%s" SLICE_FMT "`",
                       x->repo->name, named ? "/" : "", SLICE_ARG(named ? x->name : SLICE("")),
                       SLICE_ARG(version), x->repo->name, named ? " " : "",
                       SLICE_ARG(named ? x->name : SLICE("")));
    }
    return rc;
}

/* The tree, and one snapshot of it. */
static int need_version(struct talk *t, const char *key, struct tree *x, struct snap *out,
                        struct err *e)
{
    int rc = need_tree(t, false, x, e);

    return rc != 0 ? rc : need_snap(t, x, key, out, e);
}

struct snaps {
    struct talk *t;
    const struct tree *x;
    uint64_t head_seq;
    struct arena arena;
    struct name { /* what leads to which version */
        struct slice name;
        uint64_t seq;
    } * names;
    size_t names_count;
};

static void snap_members(struct buf *row, const struct snap *sn)
{
    jwrite_u64(row, "seq", sn->seq);
    jwrite_hex(row, "root", sn->root.b, DIGEST_BYTES);
    jwrite_u64(row, "parent_seq", sn->parent_seq);
    jwrite_u64(row, "entries", sn->entries);
    jwrite_u64(row, "bytes", sn->bytes);
    jwrite_u64(row, "created_unix_s", sn->created_unix_s);
    jwrite_str(row, "label", sn->label);
}

static int on_snapshot_head(void *arg, struct slice name, const struct snap *sn)
{
    struct snaps *s = arg;
    struct buf *row = talk_row(s->t);

    jwrite_text(row, "name", name);
    snap_members(row, sn);
    jwrite_bool(row, "live", true);
    return talk_row_end(s->t);
}

static int on_name(void *arg, const struct ref *r)
{
    struct snaps *s = arg;

    if ((s->names_count & (s->names_count - 1)) == 0) {
        s->names =
            reallocarray(s->names, s->names_count != 0 ? 2 * s->names_count : 1, sizeof *s->names);
        CHECK(s->names != NULL);
    }
    s->names[s->names_count++] = (struct name){arena_copy(&s->arena, r->name), r->seq};
    return 0;
}

static void snaps_free(struct snaps *s)
{
    free(s->names);
    arena_fini(&s->arena);
}

/* Who published it and why, where that is known, and what leads to it. */
static int say_more(struct snaps *s, struct buf *row, uint64_t seq)
{
    struct store *store = s->t->deps->store;
    struct arena a = {0};
    struct note n;
    int rc = note_get(store, s->x->repo_name, s->x->name, seq, &a, &n, NULL);

    jwrite_text(row, "author", n.author);
    jwrite_text(row, "title", n.title);
    jwrite_text(row, "message", n.message);
    arena_fini(&a);
    jwrite_open(row, "names", '[');
    for (size_t i = 0; i < s->names_count; i++) {
        if (s->names[i].seq == seq) {
            jwrite_text(row, NULL, s->names[i].name);
        }
    }
    jwrite_close(row, ']');
    return rc == E_NOTFOUND ? 0 : rc;
}

static int on_listed_snap(void *arg, const struct snap *sn)
{
    struct snaps *s = arg;
    struct buf *row = talk_row(s->t);
    int rc;

    snap_members(row, sn);
    jwrite_bool(row, "live", sn->seq == s->head_seq);
    rc = say_more(s, row, sn->seq);
    return rc != 0 ? rc : talk_row_end(s->t);
}

/* What it was made from, and so on. */
static int list_history(struct snaps *s, struct snap sn, struct err *e)
{
    int rc = on_listed_snap(s, &sn);

    while (rc == 0 && sn.parent_seq != 0) {
        rc = snap_get(s->t->deps->store, s->x->repo_name, s->x->name, sn.parent_seq, &sn, e);
        rc = rc != 0 ? rc : on_listed_snap(s, &sn);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

int verb_snapshot_ls(struct talk *t, struct err *e)
{
    struct tree x = {0};
    struct snaps s = {.t = t, .x = &x};
    struct snap head;
    int rc = need_tree(t, true, &x, e);

    if (rc == 0 && x.name.n == 0) {
        rc = head_list(t->deps->store, x.repo_name, on_snapshot_head, &s, e);
    } else if (rc == 0) {
        rc = branch_get(t, &x, &head, e);
        s.head_seq = rc == 0 ? head.seq : 0;
        rc = rc != 0 ? rc : ref_list(t->deps->store, x.repo_name, x.name, on_name, &s, e);
        if (rc == 0 && x.branch.n != 0) {
            rc = list_history(&s, head, e);
        } else if (rc == 0) {
            rc = snap_list(t->deps->store, x.repo_name, x.name, on_listed_snap, &s, e);
        } else if (rc == E_NOTFOUND && x.repo->synced) {
            rc = 0; /* nothing is published yet */
        }
    }
    snaps_free(&s);
    repo_set_release(&x.set);
    return rc < 0 ? rc : 0;
}

int verb_snapshot_show(struct talk *t, struct err *e)
{
    struct snap sn, head;
    struct tree x = {0};
    struct snaps s = {.t = t, .x = &x};
    bool held = false;
    int rc = need_tree(t, false, &x, e);

    rc = rc != 0 ? rc : branch_get(t, &x, &head, e);
    if (rc == 0) {
        sn = head;
        rc = talk_text(t, "version").n != 0 ? need_snap(t, &x, "version", &sn, e) : 0;
    }
    rc = rc != 0 ? rc : head_held(t->deps->store, x.repo_name, x.name, &held, e);
    if (rc == 0) {
        snap_members(t->result, &sn);
        jwrite_bool(t->result, "live", sn.seq == head.seq);
        jwrite_bool(t->result, "hold", held);
        rc = ref_list(t->deps->store, x.repo_name, x.name, on_name, &s, e);
    }
    rc = rc != 0 ? rc : say_more(&s, t->result, sn.seq);
    snaps_free(&s);
    repo_set_release(&x.set);
    return rc;
}

/* --- diff --- */

struct diff {
    struct talk *t;
    uint64_t added, removed, changed, added_bytes, removed_bytes;
};

static void diff_side(struct buf *row, const char *size, const char *digest, const struct entry *en)
{
    if (en != NULL && en->type == ENTRY_FILE) {
        jwrite_u64(row, size, en->size_bytes);
        jwrite_hex(row, digest, en->digest.b, DIGEST_BYTES);
    } else {
        jwrite_null(row, size);
        jwrite_null(row, digest);
    }
}

static int on_difference(void *arg, const struct entry *old, const struct entry *new)
{
    struct diff *d = arg;
    struct buf *row = talk_row(d->t);

    d->added += old == NULL;
    d->removed += new == NULL;
    d->changed += old != NULL && new != NULL;
    d->added_bytes += new != NULL &&new->type == ENTRY_FILE ? new->size_bytes : 0;
    d->removed_bytes += old != NULL && old->type == ENTRY_FILE ? old->size_bytes : 0;
    jwrite_text(row, "what",
                old == NULL   ? SLICE("added")
                : new == NULL ? SLICE("removed")
                              : SLICE("changed"));
    jwrite_text(row, "path", (new != NULL ? new : old)->path);
    jwrite_bool(row, "folder", (new != NULL ? new : old)->type == ENTRY_DIR);
    diff_side(row, "old_size", "old_sha256", old);
    diff_side(row, "size", "sha256", new);
    return talk_row_end(d->t);
}

int verb_snapshot_diff(struct talk *t, struct err *e)
{
    struct diff d = {.t = t};
    struct snap from, to;
    struct tree x = {0};
    int rc = need_version(t, "from", &x, &from, e);

    if (rc == 0) {
        rc = talk_text(t, "to").n != 0 ? need_snap(t, &x, "to", &to, e) : branch_get(t, &x, &to, e);
    }
    rc = rc != 0 ? rc : tree_diff(t->deps->store, &from.root, &to.root, on_difference, &d, e);
    if (rc == 0) {
        jwrite_u64(t->result, "from_seq", from.seq);
        jwrite_u64(t->result, "to_seq", to.seq);
        jwrite_u64(t->result, "added", d.added);
        jwrite_u64(t->result, "removed", d.removed);
        jwrite_u64(t->result, "changed", d.changed);
        jwrite_u64(t->result, "added_bytes", d.added_bytes);
        jwrite_u64(t->result, "removed_bytes", d.removed_bytes);
    }
    repo_set_release(&x.set);
    return rc < 0 ? rc : 0;
}

/* --- what changes something --- */

int verb_snapshot_rollback(struct talk *t, struct err *e)
{
    struct tree x = {0};
    struct batch *b = batch_new();
    struct snap sn;
    bool hold = false;
    int rc = need_version(t, "version", &x, &sn, e);

    if (rc == 0) {
        rc = x.branch.n == 0
                 ? head_set(t->deps->store, x.repo_name, x.name, sn.seq, b, e)
                 : branch_set(t->deps->store, x.repo_name, x.name, x.branch, sn.seq, b, e);
    }
    rc = rc != 0 ? rc : store_commit(t->deps->store, &b, COMMIT_SYNC, e);
    batch_free(&b);
    if (rc == 0) {
        repos_changed(t->deps->repos, x.repo_name);
        snap_members(t->result, &sn);
        rc = head_held(t->deps->store, x.repo_name, x.name, &hold, e);
        jwrite_bool(t->result, "hold", hold);
    }
    repo_set_release(&x.set);
    return rc;
}

int verb_snapshot_tag(struct talk *t, struct err *e)
{
    struct tree x = {0};
    struct snap sn;
    int rc = need_version(t, "version", &x, &sn, e);

    rc = rc != 0 ? rc
                 : snap_tag(t->deps->store, x.repo_name, x.name, sn.seq, talk_text(t, "label"), e);
    if (rc == 0) {
        repos_changed(t->deps->repos, x.repo_name); /* "@label" and lists of names are remembered */
        jwrite_u64(t->result, "seq", sn.seq);
        jwrite_text(t->result, "label", talk_text(t, "label"));
    }
    repo_set_release(&x.set);
    return rc;
}

int verb_snapshot_hold(struct talk *t, struct err *e)
{
    struct tree x = {0};
    int rc = need_tree(t, false, &x, e);

    rc = rc != 0 ? rc : head_hold(t->deps->store, x.repo_name, x.name, !talk_flag(t, "off"), e);
    if (rc == 0) {
        jwrite_bool(t->result, "hold", !talk_flag(t, "off"));
    }
    repo_set_release(&x.set);
    return rc;
}

static bool is_of_a_cluster(struct cluster *c)
{
    struct cluster_status s = {.state = CLUSTER_NOT_JOINED};

    if (c != NULL) {
        cluster_status(c, &s);
    }
    return s.state != CLUSTER_NOT_JOINED;
}

int verb_snapshot_rm(struct talk *t, struct err *e)
{
    struct tree x = {0};
    struct snap sn;
    int rc = need_version(t, "version", &x, &sn, e);

    rc = rc != 0 ? rc : snap_remove(t->deps->store, x.repo_name, x.name, sn.seq, e);
    if (rc == 0) {
        repos_changed(t->deps->repos, x.repo_name); /* "@v7" and labels lead nowhere now */
        jwrite_u64(t->result, "seq", sn.seq);
        jwrite_bool(t->result, "cluster", is_of_a_cluster(t->deps->cluster));
    }
    repo_set_release(&x.set);
    return rc;
}
