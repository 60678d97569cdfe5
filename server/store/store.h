/* store.h - everything that must survive a restart: rows in tables (RocksDB) and blobs in files
 * (blob.h), in one folder.
 *
 * Reads (get, scan) see the latest committed state. All writes are batches, and one commit thread
 * groups them. A batch is all or nothing. It may carry preconditions, which are checked on the
 * commit thread: this is the only form of read-modify-write. No iterator spans tables. A later S3
 * backend implements this header.
 *
 * layout   <state_dir>/meta/ (RocksDB)  blobs/ab/cd/<hex>  partial/<id>  lock  ballast
 * owns     struct store, from store_open() to store_close()
 * threads  any. get, scan, commit and blob_* block: call them from a pool, never from a loop.
 *          store_commit_async() does not block
 * errors   E_NOTFOUND is ordinary; E_CHANGED: a precondition did not hold; E_CORRUPT, E_NOSPACE,
 *          E_IO carry a sentence
 */
#ifndef SERVER_STORE_STORE_H
#define SERVER_STORE_STORE_H

#include <stdatomic.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/hash/digest.h"
#include "common/os/message_queue.h"

struct store;

enum table {
#define TABLE(name, cf, prefix, shared) name,
#include "server/store/tables.def"
#undef TABLE
    TABLES
};

struct store_settings {
    const char *state_dir;
    uint64_t quota_bytes;         /* of blobs; 0: the size of the file system, less the reserve */
    uint64_t reserve_bytes;       /* of the file system, never touched; 0: reserve_ratio counts */
    double reserve_ratio;         /* 0.05 */
    double high_ratio;            /* 0.90 of the quota: evict down to low */
    double low_ratio;             /* 0.85 */
    uint32_t client_uploads;      /* sessions of one client; used by the daemon: uploads_limit() */
    uint64_t client_upload_bytes; /* bytes in them; likewise */
    uint64_t client_store_bytes;  /* of one client's fetches; used by the daemon: cache_limit() */
    uint64_t block_cache_bytes;   /* 256 MiB */
    uint32_t restart_ms;          /* used by the daemon: see store_stuck_ms() */
};

/* Takes the folder's lock: a second daemon gets E_BUSY with a sentence. Missing folders are
 * created. */
MUST_USE int store_open(const struct store_settings *set, struct store **out, struct err *e);
void store_close(struct store **sp); /* drains the commit queue, flushes, marks clean */

/* value is cleared first. E_NOTFOUND. For this function alone, a blob that is elsewhere (below) has
 * rows in TABLE_BLOB and, if it is small, in TABLE_INLINE. */
MUST_USE int store_get(struct store *s, enum table t, struct slice key, struct buf *value,
                       struct err *e);
/* Rows with from <= key < to (to.p == NULL: to the end), in order, until row() returns nonzero,
 * which is then returned. */
MUST_USE int store_scan(struct store *s, enum table t, struct slice from, struct slice to,
                        int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                        struct err *e);
/* The same, for rows that are not needed again soon: they do not displace others in the block
 * cache. */
MUST_USE int store_scan_once(struct store *s, enum table t, struct slice from, struct slice to,
                             int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                             struct err *e);

/* A view has the rows as of the moment when it was opened. Close it soon: it keeps what is deleted
 * in the meantime on the disk. */
struct kv_view;
struct kv_view *store_view_open(struct store *s);
void store_view_close(struct kv_view **vp);
/* As store_scan_once(), of a view. */
MUST_USE int store_view_scan(struct store *s, struct kv_view *view, enum table t, struct slice from,
                             struct slice to,
                             int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                             struct err *e);

/* --- writes --- */
enum durability {
    COMMIT_SYNC,
    COMMIT_LAZY
}; /* LAZY: the same log, not synced; rows lost in a power cut cost another download */

struct batch;
struct batch *batch_new(void);
void batch_free(struct batch **bp);
void batch_put(struct batch *b, enum table t, struct slice key, struct slice value);
void batch_del(struct batch *b, enum table t, struct slice key);
/* Removes the puts that would change nothing; true when no step is left. *replaces: a row has
 * another value already. A row that is too big stays, so that store_commit() refuses it. Reads the
 * rows: blocks. */
MUST_USE bool batch_prune(struct batch *b, struct store *s, bool *replaces);
/* As batch_prune(), and also removes puts whose existing row is at least as new: fresh() says
 * whether the new value replaces the old one. */
MUST_USE bool batch_filter(struct batch *b, struct store *s,
                           bool (*fresh)(struct slice old, struct slice value), bool *replaces);
size_t batch_bytes(const struct batch *b); /* of its steps */
/* Preconditions: the row is absent, or has exactly that value. Otherwise nothing is written and the
 * commit fails with E_CHANGED. */
void batch_require_absent(struct batch *b, enum table t, struct slice key);
void batch_require_value(struct batch *b, enum table t, struct slice key, struct slice value);
/* A precondition of its own kind. It runs on the thread that commits, with no write pending and
 * before any step of this batch; in a cluster when all entries of the log before it are applied.
 * Nonzero fails the batch. */
void batch_check(struct batch *b, int (*check)(struct store *s, void *arg, struct err *e),
                 void *arg);
/* A row in TABLE_HOLDER needs its blob: if the digest has no row in TABLE_BLOB after the batch, the
 * batch fails with E_CHANGED, unless the blob is elsewhere. So a reference to a blob that was found
 * earlier cannot outlive the blob's eviction. */

