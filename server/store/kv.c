#include "server/store/kv.h"

#include <rocksdb/c.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* --- options ---
 *
 * How RocksDB is set up, for kv.c alone: what it may keep in memory, how it writes, what each
 * family is like.
 *
 * format_version is pinned so that a newer library
 * writes files that an older one can read.
 *
 * owns     the caller destroys what is returned
 */

/* of the database */
static rocksdb_options_t *kv_options_new(void)
{
    rocksdb_options_t *o = rocksdb_options_create();

    rocksdb_options_set_create_if_missing(o, 1);
    rocksdb_options_set_create_missing_column_families(o, 1);
    rocksdb_options_set_wal_recovery_mode(o, rocksdb_point_in_time_recovery);
    rocksdb_options_set_db_write_buffer_size(o, (size_t)64 << 20);
    rocksdb_options_set_write_buffer_size(o, (size_t)16 << 20);
    /* Most looks are for digests that are not there: a filter of some 300 KiB a memtable answers
     * them. */
    rocksdb_options_set_memtable_whole_key_filtering(o, 1);
    rocksdb_options_set_memtable_prefix_bloom_size_ratio(o, 0.02);
    rocksdb_options_set_max_total_wal_size(o, (uint64_t)64 << 20); /* replay: some 25 MB/s */
    rocksdb_options_set_max_background_jobs(o, 2);
    rocksdb_options_set_level_compaction_dynamic_level_bytes(o, 1);
    rocksdb_options_set_compression(o, rocksdb_lz4_compression);
    rocksdb_options_set_bytes_per_sync(o, 1 << 20);
    rocksdb_options_set_wal_bytes_per_sync(o, 1 << 20);
    rocksdb_options_set_max_open_files(o, 4096);
    rocksdb_options_set_stats_dump_period_sec(o, 0);
    rocksdb_options_set_keep_log_file_num(o, 5);
    rocksdb_options_set_max_log_file_size(o, (size_t)16 << 20);
    rocksdb_options_set_info_log_level(o, 2); /* warnings */
    return o;
}

