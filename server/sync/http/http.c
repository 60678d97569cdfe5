/* http.c - the engine for http and https, and for s3, which is both with signatures and a list of
 * its own. */
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/httpdate.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "server/sync/http/http_engine.h"

/* --- takes ---
 *
 * The bytes of one file by HTTP: conditional where the published ones may still be right, from
 * where they broke where the digest of the whole is known, or a strong ETag vouches for both
 * halves. Where the list names an ETag, that object is taken or none.
 */

enum { VALIDATOR_MAX = 1000 };
#define ANSWERS  "the upstream answers %d%s" SLICE_FMT
#define END_OPEN ((uint64_t)1 << 62) /* servers reckon in signed 64 bits */

struct download {
    struct list node;
    struct http_engine *g;
    struct download_events ev;
    void *arg;
    struct origin_request *request;
    struct arena arena;
    struct slice asked;       /* the validator that was asked with */
    struct slice listed_etag; /* of the very object that is wanted; or empty */
    bool conditional;
    uint64_t have, got, due; /* due LENGTH_UNKNOWN: the end is not announced */
    uint64_t listed;
    bool framed;
    bool by_hash; /* asked for by its digest; when that is not there, by its name */
    bool optional;
    enum { TAKE_BRINGS, DOWNLOAD_UNCHANGED, DOWNLOAD_ABSENT } outcome;
    struct source source; /* of listers that say where their entries are */
    struct git_hasher *git;
    struct event *soon; /* of bytes that were made here */
    bool paused;
    char *url, *hash_url;
    struct origin_request_params want; /* its slices: url, asked */
    struct slice validator;
    int64_t mtime_ns;
    bool digest_known; /* the bucket knows it; other upstreams' words are their index's */
    struct digest digest;
    struct err why; /* ours: says more than what fetch makes of it */
};

static bool is_etag(struct slice v)
{
    return v.n > 1 && v.p[0] == '"';
}

static void free_http_download(struct download *t)
{
    origin_request_cancel(&t->request);
    list_remove(&t->node);
    arena_fini(&t->arena);
    git_hasher_free(&t->git);
    if (t->soon != NULL) {
        event_free(t->soon);
    }
    free(t->url);
    free(t->hash_url);
    free(t);
}

static int refuse_http_reply(struct download *t, const struct origin_head *h)
{
    int status = h->status;
    struct slice why = h->why.p != NULL ? h->why : SLICE("");
    const char *colon = why.n != 0 ? ", " : "";

    if (status == 403 && slice_starts(why, SLICE("AccessDenied"))) {
        /* A bucket's policy, which is seldom about one object. */
        return err_set(&t->why, E_DENIED, ANSWERS, status, colon, SLICE_ARG(why));
    }
    switch (status) {
    case 403:
        /* One unreadable file is no reason to stop where the others are of use without it. */
        return err_set(&t->why, t->source.whole ? E_DENIED : E_NOTFOUND, ANSWERS, status, colon,
                       SLICE_ARG(why));
    case 404:
    case 410:
        return err_set(&t->why, E_NOTFOUND, ANSWERS, status, colon, SLICE_ARG(why));
    case 412:
    case 416: /* shorter than what is here already */
        return err_set(&t->why, E_CHANGED, "the upstream's file has changed");
    case 401:
    case 407:
        return err_set(&t->why, E_DENIED, ANSWERS, status, colon, SLICE_ARG(why));
    case 429:
    case 503:
        return err_set(&t->why, E_BUSY, ANSWERS, status, colon, SLICE_ARG(why));
    default:
        return err_set(&t->why, status >= 500 ? E_AGAIN : E_PROTOCOL, ANSWERS, status, colon,
                       SLICE_ARG(why));
    }
}

static void read_http_validators(struct download *t, const struct origin_head *h)
{
    struct slice etag = origin_head_field(h, "etag"), date = origin_head_field(h, "last-modified");
    uint64_t unix_s;

    t->mtime_ns = SYNC_TIME_UNKNOWN;
    if (date.p != NULL && httpdate_parse(date, clock_unix_s(), &unix_s) &&
        unix_s < (uint64_t)1 << 33) {
        t->mtime_ns = (int64_t)unix_s * 1000000000;
    }
    t->validator = is_etag(etag)                      ? arena_copy(&t->arena, etag)
                   : t->mtime_ns != SYNC_TIME_UNKNOWN ? arena_copy(&t->arena, date)
                                                      : SLICE_NONE;
    if (t->validator.n > VALIDATOR_MAX) {
        t->validator = SLICE_NONE;
    }
}

