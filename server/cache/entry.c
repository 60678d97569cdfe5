/* entry.c - one key that is requested and that no row can answer: single flight, from the look at
 * the row to the origin's response.
 *
 * The first ask makes the entry, and the entry looks at the row itself: a row that was read before
 * the entry existed proves nothing, because a fetch may have ended in between. The entry leaves the
 * table when its fetch has been committed, so an ask that does not find it finds the row.
 *
 * Asks of one key may expect different digests, or none (from two index pages, for example). A
 * round (the look, the fetch, trouble) is only for the asks with one expectation. The others wait
 * for the next round, and find the row or start again. So an ask that expects a digest only gets
 * bytes that were checked against it, and a wrong expectation only harms the asks that have it.
 */

#include "server/cache/entry.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/http/status.h"

enum {
    RESTING_MAX = 16384, /* entries that only remember a 404 or a HEAD */
    RESTING_BYTES_MAX = 32 << 20,
    GROUP_MAX = 256, /* entries of one key */
};

static void advance_cache_entry(struct cache_entry *n);

/* --- Vary groups ------------------------------------------------------------------------------ */

/* All entries of one key: one for each variant that somebody asks for, or that is remembered. While
 * nobody knows what the key's answers vary by, all wait at one entry, for the head that tells; from
 * then on each variant goes its own way. A key that does not vary has one. */
struct vary_group {
    UT_hash_handle hh;
    struct slice row_key;
    struct list entries;
    unsigned count;
    bool walked;     /* not freed meanwhile */
    struct buf like; /* the tail of the last one that was seen to vary; empty: none was */
    char bytes[];    /* row_key's */
};

static struct vary_group *group_of(struct cache *c, struct slice row_key)
{
    struct vary_group *g = NULL;

    HASH_FIND(hh, c->groups, row_key.p, row_key.n, g);
    return g;
}

/* What is said of just these values goes before what is for everybody, and that before what nobody
 * knows yet. */
static int vary_match_rank(const struct cache_entry *n, const struct lookup *w)
{
    if (!n->vary_key_known) {
        return 1;
    }
    return !vary_matches(buf_slice(&n->vary_key), w) ? 0 : n->vary_key.n == 0 ? 2 : 3;
}

/* The entry where a want of that key belongs; or NULL. */
static struct cache_entry *group_find(struct cache *c, struct slice row_key, const struct lookup *w)
{
    const struct vary_group *g = group_of(c, row_key);
    struct cache_entry *best = NULL;
    int highest = 0;

    if (g == NULL) {
        return NULL;
    }
    LIST_EACH (&g->entries, it) {
        struct cache_entry *n = LIST_ITEM(it, struct cache_entry, node);
        int r = vary_match_rank(n, w);
        if (r > highest) {
            highest = r;
            best = n;
        }
    }
    return best;
}

static bool group_is_full(struct cache *c, struct slice row_key)
{
    const struct vary_group *g = group_of(c, row_key);

    return g != NULL && g->count >= GROUP_MAX;
}

static void set_entry_text(struct buf *to, struct slice s)
{
    buf_clear(to);
    buf_adds(to, s);
    CHECK(to->rc == 0);
}

static void set_variant(struct cache_entry *n, struct slice vary_key)
{
    set_entry_text(&n->vary_key, vary_key);
    n->vary_key_known = true;
    if (n->group != NULL && vary_key.n != 0) {
        set_entry_text(&n->group->like, vary_key);
    }
}

/* It varies by the same fields. */
static void set_variant_like(struct cache_entry *n, const struct lookup *w, struct slice vary_key)
{
    struct arena a = {0};

    set_variant(n, variant_like(w, vary_key, &a));
    arena_fini(&a);
}

/* w: who will ask first. */
static void group_join(struct cache_entry *n, const struct lookup *w)
{
    struct cache *c = n->cache;
    struct vary_group *g = group_of(c, n->row_key);

    if (g == NULL) {
        g = mem_new(sizeof *g + n->row_key.n);
        memcpy(g->bytes, n->row_key.p, n->row_key.n);
        g->row_key = slice_of(g->bytes, n->row_key.n);
        g->like = BUF_INIT(VARY_KEY_MAX);
        list_init(&g->entries);
        HASH_ADD_KEYPTR(hh, c->groups, g->row_key.p, g->row_key.n, g);
    }
    n->group = g;
    g->count++;
    list_push_back(&g->entries, &n->node);
    if (g->like.n != 0) {
        set_variant_like(n, w, buf_slice(&g->like));
    }
}

static void free_empty_vary_group(struct cache *c, struct vary_group *g)
{
    if (g->count == 0 && !g->walked) {
        HASH_DEL(c->groups, g);
        buf_free(&g->like);
        free(g);
    }
}

static void group_leave(struct cache_entry *n)
{
    struct vary_group *g = n->group;

    n->group = NULL;
    list_remove(&n->node);
    g->count--;
    free_empty_vary_group(n->cache, g);
}

/* Of all row keys with that prefix. Those that are met may leave. */
static void groups_each(struct cache *c, struct slice key, bool below,
                        void (*each)(struct cache_entry *n))
{
    struct vary_group *g;
    struct vary_group *tmp;

    HASH_ITER(hh, c->groups, g, tmp)
    {
        if (!object_key_is(g->row_key, key, below)) {
            continue;
        }
        g->walked = true;
        LIST_EACH (&g->entries, it) {
            each(LIST_ITEM(it, struct cache_entry, node));
        }
        g->walked = false;
        free_empty_vary_group(c, g);
    }
}

