/* blob_batch.h - many small files in one answer: a request for a file costs more than the file.
 *
 *   asked     POST, digests one behind the other, 32 bytes each, 1 to BLOB_BATCH_COUNT_MAX
 *   answered  records in that order: u32 length, bytes. A length of BLOB_BATCH_ABSENT: not there, or no right to it; BLOB_BATCH_ALONE: ask for
 *             it by itself. It may end behind any record but the first: what is missing is asked for again
 *
 * Nothing in it is believed: a file is what its SHA-256 says, and how long it is the tree has said
 * before. The reader takes an answer as it comes, in pieces of any size, and keeps four bytes of
 * it.
 *
 * threads  any; no I/O
 * errors   E_PROTOCOL: a record that is longer than one can be, more records than were asked for,
 *          an end in the midst of one
 * source   docs/protocols/sync.md
 */
#ifndef COMMON_CODEC_BLOB_BATCH_H
#define COMMON_CODEC_BLOB_BATCH_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define BLOB_BATCH_PATH    "/-/sync/blobs"
#define BLOB_BATCH_DIGESTS "application/vnd.mirrord.digests"
#define BLOB_BATCH_BLOBS   "application/vnd.mirrord.blobs"
#define BLOB_BATCH_BLOBS_ZSTD                                                                      \
    BLOB_BATCH_BLOBS "+zstd" /* in one frame, when it is asked for and pays */

enum {
    BLOB_BATCH_COUNT_MAX = 1024,    /* digests */
    BLOB_BATCH_BLOB_MAX = 32 << 10, /* bytes of one */
    BLOB_BATCH_BYTES = 1 << 20,     /* an answer ends behind the record that reaches it */
    BLOB_BATCH_HEAD_BYTES = 4,      /* before each record's bytes */
    BLOB_BATCH_COUNT_AS_ONE = 64,   /* digests that limits count as one request */
};
#define BLOB_BATCH_ABSENT UINT32_MAX
#define BLOB_BATCH_ALONE  (UINT32_MAX - 1)

/* The most bytes that an answer can have. */
enum {
    BLOB_BATCH_ANSWER_MAX =
        BLOB_BATCH_BYTES + BLOB_BATCH_BLOB_MAX + BLOB_BATCH_COUNT_MAX * BLOB_BATCH_HEAD_BYTES
};

/* n: a length, or one of the two. */
void blob_batch_put_head(struct buf *out, uint32_t n);

struct blob_batch_reader {
    size_t due; /* records that may still begin */
    uint8_t head[BLOB_BATCH_HEAD_BYTES];
    unsigned nhead;
    bool inside;   /* a record's head has come, its last byte has not been given */
    uint32_t n;    /* of the record at hand */
    uint32_t left; /* of its bytes */
};

enum blob_batch_step {
    BLOB_BATCH_NEED = 1, /* *rest is used up */
    BLOB_BATCH_RECORD, /* r->n is its length, or why it has none: then the next step is another record's */
    BLOB_BATCH_SOME,  /* *out: some of its bytes */
    BLOB_BATCH_WHOLE, /* that was the record */
};

void blob_batch_reader_init(struct blob_batch_reader *r, size_t asked);
/* The next step, an enum blob_batch_step, or E_PROTOCOL. Takes from *rest what it used; *out points
 * into it. */
MUST_USE int blob_batch_next(struct blob_batch_reader *r, struct slice *rest, struct slice *out,
                             struct err *e);
/* May the answer end here? */
bool blob_batch_between(const struct blob_batch_reader *r);

#endif
