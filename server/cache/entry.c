/* entry.c - one key that somebody asks for and that a row cannot answer: single flight, from the look at the row to the
 * last word of the origin.
 *
 * An entry is made by the first ask and looks at the row itself: a row read before the entry existed proves nothing, a
 * fill may have ended in between. It leaves the table when its fill has been committed, so that whoever does not find it
 * finds the row.
 *
 * Asks of one key may have been promised different digests, or none (two index pages, say). A round - the look, the fill,
 * the trouble - is for those of one promise alone; the others wait for the next, and find the row or begin anew. So no
 * bytes that were not held against a digest are given to whom it was promised, and a wrong promise harms none but those it
 * was made to.
 */

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/cache/cache_priv.h"

enum {
    RESTING_MAX = 16384, /* entries that only remember a 404 or a HEAD */
    HEAD_MEMORY_MS = 10000,
    TROUBLE_MS = 2000, /* an origin in trouble is left alone for so long, a key */
};

struct promise {
    bool known;
    struct digest digest;
};

struct entry {
    UT_hash_handle hh;
    struct cache *cache;
    struct arena arena;
    struct slice row_key;
    struct slice repo;
    uint64_t origin; /* its identity */
    bool in_table;
    struct list asks;
    bool looking;
    bool ask_plainly; /* a 304 did not fit: the next request is unconditional */
    struct job look;
    struct want *look_want; /* of the first ask */
    struct promise promise; /* this round's */
    struct hit *old;        /* what the row says; stale */
    struct fill *fill;      /* held */
    bool first_told;        /* the one who caused the fill has been answered */
    bool answered;          /* other() has dealt with the asks */
    struct answer *memory;  /* a 404, or a HEAD's answer */
    bool memory_is_head;
    struct promise memory_promise;
    uint64_t memory_until_ms;
    uint64_t trouble_until_ms;
    struct err trouble;
    struct promise trouble_promise;
    struct list rest; /* in cache->resting */
};

static void advance(struct entry *n);

/* --- asks --------------------------------------------------------------------------------------------------------- */

static void ask_free(struct cache_ask *k)
{
    struct cache *c = k->cache;

    answer_release(&k->answer);
    origin_free(&k->origin);
    arena_fini(&k->arena);
    free(k);
    atomic_fetch_sub(&c->asks, 1);
}

static void on_answered(struct letter *l)
{
    struct cache_ask *k = CONTAINER_OF(l, struct cache_ask, letter);

    if (!atomic_load(&k->cancelled)) {
        struct answer *a = k->answer;
        k->answer = NULL;
        k->on_answer(k->arg, a);
    }
    ask_free(k);
}

static void count_state(struct cache *c, enum cache_state s)
{
    switch (s) {
    case CACHE_HIT:
        COUNT(c, hits, 1);
        break;
    case CACHE_MISS:
    case CACHE_REFRESHED:
        COUNT(c, misses, 1);
        break;
    case CACHE_COLLAPSED:
        COUNT(c, collapsed, 1);
        break;
    case CACHE_REVALIDATED:
        COUNT(c, revalidated, 1);
        break;
    case CACHE_STALE:
        COUNT(c, stale, 1);
        break;
    case CACHE_NEGATIVE:
        COUNT(c, negative, 1);
        break;
    case CACHE_FAILED:
        COUNT(c, failed, 1);
        break;
    }
}

void ask_answer(struct cache_ask *k, struct answer *a)
{
    if (k->loop == NULL) {
        answer_release(&a);
        ask_free(k);
        return;
    }
    count_state(k->cache, a->state);
    k->answer = a;
    k->letter.deliver = on_answered;
    mailbox_post(k->loop->mail, &k->letter);
}

static bool promise_eq(const struct promise *a, const struct promise *b)
{
    return a->known == b->known && (!a->known || digest_eq(&a->digest, &b->digest));
}

static bool was_promised(const struct cache_ask *k, const struct promise *p)
{
    struct promise made = {k->want.digest_known, k->want.digest};

    return promise_eq(&made, p);
}

/* The promise made to whoever has waited longest; false: nobody waits. */
static bool next_round(struct entry *n)
{
    if (list_empty(&n->asks)) {
        return false;
    }
    const struct want *w = &LIST_ITEM(n->asks.next, struct cache_ask, node)->want;
    n->promise = (struct promise){w->digest_known, w->digest};
    return true;
}

