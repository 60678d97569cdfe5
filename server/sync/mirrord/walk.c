/* walk.c - a tree of the core's, from its root down: what is here is read here, the rest comes and is stored.
 *
 * Depth first, so that no more nodes are held than a tree is deep and requests are under way. A node that is here says nothing
 * of those below it (a walk may have broken off, a collection may have passed), so each is looked for by itself. */
#include <inttypes.h>
#include <stdlib.h>

#include "server/sync/mirrord/core.h"
#include "server/sync/mirrord/wire.h"

enum {
    NODES_A_TURN = 64,  /* read here, before the loop has its say */
    NODES_A_BATCH = 32, /* stored at once */
    URL_ROOM = 16 << 10,
    FRAME_MAX = NODE_BYTES_MAX + (64 << 10),
};

struct inner {        /* a node above the leaves, while one of its children is to be had */
    struct list node; /* in walk.stack */
    unsigned holds;   /* the stack's, its children's, those of requests */
    struct inner *parent;
    size_t index; /* in the parent */
    size_t next;  /* child to look at */
    struct node n;
};

struct coming { /* a node that is asked for */
    struct list node;
    struct walk *w;
    struct inner *parent; /* NULL: the root */
    size_t index;
    struct ask *ask;
};

struct walk {
    struct core *g;
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
    ask_free(&c->ask);
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

static struct slice path_at(const struct node *n, size_t i)
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

static bool counts(const struct node *n, uint64_t said)
{
    uint64_t sum = n->level == 0 ? n->count : 0;

    for (size_t i = 0; n->level != 0 && i < n->count; i++) {
        if (!add_u64(sum, n->child[i].entries, &sum)) {
            return false;
        }
    }
    return sum == said;
}

static int check(const struct walk *w, const struct inner *parent, size_t index,
                 const struct node *n, struct err *e)
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
                          "the core's tree has a node that is not what is said of it");
}

/* --- what it holds --- */

static int tell(struct core *g, const struct entry *en)
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
static int accept_node(struct walk *w, struct inner *parent, size_t index, struct node *n,
                       struct err *e)
{
    struct inner *x;
    int rc = check(w, parent, index, n, e);

    for (size_t i = 0; rc == 0 && n->level == 0 && i < n->count; i++) {
        rc = tell(w->g, &n->entry[i]);
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

static int flush(struct walk *w, struct err *e)
{
    int rc = w->nrows != 0 ? store_commit(w->g->site->store, &w->rows, COMMIT_LAZY, e) : 0;

    batch_free(&w->rows);
    w->rows = batch_new();
    w->nrows = 0;
    return rc;
}

static int keep(struct walk *w, struct slice encoding, const struct node *n, struct err *e)
{
    struct buf copy = BUF_INIT(NODE_BYTES_MAX);
    struct digest id;

    buf_adds(&copy, encoding);
    node_put(&copy, n->level, n->count, w->rows, &id);
    buf_free(&copy);
    w->came++;
    return ++w->nrows >= NODES_A_BATCH ? flush(w, e) : 0;
}

/* --- the walk --- */

static void turn(struct walk *w);

static void end(struct walk *w, int rc, struct err *why)
{
    char hex[DIGEST_HEX + 1];

    w->over = true;
    LIST_EACH (&w->coming, it) {
        coming_free(LIST_ITEM(it, struct coming, node));
    }
    if (rc == 0) {
        rc = flush(w, why);
    } else {
        (void)!flush(w, NULL); /* the next walk finds them */
    }
    digest_format(&w->g->head.root, hex);
    w->g->site->log(w->g->site->log_arg,
                    "tree %.12s, v%" PRIu64 " of the core: %" PRIu64 " nodes came, %" PRIu64
                    " were here; %" PRIu64 " bytes",
                    hex, w->g->head.seq, w->came, w->here, w->g->wire_bytes);
    core_listed(w->g, rc, why);
}

static int unpack(const struct ask *a, struct buf *out, struct err *e)
{
    struct slice body = buf_slice(&a->body);

    /* A node begins with its version, a frame of zstd with 0x28. */
    if (body.n != 0 && body.p[0] == 1) {
        buf_adds(out, body);
        return out->rc;
    }
    return wire_node_unpack(body, out, e);
}

static int take_node(struct walk *w, const struct coming *c, struct err *e)
{
    struct buf bytes = BUF_INIT(NODE_BYTES_MAX);
    struct digest got;
    struct node n;
    int rc = unpack(c->ask, &bytes, e);

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
    rc = keep(w, buf_slice(&bytes), &n, e);
    if (rc != 0) {
        node_free(&n);
        return rc;
    }
    return accept_node(w, c->parent, c->index, &n, e);
}

static void on_node(struct ask *a, int rc)
{
    struct coming *c = a->arg;
    struct walk *w = c->w;
    struct err why = a->why;

    if (rc == E_NOTFOUND) {
        rc = err_set(&why, E_CHANGED, "the core let go of that snapshot while it was read");
    } else if (rc == 0) {
        rc = take_node(w, c, &why);
    }
    coming_free(c);
    if (rc != 0) {
        end(w, rc, &why);
    } else {
        turn(w);
    }
}

static char *url_of(const struct walk *w, const struct inner *parent, size_t index)
{
    struct buf b = BUF_INIT(URL_ROOM);
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
    c->ask = ask_start(w->g, url_of(w, parent, index), WIRE_NODE_ZSTD, NULL, FRAME_MAX, on_node, c);
}

/* One node: from here, or asked for. */
static int visit(struct walk *w, struct inner *parent, size_t index, struct err *e)
{
    struct node n;
    int rc = node_load(w->g->site->store, id_of(w, parent, index), &n, NULL);

    if (rc == 0) {
        w->here++;
        return accept_node(w, parent, index, &n, e);
    }
    if (rc != E_CORRUPT) { /* of an absent one too, and a damaged one is mended */
        return err_set(e, rc, "a node's row cannot be read");
    }
    fetch_node(w, parent, index);
    return 0;
}

static void next_turn(struct core *g)
{
    if (!g->walk->over) {
        turn(g->walk);
    }
}

static void turn(struct walk *w)
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
            core_soon(w->g, next_turn);
            return;
        }
        rc = visit(w, x, x->next++, &why);
    }
    if (rc != 0 || (list_empty(&w->stack) && w->count == 0)) {
        end(w, rc, &why);
    }
}

struct walk *walk_start(struct core *g)
{
    struct walk *w = NEW(struct walk);

    w->g = g;
    w->rows = batch_new();
    list_init(&w->stack);
    list_init(&w->coming);
    core_soon(g, next_turn);
    return w;
}

void walk_free(struct walk **wp)
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