static void set_tables(rocksdb_options_t *o, rocksdb_cache_t *cache, bool ribbon)
{
    rocksdb_block_based_table_options_t *t = rocksdb_block_based_options_create();

    rocksdb_block_based_options_set_format_version(t, 5);
    rocksdb_block_based_options_set_block_size(t, 16 << 10);
    rocksdb_block_based_options_set_block_cache(t, cache);
    rocksdb_block_based_options_set_index_type(
        t, rocksdb_block_based_table_index_type_two_level_index_search);
    rocksdb_block_based_options_set_partition_filters(t, 1);
    rocksdb_block_based_options_set_metadata_block_size(t, 4096);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(t, 1);
    rocksdb_block_based_options_set_cache_index_and_filter_blocks_with_high_priority(t, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(t, 1);
    rocksdb_block_based_options_set_pin_top_level_index_and_filter(t, 1);
    /* The table options take the policy. */
    rocksdb_block_based_options_set_filter_policy(
        t, ribbon ? rocksdb_filterpolicy_create_ribbon_hybrid(10, 1)
                  : rocksdb_filterpolicy_create_bloom_full(10));
    rocksdb_options_set_block_based_table_factory(o, t);
    rocksdb_block_based_options_destroy(t);
}

/* Inline blobs: values in blob files, which compaction does not rewrite, with a cache of their own
 * so that they do not flush metadata out. */
static void set_inline(rocksdb_options_t *o, uint64_t cache_bytes)
{
    rocksdb_cache_t *cache = rocksdb_cache_create_lru((size_t)cache_bytes);

    rocksdb_options_set_enable_blob_files(o, 1);
    rocksdb_options_set_min_blob_size(o, 512);
    rocksdb_options_set_blob_file_size(o, (uint64_t)64 << 20);
    rocksdb_options_set_blob_compression_type(o, rocksdb_no_compression);
    rocksdb_options_set_enable_blob_gc(o, 1);
    rocksdb_options_set_blob_gc_age_cutoff(o, 0.25);
    rocksdb_options_set_blob_gc_force_threshold(o, 0.5);
    rocksdb_options_set_blob_cache(o, cache);
    rocksdb_cache_destroy(cache);
}

/* Of one family: the database's, and what its rows are like. cache: of its blocks, shared;
 * cache_bytes: how much that is. */
static rocksdb_options_t *kv_options_family(rocksdb_options_t *base, const char *name,
                                            rocksdb_cache_t *cache, uint64_t cache_bytes)
{
    rocksdb_options_t *o = rocksdb_options_create_copy(base);

    set_tables(o, cache, strcmp(name, "blob") == 0);
    if (strcmp(name, "inline") == 0) {
        set_inline(o, cache_bytes / 4);
    }
    return o;
}

enum { MAX_FAMILIES = TABLES };

struct kv {
    rocksdb_t *db;
    rocksdb_readoptions_t *read;
    rocksdb_writeoptions_t *sync;
    rocksdb_writeoptions_t *lazy;
    size_t families;
    const char *name[MAX_FAMILIES];
    rocksdb_column_family_handle_t *family[MAX_FAMILIES];
    size_t family_of[TABLES];
    bool broken; /* the last write failed; the commit thread's */
};

struct kv_view {
    struct kv *kv;
    const rocksdb_snapshot_t *snapshot;
};

struct kv_batch {
    rocksdb_writebatch_wi_t *wb;
};

static const struct table_row {
    const char *family;
    char prefix;
} table_rows[TABLES] = {
#define TABLE(name, cf, prefix, shared) [name] = {(cf), (prefix)},
#include "server/store/tables.def"
#undef TABLE
};

/* --- errors --- */

int kv_error_code(const char *text)
{
    static const struct {
        const char *prefix;
        const char *inside;
        int code;
    } known[] = {
        {"NotFound: ", "", E_NOTFOUND},
        {"Corruption: ", "", E_CORRUPT},
        {"IO error: ", "No space left on device", E_NOSPACE},
        {"IO error: ", "Disk quota exceeded", E_NOSPACE},
        {"IO error: ", "lock hold by current process", E_BUSY},
        {"IO error: ", "While lock file", E_BUSY},
        {"IO error: ", "", E_IO},
        {"Result incomplete: ", "", E_AGAIN},
        {"Resource busy: ", "", E_BUSY},
        {"Operation timed out: ", "", E_TIMEOUT},
        {"Operation failed. Try again.: ", "", E_AGAIN},
        {"Operation aborted: ", "", E_CANCELLED},
        {"Shutdown in progress: ", "", E_CANCELLED},
        {"Not implemented: ", "", E_UNSUPPORTED},
    };
    struct slice s = slice_str(text);

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (slice_starts(s, slice_str(known[i].prefix)) && strstr(text, known[i].inside) != NULL) {
            return known[i].code;
        }
    }
    return E_INTERNAL;
}

/* Takes text. */
static int kv_error(struct err *e, const char *what, char *text)
{
    int rc = err_set(e, kv_error_code(text), "metadata: %s: %s", what, text);

    rocksdb_free(text);
    return rc;
}

/* --- open and close --- */

static void find_families(struct kv *kv)
{
    for (size_t t = 0; t < TABLES; t++) {
        size_t f = 0;
        while (f < kv->families && strcmp(kv->name[f], table_rows[t].family) != 0) {
            f++;
        }
        if (f == kv->families) {
            kv->name[kv->families++] = table_rows[t].family;
        }
        kv->family_of[t] = f;
    }
}

/* A family that a newer program added must stop us: opening without it is refused by RocksDB with a
 * riddle. */
static int refuse_unknown(struct kv *kv, const char *dir, rocksdb_options_t *o, struct err *e)
{
    char *text = NULL;
    size_t n = 0;
    char **names = rocksdb_list_column_families(o, dir, &n, &text);
    int rc = 0;

    rocksdb_free(
        text); /* no database yet, n is 0; a broken one fails in open, with RocksDB's words */
    for (size_t i = 0; i < n && rc == 0; i++) {
        size_t f = 0;
        while (f < kv->families && strcmp(kv->name[f], names[i]) != 0) {
            f++;
        }
        if (f == kv->families) {
            rc = err_set(e, E_UNSUPPORTED,
                         "%s: written by a newer mirrord (table \"%s\" is unknown here); upgrade "
                         "mirrord or use another state_dir",
                         dir, names[i]);
        }
    }
    rocksdb_list_column_families_destroy(names, n);
    return rc;
}

