/* carry_out.c - what this mirror knows of a revision, for an export. */
#include "server/hub/carry.h"

#include "server/hub/repo_index.h"
#include "server/hub/kept.h"
#include "server/repo/hf/key.h"
#include "server/repo/hosted/hub.h"
#include "server/store/blob.h"

enum { FOLDER_BYTES = 2048 };

int carry_kind_of(const struct repo *r, enum inventory_kind *out, struct err *e)
{
    return inventory_kind_of(r, out)
               ? 0
               : err_set(e, E_UNSUPPORTED,
                         "repo %s has protocol %s, but repositories of a Hub are in repos with "
                         "protocol hf or hosted; see `mirrorctl repo ls`",
                         r->name, r->ops->name);
}

/* --- words, pulled through -------------------------------------------------------------------- */

/* Sets id, commit, closed and the words for clients. */
static int read_carried_info(struct carry *c, struct slice doc, struct err *e)
{
    struct buf made = BUF_INIT(CARRY_WORDS_BYTES);
    struct repo_info info;
    int rc = info_make(doc, &made, e);

    if (rc == 0 && !info_read(buf_slice(&made), &info)) {
        rc = err_set(e, E_PROTOCOL, "the Hub's metadata of the repository cannot be parsed");
    }
    if (rc == 0) {
        c->id = arena_copy(&c->arena, info.id);
        c->commit = arena_copy(&c->arena, info.commit);
        c->closed = info.closed;
        buf_adds(&c->info, info.json);
        rc = c->info.rc;
    }
    buf_free(&made);
    return rc;
}

static int add_carried_part(void *arg, const struct paged_fetch_part *p, struct err *e)
{
    struct carry *c = arg;

    if (p->first) {
        buf_clear(&c->tree);
    }
    return json_join(p->doc, p->first, &c->tree, e);
}

static int read_word(struct carry *c, const struct repo_index *x, struct err *e)
{
    const struct repo_index_doc *word = x != NULL ? repo_index_word(x, c->rev) : NULL;
    struct buf doc = BUF_INIT(CARRY_WORDS_BYTES);
    int rc = word == NULL ? err_set(e, E_NOTFOUND,
                                    "this mirror has not asked the Hub for " SLICE_FMT "@" SLICE_FMT
                                    " yet; add --fetch, or let a client request it",
                                    SLICE_ARG(c->asked), SLICE_ARG(c->rev))
                          : blob_read_whole(c->hub->store, &word->digest, &doc, e);

    if (rc == 0) {
        c->seen_unix_s = word->asked_unix_s;
        rc = read_carried_info(c, buf_slice(&doc), e);
    }
    buf_free(&doc);
    return rc;
}

static int words_through(struct carry *c, struct err *e)
{
    const struct inventory_view v = {c->hub, c->repo, true};
    struct repo_indexes h = REPO_INDEXES_OF(&v);
    struct repo_index *x = NULL;
    int rc = repo_indexes_ask(&h, c->type, c->asked, &x, e);

    if (rc == 0 || rc == E_NOTFOUND) {
        rc = read_word(c, x, e);
    }
    if (rc == 0) {
        rc = repo_index_listing(&h, x, c->commit, add_carried_part, c, e);
        if (rc == E_NOTFOUND) {
            err_set(e, rc,
                    "this mirror does not have the listing of " SLICE_FMT " at " SLICE_FMT
                    "; add --fetch, or let a client request it",
                    SLICE_ARG(c->asked), SLICE_ARG(c->commit));
        }
    }
    repo_indexes_free(&h);
    return rc;
}

/* --- words out of a tree ---------------------------------------------------------------------- */

static int entry_bytes(struct carry *c, struct slice path, struct slice *where, struct buf *out,
                       struct err *e)
{
    struct entry en;
    int rc = tree_resolve(c->hub->store, &c->root, path, &c->arena, &en, e);

    if (rc == 0 && en.type == ENTRY_FILE) {
        *where = en.path;
        rc = blob_read_whole(c->hub->store, &en.digest, out, e);
    }
    return rc;
}

static int words_synced(struct carry *c, struct err *e)
{
    struct buf path = BUF_INIT(FOLDER_BYTES), doc = BUF_INIT(CARRY_WORDS_BYTES);
    struct slice at = SLICE_NONE, tree;
    struct snap sn;
    int rc = head_get(c->hub->store, slice_str(c->repo->name), SLICE(SYNC_TREE), &sn, e);

    c->root = sn.root;
    c->seen_unix_s = sn.created_unix_s;
    hf_folder(c->type, c->asked, c->rev, &path);
    buf_str(&path, "/info.json");
    rc = rc != 0 ? rc : entry_bytes(c, buf_slice(&path), &at, &doc, e);
    if (rc == 0) {
        c->folder = slice_first(at, at.n - strlen("info.json"));
        tree = arena_fmt(&c->arena, SLICE_FMT "tree.json", SLICE_ARG(c->folder));
        rc = read_carried_info(c, buf_slice(&doc), e);
    }
    if (rc == 0) {
        buf_clear(&doc);
        rc = entry_bytes(c, tree, &at, &doc, e);
    }
    rc = rc != 0 ? rc : json_join(buf_slice(&doc), true, &c->tree, e);
    buf_free(&path);
    buf_free(&doc);
    return rc != E_NOTFOUND
               ? rc
               : err_set(e, rc,
                         "the published tree of repo %s does not have " SLICE_FMT "@" SLICE_FMT
                         "; see `mirrorctl sync show %s`",
                         c->repo->name, SLICE_ARG(c->asked), SLICE_ARG(c->rev), c->repo->name);
}

