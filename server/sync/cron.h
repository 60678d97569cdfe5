/* cron.h - computes when the next run is due: "17 3 * * *", "@daily", "every 6h". Times are UTC.
 *
 * A schedule has five fields (minute, hour, day of month, month, day of week) of numbers, names,
 * ranges, steps and lists. When both days are restricted, either is enough, as in cron(5). 0 and
 * 7 are Sunday.
 *
 * threads  any; pure
 */
#ifndef SERVER_SYNC_CRON_H
#define SERVER_SYNC_CRON_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct cron {
    uint64_t every_s; /* not 0: an interval, and the other fields are unused */
    uint64_t minutes; /* bits */
    uint32_t hours, days, months, weekdays;
    bool any_day, any_weekday;
};

MUST_USE int cron_parse(struct slice text, struct cron *out, struct err *e);
/* The first time after `unix_s`; UINT64_MAX: never (30 February). */
uint64_t cron_next(const struct cron *c, uint64_t unix_s);

#endif
