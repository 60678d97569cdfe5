#include "common/codec/httpdate.h"

#include <stdio.h>
#include <time.h>

static const char days[] = "SunMonTueWedThuFriSat";
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static bool digits(struct slice s, size_t at, size_t n, int *out)
{
    uint64_t v;

    if (at + n > s.n || !slice_u64(slice_of(s.p + at, n), &v)) {
        return false;
    }
    *out = (int)v;
    return true;
}

static bool month(struct slice s, size_t at, int *out)
{
    for (int m = 0; at + 3 <= s.n && m < 12; m++) {
        if (memcmp(s.p + at, months + (ptrdiff_t)3 * m, 3) == 0) {
            *out = m;
            return true;
        }
    }
    return false;
}

static bool clock_at(struct slice s, size_t at, struct tm *tm)
{
    return digits(s, at, 2, &tm->tm_hour) && s.p[at + 2] == ':' &&
           digits(s, at + 3, 2, &tm->tm_min) && s.p[at + 5] == ':' &&
           digits(s, at + 6, 2, &tm->tm_sec);
}

/* "Sun, 06 Nov 1994 08:49:37 GMT" */
static bool imf(struct slice s, struct tm *tm)
{
    bool ok = s.n == 29 && s.p[3] == ',' && digits(s, 5, 2, &tm->tm_mday) &&
              month(s, 8, &tm->tm_mon) && digits(s, 12, 4, &tm->tm_year) && clock_at(s, 17, tm) &&
              slice_ends(s, SLICE(" GMT"));
    tm->tm_year -= 1900;
    return ok;
}

/* "Sunday, 06-Nov-94 08:49:37 GMT" */
static bool rfc850(struct slice s, struct tm *tm)
{
    ptrdiff_t comma = slice_find(s, ',');
    size_t at = (size_t)comma + 2;
    bool ok = comma >= 6 && s.n == at + 22 && digits(s, at, 2, &tm->tm_mday) &&
              month(s, at + 3, &tm->tm_mon) && digits(s, at + 7, 2, &tm->tm_year) &&
              clock_at(s, at + 10, tm) && slice_ends(s, SLICE(" GMT"));
    if (ok && tm->tm_year < 70) {
        tm->tm_year += 100;
    }
    return ok;
}

/* "Sun Nov  6 08:49:37 1994" */
static bool asctime_form(struct slice s, struct tm *tm)
{
    bool ok = s.n == 24 && month(s, 4, &tm->tm_mon) &&
              (s.p[8] == ' ' ? digits(s, 9, 1, &tm->tm_mday) : digits(s, 8, 2, &tm->tm_mday)) &&
              clock_at(s, 11, tm) && digits(s, 20, 4, &tm->tm_year);
    tm->tm_year -= 1900;
    return ok;
}

bool httpdate_parse(struct slice s, uint64_t *unix_s)
{
    struct tm tm = {0};
    time_t t;

    if (!imf(s, &tm) && !rfc850(s, &tm) && !asctime_form(s, &tm)) {
        return false;
    }
    if (tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59 || tm.tm_sec > 60) {
        return false;
    }
    t = timegm(&tm);
    if (t < 0) {
        return false;
    }
    *unix_s = (uint64_t)t;
    return true;
}

void httpdate_format(uint64_t unix_s, char out[HTTPDATE_BYTES])
{
    time_t t = (time_t)min_u64(unix_s, 253402300799u);
    struct tm tm;

    gmtime_r(&t, &tm);
    snprintf(out, HTTPDATE_BYTES, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT",
             days + (ptrdiff_t)3 * tm.tm_wday, tm.tm_mday, months + (ptrdiff_t)3 * tm.tm_mon,
             tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}
