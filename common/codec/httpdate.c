#include "common/codec/httpdate.h"

#include <stdio.h>
#include <time.h>

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

/* Takes exactly n digits from the front. */
static bool take_date_number(struct slice *s, size_t n, int *out)
{
    uint64_t v;

    if (s->n < n || !slice_u64(slice_first(*s, n), &v)) {
        return false;
    }
    *s = slice_from(*s, n);
    *out = (int)v;
    return true;
}

static bool take_date_text(struct slice *s, const char *text)
{
    size_t n = strlen(text);

    if (s->n < n || !slice_ieq(slice_first(*s, n), slice_of(text, n))) {
        return false;
    }
    *s = slice_from(*s, n);
    return true;
}

static bool take_month(struct slice *s, int *out)
{
    for (int i = 0; i < 12 && s->n >= 3; i++) {
        if (slice_ieq(slice_first(*s, 3), slice_of(months + 3 * i, 3))) {
            *s = slice_from(*s, 3);
            *out = i;
            return true;
        }
    }
    return false;
}

static bool take_clock(struct slice *s, struct tm *tm)
{
    return take_date_number(s, 2, &tm->tm_hour) && take_date_text(s, ":") &&
           take_date_number(s, 2, &tm->tm_min) && take_date_text(s, ":") &&
           take_date_number(s, 2, &tm->tm_sec);
}

/* "06 Nov 1994 08:49:37 GMT" */
static bool imf(struct slice s, struct tm *tm)
{
    return take_date_number(&s, 2, &tm->tm_mday) && take_date_text(&s, " ") &&
           take_month(&s, &tm->tm_mon) && take_date_text(&s, " ") &&
           take_date_number(&s, 4, &tm->tm_year) && take_date_text(&s, " ") && take_clock(&s, tm) &&
           slice_ieq(s, SLICE(" GMT"));
}

/* "06-Nov-94 08:49:37 GMT" */
static bool rfc850(struct slice s, uint64_t now_unix_s, struct tm *tm)
{
    time_t now = (time_t)now_unix_s;
    struct tm today;

    if (!take_date_number(&s, 2, &tm->tm_mday) || !take_date_text(&s, "-") ||
        !take_month(&s, &tm->tm_mon) || !take_date_text(&s, "-") ||
        !take_date_number(&s, 2, &tm->tm_year) || !take_date_text(&s, " ") || !take_clock(&s, tm) ||
        !slice_ieq(s, SLICE(" GMT")) || gmtime_r(&now, &today) == NULL) {
        return false;
    }
    tm->tm_year += (today.tm_year + 1900) / 100 * 100;
    if (tm->tm_year > today.tm_year + 1900 + 50) {
        tm->tm_year -= 100;
    }
    return true;
}

/* "Nov  6 08:49:37 1994" */
static bool asctime_form(struct slice s, struct tm *tm)
{
    if (!take_month(&s, &tm->tm_mon) || !take_date_text(&s, " ")) {
        return false;
    }
    return take_date_number(&s, take_date_text(&s, " ") ? 1 : 2, &tm->tm_mday) &&
           take_date_text(&s, " ") && take_clock(&s, tm) && take_date_text(&s, " ") &&
           take_date_number(&s, 4, &tm->tm_year) && s.n == 0;
}

bool httpdate_parse(struct slice text, uint64_t now_unix_s, uint64_t *unix_s)
{
    struct tm tm = {0};
    ptrdiff_t comma = slice_find(text, ',');
    time_t t;
    bool ok;

    if (comma < 0) {
        ok = text.n > 4 && text.p[3] == ' ' && asctime_form(slice_from(text, 4), &tm);
    } else {
        struct slice rest = slice_from(text, (size_t)comma + 1);
        ok = take_date_text(&rest, " ") &&
             (comma == 3 ? imf(rest, &tm) : rfc850(rest, now_unix_s, &tm));
    }
    if (!ok || tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 ||
        tm.tm_sec > 60) {
        return false;
    }
    tm.tm_year -= 1900;
    t = timegm(&tm);
    *unix_s = t > 0 ? (uint64_t)t : 0;
    return true;
}

void httpdate_format(uint64_t unix_s, char out[HTTPDATE_ROOM])
{
    time_t t = (time_t)min_u64(unix_s, 253402300799u); /* the end of year 9999 */
    struct tm tm;

    gmtime_r(&t, &tm);
    snprintf(out, HTTPDATE_ROOM, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday,
             tm.tm_mday, months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min,
             tm.tm_sec);
}
