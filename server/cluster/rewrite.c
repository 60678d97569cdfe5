#include "server/cluster/rewrite.h"

#include <stdlib.h>
#include <sys/random.h>

#include "common/base/log.h"
#include "server/cluster/content_upload.h"
#include "server/cluster/dead_list.h"
#include "server/cluster/generation.h"
#include "server/cluster/pack.h"
#include "server/cluster/place.h"
#include "server/cluster/retry.h"

enum { RETRY_MS = 30000, SMALL_PACK_BYTES = 1 << 20 };

/* --- what of an index is live --- */

/* How one object of an index is used. */
struct object_use {
    struct content_object object;
    uint64_t items;      /* live ones */
    uint64_t cost_bytes; /* of a pack with these alone */
    uint32_t number;     /* in the new index, from 1; 0: it has none */
    bool copied;
};

bool item_is_live(const struct mark *m, const struct content_item *it)
{
    return it->kind == CONTENT_NODE ? mark_has_node(m, &it->digest)
                                    : mark_has_digest(m, &it->digest);
}

static bool must_copy(const struct object_use *u, bool merge)
{
    uint64_t size = u->object.size_bytes;

    return u->items != 0 && u->object.kind == CONTENT_PACK &&
           (2 * (u->cost_bytes + PACK_FOOTER_MIN) < size || (merge && size < SMALL_PACK_BYTES));
}

static struct object_use *uses_of(const struct content_index *ix, const struct mark *m)
{
    size_t objects = content_index_objects(ix);
    struct object_use *use = mem_array(objects + 1, sizeof use[0]);

    for (size_t i = 0; i < objects; i++) {
        content_index_object(ix, i, &use[i].object);
    }
    for (size_t i = 0; i < ix->count; i++) {
        struct object_use *u = &use[content_index_row_object(ix, i)];
        struct content_item it;
        struct content_object o;
        content_index_row(ix, i, &it, &o);
        if (item_is_live(m, &it)) {
            u->items++;
            u->cost_bytes +=
                (it.stored_bytes + PACK_ALIGN - 1) / PACK_ALIGN * PACK_ALIGN + PACK_ROW_BYTES;
        }
    }
    return use;
}

void index_survey(const struct content_index *ix, const struct mark *m, bool merge,
                  struct index_survey *sum)
{
    struct object_use *use = uses_of(ix, m);
    uint64_t live = 0;

    for (size_t i = 0; i < content_index_objects(ix); i++) {
        const struct object_use *u = &use[i];
        bool copy = must_copy(u, merge);
        sum->objects++;
        sum->bytes += u->object.size_bytes;
        live += u->items;
        if (copy || u->items == 0) {
            sum->dead_objects++;
            sum->dead_bytes += u->object.size_bytes;
            sum->copied_bytes += copy ? u->cost_bytes : 0;
        }
    }
    sum->rows += ix->count;
    sum->dead_rows += ix->count - live;
    free(use);
}

int index_keep(const struct content_index *ix, struct store *s, struct mark *m, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < ix->count; i++) {
        struct content_item it;
        struct content_object o;
        content_index_row(ix, i, &it, &o);
        if (item_is_live(m, &it)) {
            continue;
        }
        if (it.kind == CONTENT_NODE) {
            rc = mark_version(s, m, SLICE(""), &it.digest, e);
        } else {
            mark_add_digest(m, &it.digest);
        }
    }
    return rc;
}

/* --- the rewrite --- */

struct dropped {
    struct digest digest;
    bool is_node;
};

struct rewrite {
    struct rewrite_settings set;
    struct content_index_writer *writer;
    struct content_upload *copies; /* NULL: none yet */
    struct batch *batch;           /* what rewrite_finish() hands over */
    struct buf dead;
    struct rewritten counts;
    struct dropped *dropped;
    size_t drops, drop_room;
    struct buf pack; /* the one that is being copied */
    struct buf item; /* the item that is being copied */
    uint64_t begun_unix_s;
};

