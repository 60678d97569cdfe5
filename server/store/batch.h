/* batch.h - the inside of a struct batch, for the commit thread.
 *
 * A batch has changes, preconditions, and actions that follow the commit. store.h has the calls
 * that fill one.
 *
 * owns     batch_free() frees the steps and closes the removed files
 * threads  one at a time
 */
#ifndef SERVER_STORE_BATCH_H
#define SERVER_STORE_BATCH_H

#include "server/store/store.h"

enum batch_op { OP_PUT, OP_DEL, OP_REQUIRE_ABSENT, OP_REQUIRE_VALUE };

struct batch_step {
    enum batch_op op;
    enum table table;
    struct slice key;
    struct slice value;
};

enum after_kind {
    /* the digest is registered in seal.h: leave it, whatever became of the batch */
    AFTER_SEALED,
    AFTER_UNLINK,     /* after the commit: remove the blob's file */
    AFTER_QUARANTINE, /* after the commit: move it aside; such files are deleted first */
    AFTER_SET_ASIDE,  /* after the commit: move it aside; it may be the last copy */
    AFTER_UNPARK,     /* after the commit: remove partial/<id> */
};

struct after {
    enum after_kind kind;
    struct digest digest;
    uint64_t id;
    /* of a removed file: batch_free() frees its blocks, which spares the commit thread */
    int fd;
};

struct batch {
    struct buf steps; /* complete steps only; its rc says that more were added than it holds */
    struct after *after;
    size_t nafter;
    size_t after_room;
    struct store *store; /* with AFTER_SEALED */
    bool committed;      /* its rows exist: code that leaves the seals need not look for them */
    /* Runs on the commit thread, with no write pending and before any step of this batch. Nonzero
     * fails the batch. */
    int (*check)(struct store *s, void *arg, struct err *e);
    void *check_arg;
};

/* Sorts the steps by table and key; steps of one key keep their order. A batch is all or nothing,
 * so this only affects speed: RocksDB's memtables insert a row faster next to the previous one. */
void batch_sort(struct batch *b);
/* Iterates over the steps: *at starts at 0; false at the end. */
bool batch_next(const struct batch *b, size_t *at, struct batch_step *out);
/* The table's number in a cluster's log; 0: it is not shared. */
uint8_t table_shared_number(enum table t);
MUST_USE bool table_of_shared_number(uint8_t number, enum table *out);
/* Does it write a row of a shared table? */
bool batch_is_shared(const struct batch *b);
/* Adds one step as it stands. */
void batch_step_add(struct batch *b, const struct batch_step *st);

/* Adds all steps of another batch. */
void batch_add(struct batch *b, const struct batch *from);

/* The rows that a batch puts, for look-ups. Borrows the batch, which must not change meanwhile. */
struct batch_rows;
struct batch_rows *batch_rows_open(const struct batch *b);
void batch_rows_close(struct batch_rows **rp);
/* The value that the batch puts last. False: it does not put this row. */
MUST_USE bool batch_rows_get(const struct batch_rows *r, enum table t, struct slice key,
                             struct slice *value);

/* Runs once the batch is durable, and only then: a delete removes the row first and the file
 * second. A blob's file stays if a row names it by then or a stage is sealing it. */
void batch_after(struct batch *b, enum after_kind kind, const struct digest *d, uint64_t id);
/* The digest is being sealed by this batch (seal_enter() was called for it). */
void batch_sealed(struct batch *b, struct store *s, const struct digest *d);
/* Forgets the seals without looking at their files: the commit thread keeps those of a write whose
 * outcome is unknown. */
void batch_forget_seals(struct batch *b);

#endif