static int on_http_download_head(void *arg, const struct origin_head *h)
{
    struct download *t = arg;
    int rc;

    if (h->status == 304 && t->conditional) {
        t->outcome = DOWNLOAD_UNCHANGED;
        read_http_validators(t, h);
        return 0;
    }
    if (h->status != 200 && h->status != 206) {
        return refuse_http_reply(t, h);
    }
    read_http_validators(t, h);
    if (t->listed_etag.n != 0 && t->validator.n != 0 && is_etag(t->validator) &&
        !slice_eq(t->validator, t->listed_etag)) {
        return err_set(&t->why, E_CHANGED,
                       "the upstream's file is not the version that was listed");
    }
    t->digest_known =
        origin_bucket(t->g->site->origin) != NULL && origin_head_digest(h, &t->digest);
    t->got = h->status == 206 ? t->have : 0;
    t->framed = h->framed;
    t->due = h->status == 206                      ? h->total
             : h->content_length != LENGTH_UNKNOWN ? h->content_length
                                                   : LENGTH_UNKNOWN;
    rc = t->ev.on_begin(t->arg, t->got, t->validator);
    return rc != 0 ? err_set(&t->why, rc, "canceled: the download cannot resume at this offset")
                   : 0;
}

static int on_http_download_body(void *arg, struct slice bytes)
{
    struct download *t = arg;
    int rc;

    if (t->outcome == DOWNLOAD_UNCHANGED) {
        return 0;
    }
    t->got += bytes.n;
    if (t->git != NULL) {
        git_hasher_add(t->git, bytes);
    }
    rc = t->ev.on_body(t->arg, bytes);
    if (rc == DOWNLOAD_PAUSE) {
        return ORIGIN_REQUEST_PAUSE;
    }
    return rc != 0 ? err_set(&t->why, rc, "canceled: the received bytes could not be stored") : 0;
}

/* An end that was not announced looks like a cut: the list's size tells. */
static int check_end(struct download *t)
{
    if (t->outcome == DOWNLOAD_UNCHANGED ||
        (t->framed && (t->due == LENGTH_UNKNOWN || t->got == t->due))) {
        return 0;
    }
    if (t->framed || (t->listed != SYNC_SIZE_UNKNOWN && t->got < t->listed)) {
        return err_set(&t->why, E_NETWORK, "the response broke off after %llu bytes",
                       (unsigned long long)t->got);
    }
    return 0;
}

static int check_git(struct download *t)
{
    struct git_oid got;

    if (t->git == NULL || t->outcome == DOWNLOAD_UNCHANGED) {
        return 0;
    }
    git_hasher_final(t->git, &got);
    return git_oid_eq(&got, &t->source.git)
               ? 0
               : err_set(&t->why, E_CORRUPT, "its SHA-1 does not match its git object ID");
}

/* What the list cannot be without is no matter of one entry: later, or by another list. */
static int as_whole(struct download *t, int rc)
{
    if (!t->source.whole || (rc != E_NOTFOUND && rc != E_CHANGED && rc != E_CORRUPT)) {
        return rc;
    }
    t->why.code = E_AGAIN;
    return E_AGAIN;
}

static void begin_http_download(struct download *t);

static void on_http_download_done(void *arg, int rc, const struct err *why)
{
    struct download *t = arg;
    struct download_result got;

    t->request = NULL;
    if (t->why.code != 0) {
        rc = t->why.code;
    } else if (rc == 0) {
        rc = check_end(t);
        rc = rc != 0 ? rc : check_git(t);
    } else if (why != NULL) {
        t->why = *why;
    }
    rc = as_whole(t, rc);
    if (rc == E_NOTFOUND && t->by_hash) {
        t->by_hash = false;
        err_clear(&t->why);
        begin_http_download(t);
        return;
    }
    if (rc == E_NOTFOUND && t->optional) {
        t->outcome = DOWNLOAD_ABSENT;
        rc = 0;
    }
    got = (struct download_result){
        .unchanged = t->outcome == DOWNLOAD_UNCHANGED,
        .absent = t->outcome == DOWNLOAD_ABSENT,
        .mtime_ns = t->mtime_ns,
        .validator =
            t->outcome == DOWNLOAD_UNCHANGED && t->validator.n == 0 ? t->asked : t->validator,
        .digest_known = t->digest_known,
        .digest = t->digest,
    };
    t->ev.on_done(t->arg, rc, &t->why, rc == 0 ? &got : NULL);
    free_http_download(t);
}

