/* clock.h - the time. Only outer code calls it; everything else takes now_ms as an argument. */
#ifndef COMMON_OS_CLOCK_H
#define COMMON_OS_CLOCK_H

#include <stdint.h>
#include <sys/time.h>
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

/* As monotonic, and goes on while the machine sleeps. */
static inline uint64_t clock_boot_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_BOOTTIME, &ts);
    return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
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

/* As timers take it. */
static inline struct timeval clock_timeval(uint64_t ms)
{
    return (struct timeval){(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)};
}

#endif
