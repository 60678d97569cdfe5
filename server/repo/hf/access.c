/* access.c - which commit a request is about, and who may have its files.
 *
 * Service: one credential of ours fetches, whoever may read the repo may have all of it. Caller: each one's own token counts.
 * What the Hub shows to everybody (neither private nor gated) needs no token and sends none. Anything else is looked at as the
 * caller, and before a file leaves, the Hub is asked whether this caller may read the repository: listings of gated
 * repositories are public and so is their card, the other files are not.
 *
 * The question is the Hub's own, /auth-check. At a Hub that lacks it the right is tried on a file that is no card. The answer
 * is kept for the repository (by the Hub's name for it, however the request spells it) and the caller: for RIGHT_S, longer only
 * while the Hub is silent. A no removes the yes that was kept (want.h: principal). */
#include "server/repo/hf/synced.h"

#include "common/codec/base64.h"
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

/* LFS clients send a token as git does: the password of Basic. The Hub's API takes it as Bearer. */
static struct slice bearer_of_git(struct hf_ask *k, struct slice field)
{
    struct slice rest = field;
    char room[2 * TOKEN_MAX];
    struct slice password;
    size_t n;

    if (!slice_ieq(slice_cut(&rest, ' '), SLICE("basic")) ||
        !base64_decode(slice_trim(rest), room, sizeof room, &n)) {
        return field;
    }
    password = slice_of(room, n);
    (void)slice_cut(&password, ':');
    return arena_fmt(k->a, "Bearer " SLICE_FMT, SLICE_ARG(password));
}

void access_init(struct hf_ask *k, const struct principal *who)
{
    k->caller = k->reader = SLICE("");
    if (who->token == NULL) { /* one of ours is never shown to the Hub */
        struct slice field = http_req_field(k->req, "authorization");
        access_as(k, slice_eqs(k->at.verb, "lfs-batch") ? bearer_of_git(k, field) : field);
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
    w->refusal_ends = !((const struct hf *)k->r->state)->service;
    if (rule->built_in) {
        w->ttl_s = ALIAS_S;
        w->neg_ttl_s = NO_S;
        w->sie_s = UINT32_MAX;
    }
    return true;
}

void access_as_caller(struct hf_ask *k, struct want *w)
{
    w->authorization = k->token;
    w->principal = k->caller;
    w->sie_s = (uint32_t)min_u64(w->sie_s, SILENT_S);
    w->swr_s = 0; /* a right is asked for before it is used */
}

static bool is_no(const struct fact *f)
{
    return f->rc == E_NOTFOUND || f->rc == E_DENIED;
}

bool access_lacks_revision(const struct fact *f)
{
    return f->rc == E_NOTFOUND && slice_eqs(f->code, "RevisionNotFound");
}

/* --- the repository at a revision --------------------------------------------------------------------------------- */

/* rev.p == NULL: at its default branch. ttl_s: where it tells whom the repository is open to; else 0. */
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
    if (ttl_s != 0) {
        w.swr_s = 0; /* whom it is open to is asked for before it is used */
    }
    if (mine) {
        access_as_caller(k, &w);
    }
    return plan_gather(k->facts, ttl_s != 0 ? SLICE(HF_MAKE_OPEN) : SLICE(HF_MAKE_INFO), &w, true,
                       k->p);
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
    f = info_fact(k, SLICE(HF_MAIN), OPEN_S, mine);
    return f != NULL && access_lacks_revision(f) ? info_fact(k, SLICE_NONE, OPEN_S, mine) : f;
}

/* A request that names no revision means the default branch. That is `main`, and one document is kept for both; only where
 * the repository has no `main` the Hub is asked for whatever it has instead. */
static const struct fact *branch_fact(struct hf_ask *k, uint32_t ttl_s, bool mine)
{
    bool named = k->at.rev.p != NULL;
    const struct fact *f = info_fact(k, named ? k->at.rev : SLICE(HF_MAIN), ttl_s, mine);

    return !named && f != NULL && access_lacks_revision(f) ? info_fact(k, SLICE_NONE, ttl_s, mine) : f;
}

