/* access.c - which commit a request is about, and who may have its files.
 *
 * Service: one credential of ours fetches, and everybody who may read the repo may have all of it.
 * Caller: each caller's own token counts. What the Hub shows to everybody (neither private nor
 * gated) needs no token, and none is sent. All else is requested as the caller, and before a file
 * is sent, the Hub is asked whether this caller may read the repository: listings of gated
 * repositories are public, and so is their card, but the other files are not.
 *
 * One place, learn_open(), determines to whom a repository is open, for all that is sent of it.
 *
 * The question is the Hub's own, /auth-check. At a Hub without it, the right is checked by a
 * request for a file that is not a card. The answer is kept for the repository (by the Hub's name
 * for it, however the request spells it) and the caller: for RIGHT_S, longer only while the Hub is
 * silent. A refusal removes an earlier permission (lookup.h: principal).
 */
#include "server/repo/hf/synced.h"

#include "common/codec/base64.h"
#include "server/cache/object.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/openness.h"
#include "server/repo/hf/xet.h"

enum {
    ALIAS_S = 60,  /* what a branch stands for */
    OPEN_S = 300,  /* that a repository is open to all */
    RIGHT_S = 300, /* that this caller may read it */
    LISTING_S = 10 * 365 * 86400,
    NO_S = 30,              /* that there is none, or no right */
    SILENT_S = 3600,        /* a right outlives the Hub's silence for so long */
    PROBE_BYTES = 64 << 10, /* a larger file is not fetched to try a right on */
    TOKEN_MAX = 512,
    PATH_BYTES = 16384,
};

static bool is_bearer_text(struct slice s)
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
    if (state->service || !slice_ieq(scheme, SLICE("bearer")) || !is_bearer_text(rest) ||
        xet_is_nobody(rest)) {
        return;
    }
    digest_of(rest, &d);
    digest_format(&d, hex);
    k->token = arena_fmt(k->a, "Bearer " SLICE_FMT, SLICE_ARG(rest));
    k->caller = arena_fmt(k->a, "t-%.32s", hex);
}

bool access_lookup(struct hf_ask *k, struct slice key, struct slice rule_path, struct lookup *w)
{
    const struct rule *rule = plan_rule(k->r, rule_path, k->a);
    struct plan p;

    plan_lookup(k->r, rule, key, k->a, &p);
    *w = p.lookup;
    if (rule->class == RULE_DENY) {
        say_error(k, 403, SLICE_NONE,
                  SLICE("a rule of this mirror denies this path; ask the operator of the mirror"));
        return false;
    }
    w->url = arena_fmt(k->a, "%s" SLICE_FMT, origin_url(k->r->origin), SLICE_ARG(key));
    w->class = LOOKUP_MUTABLE;
    w->refusal_ttl_s = NO_S;
    if (!((const struct hf *)k->r->state)->service) {
        w->errors |= REFUSALS_END_KEPT;
    }
    if (rule->built_in) {
        w->ttl_s = ALIAS_S;
        w->neg_ttl_s = NO_S;
        w->sie_s = UINT32_MAX;
    }
    return true;
}

void access_as_caller(struct hf_ask *k, struct lookup *w)
{
    w->authorization = k->token;
    w->principal = k->caller;
    w->sie_s = (uint32_t)min_u64(w->sie_s, SILENT_S);
    w->swr_s = 0; /* a right is asked for before it is used */
    w->ruled |= RULED_SWR | RULED_SIE;
}

static bool is_refused_access(const struct result *f)
{
    return f->rc == E_NOTFOUND || f->rc == E_DENIED;
}

bool access_lacks_revision(const struct result *f)
{
    return f->rc == E_NOTFOUND && slice_eqs(f->code, "RevisionNotFound");
}

/* --- the repository at a revision ------------------------------------------------------------- */

static bool asks_commit(const struct hf_ask *k)
{
    return k->at.rev.p != NULL && hf_is_commit(k->at.rev);
}

/* rev.p == NULL: at its default branch. make: HF_MAKE_INFO, or one of those that tell whom the
 * repository is open to. Such a word is asked for before it is used, and holds for OPEN_S unless a
 * rule makes it shorter. */
