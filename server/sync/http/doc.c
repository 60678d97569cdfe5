#include "server/sync/http/http_engine.h"

#include <stdlib.h>

#include "common/codec/httpdate.h"
#include "common/codec/url.h"
#include "common/codec/weblink.h"
#include "common/os/clock.h"
#include "server/store/ingest.h"
#include "server/sync/seen.h"

struct keep;

static void keep_begin(struct keep *k);

/* --- documents that are published too ---
 *
 * A list's document that is published too: into the store as it comes, and noted in a stage row, so
 * that a large index is fetched once, read from there, and served as it was read.
 *
 * owns     keep_free() frees; while it is being sealed it turns the run's loop until that is over,
 *          so: not inside an event
 * threads  the run's; the sealing is the disk pool's
 * errors   E_TOOBIG, E_NOSPACE, E_IO
 */

struct keep {
    const struct engine_site *site;
    char *path, *validator;
    uint64_t max_bytes;
    struct ingest *in;
    uint64_t at; /* bytes that came */
    struct seen seen;
    struct job job;
    bool sealing;
    int rc;
    struct err why;
    void (*done)(void *arg, int rc, const struct err *why);
    void *arg;
};

static struct keep *keep_open(const struct engine_site *site, const char *path, uint64_t max_bytes)
{
    struct keep *k = NEW(struct keep);

    k->site = site;
    k->path = mem_strdup(path);
    k->max_bytes = max_bytes;
    keep_begin(k);
    return k;
}

/* what came before is void */
static void keep_begin(struct keep *k)
{
    const struct ingest_how how = {.small = true,
                                   .hash_bytes = UINT64_MAX,
                                   .make_room = k->site->make_room,
                                   .make_room_arg = k->site->make_room_arg};

    ingest_drop(&k->in);
    k->at = 0;
    CHECK(ingest_open(k->site->store, &how, &k->in, NULL) == 0); /* it begins in memory */
}

static int keep_add(struct keep *k, struct slice bytes, struct err *e)
{
    if (bytes.n > k->max_bytes - k->at) {
        return err_set(e, E_TOOBIG, "the index is larger than %llu bytes",
                       (unsigned long long)k->max_bytes);
    }
    k->at += bytes.n;
    return ingest_append(k->in, bytes, e);
}

static void seal_work(struct job *j)
{
    struct keep *k = CONTAINER_OF(j, struct keep, job);
    struct batch *b = batch_new();

    k->rc = k->rc != 0 ? k->rc : ingest_seal(&k->in, b, NULL, &k->why);
    if (k->rc == 0) {
        stage_row_put(b, k->site->repo, slice_str(k->path), &k->seen);
        k->rc = store_commit(k->site->store, &b, COMMIT_LAZY, &k->why);
    }
    batch_free(&b);
}

static void seal_done(struct job *j)
{
    struct keep *k = CONTAINER_OF(j, struct keep, job);

    k->sealing = false;
    if (k->done != NULL) {
        k->done(k->arg, k->rc, &k->why);
    }
}

/* All has come. done() once, later. mtime_ns: SYNC_TIME_UNKNOWN. validator: "" or NULL for none;
 * copied. */
static void keep_seal(struct keep *k, int64_t mtime_ns, const char *validator,
                      void (*done)(void *arg, int rc, const struct err *why), void *arg)
{
    k->done = done;
    k->arg = arg;
    k->validator = mem_strdup(validator != NULL ? validator : "");
    k->seen = (struct seen){.listed_size = k->at,
                            .listed_mtime_ns = SYNC_TIME_UNKNOWN,
                            .taken_unix_s = clock_unix_s(),
                            .size_bytes = k->at,
                            .mtime_ns = mtime_ns != SYNC_TIME_UNKNOWN ? mtime_ns : 0,
                            .validator = slice_str(k->validator)};
    k->rc = ingest_finish(k->in, k->at, &k->seen.digest, &k->why);
    k->sealing = true;
    k->job = (struct job){.work = seal_work, .done = seal_done, .reply = k->site->box};
    pool_submit(k->site->disk, &k->job, k->site->client);
}

const struct digest *keep_digest(const struct keep *k)
{
    return &k->seen.digest;
}

uint64_t keep_size(const struct keep *k)
{
    return k->at;
}