/* The next of this round, or NULL. */
static struct cache_ask *first_ask(struct entry *n)
{
    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (was_promised(k, &n->promise)) {
            return k;
        }
    }
    return NULL;
}

static struct cache_ask *take_ask(struct entry *n)
{
    struct cache_ask *k = first_ask(n);

    if (k != NULL) {
        list_remove(&k->node);
    }
    return k;
}

/* All of this round. Takes a. */
static void answer_all(struct entry *n, struct answer *a)
{
    struct cache_ask *k;

    while ((k = take_ask(n)) != NULL) {
        ask_answer(k, answer_hold(a));
    }
    answer_release(&a);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static struct entry *entry_find(struct cache *c, struct slice row_key)
{
    struct entry *n = NULL;

    HASH_FIND(hh, c->entries, row_key.p, row_key.n, n);
    return n;
}

static void leave_table(struct entry *n)
{
    if (n->in_table) {
        HASH_DEL(n->cache->entries, n);
        n->in_table = false;
    }
    if (list_linked(&n->rest)) {
        list_remove(&n->rest);
        n->cache->resting_count--;
    }
}

static void entry_free(struct entry *n)
{
    CHECK(list_empty(&n->asks) && n->fill == NULL && !n->looking);
    leave_table(n);
    hit_free(&n->old);
    answer_release(&n->memory);
    arena_fini(&n->arena);
    free(n);
}

static struct entry *entry_new(struct cache *c, const struct cache_ask *k)
{
    struct entry *n = NEW(struct entry);

    n->cache = c;
    n->row_key = arena_copy(&n->arena, k->row_key);
    n->repo = arena_copy(&n->arena, k->want.repo);
    n->origin = origin_identity(k->origin);
    list_init(&n->asks);
    n->in_table = true;
    HASH_ADD_KEYPTR(hh, c->entries, n->row_key.p, n->row_key.n, n);
    return n;
}

/* Nobody asks and nothing is under way: what is remembered may stay for its time, within a bound. */
static void rest_or_free(struct entry *n, uint64_t now_ms)
{
    struct cache *c = n->cache;
    bool remembers =
        n->in_table && !c->closing &&
        ((n->memory != NULL && now_ms < n->memory_until_ms) || now_ms < n->trouble_until_ms);

    hit_free(&n->old);
    if (!remembers) {
        entry_free(n);
        return;
    }
    if (!list_linked(&n->rest)) {
        list_push_back(&c->resting, &n->rest);
        c->resting_count++;
    }
    if (c->resting_count > RESTING_MAX) {
        entry_free(LIST_ITEM(c->resting.next, struct entry, rest));
    }
}

void entries_rest_tick(struct cache *c, uint64_t now_ms)
{
    LIST_EACH (&c->resting, it) {
        struct entry *n = LIST_ITEM(it, struct entry, rest);
        if (now_ms >= n->memory_until_ms && now_ms >= n->trouble_until_ms) {
            entry_free(n);
        }
    }
}

static void forget(struct entry *n)
{
    leave_table(n);
    if (n->fill != NULL) {
        n->fill->keep = false;
    } else if (!n->looking) {
        entry_free(n);
    }
}

void entries_forget(struct cache *c, struct slice prefix)
{
    struct entry *n;
    struct entry *tmp;

    HASH_ITER(hh, c->entries, n, tmp)
    {
        if (slice_starts(n->row_key, prefix)) {
            forget(n);
        }
    }
}

/* --- trouble ------------------------------------------------------------------------------------------------------ */

static int status_of_trouble(int rc)
{
    switch (rc) {
    case E_TIMEOUT:
    case E_BUSY:
    case E_CANCELLED:
        return 503; /* never 504: installers do not try again after that one */
    case E_NOSPACE:
        return 507;
    case E_REFUSED:
        return 403;
    default:
        return 502;
    }
}

static void answer_trouble(struct entry *n, int rc, const struct err *why)
{
    struct cache *c = n->cache;
    struct cache_ask *k = first_ask(n);
    uint64_t now = clock_unix_s();
    int status = status_of_trouble(rc);

    if (k == NULL) {
        return;
    }
    if (n->old != NULL && rc != E_REFUSED &&
        freshness_allows_stale_on_error(&n->old->object, &k->want, now)) {
        log_warn("cache.stale", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(n->repo), why->text);
        answer_all(n, answer_of_blob(c, &n->old->object, n->old->blob, &k->want, CACHE_STALE));
        return;
    }
    answer_all(n, answer_of_status(c, status, CACHE_FAILED, status == 503 ? 5 : 0, why));
}

static void remember_trouble(struct entry *n, int rc, const struct err *why)
{
    n->trouble_until_ms = clock_now_ms() + TROUBLE_MS;
    n->trouble = *why;
    n->trouble.code = rc;
    n->trouble_promise = n->promise;
}

/* That its bytes are not what was promised concerns nobody else. */
static bool in_trouble(const struct entry *n)
{
    return clock_now_ms() < n->trouble_until_ms &&
           (n->trouble.code != E_CORRUPT || promise_eq(&n->trouble_promise, &n->promise));
}

/* --- the origin's word -------------------------------------------------------------------------------------------- */

static int mapped(const struct want *w, int status)
{
    for (size_t i = 0; i < w->status_maps; i++) {
        if (w->status_map[i].from == status) {
            return w->status_map[i].to;
        }
    }
    return status;
}

static void on_lazy_commit(struct commit_wait *w, int rc, const struct err *e);

struct lazy { /* rows that nobody waits for */
    struct commit_wait wait;
    struct cache *cache;
};

static void commit_lazily(struct cache *c, struct batch **bp)
{
    struct lazy *z = NEW(struct lazy);

    z->cache = c;
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
    z->cache->busy--;
    free(z);
}

static void drop_row(struct entry *n)
{
    struct batch *b = batch_new();
    struct buf key = BUF_INIT(16384);

    batch_del(b, TABLE_OBJECT, n->row_key);
    holder_key(&key, &n->old->object.digest, n->repo, 'o', object_key_tail(n->row_key));
    batch_del(b, TABLE_HOLDER, buf_slice(&key));
    buf_free(&key);
    commit_lazily(n->cache, &b);
    cache_changed(n->cache, n->row_key);
}

static void renew_row(struct entry *n)
{
    struct object *o = &n->old->object;
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    struct batch *b = batch_new();

    object_encode(o, &row);
    batch_put(b, TABLE_OBJECT, n->row_key, buf_slice(&row));
    buf_clear(&row);
    /* With its holder again: that fails the batch when the blob was evicted meanwhile. */
    holder_key(&row, &o->digest, n->repo, 'o', object_key_tail(n->row_key));
    batch_put(b, TABLE_HOLDER, buf_slice(&row), SLICE(""));
    commit_lazily(n->cache, &b);
    buf_free(&row);
    cache_changed(n->cache, n->row_key);
}

static void not_modified(struct entry *n, struct fill *f, const struct fetch_head *h)
{
    struct object *o = &n->old->object;
    struct slice etag = slice_trim(fetch_field(h, "etag"));
    struct freshness fresh;

    if (etag.p != NULL && !slice_eq(etag, o->origin_etag)) {
        n->ask_plainly = true; /* it speaks of another than ours (RFC 9111 4.3.4): fetch all */
        return;
    }
    object_renew(o, h, &n->old->arena);
    freshness_read(h->fields, h->nfields, clock_unix_s(), n->cache->set.default_ttl_s, &fresh);
    o->validated_unix_s = clock_unix_s();
    o->origin = origin_identity(f->origin);
    o->age_s = fresh.age_s;
    o->fresh_until_unix_s = fresh.fresh_until_unix_s;
    o->swr_s = fresh.swr_s;
    o->sie_s = fresh.sie_s;
    o->must_revalidate = fresh.must_revalidate;
    if (n->in_table) {
        renew_row(n);
    }
    answer_all(n, answer_of_blob(n->cache, o, n->old->blob, &f->want, CACHE_REVALIDATED));
    n->answered = true;
}

static void gone(struct entry *n, struct fill *f, int status)
{
    struct cache *c = n->cache;

    if (n->old != NULL && n->in_table) {
        drop_row(n);
    }
    hit_free(&n->old);
    if (f->want.neg_ttl_s > 0) {
        answer_release(&n->memory);
        n->memory = answer_of_status(c, status, CACHE_NEGATIVE, 0, NULL);
        n->memory_is_head = false;
        n->memory_until_ms = clock_now_ms() + (uint64_t)f->want.neg_ttl_s * 1000;
    }
    answer_all(n, answer_of_status(c, status, CACHE_MISS, 0, NULL));
    n->answered = true;
}

/* An upstream HEAD tells those who asked for no more; the others go on to a fill. */
static void head_only(struct entry *n, struct fill *f, const struct fetch_head *h)
{
    answer_release(&n->memory);
    n->memory = answer_of_head(n->cache, h, &f->want);
    n->memory_is_head = true;
    n->memory_promise = n->promise;
    n->memory_until_ms = clock_now_ms() + HEAD_MEMORY_MS;
    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (k->want.head_only && was_promised(k, &n->promise)) {
            list_remove(it);
            ask_answer(k, answer_hold(n->memory));
        }
    }
    n->answered = true;
}