static const struct result *info_result(struct hf_ask *k, struct slice rev, const char *make,
                                        uint64_t since_unix_s, bool mine)
{
    struct slice key = key_info(k->at.type, k->at.id, rev, k->a);
    struct lookup w;

    if (!access_lookup(k, key, key, &w)) {
        return NULL;
    }
    if (strcmp(make, HF_MAKE_INFO) != 0) {
        bool ruled = !plan_rule(k->r, key, k->a)->built_in && w.ttl_s != TTL_ORIGIN;
        /* A branch's own document may be stale by a rule (stale_while), for OPEN_S at most. */
        bool about = k->at.route == HF_INFO && k->req->query.n == 0 && !asks_commit(k);
        w.ttl_s = !ruled || (about && w.ttl_s < OPEN_S) ? OPEN_S : w.ttl_s;
        w.swr_s = 0;
        w.ruled |= RULED_SWR;
        w.since_unix_s = since_unix_s;
    }
    if (mine) {
        access_as_caller(k, &w);
    }
    return plan_paged_fetch(k->results, slice_str(make), &w, true, k->p);
}

struct slice access_row(struct hf_ask *k, struct slice key, struct slice principal)
{
    struct buf b = BUF_INIT(PATH_BYTES);
    struct slice row;

    object_key(&b, slice_str(k->r->name), key, principal);
    CHECK(b.rc == 0);
    row = arena_copy(k->a, buf_slice(&b));
    buf_free(&b);
    return row;
}

static struct slice access_row_of(struct hf_ask *k, struct slice key)
{
    return access_row(k, key, SLICE(""));
}

/* Of a request that names no branch: judged at `main`, which clients have just asked for, else at
 * the default branch. A commit that was carried in from another mirror is judged by its own words:
 * they came along, those of `main` perhaps not, and the Hub may be out of reach for good. */
static const struct result *whose_result(struct hf_ask *k, const char *make, uint64_t since_unix_s,
                                         bool mine)
{
    struct slice own = access_row_of(k, key_info(k->at.type, k->at.id, k->at.rev, k->a));
    const struct result *f = plan_row(k->results, TABLE_OBJECT, own, k->p);

    if (f == NULL) {
        return NULL;
    }
    if (f->rc == 0 && object_row_is_carried(f->bytes)) {
        return info_result(k, k->at.rev, make, since_unix_s, mine);
    }
    f = info_result(k, SLICE(HF_MAIN), make, since_unix_s, mine);
    return f != NULL && access_lacks_revision(f)
               ? info_result(k, SLICE_NONE, make, since_unix_s, mine)
               : f;
}

/* A request that names no revision means the default branch. That is `main`, and one document is
 * kept for both; only where the repository has no `main` the Hub is asked for whatever it has
 * instead. */
static const struct result *branch_result(struct hf_ask *k, const char *make, uint64_t since_unix_s,
                                          bool mine)
{
    bool named = k->at.rev.p != NULL;
    const struct result *f =
        info_result(k, named ? k->at.rev : SLICE(HF_MAIN), make, since_unix_s, mine);

    return !named && f != NULL && access_lacks_revision(f)
               ? info_result(k, SLICE_NONE, make, since_unix_s, mine)
               : f;
}

/* branch: what it stands for is asked, too. */
static const struct result *look_up_access(struct hf_ask *k, bool branch, bool mine)
{
    return branch ? branch_result(k, HF_MAKE_INFO, 0, mine)
                  : whose_result(k, HF_MAKE_OPEN, 0, mine);
}

/* --- whom it is open to (openness.h) ---------------------------------------------------------- */

static bool note_of(struct hf_ask *k, struct slice id, struct openness_note *out)
{
    uint64_t now = k->req->unix_s;
    const struct result *f =
        plan_row(k->results, TABLE_LAST_WORD, openness_key(k->r->name, k->at.type, id, k->a), k->p);

    if (f == NULL) {
        return false;
    }
    openness_read(f->rc == 0 ? f->bytes : SLICE_NONE, out);
    if (out->said_unix_s > now) {
        out->said_unix_s = now - 1; /* the clock has been set back */
    }
    return true;
}