/* n only remembers something from now on. When too many of its key do, the one that has for the
 * longest; else NULL. */
static struct cache_entry *group_rest(struct cache_entry *n)
{
    struct cache_entry *oldest = NULL;
    unsigned resting = 0;

    list_remove(&n->node);
    list_push_back(&n->group->entries, &n->node);
    LIST_EACH (&n->group->entries, it) {
        struct cache_entry *m = LIST_ITEM(it, struct cache_entry, node);
        if (list_linked(&m->rest)) {
            oldest = oldest == NULL ? m : oldest;
            resting++;
        }
    }
    return resting > VARIANTS_MAX ? oldest : NULL;
}

/* --- asks ------------------------------------------------------------------------------------- */

static bool expected_digest_eq(const struct expected_digest *a, const struct expected_digest *b)
{
    return a->known == b->known && (!a->known || digest_eq(&a->digest, &b->digest));
}

bool was_expected(const struct cache_ask *k, const struct expected_digest *p)
{
    struct expected_digest made = {k->lookup.digest_known, k->lookup.digest};

    return expected_digest_eq(&made, p);
}

/* The promise made to whoever has waited longest; false: nobody waits. */
static bool next_round(struct cache_entry *n)
{
    if (list_empty(&n->asks)) {
        return false;
    }
    const struct lookup *w = &LIST_ITEM(n->asks.next, struct cache_ask, node)->lookup;
    n->expected_digest = (struct expected_digest){w->digest_known, w->digest};
    return true;
}

/* The next of this round, or NULL. */
static struct cache_ask *entry_first(struct cache_entry *n)
{
    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (was_expected(k, &n->expected_digest)) {
            return k;
        }
    }
    return NULL;
}

/* Requests that wait for a stalled origin must not use up the memory: an object counts once,
 * however many requests wait for it, and all waiting requests together have a wider bound
 * (crowd.h). */
static bool is_admitted(const struct cache_entry *n, const struct cache_ask *k)
{
    return crowd_admits(origin_crowd(k->origin), k->lookup.client, n->crowd == NULL);
}

static void enlist(struct cache_entry *n, struct cache_ask *k)
{
    k->until_ms = 0;
    list_push_back(&n->asks, &k->node);
    k->entry = n;
    crowd_come(origin_crowd(k->origin), &k->place, k->lookup.client);
    n->cache->count.waiting++;
    if (n->crowd == NULL) {
        n->crowd = origin_hold(k->origin);
        crowd_take(origin_crowd(n->crowd), &n->place, k->lookup.client);
    }
    for (unsigned i = 0; i < k->clients.count; i++) {
        entry_share(n, k->clients.client[i]);
    }
}

/* When whoever has the place leaves, it is the next one's who waits there. */
void entry_unlist(struct cache_entry *n, struct cache_ask *k)
{
    bool had_place = crowd_client(n->place.account) == k->lookup.client;

    list_remove(&k->node);
    k->entry = NULL;
    crowd_go(origin_crowd(k->origin), &k->place);
    n->cache->count.waiting--;
    if (list_empty(&n->asks)) {
        crowd_give(origin_crowd(n->crowd), &n->place);
        origin_free(&n->crowd);
    } else if (had_place) {
        const struct cache_ask *next = LIST_ITEM(n->asks.next, struct cache_ask, node);
        crowd_take(origin_crowd(n->crowd), &n->place, next->lookup.client);
    }
}

void entry_share(struct cache_entry *n, uint64_t client)
{
    if (!fair_clients_add(&n->clients, client)) {
        return;
    }
    if (n->fetch != NULL) {
        fetch_share(n->fetch, client);
    } else if (n->looking) {
        pool_move(n->cache->disk, &n->look, client);
    }
}

/* Those who ask now, the first of this round in front. */
static void gather_clients(struct cache_entry *n)
{
    n->clients = (struct fair_clients){0};
    fair_clients_add(&n->clients, entry_first(n)->lookup.client);
    LIST_EACH (&n->asks, it) {
        const struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        for (unsigned i = 0; i < k->clients.count; i++) {
            fair_clients_add(&n->clients, k->clients.client[i]);
        }
        if (n->clients.count == FAIR_CLIENTS_MAX) {
            return;
        }
    }
}

/* --- those who leave, or are sent away -------------------------------------------------------- */

/* Not at once: the caller may be in the midst of this entry. */
static void see_whether_forsaken(struct cache_entry *n)
{
    struct cache *c = n->cache;

    if (entry_first(n) == NULL && !list_linked(&n->forsaken)) {
        list_push_back(&c->forsaken, &n->forsaken);
        event_active(c->forsake, EV_TIMEOUT, 0);
    }
}

/* A fetch that nobody waits for and that has no head yet ends; whoever asks next begins anew. */
void entries_end_forsaken(struct cache *c)
{
    struct list *it;

    while ((it = list_pop_front(&c->forsaken)) != NULL) {
        struct cache_entry *n = LIST_ITEM(it, struct cache_entry, forsaken);
        if (entry_first(n) == NULL && n->fetch != NULL) {
            fetch_forsake(n->fetch);
        }
    }
}

void entry_leave(struct cache_ask *k)
{
    struct cache_entry *n = k->entry;

    entry_unlist(n, k);
    see_whether_forsaken(n);
}

static void turn_away(struct cache *c, struct cache_ask *k)
{
    struct err why;

    COUNT(c, crowded, 1);
    err_set(&why, E_BUSY, "too many requests are waiting for the origin; try again later");
    ask_answer(k, answer_of_status(c, 503, CACHE_FAILED, BUSY_S, &why));
}

