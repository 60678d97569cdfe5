/* file.c - one file of a commit: its lookup at the origin, or its file in a synced tree, and the
 * header fields of the answer. */
#include <inttypes.h>

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/repo/hf/hf.h"
#include "server/repo/hf/key.h"
#include "server/repo/hf/synced.h"
#include "server/repo/hf/xet.h"
#include "server/repo/hf/xorb.h"

static bool file_lookup(struct hf_ask *k, const struct manifest *m, const struct manifest_entry *f);

/* --- chunks of a file (Xet) ---
 *
 * A Hub's large files by Xet's protocol, for clients that have it (repo/hf/xet.h).
 *
 * The Hub's own chunk store is never announced; the object that plain HTTP serves is offered
 * instead. Each of the three requests checks the caller's right again. The last one comes without a
 * credential, so the second hands out a URL with one sealed inside, where one is needed.
 */

static struct xet_place xet_place_of_file(const struct hf_ask *k)
{
    return (struct xet_place){.home = plan_home(k->r, k->req, k->raw, k->a),
                              .type = k->at.type,
                              .id = k->at.id,
                              .commit = k->commit};
}

static void chunks_announce(struct hf_ask *k, const struct manifest_entry *f)
{
    if (f->size_bytes >= k->r->xet_from_bytes) {
        struct xet_place at = xet_place_of_file(k);
        xet_announce(&at, &f->sha256, k->a, k->p);
    }
}

void chunks_token(struct hf_ask *k)
{
    struct xet_place at;
    struct manifest m;

    if (k->r->xet_from_bytes == UINT64_MAX) {
        say_error(k, 404, SLICE_NONE,
                  SLICE("the Xet store of this mirror is disabled; fetch files over HTTP"));
    } else if (access_commit(k) && access_manifest(k, &m) && access_try(k)) {
        at = xet_place_of_file(k);
        xet_token(&at, http_req_field(k->req, "authorization"), clock_unix_s(), k->a, k->p);
    }
}

enum xet_key chunks_use_key(struct hf_ask *k, const struct xet_place *at, const struct digest *d)
{
    struct slice credential;
    enum xet_key key;

    key = xet_key_open(k->r, at, d, k->req->query, clock_unix_s(), k->a, &credential);
    if (key == XET_KEY_BAD) {
        say_error(k, 403, SLICE_NONE, SLICE("this address is no longer valid; request a new one"));
    } else if (key == XET_KEY_GOOD) {
        k->p->right = RIGHT_KNOWN;
        access_as(k, credential);
    }
    return key;
}

static void answer_hf_file_terms(struct hf_ask *k, const struct manifest_entry *f)
{
    struct xet_place at = xet_place_of_file(k);
    struct slice key = SLICE_NONE;

    if (k->closed || !k->r->anonymous_read) {
        key = xet_key_seal(k->r, &at, &f->sha256, k->token.p != NULL ? k->token : SLICE(""),
                           clock_unix_s(), k->a);
    }
    xet_terms(&at, k->req, &f->sha256, f->size_bytes, key, k->a, k->p);
}

static void answer_hf_file_data(struct hf_ask *k, const struct manifest *m,
                                const struct manifest_entry *f)
{
    if (!file_lookup(k, m, f)) {
        return;
    }
    k->p->framing = &xorb_framing;
    k->p->until_unix_s = k->until_unix_s;
    k->p->etag = arena_fmt(k->a, "\"xorb-" SLICE_FMT, SLICE_ARG(slice_from(k->p->etag, 1)));
    k->p->content_type = SLICE("application/octet-stream");
    if (k->closed) {
        k->p->cache_control = SLICE("private, no-cache");
    }
}