/* False: the plan writes it. Where another request has written it meanwhile, that one has heard the
 * same Hub. */
static bool put_note(struct hf_ask *k, struct slice id, const struct openness_note *old,
                     const struct openness_note *now)
{
    return plan_put_row(k->results, TABLE_LAST_WORD, openness_key(k->r->name, k->at.type, id, k->a),
                        old->row, openness_write(now, k->a), k->p) != NULL;
}

/* A no to everybody ends what was open, under whatever names. Where nothing is known of the
 * repository it is not noted: anybody can ask for names that there are not. False: the plan asks,
 * or writes. */
static bool note_no(struct hf_ask *k)
{
    struct openness_note named, n, no;
    bool former;

    if (!note_of(k, k->at.id, &named)) {
        return false;
    }
    n = named;
    former = named.here && !slice_ieq(named.id, k->at.id);
    if (former && !note_of(k, named.id, &n)) {
        return false;
    }
    if (!n.here) {
        struct slice files = access_row_of(k, key_files(k->at.type, k->at.id, k->a));
        const struct result *f = plan_rows(k->results, TABLE_OBJECT, files, k->p);
        if (f == NULL || f->rc != 0) {
            return f != NULL;
        }
        n.id = former ? named.id : k->at.id;
    }
    if (n.here && n.openness == HUB_HIDDEN && k->req->unix_s < n.said_unix_s + NO_S && !former) {
        return true;
    }
    no = n;
    no.openness = HUB_HIDDEN;
    no.said_unix_s = k->req->unix_s;
    if (!put_note(k, n.id, &n, &no)) {
        return false;
    }
    no.id = k->at.id; /* and it is no former name any more: whoever has it next is another */
    no.number = SLICE("");
    no.since_unix_s = k->req->unix_s + 1;
    return !former || put_note(k, k->at.id, &named, &no);
}

static enum openness level_of(const struct repo_info *info)
{
    return info->private ? HUB_HIDDEN : info->closed ? HUB_GATED : HUB_OPEN;
}

/* May this word open the repository? Not when the Hub has closed it since, and not when it is about
 * another of that name. */
static bool counts(const struct result *f, const struct repo_info *info,
                   const struct openness_note *n)
{
    if (!n->here) {
        return true;
    }
    return (openness_is_of(n, info->id, info->number) && level_of(info) >= n->openness) ||
           (f->spoken_unix_s > n->said_unix_s &&
            (!f->stale || openness_is_of(n, info->id, info->number)));
}

/* A word that counts. False: the plan writes. */
static bool note_access_word(struct hf_ask *k, const struct result *f, const struct repo_info *info,
                             const struct openness_note *n)
{
    bool back = n->openness == HUB_HIDDEN && n->number.n == 0; /* it, or another of that name? */
    bool same = !n->here || (!back && openness_is_of(n, info->id, info->number));
    enum openness openness = level_of(info);
    uint64_t at = f->spoken_unix_s;
    struct openness_note named,
        now = {.openness = openness,
               .said_unix_s = at,
               .since_unix_s = same ? n->since_unix_s : max_u64(n->since_unix_s, at + 1),
               .id = info->id,
               .number = info->number};
    bool newer = at > n->said_unix_s || (at == n->said_unix_s && openness > n->openness);

    k->since_unix_s = now.since_unix_s;
    /* What is closed is noted anew: between two words that close it one may have opened it that
     * nobody asked for. */
    if ((!n->here || !same ||
         (!f->stale && newer &&
          (openness != n->openness || (openness != HUB_OPEN && at >= n->said_unix_s + NO_S)))) &&
        !put_note(k, info->id, n, &now)) {
        return false;
    }
    if (slice_ieq(info->id, k->at.id)) {
        return true;
    }
    return note_of(k, k->at.id, &named) && ((named.here && slice_eq(named.id, info->id)) ||
                                            f->stale || put_note(k, k->at.id, &named, &now));
}

