#include "common/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK_BYTES = 2048 - 64, ALIGN = 16 };

struct arena_block {
    struct arena_block *next;
    size_t size;
    size_t used;
    _Alignas(ALIGN) char bytes[];
};

static char *take_arena_bytes(struct arena *a, size_t n)
{
    struct arena_block *b = a->head;
    char *p;

    CHECK(n < SIZE_MAX / 2);
    n = (n + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (b == NULL || b->size - b->used < n) {
        size_t size = n > BLOCK_BYTES ? n : BLOCK_BYTES;
        b = malloc(sizeof *b + size);
        CHECK(b != NULL);
        b->size = size;
        b->used = 0;
        b->next = a->head;
        a->head = b;
    }
    p = b->bytes + b->used;
    b->used += n;
    a->used_bytes += n;
    return p;
}

void *arena_alloc(struct arena *a, size_t n)
{
    return memset(take_arena_bytes(a, n), 0, n);
}

void *arena_raw(struct arena *a, size_t n)
{
    return take_arena_bytes(a, n);
}

struct slice arena_copy(struct arena *a, struct slice s)
{
    return slice_of(arena_cstr(a, s), s.n);
}

struct slice arena_copy_opt(struct arena *a, struct slice s)
{
    return s.p != NULL ? arena_copy(a, s) : SLICE_NONE;
}

char *arena_cstr(struct arena *a, struct slice s)
{
    char *p = take_arena_bytes(a, s.n + 1);

    if (s.n != 0) {
        memcpy(p, s.p, s.n);
    }
    p[s.n] = '\0';
    return p;
}

struct slice arena_fmt(struct arena *a, const char *fmt, ...)
{
    va_list ap;
    int n;
    char *p;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    CHECK(n >= 0);
    p = arena_alloc(a, (size_t)n + 1);
    va_start(ap, fmt);
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    va_end(ap);
    return slice_of(p, (size_t)n);
}

struct slice arena_u64(struct arena *a, uint64_t v)
{
    char room[U64_DIGITS];

    return arena_copy(a, slice_of_u64(room, v));
}

void arena_reset(struct arena *a)
{
    while (a->head != NULL && a->head->next != NULL) {
        struct arena_block *b = a->head;
        a->head = b->next;
        free(b);
    }
    if (a->head != NULL) {
        a->head->used = 0;
    }
    a->used_bytes = 0;
}

void arena_fini(struct arena *a)
{
    arena_reset(a);
    free(a->head);
    a->head = NULL;
}
