#include "common/codec/isotime.h"

#include <time.h>

enum { SECOND_NS = 1000000000 };

static bool digits(struct slice *s, size_t n, char then, int *out)
{
    uint64_t v;
    struct slice text = s->n > n ? slice_first(*s, n) : SLICE_NONE;

    if (!slice_u64(text, &v) || s->p[n] != then) {
        return false;
    }
    *out = (int)v;
    *s = slice_from(*s, n + 1);
    return true;
}

/* ".123Z", ".123456789Z", "Z" behind the seconds, which have been read up to it. */
static bool fraction(struct slice s, int64_t *ns)
{
    int64_t step = SECOND_NS / 10;

    *ns = 0;
    for (size_t i = 0; i + 1 < s.n; i++, step /= 10) {
        if (s.p[i] < '0' || s.p[i] > '9' || i >= 9) {
            return false;
        }
        *ns += step * (s.p[i] - '0');
    }
    return s.n > 1 && s.p[s.n - 1] == 'Z';
}

bool isotime_parse(struct slice text, int64_t *unix_ns)
{
    struct tm tm = {0};
    int64_t ns = 0;
    bool ok = digits(&text, 4, '-', &tm.tm_year) && digits(&text, 2, '-', &tm.tm_mon) &&
              digits(&text, 2, 'T', &tm.tm_mday) && digits(&text, 2, ':', &tm.tm_hour) &&
              digits(&text, 2, ':', &tm.tm_min);

    if (!ok || tm.tm_year < 1970 || tm.tm_year > 2200 || tm.tm_mon < 1 || tm.tm_mon > 12 ||
        tm.tm_mday < 1 || tm.tm_mday > 31 || tm.tm_hour > 23 || tm.tm_min > 59) {
        return false;
    }
    ok = digits(&text, 2, '.', &tm.tm_sec) ? fraction(text, &ns)
                                           : digits(&text, 2, 'Z', &tm.tm_sec) && text.n == 0;
    if (!ok || tm.tm_sec > 60) {
        return false;
    }
    tm.tm_year -= 1900;
    tm.tm_mon -= 1;
    *unix_ns = (int64_t)timegm(&tm) * SECOND_NS + ns;
    return true;
}
