/* mirrord.c - the engine for upstreams that are mirrords: probe, head, and the calls of the
 * pipeline. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/codec/url.h"
#include "server/sync/mirrord/upstream.h"
#include "server/sync/mirrord/protocol.h"

static void upstream_listed(struct upstream *g, int rc, const struct err *why);
static void upstream_soon(struct upstream *g, void (*news)(struct upstream *g));

/* --- queries ---
 *
 * One small document of the upstream: its head, a node.
 */

enum { TRIES = 4, RETRY_MS = 300 };

static void begin_mirrord_query(struct query *a);

static void on_retry(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    begin_mirrord_query(arg);
}

int upstream_refused(int status, struct err *e)
{
    switch (status) {
    case 401:
    case 403:
    case 407:
        return err_set(e, E_DENIED, "the core answers %d: a token that may read the tree is needed",
                       status);
    case 404:
    case 410:
        return err_set(
            e, E_NOTFOUND,
            "the core answers %d: it is not a mirrord, or this tree is not published there",
            status);
    case 429:
    case 503:
        return err_set(e, E_BUSY, "the core answers %d", status);
    default:
        return err_set(e, status >= 500 ? E_AGAIN : E_PROTOCOL, "the core answers %d", status);
    }
}

static int query_on_head(void *arg, const struct origin_head *h)
{
    struct query *a = arg;

    a->status = h->status;
    if (h->status == 304 && a->etag[0] != '\0') {
        return 0;
    }
    if (h->status != 200) {
        return upstream_refused(h->status, &a->why);
    }
    if (h->content_length != LENGTH_UNKNOWN && h->content_length > a->body.max) {
        return err_set(&a->why, E_TOOBIG, "the core's response is too large: %llu bytes",
                       (unsigned long long)h->content_length);
    }
    return 0;
}

static int on_query_body(void *arg, struct slice bytes)
{
    struct query *a = arg;
    struct upstream *g = a->g;

    g->wire_bytes += bytes.n;
    buf_adds(&a->body, bytes);
    if (a->body.rc != 0 || g->wire_bytes > g->site->list_bytes_max) {
        return err_set(&a->why, E_TOOBIG, "the core's tree is larger than the limit");
    }
    return 0;
}

static void on_query_done(void *arg, int rc, const struct err *why)
{
    struct query *a = arg;

    a->request = NULL;
    if (a->why.code != 0) {
        rc = a->why.code; /* ours */
    } else if (rc != 0 && why != NULL) {
        a->why = *why;
    }
    if (sync_class_of(rc, false) == SYNC_RETRY && ++a->tries < TRIES) {
        struct timeval tv = {0, (suseconds_t)RETRY_MS * 1000 * (suseconds_t)a->tries};
        err_clear(&a->why);
        evtimer_add(a->retry, &tv);
        return;
    }
    a->why.code = rc;
    a->done(a, rc);
}

static void begin_mirrord_query(struct query *a)
{
    static const struct origin_request_events events = {query_on_head, on_query_body,
                                                        on_query_done};
    struct origin_request_params w = {.origin = a->g->site->origin,
                                      .url = slice_str(a->url),
                                      .end = LENGTH_UNKNOWN,
                                      .accept = slice_str(a->accept),
                                      .if_none_match =
                                          a->etag[0] != '\0' ? slice_str(a->etag) : SLICE_NONE};

    buf_clear(&a->body);
    a->request = origin_request_start(a->g->site->origin_client, &w, &events, a);
}

struct query *query_start(struct upstream *g, char *url, const char *accept,
                          const struct digest *etag, size_t max_bytes,
                          void (*done)(struct query *a, int rc), void *arg)
{
    struct query *a = NEW(struct query);
    char hex[DIGEST_HEX + 1];

    a->g = g;
    a->url = url;
    a->accept = accept;
    if (etag != NULL) {
        digest_format(etag, hex);
        snprintf(a->etag, sizeof a->etag, "\"%s\"", hex);
    }
    a->body = BUF_INIT(max_bytes);
    a->done = done;
    a->arg = arg;
    a->retry = evtimer_new(g->site->base, on_retry, a);
    CHECK(a->retry != NULL);
    list_push_back(&g->asks, &a->node);
    begin_mirrord_query(a);
    return a;
}

