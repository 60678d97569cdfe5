#include "common/codec/weblink.h"

struct slice weblink_next(struct slice field)
{
    while (field.n != 0) {
        ptrdiff_t open = slice_find(field, '<');
        ptrdiff_t close = slice_find(field, '>');
        struct slice target;
        struct slice params;

        if (open < 0 || close < open) {
            break;
        }
        target = slice_of(field.p + open + 1, (size_t)(close - open - 1));
        field = slice_from(field, (size_t)close + 1);
        params = slice_cut(&field, ',');
        while (params.n != 0) {
            struct slice value = slice_cut(&params, ';');
            struct slice name = slice_trim(slice_cut(&value, '='));
            value = slice_trim(value);
            if (slice_ieq(name, SLICE("rel")) &&
                (slice_ieq(value, SLICE("next")) || slice_ieq(value, SLICE("\"next\"")))) {
                return target;
            }
        }
    }
    return SLICE_NONE;
}