static void send_away(struct cache_ask *k)
{
    struct cache *c = k->cache;

    entry_leave(k);
    turn_away(c, k);
}

/* Somebody with little has come to a full crowd: whoever has most gives what came last. A place is
 * given by all of the client's who wait there; another's who waits there, too, has it then. */
static void make_room_in_crowd(struct crowd *w)
{
    struct crowd_place *p;
    struct crowd_ask *a;

    while ((p = crowd_place_over(w)) != NULL) {
        struct cache_entry *n = CONTAINER_OF(p, struct cache_entry, place);
        uint64_t client = crowd_client(p->account);
        LIST_EACH (&n->asks, it) {
            struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
            if (k->lookup.client == client) {
                send_away(k);
            }
        }
    }
    while ((a = crowd_ask_over(w)) != NULL) {
        send_away(CONTAINER_OF(a, struct cache_ask, place));
    }
}

static struct cache_ask *take_ask(struct cache_entry *n)
{
    struct cache_ask *k = entry_first(n);

    if (k != NULL) {
        entry_unlist(n, k);
    }
    return k;
}

/* All of this round. Takes a. */
void entry_answer(struct cache_entry *n, struct answer *a)
{
    struct cache_ask *k;

    while ((k = take_ask(n)) != NULL) {
        ask_answer(k, answer_hold(a));
    }
    answer_release(&a);
}

/* --- the table -------------------------------------------------------------------------------- */

static size_t entry_text_bytes(const struct cache_entry *n)
{
    return n->memory != NULL ? n->memory->text.n : 0;
}

static void end_rest(struct cache_entry *n)
{
    if (list_linked(&n->rest)) {
        list_remove(&n->rest);
        n->cache->resting_count--;
        n->cache->resting_bytes -= entry_text_bytes(n);
    }
}

static void leave_table(struct cache_entry *n)
{
    if (n->group != NULL) {
        group_leave(n);
    }
    end_rest(n);
}

static void end_look(struct cache_entry *n)
{
    origin_free(&n->look_origin);
    arena_fini(&n->look_arena);
}

static void entry_free(struct cache_entry *n)
{
    CHECK(list_empty(&n->asks) && n->fetch == NULL && !n->looking && n->settling == 0);
    leave_table(n);
    list_remove_if(&n->forsaken);
    hit_free(&n->old);
    answer_release(&n->memory);
    if (n->patience != NULL) {
        event_free(n->patience);
    }
    buf_free(&n->vary_key);
    buf_free(&n->look_like);
    arena_fini(&n->arena);
    free(n);
}

static struct cache_entry *entry_new(struct cache *c, const struct cache_ask *k)
{
    struct cache_entry *n = NEW(struct cache_entry);

    n->cache = c;
    n->row_key = arena_copy(&n->arena, k->row_key);
    n->repo = arena_copy(&n->arena, k->lookup.repo);
    n->origin = origin_identity(k->origin);
    list_init(&n->asks);
    n->vary_key = n->look_like = BUF_INIT(VARY_KEY_MAX);
    group_join(n, &k->lookup);
    return n;
}

/* Nobody asks and nothing is under way: what is remembered may stay for its time, within a
 * bound. */
static void rest_or_free(struct cache_entry *n, uint64_t now_ms)
{
    struct cache *c = n->cache;
    bool remembers = n->group != NULL && !c->closing &&
                     ((n->memory != NULL && now_ms < n->memory_until_ms) ||
                      now_ms < n->trouble_until_ms || now_ms < n->failed_until_ms);

    hit_free(&n->old);
    if (!remembers) {
        entry_free(n);
        return;
    }
    if (!list_linked(&n->rest)) {
        list_push_back(&c->resting, &n->rest);
        c->resting_count++;
        c->resting_bytes += entry_text_bytes(n);
        n = group_rest(n);
        if (n != NULL) {
            entry_free(n);
        }
    }
    while (c->resting_count > RESTING_MAX || c->resting_bytes > RESTING_BYTES_MAX) {
        entry_free(LIST_ITEM(c->resting.next, struct cache_entry, rest));
    }
}

void entries_rest_tick(struct cache *c, uint64_t now_ms)
{
    LIST_EACH (&c->resting, it) {
        struct cache_entry *n = LIST_ITEM(it, struct cache_entry, rest);
        if (now_ms >= n->memory_until_ms && now_ms >= n->trouble_until_ms &&
            now_ms >= n->failed_until_ms) {
            entry_free(n);
        }
    }
}

static bool is_at_work(const struct cache_entry *n)
{
    return n->fetch != NULL || n->looking || n->settling > 0;
}

static void forget_cache_entry(struct cache_entry *n)
{
    leave_table(n);
    if (n->fetch != NULL) {
        fetch_keep_no_more(n->fetch);
    } else if (!is_at_work(n)) {
        entry_free(n);
    }
}

static void note_forgotten(struct cache *c, struct slice key, bool below, enum forgetting how)
{
    if (c->neighbors != NULL) {
        forgotten_add(&c->forgotten, key, below, how, clock_unix_s());
    }
}

void entries_forget(struct cache *c, struct slice key, bool below)
{
    note_forgotten(c, key, below, FORGOT_BYTES);
    groups_each(c, key, below, forget_cache_entry);
}

/* What never changes goes on: nobody asks for it anew. */
static void expire(struct cache_entry *n)
{
    const struct lookup *w = n->fetch != NULL ? fetch_lookup(n->fetch)
                             : list_empty(&n->asks)
                                 ? NULL
                                 : &LIST_ITEM(n->asks.next, struct cache_ask, node)->lookup;

    if (w == NULL || w->class == LOOKUP_MUTABLE) {
        forget_cache_entry(n);
    }
}

