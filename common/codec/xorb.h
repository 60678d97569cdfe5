/* xorb.h - a file in the chunk framing of Xet's stores: every 128 KiB behind a head of eight bytes, nothing compressed.
 *
 * Because all chunks but the last have the same size, a position in the framed bytes is arithmetic on one in the file's own
 * ("plain"), and any range of either can be made without looking at what is before it.
 *
 * source   Xet Protocol Specification 1.1.0, "Xorb": head = version 0, u24 size as stored, scheme (0: as it is), u24 size
 */
#ifndef COMMON_CODEC_XORB_H
#define COMMON_CODEC_XORB_H

#include <stddef.h>
#include <stdint.h>

enum { XORB_CHUNK_BYTES = 128 * 1024, XORB_HEAD_BYTES = 8 };

/* Length of the first `plain` bytes of a file when framed, the head of the chunk that they end in included. */
uint64_t xorb_framed(uint64_t plain);
/* How many of the file's bytes are within the first `framed` ones. */
uint64_t xorb_plain(uint64_t framed);

struct xorb_piece {      /* of one kind: bytes of a head, or of the file */
    size_t n;            /* at least 1 */
    const uint8_t *head; /* NULL: the file's bytes at `plain` */
    uint64_t plain;
    uint8_t room[XORB_HEAD_BYTES]; /* what `head` points into */
};
/* What is at `framed` of a file of plain_bytes, at most n bytes of it. framed < xorb_framed(plain_bytes), n > 0. */
void xorb_piece(uint64_t plain_bytes, uint64_t framed, size_t n, struct xorb_piece *out);

#endif
