/* http.c - the engine for http and https, and for s3, which is both with signatures and a list of its own. */
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/sync/http/http_engine.h"

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

static void on_soon(evutil_socket_t fd, short what, void *arg)
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
        return err_set(e, E_CONFIG, "an upstream by HTTP needs its origin");
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
    list_init(&g->takes);
    g->cursor = BUF_INIT(4096);
    g->soon = evtimer_new(site->base, on_soon, g);
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

/* --- list: the probe's file is read first, so that a change while we list shows the next time --- */

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
    return rc != 0 ? err_set(e, rc, "the indexes name too much, see max_entries") : 0;
}

/* --- the rest --- */

static unsigned http_window(const struct engine *eg)
{
    return ((const struct http_engine *)eg)->site->parallel;
}

static void finished(struct http_engine *g)
{
    g->ev.on_finished(g->arg, 0, NULL);
}

static void http_finish(struct engine *eg)
{
    http_soon((struct http_engine *)eg, finished);
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
    http_takes_cancel(g);
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
        .list = http_list, .window = http_window, .take = http_take, .resume = http_take_resume,   \
        .cancel = http_take_cancel, .finish = http_finish, .close = http_close                     \
    }

const struct engine_ops engine_http = ENGINE_BY_HTTP("http", schemes);
const struct engine_ops engine_s3 = ENGINE_BY_HTTP("s3", s3_schemes);