static uint64_t new_nonce(void)
{
    uint64_t nonce;

    CHECK(getrandom(&nonce, sizeof nonce, 0) == (ssize_t)sizeof nonce);
    return nonce != 0 ? nonce : 1;
}

static void condemn(struct rewrite *r, enum dead_kind kind, uint64_t nonce, uint64_t size_bytes)
{
    dead_list_add(&r->dead, &(struct dead_object){kind, nonce, size_bytes});
    r->counts.objects++;
    r->counts.bytes += size_bytes;
}

static void drop(struct rewrite *r, const struct content_item *it)
{
    if (r->drops == r->drop_room) {
        r->drop_room = r->drop_room != 0 ? 2 * r->drop_room : 1024;
        r->dropped = realloc(r->dropped, r->drop_room * sizeof r->dropped[0]);
        CHECK(r->dropped != NULL);
    }
    r->dropped[r->drops++] = (struct dropped){it->digest, it->kind == CONTENT_NODE};
}

bool rewrite_lost_any(const struct rewrite *r)
{
    for (size_t i = 0; i < r->drops; i++) {
        const struct dropped *d = &r->dropped[i];
        if (d->is_node ? mark_has_node(r->set.mark, &d->digest)
                       : mark_has_digest(r->set.mark, &d->digest)) {
            return true;
        }
    }
    return false;
}

/* Writes an object under a new key. */
static int write_object(struct rewrite *r, const char *key, const struct buf *bytes, struct err *e)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = r->set.stop};
    struct bucket_body body = {.bytes = buf_slice(bytes)};
    struct buf back = BUF_INIT(bytes->n);
    int rc;

    digest_of(body.bytes, &body.sha256);
    do {
        rc = bucket_create_body(r->set.bucket, key, &body, e);
    } while (rc != 0 && rc != E_EXISTS && retry_wait(&again, rc));
    if (rc == E_EXISTS || (rc == 0 && r->set.read_back)) {
        rc = bucket_get(r->set.bucket, key, &back, e);
        if (rc == 0 && !slice_eq(buf_slice(&back), body.bytes)) {
            rc = err_set(e, E_CORRUPT, "%s: the bucket has other bytes than those written", key);
        }
    }
    buf_free(&back);
    return rc;
}

static int on_new_index(void *arg, uint64_t nonce, struct slice bytes, struct err *e)
{
    struct rewrite *r = arg;

    return index_put_written(r->batch, nonce, bytes, r->begun_unix_s, e);
}

/* The index of what stays where it is. */
static int write_index(struct rewrite *r, struct err *e)
{
    struct buf bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    uint64_t nonce = new_nonce();
    char key[CONTENT_KEY_ROOM];
    int rc = 0;

    if (content_index_count(r->writer) != 0) {
        content_index_finish(r->writer, &bytes);
        content_index_key(nonce, key);
        rc = write_object(r, key, &bytes, e);
        rc = rc != 0 ? rc : on_new_index(r, nonce, buf_slice(&bytes), e);
    }
    buf_free(&bytes);
    return rc;
}

/* --- copying: the source of content_upload.h is the pack in memory --- */

static int source_has_place(void *arg, enum content_kind kind, const struct digest *d, bool *yes,
                            struct err *e)
{
    (void)arg;
    (void)kind;
    (void)d;
    (void)e;
    *yes = false;
    return 0;
}

static int source_open(void *arg, enum content_kind kind, const struct digest *d, void **item,
                       uint64_t *length_bytes, struct err *e)
{
    struct rewrite *r = arg;

    (void)kind;
    (void)d;
    (void)e;
    *item = r;
    *length_bytes = r->item.n;
    return 0;
}

static int source_read(void *item, uint64_t offset, void *p, size_t n, struct err *e)
{
    struct rewrite *r = item;

    (void)e;
    CHECK(offset + n <= r->item.n);
    memcpy(p, r->item.p + offset, n);
    return 0;
}

static void source_close(void *item)
{
    (void)item;
}

