#include "common/codec/utf8.h"

#define REPLACEMENT SLICE("\xef\xbf\xbd") /* U+FFFD */

enum utf8 utf8_next(struct slice s, size_t *n)
{
    const uint8_t *p = (const uint8_t *)s.p;
    size_t length = p[0] < 0x80   ? 1
                    : p[0] < 0xc2 ? 0
                    : p[0] < 0xe0 ? 2
                    : p[0] < 0xf0 ? 3
                    : p[0] < 0xf5 ? 4
                                  : 0;
    /* The second byte's range is what keeps out overlong forms, surrogates and what lies past
     * U+10FFFF. */
    uint8_t least = p[0] == 0xe0 ? 0xa0 : p[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t most = p[0] == 0xed ? 0x9f : p[0] == 0xf4 ? 0x8f : 0xbf;

    *n = 1;
    if (length <= 1) {
        return length == 1 ? UTF8_WHOLE : UTF8_NONE;
    }
    while (*n < length) {
        if (*n == s.n) {
            return UTF8_CUT;
        }
        if (p[*n] < least || p[*n] > most) {
            return UTF8_NONE;
        }
        least = 0x80;
        most = 0xbf;
        ++*n;
    }
    return UTF8_WHOLE;
}

uint32_t utf8_char(struct slice s)
{
    const uint8_t *p = (const uint8_t *)s.p;

    if (p[0] < 0x80) {
        return p[0];
    }
    if (p[0] < 0xe0) {
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

size_t utf8_put(uint32_t c, char out[4])
{
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};

    for (size_t i = n; i-- > 1; c >>= 6) {
        out[i] = (char)(0x80 | (c & 0x3f));
    }
    out[0] = (char)(lead[n] | c);
    return n;
}

size_t utf8_valid(struct slice s)
{
    size_t at = 0, n;

    while (at < s.n) {
        uint64_t eight;

        if (s.n - at >= sizeof eight) { /* most text is ASCII */
            memcpy(&eight, s.p + at, sizeof eight);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                at += sizeof eight;
                continue;
            }
        }
        if (utf8_next(slice_from(s, at), &n) != UTF8_WHOLE) {
            break;
        }
        at += n;
    }
    return at;
}

uint64_t utf8_clean(struct slice s, bool more, struct buf *out, size_t *used)
{
    uint64_t replaced = 0;

    *used = s.n;
    while (s.n > 0) {
        size_t n = utf8_valid(s);

        buf_add(out, s.p, n);
        s = slice_from(s, n);
        if (s.n == 0) {
            break;
        }
        if (utf8_next(s, &n) == UTF8_CUT && more) {
            *used -= s.n;
            break;
        }
        buf_adds(out, REPLACEMENT);
        replaced++;
        s = slice_from(s, n);
    }
    return replaced;
}