static const struct fact *look(struct hf_ask *k, bool mine)
{
    return k->at.rev.p != NULL && hf_is_commit(k->at.rev) ? whose_fact(k, mine)
                                                          : branch_fact(k, 0, mine);
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
    k->id = info.id;
    k->closed = (info.closed || k->reader.n != 0) && !((const struct hf *)k->r->state)->service;
    k->card_is_open = !info.private && k->reader.n == 0;
    k->until_unix_s = f->stale ? 1 : f->until_unix_s;
    if (k->commit.p == NULL) {
        const struct held_branch *b = k->branch.p != NULL && !k->r->synced
                                          ? held_find(k->r->state, k->at.type, info.id, k->branch)
                                          : NULL; /* by the name that the Hub knows it by */
        k->commit = b != NULL ? b->commit : info.commit;
        k->stale = f->stale;
        k->in_trouble = f->in_trouble;
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
        access_as_caller(k, &w);
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

/* --- the caller's right ------------------------------------------------------------------------------------------- */

/* A yes or a no of the Hub to this caller. prefix: what the answer is kept under, apart from those to other questions. */
static const struct fact *ask_right(struct hf_ask *k, const char *prefix, struct slice path,
                                    const struct manifest_entry *file)
{
    struct slice key = arena_fmt(k->a, "%s" SLICE_FMT "/" SLICE_FMT, prefix, SLICE_ARG(k->at.type),
                                 SLICE_ARG(k->id));
    uint32_t most_s;
    struct want w;

    if (!access_want(k, key, key, &w)) {
        return NULL;
    }
    most_s = plan_rule(k->r, key, k->a)->built_in ? RIGHT_S : w.ttl_s;
    w.url = arena_fmt(k->a, "%s" SLICE_FMT, origin_url(k->r->origin), SLICE_ARG(path));
    access_as_caller(k, &w);
    if (k->caller.n == 0) {
        w.principal = SLICE("nobody"); /* never everybody's: "" */
    }
    w.ttl_s = (uint32_t)min_u64(most_s, RIGHT_S);
    w.neg_ttl_s = NO_S;
    if (file != NULL) {
        w.digest_known = file->lfs;
        w.git_known = !file->lfs;
        w.digest = file->sha256;
        w.git_oid = file->oid;
    } else {
        w.neg_ttl_s = RIGHT_S; /* no such route; who does not see the repository never comes here */
    }
    return plan_gather(k->facts, slice_str(file != NULL ? HF_MAKE_PROBE : HF_MAKE_RIGHT), &w, true,
                       k->p);
}

/* Does the Hub know the question? Those that do name the reason of a 404. */
static bool lacks_auth_check(const struct fact *f)
{
    return (f->rc == E_NOTFOUND && f->code.p == NULL) || f->status == 405;
}

static const struct fact *try_file(struct hf_ask *k)
{
    struct manifest_entry e;
    struct manifest m;

    if (!access_manifest(k, &m)) {
        return NULL;
    }
    if (!manifest_smallest(&m, &e)) {
        say_error(k, k->token.p != NULL ? 403 : 401, SLICE("GatedRepo"),
                  SLICE("the Hub does not say who may read this repository: it has no auth-check, "
                        "and the repository no file but its card to try a right on"));
        return NULL;
    }
    return ask_right(k, "rights-by-file/",
                     key_resolve(k->at.prefix, k->id, k->commit, e.path, k->a), &e);
}

/* A branch may be told of as it was while the Hub is asked anew (swr_s). Whom the repository is open to may not. False: the plan
 * asks. */
static bool learn_open(struct hf_ask *k)
{
    const struct hf *state = k->r->state;
    struct repo_info info;
    const struct fact *f;

    if (k->closed || state->service || k->r->synced ||
        (k->at.rev.p != NULL && hf_is_commit(k->at.rev)) ||
        (!k->info->stale && k->info->until_unix_s > k->req->unix_s)) {
        return true;
    }
    f = branch_fact(k, OPEN_S, false);
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0 || !info_read(f->bytes, &info)) {
        k->closed = true;
        k->card_is_open = false;
        return true;
    }
    k->closed = info.closed;
    k->card_is_open = !info.private;
    k->until_unix_s = min_u64(k->until_unix_s, f->until_unix_s);
    return true;
}

static bool try_right(struct hf_ask *k)
{
    const struct fact *f;

    if (!k->closed) {
        return true;
    }
    f = ask_right(k, "rights/", key_auth_check(k->at.type, k->id, k->a), NULL);
    if (f != NULL && lacks_auth_check(f)) {
        f = try_file(k);
    }
    if (f != NULL && f->rc != 0) {
        say_fact(k, f);
    }
    return f != NULL && f->rc == 0;
}

bool access_try(struct hf_ask *k)
{
    return learn_open(k) && try_right(k);
}

bool access_try_file(struct hf_ask *k, const struct manifest_entry *f)
{
    if (!learn_open(k)) {
        return false;
    }
    if (k->closed && k->card_is_open && hf_is_card(f->path)) {
        k->closed = false; /* this request is about nothing else */
    }
    return try_right(k);
}

const struct fact *access_json(struct hf_ask *k, struct slice path, struct slice query,
                               bool for_ever)
{
    struct slice key =
        query.n == 0 ? path
                     : arena_fmt(k->a, SLICE_FMT "?" SLICE_FMT, SLICE_ARG(path), SLICE_ARG(query));
    struct slice make = k->at.route == HF_INFO     ? SLICE(HF_MAKE_ABOUT)
                        : k->at.route == HF_BUCKET ? SLICE(HF_MAKE_BUCKET)
                                                   : SLICE(HF_MAKE_JSON);
    bool in_parts = k->at.route == HF_OTHER || k->at.route == HF_TREE || k->at.route == HF_ABOUT ||
                    (k->at.route == HF_BUCKET && !slice_eqs(k->at.verb, "paths-info"));
    const struct fact *f;
    struct want w;

    if (!access_want(k, key, path, &w)) {
        return NULL;
    }
    if (for_ever && k->reader.n == 0) {
        w.class = WANT_IMMUTABLE;
    } else if (k->reader.n != 0) {
        access_as_caller(k, &w);
    }
    f = plan_gather(k->facts, make, &w, in_parts, k->p);
    if (k->reader.n == 0 && f != NULL && is_no(f) && k->token.p != NULL) {
        k->reader = k->caller; /* what comes now is not everybody's */
        access_as_caller(k, &w);
        f = plan_gather(k->facts, make, &w, in_parts, k->p);
    }
    return f;
}

const struct fact *access_word(struct hf_ask *k, struct slice path, const char *make)
{
    const struct fact *f;
    struct want w;

    if (!access_want(k, path, path, &w)) {
        return NULL;
    }
    w.swr_s = 0;
    f = plan_gather(k->facts, slice_str(make), &w, true, k->p);
    if (f != NULL && is_no(f) && k->token.p != NULL) {
        k->reader = k->caller;
        access_as_caller(k, &w);
        f = plan_gather(k->facts, slice_str(make), &w, true, k->p);
    }
    return f;
}