static int words_hosted(struct carry *c, struct err *e)
{
    struct plan p = {
        .kind = PLAN_LIST, .name = hub_tree(c->type, c->asked, &c->arena), .entry.path = SLICE("")};
    struct buf doc = BUF_INIT(CARRY_WORDS_BYTES);
    struct slice type;
    int rc = snap_find(c->hub->store, slice_str(c->repo->name), p.name, c->rev, &p.snap, e);

    if (rc == E_NOTFOUND) {
        err_set(e, rc,
                "there is no " SLICE_FMT "@" SLICE_FMT
                " in the hosted repo %s; see `mirrorctl snapshot ls %s`",
                SLICE_ARG(c->asked), SLICE_ARG(c->rev), c->repo->name, c->repo->name);
    }
    c->root = p.snap.root;
    c->seen_unix_s = p.snap.created_unix_s;
    p.form = LIST_HUB_INFO;
    rc = rc != 0 ? rc : hub_listing(c->hub->store, c->repo, &p, &doc, &type, e);
    rc = rc != 0 ? rc : read_carried_info(c, buf_slice(&doc), e);
    c->closed = false; /* whoever may read the repo may read it: nobody else is asked */
    p.form = LIST_HUB_TREE;
    p.recursive = true;
    buf_clear(&doc);
    rc = rc != 0 ? rc : hub_listing(c->hub->store, c->repo, &p, &doc, &type, e);
    rc = rc != 0 ? rc : json_join(buf_slice(&doc), true, &c->tree, e);
    buf_free(&doc);
    return rc;
}

/* --- both ------------------------------------------------------------------------------------- */

int carry_find(const struct hub_deps *hub, const struct inventory_name *n, struct carry *out,
               struct err *e)
{
    int rc;

    *out = (struct carry){.hub = hub,
                          .repo = n->repo,
                          .info = BUF_INIT(CARRY_WORDS_BYTES),
                          .tree = BUF_INIT(CARRY_WORDS_BYTES),
                          .listing = BUF_INIT(CARRY_WORDS_BYTES)};
    rc = carry_kind_of(n->repo, &out->kind, e);
    if (rc != 0) {
        return rc;
    }
    out->type = n->type;
    out->asked = arena_copy(&out->arena, n->id);
    out->rev = n->rev.n != 0 ? arena_copy(&out->arena, n->rev) : SLICE("main");
    rc = out->kind == INVENTORY_PULLED   ? words_through(out, e)
         : out->kind == INVENTORY_SYNCED ? words_synced(out, e)
                                         : words_hosted(out, e);
    rc =
        rc != 0 ? rc : manifest_add(buf_slice(&out->tree), SLICE(""), true, true, &out->listing, e);
    if (rc == 0 && !manifest_open(buf_slice(&out->listing), &out->files)) {
        rc = err_set(e, E_PROTOCOL, "the listing of this commit cannot be parsed");
    }
    return rc;
}

int carry_digest(const struct carry *c, const struct manifest_entry *f, struct digest *out,
                 bool *here, struct err *e)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct arena a = {0};
    struct entry en;
    int rc = 0;

    if (f->size_bytes == 0) { /* nothing is missing of it, whether or not anybody ever fetched it */
        digest_of(SLICE(""), out);
        *here = true;
        return 0;
    }
    if (f->lfs) {
        *out = f->sha256;
    } else if (c->kind == INVENTORY_PULLED) {
        rc = kept_row(c->hub->store, slice_str(c->repo->name), key_file(c->type, c->id, f, &a),
                      &row, e);
        if (rc == 0 && !object_row_digest(buf_slice(&row), out)) {
            rc = err_set(e, E_CORRUPT, "the row of a file cannot be decoded");
        }
    } else if (c->kind == INVENTORY_SYNCED) {
        rc = tree_get(
            c->hub->store, &c->root,
            arena_fmt(&a, SLICE_FMT "files/" SLICE_FMT, SLICE_ARG(c->folder), SLICE_ARG(f->path)),
            &a, &en, e);
        *out = rc == 0 ? en.digest : (struct digest){0};
    } else {
        rc = tree_get(c->hub->store, &c->root, f->path, &a, &en, e);
        *out = rc == 0 ? en.digest : (struct digest){0};
    }
    rc = rc != 0 ? rc : blob_exists(c->hub->store, out, here, e);
    buf_free(&row);
    arena_fini(&a);
    return rc;
}

void carry_free(struct carry *c)
{
    buf_free(&c->info);
    buf_free(&c->tree);
    buf_free(&c->listing);
    arena_fini(&c->arena);
}