void entries_expire(struct cache *c, struct slice key, bool below)
{
    note_forgotten(c, key, below, FORGOT_FRESHNESS);
    groups_each(c, key, below, expire);
}

/* --- trouble ---------------------------------------------------------------------------------- */

static struct answer *answer_of_trouble(struct cache_entry *n, const struct lookup *w, int rc,
                                        const struct err *why)
{
    struct cache *c = n->cache;
    int status = status_of_error(rc, STATUS_ORIGIN);

    if (n->old != NULL && rc != E_REFUSED &&
        freshness_allows_stale_on_error(&n->old->object, w, clock_unix_s())) {
        log_warn("cache.stale", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(n->repo), why->text);
        return answer_of_blob(c, &n->old->object, n->old->blob, w, CACHE_STALE);
    }
    if ((w->errors & TROUBLE_IS_ABSENCE) != 0 && rc != E_CANCELLED) {
        return answer_of_status(c, 404, CACHE_NEGATIVE, 0, NULL);
    }
    return answer_of_status(c, status, CACHE_FAILED, status == 503 ? BUSY_S : 0, why);
}

void entry_answer_trouble(struct cache_entry *n, int rc, const struct err *why)
{
    struct cache_ask *k = entry_first(n);

    if (k != NULL) {
        entry_answer(n, answer_of_trouble(n, &k->lookup, rc, why));
    }
}

/* One of them alone, which waits no longer. */
static void entry_answer_one_trouble(struct cache_entry *n, struct cache_ask *k, int rc,
                                     const struct err *why)
{
    struct answer *a = answer_of_trouble(n, &k->lookup, rc, why);

    entry_unlist(n, k);
    ask_answer(k, a);
}

void entry_remember_trouble(struct cache_entry *n, int rc, const struct err *why)
{
    n->trouble_until_ms = clock_now_ms() + TROUBLE_MS;
    n->trouble = *why;
    n->trouble.code = rc;
    n->trouble_expected_digest = n->expected_digest;
}

/* That its bytes are not what was promised concerns nobody else. */
static bool in_trouble(const struct cache_entry *n)
{
    return clock_now_ms() < n->trouble_until_ms &&
           (n->trouble.code != E_CORRUPT ||
            expected_digest_eq(&n->trouble_expected_digest, &n->expected_digest));
}

/* --- variants --------------------------------------------------------------------------------- */

/* From now on k's request to the origin has all fields by which n's answers vary, beside those that
 * were named before. So an ask that caused a fetch asks again at most once for each such field,
 * whatever each answer's Vary names. */
static void send_named(struct cache_entry *n, struct cache_ask *k)
{
    k->lookup.forward = variant_send(&k->lookup, buf_slice(&n->vary_key), &k->arena);
}

/* Those that n is not for. */
static void part_ways(struct cache_entry *n)
{
    struct list others;
    struct list *it;

    list_init(&others);
    LIST_EACH (&n->asks, at) {
        struct cache_ask *k = LIST_ITEM(at, struct cache_ask, node);
        if (!vary_matches(buf_slice(&n->vary_key), &k->lookup)) {
            entry_unlist(n, k);
            send_named(n, k);
            list_push_back(&others, at);
        }
    }
    while ((it = list_pop_front(&others)) != NULL) {
        entry_ask(n->cache, LIST_ITEM(it, struct cache_ask, node));
    }
}

void entry_is_for(struct cache_entry *n, struct slice vary_key)
{
    if (!slice_eq(buf_slice(&n->vary_key), vary_key)) {
        answer_release(&n->memory); /* that was for others */
    }
    set_variant(n, vary_key);
    if (n->group != NULL) {
        LIST_EACH (&n->group->entries, it) { /* one fetch a row: the latest word counts */
            struct cache_entry *m = LIST_ITEM(it, struct cache_entry, node);
            if (m != n && m->fetch != NULL && fetch_is_headed(m->fetch) &&
                slice_eq(buf_slice(&m->vary_key), vary_key)) {
                forget_cache_entry(m);
            }
        }
    }
    part_ways(n);
}

/* --- patience --------------------------------------------------------------------------------- */

/* How long those who ask wait for an origin that says nothing (lookup.h: patience_ms).
 *
 *                      a stale copy may be served          there is none
 *   origin heard       waits for `patience`                waits for the request's end
 *   origin doubted     is answered at once                 waits for `patience`
 *   origin silent      is answered at once                 is answered at once
 *
 * Those who wait for a request's end are answered, too, when another request finds the origin
 * silent.
 *
 * That answer is the one of an origin in trouble: the stale copy, else the reason why there is
 * nothing. The request goes on, and what it brings is kept. A silent origin (fetch/silence.h) is
 * not asked, except by one request now and then that nobody waits for.
 */

/* What the origin has been heard to say, for who asks in k. */
static enum origin_word patience_word(const struct cache_ask *k, struct err *why)
{
    return k->lookup.patience_ms != 0
               ? origin_client_word(k->cache->origin_client, k->origin, k->lookup.url, why)
               : ORIGIN_HEARD;
}

static bool has_stale(const struct cache_entry *n, const struct cache_ask *k)
{
    return n->old != NULL &&
           freshness_allows_stale_on_delay(&n->old->object, &k->lookup, clock_unix_s());
}

static void on_lookup_timer(evutil_socket_t fd, short what, void *arg);

