#include "server/cluster/tree_content.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/base/list.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/chunk_lists.h"
#include "server/cluster/content_fetch.h"
#include "server/cluster/content_index.h"
#include "server/cluster/content_upload.h"
#include "server/cluster/generation.h"
#include "server/cluster/place.h"
#include "server/cluster/retry.h"
#include "server/store/batch.h"
#include "server/store/blob.h"
#include "server/store/head.h"
#include "server/store/ingest.h"
#include "server/store/keep.h"
#include "server/store/node.h"
#include "server/store/set64.h"

enum {
    RETRY_MS = 30000,
    COMMIT_BYTES = 8 << 20, /* of places and nodes */
    RUN_BYTES_MAX = 16 << 20,
    HOLDER_KEY_MAX = 16 << 10,
    SNAP_KEY_MAX = 8 << 10,
    RUN_GAP_BYTES = 64 << 10, /* between two nodes that one request reads */
};

struct tree_content {
    struct tree_content_settings set;
    struct chunk_lists *lists;
    atomic_bool stop, read_back;
    struct lock lock; /* LOCK_CONTENT; guards what follows */
    struct cond upload_ended, fetch_ended;
    unsigned uploads;
    struct tree_content_stats stats;             /* but for what is under way */
    struct content_upload *upload[TREE_UPLOADS]; /* those that are running */
    struct list fetches;                         /* struct blob_run */
    struct lock learning_lock;                   /* LOCK_LEAF; guards what follows */
    struct set64 learning; /* nonces of indexes whose places are here and whose rows are not yet */
};

/* ============================================================ into the bucket ==== */

/* One call of tree_content_upload(), or a part of tree_content_upload_all(). */
struct publish {
    struct tree_content *t;
    struct whole *whole;     /* of the latter, or NULL */
    struct batch_rows *rows; /* of the batch */
    struct content_upload *upload;
    struct batch *places;
    uint64_t begun_unix_s; /* by the bucket's clock */
    struct digest *node;   /* without a place; children come before their parents */
    size_t nodes, node_room;
};

/* --- the items --- */

struct source_item {
    struct blob *blob;
    struct buf bytes; /* of a node's row, or a list of chunks */
    size_t skip;      /* of these */
};

/* A node's row, in the batch or in the store. */
static int node_row(struct publish *x, const struct digest *id, struct buf *row, struct err *e)
{
    struct slice value;

    if (batch_rows_get(x->rows, TABLE_NODE, slice_of(id->b, DIGEST_BYTES), &value)) {
        buf_clear(row);
        buf_adds(row, value);
        return row->rc;
    }
    return store_get(x->t->set.store, TABLE_NODE, slice_of(id->b, DIGEST_BYTES), row, e);
}

static int source_has_place(void *arg, enum content_kind kind, const struct digest *d, bool *yes,
                            struct err *e)
{
    struct publish *x = arg;

    *yes = place_in_batch(x->rows, kind, d); /* uploaded before the generation changed */
    return *yes ? 0 : place_counts(x->t->set.store, kind, d, yes, e);
}

static int source_open(void *arg, enum content_kind kind, const struct digest *d, void **item,
                       uint64_t *length_bytes, struct err *e)
{
    struct publish *x = arg;
    struct source_item *it = NEW(struct source_item);
    int rc;

    it->bytes = BUF_INIT(CONTENT_WHOLE_BYTES);
    if (kind == CONTENT_NODE) {
        it->skip = NODE_TIME;
        rc = node_row(x, d, &it->bytes, e);
        *length_bytes = it->bytes.n - NODE_TIME;
    } else if (kind == CONTENT_CHUNKS) {
        rc = chunk_list_of_file(x->t->set.store, x->rows, d, &it->bytes, e);
        *length_bytes = it->bytes.n;
    } else {
        rc = blob_open_early(x->t->set.store, x->rows, d, &it->blob, e);
        *length_bytes = rc == 0 ? blob_size_bytes(it->blob) : 0;
    }
    if (rc != 0) {
        buf_free(&it->bytes);
        free(it);
        return rc;
    }
    *item = it;
    return 0;
}

static int source_read(void *item, uint64_t offset, void *p, size_t n, struct err *e)
{
    struct source_item *it = item;

    if (it->blob != NULL) {
        return blob_read(it->blob, offset, p, n, e);
    }
    CHECK(it->skip + offset + n <= it->bytes.n);
    memcpy(p, it->bytes.p + it->skip + offset, n);
    return 0;
}

static void source_close(void *item)
{
    struct source_item *it = item;

    blob_release(&it->blob);
    buf_free(&it->bytes);
    free(it);
}

/* --- the walk --- */

static void note_node(struct publish *x, const struct digest *id)
{
    if (x->nodes == x->node_room) {
        x->node_room = x->node_room != 0 ? 2 * x->node_room : 64;
        x->node = realloc(x->node, x->node_room * sizeof x->node[0]);
        CHECK(x->node != NULL);
    }
    x->node[x->nodes++] = *id;
}