static uint32_t retry_after_s(const struct fetch_head *h)
{
    uint64_t s;

    return slice_u64(slice_trim(fetch_field(h, "retry-after")), &s) && s < 3600 ? (uint32_t)s : 5;
}

static void origin_trouble(struct entry *n, const struct fetch_head *h)
{
    bool busy = h->status == 429 || h->status == 503;
    struct err why;
    int rc = err_set(&why, busy ? E_BUSY : E_NETWORK, "the origin answered %d", h->status);

    remember_trouble(n, rc, &why);
    if (busy) {
        n->trouble_until_ms = clock_now_ms() + (uint64_t)retry_after_s(h) * 1000;
    }
    answer_trouble(n, rc, &why);
    n->answered = true;
}

static void on_other(void *arg, struct fill *f, const struct fetch_head *h)
{
    struct entry *n = arg;
    int status = mapped(&f->want, h->status);
    struct err why;

    if (status == 304 && n->old != NULL) {
        not_modified(n, f, h);
    } else if (status == 404 || status == 410) {
        gone(n, f, status);
    } else if (f->want.head_only && status == 200) {
        head_only(n, f, h);
    } else if (f->want.head_only && (status == 405 || status == 501)) {
        LIST_EACH (&n->asks, it) { /* it does not speak HEAD: a GET says the same */
            LIST_ITEM(it, struct cache_ask, node)->want.head_only = false;
        }
        n->answered = true;
    } else if (status >= 500 || status == 429) {
        origin_trouble(n, h);
    } else if (status >= 400) {
        answer_all(n, answer_of_status(n->cache, status, CACHE_MISS, 0, NULL));
        n->answered = true;
    } else {
        err_set(&why, E_PROTOCOL, "the origin answered %d", status);
        answer_trouble(n, E_PROTOCOL, &why);
        n->answered = true;
    }
}