/* Settles k->openness, which alone says what everybody may have, before anything of the repository
 * leaves. *fp: the Hub's word to everybody; where that is too old to tell, a newer one, or the no
 * or the trouble that came instead. False: the plan asks. */
static bool learn_open(struct hf_ask *k, bool branch, const struct result **fp)
{
    const struct result *f = *fp;
    bool asked = slice_eqs(f->dependency.key, HF_MAKE_OPEN);
    struct repo_info info, first;
    struct openness_note n;

    if (f->rc != 0) {
        return !is_refused_access(f) || access_lacks_revision(f) || note_no(k);
    }
    if (!info_read(f->bytes, &info)) {
        return true;
    }
    if (!note_of(k, info.id, &n)) {
        return false;
    }
    first = info;
    if (f->stale ? !asked : f->until_unix_s <= k->req->unix_s || !counts(f, &info, &n)) {
        uint64_t since = counts(f, &info, &n) ? 0 : n.said_unix_s + 1;
        f = branch ? branch_result(k, HF_MAKE_ANEW, since, false)
                   : whose_result(k, HF_MAKE_ANEW, since, false);
        if (f == NULL) {
            return false;
        }
        if (f->rc != 0 || !info_read(f->bytes, &info)) {
            *fp = f;
            return !is_refused_access(f) || access_lacks_revision(f) || note_no(k);
        }
        if (!note_of(k, info.id, &n)) {
            return false;
        }
    }
    if (!slice_eq(info.id, first.id)) {
        *fp = f;
    }
    k->open_until_unix_s = f->stale ? 1 : f->until_unix_s;
    if (!counts(f, &info, &n)) {
        k->openness = openness_is_of(&n, info.id, info.number) ? n.openness : HUB_HIDDEN;
        return true;
    }
    k->openness = level_of(&info);
    return note_access_word(k, f, &info, &n);
}