/* For whoever loses patience first. */
static void set_timer(struct cache_entry *n, uint64_t now_ms)
{
    uint64_t first_ms = UINT64_MAX;
    struct timeval tv;

    LIST_EACH (&n->asks, it) {
        const struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (k->until_ms != 0) {
            first_ms = min_u64(first_ms, k->until_ms);
        }
    }
    if (first_ms == UINT64_MAX) {
        return;
    }
    if (n->patience == NULL) {
        n->patience = evtimer_new(n->cache->base, on_lookup_timer, n);
        CHECK(n->patience != NULL);
    }
    tv = clock_timeval(first_ms - min_u64(first_ms, now_ms));
    evtimer_add(n->patience, &tv);
}

/* Who is answered without the fetch's word may be its last: what it brings is wanted by those who
 * come later. */
static void goes_on_alone(struct cache_entry *n)
{
    if (list_empty(&n->asks) && n->fetch != NULL && !fetch_is_headed(n->fetch) &&
        (n->old != NULL || fetch_lookup(n->fetch)->document)) {
        fetch_go_on_alone(n->fetch);
    }
}

static void answer_without_word(struct cache_entry *n, struct cache_ask *k, const struct err *why)
{
    struct err late;

    if (why == NULL || why->code == 0) {
        err_set(&late, E_TIMEOUT, "the origin did not answer within %" PRIu64 " ms",
                k->lookup.patience_ms);
        why = &late;
    }
    entry_answer_one_trouble(n, k, why->code, why);
    goes_on_alone(n);
}

static void on_lookup_timer(evutil_socket_t fd, short what, void *arg)
{
    struct cache_entry *n = arg;
    uint64_t now = clock_now_ms();

    (void)fd;
    (void)what;
    CHECK(n->fetch != NULL && !fetch_is_headed(n->fetch));
    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        struct err why = {0};
        enum origin_word word;
        if (k->until_ms == 0 || k->until_ms > now) {
            continue;
        }
        word = patience_word(k, &why);
        if (word == ORIGIN_HEARD && !has_stale(n, k)) {
            k->until_silent = true; /* it speaks, though not of this yet */
        }
        if (k->until_silent && word != ORIGIN_SILENT) {
            k->until_ms = now + k->lookup.patience_ms;
        } else {
            answer_without_word(n, k, &why);
        }
    }
    set_timer(n, now);
}

static void begin_one(struct cache_entry *n, struct cache_ask *k, uint64_t now_ms)
{
    struct err why = {0};
    enum origin_word word = patience_word(k, &why);

    k->until_ms = 0;
    k->until_silent = word == ORIGIN_HEARD && !has_stale(n, k);
    if (k->loop == NULL || k->lookup.patience_ms == 0) {
        return;
    }
    if (word == ORIGIN_SILENT || (word == ORIGIN_DOUBTED && has_stale(n, k))) {
        answer_without_word(n, k, &why);
        return;
    }
    k->until_ms = now_ms + k->lookup.patience_ms;
}

/* A request has begun for all of this round. */
static void patience_begin(struct cache_entry *n)
{
    uint64_t now = clock_now_ms();

    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (was_expected(k, &n->expected_digest)) {
            begin_one(n, k, now);
        }
    }
    set_timer(n, now);
}

/* k has come while it is out. */
static void patience_join(struct cache_entry *n, struct cache_ask *k)
{
    uint64_t now = clock_now_ms();

    if (n->fetch == NULL || fetch_is_headed(n->fetch) || !was_expected(k, &n->expected_digest)) {
        return;
    }
    begin_one(n, k, now);
    set_timer(n, now);
}

/* Its word has come, or its end. */
static void patience_end(struct cache_entry *n)
{
    LIST_EACH (&n->asks, it) {
        LIST_ITEM(it, struct cache_ask, node)->until_ms = 0;
    }
    if (n->patience != NULL) {
        evtimer_del(n->patience);
    }
}

/* --- the fetch -------------------------------------------------------------------------------- */

static void on_headed(void *arg, struct fetch *f)
{
    struct cache_entry *n = arg;
    struct fetch_view v = fetch_view(f);
    struct cache_ask *k;

    patience_end(n);
    n->failed_until_ms = 0;
    entry_is_for(n, v.vary_key);
    if (entry_first(n) == NULL) { /* all who asked want another variant: as if they had left */
        fetch_look_again(f);
    }
    while ((k = take_ask(n)) != NULL) {
        enum cache_state state = fetch_is_stale(f)   ? CACHE_STALE
                                 : n->first_reported ? CACHE_COLLAPSED
                                 : v.replaces        ? CACHE_REFRESHED
                                                     : CACHE_MISS;
        n->first_reported = true;
        ask_answer(k, answer_of_fetch(f, &k->lookup, state));
    }
    if (!n->first_reported) { /* all have left: it is decided once it runs */
        fetch_look_again(f);
    }
}

static void on_other(void *arg, struct fetch *f, const struct origin_head *h)
{
    verdict_take(arg, f, h);
}

/* It had its share of the store; the others of this round have theirs, and ask anew. */
static void answer_over_share(struct cache_entry *n, uint64_t client, const struct err *why)
{
    struct cache *c = n->cache;
    uint64_t now = clock_unix_s();

    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (k->lookup.client != client || !was_expected(k, &n->expected_digest)) {
            continue;
        }
        entry_unlist(n, k);
        if (n->old != NULL && freshness_allows_stale_on_error(&n->old->object, &k->lookup, now)) {
            ask_answer(k,
                       answer_of_blob(c, &n->old->object, n->old->blob, &k->lookup, CACHE_STALE));
        } else {
            ask_answer(k, answer_of_status(c, 507, CACHE_FAILED, 0, why));
        }
    }
}