void query_free(struct query **ap)
{
    struct query *a = *ap;

    *ap = NULL;
    if (a == NULL) {
        return;
    }
    origin_request_cancel(&a->request);
    event_free(a->retry);
    list_remove(&a->node);
    buf_free(&a->body);
    free(a->url);
    free(a);
}

/* --- walk ---
 *
 * A tree of the upstream's, from its root down: what is here is read here, the rest comes and is
 * stored.
 *
 * Depth first, so that no more nodes are held than a tree is deep and requests are under way. A
 * node that is here says nothing of those below it (a walk may have broken off, a collection may
 * have passed), so each is looked for by itself.
 */

enum {
    NODES_A_TURN = 64,  /* read here, before the loop has its say */
    NODES_A_BATCH = 32, /* stored at once */
    WALK_URL_ROOM = 16 << 10,
    FRAME_MAX = NODE_BYTES_MAX + (64 << 10),
};

struct inner {        /* a node above the leaves, while one of its children is to be had */
    struct list node; /* in walk.stack */
    unsigned holds;   /* the stack's, its children's, those of requests */
    struct inner *parent;
    size_t index; /* in the parent */
    size_t next;  /* child to look at */
    struct tree_node n;
};

struct coming { /* a node that is asked for */
    struct list node;
    struct walk *w;
    struct inner *parent; /* NULL: the root */
    size_t index;
    struct query *ask;
};

struct walk {
    struct upstream *g;
    struct list stack; /* the deepest in front */
    struct list coming;
    unsigned count; /* of coming */
    struct batch *rows;
    unsigned nrows;
    uint64_t here, came;
    bool begun, over;
};

static void inner_release(struct inner *x)
{
    while (x != NULL && --x->holds == 0) {
        struct inner *parent = x->parent;
        node_free(&x->n);
        free(x);
        x = parent;
    }
}

static void coming_free(struct coming *c)
{
    query_free(&c->ask);
    list_remove(&c->node);
    c->w->count--;
    inner_release(c->parent);
    free(c);
}

static const struct digest *id_of(const struct walk *w, const struct inner *parent, size_t index)
{
    return parent != NULL ? &parent->n.child[index].id : &w->g->head.root;
}

/* --- is it what its parent says? --- */

static struct slice path_at(const struct tree_node *n, size_t i)
{
    return n->level == 0 ? n->entry[i].path : n->child[i].first;
}

/* Where the next node begins; p == NULL: nowhere. */
static struct slice bound_of(const struct inner *parent, size_t index)
{
    for (; parent != NULL; index = parent->index, parent = parent->parent) {
        if (index + 1 < parent->n.count) {
            return parent->n.child[index + 1].first;
        }
    }
    return SLICE_NONE;
}

static bool counts(const struct tree_node *n, uint64_t said)
{
    uint64_t sum = n->level == 0 ? n->count : 0;

    for (size_t i = 0; n->level != 0 && i < n->count; i++) {
        if (!add_u64(sum, n->child[i].entries, &sum)) {
            return false;
        }
    }
    return sum == said;
}

static int check_walked_node(const struct walk *w, const struct inner *parent, size_t index,
                             const struct tree_node *n, struct err *e)
{
    struct slice bound = bound_of(parent, index);
    bool good;

    if (parent == NULL) {
        good = counts(n, w->g->head.entries);
    } else {
        const struct child *c = &parent->n.child[index];
        good = n->level + 1 == parent->n.level && n->count != 0 && counts(n, c->entries) &&
               slice_eq(path_at(n, 0), c->first) &&
               (bound.p == NULL || slice_cmp(path_at(n, n->count - 1), bound) < 0);
    }
    return good ? 0
                : err_set(e, E_PROTOCOL,
                          "the core's tree has a node that does not match its parent or head");
}