bool access_learn(struct hf_ask *k, const struct result *f)
{
    struct repo_info info;

    if (f->rc != 0) {
        say_result(k, f);
        return false;
    }
    if (!info_read(f->bytes, &info)) {
        say_error(k, 502, SLICE_NONE,
                  SLICE("the Hub's response about this repository cannot be parsed"));
        return false;
    }
    k->info = f;
    k->id = info.id;
    k->closed =
        (k->openness != HUB_OPEN || k->reader.n != 0) && !((const struct hf *)k->r->state)->service;
    k->until_unix_s = f->stale ? 1 : min_u64(f->until_unix_s, k->open_until_unix_s);
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

/* The Hub's document on the repository: as everybody sees it, else as this caller does. NULL: the
 * plan asks the Hub, or refuses. */
static const struct result *look_up_repo_info(struct hf_ask *k, bool branch)
{
    const struct result *f = look_up_access(k, branch, false);

    if (f == NULL || ((const struct hf *)k->r->state)->service) {
        return f;
    }
    if (!learn_open(k, branch, &f)) {
        return NULL;
    }
    if (k->token.p != NULL && (is_refused_access(f) || k->openness == HUB_HIDDEN)) {
        k->reader = k->caller;
        return look_up_access(k, branch, true);
    }
    if (f->rc == 0 && k->openness == HUB_HIDDEN) {
        say_error(k, 504, SLICE_NONE,
                  SLICE("the Hub has restricted this repository, and cannot be reached now to "
                        "check your access; try again later"));
        return NULL;
    }
    return f;
}

bool access_commit(struct hf_ask *k)
{
    const struct result *f;

    if (k->r->synced) {
        return synced_commit(k);
    }
    if (asks_commit(k)) {
        k->commit = k->at.rev;
        if (((const struct hf *)k->r->state)->service) {
            return true;
        }
    }
    f = look_up_repo_info(k, !asks_commit(k));
    return f != NULL && access_learn(k, f);
}

/* Is it a document that came from another mirror, of a repository that the Hub has not closed
 * since? It may be all that is known here. False: the plan asks. */
static bool learn_carried(struct hf_ask *k, struct slice path, bool *carried)
{
    const struct result *f = plan_row(k->results, TABLE_OBJECT, access_row_of(k, path), k->p);
    struct openness_note n;

    if (f == NULL || !note_of(k, k->at.id, &n)) {
        return false;
    }
    *carried = f->rc == 0 && object_row_is_carried(f->bytes) && (!n.here || n.openness == HUB_OPEN);
    return true;
}

bool access_seen(struct hf_ask *k, struct slice path)
{
    const struct result *f;
    bool carried = false;

    if (k->r->synced || ((const struct hf *)k->r->state)->service) {
        return true;
    }
    f = look_up_repo_info(k, false);
    if (f == NULL || f->rc == 0) {
        return f != NULL;
    }
    if (!is_refused_access(f) && !learn_carried(k, path, &carried)) {
        return false;
    }
    if (!carried) {
        say_result(k, f);
    }
    return carried;
}

/* --- its files -------------------------------------------------------------------------------- */

struct slice access_id(const struct hf_ask *k)
{
    return k->id.n != 0 ? k->id : k->at.id;
}

bool access_manifest(struct hf_ask *k, struct manifest *m)
{
    struct slice key = key_tree(k->at.type, access_id(k), k->commit, k->a);
    const struct result *f;
    struct lookup w;

    if (k->r->synced) {
        return synced_manifest(k, m);
    }
    if (!access_lookup(k, key, key, &w)) {
        return false;
    }
    w.class = LOOKUP_IMMUTABLE;
    if (k->since_unix_s != 0) { /* of the repository that had the name before there may be one */
        w.class = LOOKUP_MUTABLE;
        w.ttl_s = LISTING_S;
        w.since_unix_s = k->since_unix_s;
    }
    w.url = arena_fmt(k->a, SLICE_FMT "?recursive=true&expand=false", SLICE_ARG(w.url));
    if (k->reader.n != 0) {
        access_as_caller(k, &w);
    }
    f = plan_paged_fetch(k->results, SLICE(HF_MAKE_TREE), &w, false, k->p);
    if (f == NULL) {
        return false;
    }
    if (f->rc != 0) {
        say_result(k, f);
        return false;
    }
    if (f->spoken_unix_s < k->since_unix_s) {
        say_error(k, 504, SLICE_NONE,
                  SLICE("the listing on this mirror is of an earlier repository with this name, "
                        "and the Hub cannot be reached; try again later"));
        return false;
    }
    if (!manifest_open(f->bytes, m)) {
        say_error(k, 502, SLICE_NONE, SLICE("the Hub's listing of this commit cannot be parsed"));
        return false;
    }
    return true;
}

/* --- the caller's right ----------------------------------------------------------------------- */

/* A yes or a no of the Hub to this caller. prefix: what the answer is kept under, apart from those
 * to other questions. */
static const struct result *ask_right(struct hf_ask *k, const char *prefix, struct slice path,
                                      const struct manifest_entry *file)
{
    struct slice key = arena_fmt(k->a, "%s" SLICE_FMT "/" SLICE_FMT, prefix, SLICE_ARG(k->at.type),
                                 SLICE_ARG(k->id));
    uint32_t most_s;
    struct lookup w;

    if (!access_lookup(k, key, key, &w)) {
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
        w.digest = file->sha256;
        if (!file->lfs) {
            w.sum = (struct lookup_sum){LOOKUP_SUM_GIT_OID, .git_oid = file->oid};
        }
        w.size_bytes = file->size_bytes;
        w.head_only = file->size_bytes > PROBE_BYTES;
    } else {
        w.redirects = REDIRECTS_AT_HOME;
        w.neg_ttl_s = RIGHT_S; /* no such route; who does not see the repository never comes here */
    }
    return plan_paged_fetch(k->results, slice_str(file != NULL ? HF_MAKE_PROBE : HF_MAKE_RIGHT), &w,
                            true, k->p);
}

/* Does the Hub know the question? Those that do name the reason of a 404. */
static bool lacks_auth_check(const struct result *f)
{
    return (f->rc == E_NOTFOUND && f->code.p == NULL) || f->status == 405;
}

static const struct result *try_file(struct hf_ask *k)
{
    struct manifest_entry e;
    struct manifest m;

    if (!access_manifest(k, &m)) {
        return NULL;
    }
    if (!manifest_smallest(&m, &e)) {
        say_error(k, k->token.p != NULL ? 403 : 401, SLICE("GatedRepo"),
                  SLICE("the Hub does not say who may read this repository: it has no auth-check, "
                        "and the repository has no file except its card to check access with"));
        return NULL;
    }
    return ask_right(k, "rights/file/", key_resolve(k->at.prefix, k->id, k->commit, e.path, k->a),
                     &e);
}

bool access_try(struct hf_ask *k)
{
    const struct result *f;

    if (!k->closed) {
        return true;
    }
    f = ask_right(k, "rights/auth-check/", key_auth_check(k->at.type, k->id, k->a), NULL);
    if (f != NULL && lacks_auth_check(f)) {
        f = try_file(k);
    }
    if (f != NULL && f->rc != 0) {
        say_result(k, f);
    }
    return f != NULL && f->rc == 0;
}

static struct slice with_query(struct hf_ask *k, struct slice path, struct slice query)
{
    return query.n == 0
               ? path
               : arena_fmt(k->a, SLICE_FMT "?" SLICE_FMT, SLICE_ARG(path), SLICE_ARG(query));
}

const struct result *access_json(struct hf_ask *k, struct slice path, struct slice query,
                                 bool for_ever)
{
    struct slice key = with_query(k, path, query);
    struct slice make = k->at.route == HF_INFO     ? SLICE(HF_MAKE_ABOUT)
                        : k->at.route == HF_BUCKET ? SLICE(HF_MAKE_BUCKET)
                                                   : SLICE(HF_MAKE_JSON);
    bool in_parts = k->at.route == HF_OTHER || k->at.route == HF_TREE || k->at.route == HF_ABOUT ||
                    k->at.route == HF_BUCKET;
    const struct result *f;
    struct lookup w;

    if (!access_lookup(k, key, path, &w)) {
        return NULL;
    }
    if (for_ever && k->reader.n == 0) {
        w.class = LOOKUP_IMMUTABLE;
    } else if (k->reader.n != 0) {
        access_as_caller(k, &w);
    }
    w.since_unix_s = k->changed_unix_s;
    f = plan_paged_fetch(k->results, make, &w, in_parts, k->p);
    if (k->reader.n == 0 && f != NULL && is_refused_access(f) && k->token.p != NULL) {
        k->reader = k->caller; /* what comes now is not everybody's */
        access_as_caller(k, &w);
        f = plan_paged_fetch(k->results, make, &w, in_parts, k->p);
    }
    return f;
}

const struct result *access_listing(struct hf_ask *k, struct slice path, struct slice query,
                                    const char *make, bool one_part, uint32_t least_s)
{
    struct lookup w;

    if (!access_lookup(k, with_query(k, path, query), path, &w)) {
        return NULL;
    }
    w.ttl_s = w.ttl_s < least_s ? least_s : w.ttl_s;
    w.since_unix_s = max_u64(k->results->since_unix_s, least_s == 0 ? k->changed_unix_s : 0);
    if (k->reader.n != 0) {
        access_as_caller(k, &w);
    }
    return plan_paged_fetch(k->results, slice_str(make), &w, one_part, k->p);
}

const struct result *access_word(struct hf_ask *k, struct slice path, const char *make)
{
    const struct result *f;
    struct lookup w;

    if (!access_lookup(k, path, path, &w)) {
        return NULL;
    }
    w.ttl_s = (uint32_t)min_u64(w.ttl_s, OPEN_S);
    w.swr_s = 0;
    w.ruled |= RULED_SWR;
    if (k->reader.n != 0) {
        access_as_caller(k, &w);
    }
    f = plan_paged_fetch(k->results, slice_str(make), &w, true, k->p);
    if (k->reader.n == 0 && f != NULL && is_refused_access(f) && k->token.p != NULL) {
        k->reader = k->caller;
        access_as_caller(k, &w);
        f = plan_paged_fetch(k->results, slice_str(make), &w, true, k->p);
    }
    return f;
}