static void on_headed(void *arg, struct fill *f)
{
    struct entry *n = arg;
    struct cache_ask *k;

    while ((k = take_ask(n)) != NULL) {
        enum cache_state state = n->first_told ? CACHE_COLLAPSED
                                 : f->replaces ? CACHE_REFRESHED
                                               : CACHE_MISS;
        n->first_told = true;
        ask_answer(k, answer_of_fill(f, state));
    }
}

static void on_ended(void *arg, struct fill *f, int rc, const struct err *why)
{
    struct entry *n = arg;
    struct cache *c = n->cache;

    if (rc == 0) {
        log_info("fill.done", "repo=" SLICE_FMT " bytes=%" PRIu64 " took_ms=%" PRIu64 " kept=%d",
                 SLICE_ARG(n->repo), f->total_bytes, clock_now_ms() - f->born_ms, f->keep);
        cache_changed(c, n->row_key);
    } else if (rc == E_CHANGED) { /* its readers are cut; who asks from now on gets the new one */
        log_info("fill.changed", "repo=" SLICE_FMT, SLICE_ARG(n->repo));
    } else if (rc == E_CANCELLED && !c->closing) {
        /* Nobody read it any more, or its head was dealt with: who has come meanwhile begins anew. */
    } else if (!n->answered) {
        log_warn("fill.failed", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(n->repo), why->text);
        if (rc != E_CANCELLED) {
            remember_trouble(n, rc, why);
        }
        answer_trouble(n, rc, why);
    }
    fill_release(&n->fill);
    hit_free(&n->old);
    advance(n);
}

/* --- the look at the row, and what follows ------------------------------------------------------------------------ */

static void look(struct job *j)
{
    struct entry *n = CONTAINER_OF(j, struct entry, look);
    struct err e;

    if (hit_find(n->cache, n->row_key, n->look_want, &n->old, &e) != 0) {
        n->old = NULL;
    }
}

