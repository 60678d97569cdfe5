#include "server/fetch/origin.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "common/xfer/xfer.h"
#include "server/fetch/inside.h"
#include "server/fetch/origin_priv.h"
#include "server/fetch/s3.h"

static char *copy_or_null(const char *s)
{
    return s != NULL ? mem_strdup(s) : NULL;
}

/* "host", "host:port" or "[v6]:port"; compared with a URL's host, and its port when one is
 * written. */
static bool host_entry_matches(const char *entry, const struct url *u)
{
    struct slice want = slice_str(entry);
    struct slice port = SLICE_NONE;
    uint64_t n;

    if (want.n > 0 && want.p[0] == '[') {
        ptrdiff_t end = slice_find(want, ']');
        if (end < 0) {
            return false;
        }
        port = slice_from(want, (size_t)end + 1);
        want = slice_of(want.p + 1, (size_t)end - 1);
        port = port.n > 0 && port.p[0] == ':' ? slice_from(port, 1) : SLICE_NONE;
    } else if (slice_find(want, ':') >= 0) {
        port = want;
        want = slice_cut(&port, ':');
    }
    if (!slice_ieq(want, u->host)) {
        return false;
    }
    return port.p == NULL || (slice_u64(port, &n) && n == u->port);
}

static bool origin_lists_url(const struct origin *o, const struct url *u)
{
    for (size_t i = 0; i < o->hosts_count; i++) {
        if (host_entry_matches(o->hosts[i], u)) {
            return true;
        }
    }
    return false;
}

/* A bucket's is that of the URL it is fetched by: the same name at another endpoint is another
 * bucket. */
static void take_identity(struct origin *o, const struct origin_settings *set)
{
    struct slice kind = slice_str(set->kind);

    o->identity = origin_identity_of(kind, slice_str(o->s3 != NULL ? o->url : set->url));
    o->former = mem_array(set->moved_from_count + set->urls_count, sizeof *o->former);
    for (size_t i = 0; i < set->moved_from_count; i++) {
        o->former[o->former_count++] = origin_identity_of(kind, slice_str(set->moved_from[i]));
    }
    for (size_t i = 1; i < set->urls_count; i++) { /* the list may be put into another order */
        o->former[o->former_count++] = origin_identity_of(kind, slice_str(set->urls[i]));
    }
}

static bool is_bucket(const char *url)
{
    return strncmp(url, "s3://", 5) == 0;
}

bool origin_speaks(const char *url)
{
    return strncmp(url, "http://", 7) == 0 || strncmp(url, "https://", 8) == 0 || is_bucket(url);
}

const struct origin_bucket *origin_bucket(const struct origin *o)
{
    return o->s3 != NULL ? &o->s3->bucket : NULL;
}

/* Readers of URLs take the first of those for the host's end, so they would connect to a part of
 * the password. */
static bool has_bare_password(const char *proxy)
{
    const char *scheme = strstr(proxy, "://");
    const char *from = scheme != NULL ? scheme + 3 : proxy;
    const char *at = strrchr(from, '@');

    return at != NULL && strcspn(from, "/?#") < (size_t)(at - from);
}

int origin_new(const char *repo, const struct origin_settings *set, struct origin **out,
               struct err *e)
{
    struct origin *o = NEW(struct origin);
    struct buf url = BUF_INIT(4096);
    int rc = 0;

    atomic_init(&o->refs, 1);
    origin_request_counters_init(&o->own_count);
    o->count = &o->own_count;
    *out = NULL;
    if (is_bucket(set->url)) {
        rc = s3_open(set, &o->s3, &url, e);
    } else {
        buf_str(&url, set->url);
    }
    if (url.n == 0 || url.p[url.n - 1] != '/') {
        buf_byte(&url, '/');
    }
    o->url = mem_strdup(buf_cstr(&url));
    take_identity(o, set);
    rc = rc != 0 ? rc : url_split(slice_str(o->url), &o->split, e);
    if (rc != 0) {
        err_prefix(e, "repo %s: origin", repo);
        goto out;
    }
    if (o->split.query.p != NULL) {
        rc = err_set(e, E_CONFIG, "repo %s: origin: a base URL must not have a query; remove it",
                     repo);
        goto out;
    }
    rc = alternates_open(o->url, set->urls_count > 1 ? set->urls + 1 : NULL,
                         set->urls_count > 1 ? set->urls_count - 1 : 0, &o->alternates, e);
    if (rc != 0) {
        err_prefix(e, "repo %s: origin", repo);
        goto out;
    }
    if (set->proxy != NULL && has_bare_password(set->proxy)) {
        rc = err_set(e, E_CONFIG,
                     "repo %s: proxy: the user or password contains an unescaped \"/\", \"?\" "
                     "or \"#\"; write %%2F, %%3F, %%23",
                     repo);
        goto out;
    }
    o->repo = mem_strdup(repo);
    o->hosts_set = set->hosts_set;
    o->hosts_count = set->hosts_count;
    o->hosts = mem_array(set->hosts_count + 1, sizeof *o->hosts);
    for (size_t i = 0; i < set->hosts_count; i++) {
        o->hosts[i] = mem_strdup(set->hosts[i]);
    }
    o->proxy = copy_or_null(set->proxy);
    o->no_proxy = copy_or_null(set->no_proxy);
    o->proxy_resolve = set->proxy_resolve;
    o->ca_file = copy_or_null(set->ca_file);
    o->authorization = o->s3 == NULL ? copy_or_null(set->authorization) : NULL;
    o->tokens = set->tokens && o->s3 == NULL;
    o->connections = set->connections != 0 ? set->connections : 16;
    o->crowd.places_max = set->waiting != 0 ? set->waiting : 4096;
    o->connect_ms = set->connect_ms != 0 ? set->connect_ms : 10000;
    o->stall_ms = set->stall_ms != 0 ? set->stall_ms : 30000;
    o->patience_ms = set->patience_ms != 0 ? set->patience_ms : 1500;
    o->rate_bytes_per_s = set->rate_bytes_per_s;
    *out = o;
    o = NULL;
out:
    origin_free(&o);
    buf_free(&url);
    return rc;
}

