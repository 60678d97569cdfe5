/* checkpoint_format.h - the bytes of a checkpoint: one head, and parts with rows.
 *
 *   head   "mrdckp01"                     8 bytes
 *          seq                            8, big-endian as all numbers: the last entry in it
 *          own                            32: the SHA-256 of that entry, as the next entry has it
 *          rows                           8: how many the parts have
 *          commits                        4, then each: node (16), boot (8), counter (8): the last
 *                                         applied commit of each node, in the order of the nodes
 *          parts                          4, then each: its bytes (8), their SHA-256 (32)
 *          SHA-256 of all that precedes   32
 *   part   rows: table (1), key (2 + n), value (4 + n)
 *
 * Rows are in the order of table and key over all parts, so no row occurs twice. Tables have the
 * numbers that they have in an entry (log_entry.h). The checksum comes last in every version of the
 * head, so damage is never taken for a later version.
 *
 * owns     slices point into the bytes that were read
 * threads  any; pure
 * errors   E_CORRUPT: not a checkpoint, or a damaged one; E_UNSUPPORTED: of a later format;
 *          E_TOOBIG
 */
#ifndef SERVER_CLUSTER_CHECKPOINT_FORMAT_H
#define SERVER_CLUSTER_CHECKPOINT_FORMAT_H

#include "server/cluster/log_entry.h"

enum {
    CHECKPOINT_PART_BYTES_MAX = 16 << 20,
    CHECKPOINT_HEAD_BYTES_MAX = 8 << 20,
    CHECKPOINT_COMMITS_MAX = 1 << 16,
    CHECKPOINT_PARTS_MAX = 1 << 16,
};

struct checkpoint_part {
    uint64_t size_bytes;
    struct digest digest;
};

struct checkpoint_head {
    uint64_t seq;
    struct digest own;
    uint64_t rows;
    struct slice commits; /* encoded; checkpoint_commit_next() */
    struct slice parts;   /* encoded; checkpoint_part_next() */
};

struct checkpoint_row {
    uint8_t table;
    struct slice key;
    struct slice value;
};

/* Appends to the encoded lists of a head. */
void checkpoint_commit_write(const struct log_entry_author *last, struct buf *commits);
void checkpoint_part_write(const struct checkpoint_part *p, struct buf *parts);
/* Iterate over the lists of a head that was read; false at the end. */
bool checkpoint_commit_next(struct slice *rest, struct log_entry_author *out);
bool checkpoint_part_next(struct slice *rest, struct checkpoint_part *out);

/* out is cleared first. E_CORRUPT: the commits are not in order. */
MUST_USE int checkpoint_head_write(const struct checkpoint_head *h, struct buf *out, struct err *e);
MUST_USE int checkpoint_head_read(struct slice bytes, struct checkpoint_head *out, struct err *e);

/* The state of a reader between two parts. */
struct checkpoint_rows {
    uint64_t count;
    uint8_t table; /* of the last row */
    struct buf key;
};

#define CHECKPOINT_ROWS_INIT ((struct checkpoint_rows){.key = BUF_INIT(UINT16_MAX)})

/* How many bytes the row takes in a part. */
size_t checkpoint_row_bytes(const struct checkpoint_row *r);
/* Appends the row to the part. E_CORRUPT: it does not come after the row before it. E_TOOBIG. */
MUST_USE int checkpoint_row_write(struct checkpoint_rows *rows, const struct checkpoint_row *r,
                                  struct buf *part, struct err *e);
/* Calls each() for the rows of the next part. What each() returns ends the reading, unless it is
 * 0. */
MUST_USE int checkpoint_rows_read(struct checkpoint_rows *rows, struct slice part,
                                  int (*each)(void *arg, const struct checkpoint_row *r,
                                              struct err *e),
                                  void *arg, struct err *e);
void checkpoint_rows_free(struct checkpoint_rows *rows);

#endif
