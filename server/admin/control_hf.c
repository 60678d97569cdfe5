/* Verbs hf.*: repositories of a Hub, what is here of them, fetched ahead, pinned, rolled back. */
#include <unistd.h>

#include "common/codec/jread.h"
#include "common/os/clock.h"
#include "server/admin/talk.h"
#include "server/hub/pinned_branch.h"
#include "server/hub/pinning.h"
#include "server/hub/prefetch.h"
#include "server/hub/inventory.h"

struct telling {
    struct talk *t;
    const struct repo *r;
};

/* What is not known is null, not 0. */
static void sum_members(struct buf *row, const struct inventory_sum *sum)
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

static int on_repo(void *arg, const struct inventory_repo *x)
{
    struct telling *w = arg;
    struct buf *row = talk_row(w->t);

    jwrite_str(row, "repo", w->r->name);
    jwrite_str(row, "kind", inventory_kind_name(x->kind));
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
    struct repo_set *rs = repo_set_hold(t->deps->repos);
    enum inventory_kind k;
    bool found = false;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < rs->count; i++) {
        struct inventory_view v = {t->deps->hub, rs->repo[i], true};
        struct telling w = {t, rs->repo[i]};
        if (inventory_kind_of(v.r, &k) && (only.p == NULL || slice_eqs(only, v.r->name))) {
            found = true;
            rc = inventory_each(&v, prefix.p != NULL ? prefix : SLICE(""), on_repo, &w, e);
        }
    }
    if (rc == 0 && only.p != NULL && !found) {
        rc = err_set(e, E_NOTFOUND,
                     "\"" SLICE_FMT "\" is neither a repo of a Hub nor a hosted one; see "
                     "`mirrorctl repo ls`",
                     SLICE_ARG(only));
    }
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

/* --- show ------------------------------------------------------------------------------------- */

static void revision_members(struct buf *out, const struct inventory_revision *x)
{
    jwrite_text(out, "revision", x->name);
    jwrite_text(out, "commit", x->commit);
    jwrite_text(out, "upstream_commit", x->upstream);
    jwrite_u64(out, "asked_unix_s", x->asked_unix_s);
    sum_members(out, &x->sum);
    jwrite_bool(out, "pinned", x->pinned);
    jwrite_bool(out, "held", x->held);
}

static int on_revision(void *arg, const struct inventory_revision *x)
{
    struct telling *w = arg;

    revision_members(talk_row(w->t), x);
    return talk_row_end(w->t);
}

static int on_control_hf_file(void *arg, const struct inventory_file *f)
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
    jwrite_str(row, "state", inventory_state_name(f->state));
    jwrite_u64(row, "have", f->have_bytes);
    return talk_row_end(w->t);
}

static int need_id(const struct talk *t, struct repo_set **rs, struct inventory_name *out,
                   struct err *e)
{
    struct slice repo = talk_text(t, "repo"), id;
    int rc = talk_need(t, "id", &id, e);

    *rs = repo_set_hold(t->deps->repos);
    return rc != 0 ? rc : inventory_name_read(*rs, repo, id, out, e);
}

static int on_any(void *arg, const struct inventory_revision *x)
{
    (void)arg, (void)x;
    return 1;
}

/* An ID without a repo is looked for in the Hub's mirror, though another repo may have it. Then *e
 * names that one. */
static void name_where_it_is(const struct inventory_view *v, const struct repo_set *rs,
                             const struct inventory_name *n, struct err *e)
{
    struct inventory_view other = *v;
    struct err ignored;
    enum inventory_kind k;

    for (size_t i = 0; i < rs->count; i++) {
        other.r = rs->repo[i];
        if (other.r == n->repo || !inventory_kind_of(other.r, &k) ||
            inventory_revisions(&other, n->type, n->id, on_any, NULL, &ignored) <= 0) {
            continue;
        }
        (void)!err_set(e, E_NOTFOUND,
                       SLICE_FMT " is not known in repo %s, but repo %s has it; see "
                                 "`mirrorctl hf show %s/" SLICE_FMT SLICE_FMT "`",
                       SLICE_ARG(n->id), n->repo->name, other.r->name, other.r->name,
                       SLICE_ARG(n->prefix), SLICE_ARG(n->id));
        return;
    }
}