void origin_share(struct origin *o, uint32_t mirrors)
{
    atomic_store_explicit(&o->mirrors, mirrors, memory_order_relaxed);
}

static uint64_t left_ms(uint64_t until_ms)
{
    uint64_t now_ms = clock_now_ms();

    return until_ms - min_u64(until_ms, now_ms);
}

uint64_t origin_asked_rest_ms(const struct origin *o)
{
    return left_ms(atomic_load_explicit(&o->asked_until_ms, memory_order_relaxed));
}

void origin_rest(struct origin *o, uint64_t ms)
{
    uint64_t until_ms = clock_now_ms() + min_u64(ms, ORIGIN_REST_MAX_MS);

    atomic_store_explicit(&o->reported_until_ms, until_ms, memory_order_relaxed);
}

uint64_t origin_patience_ms(const struct origin *o)
{
    return o->patience_ms;
}

struct crowd *origin_crowd(struct origin *o)
{
    return &o->crowd;
}

int origin_credential(const struct origin *o, bool head, uint64_t unix_s, struct buf *url,
                      struct arena *a, struct slice lines[ORIGIN_LINES], size_t *n, struct err *e)
{
    *n = 0;
    if (o->s3 != NULL) {
        struct s3_request r = {.method = head ? XFER_HEAD : XFER_GET};
        return s3_sign(o->s3, &r, unix_s, url, a, lines, n, e);
    }
    if (o->authorization != NULL) {
        lines[(*n)++] = arena_fmt(a, "Authorization: %s", o->authorization);
    }
    return 0;
}

struct origin *origin_hold(const struct origin *o)
{
    struct origin *held = (struct origin *)(uintptr_t)o; /* the count is not part of its meaning */

    atomic_fetch_add_explicit(&held->refs, 1, memory_order_relaxed);
    return held;
}

