/* store.h - everything that must survive: rows in tables (RocksDB) and blobs in files (blob.h),
 * under one folder.
 *
 * Rows: get and scan read the latest committed state; all writes are batches through one commit
 * thread that groups them. A batch is all or nothing, and may carry preconditions that are checked
 * on the commit thread: that is the only read-modify-write there is. No iterator spans tables. A
 * later S3 backend implements this header.
 *
 * layout   <state_dir>/meta/ (RocksDB)  blobs/ab/cd/<hex>  partial/<id>  lock  ballast
 * threads  any. get, scan, commit and blob_* block: call them from a pool, never from a loop.
 *          store_commit_async does not
 * errors   E_NOTFOUND is ordinary; E_CHANGED: a precondition did not hold; E_CORRUPT, E_NOSPACE,
 *          E_IO carry a sentence
 */
#ifndef SERVER_STORE_STORE_H
#define SERVER_STORE_STORE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/hash/digest.h"
#include "common/os/message_queue.h"

struct store;

enum table {
#define TABLE(name, cf, prefix) name,
#include "server/store/tables.def"
#undef TABLE
    TABLES
};

struct store_settings {
    const char *state_dir;
    uint64_t quota_bytes;    /* of blobs; 0: what the file system has, less the reserve */
    uint64_t reserve_bytes;  /* of the file system, never touched; when 0, reserve_ratio counts */
    double reserve_ratio;    /* 0.05 */
    double high_ratio;       /* 0.90 of the quota: evict down to low */
    double low_ratio;        /* 0.85 */
    uint32_t client_uploads; /* sessions of one client; the daemon's: uploads_limit() */
    uint64_t client_upload_bytes; /* in them; likewise */
    uint64_t client_store_bytes;  /* of one client's fetches; the daemon's: cache_limit() */
    uint64_t block_cache_bytes;   /* 256 MiB */
    uint32_t restart_ms;          /* the daemon's: see store_stuck_ms() */
};

/* Takes the folder's lock: a second daemon gets E_BUSY with a sentence. Creates what is missing. */
MUST_USE int store_open(const struct store_settings *set, struct store **out, struct err *e);
void store_close(struct store **sp); /* drains the commit queue, flushes, marks clean */

/* value is cleared first. E_NOTFOUND. */
MUST_USE int store_get(struct store *s, enum table t, struct slice key, struct buf *value,
                       struct err *e);
/* Rows with from <= key < to (to.p == NULL: to the end), in order, until row() returns nonzero;
 * that is returned. */
MUST_USE int store_scan(struct store *s, enum table t, struct slice from, struct slice to,
                        int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                        struct err *e);
/* The same, of rows that are not asked for again soon: they push none out of the block cache. */
MUST_USE int store_scan_once(struct store *s, enum table t, struct slice from, struct slice to,
                             int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                             struct err *e);

/* --- writes --- */
enum durability {
    COMMIT_SYNC,
    COMMIT_LAZY
}; /* LAZY: same log, not synced; lost rows after a power cut cost a refetch */

struct batch;
struct batch *batch_new(void);
void batch_free(struct batch **bp);
void batch_put(struct batch *b, enum table t, struct slice key, struct slice value);
void batch_del(struct batch *b, enum table t, struct slice key);
/* Takes out the puts that would change nothing; true when no step is left. *replaces: a row has
 * another value by now. One that is too big stays as it is, for store_commit() to refuse. Reads
 * their rows: blocks. */
MUST_USE bool batch_prune(struct batch *b, struct store *s, bool *replaces);
/* The same, and those out too whose row is there with a value that fresh() does not put behind the
 * new one. */
MUST_USE bool batch_filter(struct batch *b, struct store *s,
                           bool (*fresh)(struct slice old, struct slice value), bool *replaces);
size_t batch_bytes(const struct batch *b); /* of its steps */
/* Preconditions: the row is absent, or its value is exactly that; else nothing is written and
 * E_CHANGED returned. */
void batch_require_absent(struct batch *b, enum table t, struct slice key);
void batch_require_value(struct batch *b, enum table t, struct slice key, struct slice value);
/* A row in TABLE_HOLDER needs its blob: when the digest has no row in TABLE_BLOB once the batch is
 * in, the batch fails with E_CHANGED. So a reference to a blob found earlier cannot outlive the
 * blob's eviction. */

/* Takes *bp, also when it fails. E_TOOBIG: more was put into it than a batch holds, and nothing of
 * it is written. */
MUST_USE int store_commit(struct store *s, struct batch **bp, enum durability how, struct err *e);
struct commit_wait { /* the caller keeps it until done() ran, on reply's loop */
    void (*done)(struct commit_wait *w, int rc, const struct err *e);
    struct message_queue *reply;
    struct message message; /* private, as all below */
    struct list node;
    struct batch *batch;
    enum durability how;
    int rc;
    struct err why;
};
void store_commit_async(struct store *s, struct batch **bp, enum durability how,
                        struct commit_wait *w);

/* --- space --- */
struct store_space {
    uint64_t quota_bytes;  /* in force */
    uint64_t used_bytes;   /* by sealed blobs */
    uint64_t small_bytes;  /* of those, in blobs up to 4 MiB */
    uint64_t staged_bytes; /* reserved by unfinished ones */
    uint64_t parked_bytes; /* of unfinished ones that wait to be resumed */
    uint64_t disk_free_bytes;
    uint64_t blobs;
    uint64_t high_bytes, low_bytes; /* the marks between which room is made */
    bool full; /* the last write met ENOSPC; fetches are refused until space is back */
};
void store_space(struct store *s, struct store_space *out); /* no I/O but a cached statvfs */
/* Quota, reserve and marks from now on; what is too much goes with the next eviction. */
void store_set_space(struct store *s, const struct store_settings *set);

const char *store_folder(const struct store *s); /* state_dir, as it was given */
/* The folder was closed in order the last time; otherwise a verify_run() may find orphan files. */
bool store_was_clean(const struct store *s);
/* Background-error and stall flags of RocksDB, for readyz and metrics. */
bool store_healthy(struct store *s, struct err *why);
/* Blobs that were found damaged, by whom ever, since the start or since a verify_run() that found
 * nothing; *since_unix_s: the first of them. */
uint64_t store_damaged(const struct store *s, uint64_t *since_unix_s);
/* For how long the disk has taken what RocksDB does not write any more: after some errors it writes
 * nothing until it is opened anew (docs/decisions/0018). 0: rows are written, or the disk does not
 * take anything either. */
uint64_t store_stuck_ms(struct store *s, uint64_t now_ms);
/* RocksDB numbers as "name value" lines for /metrics. */
void store_metrics(struct store *s, struct buf *out);

#endif
