#include "server/sync/removal_limit.h"

#include <inttypes.h>

#include "common/base/slice.h"
#include "common/codec/units.h"

enum { FEW = 1000 };
static const double SHARE_OF_MANY = 0.05;

bool removal_limit_parse(const char *text, struct removal_limit *out)
{
    struct slice s = slice_str(text);

    *out = (struct removal_limit){.set = true};
    if (slice_u64(s, &out->count)) {
        return true;
    }
    return share_parse(s, &out->share) && out->share > 0;
}

static bool beyond(const struct removal_limit *l, uint64_t before, uint64_t gone)
{
    if (!l->set) {
        return gone >= FEW && (double)gone > SHARE_OF_MANY * (double)before;
    }
    return l->share > 0 ? (double)gone > l->share * (double)before : gone > l->count;
}

int removal_judge(const struct removal_limit *l, uint64_t before, uint64_t listed, uint64_t gone,
                  struct err *e)
{
    if (listed == 0) {
        return err_set(e, E_REFUSED, "the upstream's list is empty");
    }
    if (!l->set && before > 1 && gone > before / 2) {
        return err_set(e, E_REFUSED,
                       "%" PRIu64 " of %" PRIu64 " entries would be removed, more than half", gone,
                       before);
    }
    if (beyond(l, before, gone)) {
        return err_set(e, E_REFUSED,
                       "%" PRIu64 " of %" PRIu64 " entries would be removed, more than %s", gone,
                       before, l->set ? "max_delete allows" : "5%");
    }
    return 0;
}
