#include "server/fetch/bearer.h"

#include <jansson.h>
#include <stdlib.h>
#include <uthash.h>

#include "common/base/log.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/fetch/challenge.h"
#include "server/fetch/origin_priv.h"

enum {
    SCOPES_MAX = 1024, /* that are remembered: images, mostly */
    ANSWER_BYTES = 64 << 10,
    TOKEN_BYTES = 32 << 10,
    URL_BYTES = 16 << 10,
    GOOD_S = 60, /* what a token is good for when its server does not say */
    GOOD_MAX_S = 86400,
    STALL_S = 30,
    AT_ONCE = 16, /* of an origin's are fetched; the others' turn comes */
};

struct bearer {
    UT_hash_handle hh;
    struct list node; /* in bearers->used: the one at the front was used longest ago */
    struct bearers *of;
    struct arena arena; /* of the texts below */
    struct slice scope;
    struct buf url;   /* of the token server, with its query; empty: not known */
    char host[256];   /* of it, for people */
    bool own_address; /* it may stand at any address */
    struct buf token; /* empty: none */
    uint64_t number;
    uint64_t until_ms;
    struct list waiting; /* bearer_wait; while xfer == NULL, too, when there are AT_ONCE already */
    struct xfer *xfer;   /* one is being fetched */
    struct buf answer;
    int status;
    uint64_t asked_ms;
};

struct bearers {
    struct xfer_loop *xfers;
    const struct origin *origin; /* whoever opened us holds it */
    struct bearer *table;        /* uthash, by scope */
    struct list used;
    unsigned count;
    unsigned fetching;
    uint64_t last_number;
};

/* --- who may give tokens ---------------------------------------------------------------------- */

static bool is_address_host(struct slice host)
{
    bool digits = host.n != 0;

    for (size_t i = 0; i < host.n; i++) {
        digits = digits && (host.p[i] == '.' || (host.p[i] >= '0' && host.p[i] <= '9'));
    }
    return digits || slice_find(host, ':') >= 0;
}

/* The last `labels` of a name; all of it when it has no more. */
static struct slice last_labels(struct slice host, unsigned labels)
{
    for (size_t i = host.n; i > 0; i--) {
        if (host.p[i - 1] == '.' && labels-- == 1) {
            return slice_from(host, i);
        }
    }
    return host;
}

/* What somebody has registered: two labels, or three below "co.uk" and its like (a country's two
 * letters, before them at most three). Wrong only for names that many share, and there only as wide
 * as one label. */
static struct slice registered_domain(struct slice host)
{
    struct slice two = last_labels(host, 2);
    struct slice top = two;
    struct slice second = slice_cut(&top, '.');

    return top.n == 2 && second.n <= 3 ? last_labels(host, 3) : two;
}

static bool same_domain(const struct url *a, const struct url *b)
{
    struct slice domain = registered_domain(a->host);

    return !is_address_host(a->host) && slice_find(domain, '.') >= 0 &&
           slice_ieq(domain, registered_domain(b->host));
}

int bearer_admits(const struct origin *o, struct slice realm, struct err *e)
{
    struct url u;
    int rc = url_split(realm, &u, e);

    if (rc != 0) {
        return err_set(e, E_DENIED,
                       "the origin names a token server whose URL is neither http "
                       "nor https");
    }
    if (o->split.tls && !u.tls) {
        return err_set(
            e, E_DENIED,
            "the origin uses https, but names a token server over plain http at " SLICE_FMT,
            SLICE_ARG(u.host));
    }
    if (origin_trusts_address(o, &u) || (!o->hosts_set && same_domain(&o->split, &u))) {
        return 0;
    }
    return err_set(e, E_DENIED,
                   "the origin names a token server at " SLICE_FMT ":%u, which is not its own "
                   "host; if that is right, add it to the repo's hosts",
                   SLICE_ARG(u.host), u.port);
}

/* --- what it answers -------------------------------------------------------------------------- */