/* Takes *bp, also when it fails. E_TOOBIG: more was put into it than a batch holds, and nothing of
 * it is written. */
MUST_USE int store_commit(struct store *s, struct batch **bp, enum durability how, struct err *e);
struct commit_wait { /* the caller keeps it until done() has run, on reply's loop */
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

/* --- rows that the nodes of a cluster share (tables.def) ---
 *
 * A store with a sequencer does not commit a batch that writes such rows. It hands the batch to
 * submit(). The sequencer brings the batch into the order of the cluster's log, applies it with
 * store_apply(), and ends the wait with store_answer(). */
struct sequencer {
    void (*submit)(void *arg, struct commit_wait *w); /* takes w->batch; does not block */
    void *arg;
};
/* q is borrowed until it is replaced; NULL: the store is alone. No commit may be under way. */
void store_set_sequencer(struct store *s, const struct sequencer *q);
void store_answer(struct store *s, struct commit_wait *w, int rc, const struct err *why);
/* As a store without a sequencer does: the batch of a wait that the sequencer got; or a batch, in
 * place of store_commit(). */
void store_pass(struct store *s, struct commit_wait *w);
MUST_USE int store_commit_alone(struct store *s, struct batch **bp, enum durability how,
                                struct err *e);
/* What a commit of each batch alone would return now: rc[i] and, if that is not 0, why[i]. */
void store_judge(struct store *s, struct batch *const *batch, size_t n, int *rc, struct err *why);
/* Commits an entry of the log in one write, synced: the batches of this store that are in it, and
 * the steps of *entry. If a precondition on a row that is not shared does not hold any more, or the
 * blob of a holder was evicted, the batch is applied without these steps, because the entry counts.
 * Takes *entry. own stays the caller's: after a failure the call can be repeated. */
MUST_USE int store_apply(struct store *s, struct batch **entry, struct batch *const *own, size_t n,
                         struct err *e);

/* --- blobs that are elsewhere ---
 *
 * blob_open() asks the source for a blob that the store does not have or that is damaged, and opens
 * it afterwards. What the source has may be evicted although a tree holds it, and a tree may name
 * it although the store does not have it. */
struct blob_source {
    /* Brings the blob into the store. E_NOTFOUND: the source does not have it either. Blocks. */
    int (*bring)(void *arg, const struct digest *d, struct err *e);
    /* Whether the source has it. Reads a row. */
    bool (*has)(void *arg, const struct digest *d, uint64_t *size_bytes);
    /* Whether the source relies on this node of a tree (TABLE_NODE), so that collection keeps it.
     * Reads a row. */
    bool (*needs_node)(void *arg, const struct digest *id);
    void *arg;
    atomic_bool stay; /* nothing is evicted because it is elsewhere, too */
};
/* Borrowed until it is replaced; NULL: there is none. */
void store_set_blob_source(struct store *s, struct blob_source *src);

/* --- space --- */
struct store_space {
    uint64_t quota_bytes;  /* in force */
    uint64_t used_bytes;   /* by sealed blobs */
    uint64_t small_bytes;  /* of those, in blobs up to 4 MiB */
    uint64_t staged_bytes; /* reserved by unfinished ones */
    uint64_t parked_bytes; /* of unfinished ones that can be resumed */
    uint64_t disk_free_bytes;
    uint64_t reserve_bytes; /* of the file system, kept free */
    uint64_t blobs;
    uint64_t high_bytes, low_bytes; /* the marks between which room is made */
    bool full;    /* the last write failed with ENOSPC; fetches are refused until space is back */
    bool by_disk; /* quota_bytes is what the file system leaves: a larger storage.quota changes
                   * nothing */
};
void store_space(struct store *s, struct store_space *out); /* no I/O except a cached statvfs */
enum { SPACE_ADVICE = 160 };
/* What makes the quota larger, for the end of a message: "raise storage.quota", or, where the file
 * system is the limit, its free space, the reserve, and what to do. Returns `out`. */
const char *store_space_advice(const struct store_space *space, char out[SPACE_ADVICE]);
/* True where the file system of set->state_dir has less free space than the reserve, so that
 * nothing new can be stored: a sentence for the operator with the figures is added to `out`. The
 * folder need not exist yet. Blocks for a statvfs. */
bool store_warn_of_reserve(const struct store_settings *set, struct buf *out);
/* Changes quota, reserve and marks. Excess bytes are removed by the next eviction. */
void store_set_space(struct store *s, const struct store_settings *set);

const char *store_folder(const struct store *s); /* state_dir, as it was given */
/* The folder was closed properly the last time. If not, verify_run() may find orphan files. */
bool store_was_clean(const struct store *s);
/* Background-error and stall flags of RocksDB, for readyz and metrics. */
bool store_healthy(struct store *s, struct err *why);
/* The number of damaged blobs that were found since the start, or since a verify_run() that found
 * none. *since_unix_s: when the first of them was found. */
uint64_t store_damaged(const struct store *s, uint64_t *since_unix_s);
/* For how long RocksDB has not been writing although the disk accepts writes: after some errors it
 * writes nothing until it is opened again (docs/decisions/0018). 0: rows are written, or the disk
 * does not accept writes either. */
uint64_t store_stuck_ms(struct store *s, uint64_t now_ms);
/* RocksDB's numbers as "name value" lines for /metrics. */
void store_metrics(struct store *s, struct buf *out);

#endif
