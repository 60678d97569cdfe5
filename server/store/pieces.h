/* pieces.h - a blob's list of content-defined pieces (common/hash/gear.h): two versions of a file
 * that share bytes share pieces.
 *
 * A list is computed once, when it is first requested, and kept in a row that is removed with its
 * blob. On the wire and in the row, big-endian:
 *
 *   8 bytes "mrdpcs01", u64 size, 32 bytes SHA-256 of the whole, u32 count,
 *   count x (u32 bytes, first 16 bytes of the piece's SHA-256)
 *
 * A list proves nothing: a file that is assembled by it must be checked against the digest of the
 * whole.
 *
 * owns     pieces_free() frees a decoded list
 * threads  any; get and make block
 * errors   E_NOTFOUND; E_CORRUPT for a list that cannot be decoded; E_TOOBIG: the blob has too many
 *          pieces
 */
#ifndef SERVER_STORE_PIECES_H
#define SERVER_STORE_PIECES_H

#include <stdatomic.h>

#include "server/store/blob.h"

enum { PIECE_ID = 16, PIECES_BYTES_MAX = 64 << 20 };

struct blob_piece {
    uint64_t off;
    uint32_t n;
    uint8_t id[PIECE_ID];
};

struct pieces {
    struct digest whole;
    uint64_t size_bytes;
    size_t count;
    struct blob_piece *piece; /* in order, without gaps */
};

MUST_USE int pieces_decode(struct slice bytes, struct pieces *out, struct err *e);
void pieces_free(struct pieces *p);

/* The row, encoded. E_NOTFOUND: no list was made yet, or there is no such blob. */
MUST_USE int pieces_get(struct store *s, const struct digest *d, struct buf *out, struct err *e);
/* Reads the blob and stores the row. It takes some seconds for gigabytes; *stop ends it with
 * E_CANCELLED. */
MUST_USE int pieces_make(struct store *s, const struct digest *d, const _Atomic bool *stop,
                         struct buf *out, struct err *e);

#endif
