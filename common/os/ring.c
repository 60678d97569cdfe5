#include "common/os/ring.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { CACHE_LINE_BYTES = 64 };

/* Positions only grow; the byte at position p lies at p modulo the size. Each side writes a cache
 * line of its own. */
struct ring {
    size_t size;
    char *bytes;
    _Alignas(CACHE_LINE_BYTES) _Atomic size_t put;   /* the producer's: end of what was put */
    size_t taken_seen;                               /* its last look at `taken` */
    _Alignas(CACHE_LINE_BYTES) _Atomic size_t taken; /* the consumer's */
};

struct ring *ring_open(size_t size_bytes)
{
    struct ring *r = aligned_alloc(CACHE_LINE_BYTES, sizeof *r);

    CHECK(r != NULL && size_bytes > 0 && (size_bytes & (size_bytes - 1)) == 0);
    *r = (struct ring){.size = size_bytes, .bytes = mem_new(size_bytes)};
    return r;
}

bool ring_put(struct ring *r, struct slice s, size_t *waited_bytes)
{
    size_t at = atomic_load_explicit(&r->put, memory_order_relaxed);
    size_t start = at & (r->size - 1);
    size_t before_wrap = s.n < r->size - start ? s.n : r->size - start;

    if (r->size - (at - r->taken_seen) < s.n) {
        r->taken_seen = atomic_load_explicit(&r->taken, memory_order_acquire);
        if (r->size - (at - r->taken_seen) < s.n) {
            return false;
        }
    }
    memcpy(r->bytes + start, s.p, before_wrap);
    memcpy(r->bytes, s.p + before_wrap, s.n - before_wrap);
    /* Both sides store their own position and then read the other's, in one order for all: either
     * this put sees that all before it was taken, or the take sees this put. */
    atomic_store(&r->put, at + s.n);
    r->taken_seen = atomic_load(&r->taken);
    *waited_bytes = r->taken_seen < at ? at - r->taken_seen : 0;
    return true;
}

bool ring_take(struct ring *r, struct buf *out)
{
    size_t from = atomic_load_explicit(&r->taken, memory_order_relaxed);
    size_t to = atomic_load(&r->put);
    size_t start = from & (r->size - 1);
    size_t before_wrap = to - from < r->size - start ? to - from : r->size - start;

    buf_add(out, r->bytes + start, before_wrap);
    buf_add(out, r->bytes, to - from - before_wrap);
    atomic_store(&r->taken, to);
    return atomic_load(&r->put) != to;
}

void ring_close(struct ring **rp)
{
    struct ring *r = *rp;

    *rp = NULL;
    if (r != NULL) {
        free(r->bytes);
        free(r);
    }
}
