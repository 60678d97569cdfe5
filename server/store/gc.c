/* gc_run(): marks what snapshots reach, then removes, in this order, holder rows whose referrer is
 * gone, blobs without a holder, and nodes that nothing reaches. It runs beside all other work: each
 * removal states what it relies on (the object's row is still absent, the head has not moved, the
 * blob's row and holders, the node's time of writing), and the commit thread checks it. Nothing
 * younger than the grace is removed, so a publish may first put nodes and blobs, then the head. */
#include "server/store/gc.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/store/alias.h"
#include "server/store/drop.h"
#include "server/store/head.h"
#include "server/store/node.h"
#include "server/store/seek.h"
#include "server/store/state.h"

/* --- what is reached --- */

struct marker {
    struct store *s;
    struct mark *m;
    const struct mark_events *ev;
    struct slice tree;
    uint64_t tree_hash;
    struct err *e; /* of the snapshot at work */
    struct err *caller;
};

static uint64_t hash_digest(const struct digest *d)
{
    return be_get(d->b, 8);
}

static uint64_t hash_of_tree(struct slice tree)
{
    return XXH3_64bits(tree.p, tree.n);
}

static uint64_t hash_in_tree(uint64_t tree_hash, const void *p, size_t n)
{
    return XXH3_64bits_withSeed(p, n, tree_hash);
}

static uint64_t hash_head(uint64_t tree_hash, uint64_t seq)
{
    char n[8];

    be_put(n, 8, seq);
    return hash_in_tree(tree_hash, n, sizeof n);
}

bool mark_has_node(const struct mark *m, const struct digest *id)
{
    return set64_has(&m->nodes, hash_digest(id));
}

bool mark_has_digest(const struct mark *m, const struct digest *d)
{
    return set64_has(&m->digests, hash_digest(d));
}

static bool mark_has_held(const struct mark *m, struct slice tree, const struct digest *d)
{
    return set64_has(&m->held, hash_in_tree(hash_of_tree(tree), d->b, DIGEST_BYTES));
}

static bool mark_has_head(const struct mark *m, struct slice tree, uint64_t newest_seq)
{
    return set64_has(&m->heads, hash_head(hash_of_tree(tree), newest_seq));
}

void mark_free(struct mark *m)
{
    set64_free(&m->nodes);
    set64_free(&m->digests);
    set64_free(&m->held);
    set64_free(&m->heads);
    set64_free(&m->seen);
}

static int mark_file(struct marker *x, const struct entry *en)
{
    if (en->type != ENTRY_FILE) {
        return 0;
    }
    set64_add(&x->m->digests, hash_digest(&en->digest));
    if (!set64_add(&x->m->held, hash_in_tree(x->tree_hash, en->digest.b, DIGEST_BYTES))) {
        return 0;
    }
    return x->ev != NULL && x->ev->on_file != NULL ? x->ev->on_file(x->ev->arg, x->tree, en, x->e)
                                                   : 0;
}

static int mark_node(struct marker *x, const struct digest *id, const struct child *said,
                     unsigned level)
{
    struct tree_node n;
    int rc;

    if (!set64_add(&x->m->seen, hash_in_tree(x->tree_hash, id->b, DIGEST_BYTES))) {
        return 0;
    }
    set64_add(&x->m->nodes, hash_digest(id));
    rc = said != NULL ? seek_load(x->s, said, level, &n, x->e) : node_load(x->s, id, &n, x->e);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < n.count; i++) {
        rc = n.level == 0 ? mark_file(x, &n.entry[i])
                          : mark_node(x, &n.child[i].id, &n.child[i], n.level - 1);
    }
    node_free(&n);
    return rc;
}

static int mark_snap(void *arg, struct slice key, struct slice value)
{
    struct marker *x = arg;
    struct err why = {0};
    struct snap sn;
    uint64_t seq = 0;
    int rc;

    x->e = &why;
    if (!snap_key_parse(key, &x->tree, &seq)) {
        x->tree = key;
        rc = err_set(&why, E_CORRUPT, "the key of a snapshot cannot be decoded");
    } else {
        rc = snap_decode(value, seq, &sn, &why);
    }
    if (rc == 0) {
        x->tree_hash = hash_of_tree(x->tree);
        rc = mark_node(x, &sn.root, NULL, 0);
    }
    if (rc == E_CORRUPT && x->ev != NULL && x->ev->on_bad != NULL) {
        x->ev->on_bad(x->ev->arg, x->tree, seq, &why);
        return 0;
    }
    if (rc != 0 && x->caller != NULL) {
        *x->caller = why;
    }
    return rc;
}

static int mark_head(void *arg, struct slice key, struct slice value)
{
    struct marker *x = arg;
    struct head h;

    if (head_decode(value, &h, NULL) == 0) {
        set64_add(&x->m->heads, hash_head(hash_of_tree(key), h.newest_seq));
    }
    return 0;
}

int mark_run(struct store *s, struct kv_view *view, const struct mark_events *ev, struct mark *out,
             struct err *e)
{
    struct marker x = {.s = s, .m = out, .ev = ev, .caller = e};
    int rc;