/* NULL is fine */
static void keep_free(struct keep **kp)
{
    struct keep *k = *kp;

    *kp = NULL;
    if (k == NULL) {
        return;
    }
    k->done = NULL;
    while (k->sealing) { /* its letter is on the way to this loop */
        (void)!event_base_loop(k->site->base, EVLOOP_ONCE);
    }
    ingest_drop(&k->in);
    free(k->path);
    free(k->validator);
    free(k);
}

enum { TRIES = 4, RETRY_MS = 300, VALIDATOR_MAX = 256 };

static void begin_doc_request(struct doc *d);

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    begin_doc_request(arg);
}

static int verdict_of(int status, struct err *e)
{
    switch (status) {
    case 200:
    case 206: /* which comes to those alone who asked for a part */
        return 0;
    case 401:
    case 403:
    case 407:
        return err_set(e, E_DENIED, "the upstream answers %d", status);
    case 404:
    case 410:
        return err_set(e, E_NOTFOUND, "the upstream answers %d", status);
    case 429:
    case 503:
        return err_set(e, E_BUSY, "the upstream answers %d", status);
    default:
        return err_set(e, status >= 500 ? E_AGAIN : E_PROTOCOL, "the upstream answers %d", status);
    }
}

/* Only below the upstream itself: a list that goes on elsewhere is none. */
static void note_next(struct doc *d, struct slice link, struct slice url)
{
    struct slice to = weblink_next(link);
    struct buf b = BUF_INIT(16384);

    free(d->next);
    d->next = NULL;
    if (to.p != NULL && url_resolve(url, to, &b, NULL) == 0 &&
        slice_starts(buf_slice(&b), slice_str(d->g->base))) {
        d->next = mem_strdup(buf_cstr(&b));
    }
    buf_free(&b);
}

static int on_sync_doc_head(void *arg, const struct origin_head *h)
{
    struct doc *d = arg;
    struct slice type = origin_head_field(h, "content-type");
    struct slice etag = origin_head_field(h, "etag"), date = origin_head_field(h, "last-modified");
    struct arena a = {0};
    uint64_t unix_s;

    d->status = h->status;
    d->total = h->total;
    free(d->final_url);
    free(d->content_type);
    free(d->validator);
    d->mtime_ns = SYNC_TIME_UNKNOWN;
    if (httpdate_parse(date, clock_unix_s(), &unix_s) && unix_s < (uint64_t)1 << 33) {
        d->mtime_ns = (int64_t)unix_s * 1000000000;
    } else {
        date = SLICE("");
    }
    etag = etag.n != 0 && etag.n < VALIDATOR_MAX ? etag : date;
    d->validator = mem_strdup(arena_cstr(&a, etag));
    d->final_url = mem_strdup(arena_cstr(&a, h->url));
    d->content_type = mem_strdup(arena_cstr(&a, type.p != NULL ? type : SLICE("")));
    arena_fini(&a);
    if (h->why.p != NULL) {
        err_set(&d->no, verdict_of(h->status, NULL), "the upstream answers %d, " SLICE_FMT,
                h->status, SLICE_ARG(h->why));
    }
    note_next(d, origin_head_field(h, "link"), h->url);
    if (d->unlike != NULL && (h->status == 200 || h->status == 304)) {
        return err_set(&d->why, h->status == 304 ? E_EXISTS : E_CHANGED,
                       "only its status was requested");
    }
    if (d->keep != NULL && h->status == 200) {
        keep_begin(d->keep);
    }
    if (h->content_length != LENGTH_UNKNOWN && h->content_length > d->body.max &&
        h->status == 200) {
        return err_set(&d->why, E_TOOBIG, "the list is too large: %llu bytes",
                       (unsigned long long)h->content_length);
    }
    return 0;
}

static int on_sync_doc_body(void *arg, struct slice bytes)
{
    struct doc *d = arg;
    struct http_engine *g = d->g;

    g->list_bytes += bytes.n;
    if (d->status != 200 && d->status != 206) {
        return 0;
    }
    if (d->keep != NULL) {
        int rc = keep_add(d->keep, bytes, &d->why);
        if (rc != 0) {
            return rc;
        }
    } else {
        buf_adds(&d->body, bytes);
    }
    if (d->body.rc != 0 || g->list_bytes > g->site->list_bytes_max) {
        return err_set(&d->why, E_TOOBIG, "the list is larger than %llu bytes",
                       (unsigned long long)min_u64(d->body.max, g->site->list_bytes_max));
    }
    return 0;
}

