/* verdict.c - the origin's response for a key when it is not the object: still valid, gone, busy,
 * an error; or the answer to a HEAD. */

#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/entry.h"

enum { HEAD_MEMORY_MS = 10000, WORDS_MAX_S = 3600 };

static bool passes_errors_on(const struct lookup *w)
{
    return (w->errors & ERRORS_PASSED_ON) != 0;
}

static int mapped(const struct lookup *w, int status)
{
    for (size_t i = 0; i < w->status_maps; i++) {
        if (w->status_map[i].from == status) {
            return w->status_map[i].to;
        }
    }
    return status;
}

static void on_lazy_commit(struct commit_wait *w, int rc, const struct err *e);

/* Rows that no client waits for. The next request waits: it would read them as they were. */
struct lazy {
    struct commit_wait wait;
    struct cache_entry *entry;
};

static void commit_lazily(struct cache_entry *n, struct batch **bp)
{
    struct lazy *z = NEW(struct lazy);
    struct cache *c = n->cache;

    z->entry = n;
    n->settling++;
    z->wait.done = on_lazy_commit;
    z->wait.reply = c->mail;
    c->busy++;
    store_commit_async(c->store, bp, COMMIT_LAZY, &z->wait);
}

static void on_lazy_commit(struct commit_wait *w, int rc, const struct err *e)
{
    struct lazy *z = CONTAINER_OF(w, struct lazy, wait);

    if (rc != 0 && rc != E_CHANGED) { /* changed: evicted meanwhile */
        log_warn("cache.row", "why=\"%s\"", e->text);
    }
    z->entry->cache->busy--;
    entry_settled(z->entry);
    free(z);
}

static void drop_row(struct cache_entry *n)
{
    struct batch *b = batch_new();
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);

    variant_key(&row_key, n->row_key, n->old->vary_key);
    batch_del(b, TABLE_OBJECT, buf_slice(&row_key));
    holder_key(&key, &n->old->object.digest, n->repo, 'o', object_key_of_row(buf_slice(&row_key)));
    batch_del(b, TABLE_HOLDER, buf_slice(&key));
    buf_free(&key);
    buf_free(&row_key);
    commit_lazily(n, &b);
    cache_changed(n->cache, n->row_key);
}

static void renew_row(struct cache_entry *n)
{
    struct object *o = &n->old->object;
    struct buf row_key = BUF_INIT(OBJECT_KEY_MAX);
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct batch *b = batch_new();

    variant_key(&row_key, n->row_key, n->old->vary_key);
    object_encode(o, &row);
    batch_put(b, TABLE_OBJECT, buf_slice(&row_key), buf_slice(&row));
    buf_clear(&row);
    /* With its holder again: that fails the batch when the blob was evicted meanwhile. */
    holder_key(&row, &o->digest, n->repo, 'o', object_key_of_row(buf_slice(&row_key)));
    batch_put(b, TABLE_HOLDER, buf_slice(&row), SLICE(""));
    commit_lazily(n, &b);
    buf_free(&row_key);
    buf_free(&row);
    cache_changed(n->cache, n->row_key);
}

/* The origin says that what we have is still good. */
static void renew(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    struct object *o = &n->old->object;
    struct freshness fresh;

    object_renew(o, h, &n->old->arena);
    freshness_read(h->fields, h->nfields, fetch_lookup(f), fetch_confirmed_unix_s(f),
                   n->cache->set.default_ttl_s, &fresh);
    o->validated_unix_s = fetch_confirmed_unix_s(f);
    o->origin = origin_identity(fetch_lookup(f)->origin);
    o->age_s = fresh.age_s;
    o->fresh_until_unix_s = fresh.fresh_until_unix_s;
    o->swr_s = fresh.swr_s;
    o->sie_s = fresh.sie_s;
    o->must_revalidate = fresh.must_revalidate;
    o->must_ask = false;
    if (n->group != NULL) {
        renew_row(n);
    }
    entry_answer(n, answer_of_blob(n->cache, o, n->old->blob, fetch_lookup(f), CACHE_REVALIDATED));
    n->answered = true;
}

/* By other fields than the row that we have is named after. */
static bool varies_otherwise(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    return lookup_varies(fetch_lookup(f)) && origin_head_field(h, "vary").p != NULL &&
           !variant_alike(n->old->vary_key, variant_of_answer(fetch_lookup(f), h->fields,
                                                              h->nfields, &n->old->arena));
}

static void not_modified(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    struct slice etag = slice_trim(origin_head_field(h, "etag"));

    bool another = etag.p != NULL && !slice_eq(etag, n->old->object.origin_etag);

    if (another || varies_otherwise(n, f, h)) {
        n->ask_plainly = true; /* it speaks of another than ours (RFC 9111 4.3.4): fetch all */
    } else {
        renew(n, f, h);
    }
}

/* What a HEAD tells of bytes that we have: still these; else they are fetched, all of them, as
 * nothing else is asked for. */
static void reported_by_head(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    struct digest now;

    if (h->status == 200 && origin_head_digest(h, &now) &&
        digest_eq(&now, &n->old->object.digest)) {
        renew(n, f, h);
    } else {
        n->ask_plainly = true;
    }
}