/* --- what it holds --- */

static int report_mirrord_entry(struct upstream *g, const struct entry *en)
{
    struct sync_entry out = {.path = en->path,
                             .size_bytes = en->size_bytes,
                             .mtime_ns = en->mtime_ns,
                             .executable = en->executable};

    switch (en->type) {
    case ENTRY_FILE:
        out.type = SYNC_FILE;
        out.digest_known = true;
        out.digest = en->digest;
        out.leader = en->target;
        break;
    case ENTRY_LINK:
        out.type = SYNC_LINK;
        out.target = en->target;
        out.leader = en->leader;
        break;
    case ENTRY_DIR:
        out.type = SYNC_DIR;
        break;
    }
    return g->ev.on_entry(g->arg, &out);
}

/* Takes n. */
static int accept_node(struct walk *w, struct inner *parent, size_t index, struct tree_node *n,
                       struct err *e)
{
    struct inner *x;
    int rc = check_walked_node(w, parent, index, n, e);

    for (size_t i = 0; rc == 0 && n->level == 0 && i < n->count; i++) {
        rc = report_mirrord_entry(w->g, &n->entry[i]);
    }
    if (rc != 0 || n->level == 0) {
        node_free(n);
        return rc;
    }
    x = NEW(struct inner);
    x->holds = 1;
    x->parent = parent;
    x->index = index;
    x->n = *n;
    if (parent != NULL) {
        parent->holds++;
    }
    list_push_front(&w->stack, &x->node);
    return 0;
}

/* --- what is stored --- */

static int flush_walked_entries(struct walk *w, struct err *e)
{
    int rc = w->nrows != 0 ? store_commit(w->g->site->store, &w->rows, COMMIT_LAZY, e) : 0;

    batch_free(&w->rows);
    w->rows = batch_new();
    w->nrows = 0;
    return rc;
}

static int put_walked_node(struct walk *w, struct slice encoding, const struct tree_node *n,
                           struct err *e)
{
    struct buf copy = BUF_INIT(NODE_BYTES_MAX);
    struct digest id;

    buf_adds(&copy, encoding);
    node_put(&copy, n->level, n->count, w->rows, &id);
    buf_free(&copy);
    w->came++;
    return ++w->nrows >= NODES_A_BATCH ? flush_walked_entries(w, e) : 0;
}

/* --- the walk --- */

static void advance_mirrord_walk(struct walk *w);

static void end_mirrord_walk(struct walk *w, int rc, struct err *why)
{
    char hex[DIGEST_HEX + 1];

    w->over = true;
    LIST_EACH (&w->coming, it) {
        coming_free(LIST_ITEM(it, struct coming, node));
    }
    if (rc == 0) {
        rc = flush_walked_entries(w, why);
    } else {
        (void)!flush_walked_entries(w, NULL); /* the next walk finds them */
    }
    digest_format(&w->g->head.root, hex);
    w->g->site->log(w->g->site->log_arg,
                    "tree %.12s, v%" PRIu64 " of the core: %" PRIu64
                    " nodes were downloaded, %" PRIu64 " were already here; %" PRIu64 " bytes",
                    hex, w->g->head.seq, w->came, w->here, w->g->wire_bytes);
    upstream_listed(w->g, rc, why);
}

static int unpack_node(const struct query *a, struct buf *out, struct err *e)
{
    struct slice body = buf_slice(&a->body);

    /* A node begins with its version, a frame of zstd with 0x28. */
    if (body.n != 0 && body.p[0] == 1) {
        buf_adds(out, body);
        return out->rc;
    }
    return sync_node_unpack(body, out, e);
}

