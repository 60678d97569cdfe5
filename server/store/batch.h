/* batch.h - what a struct batch holds, for the commit thread: changes, preconditions, and what
 * happens afterwards. */
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
    AFTER_SEALED,     /* the digest is registered in seal.h: leave, whatever became of the batch */
    AFTER_UNLINK,     /* done: remove the blob's file */
    AFTER_QUARANTINE, /* done: move it aside, the first to go */
    AFTER_SET_ASIDE,  /* done: move it aside, the last copy of it perhaps */
    AFTER_UNPARK,     /* done: remove partial/<id> */
};

struct after {
    enum after_kind kind;
    struct digest digest;
    uint64_t id;
    int fd; /* of a file that was removed: its blocks are freed by whoever frees the batch, not by the commit thread */
};

struct batch {
    struct buf steps; /* whole ones; its rc says that there were more than it holds */
    struct after *after;
    size_t nafter;
    size_t after_room;
    struct store *store; /* with AFTER_SEALED */
    bool committed;      /* its rows are there: whoever leaves the seals need not look for them */
    /* Runs on the commit thread with no write pending and before any of this batch; nonzero fails
     * the batch. */
    int (*check)(struct store *s, void *arg, struct err *e);
    void *check_arg;
};

/* Puts the steps into the order of their keys, table by table; those of one key stay as they were.
 * A batch is all or nothing, so only speed tells: rows that come in order find their places in
 * RocksDB's memtables near the last one's. */
void batch_sort(struct batch *b);
/* Walks the steps: *at starts at 0; false at the end. */
bool batch_next(const struct batch *b, size_t *at, struct batch_step *out);
void batch_check(struct batch *b, int (*check)(struct store *s, void *arg, struct err *e),
                 void *arg);
/* Once the batch is durable, and only then: deletes go row first, file second. A blob's file that a
 * row names by then, or that a stage is sealing, stays. */
void batch_after(struct batch *b, enum after_kind kind, const struct digest *d, uint64_t id);
/* The digest is being sealed by this batch (seal_enter() was called for it). */
void batch_sealed(struct batch *b, struct store *s, const struct digest *d);
/* Forgets the seals without a look at their files: the commit thread keeps those of a write in
 * doubt. */
void batch_forget_seals(struct batch *b);

#endif