/* The origin says no, or something that is no object: remembered for ttl_s. */
static void refused(struct cache_entry *n, struct fetch *f, int status, uint32_t ttl_s,
                    const struct origin_head *h)
{
    if (ttl_s > 0) {
        answer_release(&n->memory);
        n->memory = answer_of_error(n->cache, f, status, CACHE_NEGATIVE, h);
        n->memory_is_head = fetch_lookup(f)->head_only &&
                            passes_errors_on(fetch_lookup(f)); /* it has no words for a GET */
        n->memory_expected_digest = n->expected_digest;
        n->memory_until_ms = clock_now_ms() + (uint64_t)ttl_s * 1000;
    }
    entry_answer(n, answer_of_error(n->cache, f, status, CACHE_MISS, h));
    n->answered = true;
}

static bool is_refusal(int status)
{
    return status == 401 || status == 403;
}

/* RFC 9110 15.1: those that may be kept for a time of our own guessing. */
static bool may_be_guessed(int status)
{
    return status == 203 || status == 204 || status == 300 || status == 301 || status == 308 ||
           status == 405 || status == 414 || status == 501;
}

/* How long the origin's word holds for an answer that is no object. A lifetime beyond WORDS_MAX_S
 * would hide for too long what is published under the name. */
static uint32_t words_ttl_s(const struct cache_entry *n, struct fetch *f, int status,
                            const struct origin_head *h)
{
    const struct lookup *w = fetch_lookup(f);
    bool gone = status == 404 || status == 410;
    uint64_t now = clock_unix_s();
    struct freshness fresh;

    if (is_refusal(status)) {
        return w->refusal_ttl_s;
    }
    if (gone && ((w->ruled & RULED_NEG_TTL) != 0 || !passes_errors_on(w))) {
        return w->neg_ttl_s;
    }
    if (!passes_errors_on(w)) {
        return 0;
    }
    freshness_read(h->fields, h->nfields, fetch_lookup(f), now, n->cache->set.default_ttl_s,
                   &fresh);
    if (fresh.no_store || fresh.forbidden) {
        return 0;
    }
    if (fresh.reported ||
        (may_be_guessed(status) && origin_head_field(h, "last-modified").p != NULL)) {
        return (uint32_t)min_u64(fresh.fresh_until_unix_s - now, WORDS_MAX_S);
    }
    return gone ? w->neg_ttl_s : 0;
}

/* Does the no end what we have? One to a caller's own credential does: it may not be given again
 * because the origin falls silent. A refusal to everybody does not, it may be a firewall's, unless
 * the want says that such a no is about rights. */
static bool ends_row(const struct lookup *w, int status)
{
    return status == 404 || status == 410 ||
           (is_refusal(status) && (w->principal.n != 0 || (w->errors & REFUSALS_END_KEPT) != 0));
}

/* A no to one wish says nothing of what we have for all. */
static bool speaks_of_old(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    return n->old != NULL && n->group != NULL && !varies_otherwise(n, f, h);
}

/* What the origin shows to us no more is not given while the origin is asked again: a right ends
 * where it is refused. */
static void denied(struct cache_entry *n, struct fetch *f, int status, const struct origin_head *h)
{
    if (speaks_of_old(n, f, h)) {
        n->old->object.must_ask = true;
        renew_row(n);
    }
    refused(n, f, status, words_ttl_s(n, f, status, h), h);
}

static void gone(struct cache_entry *n, struct fetch *f, int status, const struct origin_head *h)
{
    if (speaks_of_old(n, f, h)) {
        drop_row(n);
    }
    hit_free(&n->old);
    refused(n, f, status, words_ttl_s(n, f, status, h), h);
}

/* An upstream HEAD tells those who asked for no more; the others go on to a fetch. */
static void head_only(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    answer_release(&n->memory);
    n->memory = answer_of_head(n->cache, h, fetch_lookup(f));
    n->memory_is_head = true;
    n->memory_expected_digest = n->expected_digest;
    n->memory_until_ms = clock_now_ms() + HEAD_MEMORY_MS;
    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (k->lookup.head_only && was_expected(k, &n->expected_digest)) {
            entry_unlist(n, k);
            ask_answer(k, answer_hold(n->memory));
        }
    }
    n->answered = true;
}

static uint32_t retry_after_s(const struct origin_head *h)
{
    uint64_t s;

    return slice_u64(slice_trim(origin_head_field(h, "retry-after")), &s) && s < 3600 ? (uint32_t)s
                                                                                      : BUSY_S;
}

/* Does it have a text that later requests may get, too? */
static bool trouble_has_words(const struct cache_entry *n, struct fetch *f,
                              const struct origin_head *h)
{
    struct freshness fresh;

    if (fetch_text(f).p == NULL) {
        return false;
    }
    freshness_read(h->fields, h->nfields, fetch_lookup(f), clock_unix_s(),
                   n->cache->set.default_ttl_s, &fresh);
    return !fresh.no_store && !fresh.forbidden;
}