static void on_ended(void *arg, struct fetch *f, int rc, const struct err *why)
{
    struct cache_entry *n = arg;
    struct fetch_view v = fetch_view(f);
    struct cache *c = n->cache;

    patience_end(n);
    if (rc == 0) {
        log_info("fetch.done", "repo=" SLICE_FMT " bytes=%" PRIu64 " took_ms=%" PRIu64 " kept=%d",
                 SLICE_ARG(n->repo), v.total_bytes, v.age_ms, v.use == USE_KEPT);
        cache_changed(c, n->row_key);
    } else if (rc == E_CHANGED) { /* its readers are cut; who asks from now on gets the new one */
        log_info("fetch.changed", "repo=" SLICE_FMT, SLICE_ARG(n->repo));
    } else if (rc == E_CANCELLED && !c->closing) {
        /* Nobody read it any more, or its head was dealt with: who has come meanwhile begins
         * anew. */
    } else if (rc == E_NOSPACE && v.over_share) {
        log_info("fetch.over_share", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(n->repo),
                 why->text);
        answer_over_share(n, fetch_lookup(f)->client, why);
    } else if (!n->answered) {
        log_warn("fetch.failed", "repo=" SLICE_FMT " why=\"%s\"", SLICE_ARG(n->repo), why->text);
        n->vary_key_known = n->memory != NULL; /* no word of the origin's: it concerns all */
        if (rc != E_CANCELLED) {
            entry_remember_trouble(n, rc, why);
        }
        entry_answer_trouble(n, rc, why);
    }
    if (rc == E_CORRUPT && fetch_has_neighbors(f)) { /* the copy of one of them may be damaged */
        forgotten_add(&c->forgotten, n->row_key, false, FORGOT_NEIGHBORS, clock_unix_s());
    }
    fetch_release(&n->fetch);
    hit_free(&n->old);
    advance_cache_entry(n);
}

/* --- the look at the row, and what follows ---------------------------------------------------- */

static void look_up_entry_row(struct job *j)
{
    struct cache_entry *n = CONTAINER_OF(j, struct cache_entry, look);
    struct err e;

    if (hit_find(n->cache, n->row_key, &n->look_lookup, &n->old, &n->look_like, &e) != 0) {
        n->old = NULL;
    }
}

/* A range from the end of what is not here: a HEAD tells how long it is, unless an index has. */
static bool must_probe(struct cache_entry *n, struct lookup *w)
{
    bool reported = n->memory_is_head && n->memory != NULL && n->memory->status == 200 &&
                    n->memory->total_bytes != LENGTH_UNKNOWN;

    if (w->hint_suffix == 0 || w->size_bytes != LENGTH_UNKNOWN || n->old != NULL) {
        return false;
    }
    if (reported) {
        w->hint_end = n->memory->total_bytes;
        w->hint_first = w->hint_end - min_u64(w->hint_suffix, w->hint_end);
    }
    if (reported || n->probe == PROBES_LENGTH) {
        w->hint_suffix = 0;
        return false;
    }
    return true;
}

/* One neighbor that waits is enough: the fetch asks no parent. */
static enum lookup_asker asker_of_round(struct cache_entry *n)
{
    LIST_EACH (&n->asks, it) {
        if (LIST_ITEM(it, struct cache_ask, node)->lookup.asker != CLIENT_ASKS) {
            return NEIGHBOR_ASKS;
        }
    }
    return CLIENT_ASKS;
}

/* An owner must not answer from its own copy what was refused, expired or removed here. */
static enum forgetting doubt_neighbors(struct cache_entry *n, struct lookup *w)
{
    const struct object *old = n->old != NULL ? &n->old->object : NULL;
    enum forgetting how = forgotten_since(&n->cache->forgotten, n->row_key,
                                          old != NULL ? old->stored_unix_s : 0, clock_unix_s());

    if (how == FORGOT_BYTES) {
        w->stored = STORED_IS_DOUBTED;
    }
    if (how == FORGOT_FRESHNESS || (old != NULL && old->must_ask)) {
        w->request_cache_control.refresh = true;
        w->floor_s = 0;
    }
    return how;
}

/* asks_back: nobody waits for what comes of it but the question whether the origin is back. */
static void begin_fetch(struct cache_entry *n, bool asks_back)
{
    static const struct fetch_owner owner = {on_headed, on_other, on_ended};
    struct cache_ask *k = entry_first(n);
    struct fetch_begin how;
    enum forgetting forgot;
    struct lookup w;

    LIST_EACH (&n->asks, it) { /* one GET serves the HEADs too */
        struct cache_ask *other = LIST_ITEM(it, struct cache_ask, node);
        if (!other->lookup.head_only && was_expected(other, &n->expected_digest)) {
            k = other;
            break;
        }
    }
    n->first_reported = n->answered = false;
    if (n->old != NULL) {
        /* A conditional GET costs no more, unless it has changed: then nobody has asked for so many
         * bytes. */
        k->lookup.head_only = k->lookup.head_only && n->old->object.size_bytes > GET_FOR_HEAD_BYTES;
        k->lookup.hint_first = 0;
        k->lookup.hint_end = LENGTH_UNKNOWN;
        k->lookup.hint_suffix = 0;
    }
    if (k->lookup.repr_digest == REPR_DIGEST_ASKED) {
        k->lookup.head_only = n->old != NULL && !n->ask_plainly;
    }
    send_named(n, k);
    w = k->lookup;
    w.asker = asker_of_round(n);
    forgot = doubt_neighbors(n, &w);
    w.forward = variant_sent(&w, &k->arena);
    n->probe = must_probe(n, &w)                            ? PROBES_LENGTH
               : asks_back && n->old == NULL && !w.document ? PROBES_ORIGIN
                                                            : PROBES_NOTHING;
    w.head_only = w.head_only || n->probe != PROBES_NOTHING;
    how = (struct fetch_begin){.lookup = &w,
                               .row_key = n->row_key,
                               .old = n->old != NULL && !n->ask_plainly && w.stored == STORED_COUNTS
                                          ? &n->old->object
                                          : NULL,
                               .replaces = n->old != NULL,
                               .asks_origin = forgot == FORGOT_NEIGHBORS,
                               .found = n->group != NULL};
    n->fetch = fetch_start(n->cache, &how, &owner, n);
    n->ask_plainly = false;
    for (unsigned i = 0; i < n->clients.count; i++) {
        fetch_share(n->fetch, n->clients.client[i]);
    }
}