void chunks_answer(struct hf_ask *k)
{
    struct digest d;
    enum xet_ask ask = xet_path_parse(k->at.path, &d);
    struct xet_place at = xet_place_of_file(k);
    struct manifest_entry f;
    struct manifest m;

    if (ask == XET_ASK_NONE || !hf_is_commit(k->at.rev)) {
        say_error(k, 404, SLICE_NONE,
                  SLICE("no such path in this Xet store; it has reconstructions (v1) and data"));
        return;
    }
    at.commit = k->at.rev;
    if ((ask == XET_ASK_DATA && chunks_use_key(k, &at, &d) == XET_KEY_BAD) || !access_commit(k) ||
        !access_manifest(k, &m)) {
        return;
    }
    if (!manifest_find_lfs(&m, &d, &f)) {
        say_no_file(k);
    } else if (!access_try(k)) {
        return;
    } else if (ask == XET_ASK_TERMS) {
        answer_hf_file_terms(k, &f);
    } else {
        answer_hf_file_data(k, &m, &f);
    }
}

/* Never text/html: what people upload must not run as ours in a browser. */
static struct slice content_type_of_hf_file(struct slice path)
{
    static const char *const texts[] = {".txt",  ".md",  ".py",  ".jsonl",
                                        ".yaml", ".yml", ".csv", ".gitattributes"};

    if (slice_ends(path, SLICE(".json"))) {
        return SLICE("application/json");
    }
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        if (slice_ends(path, slice_str(texts[i]))) {
            return SLICE("text/plain; charset=utf-8");
        }
    }
    return SLICE("application/octet-stream");
}

/* RFC 6266, 8187: the plain form for those that know no other. */
static struct slice disposition(struct slice path, struct arena *a)
{
    struct slice name = path;
    char *plain;

    while (slice_find(name, '/') >= 0) {
        (void)slice_cut(&name, '/');
    }
    plain = arena_cstr(a, name);
    for (size_t i = 0; i < name.n; i++) {
        plain[i] =
            plain[i] == '"' || plain[i] == '\\' || (uint8_t)plain[i] >= 0x7f ? '_' : plain[i];
    }
    return arena_fmt(a, "inline; filename*=UTF-8''" SLICE_FMT "; filename=\"%s\";",
                     SLICE_ARG(url_encoded(name, a)), plain);
}

static void set_lookup_digest(struct hf_ask *k, const struct manifest_entry *f, struct lookup *w)
{
    char room[ETAG_HEX + 1];

    w->digest_known = f->lfs;
    if (f->lfs) {
        w->digest = f->sha256;
    } else {
        w->sum = (struct lookup_sum){LOOKUP_SUM_GIT_OID, .git_oid = f->oid};
    }
    k->p->etag = arena_fmt(k->a, "\"" SLICE_FMT "\"", SLICE_ARG(key_etag(f, room)));
}

/* The plan becomes this file's bytes. False: a rule denies it. */
/* One object for all commits and names that have these bytes; what came by somebody's right is
 * another. */
static bool file_lookup(struct hf_ask *k, const struct manifest *m, const struct manifest_entry *f)
{
    /* By the name that the Hub has it under now: its listing may be from a time when it had
     * another. */
    struct slice id = k->id.n != 0 ? k->id : m->id.n != 0 ? m->id : k->at.id;
    struct slice named = arena_fmt(k->a, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT,
                                   SLICE_ARG(k->at.type), SLICE_ARG(id), SLICE_ARG(f->path));
    struct lookup w;

    if (k->r->synced) {
        if (!synced_file(k, f->path)) {
            return false;
        }
        set_lookup_digest(k, f, &w);
        return true;
    }
    if (!access_lookup(k, named, named, &w)) {
        return false;
    }
    set_lookup_digest(k, f, &w);
    w.key = key_file(k->at.type, id, f, k->a);
    w.url = arena_fmt(k->a, "%s" SLICE_FMT, origin_url(k->r->origin),
                      SLICE_ARG(key_resolve(k->at.prefix, id, k->commit, f->path, k->a)));
    w.class = LOOKUP_IMMUTABLE;
    w.size_bytes = f->size_bytes;
    w.redirects = REDIRECTS_HOLD; /* the Hub counts each question of ours, its CDN does not */
    w.refusal_ttl_s = 0;          /* one caller's no is not the next one's */
    w.neg_ttl_s = 0;
    if (k->closed) {
        w.authorization = k->token;
        w.principal = SLICE("entitled");
    }
    plan_become(k->p, PLAN_LOOKUP);
    k->p->lookup = w;
    k->p->fields_of = FIELDS_OWN;
    return true;
}