static void begin_http_download(struct download *t)
{
    static const struct origin_request_events events = {
        on_http_download_head, on_http_download_body, on_http_download_done};

    t->want.url = slice_str(t->by_hash ? t->hash_url : t->url);
    git_hasher_free(&t->git);
    t->git = t->source.git_known ? git_hasher_new(t->listed) : NULL;
    t->request = origin_request_start(t->g->site->origin_client, &t->want, &events, t);
}

/* "dists/x/main/binary-amd64/Packages.gz" -> ".../binary-amd64/by-hash/SHA256/<hex>" */
static char *hash_url_of(const struct http_engine *g, const struct sync_entry *en)
{
    struct buf path = BUF_INIT(8192);
    char hex[DIGEST_HEX + 1];
    size_t n = slice_behind(en->path, '/');
    char *url;

    digest_format(&en->digest, hex);
    buf_add(&path, en->path.p, n);
    buf_addf(&path, "by-hash/SHA256/%s", hex);
    url = http_url_of(g, buf_slice(&path));
    buf_free(&path);
    return url;
}

/* --- bytes that were made here --- */

static void made_done(struct download *t)
{
    struct download_result got = {.mtime_ns = SYNC_TIME_UNKNOWN};

    t->ev.on_done(t->arg, 0, NULL, &got);
    free_http_download(t);
}

static void take_on_soon(evutil_socket_t fd, short what, void *arg)
{
    struct download *t = arg;
    int rc = t->ev.on_begin(t->arg, 0, SLICE_NONE);

    (void)fd;
    (void)what;
    if (rc == 0 && t->source.bytes.n != 0) {
        rc = t->ev.on_body(t->arg, t->source.bytes);
    }
    if (rc == DOWNLOAD_PAUSE) {
        t->paused = true;
    } else if (rc == 0) {
        made_done(t);
    } else {
        err_set(&t->why, rc, "canceled: the received bytes could not be stored");
        t->ev.on_done(t->arg, rc, &t->why, NULL);
        free_http_download(t);
    }
}

static struct download *give_made_download(struct download *t)
{
    struct timeval now = {0};

    t->soon = evtimer_new(t->g->site->base, take_on_soon, t);
    CHECK(t->soon != NULL);
    evtimer_add(t->soon, &now);
    return t;
}

static struct download *http_download(struct engine *eg, const struct download_params *w,
                                      const struct download_events *ev, void *arg)
{
    struct http_engine *g = (struct http_engine *)eg;
    struct download *t = NEW(struct download);
    struct origin_request_params *f = &t->want;

    t->g = g;
    t->ev = *ev;
    t->arg = arg;
    t->mtime_ns = SYNC_TIME_UNKNOWN;
    t->listed = w->entry->size_step <= 1 ? w->entry->size_bytes : SYNC_SIZE_UNKNOWN;
    t->asked = arena_copy_opt(&t->arena, w->validator);
    t->optional = (w->entry->ref & REF_OPTIONAL) != 0;
    t->by_hash = (w->entry->ref & REF_BY_HASH) != 0 && w->entry->digest_known;
    if (g->lister->source != NULL) {
        g->lister->source(g, w->entry, &t->source);
    }
    list_push_back(&g->downloads, &t->node);
    if (t->source.bytes.p != NULL) {
        return give_made_download(t);
    }
    t->url = t->source.url != NULL ? t->source.url : http_url_of(g, w->entry->path);
    t->hash_url = t->by_hash ? hash_url_of(g, w->entry) : NULL;
    *f = (struct origin_request_params){
        .origin = g->site->origin, .via = t->source.via, .end = LENGTH_UNKNOWN};
    if (is_etag(w->entry->validator)) {
        f->if_match = t->listed_etag = arena_copy(&t->arena, w->entry->validator);
        if (w->have_bytes > 0 && slice_eq(t->asked, t->listed_etag) && w->have_bytes < t->listed) {
            t->have = f->first = w->have_bytes;
            f->end = t->listed != SYNC_SIZE_UNKNOWN ? t->listed : END_OPEN;
        }
    } else if (w->unchanged_is_fine && t->asked.n != 0 && !t->source.git_known) {
        t->conditional = true;
        *(is_etag(t->asked) ? &f->if_none_match : &f->if_modified_since) = t->asked;
    } else if (w->have_bytes > 0 && !t->source.git_known &&
               (w->entry->digest_known || is_etag(t->asked))) {
        t->have = w->have_bytes;
        f->first = w->have_bytes;
        f->end = t->listed != SYNC_SIZE_UNKNOWN && t->listed > t->have ? t->listed : END_OPEN;
        f->if_range = w->entry->digest_known ? SLICE_NONE : t->asked;
    }
    begin_http_download(t);
    return t;
}

