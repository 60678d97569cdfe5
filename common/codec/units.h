/* units.h - sizes, durations, rates and shares, as people write them in a configuration and read
 * them on a screen.
 *
 * Sizes are powers of 1024: "64k", "10g", "512" (bytes). Durations have a unit: "250ms", "30s",
 * "5m", "2h", "7d", "1w"; only "0" needs none. Rates: "100m/s" (bytes), "200/s", "30/m" (events).
 * Shares: "5%". Fractions ("1.5g") have up to three digits. Parsers accept the whole text or
 * fail, and refuse what does not fit.
 */
#ifndef COMMON_CODEC_UNITS_H
#define COMMON_CODEC_UNITS_H

#include "common/base/slice.h"

MUST_USE bool size_parse(struct slice s, uint64_t *bytes);
MUST_USE bool span_parse(struct slice s, uint64_t *ms);
MUST_USE bool rate_parse(struct slice s,
                         uint64_t *bytes_per_s);              /* a size followed by "/s"; or "0" */
MUST_USE bool frequency_parse(struct slice s, double *per_s); /* "/s", "/m", "/h"; or "0" */
MUST_USE bool share_parse(struct slice s, double *ratio);     /* 0% to 100% -> 0 to 1 */

enum { UNITS_TEXT = 24 };
void size_format(uint64_t bytes, char out[UNITS_TEXT]); /* "1.5 GiB" */
void span_format(uint64_t ms,
                 char out[UNITS_TEXT]); /* "45 ms", "1.2 s", "3m20s", "5h10m", "12d4h" */

/* The noun after a number in a sentence: "1 file", "0 files", "2 entries"; "1 of 1 file is here".
 */
static inline const char *plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#endif
