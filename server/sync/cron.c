#include "server/sync/cron.h"

#include <string.h>
#include <time.h>

#include "common/codec/units.h"

enum { YEARS_AHEAD = 9 }; /* the 29th of February comes at least every eight */

struct field {
    const char *name;
    unsigned low, high;
    const char *names; /* three letters each, from `low` on */
};

static const struct field fields[5] = {
    {"minute", 0, 59, ""},
    {"hour", 0, 23, ""},
    {"day", 1, 31, ""},
    {"month", 1, 12, "janfebmaraprmayjunjulaugsepoctnovdec"},
    {"weekday", 0, 7, "sunmontuewedthufrisatsun"},
};

static bool cron_field_value(const struct field *f, struct slice s, unsigned *out)
{
    uint64_t n;

    if (slice_u64(s, &n)) {
        *out = (unsigned)n;
        return n >= f->low && n <= f->high;
    }
    for (unsigned i = 0; s.n == 3 && i < strlen(f->names) / 3; i++) {
        if (slice_ieq(s, slice_of(f->names + (size_t)3 * i, 3))) {
            *out = f->low + i;
            return true;
        }
    }
    return false;
}

/* One item of a list: "*", "5", "mon-fri", with "/2" behind. */
static bool item_of(const struct field *f, struct slice s, uint64_t *bits)
{
    struct slice step = s, high;
    struct slice range = slice_cut(&step, '/');
    unsigned first = f->low, last = f->high;
    uint64_t by = 1;

    if (range.n != s.n && (!slice_u64(step, &by) || by == 0 || by > f->high)) {
        return false;
    }
    if (!slice_eq(range, SLICE("*"))) {
        struct slice whole = range;
        high = range;
        range = slice_cut(&high, '-');
        if (!cron_field_value(f, range, &first)) {
            return false;
        }
        if (range.n != whole.n) {
            if (!cron_field_value(f, high, &last)) {
                return false;
            }
        } else if (by == 1) {
            last = first; /* "5/15" goes on to the end */
        }
    }
    if (first > last) {
        return false;
    }
    for (uint64_t v = first; v <= last; v += by) {
        *bits |= (uint64_t)1 << v;
    }
    return true;
}

static bool read_cron_field(const struct field *f, struct slice s, uint64_t *bits)
{
    *bits = 0;
    if (s.n == 0) {
        return false;
    }
    while (s.n != 0) {
        bool more = s.p[s.n - 1] == ',';
        if (more || !item_of(f, slice_cut(&s, ','), bits)) {
            return false;
        }
    }
    return true;
}

static struct slice next_word(struct slice *s)
{
    size_t n = 0;
    struct slice w;

    *s = slice_trim(*s);
    while (n < s->n && s->p[n] != ' ' && s->p[n] != '\t') {
        n++;
    }
    w = slice_first(*s, n);
    *s = slice_trim(slice_from(*s, n));
    return w;
}

static struct slice shorthand(struct slice s)
{
    static const struct {
        const char *name, *text;
    } all[] = {{"@hourly", "0 * * * *"},  {"@daily", "0 0 * * *"},   {"@midnight", "0 0 * * *"},
               {"@weekly", "0 0 * * 0"},  {"@monthly", "0 0 1 * *"}, {"@yearly", "0 0 1 1 *"},
               {"@annually", "0 0 1 1 *"}};

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        if (slice_ieq(s, slice_str(all[i].name))) {
            return slice_str(all[i].text);
        }
    }
    return s;
}

int cron_parse(struct slice text, struct cron *out, struct err *e)
{
    struct slice rest = shorthand(slice_trim(text));
    uint64_t bits[5], ms;

    *out = (struct cron){0};
    if (slice_starts(rest, SLICE("every "))) {
        if (!span_parse(slice_trim(slice_from(rest, 6)), &ms) || ms < 1000) {
            return err_set(e, E_INVALID,
                           "\"every\" needs a time of at least 1s; write for example \"every 6h\"");
        }
        out->every_s = ms / 1000;
        return 0;
    }
    for (unsigned i = 0; i < 5; i++) {
        struct slice w = next_word(&rest);
        if (!read_cron_field(&fields[i], w, &bits[i])) {
            return err_set(e, E_INVALID, "invalid %s; write five fields, such as \"17 3 * * *\"",
                           fields[i].name);
        }
        out->any_day = i == 2 ? w.p[0] == '*' : out->any_day;
        out->any_weekday = i == 4 ? w.p[0] == '*' : out->any_weekday;
    }
    if (rest.n != 0) {
        return err_set(e, E_INVALID, "more than five fields; write five, such as \"17 3 * * *\"");
    }
    out->minutes = bits[0];
    out->hours = (uint32_t)bits[1];
    out->days = (uint32_t)bits[2];
    out->months = (uint32_t)bits[3];
    out->weekdays = (uint32_t)(bits[4] | (bits[4] >> 7 & 1)); /* 7 is Sunday too */
    return 0;
}

static bool day_fits(const struct cron *c, const struct tm *t)
{
    bool day = (c->days >> t->tm_mday & 1) != 0;
    bool weekday = (c->weekdays >> t->tm_wday & 1) != 0;

    if (c->any_day || c->any_weekday) {
        return day && weekday;
    }
    return day || weekday;
}

static void normalise(struct tm *t)
{
    time_t s = timegm(t);
    gmtime_r(&s, t);
}

uint64_t cron_next(const struct cron *c, uint64_t unix_s)
{
    time_t s = (time_t)(unix_s - unix_s % 60 + 60);
    struct tm t;
    int last_year;

    if (c->every_s != 0) {
        return unix_s + c->every_s;
    }
    gmtime_r(&s, &t);
    last_year = t.tm_year + YEARS_AHEAD;
    while (t.tm_year < last_year) {
        if ((c->months >> (t.tm_mon + 1) & 1) == 0) {
            t.tm_mon++;
            t.tm_mday = 1;
            t.tm_hour = t.tm_min = 0;
        } else if (!day_fits(c, &t)) {
            t.tm_mday++;
            t.tm_hour = t.tm_min = 0;
        } else if ((c->hours >> t.tm_hour & 1) == 0) {
            t.tm_hour++;
            t.tm_min = 0;
        } else if ((c->minutes >> t.tm_min & 1) == 0) {
            t.tm_min++;
        } else {
            return (uint64_t)timegm(&t);
        }
        normalise(&t);
    }
    return UINT64_MAX;
}