static void http_download_resume(struct download *t)
{
    if (t->request != NULL) {
        origin_request_resume(t->request);
    } else if (t->paused) {
        made_done(t);
    }
}

static void http_download_cancel(struct download **tp)
{
    struct download *t = *tp;

    *tp = NULL;
    if (t != NULL) {
        free_http_download(t);
    }
}

static void http_downloads_cancel(struct http_engine *g)
{
    LIST_EACH (&g->downloads, it) {
        free_http_download(LIST_ITEM(it, struct download, node));
    }
}

enum { PROBE_BYTES = 4 << 20 };

char *http_url_of(const struct http_engine *g, struct slice path)
{
    struct buf b = BUF_INIT(strlen(g->base) + 3 * path.n + 1);
    char *url;

    buf_str(&b, g->base);
    url_encode_path(path, &b);
    url = mem_strdup(buf_cstr(&b));
    buf_free(&b);
    return url;
}

static void on_http_engine_soon(evutil_socket_t fd, short what, void *arg)
{
    struct http_engine *g = arg;

    (void)fd;
    (void)what;
    g->news(g);
}

void http_soon(struct http_engine *g, void (*news)(struct http_engine *g))
{
    struct timeval now = {0};

    g->news = news;
    evtimer_add(g->soon, &now);
}

static int http_open(const struct engine_site *site, const struct engine_events *ev, void *arg,
                     struct engine **out, struct err *e)
{
    static const struct lister *const listers[] = {&lister_index, &lister_sums, &lister_debian,
                                                   &lister_hf,    &lister_pypi, &lister_conda,
                                                   &lister_rpm};
    struct http_engine *g;
    const char *wanted = site->conf->list;
    struct arena a = {0};

    if (site->origin == NULL) {
        return err_set(e, E_CONFIG, "an upstream over HTTP needs an origin");
    }
    g = NEW(struct http_engine);
    g->ops = origin_bucket(site->origin) != NULL ? &engine_s3 : &engine_http;
    g->site = site;
    g->ev = *ev;
    g->arg = arg;
    g->base =
        g->ops == &engine_s3
            ? mem_strdup(origin_url(site->origin))
            : mem_strdup(arena_cstr(&a, arena_fmt(&a, SLICE_FMT "%s", SLICE_ARG(site->url),
                                                  slice_ends(site->url, SLICE("/")) ? "" : "/")));
    arena_fini(&a);
    list_init(&g->docs);
    list_init(&g->downloads);
    g->cursor = BUF_INIT(4096);
    g->soon = evtimer_new(site->base, on_http_engine_soon, g);
    CHECK(g->soon != NULL);
    g->lister = listers[0];
    for (size_t i = 0; wanted != NULL && i < ARRAY_LEN(listers); i++) {
        if (strcmp(listers[i]->name, wanted) == 0) {
            g->lister = listers[i];
        }
    }
    if (g->ops == &engine_s3) {
        g->lister = &lister_bucket;
    }
    if (site->probe != NULL) {
        g->probe = mem_strdup(site->probe);
    } else if (g->lister == &lister_debian && site->conf->suites_count == 1) {
        g->probe = mem_new(strlen(site->conf->suites[0]) + 32);
        sprintf(g->probe, "dists/%s/InRelease", site->conf->suites[0]);
    }
    *out = (struct engine *)g;
    return 0;
}

/* --- probe: a small file that changes whenever anything does; its digest is the cursor --- */

static void on_probed(struct doc *d, int rc)
{
    struct http_engine *g = d->g;
    enum probe_answer a = PROBE_UNKNOWN;
    struct digest now;

    if (rc == 0) {
        digest_of(buf_slice(&d->body), &now);
        a = digest_eq(&now, &g->probe_digest) ? PROBE_SAME : PROBE_CHANGED;
    }
    doc_free(&g->probe_doc);
    g->ev.on_probe(g->arg, a);
}

static void probe_unknown(struct http_engine *g)
{
    g->ev.on_probe(g->arg, PROBE_UNKNOWN);
}

