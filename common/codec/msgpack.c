#include "common/codec/msgpack.h"

#include "common/base/endian.h"

static int msgpack_cut_short(struct err *e)
{
    return err_set(e, E_INVALID, "the msgpack data is truncated");
}

static bool take_msgpack_bytes(struct slice *rest, uint64_t n, struct slice *out)
{
    if (rest->n < n) {
        return false;
    }
    *out = slice_first(*rest, (size_t)n);
    *rest = slice_from(*rest, (size_t)n);
    return true;
}

static bool read_msgpack_number(struct slice *rest, unsigned bytes, uint64_t *out)
{
    struct slice s;

    if (!take_msgpack_bytes(rest, bytes, &s)) {
        return false;
    }
    *out = be_get(s.p, bytes);
    return true;
}

static int text(struct slice *rest, enum mp_kind kind, uint64_t n, struct mp_item *out,
                struct err *e)
{
    out->kind = kind;
    return take_msgpack_bytes(rest, n, &out->bytes) ? 0 : msgpack_cut_short(e);
}

static int many(struct slice *rest, enum mp_kind kind, uint64_t n, struct mp_item *out,
                struct err *e)
{
    out->kind = kind;
    out->u = n;
    return n <= rest->n / (kind == MP_MAP ? 2 : 1) ? 0 : msgpack_cut_short(e);
}

/* 0xc4..0xc9 and 0xd9..0xdb, 0xdc..0xdf: how many bytes say the length. */
static unsigned width(uint8_t b)
{
    return b <= 0xc6   ? 1u << (b - 0xc4)
           : b <= 0xc9 ? 1u << (b - 0xc7)
           : b <= 0xdb ? 1u << (b - 0xd9)
           : b <= 0xdd ? 2u << (b - 0xdc)
                       : 2u << (b - 0xde);
}

static int lengthy(struct slice *rest, uint8_t b, struct mp_item *out, struct err *e)
{
    uint64_t n;

    if (!read_msgpack_number(rest, width(b), &n)) {
        return msgpack_cut_short(e);
    }
    if (b >= 0xdc) {
        return many(rest, b <= 0xdd ? MP_ARRAY : MP_MAP, n, out, e);
    }
    if (b >= 0xc7 && b <= 0xc9) {
        return text(rest, MP_EXT, n + 1, out, e); /* and its type */
    }
    return text(rest, b <= 0xc6 ? MP_BIN : MP_STR, n, out, e);
}

static int numeric(struct slice *rest, uint8_t b, struct mp_item *out, struct err *e)
{
    static const uint8_t bytes[] = {4, 8, 1, 2, 4, 8, 1, 2, 4, 8}; /* from 0xca */
    unsigned n = bytes[b - 0xca];

    if (!read_msgpack_number(rest, n, &out->u)) {
        return msgpack_cut_short(e);
    }
    out->kind = b <= 0xcb ? MP_FLOAT : b <= 0xcf || (out->u >> (8 * n - 1)) == 0 ? MP_UINT : MP_INT;
    return 0;
}

int mp_next(struct slice *rest, struct mp_item *out, struct err *e)
{
    uint64_t first;
    uint8_t b;

    *out = (struct mp_item){.kind = MP_NIL};
    if (!read_msgpack_number(rest, 1, &first)) {
        return msgpack_cut_short(e);
    }
    b = (uint8_t)first;
    if (b < 0x80) {
        *out = (struct mp_item){.kind = MP_UINT, .u = b};
        return 0;
    }
    if (b < 0x90) {
        return many(rest, MP_MAP, b & 15, out, e);
    }
    if (b < 0xa0) {
        return many(rest, MP_ARRAY, b & 15, out, e);
    }
    if (b < 0xc0) {
        return text(rest, MP_STR, b & 31, out, e);
    }
    if (b >= 0xe0) {
        out->kind = MP_INT;
        return 0;
    }
    switch (b) {
    case 0xc0:
        return 0;
    case 0xc1:
        return err_set(e, E_INVALID, "the msgpack data has the reserved byte 0xc1");
    case 0xc2:
    case 0xc3:
        *out = (struct mp_item){.kind = MP_BOOL, .u = b & 1};
        return 0;
    default:
        if (b >= 0xd4 && b <= 0xd8) {
            return text(rest, MP_EXT, 1 + (1u << (b - 0xd4)), out, e);
        }
        return b >= 0xca && b <= 0xd3 ? numeric(rest, b, out, e) : lengthy(rest, b, out, e);
    }
}

int mp_skip(struct slice *rest, struct err *e)
{
    uint64_t left = 1;
    struct mp_item it;
    int rc = 0;

    while (rc == 0 && left > 0) {
        rc = mp_next(rest, &it, e);
        left -= 1;
        left += it.kind == MP_ARRAY ? it.u : it.kind == MP_MAP ? 2 * it.u : 0;
        if (rc == 0 && left > rest->n) {
            rc = msgpack_cut_short(e); /* each takes a byte */
        }
    }
    return rc;
}

void mp_put_str(struct buf *out, struct slice s)
{
    if (s.n < 32) {
        buf_byte(out, (uint8_t)(0xa0 | s.n));
    } else if (s.n <= UINT8_MAX) {
        buf_byte(out, 0xd9);
        buf_be(out, 1, s.n);
    } else if (s.n <= UINT16_MAX) {
        buf_byte(out, 0xda);
        buf_be(out, 2, s.n);
    } else {
        buf_byte(out, 0xdb);
        buf_be(out, 4, s.n);
    }
    buf_adds(out, s);
}