static int save_if_due(struct publish *x, struct err *e);

/* A file is whole without its list. */
static int add_chunk_list(struct publish *x, const struct entry *en, struct err *e)
{
    struct buf list = BUF_INIT(CONTENT_WHOLE_BYTES - DIGEST_BYTES);
    bool known = en->size_bytes > CHUNK_BYTES &&
                 chunk_list_of_file(x->t->set.store, x->rows, &en->digest, &list, NULL) == 0;

    buf_free(&list);
    return known ? content_upload_add(x->upload, CONTENT_CHUNKS, &en->digest, e) : 0;
}

static int add_files(struct publish *x, const struct tree_node *n, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n->count; i++) {
        if (n->entry[i].type == ENTRY_FILE) {
            rc = content_upload_add(x->upload, CONTENT_BLOB, &n->entry[i].digest, e);
            rc = rc != 0 ? rc : add_chunk_list(x, &n->entry[i], e);
            rc = rc != 0 ? rc : save_if_due(x, e);
        }
    }
    return rc;
}

/* A node that lies in the store is written anew: the store's collection spares new rows, so a node
 * that gets a place stays. */
static void keep_node(struct publish *x, const struct digest *id, struct buf *row)
{
    struct slice key = slice_of(id->b, DIGEST_BYTES), value;

    if (!batch_rows_get(x->rows, TABLE_NODE, key, &value)) {
        be_put(row->p, NODE_TIME, clock_unix_s());
        batch_put(x->places, TABLE_NODE, key, buf_slice(row));
    }
}

static int visit(struct publish *x, const struct digest *id, unsigned depth, struct err *e);
static int visit_node(struct publish *x, const struct digest *id, unsigned depth, struct err *e)
{
    struct buf row = BUF_INIT(NODE_BYTES_MAX + NODE_TIME);
    struct tree_node n = {0};
    int rc = node_row(x, id, &row, e);

    if (rc == 0 && row.n < NODE_TIME) {
        rc = err_set(e, E_CORRUPT, "the row of a tree's node cannot be decoded");
    }
    rc = rc != 0 ? rc : node_decode(slice_from(buf_slice(&row), NODE_TIME), &n, e);
    if (rc == 0 && n.level == 0) {
        rc = add_files(x, &n, e);
    }
    for (size_t i = 0; rc == 0 && n.level != 0 && i < n.count; i++) {
        rc = visit(x, &n.child[i].id, depth + 1, e);
    }
    if (rc == 0) {
        keep_node(x, id, &row);
        note_node(x, id);
    }
    node_free(&n);
    buf_free(&row);
    return rc;
}

static int visit(struct publish *x, const struct digest *id, unsigned depth, struct err *e)
{
    struct digest empty;
    bool known;
    int rc;

    tree_empty_root(&empty);
    if (digest_eq(id, &empty)) {
        return 0; /* it has no row, anywhere */
    }
    /* A place in the batch does not count: what is below the node may have lost its place. */
    rc = place_counts(x->t->set.store, CONTENT_NODE, id, &known, e);
    if (rc != 0 || known) {
        return rc;
    }
    return depth < NODE_LEVELS ? visit_node(x, id, depth, e)
                               : err_set(e, E_CORRUPT, "a tree has too many levels");
}

static bool adds_version(const struct batch_step *st)
{
    return st->op == OP_PUT && st->table == TABLE_SNAP;
}

/* Nodes come last, so that they lie next to each other: every node of the cluster reads them when
 * it applies the entry. */
static int add_nodes(struct publish *x, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->nodes; i++) {
        rc = content_upload_add(x->upload, CONTENT_NODE, &x->node[i], e);
    }
    x->nodes = 0;
    return rc;
}

static int walk_trees(struct publish *x, const struct batch *b, struct err *e)
{
    struct batch_step st;
    int rc = 0;

    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        struct snap sn;
        if (adds_version(&st)) {
            rc = snap_decode(st.value, 0, &sn, e);
            rc = rc != 0 ? rc : visit(x, &sn.root, 0, e);
        }
    }
    return rc != 0 ? rc : add_nodes(x, e);
}

/* --- what the batch gets --- */

static int on_index_written(void *arg, uint64_t nonce, struct slice bytes, struct err *e)
{
    struct publish *x = arg;

    return index_put_written(x->places, nonce, bytes, x->begun_unix_s, e);
}

/* --- one at a time, or a few --- */

