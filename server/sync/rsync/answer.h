/* answer.h - parses the peer's answer to one request: the entry's index, the sums head that it
 * used, tokens, a digest.
 *
 * A token is the length of the literal bytes that follow (any length: they are passed on in
 * pieces), or it names a block of the basis. The digest after the last token is passed on as
 * received; the caller compares it.
 *
 * threads  one at a time
 * errors   E_PROTOCOL: an index, flags, a head or a block that were not asked for
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */
#ifndef SERVER_SYNC_RSYNC_ANSWER_H
#define SERVER_SYNC_RSYNC_ANSWER_H

#include "server/sync/rsync/sums.h"

enum { ITEM_TRANSFER = 0x8000, ITEM_BASIS_FOLLOWS = 0x800, ITEM_NAME_FOLLOWS = 0x1000 };

enum answer_event {
    ANSWER_MORE,    /* more bytes are needed */
    ANSWER_PHASE,   /* no file: the peer has ended its phase */
    ANSWER_BEGIN,   /* of the file `index` */
    ANSWER_LITERAL, /* bytes */
    ANSWER_BLOCK,   /* the block `block` of the basis */
    ANSWER_END,     /* digest */
};

struct answer_reader {
    struct index_coding coding;
    size_t digest_bytes;
    enum { ANSWER_AT_INDEX, ANSWER_AT_TOKEN, ANSWER_AT_LITERAL, ANSWER_AT_DIGEST } at;
    uint32_t left; /* of a literal */
    int32_t index;
    struct sums_head head; /* as the peer echoes it */
    /* of the event */
    struct slice bytes;
    uint32_t block;
    uint8_t digest[CHECKSUM_BYTES_MAX];
};

void answer_reader_init(struct answer_reader *a, size_t digest_bytes);
/* The next event. Consumes what it used of *in. Negative: an error. */
MUST_USE int answer_next(struct answer_reader *a, struct slice *in, struct err *e);

#endif
