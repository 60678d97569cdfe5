#include "server/cluster/content_verify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "server/cluster/checkpoint.h"
#include "server/cluster/content_fetch.h"
#include "server/cluster/generation.h"
#include "server/cluster/log.h"
#include "server/cluster/orphans.h"
#include "server/cluster/pack.h"
#include "server/cluster/retry.h"
#include "server/cluster/rewrite.h"
#include "server/store/gc.h"

enum { RETRY_MS = 30000, FINDINGS_MAX = 1000, TEXT_MAX = 512 };

struct verifier {
    const struct content_verify *set;
    struct content_verified *out;
    struct mark mark;
    struct set64 there; /* objects of the list, with their lengths */
    struct named named;
    struct err *e;
    /* the log */
    uint64_t seq;         /* of the last entry; 0: none yet */
    struct digest before; /* its SHA-256 */
    struct buf bytes;
    /* deep */
    struct buf item;
};

/* --- what is reported --- */

static void __attribute__((format(printf, 2, 3))) find(struct verifier *v, const char *fmt, ...)
{
    char text[TEXT_MAX];
    va_list ap;

    if (v->out->findings++ >= FINDINGS_MAX) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    v->set->finding(v->set->arg, text);
}

static int show(struct verifier *v, const char *what, uint64_t done, uint64_t total)
{
    if (atomic_load(v->set->stop)) {
        return err_set(v->e, E_CANCELLED, "this mirror is shutting down");
    }
    return v->set->progress(v->set->arg, what, done, total) != 0
               ? err_set(v->e, E_CANCELLED, "the check was interrupted")
               : 0;
}

/* --- the log --- */

static int read_log_entry(struct verifier *v, const char *key, struct log_entry *out)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = v->set->stop};
    bool damaged = false;
    int rc;

    do {
        rc = bucket_get(v->set->bucket, key, &v->bytes, v->e);
        if (rc == 0) {
            rc = log_entry_read(buf_slice(&v->bytes), out, v->e);
        }
        if (rc == E_CORRUPT && !damaged) { /* the damage may be on the way */
            damaged = true;
            rc = E_AGAIN;
        }
    } while (rc != 0 && retry_wait(&again, rc));
    return rc;
}

/* An entry that is trimmed while it is checked is one of the oldest. */
static int on_log_key(void *arg, const struct bucket_key *k)
{
    struct verifier *v = arg;
    struct log_entry en;
    int rc = show(v, "reading the log", v->out->entries, 0);

    rc = rc != 0 ? rc : read_log_entry(v, k->key, &en);
    if (rc == E_NOTFOUND && v->seq == 0) {
        return 0;
    }
    if (rc == E_CORRUPT || rc == E_UNSUPPORTED || rc == E_NOTFOUND) {
        find(v, "%s: %s", k->key, v->e->text);
        err_clear(v->e);
        v->seq = 0;
        return 0;
    }
    if (rc != 0) {
        return rc;
    }
    if (v->seq != 0 && (en.seq != v->seq + 1 || !digest_eq(&en.before, &v->before))) {
        find(v, "%s does not follow entry %" PRIu64, k->key, v->seq);
    }
    v->seq = en.seq;
    v->before = en.own;
    v->out->entries++;
    return 0;
}

static int on_newest_checkpoint(void *arg, const struct checkpoint_found *c)
{
    static const struct checkpoint_events only_check = {NULL, NULL};
    struct verifier *v = arg;
    int rc = checkpoint_read(v->set->bucket, c, &only_check, NULL, v->e);

    if (rc == E_CORRUPT || rc == E_UNSUPPORTED || rc == E_NOTFOUND) {
        find(v, "the newest checkpoint, %s: %s", c->key, v->e->text);
        err_clear(v->e);
        rc = 0;
    }
    return rc;
}

static int check_log(struct verifier *v)
{
    int rc = bucket_list(v->set->bucket, "log/0/", "", SIZE_MAX, on_log_key, v, v->e);

    return rc != 0 ? rc : checkpoint_list(v->set->bucket, 1, on_newest_checkpoint, v, v->e);
}

/* --- the objects that are there --- */

static uint64_t hash_object(enum dead_kind kind, uint64_t nonce, uint64_t size_bytes)
{
    return (nonce ^ (uint64_t)kind * 0x9e3779b97f4a7c15u) + size_bytes * 0xc2b2ae3d27d4eb4fu;
}