static int enter(struct tree_content *t, struct publish *x, struct err *e)
{
    static const struct content_source source = {source_has_place, source_open, source_read,
                                                 source_close};
    bool stop;

    lock_take(&t->lock);
    while (t->uploads == TREE_UPLOADS && !t->stop) {
        cond_wait(&t->upload_ended, &t->lock);
    }
    stop = t->stop;
    if (!stop) {
        const struct content_upload_settings set = {.bucket = t->set.bucket,
                                                    .read_back = t->read_back,
                                                    .retry_ms = t->set.retry_ms,
                                                    .source = &source,
                                                    .on_index = on_index_written,
                                                    .arg = x};
        x->upload = content_upload_open(&set);
        t->upload[t->upload[0] != NULL] = x->upload;
        t->uploads++;
    }
    lock_drop(&t->lock);
    return stop ? err_set(e, E_CANCELLED, "this mirror is shutting down") : 0;
}

static void leave(struct tree_content *t, struct publish *x, int rc)
{
    struct content_upload_counts counts;

    content_upload_counts(x->upload, &counts);
    lock_take(&t->lock);
    if (rc == 0) {
        t->stats.uploaded += counts.objects;
        t->stats.uploaded_bytes += counts.object_bytes;
    }
    t->upload[t->upload[0] != x->upload] = NULL;
    t->uploads--;
    cond_signal(&t->upload_ended);
    lock_drop(&t->lock);
    content_upload_close(&x->upload);
}

/* A batch that was prepared before keeps what it uploaded then, unless that is an orphan now. */
static int begin_again(struct tree_content *t, struct batch *b, struct err *e)
{
    uint64_t orphans_before_unix_s;
    int rc = 0;

    if (generation_in_batch(b)) {
        rc = orphans_get(t->set.store, &orphans_before_unix_s, e);
        generation_forget(b, generation_begun_unix_s(b) < orphans_before_unix_s);
    }
    return rc;
}

int tree_content_upload(struct tree_content *t, struct batch *b, struct err *e)
{
    struct publish x = {.t = t, .begun_unix_s = bucket_date_unix_s(t->set.bucket)};
    struct generation g;
    const uint64_t *index;
    size_t indexes;
    int rc = generation_get(t->set.store, &g, e); /* before the first place */

    rc = rc != 0 ? rc : begin_again(t, b, e);
    if (rc != 0) {
        return rc;
    }
    x.rows = batch_rows_open(b);
    x.places = batch_new();
    rc = enter(t, &x, e);
    if (rc == 0) {
        rc = walk_trees(&x, b, e);
        rc = rc != 0 ? rc : content_upload_finish(x.upload, &index, &indexes, e);
        leave(t, &x, rc);
    }
    batch_rows_close(&x.rows);
    if (rc == 0) {
        batch_add(b, x.places);
        generation_require(b, &g);
    }
    batch_free(&x.places);
    free(x.node);
    return rc;
}

bool tree_content_is_outdated(struct tree_content *t, const struct batch *b)
{
    return generation_is_over(t->set.store, b);
}

bool tree_content_is_new(const struct batch *b)
{
    struct batch_step st;

    for (size_t at = 0; batch_next(b, &at, &st);) {
        if (adds_version(&st)) {
            return true;
        }
    }
    return false;
}

/* --- all trees, little by little --- */

enum {
    SAVE_ITEMS = 50000, /* what a batch of places holds easily */
    SAVE_MS = 5000,
};

struct whole { /* one call of tree_content_upload_all() */
    int (*on_bytes)(void *arg, uint64_t n);
    void *arg;
    uint64_t saved_bytes, saved_ms;
    struct digest *root; /* of versions */
    size_t roots, room;
};

/* What was added is in the bucket afterwards, and known to be there. */
static int save(struct publish *x, struct err *e)
{
    struct content_upload_counts counts;
    const uint64_t *index;
    size_t indexes;
    int rc = add_nodes(x, e);

    rc = rc != 0 ? rc : content_upload_finish(x->upload, &index, &indexes, e);
    content_upload_counts(x->upload, &counts);
    leave(x->t, x, rc);
    if (rc == 0) {
        rc = store_commit_alone(x->t->set.store, &x->places, COMMIT_SYNC, e);
        x->places = batch_new();
    }
    if (rc == 0) {
        x->whole->saved_bytes += counts.item_bytes;
        x->whole->saved_ms = clock_now_ms();
        x->begun_unix_s = bucket_date_unix_s(x->t->set.bucket);
        rc = enter(x->t, x, e);
    }
    return rc;
}

static bool save_is_due(const struct publish *x, const struct content_upload_counts *c)
{
    return c->item_bytes >= TREE_SAVE_BYTES || c->items + x->nodes >= SAVE_ITEMS ||
           batch_bytes(x->places) >= COMMIT_BYTES ||
           (c->items != 0 && clock_now_ms() - x->whole->saved_ms >= SAVE_MS);
}

static int save_if_due(struct publish *x, struct err *e)
{
    struct content_upload_counts counts;

    if (x->whole == NULL) {
        return 0;
    }
    content_upload_counts(x->upload, &counts);
    if (x->whole->on_bytes(x->whole->arg, x->whole->saved_bytes + counts.item_bytes) != 0) {
        return err_set(e, E_CANCELLED, "the upload was stopped; what is there stays there");
    }
    return save_is_due(x, &counts) ? save(x, e) : 0;
}

