/* blob_batch.h - many small files in one response: a request for a file costs more than the file.
 *
 *   request   POST, 1 to BLOB_BATCH_COUNT_MAX digests of 32 bytes, without separators
 *   response  records in that order: u32 length, bytes. A length of BLOB_BATCH_ABSENT: not there,
 *             or no right to it; BLOB_BATCH_ALONE: request it separately. The response may end
 *             after any record except the first: request what is missing again
 *
 * Nothing in it is trusted: a file must match its SHA-256, and the tree has stated its length.
 * The reader takes a response as it arrives, in pieces of any size, and buffers four bytes of it.
 *
 * threads  any; no I/O
 * errors   E_PROTOCOL: a record that is too long, more records than requested, an end inside a
 *          record
 * source   docs/protocols/sync.md
 */
#ifndef COMMON_CODEC_BLOB_BATCH_H
#define COMMON_CODEC_BLOB_BATCH_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define BLOB_BATCH_PATH       "/-/sync/blobs"
#define BLOB_BATCH_DIGESTS    "application/vnd.mirrord.digests"
#define BLOB_BATCH_BLOBS      "application/vnd.mirrord.blobs"
#define BLOB_BATCH_BLOBS_ZSTD BLOB_BATCH_BLOBS "+zstd" /* in one frame, if requested and smaller */

enum {
    BLOB_BATCH_COUNT_MAX = 1024,    /* digests */
    BLOB_BATCH_BLOB_MAX = 32 << 10, /* bytes of a file */
    BLOB_BATCH_BYTES = 1 << 20,     /* a response ends after the record that reaches it */
    BLOB_BATCH_HEAD_BYTES = 4,      /* before each record's bytes */
    BLOB_BATCH_COUNT_AS_ONE = 64,   /* limits count so many digests as one request */
};
#define BLOB_BATCH_ABSENT UINT32_MAX
#define BLOB_BATCH_ALONE  (UINT32_MAX - 1)

/* The largest size of a response. */
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
    bool inside;   /* a record's header has arrived, its last byte has not been given */
    uint32_t n;    /* length of the current record */
    uint32_t left; /* remaining bytes of it */
};

enum blob_batch_step {
    BLOB_BATCH_NEED = 1, /* *rest is used up */
    /* r->n is its length, or says why it has none: then the next step is another record's */
    BLOB_BATCH_RECORD,
    BLOB_BATCH_SOME,  /* *out: some of its bytes */
    BLOB_BATCH_WHOLE, /* the record is complete */
};

void blob_batch_reader_init(struct blob_batch_reader *r, size_t asked);
/* The next step, an enum blob_batch_step, or E_PROTOCOL. Consumes what it used of *rest; *out
 * points into it. */
MUST_USE int blob_batch_next(struct blob_batch_reader *r, struct slice *rest, struct slice *out,
                             struct err *e);
/* May the response end here? */
bool blob_batch_between(const struct blob_batch_reader *r);

#endif
