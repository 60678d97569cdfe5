#include "common/codec/xorb.h"

#include "common/base/check.h"

enum { STEP = XORB_CHUNK_BYTES + XORB_HEAD_BYTES };

uint64_t xorb_framed(uint64_t plain)
{
    return plain + (plain + XORB_CHUNK_BYTES - 1) / XORB_CHUNK_BYTES * XORB_HEAD_BYTES;
}

uint64_t xorb_plain(uint64_t framed)
{
    uint64_t in_chunk = framed % STEP;

    return framed / STEP * XORB_CHUNK_BYTES +
           (in_chunk > XORB_HEAD_BYTES ? in_chunk - XORB_HEAD_BYTES : 0);
}

static void put_u24(uint8_t *to, uint32_t v)
{
    to[0] = (uint8_t)v;
    to[1] = (uint8_t)(v >> 8);
    to[2] = (uint8_t)(v >> 16);
}

void xorb_piece(uint64_t plain_bytes, uint64_t framed, size_t n, struct xorb_piece *out)
{
    uint64_t chunk = framed / STEP * XORB_CHUNK_BYTES;
    uint64_t at = framed % STEP;
    uint32_t length = (uint32_t)min_u64(plain_bytes - chunk, XORB_CHUNK_BYTES);

    if (at < XORB_HEAD_BYTES) {
        *out = (struct xorb_piece){.n = (size_t)min_u64(n, XORB_HEAD_BYTES - at)};
        put_u24(out->room + 1, length);
        put_u24(out->room + 5, length);
        out->head = out->room + at;
    } else {
        at -= XORB_HEAD_BYTES;
        *out = (struct xorb_piece){.n = (size_t)min_u64(n, length - at), .plain = chunk + at};
    }
}