static int on_version(void *arg, struct slice key, struct slice value)
{
    struct whole *w = arg;
    struct snap sn;
    int rc = snap_decode(value, 0, &sn, NULL);

    (void)key;
    if (rc != 0 || (w->roots != 0 && digest_eq(&sn.root, &w->root[w->roots - 1]))) {
        return rc;
    }
    if (w->roots == w->room) {
        w->room = w->room != 0 ? 2 * w->room : 64;
        w->root = realloc(w->root, w->room * sizeof w->root[0]);
        CHECK(w->root != NULL);
    }
    w->root[w->roots++] = sn.root;
    return 0;
}

struct version_of_root {
    const struct digest *root;
    char text[256];
};

static int on_named_version(void *arg, struct slice key, struct slice value)
{
    struct version_of_root *v = arg;
    struct slice tree, repo;
    struct snap sn;
    uint64_t seq;

    if (!snap_key_parse(key, &tree, &seq) || snap_decode(value, seq, &sn, NULL) != 0 ||
        !digest_eq(&sn.root, v->root)) {
        return 0;
    }
    repo = slice_cut(&tree, '\0');
    snprintf(v->text, sizeof v->text, SLICE_FMT "%s" SLICE_FMT " v%" PRIu64, SLICE_ARG(repo),
             tree.n != 0 ? "/" : "", SLICE_ARG(tree), seq);
    return 1;
}

/* What is wrong with the files of a version is for a person to repair. */
static int name_version(struct store *s, const struct digest *root, int rc, struct err *e)
{
    struct version_of_root v = {.root = root};
    struct err why = *e;

    if ((rc != E_NOTFOUND && rc != E_CORRUPT) ||
        store_scan_once(s, TABLE_SNAP, SLICE_NONE, SLICE_NONE, on_named_version, &v, NULL) != 1) {
        return rc;
    }
    return err_set(e, E_CORRUPT,
                   "%.120s: a file of it is missing or damaged (%.100s); run `mirrorctl verify "
                   "--deep`, and publish the file again or delete the version",
                   v.text, why.text[0] != '\0' ? why.text : err_plain(rc));
}

static int save_all(struct publish *x, struct err *e)
{
    struct whole *w = x->whole;
    struct err why = {0};
    int rc = enter(x->t, x, e);

    for (size_t i = 0; rc == 0 && i < w->roots; i++) {
        rc = visit(x, &w->root[i], 0, &why);
        rc = rc != 0 ? rc : save_if_due(x, &why);
        if (rc != 0) {
            rc = name_version(x->t->set.store, &w->root[i], rc, &why);
            *e = why;
        }
    }
    rc = rc != 0 ? rc : save(x, e);
    if (x->upload != NULL) {
        leave(x->t, x, rc);
    }
    return rc;
}

int tree_content_upload_all(struct tree_content *t, int (*on_bytes)(void *arg, uint64_t n),
                            void *arg, uint64_t *bytes, struct err *e)
{
    struct whole w = {.on_bytes = on_bytes, .arg = arg, .saved_ms = clock_now_ms()};
    struct publish x = {.t = t, .whole = &w, .begun_unix_s = bucket_date_unix_s(t->set.bucket)};
    struct batch *none = batch_new();
    int rc = store_scan_once(t->set.store, TABLE_SNAP, SLICE_NONE, SLICE_NONE, on_version, &w, e);

    x.rows = batch_rows_open(none);
    x.places = batch_new();
    rc = rc != 0 ? rc : save_all(&x, e);
    *bytes = w.saved_bytes;
    batch_rows_close(&x.rows);
    batch_free(&x.places);
    batch_free(&none);
    free(x.node);
    free(w.root);
    return rc;
}

/* ========================================================== from the bucket ==== */

/* --- an index: places and nodes --- */

/* One call of learn_index(). */
struct index_run {
    struct tree_content *t;
    struct batch *batch;
    uint64_t nonce;
    struct content_index index;
    struct buf bytes; /* of a run of nodes in one object */
};

static int commit_if_full(struct index_run *x, size_t bytes, struct err *e)
{
    int rc = 0;

    if (batch_bytes(x->batch) >= bytes) {
        rc = store_commit(x->t->set.store, &x->batch, COMMIT_LAZY, e);
        x->batch = batch_new();
    }
    return rc;
}

static int put_node(struct index_run *x, const struct content_item *it, struct slice stored,
                    struct err *e)
{
    struct buf row = BUF_INIT(NODE_BYTES_MAX + NODE_TIME), node = BUF_INIT(CONTENT_WHOLE_BYTES);
    int rc = content_decode(it, stored, &node, e);

