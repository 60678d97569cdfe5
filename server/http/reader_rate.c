#include "server/http/reader_rate.h"

#include "common/base/check.h"

enum {
    LOOKS = 12, /* in the time that is judged */
    LATE_MS = 2000,
};

static uint64_t step_ms(const struct reader_rate_limit *limit)
{
    return limit->over_ms / LOOKS + 1;
}

uint64_t reader_rate_due(const struct reader_rate *r, const struct reader_rate_limit *limit)
{
    return limit->bytes_per_s != 0 ? r->looked_ms + step_ms(limit) : UINT64_MAX;
}

bool reader_rate_look(struct reader_rate *r, const struct reader_rate_limit *limit, uint64_t now_ms,
                      bool held, uint64_t bytes)
{
    uint64_t passed_ms = now_ms - r->looked_ms;
    bool slow;

    if (now_ms < reader_rate_due(r, limit)) {
        return false;
    }
    r->looked_ms = now_ms;
    if (!held) {
        return false;
    }
    /* Nobody looked for longer than that: nobody knows what was waited for. */
    r->held_ms += passed_ms < step_ms(limit) + LATE_MS ? passed_ms : step_ms(limit);
    if (r->held_ms < limit->over_ms) {
        return false;
    }
    slow = bytes - r->from_bytes < (uint64_t)limit->bytes_per_s * r->held_ms / 1000;
    r->held_ms = 0;
    r->from_bytes = bytes;
    return slow;
}
