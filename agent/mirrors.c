#include "agent/mirrors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/codec/url.h"

enum {
    REST_MS = 5000,
    REST_DOUBLINGS = 4,
    REST_MAX_MS = 60000,
    PROBE_MS = 10000, /* for one request to find out whether it is back */
    NAME_ROOM = 8 << 10,
};

struct mirror {
    struct slice url;
    struct url parts;
    struct digest name; /* of the URL, with its host in lower case */
    unsigned failures;  /* in a row */
    bool probed;        /* it has rested, and one request was sent to it since */
    uint64_t rests_until_ms;
};

struct mirrors {
    struct arena arena;
    unsigned n;
    struct mirror at[MIRRORS_MAX];
};

/* --- the list --------------------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

/* The next URL of a list, without what is around it; n == 0: an empty place. */
static struct slice cut_mirror(struct slice *list)
{
    struct slice one = slice_cut(list, ',');

    while (one.n > 0 && is_blank(one.p[0])) {
        one = slice_from(one, 1);
    }
    while (one.n > 0 && (is_blank(one.p[one.n - 1]) || one.p[one.n - 1] == '/')) {
        one.n--;
    }
    return one;
}

static void name_mirror(struct mirror *x)
{
    struct buf text = BUF_INIT(NAME_ROOM);

    buf_addf(&text, "%s %u ", x->parts.tls ? "https" : "http", x->parts.port);
    for (size_t i = 0; i < x->parts.host.n; i++) {
        char c = x->parts.host.p[i];
        buf_byte(&text, (uint8_t)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c));
    }
    buf_byte(&text, ' ');
    buf_adds(&text, x->parts.path);
    digest_of(buf_slice(&text), &x->name);
    buf_free(&text);
}

static int read_mirror(struct arena *a, struct slice url, struct mirror *out, struct err *e)
{
    *out = (struct mirror){.url = arena_copy(a, url)};
    if (url_split(out->url, &out->parts, e) != 0 || out->parts.query.p != NULL) {
        return err_set(e, E_USAGE,
                       "mirror \"" SLICE_FMT "\": not a valid URL; write it as http://mirror:8080",
                       SLICE_ARG(url));
    }
    name_mirror(out);
    return 0;
}

static bool has_mirror(const struct mirrors *m, const struct digest *name)
{
    bool has = false;

    for (unsigned i = 0; i < m->n; i++) {
        has = has || digest_eq(&m->at[i].name, name);
    }
    return has;
}

int mirrors_open(struct slice list, struct mirrors **out, struct err *e)
{
    struct mirrors *m = NEW(struct mirrors);
    int rc = 0;

    *out = NULL;
    while (rc == 0 && list.n > 0) {
        struct slice url = cut_mirror(&list);
        struct mirror one;

        rc = url.n == 0 ? 0 : read_mirror(&m->arena, url, &one, e);
        if (rc != 0 || url.n == 0 || has_mirror(m, &one.name)) {
            continue;
        }
        if (m->n == MIRRORS_MAX) {
            rc = err_set(e, E_USAGE, "more than %d mirrors are listed", MIRRORS_MAX);
        } else {
            m->at[m->n++] = one;
        }
    }
    if (rc == 0 && m->n == 0) {
        rc = err_set(e, E_USAGE, "the list of mirrors is empty; write one as http://mirror:8080");
    }
    if (rc != 0) {
        mirrors_close(&m);
    }
    *out = m;
    return rc;
}

void mirrors_close(struct mirrors **mp)
{
    if (*mp != NULL) {
        arena_fini(&(*mp)->arena);
        free(*mp);
        *mp = NULL;
    }
}

unsigned mirrors_count(const struct mirrors *m)
{
    return m->n;
}

struct slice mirrors_url(const struct mirrors *m, unsigned i)
{
    CHECK(i < m->n);
    return m->at[i].url;
}

bool mirrors_are_in(const struct mirrors *m, struct slice list)
{
    struct mirrors *others;
    bool all = mirrors_open(list, &others, NULL) == 0;

    for (unsigned i = 0; all && i < m->n; i++) {
        all = has_mirror(others, &m->at[i].name);
    }
    mirrors_close(&others);
    return all;
}

unsigned mirrors_find(const struct mirrors *m, struct slice url)
{
    struct url u;

    if (url_split(url, &u, NULL) == 0) {
        for (unsigned i = 0; i < m->n; i++) {
            if (url_same_host(&u, &m->at[i].parts)) {
                return i;
            }
        }
    }
    return MIRROR_NONE;
}

/* --- the same thing at another mirror --------------------------------------------------------- */

/* What follows the mirror's own URL; false: it is not below it. */
static bool below(const struct mirror *x, struct slice url, struct slice *rest)
{
    if (!slice_starts(url, x->url)) {
        return false;
    }
    *rest = slice_from(url, x->url.n);
    return rest->n == 0 || rest->p[0] == '/' || rest->p[0] == '?';
}