int verb_hf_show(struct talk *t, struct err *e)
{
    struct slice rev = talk_text(t, "revision");
    struct inventory_revision about;
    struct arena a = {0};
    struct inventory_name n;
    struct inventory_view v = {t->deps->hub, NULL, true};
    struct telling w = {t, NULL};
    struct repo_set *rs;
    int rc = need_id(t, &rs, &n, e);

    if (rc == 0) {
        v.r = w.r = n.repo;
        rev = rev.n != 0 ? rev : n.rev;
        jwrite_str(t->result, "repo", n.repo->name);
        jwrite_text(t->result, "type", n.type);
        jwrite_text(t->result, "id", n.id);
    }
    if (rc == 0 && rev.n == 0) {
        rc = inventory_revisions(&v, n.type, n.id, on_revision, &w, e);
    } else if (rc == 0) {
        rc = inventory_files(&v, n.type, n.id, rev, &a, &about, on_control_hf_file, &w, e);
        if (rc == 0) {
            revision_members(t->result, &about);
        }
    }
    if (rc == E_NOTFOUND && v.r != NULL &&
        inventory_revisions(&v, n.type, n.id, on_any, NULL, NULL) <= 0) {
        name_where_it_is(&v, rs, &n, e);
    }
    arena_fini(&a);
    repo_set_release(&rs);
    return rc < 0 ? rc : 0;
}

/* --- rollback --------------------------------------------------------------------------------- */

int verb_hf_rollback(struct talk *t, struct err *e)
{
    struct slice rev = talk_text(t, "revision"), branch;
    bool release = talk_flag(t, "release");
    struct pinned_branch_news news = {.seq = 0};
    struct inventory_name n;
    struct repo_set *rs;
    int rc = need_id(t, &rs, &n, e);

    branch = rc == 0 && n.rev.p != NULL ? n.rev : SLICE("main");
    if (rc == 0 && release == (rev.n != 0)) {
        rc = err_set(e, E_USAGE,
                     "a rollback takes the commit to go back to, and --release takes none; see "
                     "`mirrorctl hf show`");
    }
    if (rc == 0) {
        rc = release ? pinned_branch_release(t->deps->hub, &n, branch, e)
                     : pinned_branch_set(t->deps->hub, &n, branch, rev, &news, e);
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

/* --- fetched ahead, pinned -------------------------------------------------------------------- */

enum { LOOK_MS_LEAST = 5, LOOK_MS_MOST = 200, LOOKS = 32, TELL_MS = 1000, BEGIN_MS = 10000 };
enum { TOKEN_MAX = 1024 };

static void view_members(struct buf *out, const struct prefetch_view *v)
{
    jwrite_u64(out, "prefetch", v->id);
    jwrite_str(out, "repo", v->repo);
    jwrite_str(out, "type", v->type);
    jwrite_str(out, "id", v->name);
    jwrite_str(out, "revision", v->rev);
    jwrite_str(out, "commit", v->commit);
    jwrite_str(out, "state", prefetch_state_name(v->state));
    jwrite_str(out, "why", v->why);
    jwrite_bool(out, "pin", v->pin);
    jwrite_u64(out, "files", v->files);
    jwrite_u64(out, "files_done", v->files_done);
    jwrite_u64(out, "files_failed", v->files_failed);
    jwrite_u64(out, "bytes", v->bytes);
    jwrite_u64(out, "bytes_done", v->bytes_done);
    jwrite_u64(out, "here_bytes", v->here_bytes);
    jwrite_u64(out, "tries", v->tries);
    jwrite_u64(out, "began_unix_s", v->began_unix_s);
    jwrite_u64(out, "ended_unix_s", v->ended_unix_s);
    jwrite_u64(out, "next_unix_s", v->next_unix_s);
    jwrite_u64(out, "gives_up_unix_s", v->gives_up_unix_s);
}

/* --- what is asked for ------------------------------------------------------------------------ */

static int read_patterns(const struct talk *t, const char *key, struct slice out[PREFETCH_PATTERNS],
                         size_t *count, struct err *e)
{
    const json_t *list = json_object_get(t->request, key), *one;
    size_t i;

    *count = 0;
    json_array_foreach(list, i, one)
    {
        struct slice text = jread_slice(one);
        if (text.n == 0 || text.n > PREFETCH_PATTERN_BYTES || *count == PREFETCH_PATTERNS) {
            return err_set(e, E_USAGE,
                           "--%s: a pattern is empty or too long, or there are too many; write "
                           "fewer, each a path with '*' of at most %d bytes",
                           key, PREFETCH_PATTERN_BYTES);
        }
        out[(*count)++] = text;
    }
    return 0;
}

/* "Bearer <token>" in a; p == NULL: none was given. */
static int read_token(const struct talk *t, struct arena *a, struct slice *out, struct err *e)
{
    struct slice token = slice_trim(talk_text(t, "token"));

    *out = SLICE_NONE;
    if (token.n == 0) {
        return 0;
    }
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] <= ' ' || token.p[i] >= 0x7f || token.n > TOKEN_MAX) {
            return err_set(e, E_INVALID,
                           "the file of --token-file is not a token: it contains spaces or "
                           "other bytes that no token has, or is too long; write only the token "
                           "into it");
        }
    }
    *out = arena_fmt(a, "Bearer " SLICE_FMT, SLICE_ARG(token));
    return 0;
}

