#include "server/sync/rsync/varint.h"

#include "common/base/endian.h"

static const uint8_t *take_varint_bytes(struct get *t, size_t n)
{
    const uint8_t *p = t->p;

    if (t->rc == 0 && t->n < n) {
        t->rc = E_AGAIN;
    }
    if (t->rc != 0) {
        return NULL;
    }
    t->p += n;
    t->n -= n;
    return p;
}

uint8_t get_byte(struct get *t)
{
    const uint8_t *p = take_varint_bytes(t, 1);
    return p != NULL ? *p : 0;
}

uint16_t get_short(struct get *t)
{
    const uint8_t *p = take_varint_bytes(t, 2);
    return p != NULL ? (uint16_t)le_get(p, 2) : 0;
}

int32_t get_int(struct get *t)
{
    const uint8_t *p = take_varint_bytes(t, 4);
    return p != NULL ? (int32_t)(uint32_t)le_get(p, 4) : 0;
}

struct slice get_bytes(struct get *t, size_t n)
{
    const uint8_t *p = take_varint_bytes(t, n);
    return p != NULL ? slice_of(p, n) : SLICE_NONE;
}

/* Bytes that follow a first byte; six ones and more mean six. */
static unsigned following(uint8_t first)
{
    unsigned n = 0;

    while (n < 6 && (first & (0x80u >> n)) != 0) {
        n++;
    }
    return n;
}

int32_t get_varint(struct get *t)
{
    uint8_t first = get_byte(t);
    unsigned more = following(first);
    const uint8_t *p;
    uint64_t high;

    if (more > 4) {
        t->rc = t->rc != 0 ? t->rc : E_PROTOCOL;
        return 0;
    }
    p = take_varint_bytes(t, more);
    if (p == NULL) {
        return 0;
    }
    high = first & ((1u << (8 - more)) - 1u);
    return (int32_t)(uint32_t)(le_get(p, more) | high << 8 * more);
}

int64_t get_varlong(struct get *t, unsigned least_bytes)
{
    uint8_t first = get_byte(t);
    unsigned more = following(first);
    unsigned low = least_bytes - 1 + more; /* bytes below the rest of the first one */
    const uint8_t *p;
    uint64_t high;

    if (low > 8) {
        t->rc = t->rc != 0 ? t->rc : E_PROTOCOL;
        return 0;
    }
    p = take_varint_bytes(t, low);
    if (p == NULL) {
        return 0;
    }
    high = first & (more != 0 ? (1u << (8 - more)) - 1u : 0xffu);
    return (int64_t)(le_get(p, low) | (low < 8 ? high << 8 * low : 0));
}

struct slice get_vstring(struct get *t)
{
    size_t n = get_byte(t);

    if ((n & 0x80) != 0) {
        n = (n & 0x7f) << 8 | get_byte(t);
    }
    return get_bytes(t, t->rc == 0 ? n : 0);
}

void put_short(struct buf *b, uint16_t v)
{
    buf_le(b, 2, v);
}

void put_int(struct buf *b, int32_t v)
{
    buf_le(b, 4, (uint32_t)v);
}

/* `first` marks of length, then the value's low bytes. */
static void put_marked(struct buf *b, uint64_t v, unsigned least_bytes, unsigned most_bytes)
{
    unsigned n = most_bytes; /* significant bytes, but no fewer than the least */
    unsigned more;
    uint64_t top;

    while (n > least_bytes && v >> 8 * (n - 1) == 0) {
        n--;
    }
    more = n - least_bytes;
    top = v >> 8 * (n - 1);
    if (top >=
        1u << (7 - more)) { /* no bit is left beside the marks: they get a byte of their own */
        more++;
        buf_byte(b, (uint8_t)(0xff00u >> more));
        buf_le(b, n, v);
        return;
    }
    buf_byte(b, (uint8_t)(top | (0xff00u >> more & 0xffu)));
    buf_le(b, n - 1, v);
}

void put_varint(struct buf *b, int32_t v)
{
    put_marked(b, (uint32_t)v, 1, 4);
}

void put_varlong(struct buf *b, int64_t v, unsigned least_bytes)
{
    CHECK(least_bytes >= 3 && least_bytes <= 8);
    put_marked(b, (uint64_t)v, least_bytes, 8);
}

void put_vstring(struct buf *b, struct slice s)
{
    CHECK(s.n <= 0x7fff);
    if (s.n > 0x7f) {
        buf_byte(b, (uint8_t)(0x80 | s.n >> 8));
    }
    buf_byte(b, (uint8_t)s.n);
    buf_adds(b, s);
}

int32_t get_index(struct get *t, struct index_coding *c)
{
    uint8_t first = get_byte(t);
    bool negative = first == 0xff;
    uint32_t value;

    if (first == 0) {
        return INDEX_DONE;
    }
    if (negative) {
        first = get_byte(t);
    }
    if (first == 0xfe) {
        uint32_t high = get_byte(t);
        uint32_t next = get_byte(t);
        if ((high & 0x80) != 0) { /* the number itself */
            value = (high & 0x7f) << 24 | next;
            value |= (uint32_t)get_byte(t) << 8;
            value |= (uint32_t)get_byte(t) << 16;
        } else {
            value = (uint32_t)(negative ? c->last_negative : c->last) + (high << 8 | next);
        }
    } else {
        value = (uint32_t)(negative ? c->last_negative : c->last) + first;
    }
    if (t->rc != 0) {
        return 0;
    }
    if (value > INT32_MAX) {
        t->rc = E_PROTOCOL;
        return 0;
    }
    *(negative ? &c->last_negative : &c->last) = (int32_t)value;
    return negative ? -(int32_t)value : (int32_t)value;
}

void put_index(struct buf *b, struct index_coding *c, int32_t index)
{
    bool negative = index < INDEX_DONE;
    int32_t *last = negative ? &c->last_negative : &c->last;
    int64_t diff;

    CHECK(index > INT32_MIN);
    if (index == INDEX_DONE) {
        buf_byte(b, 0);
        return;
    }
    if (negative) {
        buf_byte(b, 0xff);
        index = -index;
    }
    diff = (int64_t)index - *last;
    *last = index;
    if (diff > 0 && diff < 0xfe) {
        buf_byte(b, (uint8_t)diff);
        return;
    }
    buf_byte(b, 0xfe);
    if (diff >= 0 && diff <= 0x7fff) {
        buf_byte(b, (uint8_t)(diff >> 8));
        buf_byte(b, (uint8_t)diff);
        return;
    }
    buf_byte(b, (uint8_t)(0x80 | (uint32_t)index >> 24));
    buf_le(b, 3, (uint32_t)index & 0xffffffu);
}