/* Nothing is missing of an empty file: the listing that names it has said all. The newest clients
 * never ask for its bytes, so that no fill would ever bring it. */
static bool is_empty(const struct manifest_entry *f)
{
    struct git_oid oid;
    struct digest sha256;

    if (f->size_bytes != 0) {
        return false;
    }
    git_oid_of(SLICE(""), &oid);
    digest_of(SLICE(""), &sha256);
    return f->lfs ? digest_eq(&f->sha256, &sha256) : git_oid_eq(&f->oid, &oid);
}

static void give_empty(struct hf_ask *k)
{
    struct plan *p = k->p;
    struct lookup *w = ARENA_NEW(k->a, struct lookup);

    *w = p->lookup;
    plan_become(p, PLAN_REPLY);
    p->status = 200;
    p->brings = w;
    p->text = SLICE("");
    plan_field(p, SLICE("etag"), p->etag);
    if (p->cache_control.p != NULL) {
        plan_field(p, SLICE("cache-control"), p->cache_control);
    }
}

/* As git has it: a few words in the file's place. */
static void give_pointer(struct hf_ask *k, const struct manifest_entry *f)
{
    char hex[DIGEST_HEX + 1];
    char oid[GIT_OID_HEX + 1];
    struct slice text;
    struct git_oid o;

    digest_format(&f->sha256, hex);
    text = arena_fmt(
        k->a, "version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %" PRIu64 "\n", hex,
        f->size_bytes);
    git_oid_of(text, &o);
    git_oid_format(&o, oid);
    plan_reply(k->p, 200, text);
    k->p->content_type = SLICE("text/plain; charset=utf-8");
    plan_field(k->p, SLICE("etag"), arena_fmt(k->a, "\"%s\"", oid));
    plan_field(k->p, SLICE("cache-control"),
               k->closed ? SLICE("private, no-cache") : SLICE("no-cache"));
    say_commit(k);
}

/* May this caller have the file? The card of a gated repository is everybody's; the request is
 * about no other file then. */
static bool try_file(struct hf_ask *k, const struct manifest_entry *f)
{
    if (k->closed && k->openness == HUB_GATED && k->reader.n == 0 && hf_is_card(f->path)) {
        k->closed = false; /* this request is about nothing else */
    }
    return access_try(k);
}

void file_plan(struct hf_ask *k)
{
    struct manifest_entry f;
    struct manifest m;

    if (!access_commit(k) || !access_manifest(k, &m)) {
        return;
    }
    if (!manifest_find(&m, k->at.path, &f) || f.folder) {
        say_no_file(k);
        return;
    }
    if (!try_file(k, &f)) {
        return;
    }
    if (k->at.raw && f.lfs) {
        give_pointer(k, &f);
        return;
    }
    if (!file_lookup(k, &m, &f)) {
        return;
    }
    if (k->p->kind == PLAN_LOOKUP) {
        k->p->fields_of = FIELDS_KNOWN;
    }
    k->p->reuse = k->reader.n == 0 && !k->closed ? REUSE_ALL : REUSE_USUAL;
    k->p->until_unix_s = k->until_unix_s;
    k->p->content_type = content_type_of_hf_file(k->at.path);
    if (k->closed) {
        k->p->cache_control = SLICE("private, no-cache");
    } else if (k->branch.p != NULL) {
        k->p->cache_control = SLICE("no-cache");
    }
    say_commit(k);
    plan_field(k->p, SLICE("content-disposition"), disposition(k->at.path, k->a));
    if (f.lfs) {
        plan_field(k->p, SLICE("x-linked-etag"), k->p->etag);
        plan_field(k->p, SLICE("x-linked-size"), arena_u64(k->a, f.size_bytes));
        chunks_announce(k, &f);
    }
    if (k->p->kind == PLAN_LOOKUP && k->req->method == METHOD_GET && is_empty(&f)) {
        give_empty(k);
    }
}