static bool is_there(const struct verifier *v, const struct content_object *o)
{
    return set64_has(&v->there, hash_object((enum dead_kind)o->kind, o->nonce, o->size_bytes));
}

static int on_object(void *arg, const struct bucket_key *k)
{
    struct verifier *v = arg;
    struct dead_object o;

    if (dead_object_parse(slice_str(k->key), &o)) {
        set64_add(&v->there, hash_object(o.kind, o.nonce, k->size_bytes));
    }
    return atomic_load(v->set->stop) ? E_CANCELLED : 0;
}

static int list_objects(struct verifier *v)
{
    int rc = show(v, "listing objects", 0, 0);

    rc = rc != 0 ? rc : bucket_list(v->set->bucket, "pack/", "", SIZE_MAX, on_object, v, v->e);
    return rc != 0 ? rc : bucket_list(v->set->bucket, "blob/", "", SIZE_MAX, on_object, v, v->e);
}

/* A list may lag: the last word has the object itself. */
static bool is_really_there(struct verifier *v, const struct content_object *o)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = v->set->stop};
    struct buf last = BUF_INIT(1);
    char key[CONTENT_KEY_ROOM];
    int rc;

    if (is_there(v, o)) {
        return true;
    }
    content_key(o, key);
    do {
        rc = bucket_get_range(v->set->bucket, key, o->size_bytes - min_u64(1, o->size_bytes), 1,
                              &last, NULL);
    } while (rc != 0 && retry_wait(&again, rc));
    buf_free(&last);
    return rc == 0;
}

/* --- places of trees --- */

static const char *look_for_lack(struct verifier *v, enum content_kind kind, const struct digest *d,
                                 char key[CONTENT_KEY_ROOM])
{
    struct place p;
    bool counts = false;

    key[0] = '\0';
    if (place_get(v->set->store, kind, d, &p, NULL) != 0) {
        return "it has no place in the bucket";
    }
    content_key(&p.object, key);
    if (index_is_there(v->set->store, p.index, &counts, NULL) != 0 || !counts) {
        return "its place in the bucket has ended";
    }
    return is_really_there(v, &p.object) ? NULL
                                         : "its object is not in the bucket, or has another length";
}

/* What an item lacks; NULL: nothing. A collection may move it while it is looked at. */
static const char *lack_of(struct verifier *v, enum content_kind kind, const struct digest *d,
                           char key[CONTENT_KEY_ROOM])
{
    const char *lack = look_for_lack(v, kind, d, key);

    return lack != NULL ? look_for_lack(v, kind, d, key) : NULL;
}

static int on_file(void *arg, struct slice tree, const struct entry *en, struct err *e)
{
    struct verifier *v = arg;
    char key[CONTENT_KEY_ROOM], hex[DIGEST_HEX + 1];
    struct slice name = tree, repo = slice_cut(&name, '\0');
    const char *lack = lack_of(v, CONTENT_BLOB, &en->digest, key);

    (void)e;
    v->out->files++;
    if (lack != NULL) {
        digest_format(&en->digest, hex);
        find(v, SLICE_FMT "/" SLICE_FMT "/" SLICE_FMT ": %s (%s, sha256:%s)", SLICE_ARG(repo),
             SLICE_ARG(name), SLICE_ARG(en->path), lack, key, hex);
    }
    return v->out->files % 1024 != 0 ? 0 : show(v, "checking files", v->out->files, 0);
}

/* All nodes of trees are rows of this mirror, so those that are marked are found among them. */
static int on_node(void *arg, struct slice key, struct slice value)
{
    struct verifier *v = arg;
    char object[CONTENT_KEY_ROOM], hex[DIGEST_HEX + 1];
    struct digest id, empty;
    const char *lack;

    (void)value;
    tree_empty_root(&empty);
    if (key.n != DIGEST_BYTES) {
        return 0;
    }
    memcpy(id.b, key.p, DIGEST_BYTES);
    if (!mark_has_node(&v->mark, &id) || digest_eq(&id, &empty)) {
        return 0;
    }
    lack = lack_of(v, CONTENT_NODE, &id, object);
    if (lack != NULL) {
        digest_format(&id, hex);
        find(v, "a folder of a tree, node %s: %s (%s)", hex, lack, object);
    }
    return 0;
}

