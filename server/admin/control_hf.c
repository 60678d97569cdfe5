/* hf.*: repositories of a Hub and of our own, and what is here of them. */
#include "server/admin/talk.h"
#include "server/hub/holding.h"
#include "server/hub/stock.h"

struct telling {
    struct talk *t;
    const struct repo *r;
};

/* What is not known is null, not 0. */
static void sum_members(struct buf *row, const struct stock_sum *sum)
{
    static const char *const names[] = {"files", "bytes", "files_here", "bytes_here"};
    const uint64_t values[] = {sum->files, sum->bytes, sum->files_here, sum->bytes_here};

    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (sum->known) {
            jwrite_u64(row, names[i], values[i]);
        } else {
            jwrite_null(row, names[i]);
        }
    }
}

static int on_repo(void *arg, const struct stock_repo *x)
{
    struct telling *w = arg;
    struct buf *row = talk_row(w->t);

    jwrite_str(row, "repo", w->r->name);
    jwrite_str(row, "kind", stock_kind_name(x->kind));
    jwrite_text(row, "type", x->type);
    jwrite_text(row, "id", x->id);
    jwrite_text(row, "commit", x->commit);
    jwrite_u64(row, "revisions", x->revisions);
    sum_members(row, &x->sum);
    jwrite_u64(row, "cached_bytes", x->cached_bytes);
    jwrite_u64(row, "last_asked_unix_s", x->last_asked_unix_s);
    jwrite_bool(row, "pinned", x->pinned);
    jwrite_bool(row, "held", x->held);
    return talk_row_end(w->t);
}

int verb_hf_ls(struct talk *t, struct err *e)
{
    struct slice only = talk_text(t, "repo"), prefix = talk_text(t, "prefix");
    struct repo_set *rs = repo_set_hold(t->parts->repos);
    enum stock_kind k;
    bool found = false;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rs->count; i++) {
        struct stock_view v = {t->parts->hub, rs->repo[i], true};
        struct telling w = {t, rs->repo[i]};
        if (stock_kind_of(v.r, &k) && (only.p == NULL || slice_eqs(only, v.r->name))) {
            found = true;
            rc = stock_each(&v, prefix.p != NULL ? prefix : SLICE(""), on_repo, &w, e);
        }
    }
    if (rc == 0 && only.p != NULL && !found) {
        rc = err_set(e, E_NOTFOUND,
                     "\"" SLICE_FMT "\" is no repo of a Hub or of our own, see `mirrorctl repo ls`",
                     SLICE_ARG(only));
    }
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

/* --- show --------------------------------------------------------------------------------------------------------- */

static void revision_members(struct buf *out, const struct stock_revision *x)
{
    jwrite_text(out, "revision", x->name);
    jwrite_text(out, "commit", x->commit);
    jwrite_text(out, "upstream_commit", x->upstream);
    jwrite_u64(out, "asked_unix_s", x->asked_unix_s);
    sum_members(out, &x->sum);
    jwrite_bool(out, "pinned", x->pinned);
    jwrite_bool(out, "held", x->held);
}

static int on_revision(void *arg, const struct stock_revision *x)
{
    struct telling *w = arg;

    revision_members(talk_row(w->t), x);
    return talk_row_end(w->t);
}

static int on_file(void *arg, const struct stock_file *f)
{
    struct telling *w = arg;
    struct buf *row = talk_row(w->t);
    jwrite_text(row, "path", f->path);
    jwrite_u64(row, "size", f->size_bytes);
    if (f->lfs) {
        jwrite_hex(row, "sha256", f->sha256.b, DIGEST_BYTES);
        jwrite_null(row, "git_oid");
    } else {
        jwrite_null(row, "sha256");
        jwrite_hex(row, "git_oid", f->oid.b, GIT_OID_BYTES);
    }
    jwrite_str(row, "state", stock_state_name(f->state));
    jwrite_u64(row, "have", f->have_bytes);
    return talk_row_end(w->t);
}