/* What is there tells what it varies by, before the origin does. */
static void learn_vary_key(struct cache_entry *n)
{
    const struct lookup *w = &n->look_lookup;
    struct arena a = {0};
    struct slice vary_key = SLICE("");

    if (n->old != NULL && n->old->vary_key.n != 0) {
        vary_key = n->old->vary_key;
    } else if (n->look_like.n != 0) {
        vary_key = variant_like(w, buf_slice(&n->look_like), &a);
    } else if (n->old != NULL) {
        vary_key = variant_of_answer(w, n->old->object.fields, n->old->object.nfields, &a);
    }
    if (vary_key.n != 0) {
        set_variant(n, vary_key);
        part_ways(n);
    }
    arena_fini(&a);
}

static void on_looked(struct job *j)
{
    struct cache_entry *n = CONTAINER_OF(j, struct cache_entry, look);
    struct cache *c = n->cache;
    struct cache_ask *k;
    uint64_t now = clock_unix_s();
    struct err why;

    c->busy--;
    n->looking = false;
    learn_vary_key(n);
    end_look(n);
    k = entry_first(n);
    if (k == NULL) { /* all have left */
        hit_free(&n->old);
        advance_cache_entry(n);
        return;
    }
    if (c->closing) {
        err_set(&why, E_CANCELLED, "the server is shutting down");
        entry_answer_trouble(n, E_CANCELLED, &why);
        hit_free(&n->old);
        advance_cache_entry(n);
        return;
    }
    if (n->old != NULL && freshness_judge(&n->old->object, &k->lookup, now) == FRESH) {
        entry_answer(n, answer_of_blob(c, &n->old->object, n->old->blob, &k->lookup, CACHE_HIT));
        hit_free(&n->old);
        advance_cache_entry(n);
    } else if (in_trouble(n)) {
        entry_answer_trouble(n, n->trouble.code, &n->trouble);
        hit_free(&n->old);
        advance_cache_entry(n);
    } else if (patience_word(k, &why) != ORIGIN_SILENT) {
        begin_fetch(n, false);
        patience_begin(n);
    } else if (origin_client_probes(c->origin_client, k->origin, k->lookup.url)) {
        begin_fetch(n, true);
        patience_begin(n);
    } else {
        entry_answer_trouble(n, why.code, &why);
        hit_free(&n->old);
        advance_cache_entry(n);
    }
}

/* Nothing is under way: what do those who ask need? */
static void advance_cache_entry(struct cache_entry *n)
{
    struct cache *c = n->cache;
    const struct cache_ask *k;

    if (n->settling > 0) { /* a row that is being removed would still be found */
        return;
    }
    if (!next_round(n)) {
        rest_or_free(n, clock_now_ms());
        return;
    }
    n->looking = true;
    k = entry_first(n);
    n->look_origin = origin_hold(k->origin);
    lookup_copy(&n->look_arena, &k->lookup, &n->look_lookup);
    n->look = (struct job){.work = look_up_entry_row, .done = on_looked, .reply = c->mail};
    c->busy++;
    gather_clients(n);
    pool_submit(c->disk, &n->look, n->clients.client[0]);
    for (unsigned i = 1; i < n->clients.count; i++) {
        pool_move(c->disk, &n->look, n->clients.client[i]);
    }
}

void entry_settled(struct cache_entry *n)
{
    n->settling--;
    if (!is_at_work(n)) {
        advance_cache_entry(n);
    }
}

/* A client's no-cache counts for a no as for an object: within the floor. */
static bool looks_again(const struct answer *a, const struct lookup *w, uint64_t now)
{
    return w->request_cache_control.refresh && now >= a->stored_unix_s + w->floor_s;
}

static bool remembered(struct cache_entry *n, struct cache_ask *k)
{
    if (n->memory == NULL || clock_now_ms() >= n->memory_until_ms ||
        k->lookup.stored == STORED_IS_DOUBTED ||
        (n->memory_is_head &&
         (!k->lookup.head_only || !was_expected(k, &n->memory_expected_digest))) ||
        (((k->lookup.errors & ERRORS_PASSED_ON) != 0 || k->lookup.asker != CLIENT_ASKS) &&
         looks_again(n->memory, &k->lookup, clock_unix_s()))) {
        return false;
    }
    ask_answer(k, answer_hold(n->memory));
    return true;
}

/* Is what k wants under way, and may k have it? What the origin would not have kept is for those
 * alone who had asked when it answered. What has come whole and is not fresh any more is as an
 * object in the store: the origin is asked. */
