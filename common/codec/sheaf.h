/* sheaf.h - many small files in one answer: a request for a file costs more than the file.
 *
 *   asked     POST, digests one behind the other, 32 bytes each, 1 to SHEAF_COUNT_MAX
 *   answered  records in that order: u32 length, bytes. A length of SHEAF_ABSENT: not there, or no right to it; SHEAF_ALONE: ask for
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
#ifndef COMMON_CODEC_SHEAF_H
#define COMMON_CODEC_SHEAF_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define SHEAF_PATH       "/-/sync/blobs"
#define SHEAF_DIGESTS    "application/vnd.mirrord.digests"
#define SHEAF_BLOBS      "application/vnd.mirrord.blobs"
#define SHEAF_BLOBS_ZSTD SHEAF_BLOBS "+zstd" /* in one frame, when it is asked for and pays */

enum {
    SHEAF_COUNT_MAX = 1024,    /* digests */
    SHEAF_BLOB_MAX = 32 << 10, /* bytes of one */
    SHEAF_BYTES = 1 << 20,     /* an answer ends behind the record that reaches it */
    SHEAF_HEAD_BYTES = 4,      /* before each record's bytes */
    SHEAF_COUNT_AS_ONE = 64,   /* digests that limits count as one request */
};
#define SHEAF_ABSENT UINT32_MAX
#define SHEAF_ALONE  (UINT32_MAX - 1)

/* The most bytes that an answer can have. */
enum { SHEAF_ANSWER_MAX = SHEAF_BYTES + SHEAF_BLOB_MAX + SHEAF_COUNT_MAX * SHEAF_HEAD_BYTES };

/* n: a length, or one of the two. */
void sheaf_put_head(struct buf *out, uint32_t n);

struct sheaf_reader {
    size_t due; /* records that may still begin */
    uint8_t head[SHEAF_HEAD_BYTES];
    unsigned nhead;
    bool inside;   /* a record's head has come, its last byte has not been given */
    uint32_t n;    /* of the record at hand */
    uint32_t left; /* of its bytes */
};

enum sheaf_step {
    SHEAF_NEED = 1, /* *rest is used up */
    SHEAF_RECORD, /* r->n is its length, or why it has none: then the next step is another record's */
    SHEAF_SOME,   /* *out: some of its bytes */
    SHEAF_WHOLE, /* that was the record */
};

void sheaf_reader_init(struct sheaf_reader *r, size_t asked);
/* The next step, an enum sheaf_step, or E_PROTOCOL. Takes from *rest what it used; *out points into
 * it. */
MUST_USE int sheaf_next(struct sheaf_reader *r, struct slice *rest, struct slice *out,
                        struct err *e);
/* May the answer end here? */
bool sheaf_between(const struct sheaf_reader *r);

#endif
