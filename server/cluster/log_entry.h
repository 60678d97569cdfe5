/* log_entry.h - one entry of a cluster's log: the batches that one node committed together, and
 * what they required.
 *
 *   "mrdlog01"                     8 bytes
 *   seq                            8, big-endian as all numbers
 *   the entry before               32: the SHA-256 that ends that entry; zeros for seq 1
 *   node, boot, counter            16, 8, 8: the author; no two entries have the same three
 *   batches                        4, then each: steps (4), then each step:
 *                                  operation (1), table (1), key (2 + n), value (4 + n)
 *   SHA-256 of all that precedes   32
 *
 * A step is a precondition on one row or a change of one row, as in a batch of the store. Each
 * table of the store has a number in this format. A number never changes its meaning, even if the
 * store's own enum changes. The checksum comes last in every version of the format, so damage is
 * never taken for a later version.
 *
 * Every precondition of an entry is about the rows before that entry: no batch requires what
 * another batch of the same entry changes.
 *
 * owns     slices point into the entry's bytes
 * threads  any; pure
 * errors   E_CORRUPT: not an entry, a damaged entry, or not the entry that belongs there;
 *          E_UNSUPPORTED: of a later format; E_TOOBIG
 */
#ifndef SERVER_CLUSTER_LOG_ENTRY_H
#define SERVER_CLUSTER_LOG_ENTRY_H

#include "common/base/buf.h"
#include "common/hash/digest.h"

enum {
    LOG_ENTRY_BYTES_MAX = 4 << 20,
    LOG_ENTRY_BATCHES_MAX = 512,
    LOG_ENTRY_NODE_BYTES = 16,
    LOG_ENTRY_HEAD_BYTES = 8 + 8 + DIGEST_BYTES + LOG_ENTRY_NODE_BYTES + 8 + 8 + 4,
};

enum log_entry_op {
    LOG_ENTRY_PUT = 1,
    LOG_ENTRY_DELETE = 2,
    LOG_ENTRY_REQUIRE_ABSENT = 3,
    LOG_ENTRY_REQUIRE_VALUE = 4,
};

struct log_entry_step {
    enum log_entry_op op;
    uint8_t table;
    struct slice key;
    struct slice value; /* empty for LOG_ENTRY_DELETE and LOG_ENTRY_REQUIRE_ABSENT */
};

struct log_entry_author {
    uint8_t node[LOG_ENTRY_NODE_BYTES]; /* random, kept in state_dir */
    uint64_t boot;                      /* random, of each start */
    uint64_t counter;
};

struct log_entry {
    uint64_t seq;
    struct digest before;
    struct digest own; /* its SHA-256, which the next entry has as `before` */
    struct log_entry_author author;
    uint32_t batches;
    struct slice steps; /* of all batches; log_entry_batch_next() */
};

/* Appends the step to an encoded batch. Each batch is encoded by itself, because a batch may be
 * refused and left out of the entry. */
void log_entry_step_write(const struct log_entry_step *st, struct buf *batch);
/* Iterates over the steps of an encoded batch; false at the end. The batch must have been read by
 * log_entry_read() or written by log_entry_step_write(). */
bool log_entry_step_next(struct slice *batch, struct log_entry_step *out);

/* Encodes an entry of these batches, whose steps log_entry_step_write() wrote. out is cleared
 * first. E_CORRUPT: a batch ends within a step. */
MUST_USE int log_entry_write(uint64_t seq, const struct digest *before,
                             const struct log_entry_author *by, const struct slice *batch, size_t n,
                             struct buf *out, struct digest *own, struct err *e);
/* Decodes an entry. Checks that the entry is whole and that each step is well formed. */
MUST_USE int log_entry_read(struct slice bytes, struct log_entry *out, struct err *e);
/* Iterates over the batches. *rest begins as en->steps; false at the end. */
bool log_entry_batch_next(struct slice *rest, struct slice *batch);

#endif