static int open_families(struct kv *kv, const char *dir, rocksdb_options_t *base,
                         uint64_t cache_bytes, struct err *e)
{
    const rocksdb_options_t *options[MAX_FAMILIES];
    rocksdb_options_t *own[MAX_FAMILIES];
    rocksdb_cache_t *cache = rocksdb_cache_create_lru((size_t)cache_bytes);
    char *text = NULL;

    for (size_t f = 0; f < kv->families; f++) {
        options[f] = own[f] = kv_options_family(base, kv->name[f], cache, cache_bytes);
    }
    kv->db = rocksdb_open_column_families(base, dir, (int)kv->families, kv->name, options,
                                          kv->family, &text);
    for (size_t f = 0; f < kv->families; f++) {
        rocksdb_options_destroy(own[f]);
    }
    rocksdb_cache_destroy(cache);
    return text != NULL ? kv_error(e, dir, text) : 0;
}

int kv_open(const char *dir, uint64_t cache_bytes, struct kv **out, struct err *e)
{
    struct kv *kv = NEW(struct kv);
    rocksdb_options_t *base = kv_options_new();
    int rc;

    *out = NULL;
    find_families(kv);
    kv->read = rocksdb_readoptions_create();
    kv->sync = rocksdb_writeoptions_create();
    kv->lazy = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(kv->sync, 1);
    rc = refuse_unknown(kv, dir, base, e);
    rc = rc != 0 ? rc : open_families(kv, dir, base, cache_bytes, e);
    rocksdb_options_destroy(base);
    if (rc != 0) {
        kv_close(&kv);
        return rc;
    }
    *out = kv;
    return 0;
}

static void flush_families(struct kv *kv)
{
    rocksdb_flushoptions_t *o = rocksdb_flushoptions_create();

    for (size_t f = 0; f < kv->families; f++) {
        char *text = NULL;
        rocksdb_flush_cf(kv->db, o, kv->family[f], &text);
        rocksdb_free(text); /* the log holds what was not flushed */
    }
    rocksdb_flushoptions_destroy(o);
}

void kv_close(struct kv **kp)
{
    struct kv *kv = *kp;

    if (kv == NULL) {
        return;
    }
    *kp = NULL;
    if (kv->broken) { /* 7.8 aborts where it is closed; our end closes it as SIGKILL would */
        return;
    }
    if (kv->db != NULL) {
        flush_families(kv);
        for (size_t f = 0; f < kv->families; f++) {
            rocksdb_column_family_handle_destroy(kv->family[f]);
        }
        rocksdb_close(kv->db);
    }
    rocksdb_readoptions_destroy(kv->read);
    rocksdb_writeoptions_destroy(kv->sync);
    rocksdb_writeoptions_destroy(kv->lazy);
    free(kv);
}

/* --- keys: a prefixed table's key is copied behind its prefix --- */

struct full_key {
    struct slice s;
    char *heap;
    char small[120];
};

static struct slice full_key(struct full_key *k, enum table t, struct slice key)
{
    char prefix = table_rows[t].prefix;
    char *p = k->small;

    k->heap = NULL;
    if (prefix == 0) {
        k->s = key.p != NULL ? key : SLICE("");
        return k->s;
    }
    CHECK(key.n < KV_KEY_MAX);
    if (key.n + 1 > sizeof k->small) {
        p = k->heap = mem_new(key.n + 1);
    }
    p[0] = prefix;
    if (key.n != 0) {
        memcpy(p + 1, key.p, key.n);
    }
    k->s = slice_of(p, key.n + 1);
    return k->s;
}

static struct slice own_key(enum table t, struct slice full)
{
    return table_rows[t].prefix == 0 ? full : slice_from(full, 1);
}

static rocksdb_column_family_handle_t *family(struct kv *kv, enum table t)
{
    return kv->family[kv->family_of[t]];
}

/* --- reads --- */

int kv_get(struct kv *kv, enum table t, struct slice key, struct buf *value, struct err *e)
{
    struct full_key k;
    char *text = NULL;
    rocksdb_pinnableslice_t *pin;
    size_t n;
    const char *p;

    buf_clear(value);
    full_key(&k, t, key);
    pin = rocksdb_get_pinned_cf(kv->db, kv->read, family(kv, t), k.s.p, k.s.n, &text);
    free(k.heap);
    if (text != NULL) {
        return kv_error(e, "read", text);
    }
    if (pin == NULL) {
        return err_set(e, E_NOTFOUND, "no such row");
    }
    p = rocksdb_pinnableslice_value(pin, &n);
    buf_add(value, p, n);
    rocksdb_pinnableslice_destroy(pin);
    return value->rc == 0 ? 0 : err_set(e, value->rc, "the row is too large: %zu bytes", n);
}

