/* buf.h - bytes that grow up to a stated maximum.
 *
 * A buf keeps its first error (E_TOOBIG above `max`); later appends do nothing, so ten appends
 * need one check at the end.
 *
 * owns     its memory; buf_free() releases it and leaves an empty buf of the same maximum
 * threads  one at a time
 */
#ifndef COMMON_BASE_BUF_H
#define COMMON_BASE_BUF_H

#include <stdarg.h>

#include "common/base/endian.h"
#include "common/base/err.h"
#include "common/base/slice.h"

struct buf {
    char *p;
    size_t n;
    size_t cap;
    size_t max;
    int rc; /* 0, or the first error */
};

#define BUF_INIT(max_bytes) ((struct buf){.max = (max_bytes)})

void buf_add(struct buf *b, const void *p, size_t n);
/* s after its length in so many bytes, for slice_counted(); E_TOOBIG: the length does not fit. */
void buf_counted(struct buf *b, unsigned bytes, struct slice s);
void buf_addf(struct buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_vaddf(struct buf *b, const char *fmt, va_list ap);
/* At least n writable bytes at the end, or NULL above the maximum; then buf_grew() says how many
 * were used. */
char *buf_room(struct buf *b, size_t n);
void buf_grew(struct buf *b, size_t n);
void buf_drop(struct buf *b, size_t n); /* removes the first n bytes */
void buf_clear(struct buf *b);          /* empty, memory kept, error forgotten */
void buf_free(struct buf *b);
const char *
buf_cstr(struct buf *b); /* NUL-terminated view, NUL not counted; "" when broken or empty */
MUST_USE int buf_read_file(struct buf *b, const char *path, struct err *e);

static inline void buf_adds(struct buf *b, struct slice s)
{
    buf_add(b, s.p, s.n);
}

static inline void buf_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

static inline void buf_byte(struct buf *b, uint8_t c)
{
    buf_add(b, &c, 1);
}

static inline void buf_be(struct buf *b, unsigned bytes, uint64_t v)
{
    uint8_t p[8];

    be_put(p, bytes, v);
    buf_add(b, p, bytes);
}

static inline void buf_le(struct buf *b, unsigned bytes, uint64_t v)
{
    uint8_t p[8];

    le_put(p, bytes, v);
    buf_add(b, p, bytes);
}

static inline struct slice buf_slice(const struct buf *b)
{
    return slice_of(b->p, b->n);
}

#endif