    *out = (struct mark){0};
    rc = kv_scan(s->kv, view, TABLE_HEAD, SLICE_NONE, SLICE_NONE, mark_head, &x, e);
    rc = rc != 0 ? rc : kv_scan(s->kv, view, TABLE_SNAP, SLICE_NONE, SLICE_NONE, mark_snap, &x, e);
    return rc;
}

void mark_add_digest(struct mark *m, const struct digest *d)
{
    set64_add(&m->digests, hash_digest(d));
}

int mark_version(struct store *s, struct mark *m, struct slice tree, const struct digest *root,
                 struct err *e)
{
    struct marker x = {.s = s, .m = m, .tree = tree, .tree_hash = hash_of_tree(tree), .e = e};

    return mark_node(&x, root, NULL, 0);
}

/* --- collection --- */

enum { BATCH_ROWS = 64, ROW_MAX = 64 << 20 };

struct gc {
    struct store *s;
    struct mark mark;
    uint64_t old_unix_s; /* what was written later stays */
    bool dry;
    struct gc_report *out;
    struct batch *batch;
    size_t rows;
    struct drop drop[BATCH_ROWS];
    size_t drops;
    struct buf key;
    struct buf row;
    struct err *e;
};

static int flush_rows(struct gc *g)
{
    int rc = 0;

    if (g->rows != 0 && !g->dry) {
        rc = store_commit(g->s, &g->batch, COMMIT_LAZY, g->e);
    }
    batch_free(&g->batch);
    g->batch = batch_new();
    g->rows = 0;
    return rc == E_CHANGED ? 0 : rc; /* the next run sees to it */
}

/* --- holders --- */

static struct slice referrer(struct gc *g, struct slice repo, struct slice key)
{
    buf_clear(&g->key);
    buf_adds(&g->key, repo);
    buf_byte(&g->key, 0);
    buf_adds(&g->key, key);
    return buf_slice(&g->key);
}