static bool token_shaped(const char *text)
{
    size_t n = text != NULL ? strlen(text) : 0;

    for (size_t i = 0; i < n; i++) {
        if (text[i] <= ' ' || text[i] >= 0x7f) {
            return false;
        }
    }
    return n != 0 && n <= TOKEN_BYTES;
}

int bearer_answer(struct slice json, struct arena *a, struct slice *token, uint64_t *good_s,
                  struct err *e)
{
    json_t *v = json_loadb(json.p != NULL ? json.p : "", json.n, JSON_REJECT_DUPLICATES, NULL);
    const char *text = json_string_value(json_object_get(v, "token"));
    const json_t *life = json_object_get(v, "expires_in");
    int rc = 0;

    if (text == NULL || text[0] == '\0') {
        text = json_string_value(json_object_get(v, "access_token"));
    }
    if (!token_shaped(text)) {
        rc = err_set(e, E_PROTOCOL, "the token server's response contains no token");
        goto out;
    }
    *token = arena_copy(a, slice_str(text));
    *good_s = GOOD_S;
    if (json_is_number(life) && json_number_value(life) >= 1) {
        *good_s =
            (uint64_t)(json_number_value(life) < GOOD_MAX_S ? json_number_value(life) : GOOD_MAX_S);
    }
out:
    json_decref(v);
    return rc;
}

/* --- the table -------------------------------------------------------------------------------- */

static void bearer_free(struct bearer *t)
{
    CHECK(list_empty(&t->waiting));
    xfer_cancel(&t->xfer);
    HASH_DEL(t->of->table, t);
    list_remove(&t->node);
    t->of->count--;
    if (t->token.p != NULL) {
        explicit_bzero(t->token.p, t->token.n);
    }
    buf_free(&t->token);
    buf_free(&t->answer);
    buf_free(&t->url);
    arena_fini(&t->arena);
    free(t);
}

static struct bearer *find_scope_bearer(struct bearers *b, struct slice scope)
{
    struct bearer *t = NULL;

    HASH_FIND(hh, b->table, scope.p, scope.n, t);
    if (t != NULL) {
        list_remove(&t->node);
        list_push_back(&b->used, &t->node);
    }
    return t;
}

static void make_room_for_bearer(struct bearers *b)
{
    LIST_EACH (&b->used, it) {
        struct bearer *t = LIST_ITEM(it, struct bearer, node);
        if (b->count < SCOPES_MAX) {
            return;
        }
        if (t->xfer == NULL && list_empty(&t->waiting)) {
            bearer_free(t);
        }
    }
}

static struct bearer *find_or_make(struct bearers *b, struct slice scope)
{
    struct bearer *t = find_scope_bearer(b, scope);

    if (t != NULL) {
        return t;
    }
    make_room_for_bearer(b);
    t = NEW(struct bearer);
    t->of = b;
    t->scope = arena_copy(&t->arena, scope);
    t->url = BUF_INIT(URL_BYTES);
    t->token = BUF_INIT(TOKEN_BYTES + 1);
    t->answer = BUF_INIT(ANSWER_BYTES);
    list_init(&t->waiting);
    list_push_back(&b->used, &t->node);
    b->count++;
    HASH_ADD_KEYPTR(hh, b->table, t->scope.p, t->scope.n, t);
    return t;
}

struct bearers *bearers_open(struct xfer_loop *xfers, const struct origin *o)
{
    struct bearers *b = NEW(struct bearers);

    b->xfers = xfers;
    b->origin = o;
    list_init(&b->used);
    return b;
}

void bearers_close(struct bearers **bp)
{
    struct bearers *b = *bp;

    *bp = NULL;
    if (b == NULL) {
        return;
    }
    LIST_EACH (&b->used, it) {
        bearer_free(LIST_ITEM(it, struct bearer, node));
    }
    free(b);
}

bool bearers_busy(const struct bearers *b)
{
    LIST_EACH (&b->used, it) {
        const struct bearer *t = LIST_ITEM(it, struct bearer, node);
        if (t->xfer != NULL || !list_empty(&t->waiting)) {
            return true;
        }
    }
    return false;
}

/* --- fetching one ----------------------------------------------------------------------------- */

