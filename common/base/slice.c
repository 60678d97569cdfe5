#include "common/base/slice.h"

#include <xxhash.h>

#include "common/base/ascii.h"
#include "common/base/endian.h"

bool slice_ieq(struct slice a, struct slice b)
{
    if (a.n != b.n) {
        return false;
    }
    for (size_t i = 0; i < a.n; i++) {
        if (ascii_lower(a.p[i]) != ascii_lower(b.p[i])) {
            return false;
        }
    }
    return true;
}

int slice_cmp(struct slice a, struct slice b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n != 0 ? memcmp(a.p, b.p, n) : 0;
    return c != 0 ? c : (a.n > b.n) - (a.n < b.n);
}

bool slice_starts(struct slice s, struct slice prefix)
{
    return s.n >= prefix.n && slice_eq(slice_first(s, prefix.n), prefix);
}

bool slice_ends(struct slice s, struct slice suffix)
{
    return s.n >= suffix.n && slice_eq(slice_from(s, s.n - suffix.n), suffix);
}

struct slice slice_cut(struct slice *rest, char sep)
{
    struct slice all = *rest;
    ptrdiff_t at = slice_find(all, sep);

    if (at < 0) {
        *rest = slice_from(all, all.n);
        return all;
    }
    *rest = slice_from(all, (size_t)at + 1);
    return slice_first(all, (size_t)at);
}

bool slice_take(struct slice *rest, size_t n, struct slice *out)
{
    if (n > rest->n) {
        return false;
    }
    *out = slice_first(*rest, n);
    *rest = slice_from(*rest, n);
    return true;
}

bool slice_be(struct slice *rest, unsigned bytes, uint64_t *out)
{
    struct slice s;

    if (!slice_take(rest, bytes, &s)) {
        return false;
    }
    *out = be_get(s.p, bytes);
    return true;
}

bool slice_le(struct slice *rest, unsigned bytes, uint64_t *out)
{
    struct slice s;

    if (!slice_take(rest, bytes, &s)) {
        return false;
    }
    *out = le_get(s.p, bytes);
    return true;
}

bool slice_counted(struct slice *rest, unsigned bytes, struct slice *out)
{
    uint64_t n;

    return slice_be(rest, bytes, &n) && n <= rest->n && slice_take(rest, (size_t)n, out);
}

ptrdiff_t slice_find(struct slice s, char c)
{
    const char *hit = s.n != 0 ? memchr(s.p, c, s.n) : NULL;
    return hit != NULL ? hit - s.p : -1;
}

size_t slice_behind(struct slice s, char c)
{
    const char *hit = s.n != 0 ? memrchr(s.p, c, s.n) : NULL;
    return hit != NULL ? (size_t)(hit - s.p) + 1 : 0;
}

struct slice slice_trim(struct slice s)
{
    while (s.n > 0 && (s.p[0] == ' ' || s.p[0] == '\t')) {
        s = slice_from(s, 1);
    }
    while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t')) {
        s.n--;
    }
    return s;
}

bool slice_u64(struct slice s, uint64_t *out)
{
    uint64_t v = 0;

    if (s.n == 0) {
        return false;
    }
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] < '0' || s.p[i] > '9' || !mul_u64(v, 10, &v) ||
            !add_u64(v, (uint64_t)(s.p[i] - '0'), &v)) {
            return false;
        }
    }
    *out = v;
    return true;
}

struct slice slice_of_u64(char room[U64_DIGITS], uint64_t v)
{
    size_t at = U64_DIGITS;

    do {
        room[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v != 0);
    return slice_of(room + at, U64_DIGITS - at);
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = ascii_lower(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool slice_hex(struct slice s, uint8_t *out, size_t out_bytes)
{
    if (s.n != 2 * out_bytes) {
        return false;
    }
    for (size_t i = 0; i < out_bytes; i++) {
        int hi = hex_digit(s.p[2 * i]);
        int lo = hex_digit(s.p[2 * i + 1]);
        if (hi < 0 || lo < 0) {
            return false;
        }
        out[i] = (uint8_t)(hi << 4 | lo);
    }
    return true;
}

uint64_t slice_hash(struct slice s)
{
    return XXH3_64bits(s.p, s.n);
}