/* Of the others all is here. */
static int must_pull(const struct inventory_name *n, const char *what, struct err *e)
{
    enum inventory_kind k;

    CHECK(inventory_kind_of(n->repo, &k));
    if (k == INVENTORY_HOSTED) {
        return err_set(e, E_USAGE,
                       "repo %s is hosted: nothing in it is fetched or evicted, so there is "
                       "nothing to %s",
                       n->repo->name, what);
    }
    if (k == INVENTORY_SYNCED) {
        return err_set(e, E_USAGE,
                       "repo %s is mirrored by its sync, so there is nothing to %s; name the "
                       "repository in sync { repos } and run `mirrorctl sync run %s`",
                       n->repo->name, what, n->repo->name);
    }
    return 0;
}

/* --- prefetch --------------------------------------------------------------------------------- */

/* Until it is over, or with `begin` until its files are known: what is wrong is mostly known by
 * then. */
static int watch_prefetch(struct talk *t, uint64_t id, bool begin, struct prefetch_view *v,
                          struct err *e)
{
    uint64_t began_ms = clock_now_ms(), reported_ms = 0, reported = UINT64_MAX;
    int rc;

    while ((rc = prefetch_look(t->deps->prefetches, id, v, e)) == 0 && !prefetch_is_over(v)) {
        uint64_t now_ms = clock_now_ms();
        bool waits = v->state == PREFETCH_WAITING && v->why[0] != '\0';
        if (begin && (v->state == PREFETCH_FETCHING || waits || now_ms - began_ms > BEGIN_MS)) {
            break;
        }
        if (!begin &&
            (reported != v->bytes_done + v->files_done || now_ms - reported_ms > TELL_MS)) {
            reported = v->bytes_done + v->files_done;
            reported_ms = now_ms;
            view_members(talk_row(t), v);
            if (talk_row_flush(t) != 0) {
                return err_set(e, E_CANCELLED, "the client is gone; the prefetch continues");
            }
        }
        usleep(1000 * (unsigned)min_u64(max_u64((now_ms - began_ms) / LOOKS, LOOK_MS_LEAST),
                                        LOOK_MS_MOST));
    }
    return rc;
}

int verb_hf_prefetch(struct talk *t, struct err *e)
{
    struct slice include[PREFETCH_PATTERNS], exclude[PREFETCH_PATTERNS];
    struct prefetch_params w = {.include = include, .exclude = exclude, .pin = talk_flag(t, "pin")};
    struct prefetch_view v;
    struct arena a = {0};
    struct inventory_name n;
    struct repo_set *rs;
    bool joined = false;
    uint64_t id = 0;
    int rc = need_id(t, &rs, &n, e);

    rc = rc != 0 ? rc : must_pull(&n, "prefetch", e);
    rc = rc != 0 ? rc : read_patterns(t, "include", include, &w.includes, e);
    rc = rc != 0 ? rc : read_patterns(t, "exclude", exclude, &w.excludes, e);
    rc = rc != 0 ? rc : read_token(t, &a, &w.authorization, e);
    if (rc == 0) {
        w.repo = slice_str(n.repo->name);
        w.type = n.type;
        w.id = n.id;
        w.rev = n.rev.p != NULL ? n.rev : SLICE("main");
        rc = prefetch_add(t->deps->prefetches, &w, &id, &joined, e);
    }
    repo_set_release(&rs); /* not held while it runs */
    if (w.authorization.p != NULL) {
        explicit_bzero((void *)(uintptr_t)w.authorization.p, w.authorization.n);
    }
    arena_fini(&a);
    rc = rc != 0 ? rc : watch_prefetch(t, id, !talk_flag(t, "wait"), &v, e);
    if (rc == 0 && (v.state == PREFETCH_FAILED || v.state == PREFETCH_STOPPED)) {
        return err_set(e, v.code, "%s", v.why);
    }
    if (rc == 0) {
        view_members(t->result, &v);
        jwrite_bool(t->result, "joined", joined);
    }
    return rc;
}