    if (rc == 0) {
        buf_be(&row, NODE_TIME, clock_unix_s());
        buf_adds(&row, buf_slice(&node));
        batch_put(x->batch, TABLE_NODE, slice_of(it->digest.b, DIGEST_BYTES), buf_slice(&row));
        rc = row.rc;
    }
    buf_free(&node);
    buf_free(&row);
    return rc != 0 ? rc : commit_if_full(x, COMMIT_BYTES, e);
}

struct located_node {
    struct content_item item;
    struct content_object object;
};

static int by_location(const void *x, const void *y)
{
    const struct located_node *a = x, *b = y;

    if (a->object.nonce != b->object.nonce) {
        return a->object.nonce < b->object.nonce ? -1 : 1;
    }
    return a->item.offset < b->item.offset ? -1 : a->item.offset > b->item.offset;
}

static uint64_t end_of(const struct located_node *n)
{
    return n->item.offset + n->item.stored_bytes;
}

/* How many nodes from node[0] on one request reads. */
static size_t run_length(const struct located_node *node, size_t count)
{
    size_t n = 1;

    while (n < count && node[n].object.nonce == node[0].object.nonce &&
           node[n].item.offset <= end_of(&node[n - 1]) + RUN_GAP_BYTES &&
           end_of(&node[n]) - node[0].item.offset <= RUN_BYTES_MAX) {
        n++;
    }
    return n;
}

static int read_range(struct tree_content *t, const struct content_object *o, uint64_t first,
                      uint64_t n, struct buf *out, struct err *e)
{
    struct retry again = {.limit_ms = t->set.retry_ms, .stop = &t->stop};
    char key[CONTENT_KEY_ROOM];
    int rc;

    content_key(o, key);
    do {
        rc = bucket_get_range(t->set.bucket, key, first, n, out, e);
    } while (rc != 0 && retry_wait(&again, rc));
    return rc;
}

static int bring_run(struct index_run *x, const struct located_node *node, size_t count,
                     struct err *e)
{
    uint64_t first = node[0].item.offset, last = end_of(&node[count - 1]);
    int rc = read_range(x->t, &node[0].object, first, last - first, &x->bytes, e);

    for (size_t i = 0; rc == 0 && i < count; i++) {
        struct slice stored =
            slice_of(x->bytes.p + (node[i].item.offset - first), (size_t)node[i].item.stored_bytes);
        rc = put_node(x, &node[i].item, stored, e);
    }
    return rc;
}

/* Its row is written anew: the store's collection spares new rows, so a node that gets a place
 * stays. */
static bool has_node(struct index_run *x, const struct digest *id)
{
    struct buf row = BUF_INIT(NODE_BYTES_MAX + NODE_TIME);
    struct slice key = slice_of(id->b, DIGEST_BYTES);
    bool has = store_get(x->t->set.store, TABLE_NODE, key, &row, NULL) == 0 && row.n >= NODE_TIME;

    if (has) {
        be_put(row.p, NODE_TIME, clock_unix_s());
        batch_put(x->batch, TABLE_NODE, key, buf_slice(&row));
    }
    buf_free(&row);
    return has;
}

static int bring_nodes(struct index_run *x, struct located_node *node, size_t count, struct err *e)
{
    int rc = 0;

    qsort(node, count, sizeof node[0], by_location);
    for (size_t i = 0, n; rc == 0 && i < count; i += n) {
        n = run_length(node + i, count - i);
        rc = bring_run(x, node + i, n, e);
        if (rc == E_CORRUPT) { /* the damage may be on the way */
            rc = bring_run(x, node + i, n, e);
        }
    }
    return rc;
}

static int take_index(struct index_run *x, struct err *e)
{
    struct located_node *node = mem_array(x->index.count + 1, sizeof node[0]);
    size_t nodes = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->index.count; i++) {
        struct place p = {.index = x->nonce};
        content_index_row(&x->index, i, &p.item, &p.object);
        place_put(x->batch, &p);
        if (p.item.kind == CONTENT_NODE && !has_node(x, &p.item.digest)) {
            node[nodes++] = (struct located_node){p.item, p.object};
        }
        rc = commit_if_full(x, COMMIT_BYTES, e);
    }
    rc = rc != 0 ? rc : bring_nodes(x, node, nodes, e);
    free(node);
    return rc != 0 ? rc : commit_if_full(x, 1, e);
}

static int not_in_bucket(int rc, struct err *e)
{
    return rc != E_NOTFOUND
               ? rc
               : err_set(e, E_CORRUPT, "the cluster's bucket lacks an object that its log names");
}

static int learn_index(struct tree_content *t, uint64_t nonce, struct err *e)
{
    struct index_run x = {
        .t = t, .nonce = nonce, .bytes = BUF_INIT(RUN_BYTES_MAX + NODE_BYTES_MAX)};
    struct buf index = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    int rc =
        content_index_get(t->set.bucket, nonce, t->set.retry_ms, &t->stop, &index, &x.index, e);

    x.batch = batch_new();
    rc = rc != 0 ? rc : take_index(&x, e);
    batch_free(&x.batch);
    buf_free(&x.bytes);
    buf_free(&index);
    return rc != E_NOTFOUND
               ? rc
               : err_set(e, E_NOTFOUND,
                         "the bucket lacks what index %016" PRIx64 " names, or the index", nonce);
}