static int take_node(struct walk *w, const struct coming *c, struct err *e)
{
    struct buf bytes = BUF_INIT(NODE_BYTES_MAX);
    struct digest got;
    struct tree_node n;
    int rc = unpack_node(c->ask, &bytes, e);

    if (rc == 0) {
        digest_of(buf_slice(&bytes), &got);
        rc = digest_eq(&got, id_of(w, c->parent, c->index))
                 ? node_decode(buf_slice(&bytes), &n, e)
                 : err_set(e, E_CORRUPT, "the core sent a node that does not match its id");
    }
    if (rc != 0) {
        buf_free(&bytes);
        return rc;
    }
    n.bytes = bytes; /* what it points into */
    rc = put_walked_node(w, buf_slice(&bytes), &n, e);
    if (rc != 0) {
        node_free(&n);
        return rc;
    }
    return accept_node(w, c->parent, c->index, &n, e);
}

static void on_node(struct query *a, int rc)
{
    struct coming *c = a->arg;
    struct walk *w = c->w;
    struct err why = a->why;

    if (rc == E_NOTFOUND) {
        rc = err_set(&why, E_CHANGED, "the core removed the snapshot while it was being read");
    } else if (rc == 0) {
        rc = take_node(w, c, &why);
    }
    coming_free(c);
    if (rc != 0) {
        end_mirrord_walk(w, rc, &why);
    } else {
        advance_mirrord_walk(w);
    }
}

static char *url_of(const struct walk *w, const struct inner *parent, size_t index)
{
    struct buf b = BUF_INIT(WALK_URL_ROOM);
    size_t way[NODE_LEVELS], depth = 0;
    char hex[DIGEST_HEX + 1];
    char *url;

    digest_format(id_of(w, parent, index), hex);
    buf_addf(&b, "%s/node/%s", w->g->tree, hex);
    digest_format(&w->g->head.root, hex);
    buf_addf(&b, "?root=%s", hex);
    for (; parent != NULL; index = parent->index, parent = parent->parent) {
        CHECK(depth < NODE_LEVELS); /* levels fall by one */
        way[depth++] = index;
    }
    for (size_t i = depth; i > 0; i--) {
        buf_addf(&b, "%s%zu", i == depth ? "&way=" : ".", way[i - 1]);
    }
    url = mem_strdup(buf_cstr(&b));
    buf_free(&b);
    return url;
}

static void fetch_node(struct walk *w, struct inner *parent, size_t index)
{
    struct coming *c = NEW(struct coming);

    c->w = w;
    c->parent = parent;
    c->index = index;
    if (parent != NULL) {
        parent->holds++;
    }
    list_push_back(&w->coming, &c->node);
    w->count++;
    c->ask = query_start(w->g, url_of(w, parent, index), SYNC_WIRE_NODE_ZSTD, NULL, FRAME_MAX,
                         on_node, c);
}

/* One node: from here, or asked for. */
static int visit(struct walk *w, struct inner *parent, size_t index, struct err *e)
{
    struct tree_node n;
    int rc = node_load(w->g->site->store, id_of(w, parent, index), &n, NULL);

    if (rc == 0) {
        w->here++;
        return accept_node(w, parent, index, &n, e);
    }
    if (rc != E_CORRUPT) { /* of an absent one too, and a damaged one is mended */
        return err_set(e, rc, "the row of a node cannot be read");
    }
    fetch_node(w, parent, index);
    return 0;
}

static void next_turn(struct upstream *g)
{
    if (!g->walk->over) {
        advance_mirrord_walk(g->walk);
    }
}

static void advance_mirrord_walk(struct walk *w)
{
    struct err why = {0};
    int rc = 0;

    if (!w->begun) {
        w->begun = true;
        rc = visit(w, NULL, 0, &why);
    }
    for (unsigned i = 0; rc == 0 && !list_empty(&w->stack) && w->count < w->g->site->parallel;) {
        struct inner *x = LIST_ITEM(w->stack.next, struct inner, node);
        if (x->next == x->n.count) {
            list_remove(&x->node);
            inner_release(x);
            continue;
        }
        if (i++ == NODES_A_TURN) {
            upstream_soon(w->g, next_turn);
            return;
        }
        rc = visit(w, x, x->next++, &why);
    }
    if (rc != 0 || (list_empty(&w->stack) && w->count == 0)) {
        end_mirrord_walk(w, rc, &why);
    }
}