static int check_trees(struct verifier *v)
{
    const struct mark_events ev = {.on_file = on_file, .arg = v};
    struct kv_view *view = store_view_open(v->set->store);
    int rc = mark_run(v->set->store, view, &ev, &v->mark, v->e);

    if (rc == 0) {
        rc = store_view_scan(v->set->store, view, TABLE_NODE, SLICE_NONE, SLICE_NONE, on_node, v,
                             v->e);
    }
    store_view_close(&view);
    return rc;
}

/* --- indexes, and what they name --- */

static int on_whole(void *arg, uint64_t offset, struct slice bytes)
{
    (void)arg;
    (void)offset;
    (void)bytes;
    return 0;
}

/* Reads the live items of an index; those that lie in one pack are read with it. */
struct deep {
    struct verifier *v;
    struct buf pack;
    char pack_key[CONTENT_KEY_ROOM];
    int pack_rc;
};

static int check_in_pack(struct deep *x, const struct content_item *it,
                         const struct content_object *o)
{
    struct retry again = {.limit_ms = RETRY_MS, .stop = x->v->set->stop};
    char key[CONTENT_KEY_ROOM];

    content_key(o, key);
    if (strcmp(key, x->pack_key) != 0) {
        memcpy(x->pack_key, key, sizeof key);
        do {
            x->pack_rc = bucket_get(x->v->set->bucket, key, &x->pack, x->v->e);
        } while (x->pack_rc != 0 && retry_wait(&again, x->pack_rc));
        x->v->out->deep_bytes += x->pack.n;
    }
    if (x->pack_rc != 0) {
        return x->pack_rc;
    }
    if (it->offset + it->stored_bytes > x->pack.n) {
        return err_set(x->v->e, E_CORRUPT, "it is shorter than its index says");
    }
    return content_decode(it, slice_of(x->pack.p + it->offset, (size_t)it->stored_bytes),
                          &x->v->item, x->v->e);
}

static int check_item(struct deep *x, const struct content_item *it, const struct content_object *o)
{
    const struct content_fetch f = {
        .bucket = x->v->set->bucket, .stop = x->v->set->stop, .write = on_whole};

    if (o->kind == CONTENT_PACK) {
        return check_in_pack(x, it, o);
    }
    x->v->out->deep_bytes += o->size_bytes;
    return content_fetch(&f, it, o, x->v->e);
}

static int by_object(const void *x, const void *y)
{
    const struct place *a = x, *b = y;

    return a->object.nonce < b->object.nonce ? -1 : a->object.nonce > b->object.nonce;
}

static bool is_damage(int rc)
{
    return rc == E_CORRUPT || rc == E_NOTFOUND || rc == E_TOOBIG;
}

/* Whether an index that could not be read, or whose object could not, has ended meanwhile. */
static bool has_ended(struct verifier *v, uint64_t index)
{
    bool there = true;

    return index_is_there(v->set->store, index, &there, NULL) == 0 && !there;
}

static int check_items(struct deep *x, uint64_t index, const struct place *item, size_t n)
{
    struct verifier *v = x->v;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n; i++) {
        char key[CONTENT_KEY_ROOM], hex[DIGEST_HEX + 1];
        rc = i % 64 == 0 ? show(v, "reading objects", v->out->deep_bytes, v->out->bytes) : 0;
        rc = rc != 0 ? rc : check_item(x, &item[i].item, &item[i].object);
        if (is_damage(rc) && !has_ended(v, index)) {
            content_key(&item[i].object, key);
            digest_format(&item[i].item.digest, hex);
            find(v, "%s, item sha256:%s: %s", key, hex, v->e->text);
        }
        rc = is_damage(rc) ? 0 : rc;
    }
    return rc;
}

static int read_items(struct verifier *v, uint64_t index, const struct content_index *ix)
{
    struct deep x = {.v = v, .pack = BUF_INIT(PACK_BYTES_MAX)};
    struct place *item = mem_array(ix->count + 1, sizeof item[0]);
    size_t n = 0;
    int rc = 0;

    for (size_t i = 0; i < ix->count; i++) {
        content_index_row(ix, i, &item[n].item, &item[n].object);
        n += item_is_live(&v->mark, &item[n].item);
    }
    if (n != 0) {
        qsort(item, n, sizeof item[0], by_object);
        rc = check_items(&x, index, item, n);
    }
    buf_free(&x.pack);
    free(item);
    return rc;
}

