/* mirrord.c - the engine for upstreams that are mirrords: probe, head, and the calls of the pipeline. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/sync/mirrord/core.h"
#include "server/sync/mirrord/wire.h"

enum { URL_ROOM = 16 << 10 };

static void on_soon(evutil_socket_t fd, short what, void *arg)
{
    struct core *g = arg;

    (void)fd;
    (void)what;
    g->news(g);
}

void core_soon(struct core *g, void (*news)(struct core *g))
{
    struct timeval now = {0};

    g->news = news;
    evtimer_add(g->soon, &now);
}

/* "http://core:8080/models/me/gpt/" -> ".../-/sync/models/me/gpt" and ".../-/blob/" */
static int split(struct core *g, struct err *e)
{
    struct buf b = BUF_INIT(URL_ROOM);
    struct slice path;
    struct url u;
    int rc = url_split(g->site->url, &u, e);

    if (rc != 0) {
        return rc;
    }
    path = slice_from(u.path, 1);
    while (path.n != 0 && path.p[path.n - 1] == '/') {
        path.n--;
    }
    if (path.n == 0 || u.query.p != NULL) {
        return err_set(e, E_CONFIG,
                       "a mirrord's URL names its repo (and the tree of a hosted one), as in "
                       "http://core:8080/debian/");
    }
    url_write_origin(&u, &b);
    g->core = mem_strdup(buf_cstr(&b));
    buf_addf(&b, "/-/sync/" SLICE_FMT, SLICE_ARG(path));
    g->tree = mem_strdup(buf_cstr(&b));
    buf_clear(&b);
    url_write_origin(&u, &b);
    buf_str(&b, "/-/blob/");
    g->blobs = mem_strdup(buf_cstr(&b));
    buf_clear(&b);
    url_write_origin(&u, &b);
    buf_str(&b, "/-/sync/cdc/");
    g->lists = mem_strdup(buf_cstr(&b));
    buf_free(&b);
    return 0;
}

static void core_close(struct engine **gp)
{
    struct core *g = (struct core *)*gp;

    *gp = NULL;
    if (g == NULL) {
        return;
    }
    walk_free(&g->walk);
    core_takes_cancel(g);
    sheaves_fini(g);
    LIST_EACH (&g->asks, it) {
        struct ask *a = LIST_ITEM(it, struct ask, node);
        ask_free(&a);
    }
    while (g->jobs != 0) { /* they are told to stop, and come back soon */
        (void)!event_base_loop(g->site->base, EVLOOP_ONCE);
    }
    set64_free(&g->patched);
    event_free(g->soon);
    free(g->core);
    free(g->lists);
    free(g->tree);
    free(g->blobs);
    free(g);
}

static int core_open(const struct engine_site *site, const struct engine_events *ev, void *arg,
                     struct engine **out, struct err *e)
{
    struct core *g;
    int rc;

    if (site->origin == NULL) {
        return err_set(e, E_CONFIG, "a mirrord is reached by http or https");
    }
    g = NEW(struct core);
    g->ops = &engine_mirrord;
    g->site = site;
    g->ev = *ev;
    g->arg = arg;
    list_init(&g->asks);
    list_init(&g->takes);
    g->soon = evtimer_new(site->base, on_soon, g);
    CHECK(g->soon != NULL);
    sheaves_init(g);
    *out = (struct engine *)g;
    rc = split(g, e);
    if (rc != 0) {
        core_close(out);
    }
    return rc;
}

/* --- the head --- */

static void ask_head(struct core *g, const struct digest *known,
                     void (*done)(struct ask *a, int rc))
{
    struct buf url = BUF_INIT(URL_ROOM);

    buf_str(&url, g->tree);
    buf_str(&url, "/head");
    g->head_ask =
        ask_start(g, mem_strdup(buf_cstr(&url)), "application/json", known, WIRE_HEAD_MAX, done, g);
    buf_free(&url);
}

static int take_head(struct core *g, const struct ask *a, struct err *e)
{
    int rc = wire_head_read(buf_slice(&a->body), &g->head, e);

    if (rc == 0 && g->head.entries > g->site->entries_max) {
        rc = err_set(e, E_TOOBIG, "the core's tree has %" PRIu64 " entries, more than max_entries",
                     g->head.entries);
    }
    g->has_head = rc == 0;
    return rc;
}

static void on_probed(struct ask *a, int rc)
{
    struct core *g = a->arg;
    enum probe_answer answer = PROBE_UNKNOWN;

    if (rc == 0 && a->status == 304) {
        answer = PROBE_SAME;
    } else if (rc == 0 && take_head(g, a, NULL) == 0) {
        char hex[DIGEST_HEX + 1];
        digest_format(&g->head.root, hex);
        /* A cache in between may not know of conditions. */
        answer = memcmp(hex, a->etag + 1, DIGEST_HEX) == 0 ? PROBE_SAME : PROBE_CHANGED;
    }
    ask_free(&g->head_ask);
    g->ev.on_probe(g->arg, answer);
}

static void probe_unknown(struct core *g)
{
    g->ev.on_probe(g->arg, PROBE_UNKNOWN);
}

static void core_probe(struct engine *eg, struct slice cursor)
{
    struct core *g = (struct core *)eg;
    struct digest known;

    if (cursor.n != DIGEST_BYTES) { /* another engine's */
        core_soon(g, probe_unknown);
        return;
    }
    memcpy(known.b, cursor.p, DIGEST_BYTES);
    ask_head(g, &known, on_probed);
}

/* --- the list --- */

static void start_walk(struct core *g)
{
    g->walk = walk_start(g);
}

static void on_head(struct ask *a, int rc)
{
    struct core *g = a->arg;
    struct err why = a->why;

    if (rc == 0) {
        rc = take_head(g, a, &why);
    }
    ask_free(&g->head_ask);
    if (rc == 0) {
        start_walk(g);
    } else {
        core_listed(g, rc, &why);
    }
}

static void core_list(struct engine *eg)
{
    struct core *g = (struct core *)eg;

    if (g->has_head) {
        core_soon(g, start_walk);
    } else {
        ask_head(g, NULL, on_head);
    }
}

void core_listed(struct core *g, int rc, const struct err *why)
{
    struct engine_listed l = {.cursor = slice_of(g->head.root.b, DIGEST_BYTES),
                              .digests = true,
                              .root = &g->head.root,
                              .wire_bytes = g->wire_bytes};

    g->ev.on_listed(g->arg, rc, why, &l);
}

/* --- the rest --- */

static unsigned core_window(const struct engine *eg)
{
    return ((const struct core *)eg)->site->parallel;
}

static void finished(struct core *g)
{
    g->ev.on_finished(g->arg, 0, NULL);
}

static unsigned core_smalls(const struct engine *eg, uint64_t *upto_bytes)
{
    return sheaves_smalls((const struct core *)eg, upto_bytes);
}

static void core_finish(struct engine *eg)
{
    core_soon((struct core *)eg, finished);
}

static const char *const schemes[] = {"http", "https", NULL};

const struct engine_ops engine_mirrord = {
    .name = "mirrord",
    .schemes = schemes,
    .open = core_open,
    .probe = core_probe,
    .list = core_list,
    .window = core_window,
    .smalls = core_smalls,
    .take = core_take,
    .resume = core_take_resume,
    .cancel = core_take_cancel,
    .finish = core_finish,
    .close = core_close,
};