static void on_kept(void *arg, int rc, const struct err *why)
{
    struct doc *d = arg;

    if (rc != 0) {
        d->why = *why;
        d->why.code = rc;
    }
    d->done(d, rc);
}

static void on_sync_doc_done(void *arg, int rc, const struct err *why)
{
    struct doc *d = arg;

    d->request = NULL;
    if (d->why.code != 0) {
        rc = d->why.code; /* ours */
    } else if (rc == 0) {
        rc = verdict_of(d->status, &d->why);
        d->why = rc != 0 && d->no.code != 0 ? d->no : d->why;
    } else if (why != NULL) {
        d->why = *why;
    }
    if (rc != E_CHANGED && sync_class_of(rc, false) == SYNC_RETRY && ++d->tries < TRIES) {
        struct timeval tv = {0, (suseconds_t)RETRY_MS * 1000 * (suseconds_t)d->tries};
        err_clear(&d->why);
        evtimer_add(d->retry, &tv);
        return;
    }
    d->why.code = rc;
    if (rc == 0 && d->keep != NULL) {
        keep_seal(d->keep, d->mtime_ns, d->validator, on_kept, d);
        return;
    }
    d->done(d, rc);
}

static const struct origin_request_events events = {on_sync_doc_head, on_sync_doc_body,
                                                    on_sync_doc_done};

static void begin_doc_request(struct doc *d)
{
    struct origin_request_params w = {.origin = d->g->site->origin,
                                      .url = slice_str(d->url),
                                      .via = slice_str(d->via),
                                      .first = d->first,
                                      .end = d->end,
                                      .accept = slice_str(d->accept)};

    if (d->unlike != NULL) {
        bool etag = d->unlike[0] == '"' || strncmp(d->unlike, "W/", 2) == 0;
        *(etag ? &w.if_none_match : &w.if_modified_since) = slice_str(d->unlike);
    }
    buf_clear(&d->body);
    err_clear(&d->no);
    d->request = origin_request_start(d->g->site->origin_client, &w, &events, d);
}

struct doc *doc_open(struct http_engine *g, const struct doc_want *w,
                     void (*done)(struct doc *d, int rc), void *arg)
{
    struct arena a = {0};
    struct doc *d = NEW(struct doc);

    d->g = g;
    d->url = mem_strdup(w->url);
    d->first = w->first;
    d->end = w->end != 0 ? w->end : LENGTH_UNKNOWN;
    d->accept = w->accept != NULL ? mem_strdup(w->accept) : NULL;
    d->via = w->via.p != NULL ? mem_strdup(arena_cstr(&a, w->via)) : NULL;
    arena_fini(&a);
    d->unlike = w->unlike != NULL ? mem_strdup(w->unlike) : NULL;
    d->keep = w->keep_as != NULL ? keep_open(g->site, w->keep_as, w->max_bytes) : NULL;
    d->body = BUF_INIT(w->max_bytes);
    d->done = done;
    d->arg = arg;
    d->retry = evtimer_new(g->site->base, on_retry, d);
    CHECK(d->retry != NULL);
    list_push_back(&g->docs, &d->node);
    begin_doc_request(d);
    return d;
}

struct doc *doc_ask(struct http_engine *g, const char *url, const char *accept, size_t max_bytes,
                    void (*done)(struct doc *d, int rc), void *arg)
{
    struct doc_want w = {.url = url, .accept = accept, .max_bytes = max_bytes};

    return doc_open(g, &w, done, arg);
}

void doc_free(struct doc **dp)
{
    struct doc *d = *dp;

    *dp = NULL;
    if (d == NULL) {
        return;
    }
    origin_request_cancel(&d->request);
    keep_free(&d->keep);
    event_free(d->retry);
    list_remove(&d->node);
    buf_free(&d->body);
    free(d->url);
    free(d->accept);
    free(d->via);
    free(d->unlike);
    free(d->validator);
    free(d->final_url);
    free(d->content_type);
    free(d->next);
    free(d);
}