static int read_index(struct verifier *v, const struct index_row *row, struct content_index *out)
{
    struct err why = {0};
    int rc = content_index_get(v->set->bucket, row->nonce, 0, v->set->stop, &v->bytes, out, &why);

    if (is_damage(rc) && !has_ended(v, row->nonce)) {
        find(v, "index %016" PRIx64 ": %s", row->nonce, why.text);
    } else if (rc != 0 && !is_damage(rc)) {
        *v->e = why;
    }
    return rc;
}

static int on_index_row(void *arg, struct slice key, struct slice value)
{
    struct verifier *v = arg;
    struct content_index ix;
    struct index_row row;
    int rc = index_decode(key, value, &row, v->e);

    rc = rc != 0 ? rc : show(v, "reading indexes", v->out->indexes++, 0);
    rc = rc != 0 ? rc : read_index(v, &row, &ix);
    if (rc == 0) {
        named_add(&v->named, row.nonce, &ix);
        v->out->objects += content_index_objects(&ix);
        for (size_t i = 0; i < content_index_objects(&ix); i++) {
            struct content_object o;
            content_index_object(&ix, i, &o);
            v->out->bytes += o.size_bytes;
        }
    }
    return is_damage(rc) ? 0 : rc;
}

static int on_deep_index_row(void *arg, struct slice key, struct slice value)
{
    struct verifier *v = arg;
    struct content_index ix;
    struct index_row row;
    int rc = index_decode(key, value, &row, v->e);

    rc = rc != 0 ? rc : read_index(v, &row, &ix);
    rc = rc != 0 ? rc : read_items(v, row.nonce, &ix);
    return is_damage(rc) ? 0 : rc;
}

static int check_indexes(struct verifier *v)
{
    struct store *s = v->set->store;
    int rc = store_scan(s, TABLE_INDEX, SLICE_NONE, SLICE_NONE, on_index_row, v, v->e);

    if (rc == 0 && v->set->deep) {
        rc = store_scan(s, TABLE_INDEX, SLICE_NONE, SLICE_NONE, on_deep_index_row, v, v->e);
    }
    return rc;
}

/* --- orphans --- */

static int on_condemned_row(void *arg, const struct condemned *c)
{
    struct verifier *v = arg;

    v->out->condemned += c->objects;
    return 0;
}

static int count_orphans(struct verifier *v)
{
    struct orphans o = {.count = 0};
    int rc = show(v, "looking for orphans", 0, 0);

    rc = rc != 0 ? rc : condemned_each(v->set->store, on_condemned_row, v, v->e);
    rc = rc != 0 ? rc : named_add_condemned(&v->named, v->set->store, v->set->bucket, v->e);
    if (rc == 0) {
        rc = orphans_list(v->set->bucket, &v->named, UINT64_MAX, v->set->stop, &o, v->e);
        v->out->orphans = o.count;
        v->out->orphan_bytes = o.bytes;
        v->out->unknown = o.unknown;
        orphans_free(&o);
    }
    return rc;
}

int content_verify(const struct content_verify *set, struct content_verified *out, struct err *e)
{
    struct err why = {0};
    struct verifier *v = NEW(struct verifier);
    int rc;

    *out = (struct content_verified){0};
    v->set = set;
    v->out = out;
    v->e = &why;
    v->bytes = BUF_INIT(CONTENT_INDEX_BYTES_MAX);
    v->item = BUF_INIT(CONTENT_WHOLE_BYTES);
    rc = check_log(v);
    rc = rc != 0 ? rc : list_objects(v);
    rc = rc != 0 ? rc : check_trees(v);
    rc = rc != 0 ? rc : check_indexes(v);
    rc = rc != 0 ? rc : count_orphans(v);
    mark_free(&v->mark);
    set64_free(&v->there);
    named_free(&v->named);
    buf_free(&v->bytes);
    buf_free(&v->item);
    free(v);
    return rc != 0 ? err_set(e, rc, "%s", why.text) : 0;
}
