#include "common/codec/httpdate.h"

#include <stdio.h>
#include <time.h>

static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char days[7][4] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};

/* Days since 1970-01-01 of a date in the Gregorian calendar; month 0-11. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    int64_t y = month < 2 ? year - 1 : year;
    int64_t era = y / 400;
    int64_t yoe = y - era * 400;
    int64_t doy = (153 * ((month + 10) % 12) + 2) / 5 + day - 1;

    return era * 146097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719468;
}

static bool take_number(struct slice *s, size_t digits, int *out)
{
    uint64_t n;

    if (s->n < digits || !slice_u64(slice_first(*s, digits), &n)) {
        return false;
    }
    *out = (int)n;
    *s = slice_from(*s, digits);
    return true;
}

static bool take_text(struct slice *s, struct slice t)
{
    if (!slice_starts(*s, t)) {
        return false;
    }
    *s = slice_from(*s, t.n);
    return true;
}

static bool take_month(struct slice *s, int *out)
{
    for (int i = 0; i < 12; i++) {
        if (take_text(s, slice_of(months[i], 3))) {
            *out = i;
            return true;
        }
    }
    return false;
}

static bool take_clock(struct slice *s, int *h, int *m, int *sec)
{
    return take_number(s, 2, h) && take_text(s, SLICE(":")) && take_number(s, 2, m) &&
           take_text(s, SLICE(":")) && take_number(s, 2, sec);
}

bool httpdate_parse(struct slice text, uint64_t now_unix_s, uint64_t *unix_s)
{
    struct slice s = text;
    ptrdiff_t comma = slice_find(s, ',');
    int year;
    int month;
    int day;
    int h;
    int m;
    int sec;
    int64_t t;

    if (comma == 3) { /* Sun, 06 Nov 1994 08:49:37 GMT */
        s = slice_from(s, 4);
        if (!take_text(&s, SLICE(" ")) || !take_number(&s, 2, &day) || !take_text(&s, SLICE(" ")) ||
            !take_month(&s, &month) || !take_text(&s, SLICE(" ")) || !take_number(&s, 4, &year) ||
            !take_text(&s, SLICE(" ")) || !take_clock(&s, &h, &m, &sec) ||
            !slice_eq(s, SLICE(" GMT"))) {
            return false;
        }
    } else if (comma > 3) { /* Sunday, 06-Nov-94 08:49:37 GMT */
        int64_t now_year = 1970 + (int64_t)(now_unix_s / 31556952u);
        s = slice_from(s, (size_t)comma + 1);
        if (!take_text(&s, SLICE(" ")) || !take_number(&s, 2, &day) || !take_text(&s, SLICE("-")) ||
            !take_month(&s, &month) || !take_text(&s, SLICE("-")) || !take_number(&s, 2, &year) ||
            !take_text(&s, SLICE(" ")) || !take_clock(&s, &h, &m, &sec) ||
            !slice_eq(s, SLICE(" GMT"))) {
            return false;
        }
        year += (int)(now_year / 100 * 100);
        year -= year > now_year + 50 ? 100 : 0;
    } else { /* Sun Nov  6 08:49:37 1994 */
        if (s.n != 24) {
            return false;
        }
        s = slice_from(s, 3);
        if (!take_text(&s, SLICE(" ")) || !take_month(&s, &month) || !take_text(&s, SLICE(" "))) {
            return false;
        }
        if (take_text(&s, SLICE(" ")) ? !take_number(&s, 1, &day) : !take_number(&s, 2, &day)) {
            return false;
        }
        if (!take_text(&s, SLICE(" ")) || !take_clock(&s, &h, &m, &sec) ||
            !take_text(&s, SLICE(" ")) || !take_number(&s, 4, &year) || s.n != 0) {
            return false;
        }
    }
    if (day < 1 || day > 31 || h > 23 || m > 59 || sec > 60) {
        return false;
    }
    t = days_from_civil(year, month, day) * 86400 + h * 3600 + m * 60 + sec;
    if (t < 0) {
        return false;
    }
    *unix_s = (uint64_t)t;
    return true;
}

void httpdate_format(uint64_t unix_s, char out[HTTPDATE_ROOM])
{
    time_t t = (time_t)unix_s;
    struct tm tm = {0};

    gmtime_r(&t, &tm);
    snprintf(out, HTTPDATE_ROOM, "%s, %02d %s %04d %02d:%02d:%02d GMT", days[tm.tm_wday],
             tm.tm_mday, months[tm.tm_mon], tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}