/* True when `row` is absent, and then the batch relies on it. */
static int row_is_absent(struct gc *g, enum table t, struct slice key, bool *yes)
{
    int rc = kv_get(g->s->kv, t, key, &g->row, g->e);

    *yes = rc == E_NOTFOUND;
    if (*yes) {
        batch_require_absent(g->batch, t, key);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

static int old_blob(struct gc *g, const struct digest *d, bool *yes)
{
    struct blob_row r;
    int rc = kv_get(g->s->kv, TABLE_BLOB, digest_key(d), &g->row, g->e);

    *yes = rc == E_NOTFOUND || (rc == 0 && blob_row_decode(buf_slice(&g->row), &r, NULL) == 0 &&
                                r.created_unix_s <= g->old_unix_s);
    return rc == E_NOTFOUND ? 0 : rc;
}

static int tree_let_go(struct gc *g, const struct digest *d, struct slice tree, bool *yes)
{
    struct head h;
    int rc = old_blob(g, d, yes);

    if (rc != 0 || !*yes) {
        return rc;
    }
    *yes = !mark_has_held(&g->mark, tree, d);
    if (!*yes) {
        return 0;
    }
    rc = row_is_absent(g, TABLE_HEAD, tree, yes);
    if (rc != 0 || *yes) {
        return rc;
    }
    *yes = head_decode(buf_slice(&g->row), &h, NULL) == 0 &&
           mark_has_head(&g->mark, tree, h.newest_seq);
    if (*yes) {
        batch_require_value(g->batch, TABLE_HEAD, tree, buf_slice(&g->row));
    }
    return 0;
}

static int sweep_holder(void *arg, struct slice row_key, struct slice value)
{
    struct gc *g = arg;
    struct slice repo, key;
    struct digest d;
    bool gone = false;
    char kind;
    int rc = 0;

    (void)value;
    if (!holder_parse(row_key, &repo, &kind, &key)) {
        return 0;
    }
    memcpy(d.b, row_key.p, DIGEST_BYTES);
    if (kind == 'o') {
        rc = row_is_absent(g, TABLE_OBJECT, referrer(g, repo, key), &gone);
    } else if (kind == 's') {
        rc = row_is_absent(g, TABLE_STAGE, referrer(g, repo, key), &gone);
    } else if (kind == 'u') {
        rc = row_is_absent(g, TABLE_UPLOAD, key, &gone);
    } else if (kind == 't') {
        rc = tree_let_go(g, &d, referrer(g, repo, key), &gone);
    }
    if (rc == 0 && gone) {
        batch_del(g->batch, TABLE_HOLDER, row_key);
        g->rows++;
    }
    return rc == 0 && g->rows == BATCH_ROWS ? flush_rows(g) : rc;
}

/* --- blobs --- */

static int flush_drops(struct gc *g)
{
    struct drops all = {g->drop, g->drops};
    struct batch *b = batch_new();
    int rc = 0;

    batch_check(b, drops_check, &all);
    for (size_t i = 0; i < g->drops; i++) {
        drop_put(&g->drop[i], b, AFTER_UNLINK);
    }
    if (g->drops != 0 && !g->dry) {
        rc = store_commit(g->s, &b, COMMIT_SYNC, g->e);
    }
    batch_free(&b);
    for (size_t i = 0; i < g->drops; i++) {
        if (rc == 0) {
            g->out->blobs++;
            g->out->bytes += g->drop[i].row.size_bytes;
        }
        drop_free(&g->drop[i]);
    }
    g->drops = 0;
    return rc == E_CHANGED ? 0 : rc;
}

static int sweep_blob(void *arg, struct slice key, struct slice value)
{
    struct gc *g = arg;
    struct drop *x = &g->drop[g->drops];
    struct blob_row r;
    struct digest d;
    int rc;

    if (key.n != DIGEST_BYTES || blob_row_decode(value, &r, NULL) != 0 ||
        r.created_unix_s > g->old_unix_s) {
        return 0;
    }
    memcpy(d.b, key.p, DIGEST_BYTES);
    rc = drop_look(g->s, &d, x, g->e);
    if (rc == 0 && x->objects + x->others == 0 && !mark_has_digest(&g->mark, &d) &&
        x->row.created_unix_s <= g->old_unix_s) {
        return ++g->drops == BATCH_ROWS ? flush_drops(g) : 0;
    }
    drop_free(x);
    return rc == E_NOTFOUND || rc == E_CORRUPT ? 0 : rc;
}

/* --- nodes --- */

static bool source_needs_node(struct gc *g, const struct digest *id)
{
    const struct blob_source *src = g->s->blob_source;

    return src != NULL && src->needs_node(src->arg, id);
}

static int sweep_node(void *arg, struct slice key, struct slice value)
{
    struct gc *g = arg;
    struct digest id;

    if (key.n != DIGEST_BYTES || value.n < NODE_TIME ||
        be_get(value.p, NODE_TIME) > g->old_unix_s) {
        return 0;
    }
    memcpy(id.b, key.p, DIGEST_BYTES);
    if (mark_has_node(&g->mark, &id) || source_needs_node(g, &id)) {
        return 0;
    }
    g->out->nodes++;
    batch_require_value(g->batch, TABLE_NODE, key, value);
    batch_del(g->batch, TABLE_NODE, key);
    return ++g->rows == BATCH_ROWS ? flush_rows(g) : 0;
}

/* --- other names of blobs that are gone --- */

static int sweep_alias(void *arg, struct slice key, struct slice value)
{
    struct gc *g = arg;
    struct digest d;
    bool gone;
    int rc;

    if (!alias_decode(value, &d)) {
        return 0;
    }
    rc = row_is_absent(g, TABLE_BLOB, digest_key(&d), &gone);
    if (rc != 0 || !gone) {
        return rc;
    }
    batch_del(g->batch, TABLE_ALIAS, key);
    return ++g->rows == BATCH_ROWS ? flush_rows(g) : 0;
}

static int sweep_unheld_blobs(struct gc *g)
{
    struct kv *kv = g->s->kv;
    int rc = kv_scan_once(kv, NULL, TABLE_HOLDER, SLICE_NONE, SLICE_NONE, sweep_holder, g, g->e);

    rc = rc != 0 ? rc : flush_rows(g);
    rc = rc != 0 ? rc
                 : kv_scan_once(kv, NULL, TABLE_BLOB, SLICE_NONE, SLICE_NONE, sweep_blob, g, g->e);
    rc = rc != 0 ? rc : flush_drops(g);
    if (rc == 0) {
        rc = kv_scan_once(kv, NULL, TABLE_ALIAS, SLICE_NONE, SLICE_NONE, sweep_alias, g, g->e);
    }
    rc = rc != 0 ? rc
                 : kv_scan_once(kv, NULL, TABLE_NODE, SLICE_NONE, SLICE_NONE, sweep_node, g, g->e);
    return rc != 0 ? rc : flush_rows(g);
}

int gc_run(struct store *s, uint64_t grace_s, bool dry, struct gc_report *out, struct err *e)
{
    uint64_t now = clock_unix_s();
    struct gc *g = NEW(struct gc);
    struct kv_view *view = kv_view_open(s->kv);
    int rc;

    *out = (struct gc_report){0};
    g->s = s;
    g->old_unix_s = now - min_u64(now, grace_s);
    g->dry = dry;
    g->out = out;
    g->batch = batch_new();
    g->key = BUF_INIT(KV_KEY_MAX);
    g->row = BUF_INIT(ROW_MAX);
    g->e = e;
    rc = mark_run(s, view, NULL, &g->mark, e);
    kv_view_close(&view);
    rc = rc != 0 ? rc : sweep_unheld_blobs(g);
    for (size_t i = 0; i < g->drops; i++) {
        drop_free(&g->drop[i]);
    }
    mark_free(&g->mark);
    batch_free(&g->batch);
    buf_free(&g->key);
    buf_free(&g->row);
    free(g);
    if (rc == 0 && !dry && (out->blobs != 0 || out->nodes != 0)) {
        log_info("store.collected", "blobs=%" PRIu64 " bytes=%" PRIu64 " nodes=%" PRIu64,
                 out->blobs, out->bytes, out->nodes);
    }
    return rc;
}