static void note_learning(struct tree_content *t, uint64_t nonce)
{
    lock_take(&t->learning_lock);
    set64_add(&t->learning, nonce);
    lock_drop(&t->learning_lock);
}

static bool is_learning(struct tree_content *t, uint64_t nonce)
{
    bool yes;

    lock_take(&t->learning_lock);
    yes = set64_has(&t->learning, nonce);
    lock_drop(&t->learning_lock);
    return yes;
}

void tree_content_applied(struct tree_content *t)
{
    lock_take(&t->learning_lock);
    set64_free(&t->learning);
    lock_drop(&t->learning_lock);
}

/* --- what trees hold --- */

struct held {
    struct batch *own;
    struct slice repo, name;
};

static int on_file_added(void *arg, const struct entry *old_en, const struct entry *new_en)
{
    struct held *h = arg;
    struct buf key = BUF_INIT(HOLDER_KEY_MAX);

    if (new_en != NULL && new_en->type == ENTRY_FILE &&
        (old_en == NULL || old_en->type != ENTRY_FILE ||
         !digest_eq(&old_en->digest, &new_en->digest))) {
        holder_key(&key, &new_en->digest, h->repo, 't', h->name);
        batch_put(h->own, TABLE_HOLDER, buf_slice(&key), SLICE_NONE);
        buf_free(&key);
    }
    return h->own->steps.rc;
}

/* The version that this one was made from, whose files are held already: in the same batch, or in
 * the store. The empty tree if there is none. */
