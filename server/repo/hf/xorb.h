/* xorb.h - the chunk framing of Xet's stores: each chunk of a file, at most 128 KiB, follows a head
 * of eight bytes.
 *
 * We write chunks of 128 KiB, uncompressed. All chunks but the last have the same size, so a
 * position in the framed bytes can be computed from one in the file ("plain"), and any range of
 * either can be made without reading what is before it. We read what clients write: chunks of any
 * size, some of them compressed.
 *
 * owns     nothing
 * threads  any; pure
 * errors   E_CORRUPT, E_UNSUPPORTED (scheme)
 * source   Xet Protocol Specification 1.1.0, "Xorb": head = version 0, u24 size as stored, scheme,
 *          u24 size
 */
#ifndef SERVER_REPO_HF_XORB_H
#define SERVER_REPO_HF_XORB_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { XORB_CHUNK_BYTES = 128 * 1024, XORB_HEAD_BYTES = 8 };

/* The framed length of the first `plain` bytes of a file, including the head of the chunk that they
 * end in. */
uint64_t xorb_framed(uint64_t plain);
/* How many of the file's bytes are in the first `framed` bytes. */
uint64_t xorb_plain(uint64_t framed);

struct xorb_piece {      /* bytes of one kind: of a head, or of the file */
    size_t n;            /* at least 1 */
    const uint8_t *head; /* NULL: the file's bytes at `plain` */
    uint64_t plain;
    uint8_t room[XORB_HEAD_BYTES]; /* the bytes that `head` points to */
};
/* The piece at `framed` of a file of plain_bytes, at most n bytes of it. framed <
 * xorb_framed(plain_bytes), n > 0. */
void xorb_piece(uint64_t plain_bytes, uint64_t framed, size_t n, struct xorb_piece *out);

/* Frames a body that has the file's own bytes (repo/repo.h). */
struct framing;
extern const struct framing xorb_framing;

/* --- reading what clients wrote --- */

enum { XORB_CHUNKS_MAX = 8192 };

struct xorb_chunk {
    uint8_t scheme;
    uint32_t stored, plain; /* bytes */
};
/* False: these eight bytes are not the head of a chunk. A xorb's chunks end at its footer, or at
 * its end. */
MUST_USE bool xorb_head(const uint8_t head[XORB_HEAD_BYTES], struct xorb_chunk *out);
/* Unpacks the c->stored bytes of a chunk to its c->plain bytes. E_CORRUPT, E_UNSUPPORTED
 * (scheme). */
MUST_USE int xorb_unpack(const struct xorb_chunk *c, const void *stored, void *plain,
                         struct err *e);

#endif