static int on_view(void *arg, const struct prefetch_view *v)
{
    struct talk *t = arg;

    view_members(talk_row(t), v);
    return talk_row_end(t);
}

int verb_hf_prefetches(struct talk *t, struct err *e)
{
    (void)e;
    (void)prefetch_each(t->deps->prefetches, on_view, t);
    return 0;
}

int verb_hf_stop(struct talk *t, struct err *e)
{
    struct inventory_name n;
    struct repo_set *rs;
    unsigned count = 0;
    int rc = need_id(t, &rs, &n, e);

    if (rc == 0) {
        rc = prefetch_stop(t->deps->prefetches, slice_str(n.repo->name), n.type, n.id, n.rev,
                           &count, e);
    }
    jwrite_u64(t->result, "stopped", count);
    repo_set_release(&rs);
    return rc;
}

/* --- pins ------------------------------------------------------------------------------------- */

static int pin(struct talk *t, const struct inventory_name *n, struct slice authorization,
               struct err *e)
{
    struct slice rev = n->rev.p != NULL ? n->rev : SLICE("main");
    struct plan_runner_commit c;
    struct plan_runner x;
    uint64_t files = 0;
    int rc;

    plan_runner_init(&x, t->deps->hub, n->repo, authorization, &t->deps->lifecycle->draining);
    rc = plan_runner_list(&x, n->type, n->id, rev, &c, e);
    rc = rc != 0 ? rc : pinning_set(&x, n->type, n->id, rev, &c, NULL, NULL, &files, e);
    if (rc == 0) {
        jwrite_text(t->result, "id", c.id);
        jwrite_text(t->result, "revision", rev);
        jwrite_text(t->result, "commit", c.commit);
        jwrite_u64(t->result, "files", files);
    }
    plan_runner_fini(&x);
    return rc;
}

int verb_hf_pin(struct talk *t, struct err *e)
{
    struct slice authorization;
    struct arena a = {0};
    struct inventory_name n;
    struct repo_set *rs;
    int rc = need_id(t, &rs, &n, e);

    rc = rc != 0 ? rc : must_pull(&n, "pin", e);
    rc = rc != 0 ? rc : read_token(t, &a, &authorization, e);
    rc = rc != 0 ? rc : pin(t, &n, authorization, e);
    arena_fini(&a);
    repo_set_release(&rs);
    return rc;
}

/* Pins are of the canonical name; people may write another. */
static struct slice canonical_repo_name(struct talk *t, const struct inventory_name *n,
                                        struct arena *a)
{
    struct inventory_view v = {t->deps->hub, n->repo, true};
    struct slice id = n->id;
    struct err unused;

    if (inventory_id(&v, n->type, n->id, a, &id, &unused) != 0) {
        return n->id;
    }
    return id;
}

int verb_hf_unpin(struct talk *t, struct err *e)
{
    struct arena a = {0};
    struct inventory_name n;
    struct repo_set *rs;
    uint64_t count = 0;
    int rc = need_id(t, &rs, &n, e);

    rc = rc != 0 ? rc : must_pull(&n, "unpin", e);
    if (rc == 0) {
        rc = pinning_clear(t->deps->store, slice_str(n.repo->name), n.type,
                           canonical_repo_name(t, &n, &a), n.rev, &count, e);
    }
    jwrite_u64(t->result, "unpinned", count);
    arena_fini(&a);
    repo_set_release(&rs);
    return rc;
}
