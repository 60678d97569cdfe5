/* slice.h - bytes by reference: a pointer and a length, passed by value, never owning.
 *
 * Text and bytes from outside travel as slices; they may hold NUL. NUL-terminated strings appear
 * only at a library's door.
 */
#ifndef COMMON_BASE_SLICE_H
#define COMMON_BASE_SLICE_H

#include <string.h>

#include "common/base/check.h"

struct slice {
    const char *p;
    size_t n;
};

#define SLICE(lit)   ((struct slice){"" lit, sizeof(lit) - 1})
#define SLICE_NONE   ((struct slice){NULL, 0})
#define SLICE_FMT    "%.*s"
#define SLICE_ARG(s) ((int)(s).n), ((s).p != NULL ? (s).p : "")

static inline struct slice slice_of(const void *p, size_t n)
{
    return (struct slice){p, n};
}

static inline struct slice slice_str(const char *s)
{
    return s != NULL ? (struct slice){s, strlen(s)} : SLICE_NONE;
}

static inline bool slice_eq(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool slice_eqs(struct slice a, const char *s)
{
    return slice_eq(a, slice_str(s));
}

static inline struct slice slice_from(struct slice s, size_t start)
{
    CHECK(start <= s.n);
    return (struct slice){start != 0 ? s.p + start : s.p,
                          s.n - start}; /* NULL + 0 is undefined in C17 */
}

static inline struct slice slice_first(struct slice s, size_t n)
{
    CHECK(n <= s.n);
    return (struct slice){s.p, n};
}

bool slice_ieq(struct slice a, struct slice b); /* ASCII letters without case */
int slice_cmp(struct slice a, struct slice b);  /* as memcmp, the shorter first */
bool slice_starts(struct slice s, struct slice prefix);
bool slice_ends(struct slice s, struct slice suffix);
/* The part before the first `sep`; *rest moves past it. Without one: everything, and *rest
 * becomes empty. */
struct slice slice_cut(struct slice *rest, char sep);
/* Cuts the first n bytes off, for binary rows and messages; false: there are fewer. */
MUST_USE bool slice_take(struct slice *rest, size_t n, struct slice *out);
MUST_USE bool slice_be(struct slice *rest, unsigned bytes, uint64_t *out);
MUST_USE bool slice_le(struct slice *rest, unsigned bytes, uint64_t *out);
MUST_USE bool slice_counted(struct slice *rest, unsigned bytes,
                            struct slice *out); /* of buf_counted() */
/* Index of the first c, or -1. */
ptrdiff_t slice_find(struct slice s, char c);
/* The index after the last c; 0 without one: of "a/b/c" and '/' that of "c". */
size_t slice_behind(struct slice s, char c);
struct slice slice_trim(struct slice s); /* without blanks and tabs at both ends */
/* Only decimal digits, no sign, no blank; false when empty, with other bytes, or above 64 bits. */
MUST_USE bool slice_u64(struct slice s, uint64_t *out);
MUST_USE bool slice_hex(struct slice s, uint8_t *out,
                        size_t out_bytes); /* exactly 2 * out_bytes digits */
/* v in decimal, written into `room`. Printing is a tenth of a small response's CPU. */
enum { U64_DIGITS = 20 };
struct slice slice_of_u64(char room[U64_DIGITS], uint64_t v);
uint64_t slice_hash(struct slice s); /* not for untrusted persistence */

#endif
