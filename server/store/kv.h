/* kv.h - the only interface to RocksDB: only kv.c includes rocksdb/c.h.
 *
 * A table is a column family, or a one-byte prefix within "default" (tables.def); callers only see
 * tables. Writes go through a kv_batch that can be read before it is written. That is how the
 * commit thread checks a precondition against earlier batches of the same group.
 *
 * owns     kv_close() flushes every family first: rocksdb_close() does not, and the next open would
 *          replay the log
 * threads  reads: any. A kv_batch and kv_write(): one thread (the commit thread)
 * errors   RocksDB's C interface fails with strings; only kv_error_code() interprets them
 */
#ifndef SERVER_STORE_KV_H
#define SERVER_STORE_KV_H

#include "server/store/store.h"

enum { KV_KEY_MAX = 64 << 10 }; /* bytes: each key is shorter */

struct kv;

/* E_BUSY: another process has it open. E_UNSUPPORTED: it has a family that this program does not
 * know. */
MUST_USE int kv_open(const char *dir, uint64_t cache_bytes, struct kv **out, struct err *e);
/* If the last write failed, it is released without being closed; the end of the process closes
 * it. */
void kv_close(struct kv **kp);

/* value is cleared first. E_NOTFOUND. */
MUST_USE int kv_get(struct kv *kv, enum table t, struct slice key, struct buf *value,
                    struct err *e);
/* The first row at or after `from`. E_NOTFOUND: none. */
MUST_USE int kv_first(struct kv *kv, enum table t, struct slice from, struct buf *key,
                      struct buf *value, struct err *e);

/* A fixed state of all tables; scans may run on it. */
struct kv_view;
struct kv_view *kv_view_open(struct kv *kv);
void kv_view_close(struct kv_view **vp);
/* Rows with from <= key < to (to.p == NULL: to the end) as of `view` (NULL: as of now), until row()
 * returns nonzero. */
MUST_USE int kv_scan(struct kv *kv, struct kv_view *view, enum table t, struct slice from,
                     struct slice to, int (*row)(void *arg, struct slice key, struct slice value),
                     void *arg, struct err *e);
/* The same, for rows that are not needed again soon: they do not displace others in the block
 * cache. */
MUST_USE int kv_scan_once(struct kv *kv, struct kv_view *view, enum table t, struct slice from,
                          struct slice to,
                          int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                          struct err *e);

struct kv_batch;
struct kv_batch *kv_batch_new(void);
void kv_batch_free(struct kv_batch **bp);
void kv_batch_clear(struct kv_batch *b);
void kv_batch_put(struct kv *kv, struct kv_batch *b, enum table t, struct slice key,
                  struct slice value);
void kv_batch_del(struct kv *kv, struct kv_batch *b, enum table t, struct slice key);
void kv_batch_mark(struct kv_batch *b);
void kv_batch_undo(struct kv_batch *b); /* back to the last mark */
/* The row as it will be after the batch is written. */
MUST_USE int kv_batch_get(struct kv *kv, struct kv_batch *b, enum table t, struct slice key,
                          struct buf *value, struct err *e);
MUST_USE int kv_write(struct kv *kv, struct kv_batch *b, bool sync, struct err *e);

/* Errors of flushes and compactions since the open. */
uint64_t kv_background_errors(struct kv *kv);
bool kv_stopped(struct kv *kv); /* RocksDB refuses writes for now */
void kv_metrics(struct kv *kv, struct buf *out);
int kv_error_code(const char *text);

#endif