static struct walk *walk_start(struct upstream *g)
{
    struct walk *w = NEW(struct walk);

    w->g = g;
    w->rows = batch_new();
    list_init(&w->stack);
    list_init(&w->coming);
    upstream_soon(g, next_turn);
    return w;
}

/* NULL is fine */
static void walk_free(struct walk **wp)
{
    struct walk *w = *wp;

    *wp = NULL;
    if (w == NULL) {
        return;
    }
    LIST_EACH (&w->coming, it) {
        coming_free(LIST_ITEM(it, struct coming, node));
    }
    while (!list_empty(&w->stack)) {
        inner_release(LIST_ITEM(list_pop_front(&w->stack), struct inner, node));
    }
    batch_free(&w->rows);
    free(w);
}

enum { URL_ROOM = 16 << 10 };

static void on_mirrord_engine_soon(evutil_socket_t fd, short what, void *arg)
{
    struct upstream *g = arg;

    (void)fd;
    (void)what;
    g->news(g);
}

static void upstream_soon(struct upstream *g, void (*news)(struct upstream *g))
{
    struct timeval now = {0};

    g->news = news;
    evtimer_add(g->soon, &now);
}

/* "http://core:8080/models/me/gpt/" -> ".../-/sync/models/me/gpt" and ".../-/blob/" */
static int split(struct upstream *g, struct err *e)
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
                       "the URL of a mirrord needs the name of its repo (and the tree of a "
                       "hosted one), as in http://core:8080/debian/");
    }
    url_write_origin(&u, &b);
    g->upstream = mem_strdup(buf_cstr(&b));
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

static void upstream_close(struct engine **gp)
{
    struct upstream *g = (struct upstream *)*gp;

    *gp = NULL;
    if (g == NULL) {
        return;
    }
    walk_free(&g->walk);
    upstream_downloads_fini(g);
    LIST_EACH (&g->asks, it) {
        struct query *a = LIST_ITEM(it, struct query, node);
        query_free(&a);
    }
    while (g->jobs != 0) { /* they are asked to stop, and come back soon */
        (void)!event_base_loop(g->site->base, EVLOOP_ONCE);
    }
    set64_free(&g->patched);
    event_free(g->soon);
    free(g->upstream);
    free(g->lists);
    free(g->tree);
    free(g->blobs);
    free(g);
}

static int upstream_open(const struct engine_site *site, const struct engine_events *ev, void *arg,
                         struct engine **out, struct err *e)
{
    struct upstream *g;
    int rc;

    if (site->origin == NULL) {
        return err_set(e, E_CONFIG, "the URL of a mirrord begins with http:// or https://");
    }
    g = NEW(struct upstream);
    g->ops = &engine_mirrord;
    g->site = site;
    g->ev = *ev;
    g->arg = arg;
    list_init(&g->asks);
    g->soon = evtimer_new(site->base, on_mirrord_engine_soon, g);
    CHECK(g->soon != NULL);
    upstream_downloads_init(g);
    *out = (struct engine *)g;
    rc = split(g, e);
    if (rc != 0) {
        upstream_close(out);
    }
    return rc;
}

/* --- the head --- */

static void ask_head(struct upstream *g, const struct digest *known,
                     void (*done)(struct query *a, int rc))
{
    struct buf url = BUF_INIT(URL_ROOM);

    buf_str(&url, g->tree);
    buf_str(&url, "/head");
    g->head_ask = query_start(g, mem_strdup(buf_cstr(&url)), "application/json", known,
                              SYNC_WIRE_HEAD_MAX, done, g);
    buf_free(&url);
}