/* A callback may ask for another token, leave, or wait again, so each wait is taken off the list
 * first. The last to leave may free everything. */
static void notify_bearer_waiters(struct list *reported, int rc, const struct err *why)
{
    struct list *n;

    while ((n = list_pop_front(reported)) != NULL) {
        struct bearer_wait *w = LIST_ITEM(n, struct bearer_wait, node);
        w->go(w, rc, why);
    }
}

static void start_next(struct bearers *b);

static int on_bearer_head(void *arg, const struct xfer_head *h)
{
    struct bearer *t = arg;

    t->status = h->status;
    return 0;
}

static int on_bearer_body(void *arg, struct slice bytes)
{
    struct bearer *t = arg;

    atomic_fetch_add_explicit(&t->of->origin->count->bytes, bytes.n, memory_order_relaxed);
    buf_adds(&t->answer, bytes);
    return t->answer.rc;
}

static int read_bearer_reply(struct bearer *t, int rc, const struct err *why, struct err *e)
{
    struct arena a = {0};
    struct slice token;
    uint64_t good_s;

    if (rc != 0) {
        *e = *why;
        return rc;
    }
    if (t->status == 429 || t->status >= 500) {
        return err_set(e, t->status == 429 || t->status == 503 ? E_BUSY : E_NETWORK,
                       "the token server %s answered %d", t->host, t->status);
    }
    if (t->status != 200) {
        return err_set(e, t->status >= 400 ? E_DENIED : E_PROTOCOL,
                       "the token server %s answered %d", t->host, t->status);
    }
    rc = bearer_answer(buf_slice(&t->answer), &a, &token, &good_s, e);
    if (rc == 0) {
        buf_clear(&t->token);
        buf_adds(&t->token, token);
        t->number = ++t->of->last_number;
        t->until_ms = t->asked_ms + good_s * 800; /* four fifths */
        explicit_bzero((void *)(uintptr_t)token.p, token.n);
    }
    arena_fini(&a);
    return rc;
}

static void on_bearer_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct bearer *t = arg;
    struct list reported;
    struct list *n;
    struct err e = {0};

    (void)body_bytes;
    t->xfer = NULL;
    t->of->fetching--;
    list_init(&reported);
    while ((n = list_pop_front(&t->waiting)) != NULL) {
        list_push_back(&reported, n);
    }
    rc = read_bearer_reply(t, rc, why, &e);
    if (t->answer.p != NULL) {
        explicit_bzero(t->answer.p, t->answer.n);
    }
    buf_clear(&t->answer);
    if (rc != 0) {
        log_warn("fetch.token", "repo=%s host=%s why=\"%s\"", t->of->origin->repo, t->host, e.text);
    }
    start_next(t->of);
    notify_bearer_waiters(&reported, rc, &e);
}

static void start_bearer_request(struct bearer *t)
{
    static const struct xfer_events events = {on_bearer_head, on_bearer_body, on_bearer_done};
    const struct origin *o = t->of->origin;
    bool basic = o->authorization != NULL && strncasecmp(o->authorization, "Basic ", 6) == 0;
    struct slice lines[2] = {SLICE("Accept: application/json")};
    struct xfer_params w = {
        .method = XFER_GET,
        .url = buf_slice(&t->url),
        .fields = lines,
        .nfields = 1,
        .connect_timeout_ms = o->connect_ms,
        .idle_timeout_s = STALL_S,
        .ca_file = o->ca_file,
    };
    struct arena a = {0};

    origin_set_way(o, t->own_address, &w);
    if (basic) {
        lines[w.nfields++] = arena_fmt(&a, "Authorization: %s", o->authorization);
    }
    t->asked_ms = clock_now_ms();
    t->status = 0;
    atomic_fetch_add_explicit(&o->count->requests, 1, memory_order_relaxed);
    t->of->fetching++;
    t->xfer = xfer_start(t->of->xfers, &w, &events, t);
    if (basic) {
        explicit_bzero((void *)(uintptr_t)lines[1].p, lines[1].n);
    }
    arena_fini(&a);
}

