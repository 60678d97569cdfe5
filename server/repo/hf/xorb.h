/* xorb.h - the chunk framing of Xet's stores: each chunk of a file, at most 128 KiB, behind a head
 * of eight bytes.
 *
 * What we write: every 128 KiB, nothing compressed. Because all chunks but the last have the same
 * size, a position in the framed bytes is arithmetic on one in the file's own ("plain"), and any
 * range of either can be made without looking at what is before it. What we read is what clients
 * write: chunks of any size, some of them compressed.
 *
 * source   Xet Protocol Specification 1.1.0, "Xorb": head = version 0, u24 size as stored, scheme,
 *          u24 size
 */
#ifndef SERVER_REPO_HF_XORB_H
#define SERVER_REPO_HF_XORB_H

#include "common/base/err.h"
#include "common/base/slice.h"

enum { XORB_CHUNK_BYTES = 128 * 1024, XORB_HEAD_BYTES = 8 };

/* Length of the first `plain` bytes of a file when framed, the head of the chunk that they end in
 * included. */
uint64_t xorb_framed(uint64_t plain);
/* How many of the file's bytes are within the first `framed` ones. */
uint64_t xorb_plain(uint64_t framed);

struct xorb_piece {      /* of one kind: bytes of a head, or of the file */
    size_t n;            /* at least 1 */
    const uint8_t *head; /* NULL: the file's bytes at `plain` */
    uint64_t plain;
    uint8_t room[XORB_HEAD_BYTES]; /* what `head` points into */
};
/* What is at `framed` of a file of plain_bytes, at most n bytes of it. framed <
 * xorb_framed(plain_bytes), n > 0. */
void xorb_piece(uint64_t plain_bytes, uint64_t framed, size_t n, struct xorb_piece *out);

/* A file so framed, made of a body that gives its own bytes (repo/repo.h). */
struct framing;
extern const struct framing xorb_framing;

/* --- what others wrote --- */

enum { XORB_CHUNKS_MAX = 8192 };

struct xorb_chunk {
    uint8_t scheme;
    uint32_t stored, plain; /* bytes */
};
/* False: these eight bytes begin no chunk. A xorb's chunks end where its footer, or the xorb,
 * does. */
MUST_USE bool xorb_head(const uint8_t head[XORB_HEAD_BYTES], struct xorb_chunk *out);
/* The c->plain bytes of a chunk, out of the c->stored ones. E_CORRUPT, E_UNSUPPORTED (scheme). */
MUST_USE int xorb_unpack(const struct xorb_chunk *c, const void *stored, void *plain,
                         struct err *e);

#endif