static bool is_coming(const struct cache_entry *n, const struct cache_ask *k)
{
    struct fetch *f = n->fetch;
    struct fetch_view v;

    if (f == NULL || !fetch_is_headed(f) || !was_expected(k, &n->expected_digest)) {
        return false;
    }
    v = fetch_view(f);
    return !v.failed && v.use != USE_ASKERS &&
           (!fetch_complete(f) ||
            freshness_judge(fetch_object(f), &k->lookup, clock_unix_s()) != STALE);
}

/* Somebody has asked the origin, or it was in trouble just now: no need of a revalidation in the
 * background. */
static bool is_seen_to(const struct cache_entry *n)
{
    return n->fetch != NULL || n->looking || clock_now_ms() < n->trouble_until_ms;
}

static void too_large(struct cache *c, struct err *why)
{
    struct store_space space;
    char advice[SPACE_ADVICE];

    store_space(c->store, &space);
    err_set(why, E_NOSPACE,
            "the object is larger than the quota; request ranges of it, or make room: %s",
            store_space_advice(&space, advice));
}

/* A neighbor's ask waits for no fetch that may wait for a neighbor in its turn. One for what is
 * held waits for none that has not begun to bring bytes (neighbor.h). */
static bool must_ask_elsewhere(const struct cache_entry *n, const struct cache_ask *k)
{
    if (k->lookup.asker == NEIGHBOR_ASKS_HELD) {
        return n == NULL || !is_coming(n, k) || !fetch_is_first_hand(n->fetch);
    }
    return n != NULL && n->fetch != NULL && !fetch_is_first_hand(n->fetch);
}

/* The mirror that asks has found the owner dead, and takes this one for the next: this one's fetch
 * may not have noticed yet. If the mirror were refused, both would ask the origin. */
static void become_owner(const struct cache_entry *n, const struct cache_ask *k)
{
    if (k->lookup.asker == NEIGHBOR_ASKS && k->lookup.parent == PARENT_IS_DEAD && n != NULL &&
        n->fetch != NULL) {
        fetch_leave_parent(n->fetch);
    }
}

void entry_ask(struct cache *c, struct cache_ask *k)
{
    struct cache_entry *n = group_find(c, k->row_key, &k->lookup);
    struct origin *origin;
    struct err why;

    if (c->closing) {
        err_set(&why, E_CANCELLED, "the server is shutting down");
        ask_answer(k, answer_of_status(c, 503, CACHE_FAILED, BUSY_S, &why));
        return;
    }
    if (n != NULL && !origin_owns(k->origin, n->origin)) {
        /* A reload changed the origin: earlier clients keep what is known and fetched there. */
        forget_cache_entry(n);
        n = NULL;
    }
    if (n == NULL && group_is_full(c, k->row_key)) {
        err_set(&why, E_BUSY,
                "too many variants of this object are requested at the same time; try again later");
        ask_answer(k, answer_of_status(c, 503, CACHE_FAILED, BUSY_S, &why));
        return;
    }
    become_owner(n, k);
    if (k->lookup.asker != CLIENT_ASKS && must_ask_elsewhere(n, k)) {
        err_set(&why, E_NOTFOUND, "this mirror has no such object");
        ask_answer(k, answer_of_status(c, 504, CACHE_MISS, 0, &why));
        return;
    }
    if (n == NULL) {
        n = entry_new(c, k);
    }
    if (is_coming(n, k) && fetch_view(n->fetch).ranges_alone && lookup_is_whole(&k->lookup)) {
        too_large(c, &why);
        ask_answer(k, answer_of_status(c, 507, CACHE_FAILED, 0, &why));
        return;
    }
    if (is_coming(n, k) && fetch_turns_away(n->fetch, &k->lookup, &why)) {
        ask_answer(k, answer_of_status(c, status_of_error(why.code, STATUS_ORIGIN), CACHE_FAILED,
                                       BUSY_S, &why));
        return;
    }
    if (is_coming(n, k)) {
        ask_answer(k, answer_of_fetch(n->fetch, &k->lookup, CACHE_COLLAPSED));
        return;
    }
    if (n->fetch != NULL && fetch_is_headed(n->fetch) && fetch_view(n->fetch).use == USE_ASKERS) {
        forget_cache_entry(n); /* that answer goes on for those who have it */
        n = entry_new(c, k);
    }
    if (remembered(n, k)) {
        return;
    }
    if (k->loop == NULL && is_seen_to(n)) {
        ask_answer(k, NULL);
        return;
    }
    if (!is_admitted(n, k)) {
        turn_away(c, k);
        if (!is_at_work(n) && !list_linked(&n->rest)) { /* it is new */
            entry_free(n);
        }
        return;
    }
    origin = origin_hold(k->origin);
    enlist(n, k);
    if (!is_at_work(n)) {
        end_rest(n);
        advance_cache_entry(n);
    } else {
        patience_join(n, k);
    }
    make_room_in_crowd(origin_crowd(origin));
    origin_free(&origin);
}

static void drop_idle(struct cache_entry *n)
{
    struct err why;

    err_set(&why, E_CANCELLED, "the server is shutting down");
    if (n->fetch == NULL && !n->looking) {
        while (next_round(n)) {
            entry_answer_trouble(n, E_CANCELLED, &why);
        }
    }
    if (!is_at_work(n)) {
        entry_free(n);
    }
}

void entries_drop_all(struct cache *c)
{
    groups_each(c, SLICE(""), true, drop_idle);
}