static void begin_fill(struct entry *n)
{
    static const struct fill_owner owner = {on_headed, on_other, on_ended};
    struct cache_ask *k = first_ask(n);

    LIST_EACH (&n->asks, it) { /* one GET serves the HEADs too */
        struct cache_ask *other = LIST_ITEM(it, struct cache_ask, node);
        if (!other->want.head_only && was_promised(other, &n->promise)) {
            k = other;
            break;
        }
    }
    n->first_told = n->answered = false;
    if (n->old != NULL) {
        k->want.head_only = false; /* a conditional GET costs no more */
        k->want.hint_first = 0;
        k->want.hint_end = LENGTH_UNKNOWN;
    }
    n->fill = fill_start(n->cache, &k->want, n->row_key,
                         n->old != NULL && !n->ask_plainly ? &n->old->object : NULL, &owner, n);
    n->ask_plainly = false;
    n->fill->replaces = n->old != NULL;
    n->fill->keep = n->in_table;
}

static void on_looked(struct job *j)
{
    struct entry *n = CONTAINER_OF(j, struct entry, look);
    struct cache *c = n->cache;
    struct cache_ask *k = first_ask(n);
    uint64_t now = clock_unix_s();

    c->busy--;
    n->looking = false;
    n->look_want = NULL;
    if (c->closing) {
        struct err why;
        err_set(&why, E_CANCELLED, "the server is going down");
        answer_trouble(n, E_CANCELLED, &why);
        hit_free(&n->old);
        advance(n);
        return;
    }
    if (n->old != NULL && freshness_judge(&n->old->object, &k->want, now) == FRESH) {
        answer_all(n, answer_of_blob(c, &n->old->object, n->old->blob, &k->want, CACHE_HIT));
        hit_free(&n->old);
        advance(n);
    } else if (in_trouble(n)) {
        answer_trouble(n, n->trouble.code, &n->trouble);
        hit_free(&n->old);
        advance(n);
    } else {
        begin_fill(n);
    }
}

/* Nothing is under way: what do those who ask need? */
static void advance(struct entry *n)
{
    struct cache *c = n->cache;

    if (!next_round(n)) {
        rest_or_free(n, clock_now_ms());
        return;
    }
    n->looking = true;
    n->look_want = &first_ask(n)->want;
    n->look = (struct job){.work = look, .done = on_looked, .reply = c->mail};
    c->busy++;
    pool_submit(c->disk, &n->look);
}

static bool remembered(struct entry *n, struct cache_ask *k)
{
    if (n->memory == NULL || clock_now_ms() >= n->memory_until_ms ||
        (n->memory_is_head && (!k->want.head_only || !was_promised(k, &n->memory_promise)))) {
        return false;
    }
    ask_answer(k, answer_hold(n->memory));
    return true;
}

void entry_ask(struct cache *c, struct cache_ask *k)
{
    struct entry *n = entry_find(c, k->row_key);
    struct err why;

    if (c->closing) {
        err_set(&why, E_CANCELLED, "the server is going down");
        ask_answer(k, answer_of_status(c, 503, CACHE_FAILED, 5, &why));
        return;
    }
    if (n != NULL && !origin_owns(k->origin, n->origin)) {
        forget(
            n); /* a reload changed the origin: what is known and fetched there is for those who asked before */
        n = NULL;
    }
    if (n == NULL) {
        n = entry_new(c, k);
    }
    if (n->fill != NULL && fill_is_headed(n->fill) && n->fill->rc == 0 &&
        was_promised(k, &n->promise)) {
        ask_answer(k, answer_of_fill(n->fill, CACHE_COLLAPSED));
        return;
    }
    if (remembered(n, k)) {
        return;
    }
    list_push_back(&n->asks, &k->node);
    if (n->fill == NULL && !n->looking) {
        if (list_linked(&n->rest)) {
            list_remove(&n->rest);
            c->resting_count--;
        }
        advance(n);
    }
}

void entries_drop_all(struct cache *c)
{
    struct entry *n;
    struct entry *tmp;
    struct err why;

    err_set(&why, E_CANCELLED, "the server is going down");
    HASH_ITER(hh, c->entries, n, tmp)
    {
        if (n->fill == NULL && !n->looking) {
            while (next_round(n)) {
                answer_trouble(n, E_CANCELLED, &why);
            }
            entry_free(n);
        }
    }
}
