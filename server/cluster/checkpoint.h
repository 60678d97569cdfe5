/* checkpoint.h - all shared rows of a cluster as of one entry of its log, as objects in the bucket.
 *
 *   ckpt/<UINT64_MAX - seq, 20 digits>-<nonce>             the head (checkpoint_format.h)
 *   ckpt.part/<UINT64_MAX - seq, 20 digits>-<nonce>/<k>    its parts, k of 5 digits
 *
 * The head of the newest checkpoint is the first key of a list of "ckpt/". A head is written after
 * all its parts are there, so what a list shows was once complete. A writer that does not finish
 * leaves parts without a head, which log_trim() deletes. Each part is compared with its SHA-256 in
 * the head before any of its rows is used. A nonce makes the keys of two writers differ, so no key
 * is ever written with other bytes, and an undecided write is repeated here.
 *
 * Memory: a writer and a reader hold one part of at most CHECKPOINT_PART_BYTES_MAX at a time.
 *
 * owns     struct checkpoint_writer borrows the bucket
 * threads  any, one at a time for each writer; every call blocks
 * errors   E_CORRUPT: damaged, or a part is missing; E_UNSUPPORTED: of a later format; E_TOOBIG;
 *          E_NOTFOUND: the head is gone; the codes of bucket.h
 */
#ifndef SERVER_CLUSTER_CHECKPOINT_H
#define SERVER_CLUSTER_CHECKPOINT_H

#include "server/cluster/bucket.h"
#include "server/cluster/checkpoint_format.h"

enum { CHECKPOINT_KEY_ROOM = 64 };

/* --- writing --- */

struct checkpoint_writer;

/* own: of entry seq. part_bytes: a part ends before it has more; 0: CHECKPOINT_PART_BYTES_MAX. */
struct checkpoint_writer *checkpoint_writer_open(struct bucket *b, uint64_t seq,
                                                 const struct digest *own, uint64_t nonce,
                                                 size_t part_bytes);
/* The last applied commit of a node. In the order of the nodes; before or between the rows. */
void checkpoint_writer_commit(struct checkpoint_writer *w, const struct log_entry_author *last);
/* The next row in the order of table and key. Sends a part when one is full. */
MUST_USE int checkpoint_writer_row(struct checkpoint_writer *w, const struct checkpoint_row *r,
                                   struct err *e);
/* Sends the last part and the head. key: of the head. */
MUST_USE int checkpoint_writer_finish(struct checkpoint_writer *w, char key[CHECKPOINT_KEY_ROOM],
                                      struct err *e);
void checkpoint_writer_close(struct checkpoint_writer **wp);

/* --- reading --- */

struct checkpoint_found {
    char key[CHECKPOINT_KEY_ROOM]; /* of the head */
    uint64_t seq;
    uint64_t modified_unix_s; /* by the bucket's clock; 0: it gave none */
};

/* Calls each() for at most max checkpoints, the newest first. If each() returns nonzero, the list
 * ends there, and that value is returned. */
MUST_USE int checkpoint_list(struct bucket *b, size_t max,
                             int (*each)(void *arg, const struct checkpoint_found *c), void *arg,
                             struct err *e);

struct checkpoint_events {
    /* Once, before the rows. Nonzero ends the reading, and checkpoint_read() returns it. */
    int (*on_head)(void *arg, const struct checkpoint_head *h, struct err *e);
    /* NULL: the rows are checked, and no more. */
    int (*on_row)(void *arg, const struct checkpoint_row *r, struct err *e);
};

/* An object that is damaged is read again: the damage may be on the way. */
MUST_USE int checkpoint_read(struct bucket *b, const struct checkpoint_found *c,
                             const struct checkpoint_events *ev, void *arg, struct err *e);

/* The prefix of the keys of its parts: "ckpt.part/...-.../". key: of a head, or of a part. */
enum { CHECKPOINT_PREFIX_ROOM = 80 };
bool checkpoint_part_prefix(const char *key, char out[CHECKPOINT_PREFIX_ROOM]);

#define CHECKPOINT_HEADS "ckpt/"
#define CHECKPOINT_PARTS "ckpt.part/"

#endif