struct bounds {
    struct full_key from;
    struct full_key to;
    char end; /* of a prefixed table */
};

static rocksdb_iterator_t *iterate(struct kv *kv, struct kv_view *view, enum table t,
                                   struct slice from, struct slice to, struct bounds *b,
                                   rocksdb_readoptions_t *ro)
{
    rocksdb_iterator_t *it;

    full_key(&b->from, t, from);
    b->to = (struct full_key){0};
    if (to.p != NULL) {
        full_key(&b->to, t, to);
    } else if (table_rows[t].prefix != 0) {
        b->end = (char)(table_rows[t].prefix + 1);
        b->to.s = slice_of(&b->end, 1);
    }
    if (b->to.s.p != NULL) {
        rocksdb_readoptions_set_iterate_upper_bound(ro, b->to.s.p, b->to.s.n);
    }
    if (view != NULL) {
        rocksdb_readoptions_set_snapshot(ro, view->snapshot);
    }
    it = rocksdb_create_iterator_cf(kv->db, ro, family(kv, t));
    rocksdb_iter_seek(it, b->from.s.p, b->from.s.n);
    return it;
}

static int iterated(rocksdb_iterator_t *it, struct bounds *b, rocksdb_readoptions_t *ro, int rc,
                    struct err *e)
{
    char *text = NULL;

    rocksdb_iter_get_error(it, &text);
    if (text != NULL) {
        rc = kv_error(e, "scan", text);
    }
    rocksdb_iter_destroy(it);
    rocksdb_readoptions_destroy(ro);
    free(b->from.heap);
    free(b->to.heap);
    return rc;
}

static int scan(struct kv *kv, struct kv_view *view, enum table t, struct slice from,
                struct slice to, bool once,
                int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                struct err *e)
{
    struct bounds b;
    rocksdb_readoptions_t *ro = rocksdb_readoptions_create();
    rocksdb_iterator_t *it;
    int rc = 0;

    rocksdb_readoptions_set_fill_cache(ro, !once);
    it = iterate(kv, view, t, from, to, &b, ro);
    for (; rc == 0 && rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t kn, vn;
        const char *kp = rocksdb_iter_key(it, &kn);
        const char *vp = rocksdb_iter_value(it, &vn);
        rc = row(arg, own_key(t, slice_of(kp, kn)), slice_of(vp, vn));
    }
    return iterated(it, &b, ro, rc, e);
}

int kv_scan(struct kv *kv, struct kv_view *view, enum table t, struct slice from, struct slice to,
            int (*row)(void *arg, struct slice key, struct slice value), void *arg, struct err *e)
{
    return scan(kv, view, t, from, to, false, row, arg, e);
}

int kv_scan_once(struct kv *kv, struct kv_view *view, enum table t, struct slice from,
                 struct slice to, int (*row)(void *arg, struct slice key, struct slice value),
                 void *arg, struct err *e)
{
    return scan(kv, view, t, from, to, true, row, arg, e);
}

struct first_row {
    struct buf *key;
    struct buf *value;
};

static int take_first(void *arg, struct slice key, struct slice value)
{
    struct first_row *f = arg;

    buf_adds(f->key, key);
    buf_adds(f->value, value);
    return 1;
}

int kv_first(struct kv *kv, enum table t, struct slice from, struct buf *key, struct buf *value,
             struct err *e)
{
    struct first_row f = {key, value};
    int rc;

    buf_clear(key);
    buf_clear(value);
    rc = kv_scan(kv, NULL, t, from, SLICE_NONE, take_first, &f, e);
    if (rc == 1) {
        return 0;
    }
    return rc != 0 ? rc : err_set(e, E_NOTFOUND, "no row in this range");
}

struct kv_view *kv_view_open(struct kv *kv)
{
    struct kv_view *v = NEW(struct kv_view);

    v->kv = kv;
    v->snapshot = rocksdb_create_snapshot(kv->db);
    return v;
}

void kv_view_close(struct kv_view **vp)
{
    struct kv_view *v = *vp;

    if (v != NULL) {
        *vp = NULL;
        rocksdb_release_snapshot(v->kv->db, v->snapshot);
        free(v);
    }
}

/* --- writes --- */

struct kv_batch *kv_batch_new(void)
{
    struct kv_batch *b = NEW(struct kv_batch);

    b->wb = rocksdb_writebatch_wi_create(0, 1);
    return b;
}