static struct slice url_moved(const struct mirrors *m, unsigned from, unsigned to, struct slice url,
                              struct arena *a)
{
    struct slice rest;

    CHECK(from < m->n && to < m->n);
    return from == to || !below(&m->at[from], url, &rest)
               ? url
               : arena_fmt(a, SLICE_FMT SLICE_FMT, SLICE_ARG(m->at[to].url), SLICE_ARG(rest));
}

struct slice mirrors_at(const struct mirrors *m, unsigned i, struct slice url, struct arena *a)
{
    return url_moved(m, 0, i, url, a);
}

struct slice mirrors_plain(const struct mirrors *m, unsigned i, struct slice url, struct arena *a)
{
    return url_moved(m, i, 0, url, a);
}

/* --- the order -------------------------------------------------------------------------------- */

void mirrors_key(const struct mirrors *m, struct slice url, struct digest *out)
{
    struct slice rest = url;

    (void)below(&m->at[0], url, &rest);
    rest = slice_cut(&rest, '?');
    while (rest.n > 0 && rest.p[rest.n - 1] == '/') {
        rest.n--;
    }
    digest_of(rest, out);
}

static uint64_t hash_weight(const struct mirror *x, const struct digest *key)
{
    uint8_t both[2 * DIGEST_BYTES];
    struct digest d;

    memcpy(both, x->name.b, DIGEST_BYTES);
    memcpy(both + DIGEST_BYTES, key->b, DIGEST_BYTES);
    digest_of(slice_of((const char *)both, sizeof both), &d);
    return le_get(d.b, 8);
}

bool mirrors_any_fresh(const struct mirrors *m, uint64_t now_ms)
{
    bool any = false;

    for (unsigned i = 0; i < m->n; i++) {
        any = any || m->at[i].rests_until_ms <= now_ms;
    }
    return any;
}

unsigned mirrors_choose(struct mirrors *m, const struct digest *key, uint64_t tried,
                        enum mirrors_which which, uint64_t now_ms)
{
    unsigned best = MIRROR_NONE;
    uint64_t best_weight = 0, best_rest_ms = 0;

    if (m->n == 1) {
        return tried == 0 ? 0 : MIRROR_NONE;
    }
    for (unsigned i = 0; i < m->n; i++) {
        const struct mirror *x = &m->at[i];
        uint64_t rest_ms = x->rests_until_ms > now_ms ? x->rests_until_ms : 0;
        uint64_t w;

        if ((tried >> i & 1) != 0 || (which == MIRRORS_FRESH && rest_ms != 0)) {
            continue;
        }
        w = hash_weight(x, key);
        if (best == MIRROR_NONE || rest_ms < best_rest_ms ||
            (rest_ms == best_rest_ms && w > best_weight)) {
            best = i;
            best_weight = w;
            best_rest_ms = rest_ms;
        }
    }
    if (best != MIRROR_NONE && best_rest_ms == 0 && m->at[best].failures > 0) {
        m->at[best].probed = true;
        m->at[best].rests_until_ms = now_ms + PROBE_MS;
    }
    return best;
}

/* --- what became of requests ------------------------------------------------------------------ */

static void rest(struct mirrors *m, unsigned i, uint64_t ms, uint64_t now_ms)
{
    struct mirror *x = &m->at[i];

    if (m->n > 1 && (x->probed || now_ms + ms > x->rests_until_ms)) {
        x->rests_until_ms = now_ms + ms;
        log_debug("mirrors.rest", "mirror=" SLICE_FMT " ms=%" PRIu64, SLICE_ARG(x->url), ms);
    }
    x->probed = false;
}

void mirrors_failed(struct mirrors *m, unsigned i, uint64_t now_ms)
{
    struct mirror *x = &m->at[i];

    CHECK(i < m->n);
    if (now_ms < x->rests_until_ms && !x->probed) {
        return; /* one outage, and many connections that it hits */
    }
    rest(m, i, min_u64(REST_MAX_MS, (uint64_t)REST_MS << x->failures), now_ms);
    x->failures += x->failures < REST_DOUBLINGS;
}

void mirrors_lied(struct mirrors *m, unsigned i, uint64_t now_ms)
{
    struct mirror *x = &m->at[i];

    CHECK(i < m->n);
    if (m->n > 1 && now_ms >= x->rests_until_ms) {
        log_warn("mirrors.lied", "mirror=" SLICE_FMT " its data was damaged; others are asked",
                 SLICE_ARG(x->url));
    }
    x->failures += x->failures == 0;
    rest(m, i, REST_MAX_MS, now_ms);
}

void mirrors_worked(struct mirrors *m, unsigned i)
{
    struct mirror *x = &m->at[i];

    CHECK(i < m->n);
    if (x->probed) {
        x->rests_until_ms = 0;
    }
    if (x->rests_until_ms == 0) {
        x->failures = 0;
    }
    x->probed = false;
}