static void start_next(struct bearers *b)
{
    LIST_EACH (&b->used, it) {
        struct bearer *t = LIST_ITEM(it, struct bearer, node);
        if (b->fetching == AT_ONCE) {
            return;
        }
        if (t->xfer == NULL && !list_empty(&t->waiting)) {
            start_bearer_request(t);
        }
    }
}

enum bearer_state bearer_get(struct bearers *b, struct slice scope, uint64_t now_ms,
                             struct arena *a, struct slice *line, uint64_t *number,
                             struct bearer_wait *w)
{
    struct bearer *t = find_scope_bearer(b, scope);

    if (t == NULL || t->url.n == 0) {
        return BEARER_NONE;
    }
    if (t->token.n != 0 && now_ms < t->until_ms) {
        *line = arena_fmt(a, "Authorization: Bearer " SLICE_FMT, SLICE_ARG(buf_slice(&t->token)));
        *number = t->number;
        return BEARER_READY;
    }
    list_push_back(&t->waiting, &w->node);
    if (t->xfer == NULL && t->of->fetching < AT_ONCE) {
        start_bearer_request(t);
    }
    return BEARER_WAIT;
}

/* --- what the origin wants -------------------------------------------------------------------- */

static bool find_challenge(const struct xfer_head *h, struct arena *a, struct challenge *out)
{
    for (size_t i = 0; i < h->nfields; i++) {
        if (slice_eqs(h->fields[i].name, "www-authenticate") &&
            challenge_parse(h->fields[i].value, a, out)) {
            return true;
        }
    }
    return false;
}

/* realm?service=..&scope=..&scope=.. */
static void write_url(struct bearer *t, const struct challenge *c)
{
    struct slice scopes = c->scope.n != 0 ? c->scope : t->scope;
    char mark = slice_find(c->realm, '?') >= 0 ? '&' : '?';

    buf_clear(&t->url);
    buf_adds(&t->url, c->realm);
    if (c->service.n != 0) {
        buf_addf(&t->url, "%cservice=", mark);
        url_encode(c->service, &t->url);
        mark = '&';
    }
    while (scopes.n != 0) {
        struct slice scope = slice_cut(&scopes, ' ');
        if (scope.n != 0) {
            buf_addf(&t->url, "%cscope=", mark);
            url_encode(scope, &t->url);
            mark = '&';
        }
    }
}

static int read_bearer_challenge(struct bearer *t, const struct challenge *c, struct err *e)
{
    const struct origin *o = t->of->origin;
    struct url u;
    int rc = bearer_admits(o, c->realm, e);

    rc = rc != 0 ? rc : url_split(c->realm, &u, e);
    if (rc != 0) {
        return rc;
    }
    write_url(t, c);
    snprintf(t->host, sizeof t->host, SLICE_FMT, SLICE_ARG(u.host));
    t->own_address = origin_trusts_address(o, &u);
    if (t->url.rc != 0) {
        buf_free(&t->url);
        t->url = BUF_INIT(URL_BYTES);
        return err_set(e, E_TOOBIG, "the URL of the token server is too long");
    }
    return 0;
}

bool bearer_refused(struct bearers *b, struct slice scope, uint64_t number,
                    const struct xfer_head *h, struct err *e)
{
    struct bearer *t = find_scope_bearer(b, scope);
    struct arena a = {0};
    struct challenge c;
    bool again = false;

    if (t != NULL && t->url.n != 0 &&
        (t->xfer != NULL || !list_empty(&t->waiting) || t->number > number)) {
        return true; /* another is on its way, or here, since that request went out */
    }
    if (t != NULL && t->number == number) { /* void, whether or not the origin says why */
        buf_clear(&t->token);
    }
    if (!find_challenge(h, &a, &c)) {
        again = t != NULL && t->url.n != 0;
        goto out;
    }
    t = find_or_make(b, scope);
    again = read_bearer_challenge(t, &c, e) == 0;
    buf_clear(&t->token);
out:
    arena_fini(&a);
    return again;
}