void kv_batch_free(struct kv_batch **bp)
{
    struct kv_batch *b = *bp;

    if (b != NULL) {
        *bp = NULL;
        rocksdb_writebatch_wi_destroy(b->wb);
        free(b);
    }
}

void kv_batch_clear(struct kv_batch *b)
{
    rocksdb_writebatch_wi_clear(b->wb);
}

void kv_batch_put(struct kv *kv, struct kv_batch *b, enum table t, struct slice key,
                  struct slice value)
{
    struct full_key k;

    full_key(&k, t, key);
    rocksdb_writebatch_wi_put_cf(b->wb, family(kv, t), k.s.p, k.s.n, value.n != 0 ? value.p : "",
                                 value.n);
    free(k.heap);
}

void kv_batch_del(struct kv *kv, struct kv_batch *b, enum table t, struct slice key)
{
    struct full_key k;

    full_key(&k, t, key);
    rocksdb_writebatch_wi_delete_cf(b->wb, family(kv, t), k.s.p, k.s.n);
    free(k.heap);
}

void kv_batch_mark(struct kv_batch *b)
{
    rocksdb_writebatch_wi_set_save_point(b->wb);
}

void kv_batch_undo(struct kv_batch *b)
{
    char *text = NULL;

    rocksdb_writebatch_wi_rollback_to_save_point(b->wb, &text);
    CHECK(text == NULL);
}

int kv_batch_get(struct kv *kv, struct kv_batch *b, enum table t, struct slice key,
                 struct buf *value, struct err *e)
{
    struct full_key k;
    char *text = NULL;
    size_t n = 0;
    char *p;

    buf_clear(value);
    full_key(&k, t, key);
    p = rocksdb_writebatch_wi_get_from_batch_and_db_cf(b->wb, kv->db, kv->read, family(kv, t),
                                                       k.s.p, k.s.n, &n, &text);
    free(k.heap);
    if (text != NULL) {
        return kv_error(e, "read", text);
    }
    if (p == NULL) {
        return err_set(e, E_NOTFOUND, "no such row");
    }
    buf_add(value, p, n);
    rocksdb_free(p);
    return value->rc == 0 ? 0 : err_set(e, value->rc, "the row is too large: %zu bytes", n);
}

int kv_write(struct kv *kv, struct kv_batch *b, bool sync, struct err *e)
{
    char *text = NULL;

    rocksdb_write_writebatch_wi(kv->db, sync ? kv->sync : kv->lazy, b->wb, &text);
    kv->broken = text != NULL;
    return text != NULL ? kv_error(e, "write", text) : 0;
}

/* --- numbers --- */

static uint64_t property(struct kv *kv, const char *name)
{
    uint64_t v = 0;

    return rocksdb_property_int(kv->db, name, &v) == 0 ? v : 0;
}

uint64_t kv_background_errors(struct kv *kv)
{
    return property(kv, "rocksdb.background-errors");
}

bool kv_stopped(struct kv *kv)
{
    return property(kv, "rocksdb.is-write-stopped") != 0;
}

void kv_metrics(struct kv *kv, struct buf *out)
{
    static const struct {
        const char *property;
        const char *name;
        bool per_family;
    } rows[] = {
        {"rocksdb.block-cache-usage", "block_cache_bytes", false},
        {"rocksdb.actual-delayed-write-rate", "delayed_write_bytes_per_second", false},
        {"rocksdb.is-write-stopped", "write_stopped", false},
        {"rocksdb.background-errors", "background_errors_total", false},
        {"rocksdb.num-running-compactions", "running_compactions", false},
        {"rocksdb.num-running-flushes", "running_flushes", false},
        {"rocksdb.cur-size-all-mem-tables", "memtable_bytes", true},
        {"rocksdb.estimate-table-readers-mem", "table_reader_bytes", true},
        {"rocksdb.total-sst-files-size", "sst_bytes", true},
        {"rocksdb.estimate-pending-compaction-bytes", "pending_compaction_bytes", true},
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t sum = 0;
        if (!rows[i].per_family) {
            sum = property(kv, rows[i].property);
        }
        for (size_t f = 0; rows[i].per_family && f < kv->families; f++) {
            uint64_t v = 0;
            if (rocksdb_property_int_cf(kv->db, kv->family[f], rows[i].property, &v) == 0) {
                sum += v;
            }
        }
        buf_addf(out, "mirrord_rocksdb_%s %llu\n", rows[i].name, (unsigned long long)sum);
    }
}
