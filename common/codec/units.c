#include "common/codec/units.h"

#include <inttypes.h>
#include <stdio.h>

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"", 1},
    {"k", (uint64_t)1 << 10},
    {"m", (uint64_t)1 << 20},
    {"g", (uint64_t)1 << 30},
    {"t", (uint64_t)1 << 40},
    {NULL, 0},
};
static const struct unit span_units[] = {
    {"ms", 1},          {"s", 1000},         {"m", 60 * 1000},
    {"h", 3600 * 1000}, {"d", 86400 * 1000}, {"w", 7 * 86400 * 1000},
    {NULL, 0},
};

/* Digits, perhaps a fraction of up to three, then exactly one of the units. Everything in
 * thousandths: no floats. */
static bool quantity(struct slice s, const struct unit *units, uint64_t *out)
{
    uint64_t whole = 0, milli = 0, scaled;
    size_t i = 0;

    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9') {
        i++;
    }
    if (!slice_u64(slice_first(s, i), &whole)) {
        return false;
    }
    if (i < s.n && s.p[i] == '.') {
        uint64_t place = 100;
        size_t start = ++i;
        for (; i < s.n && s.p[i] >= '0' && s.p[i] <= '9' && i - start < 3; i++) {
            milli += place * (uint64_t)(s.p[i] - '0');
            place /= 10;
        }
        if (i == start) {
            return false;
        }
    }
    for (const struct unit *u = units; u->name != NULL; u++) {
        if (slice_ieq(slice_from(s, i), slice_str(u->name))) {
            /* A fraction of nothing smaller (1.5 bytes) is refused, a fraction that does not come
             * out even is cut. */
            if ((milli != 0 && u->factor == 1) || !mul_u64(whole, u->factor, &scaled)) {
                return false;
            }
            return add_u64(scaled, milli * (u->factor / 1000) + milli * (u->factor % 1000) / 1000,
                           out);
        }
    }
    return false;
}

bool size_parse(struct slice s, uint64_t *bytes)
{
    return quantity(s, size_units, bytes);
}

bool span_parse(struct slice s, uint64_t *ms)
{
    if (slice_eqs(s, "0")) {
        *ms = 0;
        return true;
    }
    return quantity(s, span_units, ms);
}

bool rate_parse(struct slice s, uint64_t *bytes_per_s)
{
    if (slice_eqs(s, "0")) {
        *bytes_per_s = 0;
        return true;
    }
    return slice_ends(s, SLICE("/s")) && size_parse(slice_first(s, s.n - 2), bytes_per_s);
}

bool frequency_parse(struct slice s, double *per_s)
{
    static const struct unit count_units[] = {{"", 1000}, {NULL, 0}};
    uint64_t thousandths;
    double period_s;

    if (slice_eqs(s, "0")) {
        *per_s = 0;
        return true;
    }
    if (slice_ends(s, SLICE("/s"))) {
        period_s = 1;
    } else if (slice_ends(s, SLICE("/m"))) {
        period_s = 60;
    } else if (slice_ends(s, SLICE("/h"))) {
        period_s = 3600;
    } else {
        return false;
    }
    if (!quantity(slice_first(s, s.n - 2), count_units, &thousandths)) {
        return false;
    }
    *per_s = (double)thousandths / 1000 / period_s;
    return true;
}

bool share_parse(struct slice s, double *ratio)
{
    static const struct unit percent[] = {{"%", 1000}, {NULL, 0}};
    uint64_t thousandths;

    if (!quantity(s, percent, &thousandths) || thousandths > 100 * 1000) {
        return false;
    }
    *ratio = (double)thousandths / (100 * 1000);
    return true;
}

void size_format(uint64_t bytes, char out[UNITS_TEXT])
{
    static const char *const names[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t i = 0;

    if (bytes < 1024) {
        snprintf(out, UNITS_TEXT, "%" PRIu64 " B", bytes);
        return;
    }
    /* 1023.96 KiB would round to "1024.0 KiB". */
    for (v /= 1024; v >= 1023.95 && i + 1 < ARRAY_LEN(names); i++) {
        v /= 1024;
    }
    snprintf(out, UNITS_TEXT,
             v < 9.995   ? "%.2f %s"
             : v < 99.95 ? "%.1f %s"
                         : "%.0f %s",
             v, names[i]);
}

void span_format(uint64_t ms, char out[UNITS_TEXT])
{
    uint64_t s = ms / 1000;

    if (ms < 1000) {
        snprintf(out, UNITS_TEXT, "%" PRIu64 " ms", ms);
    } else if (s < 60) {
        snprintf(out, UNITS_TEXT, "%" PRIu64 ".%" PRIu64 " s", s, ms % 1000 / 100);
    } else if (s < 3600) {
        snprintf(out, UNITS_TEXT, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(out, UNITS_TEXT, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s % 3600 / 60);
    } else {
        snprintf(out, UNITS_TEXT, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s % 86400 / 3600);
    }
}
