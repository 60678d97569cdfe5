/* check.h - assertions that stay in release builds, and compiler hints.
 *
 * CHECK is for our own bugs (a caller broke a contract). Bytes from outside are judged with `if`
 * and an error.
 */
#ifndef COMMON_BASE_CHECK_H
#define COMMON_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MUST_USE          __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))
#define NORETURN          __attribute__((noreturn))

#define CHECK(x)                     ((x) ? (void)0 : check_failed(#x, __FILE__, __LINE__))
#define ARRAY_LEN(a)                 (sizeof(a) / sizeof((a)[0]))
#define CONTAINER_OF(p, type, field) ((type *)(void *)((char *)(p)-offsetof(type, field)))

NORETURN void check_failed(const char *what, const char *file, int line);

/* Allocation of small, bounded things: aborts when memory is out. Memory comes zeroed. */
void *mem_new(size_t size_bytes) __attribute__((malloc, returns_nonnull));
void *mem_array(size_t count, size_t size_bytes) __attribute__((malloc, returns_nonnull));
char *mem_strdup(const char *s) __attribute__((malloc, returns_nonnull));
#define NEW(type) ((type *)mem_new(sizeof(type)))

/* Sums and products of numbers from outside: false on overflow, and *out is not changed. */
MUST_USE static inline bool add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

MUST_USE static inline bool mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r)) {
        return false;
    }
    *out = r;
    return true;
}

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

#endif
