/* access.c - which commit a request is about, and who may have its files.
 *
 * Service: one credential of ours fetches, whoever may read the repo may have all of it. Caller: each one's own token counts.
 * What the Hub shows to nobody in particular (neither private nor gated) needs no token and sends none; anything else is
 * looked at as the caller, and before a file leaves, this caller's right is tried on one: listings of gated repositories are
 * public, their files are not (research/hf-and-mirrors 0.7). A right that was tried holds for RIGHT_S, longer only while
 * the Hub is silent. */
#include "server/repo/hf/synced.h"

#include "server/cache/object.h"
#include "server/repo/hf/key.h"
#include "server/repo/xet.h"

enum {
    ALIAS_S = 60,    /* what a branch stands for */
    OPEN_S = 300,    /* that a repository is open to all */
    RIGHT_S = 300,   /* that this caller may read it */
    NO_S = 30,       /* that there is none, or no right */
    SILENT_S = 3600, /* a right outlives the Hub's silence for so long */
    TOKEN_MAX = 512,
    PATH_BYTES = 16384,
};

static bool is_token(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] <= ' ' || s.p[i] >= 0x7f) {
            return false;
        }
    }
    return s.n > 0 && s.n <= TOKEN_MAX;
}

void access_init(struct hf_ask *k, const struct principal *who)
{
    k->caller = k->reader = SLICE("");
    if (who->token == NULL) { /* one of ours is never shown to the Hub */
        access_as(k, http_req_field(k->req, "authorization"));
    }
}

void access_as(struct hf_ask *k, struct slice authorization)
{
    const struct hf *state = k->r->state;
    struct slice rest = authorization;
    struct slice scheme = slice_cut(&rest, ' ');
    char hex[DIGEST_HEX + 1];
    struct digest d;

    rest = slice_trim(rest);
    if (state->service || !slice_ieq(scheme, SLICE("bearer")) || !is_token(rest) ||
        xet_is_nobody(rest)) {
        return;
    }
    digest_of(rest, &d);
    digest_format(&d, hex);
    k->token = arena_fmt(k->a, "Bearer " SLICE_FMT, SLICE_ARG(rest));
    k->caller = arena_fmt(k->a, "t-%.32s", hex);
}

bool access_want(struct hf_ask *k, struct slice key, struct slice rule_path, struct want *w)
{
    const struct rule *rule = plan_rule(k->r, rule_path, k->a);
    struct plan p;

    plan_want(k->r, rule, key, k->a, &p);
    *w = p.want;
    if (rule->class == RULE_DENY) {
        say_error(k, 403, SLICE_NONE,
                  SLICE("a rule of this mirror denies the path; ask whoever runs it"));
        return false;
    }
    w->url = arena_fmt(k->a, "%s" SLICE_FMT, origin_url(k->r->origin), SLICE_ARG(key));
    w->class = WANT_MUTABLE;
    w->refusal_ttl_s = NO_S;
    if (rule->built_in) {
        w->ttl_s = ALIAS_S;
        w->neg_ttl_s = NO_S;
        w->sie_s = UINT32_MAX;
    }
    return true;
}

/* As the caller: kept apart from what everybody sees, and not for ever. */
static void as_caller(struct hf_ask *k, struct want *w)
{
    w->authorization = k->token;
    w->principal = k->caller;
    w->sie_s = SILENT_S;
}

static bool is_no(const struct fact *f)
{
    return f->rc == E_NOTFOUND || f->rc == E_DENIED;
}

static bool is_no_revision(const struct fact *f)
{
    return f->rc == E_NOTFOUND && slice_eqs(f->code, "RevisionNotFound");
}

/* --- the repository at a revision --------------------------------------------------------------------------------- */

/* rev.p == NULL: at its default branch. */
static const struct fact *info_fact(struct hf_ask *k, struct slice rev, uint32_t ttl_s, bool mine)
{
    struct slice key = key_info(k->at.type, k->at.id, rev, k->a);
    struct want w;

    if (!access_want(k, key, key, &w)) {
        return NULL;
    }
    if (ttl_s > w.ttl_s && plan_rule(k->r, key, k->a)->built_in) {
        w.ttl_s = ttl_s;
    }
    if (mine) {
        as_caller(k, &w);
    }
    return plan_gather(k->facts, SLICE(HF_MAKE_INFO), &w, true, k->p);
}

/* Was the commit carried in from another mirror? Its own words came along then, those of `main` perhaps not, and the Hub may be
 * out of reach for good. NULL: the plan asks. */
static const struct fact *own_row(struct hf_ask *k)
{
    struct buf key = BUF_INIT(PATH_BYTES);
    struct slice row;

    object_key(&key, slice_str(k->r->name), key_info(k->at.type, k->at.id, k->at.rev, k->a),
               SLICE(""));
    CHECK(key.rc == 0);
    row = arena_copy(k->a, buf_slice(&key));
    buf_free(&key);
    return plan_row(k->facts, TABLE_OBJECT, row, k->p);
}

