#include "server/fetch/alternates.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/codec/url.h"

enum { REST_MS = 5000, REST_DOUBLINGS = 4, REST_MAX_MS = 60000, LEAST_MAX_MS = 300000 };

struct alternate {
    char *url;
    struct url split;
    _Atomic uint32_t failures;  /* in a row */
    _Atomic uint64_t failed_ms; /* when the last of them was noted */
    _Atomic uint64_t rests_until_ms;
};

struct alternates {
    unsigned n;
    struct alternate at[ALTERNATES_MAX];
};

/* --- the list --------------------------------------------------------------------------------- */

static int add_alternate(struct alternates *a, const char *url, struct err *e)
{
    struct alternate *x = &a->at[a->n];
    size_t n = strlen(url);
    bool ends = n > 0 && url[n - 1] == '/';
    int rc;

    if (a->n == ALTERNATES_MAX) {
        return err_set(e, E_CONFIG, "more than %d are listed", ALTERNATES_MAX);
    }
    x->url = mem_new(n + 2);
    memcpy(x->url, url, n + 1);
    memcpy(x->url + n, ends ? "" : "/", ends ? 1 : 2);
    a->n++;
    rc = url_split(slice_str(x->url), &x->split, e);
    if (rc != 0 || x->split.query.p != NULL) {
        return err_set(e, E_CONFIG, "\"%.200s\" is not an http or https URL without a query", url);
    }
    for (unsigned i = 0; i + 1 < a->n; i++) {
        if (strcmp(a->at[i].url, x->url) == 0) {
            return err_set(e, E_CONFIG, "\"%.200s\" is listed twice", url);
        }
    }
    return 0;
}

int alternates_open(const char *first, const char *const *others, size_t n, struct alternates **out,
                    struct err *e)
{
    struct alternates *a = NEW(struct alternates);
    int rc = add_alternate(a, first, e);

    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = add_alternate(a, others[i], e);
    }
    if (rc != 0) {
        alternates_close(&a);
    }
    *out = a;
    return rc;
}

void alternates_close(struct alternates **ap)
{
    struct alternates *a = *ap;

    *ap = NULL;
    for (unsigned i = 0; a != NULL && i < a->n; i++) {
        free(a->at[i].url);
    }
    free(a);
}

unsigned alternates_count(const struct alternates *a)
{
    return a->n;
}

const char *alternates_url(const struct alternates *a, unsigned i)
{
    CHECK(i < a->n);
    return a->at[i].url;
}

bool alternates_have_host(const struct alternates *a, const struct url *u)
{
    bool has = false;

    for (unsigned i = 0; i < a->n && !has; i++) {
        has = url_same_host(&a->at[i].split, u);
    }
    return has;
}

bool alternates_move(const struct alternates *a, unsigned i, struct slice url, struct buf *out)
{
    CHECK(i < a->n);
    buf_clear(out);
    for (unsigned k = 0; k < a->n; k++) {
        struct slice base = slice_str(a->at[k].url);
        if (slice_starts(url, base)) {
            buf_str(out, a->at[i].url);
            buf_adds(out, slice_from(url, base.n));
            return true;
        }
    }
    return false;
}

/* --- which one -------------------------------------------------------------------------------- */

/* One that has rested is asked once, and by others not before that request has ended. True: it may
 * be asked. */
static bool is_ready(struct alternate *x, uint64_t probe_ms, uint64_t now_ms, uint64_t *until_ms)
{
    *until_ms = atomic_load(&x->rests_until_ms);
    return *until_ms == 0 ||
           (*until_ms <= now_ms &&
            atomic_compare_exchange_strong(&x->rests_until_ms, until_ms, now_ms + probe_ms));
}

unsigned alternates_choose(struct alternates *a, uint32_t tried, uint64_t probe_ms, uint64_t now_ms)
{
    unsigned best = ALTERNATE_NONE;
    uint64_t best_ms = 0;

    for (unsigned i = 0; i < a->n; i++) {
        uint64_t until_ms;

        if ((tried >> i & 1) != 0) {
            continue;
        }
        if (is_ready(&a->at[i], probe_ms, now_ms, &until_ms)) {
            return i;
        }
        if (best == ALTERNATE_NONE || until_ms < best_ms) {
            best = i;
            best_ms = until_ms;
        }
    }
    return best;
}

bool alternates_failed(struct alternates *a, unsigned i, uint64_t began_ms, uint64_t least_ms,
                       uint64_t now_ms)
{
    struct alternate *x = &a->at[i];
    uint32_t before = atomic_load(&x->failures);
    uint64_t rest_ms;

    CHECK(i < a->n);
    if (a->n == 1 || (before > 0 && began_ms <= atomic_load(&x->failed_ms))) {
        return false; /* one outage, and many requests that it hits */
    }
    rest_ms = min_u64(REST_MAX_MS,
                      (uint64_t)REST_MS << (before < REST_DOUBLINGS ? before : REST_DOUBLINGS));
    rest_ms = max_u64(rest_ms, min_u64(least_ms, LEAST_MAX_MS));
    atomic_store(&x->failed_ms, now_ms);
    atomic_store(&x->failures, before + 1);
    atomic_store(&x->rests_until_ms, now_ms + rest_ms);
    return before == 0;
}

bool alternates_worked(struct alternates *a, unsigned i, uint64_t began_ms)
{
    struct alternate *x = &a->at[i];

    CHECK(i < a->n);
    if (atomic_load_explicit(&x->failures, memory_order_relaxed) == 0 ||
        began_ms <= atomic_load(&x->failed_ms)) {
        return false;
    }
    atomic_store(&x->rests_until_ms, 0);
    return atomic_exchange(&x->failures, 0) > 0;
}

unsigned alternates_failures(const struct alternates *a, unsigned i)
{
    CHECK(i < a->n);
    return atomic_load_explicit(&a->at[i].failures, memory_order_relaxed);
}