/* The first error in a row, with nothing that could be given instead? Such an answer may be used
 * once (RFC 9111 3): it says nothing of the next request, which often succeeds. Those who waited
 * have shared it. A 429 and a Retry-After ask to be left alone. */
static bool is_lone_error(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    uint64_t now = clock_now_ms();
    bool first = now >= n->failed_until_ms;

    n->failed_until_ms = now + OUTAGE_MS;
    return first && passes_errors_on(fetch_lookup(f)) && n->old == NULL && h->status >= 500 &&
           origin_head_field(h, "retry-after").p == NULL;
}

static void origin_trouble(struct cache_entry *n, struct fetch *f, int status,
                           const struct origin_head *h)
{
    bool busy = h->status == 429 || h->status == 503;
    bool reported = origin_head_field(h, "retry-after").p != NULL; /* how long: it is waited for */
    bool lone = is_lone_error(n, f, h);
    struct err why;
    int rc = err_set(&why, busy ? E_BUSY : E_NETWORK, "the origin answered %d", h->status);

    if (!reported && trouble_has_words(n, f, h)) { /* they keep others away as trouble does */
        uint32_t rest_s = lone ? 0 : busy ? BUSY_S : TROUBLE_MS / 1000;
        uint32_t ttl_s = words_ttl_s(n, f, status, h);
        refused(n, f, status, ttl_s > rest_s ? ttl_s : rest_s, h);
        return;
    }
    if (!lone) {
        entry_remember_trouble(n, rc, &why);
    }
    if (busy && !lone) {
        n->trouble_until_ms = clock_now_ms() + (uint64_t)retry_after_s(h) * 1000;
    }
    if (!reported && fetch_text(f).p != NULL) {
        refused(n, f, status, 0, h);
        return;
    }
    entry_answer_trouble(n, rc, &why);
    n->answered = true;
}

/* What is neither the object nor its absence, or is not to be kept, is for those alone who asked
 * the same; a 304 speaks of what we have. An origin in trouble is not asked once more for the words
 * in another form. */
static void settle_whom(struct cache_entry *n, struct fetch *f, int status,
                        const struct origin_head *h)
{
    struct freshness fresh;
    struct arena a = {0};
    bool trouble = status >= 500 || status == 429;
    bool kept;

    if (!lookup_varies(fetch_lookup(f)) || (status == 304 && n->old != NULL)) {
        return;
    }
    freshness_read(h->fields, h->nfields, fetch_lookup(f), clock_unix_s(), 0, &fresh);
    kept = (status == 200 || status == 206 || status == 404 || status == 410) &&
           freshness_keeps(&fresh, fetch_lookup(f));
    entry_is_for(n, kept
                        ? variant_of_answer(fetch_lookup(f), h->fields, h->nfields, &a)
                        : variant_of_all(fetch_lookup(f), h->fields, trouble ? 0 : h->nfields, &a));
    arena_fini(&a);
}

void verdict_take(struct cache_entry *n, struct fetch *f, const struct origin_head *h)
{
    int status = mapped(fetch_lookup(f), h->status);
    struct err why;

    settle_whom(n, f, status, h);
    if (status < 500 && status != 429) {
        n->failed_until_ms = 0;
    }
    if (status == 304 && n->old != NULL) {
        not_modified(n, f, h);
    } else if (n->probe != PROBES_NOTHING && status != 200) {
        n->answered = true; /* not every origin speaks HEAD: a GET says what is so */
    } else if (fetch_is_refused(f, h)) {
        err_set(&why, E_PROTOCOL,
                origin_head_is_html(h)
                    ? "the origin sent a web page instead of the file, possibly a login form"
                    : "the origin sent an empty file");
        entry_remember_trouble(n, E_PROTOCOL, &why);
        entry_answer_trouble(n, E_PROTOCOL, &why);
        n->answered = true;
    } else if (fetch_lookup(f)->repr_digest == REPR_DIGEST_ASKED && fetch_lookup(f)->head_only &&
               n->old != NULL && (status < 400 || status == 405 || status == 501)) {
        reported_by_head(n, f, h);
    } else if (ends_row(fetch_lookup(f), status)) {
        gone(n, f, status, h);
    } else if (fetch_lookup(f)->head_only && status == 200) {
        head_only(n, f, h);
    } else if (fetch_lookup(f)->head_only && (status == 405 || status == 501)) {
        LIST_EACH (&n->asks, it) { /* it does not speak HEAD: a GET says the same */
            LIST_ITEM(it, struct cache_ask, node)->lookup.head_only = false;
        }
        n->answered = true;
    } else if (status >= 500 || status == 429) {
        origin_trouble(n, f, status, h);
    } else if (is_refusal(status)) {
        denied(n, f, status, h);
    } else if (status >= 400) {
        refused(n, f, status, words_ttl_s(n, f, status, h), h);
    } else if (fetch_text(f).p != NULL) {
        refused(n, f, status, words_ttl_s(n, f, status, h), h);
    } else {
        err_set(&why, E_PROTOCOL, "the origin answered %d", status);
        entry_answer_trouble(n, E_PROTOCOL, &why);
        n->answered = true;
    }
}