/* Is the repository there, and for whom? Judged at `main`, which clients have just asked for, else at the default branch. */
static const struct fact *whose_fact(struct hf_ask *k, bool mine)
{
    const struct fact *f = own_row(k);

    if (f == NULL) {
        return NULL;
    }
    if (f->rc == 0 && object_row_is_carried(f->bytes)) {
        return info_fact(k, k->at.rev, OPEN_S, mine);
    }
    f = info_fact(k, SLICE("main"), OPEN_S, mine);
    return f != NULL && is_no_revision(f) ? info_fact(k, SLICE_NONE, OPEN_S, mine) : f;
}

static const struct fact *look(struct hf_ask *k, bool mine)
{
    return k->at.rev.p != NULL && hf_is_commit(k->at.rev) ? whose_fact(k, mine)
                                                          : info_fact(k, k->at.rev, 0, mine);
}

bool access_learn(struct hf_ask *k, const struct fact *f)
{
    struct repo_info info;

    if (f->rc != 0) {
        say_fact(k, f);
        return false;
    }
    if (!info_read(f->bytes, &info)) {
        say_error(k, 502, SLICE_NONE, SLICE("the Hub's word on this repository is not understood"));
        return false;
    }
    k->info = f;
    k->closed = info.closed && !((const struct hf *)k->r->state)->service;
    k->until_unix_s = f->stale ? 1 : f->until_unix_s;
    if (k->commit.p == NULL) {
        const struct held_branch *b = k->branch.p != NULL && !k->r->synced
                                          ? held_find(k->r->state, k->at.type, info.id, k->branch)
                                          : NULL; /* by the name that the Hub knows it by */
        k->commit = b != NULL ? b->commit : info.commit;
        k->stale = f->stale;
    }
    return true;
}

bool access_commit(struct hf_ask *k)
{
    const struct hf *state = k->r->state;
    const struct fact *f;

    if (k->r->synced) {
        return synced_commit(k);
    }
    if (k->at.rev.p != NULL && hf_is_commit(k->at.rev)) {
        k->commit = k->at.rev;
        if (state->service) {
            return true;
        }
    }
    f = look(k, false);
    if (f != NULL && is_no(f) && k->token.p != NULL) {
        k->reader = k->caller;
        f = look(k, true);
    }
    return f != NULL && access_learn(k, f);
}

/* --- its files ---------------------------------------------------------------------------------------------------- */

bool access_manifest(struct hf_ask *k, struct manifest *m)
{
    struct slice key = key_tree(k->at.type, k->at.id, k->commit, k->a);
    const struct fact *f;
    struct want w;

    if (k->r->synced) {
        return synced_manifest(k, m);
    }
    if (!access_want(k, key, key, &w)) {
        return false;
    }
    w.class = WANT_IMMUTABLE;
    w.url = arena_fmt(k->a, SLICE_FMT "?recursive=true&expand=false", SLICE_ARG(w.url));
    if (k->reader.n != 0) {
        as_caller(k, &w);
    }
    f = plan_gather(k->facts, SLICE(HF_MAKE_TREE), &w, false, k->p);
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0) {
        say_fact(k, f);
        return false;
    }
    if (!manifest_open(f->bytes, m)) {
        say_error(k, 502, SLICE_NONE, SLICE("the Hub's listing of this commit is not understood"));
        return false;
    }
    return true;
}

bool access_try(struct hf_ask *k, const struct manifest *m)
{
    struct manifest_entry e;
    const struct fact *f;
    struct slice key;
    struct want w;

    if (!k->closed || !manifest_smallest(m, &e)) {
        return true;
    }
    key = arena_fmt(k->a, "rights/" SLICE_FMT "/" SLICE_FMT, SLICE_ARG(k->at.type),
                    SLICE_ARG(k->at.id));
    if (!access_want(k, key, key, &w)) {
        return false;
    }
    w.url = arena_fmt(k->a, "%s" SLICE_FMT, origin_url(k->r->origin),
                      SLICE_ARG(key_resolve(k->at.prefix, k->at.id, k->commit, e.path, k->a)));
    as_caller(k, &w); /* with a caller without a token: as nobody */
    w.ttl_s = RIGHT_S;
    w.neg_ttl_s = NO_S;
    f = plan_gather(k->facts, SLICE(HF_MAKE_PROBE), &w, true, k->p);
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0) {
        say_fact(k, f);
    }
    return f->rc == 0;
}

const struct fact *access_json(struct hf_ask *k, struct slice path, struct slice query,
                               bool for_ever)
{
    struct slice key =
        query.n == 0 ? path
                     : arena_fmt(k->a, SLICE_FMT "?" SLICE_FMT, SLICE_ARG(path), SLICE_ARG(query));
    bool in_parts = k->at.route == HF_OTHER || k->at.route == HF_TREE;
    const struct fact *f;
    struct want w;

    if (!access_want(k, key, path, &w)) {
        return NULL;
    }
    if (for_ever && k->reader.n == 0) {
        w.class = WANT_IMMUTABLE;
    } else if (k->reader.n != 0) {
        as_caller(k, &w);
    }
    f = plan_gather(k->facts, SLICE(HF_MAKE_JSON), &w, in_parts, k->p);
    if (k->reader.n == 0 && f != NULL && is_no(f) && k->token.p != NULL) {
        k->reader = k->caller; /* what comes now is not everybody's */
        as_caller(k, &w);
        f = plan_gather(k->facts, SLICE(HF_MAKE_JSON), &w, in_parts, k->p);
    }
    return f;
}
