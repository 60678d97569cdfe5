/* patience.c - how long those who ask wait for an origin that says nothing (want.h: patience_ms).
 *
 *                      a stale copy may be served          there is none
 *   origin heard       waits for `patience`                waits for the request's end
 *   origin doubted     is answered at once                 waits for `patience`
 *   origin silent      is answered at once                 is answered at once
 *
 * Those who wait for a request's end are answered, too, when another request finds the origin silent.
 *
 * That answer is the one of an origin in trouble: the stale copy, else the reason why there is nothing. The request goes on, and
 * what it brings is kept. A silent origin (fetch/silence.h) is not asked, except by one request now and then that nobody waits for.
 */

#include "server/cache/entry.h"

#include <inttypes.h>

#include "common/os/clock.h"

enum origin_word patience_word(const struct cache_ask *k, struct err *why)
{
    return k->want.patience_ms != 0 ? fetcher_word(k->cache->fetcher, k->origin, k->want.url, why)
                                    : ORIGIN_HEARD;
}

static bool has_stale(const struct cache_entry *n, const struct cache_ask *k)
{
    return n->old != NULL &&
           freshness_allows_stale_on_delay(&n->old->object, &k->want, clock_unix_s());
}

static void on_timer(evutil_socket_t fd, short what, void *arg);

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
        n->patience = evtimer_new(n->cache->base, on_timer, n);
        CHECK(n->patience != NULL);
    }
    tv = clock_timeval(first_ms - min_u64(first_ms, now_ms));
    evtimer_add(n->patience, &tv);
}

/* Who is answered without the fill's word may be its last: what it brings is wanted by those who come later. */
static void goes_on_alone(struct cache_entry *n)
{
    if (list_empty(&n->asks) && n->fill != NULL && !fill_is_headed(n->fill) &&
        (n->old != NULL || fill_want(n->fill)->document)) {
        fill_go_on_alone(n->fill);
    }
}

static void answer_without_word(struct cache_entry *n, struct cache_ask *k, const struct err *why)
{
    struct err late;

    if (why == NULL || why->code == 0) {
        err_set(&late, E_TIMEOUT, "the origin takes longer than %" PRIu64 " ms",
                k->want.patience_ms);
        why = &late;
    }
    entry_answer_one_trouble(n, k, why->code, why);
    goes_on_alone(n);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct cache_entry *n = arg;
    uint64_t now = clock_now_ms();

    (void)fd;
    (void)what;
    CHECK(n->fill != NULL && !fill_is_headed(n->fill));
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
            k->until_ms = now + k->want.patience_ms;
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
    if (k->loop == NULL || k->want.patience_ms == 0) {
        return;
    }
    if (word == ORIGIN_SILENT || (word == ORIGIN_DOUBTED && has_stale(n, k))) {
        answer_without_word(n, k, &why);
        return;
    }
    k->until_ms = now_ms + k->want.patience_ms;
}

void patience_begin(struct cache_entry *n)
{
    uint64_t now = clock_now_ms();

    LIST_EACH (&n->asks, it) {
        struct cache_ask *k = LIST_ITEM(it, struct cache_ask, node);
        if (was_promised(k, &n->promise)) {
            begin_one(n, k, now);
        }
    }
    set_timer(n, now);
}

void patience_join(struct cache_entry *n, struct cache_ask *k)
{
    uint64_t now = clock_now_ms();

    if (n->fill == NULL || fill_is_headed(n->fill) || !was_promised(k, &n->promise)) {
        return;
    }
    begin_one(n, k, now);
    set_timer(n, now);
}

void patience_end(struct cache_entry *n)
{
    LIST_EACH (&n->asks, it) {
        LIST_ITEM(it, struct cache_ask, node)->until_ms = 0;
    }
    if (n->patience != NULL) {
        evtimer_del(n->patience);
    }
}
