/* clock.h - what time it is. Only the edges call this; everything else takes now_ms as an argument. */
#ifndef COMMON_OS_CLOCK_H
#define COMMON_OS_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_now_ns(void) /* monotonic */
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t clock_now_ms(void) /* monotonic */
{
    return clock_now_ns() / 1000000u;
}

static inline uint64_t clock_unix_s(void)
{
    return (uint64_t)time(NULL);
}

static inline uint64_t clock_unix_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

#endif