static void open_copies(struct rewrite *r)
{
    static const struct content_source source = {source_has_place, source_open, source_read,
                                                 source_close};
    const struct content_upload_settings set = {.bucket = r->set.bucket,
                                                .read_back = r->set.read_back,
                                                .retry_ms = RETRY_MS,
                                                .source = &source,
                                                .on_index = on_new_index,
                                                .arg = r};

    if (r->copies == NULL) {
        r->copies = content_upload_open(&set);
    }
}

static int read_pack(struct rewrite *r, const struct content_object *o, struct err *e)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = r->set.stop};
    char key[CONTENT_KEY_ROOM];
    int rc;

    content_key(o, key);
    do {
        rc = bucket_get(r->set.bucket, key, &r->pack, e);
    } while (rc != 0 && retry_wait(&again, rc));
    return rc == 0 && r->pack.n != o->size_bytes
               ? err_set(e, E_CORRUPT, "%s has another size than its index says", key)
               : rc;
}

static int load_item(struct rewrite *r, const struct content_item *it, struct err *e)
{
    return content_decode(it, slice_of(r->pack.p + it->offset, (size_t)it->stored_bytes), &r->item,
                          e);
}

/* Live rows of one object, in the order of their offsets. */
struct moving {
    uint32_t object;
    struct content_item item;
};

static int by_location(const void *x, const void *y)
{
    const struct moving *a = x, *b = y;

    if (a->object != b->object) {
        return a->object < b->object ? -1 : 1;
    }
    return a->item.offset < b->item.offset ? -1 : a->item.offset > b->item.offset;
}

/* A pack that cannot be read as a whole, or has a damaged item, is not copied. */
static bool is_sound(struct rewrite *r, const struct object_use *u, const struct moving *item,
                     size_t n, int *rc, struct err *e)
{
    struct err why = {0};

    *rc = read_pack(r, &u->object, &why);
    for (size_t i = 0; *rc == 0 && i < n; i++) {
        *rc = load_item(r, &item[i].item, &why);
    }
    if (*rc == E_CORRUPT || *rc == E_NOTFOUND) {
        log_warn("cluster.collect_kept", "why=\"%s\"", why.text);
        *rc = 0;
        return false;
    }
    if (*rc != 0) {
        *e = why;
    }
    return *rc == 0;
}

static int copy_items(struct rewrite *r, const struct moving *item, size_t n, struct err *e)
{
    int rc = 0;

    open_copies(r);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = atomic_load(r->set.stop) ? err_set(e, E_CANCELLED, "the collection was interrupted")
                                      : load_item(r, &item[i].item, e);
        rc = rc != 0 ? rc
                     : content_upload_add(r->copies, item[i].item.kind, &item[i].item.digest, e);
        r->counts.copied_bytes += rc == 0 ? item[i].item.stored_bytes : 0;
    }
    return rc;
}

static void keep_item(struct rewrite *r, struct object_use *u, const struct content_item *it)
{
    if (content_index_has(r->writer, it->kind, &it->digest)) {
        return; /* two mirrors have uploaded it: one of the two is enough */
    }
    if (u->number == 0) {
        u->number = content_index_new_object(r->writer) + 1;
        content_index_set_object(r->writer, u->number - 1, &u->object);
    }
    content_index_add(r->writer, it, u->number - 1);
}

static int move_object(struct rewrite *r, struct object_use *u, const struct moving *item, size_t n,
                       struct err *e)
{
    int rc;

    u->copied = is_sound(r, u, item, n, &rc, e);
    if (u->copied) {
        return copy_items(r, item, n, e);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        keep_item(r, u, &item[i].item);
    }
    return rc;
}

static int move_objects(struct rewrite *r, struct object_use *use, struct moving *item, size_t n,
                        struct err *e)
{
    int rc = 0;