static int take_upstream_head(struct upstream *g, const struct query *a, struct err *e)
{
    int rc = sync_head_read(buf_slice(&a->body), &g->head, e);

    if (rc == 0 && g->head.entries > g->site->entries_max) {
        rc = err_set(e, E_TOOBIG,
                     "the core's tree has %" PRIu64
                     " entries, more than max_entries allows; raise it",
                     g->head.entries);
    }
    g->has_head = rc == 0;
    return rc;
}

static void on_probed(struct query *a, int rc)
{
    struct upstream *g = a->arg;
    enum probe_answer answer = PROBE_UNKNOWN;

    if (rc == 0 && a->status == 304) {
        answer = PROBE_SAME;
    } else if (rc == 0 && take_upstream_head(g, a, NULL) == 0) {
        char hex[DIGEST_HEX + 1];
        digest_format(&g->head.root, hex);
        /* A cache in between may not know of conditions. */
        answer = memcmp(hex, a->etag + 1, DIGEST_HEX) == 0 ? PROBE_SAME : PROBE_CHANGED;
    }
    query_free(&g->head_ask);
    g->ev.on_probe(g->arg, answer);
}

static void probe_unknown(struct upstream *g)
{
    g->ev.on_probe(g->arg, PROBE_UNKNOWN);
}

static void upstream_probe(struct engine *eg, struct slice cursor)
{
    struct upstream *g = (struct upstream *)eg;
    struct digest known;

    if (cursor.n != DIGEST_BYTES) { /* another engine's */
        upstream_soon(g, probe_unknown);
        return;
    }
    memcpy(known.b, cursor.p, DIGEST_BYTES);
    ask_head(g, &known, on_probed);
}

/* --- the list --- */

static void start_walk(struct upstream *g)
{
    g->walk = walk_start(g);
}

static void on_query_head(struct query *a, int rc)
{
    struct upstream *g = a->arg;
    struct err why = a->why;

    rc = rc != 0 ? rc : take_upstream_head(g, a, &why);
    query_free(&g->head_ask);
    if (rc == 0) {
        start_walk(g);
    } else {
        upstream_listed(g, rc, &why);
    }
}

static void upstream_list(struct engine *eg)
{
    struct upstream *g = (struct upstream *)eg;

    if (g->has_head) {
        upstream_soon(g, start_walk);
    } else {
        ask_head(g, NULL, on_query_head);
    }
}

/* Ends the list. */
static void upstream_listed(struct upstream *g, int rc, const struct err *why)
{
    struct engine_listed l = {.cursor = slice_of(g->head.root.b, DIGEST_BYTES),
                              .digests = true,
                              .root = &g->head.root,
                              .wire_bytes = g->wire_bytes};

    g->ev.on_listed(g->arg, rc, why, &l);
}

/* --- the rest --- */

static unsigned upstream_window(const struct engine *eg)
{
    return ((const struct upstream *)eg)->site->parallel;
}

static void mirrord_engine_finished(struct upstream *g)
{
    g->ev.on_finished(g->arg, 0, NULL);
}

static unsigned upstream_smalls(const struct engine *eg, uint64_t *upto_bytes)
{
    return blob_batches_smalls((const struct upstream *)eg, upto_bytes);
}

static void upstream_finish(struct engine *eg)
{
    upstream_soon((struct upstream *)eg, mirrord_engine_finished);
}

static const char *const schemes[] = {"http", "https", NULL};

const struct engine_ops engine_mirrord = {
    .name = "mirrord",
    .schemes = schemes,
    .open = upstream_open,
    .probe = upstream_probe,
    .list = upstream_list,
    .window = upstream_window,
    .smalls = upstream_smalls,
    .download = upstream_download,
    .resume = upstream_download_resume,
    .cancel = upstream_download_cancel,
    .finish = upstream_finish,
    .close = upstream_close,
};