static void http_probe(struct engine *eg, struct slice cursor)
{
    struct http_engine *g = (struct http_engine *)eg;
    char *url;

    if (g->probe == NULL && g->lister->probe != NULL && cursor.n != 0) {
        g->lister->probe(g, cursor);
        return;
    }
    if (g->probe == NULL || cursor.n != DIGEST_BYTES) {
        http_soon(g, probe_unknown);
        return;
    }
    memcpy(g->probe_digest.b, cursor.p, DIGEST_BYTES);
    url = http_url_of(g, slice_str(g->probe));
    g->probe_doc = doc_ask(g, url, NULL, PROBE_BYTES, on_probed, g);
    free(url);
}

void http_probed(struct http_engine *g, enum probe_answer a)
{
    g->ev.on_probe(g->arg, a);
}

/* --- list: the probe's file is read first, so that a change while we list shows the next time
 * --- */

static void on_cursor(struct doc *d, int rc)
{
    struct http_engine *g = d->g;
    struct digest now;

    if (rc == 0) {
        digest_of(buf_slice(&d->body), &now);
        buf_clear(&g->cursor);
        buf_add(&g->cursor, now.b, DIGEST_BYTES);
    } else {
        g->site->log(g->site->log_arg, "the probe %s cannot be read: %s", g->probe, d->why.text);
    }
    doc_free(&g->probe_doc);
    g->lister->start(g);
}

static void http_list(struct engine *eg)
{
    struct http_engine *g = (struct http_engine *)eg;
    char *url;

    if (g->probe == NULL) {
        g->lister->start(g);
        return;
    }
    url = http_url_of(g, slice_str(g->probe));
    g->probe_doc = doc_ask(g, url, NULL, PROBE_BYTES, on_cursor, g);
    free(url);
}

void http_listed(struct http_engine *g, int rc, const struct err *why,
                 const struct engine_listed *l)
{
    struct engine_listed full = l != NULL ? *l : (struct engine_listed){0};

    full.wire_bytes = g->list_bytes;
    full.cursor = g->cursor.n != 0 ? buf_slice(&g->cursor) : SLICE_NONE;
    g->ev.on_listed(g->arg, rc, why, &full);
}

int http_give(struct http_engine *g, struct slice path, uint64_t size_bytes, const struct sum *sum,
              uint64_t ref, struct err *e)
{
    struct sync_entry en = {.type = SYNC_FILE,
                            .path = path,
                            .size_bytes = size_bytes,
                            .mtime_ns = SYNC_TIME_UNKNOWN,
                            .ref = ref};
    int rc;

    en.digest_known = sum_digest(sum, &en.digest);
    rc = g->ev.on_entry(g->arg, &en);
    return rc != 0 ? err_set(e, rc, "the indexes list too many files; raise max_entries") : 0;
}

/* --- the rest --- */

static unsigned http_window(const struct engine *eg)
{
    return ((const struct http_engine *)eg)->site->parallel;
}

static void http_engine_finished(struct http_engine *g)
{
    g->ev.on_finished(g->arg, 0, NULL);
}

static void http_finish(struct engine *eg)
{
    http_soon((struct http_engine *)eg, http_engine_finished);
}

static void http_close(struct engine **gp)
{
    struct http_engine *g = (struct http_engine *)*gp;

    *gp = NULL;
    if (g == NULL) {
        return;
    }
    if (g->lister->free != NULL) {
        g->lister->free(g);
    }
    heads_free(&g->heads);
    LIST_EACH (&g->docs, it) {
        struct doc *d = LIST_ITEM(it, struct doc, node);
        doc_free(&d);
    }
    http_downloads_cancel(g);
    event_free(g->soon);
    buf_free(&g->cursor);
    free(g->probe);
    free(g->base);
    free(g);
}

static const char *const schemes[] = {"http", "https", NULL};
static const char *const s3_schemes[] = {"s3", NULL};

#define ENGINE_BY_HTTP(its_name, its_schemes)                                                      \
    {                                                                                              \
        .name = its_name, .schemes = its_schemes, .open = http_open, .probe = http_probe,          \
        .list = http_list, .window = http_window, .download = http_download,                       \
        .resume = http_download_resume, .cancel = http_download_cancel, .finish = http_finish,     \
        .close = http_close                                                                        \
    }

const struct engine_ops engine_http = ENGINE_BY_HTTP("http", schemes);
const struct engine_ops engine_s3 = ENGINE_BY_HTTP("s3", s3_schemes);