    if (n != 0) {
        qsort(item, n, sizeof item[0], by_location);
    }
    for (size_t i = 0, end; rc == 0 && i < n; i = end) {
        for (end = i + 1; end < n && item[end].object == item[i].object; end++) {
        }
        rc = move_object(r, &use[item[i].object], item + i, end - i, e);
    }
    return rc;
}

static void end_index(struct rewrite *r, const struct index_row *row,
                      const struct content_index *ix, const struct object_use *use)
{
    for (size_t i = 0; i < content_index_objects(ix); i++) {
        if (use[i].number == 0) {
            condemn(r, (enum dead_kind)use[i].object.kind, use[i].object.nonce,
                    use[i].object.size_bytes);
        }
    }
    condemn(r, DEAD_INDEX, row->nonce, 0);
    index_del(r->batch, row);
}

int rewrite_index(struct rewrite *r, const struct index_row *row, const struct content_index *ix,
                  struct err *e)
{
    struct object_use *use = uses_of(ix, r->set.mark);
    struct moving *moving = mem_array(ix->count + 1, sizeof moving[0]);
    size_t n = 0;
    int rc = 0;

    if (content_index_count(r->writer) + ix->count > CONTENT_INDEX_ROWS_MAX) {
        rc = write_index(r, e);
    }
    for (size_t i = 0; rc == 0 && i < ix->count; i++) {
        uint32_t object = content_index_row_object(ix, i);
        struct content_item it;
        struct content_object o;
        content_index_row(ix, i, &it, &o);
        if (!item_is_live(r->set.mark, &it)) {
            drop(r, &it);
        } else if (must_copy(&use[object], r->set.merge)) {
            moving[n++] = (struct moving){object, it};
        } else {
            keep_item(r, &use[object], &it);
        }
    }
    rc = rc != 0 ? rc : move_objects(r, use, moving, n, e);
    if (rc == 0) {
        end_index(r, row, ix, use);
    }
    free(moving);
    free(use);
    return rc;
}

static int write_dead_list(struct rewrite *r, struct err *e)
{
    uint64_t nonce = new_nonce();
    char key[CONTENT_KEY_ROOM];
    int rc;

    dead_list_finish(&r->dead);
    if (r->dead.rc != 0) {
        return err_set(e, E_TOOBIG, "a list of dead objects has at most %d bytes",
                       DEAD_LIST_BYTES_MAX);
    }
    dead_list_key(nonce, key);
    rc = write_object(r, key, &r->dead, e);
    r->counts.list = nonce;
    condemned_put(r->batch, &(struct condemned){nonce, r->counts.objects, r->counts.bytes});
    return rc;
}

int rewrite_finish(struct rewrite *r, struct batch *b, struct rewritten *out, struct err *e)
{
    const uint64_t *index;
    size_t n;
    int rc = write_index(r, e);

    if (rc == 0 && r->copies != NULL) {
        rc = content_upload_finish(r->copies, &index, &n, e);
    }
    if (rc == 0 && r->counts.objects != 0) {
        rc = write_dead_list(r, e);
    }
    if (rc == 0) {
        batch_add(b, r->batch);
        r->counts.dropped = r->drops;
        *out = r->counts;
    }
    return rc;
}

struct rewrite *rewrite_open(const struct rewrite_settings *set)
{
    struct rewrite *r = NEW(struct rewrite);

    r->set = *set;
    r->writer = content_index_writer_new();
    r->batch = batch_new();
    r->dead = BUF_INIT(DEAD_LIST_BYTES_MAX);
    dead_list_begin(&r->dead);
    r->pack = BUF_INIT(PACK_BYTES_MAX);
    r->item = BUF_INIT(CONTENT_WHOLE_BYTES);
    r->begun_unix_s = bucket_date_unix_s(set->bucket);
    return r;
}

void rewrite_close(struct rewrite **rp)
{
    struct rewrite *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    content_upload_close(&r->copies);
    content_index_writer_free(&r->writer);
    batch_free(&r->batch);
    buf_free(&r->dead);
    buf_free(&r->pack);
    buf_free(&r->item);
    free(r->dropped);
    free(r);
}
