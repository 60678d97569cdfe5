#include "server/sync/pace.h"

#include "common/codec/units.h"

enum { DAY_S = 86400, THURSDAY = 4, ALL_DAYS = 0x7f, PAUSE_MAX_MS = 2000 };

static bool parse_day_of_week(struct slice s, unsigned *out)
{
    static const char names[] = "sunmontuewedthufrisat";

    for (unsigned d = 0; d < 7; d++) {
        if (slice_ieq(s, slice_of(names + (size_t)3 * d, 3))) {
            *out = d;
            return true;
        }
    }
    return false;
}

/* "mon", "mon-fri", "fri-mon" */
static bool days_of(struct slice s, uint8_t *out)
{
    struct slice last = s;
    struct slice first = slice_cut(&last, '-');
    unsigned a, b;

    if (!parse_day_of_week(first, &a)) {
        return false;
    }
    b = a;
    if (first.n != s.n && !parse_day_of_week(last, &b)) {
        return false;
    }
    *out = 0;
    for (unsigned d = a;; d = (d + 1) % 7) {
        *out = (uint8_t)(*out | 1u << d);
        if (d == b) {
            return true;
        }
    }
}

/* "08:30"; 24:00 is the day's end. */
static bool parse_time_of_day(struct slice s, uint32_t *out)
{
    struct slice minute = s;
    struct slice hour = slice_cut(&minute, ':');
    uint64_t h, m;

    if (hour.n == s.n || hour.n > 2 || minute.n != 2 || !slice_u64(hour, &h) ||
        !slice_u64(minute, &m) || m > 59 || h * 60 + m > 24 * 60) {
        return false;
    }
    *out = (uint32_t)(h * 3600 + m * 60);
    return true;
}

static struct slice cut_pace_word(struct slice *rest)
{
    struct slice w = slice_cut(rest, ' ');

    *rest = slice_trim(*rest);
    return w;
}

int hours_parse(struct slice text, struct hours *out, struct err *e)
{
    struct slice rest = slice_trim(text), span, to;

    *out = (struct hours){.days = ALL_DAYS};
    span = cut_pace_word(&rest);
    if (days_of(span, &out->days)) {
        span = cut_pace_word(&rest);
    }
    to = span;
    span = slice_cut(&to, '-');
    if (!parse_time_of_day(span, &out->from_s) || !parse_time_of_day(to, &out->to_s) ||
        out->from_s == out->to_s) {
        return err_set(
            e, E_INVALID,
            "invalid window; write days, hours and a rate, such as \"mon-fri 08:00-18:00 10m/s\"");
    }
    if (!rate_parse(rest, &out->rate_bytes_per_s)) {
        return err_set(e, E_INVALID, "invalid rate; write one such as 10m/s, or 0");
    }
    return 0;
}

static bool time_fits_hours(const struct hours *h, uint64_t unix_s)
{
    unsigned day = (unsigned)((unix_s / DAY_S + THURSDAY) % 7), before = (day + 6) % 7;
    uint32_t s = (uint32_t)(unix_s % DAY_S);

    if (h->from_s < h->to_s) {
        return (h->days >> day & 1) != 0 && s >= h->from_s && s < h->to_s;
    }
    return ((h->days >> day & 1) != 0 && s >= h->from_s) ||
           ((h->days >> before & 1) != 0 && s < h->to_s);
}

uint64_t pace_rate(const struct pace *p, uint64_t unix_s)
{
    for (size_t i = 0; i < p->windows; i++) {
        if (time_fits_hours(&p->window[i], unix_s)) {
            return p->window[i].rate_bytes_per_s != 0 ? p->window[i].rate_bytes_per_s : UINT64_MAX;
        }
    }
    return UINT64_MAX;
}

uint64_t pace_spend(struct pace *p, uint64_t n, uint64_t now_ms, uint64_t unix_s)
{
    uint64_t rate = pace_rate(p, unix_s), paid;

    if (rate == UINT64_MAX) {
        p->owed = 0;
        p->then_ms = now_ms;
        return 0;
    }
    /* What came in a slow hour is not owed at a fast one's rate: at most a pause is carried. */
    if (p->owed / 1000 > rate * (PAUSE_MAX_MS / 1000)) {
        p->owed = rate * PAUSE_MAX_MS;
    }
    if (!mul_u64(now_ms - p->then_ms, rate, &paid)) {
        paid = UINT64_MAX;
    }
    p->owed -= min_u64(p->owed, paid);
    p->then_ms = now_ms;
    p->owed += min_u64(n, UINT64_MAX / 4000) * 1000;
    return min_u64(p->owed / rate, PAUSE_MAX_MS);
}
