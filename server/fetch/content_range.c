#include "server/fetch/content_range.h"

bool content_range_parse(struct slice value, struct content_range *out)
{
    struct slice s = slice_trim(value);
    struct slice span;
    struct slice first;
    uint64_t last;

    if (s.n < 6 || !slice_ieq(slice_first(s, 6), SLICE("bytes "))) {
        return false;
    }
    s = slice_trim(slice_from(s, 6));
    span = slice_cut(&s, '/');
    first = slice_cut(&span, '-');
    if (!slice_u64(first, &out->first) || !slice_u64(span, &last) || last < out->first ||
        !add_u64(last, 1, &out->end)) {
        return false;
    }
    if (slice_eq(s, SLICE("*"))) {
        out->total = UINT64_MAX;
        return true;
    }
    return slice_u64(s, &out->total) && out->end <= out->total;
}
