/* hub_about.c - what a Hub says of a repository as a whole: its info at a version, its branches and tags, its commits. */
#include <inttypes.h>

#include "common/codec/jwrite.h"
#include "server/repo/hosted/hub.h"
#include "server/store/note.h"
#include "server/store/ref.h"

enum { COMMITS_MAX = 1000 };

struct about {
    struct buf *out;
    struct store *s;
    const struct repo *r;
    const struct plan *p;
};

/* --- info --------------------------------------------------------------------------------------------------------- */

static int on_sibling(void *arg, const struct entry *en)
{
    struct about *l = arg;

    if (l->out->rc != 0) {
        return E_TOOBIG;
    }
    if (en->type != ENTRY_FILE) {
        return 0;
    }
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "rfilename", en->path);
    if (l->p->recursive) { /* sizes and digests too */
        hub_lfs(l->out, en, "blobId", "sha256");
    }
    jwrite_close(l->out, '}');
    return 0;
}

int hub_info(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
             struct err *e)
{
    struct about about = {out, s, r, p}, *l = &about;
    const struct snap *sn = &l->p->snap;
    struct slice rest = l->p->name;
    struct slice type = hub_cut_type(&rest);
    char id[HUB_COMMIT_HEX + 1];
    int rc;

    hub_commit_id(&sn->root, id);
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "_id", slice_first(slice_str(id), 24));
    jwrite_text(l->out, "id", rest);
    if (slice_eqs(type, "models")) {
        jwrite_text(l->out, "modelId", rest);
    }
    jwrite_text(l->out, "author", slice_cut(&rest, '/'));
    jwrite_str(l->out, "sha", id);
    hub_when(l->out, "lastModified", sn->created_unix_s);
    hub_when(l->out, "createdAt", sn->created_unix_s);
    jwrite_bool(l->out, "private", !l->r->anonymous_read);
    jwrite_bool(l->out, "gated", false);
    jwrite_bool(l->out, "disabled", false);
    jwrite_word(l->out, "tags", SLICE("[]"));
    jwrite_u64(l->out, "downloads", 0);
    jwrite_u64(l->out, "likes", 0);
    jwrite_u64(l->out, "usedStorage", sn->bytes);
    jwrite_open(l->out, "siblings", '[');
    rc = tree_walk(l->s, &sn->root, SLICE(""), SLICE_NONE, on_sibling, l, e);
    jwrite_close(l->out, ']');
    jwrite_close(l->out, '}');
    return rc;
}

/* --- branches and tags -------------------------------------------------------------------------------------------- */

static void ref_row(struct about *l, const char *prefix, struct slice name, const struct snap *sn)
{
    struct buf ref = BUF_INIT(2 * REF_NAME_MAX);
    char id[HUB_COMMIT_HEX + 1];

    hub_commit_id(&sn->root, id);
    buf_str(&ref, prefix);
    buf_adds(&ref, name);
    jwrite_open(l->out, NULL, '{');
    jwrite_text(l->out, "name", name);
    jwrite_text(l->out, "ref", buf_slice(&ref));
    jwrite_str(l->out, "targetCommit", id);
    jwrite_close(l->out, '}');
    buf_free(&ref);
}

struct refs {
    struct about *l;
    enum ref_kind kind;
    struct err *e;
};

static int on_ref(void *arg, const struct ref *r)
{
    struct refs *w = arg;
    struct about *l = w->l;
    struct snap sn;
    int rc;

    if (r->kind != w->kind) {
        return 0;
    }
    rc = snap_get(l->s, slice_str(l->r->name), l->p->name, r->seq, &sn, w->e);
    if (rc == 0) {
        ref_row(l, r->kind == REF_BRANCH ? "refs/heads/" : "refs/tags/", r->name, &sn);
    }
    return rc;
}

/* What `mirrorctl snapshot tag` gave. */
static int on_label(void *arg, const struct snap *sn)
{
    if (sn->label[0] != '\0') {
        ref_row(arg, "refs/tags/", slice_str(sn->label), sn);
    }
    return 0;
}

int hub_refs(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
             struct err *e)
{
    struct about about = {out, s, r, p}, *l = &about;
    struct slice repo = slice_str(l->r->name);
    struct refs w = {.l = l, .kind = REF_BRANCH, .e = e};
    int rc;

    jwrite_open(l->out, NULL, '{');
    jwrite_open(l->out, "branches", '[');
    ref_row(l, "refs/heads/", SLICE("main"), &l->p->snap);
    rc = ref_list(l->s, repo, l->p->name, on_ref, &w, e);
    jwrite_close(l->out, ']');
    jwrite_word(l->out, "converts", SLICE("[]"));
    jwrite_open(l->out, "tags", '[');
    w.kind = REF_TAG;
    if (rc == 0) {
        rc = ref_list(l->s, repo, l->p->name, on_ref, &w, e);
    }
    if (rc == 0) {
        rc = snap_list(l->s, repo, l->p->name, on_label, l, e);
    }
    jwrite_close(l->out, ']');
    jwrite_close(l->out, '}');
    return rc;
}

/* --- commits ------------------------------------------------------------------------------------------------------ */

static int commit_row(struct about *l, const struct snap *sn, struct err *e)
{
    struct arena a = {0};
    struct note n;
    char id[HUB_COMMIT_HEX + 1];
    int rc = note_get(l->s, slice_str(l->r->name), l->p->name, sn->seq, &a, &n, e);

    if (rc == 0 || rc == E_NOTFOUND) {
        hub_commit_id(&sn->root, id);
        jwrite_open(l->out, NULL, '{');
        jwrite_str(l->out, "id", id);
        jwrite_text(l->out, "title", hub_title(sn, &n, &a));
        jwrite_text(l->out, "message", n.message);
        hub_when(l->out, "date", sn->created_unix_s);
        jwrite_open(l->out, "authors", '[');
        if (n.author.n != 0) {
            jwrite_open(l->out, NULL, '{');
            jwrite_text(l->out, "user", n.author);
            jwrite_close(l->out, '}');
        }
        jwrite_close(l->out, ']');
        jwrite_close(l->out, '}');
        rc = 0;
    }
    arena_fini(&a);
    return rc;
}

/* Newest first: the version that was asked for, and what each was made from. */
int hub_commits(struct store *s, const struct repo *r, const struct plan *p, struct buf *out,
                struct err *e)
{
    struct about about = {out, s, r, p}, *l = &about;
    struct snap sn = l->p->snap;
    int rc = 0;

    jwrite_open(l->out, NULL, '[');
    for (int i = 0; rc == 0 && i < COMMITS_MAX; i++) {
        rc = commit_row(l, &sn, e);
        if (rc == 0 && sn.parent_seq == 0) {
            break;
        }
        if (rc == 0) {
            rc = snap_get(l->s, slice_str(l->r->name), l->p->name, sn.parent_seq, &sn, e);
        }
    }
    jwrite_close(l->out, ']');
    return rc == E_NOTFOUND ? 0 : rc; /* a history that was cut by an older mirrord */
}
