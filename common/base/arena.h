/* arena.h - memory that is freed together: one arena per request, parse or document.
 *
 * owns     everything allocated from it; arena_fini() frees all, arena_reset() keeps the first
 *          block for reuse
 * threads  one at a time
 * errors   none: small allocations abort when memory is out; limit data from outside before you
 *          copy it here
 */
#ifndef COMMON_BASE_ARENA_H
#define COMMON_BASE_ARENA_H

#include "common/base/slice.h"

struct arena_block;
struct arena {
    struct arena_block *head;
    size_t used_bytes; /* allocated since the last reset */
};

void *arena_alloc(struct arena *a, size_t n); /* zeroed, aligned for anything */
void *arena_raw(struct arena *a, size_t n);   /* likewise, not zeroed */
struct slice arena_copy(struct arena *a, struct slice s);
struct slice arena_copy_opt(struct arena *a, struct slice s); /* SLICE_NONE stays SLICE_NONE */
char *arena_cstr(struct arena *a, struct slice s);
/* NUL-terminated */
struct slice arena_fmt(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
struct slice arena_u64(struct arena *a, uint64_t v); /* in decimal, likewise */
void arena_reset(struct arena *a);
void arena_fini(struct arena *a);

#define ARENA_NEW(a, type) ((type *)arena_alloc((a), sizeof(type)))

#endif