void origin_free(struct origin **op)
{
    struct origin *o = *op;

    *op = NULL;
    if (o == NULL || atomic_fetch_sub_explicit(&o->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; o->hosts != NULL && i < o->hosts_count; i++) {
        free(o->hosts[i]);
    }
    free(o->hosts);
    free(o->former);
    alternates_close(&o->alternates);
    free(o->repo);
    free(o->url);
    free(o->proxy);
    free(o->no_proxy);
    free(o->ca_file);
    free(o->authorization);
    s3_close(&o->s3);
    origin_request_counters_fini(&o->own_count);
    free(o);
}

const char *origin_url(const struct origin *o)
{
    return o->url;
}

uint64_t origin_identity_of(struct slice kind, struct slice url)
{
    uint64_t seed = kind.n > 0 ? XXH3_64bits(kind.p, kind.n) : 0, id;

    while (slice_ends(url, SLICE("/"))) {
        url.n--;
    }
    id = XXH3_64bits_withSeed(url.p, url.n, seed);
    return id != 0 ? id : 1;
}

uint64_t origin_identity(const struct origin *o)
{
    return o->identity;
}

bool origin_owns(const struct origin *o, uint64_t identity)
{
    bool ours = identity == 0 || identity == o->identity;

    for (size_t i = 0; i < o->former_count && !ours; i++) {
        ours = identity == o->former[i];
    }
    return ours;
}

int url_origin_key(struct slice url, struct buf *out, struct err *e)
{
    struct url u;
    int rc = url_split(url, &u, e);
    size_t start = out->n;

    if (rc != 0) {
        return rc;
    }
    url_write_origin(&u, out);
    for (size_t i = start; i < out->n; i++) {
        char c = out->p[i];
        out->p[i] = c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
    }
    return out->rc;
}

bool origin_is_home(const struct origin *o, const struct url *u)
{
    return url_same_host(&o->split, u) || alternates_have_host(o->alternates, u);
}

bool origin_trusts_address(const struct origin *o, const struct url *u)
{
    return origin_is_home(o, u) || origin_lists_url(o, u);
}

static bool admits_outside(void *arg, const struct sockaddr *sa)
{
    (void)arg;
    return !address_is_inside(sa);
}

/* `no_proxy` lists what is inside: a host that only a page names never gets past the proxy by
 * it. */
void origin_set_way(const struct origin *o, bool trusted, struct xfer_params *w)
{
    w->proxy = o->proxy;
    w->no_proxy = trusted ? o->no_proxy : NULL;
    w->proxy_resolve = o->proxy_resolve && !trusted;
    w->admit = trusted ? NULL : admits_outside;
}

int origin_admits(const struct origin *o, struct slice url, struct slice via, struct err *e)
{
    struct url u;
    struct url from;
    int rc = url_split(url, &u, e);

    if (rc != 0) {
        return rc == E_UNSUPPORTED ? err_set(e, E_DENIED, "only http and https URLs are fetched")
                                   : rc;
    }
    if (via.p == NULL) { /* the configuration's own words: only ever its own origin */
        return origin_trusts_address(o, &u)
                   ? 0
                   : err_set(e, E_DENIED, "host " SLICE_FMT " is not the origin of %s",
                             SLICE_ARG(u.host), o->repo);
    }
    rc = url_split(via, &from, e);
    if (rc != 0) {
        return rc;
    }
    if (from.tls && !u.tls) {
        return err_set(e, E_DENIED,
                       "a page served over https must not refer to plain http at " SLICE_FMT,
                       SLICE_ARG(u.host));
    }
    if (origin_trusts_address(o, &u)) {
        return 0;
    }
    if (o->hosts_set) {
        return err_set(e, E_DENIED, "host " SLICE_FMT " is not among the hosts of %s",
                       SLICE_ARG(u.host), o->repo);
    }
    if (!from.tls) {
        return err_set(e, E_DENIED,
                       "a page served over plain http must not refer to another host (" SLICE_FMT
                       ")",
                       SLICE_ARG(u.host));
    }
    if (host_is_inside(u.host) || (o->proxy != NULL && host_is_private(u.host))) {
        return err_set(e, E_DENIED,
                       "host " SLICE_FMT " is in the internal network; if that is right, add it to "
                       "the hosts of %s",
                       SLICE_ARG(u.host), o->repo);
    }
    return 0;
}

void origin_count_in(struct origin *o, struct origin_request_counters *c)
{
    o->count = c;
}

void origin_request_stats_read(const struct origin_request_counters *c,
                               struct origin_request_stats *out)
{
    out->requests = atomic_load_explicit(&c->requests, memory_order_relaxed);
    out->bytes = atomic_load_explicit(&c->bytes, memory_order_relaxed);
    out->errors = atomic_load_explicit(&c->errors, memory_order_relaxed);
    out->throttled = atomic_load_explicit(&c->throttled, memory_order_relaxed);
}

void origin_stats(const struct origin *o, struct origin_request_stats *out)
{
    origin_request_stats_read(o->count, out);
}

/* --- health --- */

void origin_request_counters_init(struct origin_request_counters *c)
{
    lock_init(&c->lock, LOCK_LEAF);
}

void origin_request_counters_fini(struct origin_request_counters *c)
{
    lock_fini(&c->lock);
}

void origin_answered(const struct origin *o, bool whole)
{
    struct origin_request_counters *c = o->count;

    if (!atomic_load_explicit(&c->failing, memory_order_relaxed)) {
        return;
    }
    lock_take(&c->lock);
    if (whole || !c->broke_off) {
        c->health = (struct origin_health){0};
        atomic_store_explicit(&c->failing, false, memory_order_relaxed);
    }
    lock_drop(&c->lock);
}

void origin_failed(const struct origin *o, bool broke_off, const char *why)
{
    struct origin_request_counters *c = o->count;
    uint64_t now_s = clock_unix_s();

    lock_take(&c->lock);
    if (c->health.failures == 0 || c->identity != o->identity) {
        c->health = (struct origin_health){.since_unix_s = now_s};
        c->identity = o->identity;
    }
    c->health.failures++;
    c->health.last_unix_s = now_s;
    c->broke_off = broke_off;
    snprintf(c->health.why, sizeof c->health.why, "%s", why);
    atomic_store_explicit(&c->failing, true, memory_order_relaxed);
    lock_drop(&c->lock);
}

unsigned origin_away(const struct origin *o, unsigned failures, const char **url)
{
    unsigned away = 0;

    for (unsigned i = 0; i < alternates_count(o->alternates); i++) {
        if (alternates_failures(o->alternates, i) >= failures) {
            away++;
            *url = alternates_url(o->alternates, i);
        }
    }
    return away;
}

void origin_health(const struct origin *o, struct origin_health *out)
{
    struct origin_request_counters *c = o->count;

    *out = (struct origin_health){0};
    if (!atomic_load_explicit(&c->failing, memory_order_relaxed)) {
        return;
    }
    lock_take(&c->lock);
    if (c->identity == o->identity) {
        *out = c->health;
    }
    lock_drop(&c->lock);
}