int talk_need_id(const struct talk *t, struct repo_set **rs, struct stock_name *out, struct err *e)
{
    struct slice repo = talk_text(t, "repo"), id;
    int rc = talk_need(t, "id", &id, e);

    *rs = repo_set_hold(t->parts->repos);
    return rc != 0 ? rc : stock_name_read(*rs, repo, id, out, e);
}

static int on_any(void *arg, const struct stock_revision *x)
{
    (void)arg, (void)x;
    return 1;
}

/* An ID without a repo is looked for in the Hub's mirror, though another repo may have it. Then *e names that one. */
static void name_where_it_is(const struct stock_view *v, const struct repo_set *rs,
                             const struct stock_name *n, struct err *e)
{
    struct stock_view other = *v;
    struct err ignored;
    enum stock_kind k;

    for (size_t i = 0; i < rs->count; i++) {
        other.r = rs->repo[i];
        if (other.r == n->repo || !stock_kind_of(other.r, &k) ||
            stock_revisions(&other, n->type, n->id, on_any, NULL, &ignored) <= 0) {
            continue;
        }
        (void)!err_set(e, E_NOTFOUND,
                       "nothing is known here of " SLICE_FMT
                       " in repo %s, but repo %s has it: `mirrorctl hf show %s/" SLICE_FMT SLICE_FMT
                       "`",
                       SLICE_ARG(n->id), n->repo->name, other.r->name, other.r->name,
                       SLICE_ARG(n->prefix), SLICE_ARG(n->id));
        return;
    }
}

int verb_hf_show(struct talk *t, struct err *e)
{
    struct slice rev = talk_text(t, "revision");
    struct stock_revision about;
    struct arena a = {0};
    struct stock_name n;
    struct stock_view v = {t->parts->hub, NULL, true};
    struct telling w = {t, NULL};
    struct repo_set *rs;
    int rc = talk_need_id(t, &rs, &n, e);

    if (rc == 0) {
        v.r = w.r = n.repo;
        rev = rev.n != 0 ? rev : n.rev;
        jwrite_str(t->result, "repo", n.repo->name);
        jwrite_text(t->result, "type", n.type);
        jwrite_text(t->result, "id", n.id);
    }
    if (rc == 0 && rev.n == 0) {
        rc = stock_revisions(&v, n.type, n.id, on_revision, &w, e);
    } else if (rc == 0) {
        rc = stock_files(&v, n.type, n.id, rev, &a, &about, on_file, &w, e);
        if (rc == 0) {
            revision_members(t->result, &about);
        }
    }
    if (rc == E_NOTFOUND && v.r != NULL &&
        stock_revisions(&v, n.type, n.id, on_any, NULL, NULL) <= 0) {
        name_where_it_is(&v, rs, &n, e);
    }
    arena_fini(&a);
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

/* --- rollback ----------------------------------------------------------------------------------------------------- */

int verb_hf_rollback(struct talk *t, struct err *e)
{
    struct slice rev = talk_text(t, "revision"), branch;
    bool release = talk_flag(t, "release");
    struct holding_news news = {.seq = 0};
    struct stock_name n;
    struct repo_set *rs;
    int rc = talk_need_id(t, &rs, &n, e);

    branch = rc == 0 && n.rev.p != NULL ? n.rev : SLICE("main");
    if (rc == 0 && release == (rev.n != 0)) {
        rc = err_set(e, E_USAGE,
                     "a rollback needs the commit to go back to, and --release none, "
                     "see `mirrorctl hf show`");
    }
    if (rc == 0) {
        rc = release ? holding_release(t->parts->hub, &n, branch, e)
                     : holding_set(t->parts->hub, &n, branch, rev, &news, e);
    }
    if (rc == 0) {
        jwrite_str(t->result, "repo", n.repo->name);
        jwrite_text(t->result, "id", n.id);
        jwrite_text(t->result, "branch", branch);
        jwrite_bool(t->result, "held", !release);
        jwrite_bool(t->result, "synced", n.repo->synced);
        jwrite_bool(t->result, "hosted", n.repo->origin == NULL);
        jwrite_str(t->result, "commit", news.commit);
        jwrite_u64(t->result, "seq", news.seq);
        sum_members(t->result, &news.sum);
    }
    repo_set_release(&rs);
    return rc;
}
