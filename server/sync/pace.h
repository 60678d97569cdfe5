/* pace.h - limits how fast a run may fetch, by the hour: "mon-fri 08:00-18:00 10m/s",
 * "22:00-06:00 0". Times are UTC.
 *
 * The first window that matches applies; a rate of 0 fetches nothing. When no window matches
 * there is no limit.
 *
 * threads  a struct pace belongs to one run; pure: time is an argument
 */
#ifndef SERVER_SYNC_PACE_H
#define SERVER_SYNC_PACE_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct hours {
    uint8_t days; /* bits, Sunday is 0 */
    uint32_t from_s,
        /* seconds of the day; to < from: over midnight, and the days are those on which it begins
         */
        to_s;
    uint64_t rate_bytes_per_s;
};

MUST_USE int hours_parse(struct slice text, struct hours *out, struct err *e);

enum { PACE_WINDOWS = 32 };
struct pace {
    struct hours window[PACE_WINDOWS];
    size_t windows;
    /* byte-milliseconds at the current rate: bytes * 1000 that have not been paid for by time */
    uint64_t owed;
    uint64_t then_ms;
};

/* UINT64_MAX: no limit. */
uint64_t pace_rate(const struct pace *p, uint64_t unix_s);
/* n bytes arrived: the pause in ms before the next ones may. */
uint64_t pace_spend(struct pace *p, uint64_t n, uint64_t now_ms, uint64_t unix_s);

#endif