static int root_of_parent(struct tree_content *t, const struct batch_rows *rows,
                          const struct held *h, uint64_t seq, struct digest *out, struct err *e)
{
    struct buf key = BUF_INIT(SNAP_KEY_MAX);
    struct slice value;
    struct snap sn;
    int rc = E_NOTFOUND;

    tree_empty_root(out);
    if (seq != 0) {
        snap_key(&key, h->repo, h->name, seq);
        rc = batch_rows_get(rows, TABLE_SNAP, buf_slice(&key), &value)
                 ? snap_decode(value, seq, &sn, e)
                 : snap_get(t->set.store, h->repo, h->name, seq, &sn, e);
        buf_free(&key);
    }
    if (rc == 0) {
        *out = sn.root;
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

static int learn_version(struct tree_content *t, const struct batch_rows *rows,
                         const struct batch_step *st, struct batch *own, struct err *e)
{
    struct held h = {.own = own};
    struct digest parent;
    struct slice tree;
    struct snap sn;
    uint64_t seq;
    int rc;

    if (!snap_key_parse(st->key, &tree, &seq)) {
        return err_set(e, E_CORRUPT, "the key of a snapshot cannot be decoded");
    }
    h.name = tree;
    h.repo = slice_cut(&h.name, '\0');
    rc = snap_decode(st->value, seq, &sn, e);
    rc = rc != 0 ? rc : root_of_parent(t, rows, &h, sn.parent_seq, &parent, e);
    return rc != 0 ? rc : tree_diff(t->set.store, &parent, &sn.root, on_file_added, &h, e);
}

static int learn_indexes(struct tree_content *t, const struct batch *b, struct err *e)
{
    struct batch_step st;
    int rc = 0;

    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        struct index_row row;
        bool known = false;
        if (st.op != OP_PUT || st.table != TABLE_INDEX) {
            continue;
        }
        rc = index_decode(st.key, st.value, &row, e);
        rc = rc != 0 ? rc : index_is_there(t->set.store, row.nonce, &known, e);
        if (rc == 0 && !known) {
            note_learning(t, row.nonce);
            rc = learn_index(t, row.nonce, e);
        }
    }
    return rc;
}

int tree_content_learn(struct tree_content *t, const struct batch *b, struct batch *own,
                       struct err *e)
{
    struct batch_rows *rows = batch_rows_open(b);
    struct batch_step st;
    int rc = learn_indexes(t, b, e);

    for (size_t at = 0; rc == 0 && batch_next(b, &at, &st);) {
        if (adds_version(&st)) {
            rc = learn_version(t, rows, &st, own, e);
        }
    }
    batch_rows_close(&rows);
    return rc;
}

/* --- a blob --- */

struct blob_run {
    struct list node;
    struct digest digest;
    unsigned waiting;
    bool over;
    int rc;
    struct err why;
    uint64_t length_bytes;
    struct ingest *in;
    struct err disk; /* why the ingest took no more */
};

static int on_bytes(void *arg, uint64_t offset, struct slice bytes)
{
    struct blob_run *r = arg;
    int rc = 0;

    if (offset == 0 && ingest_bytes(r->in) != 0) {
        rc = ingest_cut(r->in, 0, ingest_bytes(r->in), &r->disk);
    }
    rc = rc != 0 ? rc : ingest_append(r->in, bytes, &r->disk);
    if (rc == 0) {
        err_clear(&r->disk); /* room was made */
    }
    return rc;
}

static int seal(struct tree_content *t, struct blob_run *r, uint64_t length_bytes, struct err *e)
{
    struct batch *batch = batch_new();
    struct digest got;
    int rc = ingest_finish(r->in, length_bytes, &got, e);

    if (rc == 0 && !digest_eq(&got, &r->digest)) {
        rc = err_set(e, E_CORRUPT, "the bytes of a blob changed on their way to the disk");
    }
    rc = rc != 0 ? rc : ingest_seal(&r->in, batch, NULL, e);
    rc = rc != 0 ? rc : store_commit(t->set.store, &batch, COMMIT_LAZY, e);
    batch_free(&batch);
    return rc;
}

static int fetch_blob(struct tree_content *t, struct blob_run *r, struct err *e)
{
    struct content_fetch f = {t->set.bucket, t->set.retry_ms, &t->stop, on_bytes, r};
    struct ingest_how how = {.small = true,
                             .reserve = true,
                             .blocks = true,
                             .make_room = t->set.make_room,
                             .make_room_arg = t->set.arg};
    struct place p;
    int rc = place_get(t->set.store, CONTENT_BLOB, &r->digest, &p, e);

    if (rc != 0) {
        return rc;
    }
    how.length_bytes = how.hash_bytes = r->length_bytes = p.item.length_bytes;
    rc = ingest_open(t->set.store, &how, &r->in, e);
    if (rc == 0) {
        rc = content_fetch(&f, &p.item, &p.object, e);
        if (r->disk.code != 0) {
            *e = r->disk;
            rc = r->disk.code;
        }
        rc = not_in_bucket(rc, e);
        rc = rc != 0 ? rc : seal(t, r, p.item.length_bytes, e);
    }
    ingest_drop(&r->in);
    return rc;
}

/* Under the lock. */
static struct blob_run *find_run(struct tree_content *t, const struct digest *d)
{
    LIST_EACH (&t->fetches, it) {
        struct blob_run *r = LIST_ITEM(it, struct blob_run, node);
        if (digest_eq(&r->digest, d)) {
            return r;
        }
    }
    return NULL;
}

/* Under the lock. A blob without a place was never in the bucket. */
static void count_fetch(struct tree_content *t, const struct blob_run *r)
{
    if (r->rc == 0) {
        t->stats.fetched++;
        t->stats.fetched_bytes += r->length_bytes;
    } else if (r->rc != E_NOTFOUND && r->rc != E_CANCELLED) {
        t->stats.failed++;
    }
}

/* Under the lock; the last one out frees it. */
static int leave_run(struct blob_run *r, struct err *e)
{
    int rc = r->rc;

    *e = r->why;
    if (r->waiting-- == 0) {
        free(r);
    }
    return rc;
}

int tree_content_fetch(struct tree_content *t, const struct digest *d, struct err *e)
{
    struct err why = {0};
    struct blob_run *r;
    int rc;

    lock_take(&t->lock);
    r = find_run(t, d);
    if (r != NULL) {
        r->waiting++;
        while (!r->over) {
            cond_wait(&t->fetch_ended, &t->lock);
        }
    } else {
        r = NEW(struct blob_run);
        r->digest = *d;
        list_push_back(&t->fetches, &r->node);
        lock_drop(&t->lock);
        rc = fetch_blob(t, r, &why);
        lock_take(&t->lock);
        r->rc = rc;
        r->why = why;
        r->over = true;
        count_fetch(t, r);
        list_remove(&r->node);
        cond_broadcast(&t->fetch_ended);
    }
    rc = leave_run(r, &why);
    lock_drop(&t->lock);
    if (rc != 0 && e != NULL) {
        *e = why;
    }
    return rc;
}

int tree_content_chunks(struct tree_content *t, const struct digest *d, struct buf *out,
                        struct err *e)
{
    return chunk_lists_get(t->lists, d, out, e);
}

void tree_content_stats(struct tree_content *t, struct tree_content_stats *out)
{
    lock_take(&t->lock);
    *out = t->stats;
    out->uploads = t->uploads;
    LIST_EACH (&t->fetches, it) {
        (void)it;
        out->fetches++;
    }
    lock_drop(&t->lock);
}

bool tree_content_is_object(struct tree_content *t, const struct digest *d,
                            struct content_object *out)
{
    struct place p;
    bool here;

    if (blob_is_here(t->set.store, d, &here, NULL) != 0 || here ||
        place_get(t->set.store, CONTENT_BLOB, d, &p, NULL) != 0) {
        return false;
    }
    *out = p.object;
    return p.object.kind == CONTENT_ALONE;
}

/* A place whose index is being applied counts already. */
static bool has(struct tree_content *t, enum content_kind kind, const struct digest *d,
                struct place *out)
{
    bool there;

    return place_get(t->set.store, kind, d, out, NULL) == 0 &&
           ((index_is_there(t->set.store, out->index, &there, NULL) == 0 && there) ||
            is_learning(t, out->index));
}

bool tree_content_has(struct tree_content *t, const struct digest *d, uint64_t *size_bytes)
{
    struct place p;

    if (!has(t, CONTENT_BLOB, d, &p)) {
        return false;
    }
    *size_bytes = p.item.length_bytes;
    return true;
}

bool tree_content_has_node(struct tree_content *t, const struct digest *id)
{
    struct place p;

    return has(t, CONTENT_NODE, id, &p);
}

/* --- places that have ended --- */

enum { SWEEP_ROWS = 4096, SWEEP_AGAIN = 1 };

struct place_sweep {
    struct tree_content *t;
    struct batch *batch;
    struct buf from; /* where to go on */
    size_t rows, swept;
    struct err *e;
};

static int on_place_row(void *arg, struct slice key, struct slice value)
{
    struct place_sweep *x = arg;
    struct place p;
    bool there = false;
    int rc = place_decode(key, value, &p, x->e);

    rc = rc != 0 ? rc : index_is_there(x->t->set.store, p.index, &there, x->e);
    if (rc == 0 && !there) {
        batch_require_value(x->batch, TABLE_PLACE, key, value);
        batch_del(x->batch, TABLE_PLACE, key);
        x->swept++;
    }
    if (rc == 0 && ++x->rows % SWEEP_ROWS == 0) {
        buf_clear(&x->from);
        buf_adds(&x->from, key);
        buf_byte(&x->from, 0);
        return SWEEP_AGAIN;
    }
    return rc;
}

/* Not while an entry is being applied, whose indexes have no row yet. */
static int sweep_some(struct place_sweep *x)
{
    struct tree_content *t = x->t;
    int rc = E_BUSY, wrote = 0;

    lock_take(&t->learning_lock);
    if (t->learning.count == 0) {
        rc = store_scan_once(t->set.store, TABLE_PLACE, buf_slice(&x->from), SLICE_NONE,
                             on_place_row, x, x->e);
    }
    lock_drop(&t->learning_lock);
    if (x->swept != 0) {
        wrote = store_commit(t->set.store, &x->batch, COMMIT_LAZY, x->e);
        x->batch = batch_new();
        x->swept = 0;
    }
    return wrote != 0 && wrote != E_CHANGED ? wrote : rc;
}

int tree_content_sweep_places(struct tree_content *t, struct err *e)
{
    struct place_sweep x = {.t = t, .batch = batch_new(), .from = BUF_INIT(256), .e = e};
    int rc;

    do {
        rc = t->stop ? E_CANCELLED : sweep_some(&x);
    } while (rc == SWEEP_AGAIN);
    batch_free(&x.batch);
    buf_free(&x.from);
    return rc;
}

/* ============================================================ open and close ==== */

struct tree_content *tree_content_open(const struct tree_content_settings *set)
{
    struct tree_content *t = NEW(struct tree_content);

    t->set = *set;
    t->set.retry_ms = set->retry_ms != 0 ? set->retry_ms : RETRY_MS;
    t->lists = chunk_lists_open(
        &(struct chunk_lists_settings){t->set.store, t->set.bucket, t->set.retry_ms, &t->stop});
    lock_init(&t->lock, LOCK_CONTENT);
    cond_init(&t->upload_ended);
    cond_init(&t->fetch_ended);
    list_init(&t->fetches);
    lock_init(&t->learning_lock, LOCK_LEAF);
    return t;
}

void tree_content_read_back(struct tree_content *t)
{
    t->read_back = true;
}

bool tree_content_reads_back(const struct tree_content *t)
{
    return t->read_back;
}

void tree_content_interrupt(struct tree_content *t)
{
    lock_take(&t->lock);
    t->stop = true;
    for (size_t i = 0; i < TREE_UPLOADS; i++) {
        if (t->upload[i] != NULL) {
            content_upload_interrupt(t->upload[i]);
        }
    }
    cond_broadcast(&t->upload_ended);
    lock_drop(&t->lock);
}

void tree_content_close(struct tree_content **tp)
{
    struct tree_content *t = *tp;

    *tp = NULL;
    if (t == NULL) {
        return;
    }
    CHECK(t->uploads == 0 && list_empty(&t->fetches));
    chunk_lists_close(&t->lists);
    cond_fini(&t->upload_ended);
    cond_fini(&t->fetch_ended);
    lock_fini(&t->lock);
    lock_fini(&t->learning_lock);
    set64_free(&t->learning);
    free(t);
}
