#include "server/fetch/rest.h"

#include "common/codec/httpdate.h"

enum {
    AFTER_MAX_S = 3600, /* the origin queue has a bound of its own */
    BUDGET_MAX_S = 60,  /* a budget usually returns in steps: the next response has the new state */
};

bool rest_is_asked(int status)
{
    return status == 429 || status == 503;
}

static uint64_t retry_after_ms(const struct xfer_head *h, uint64_t now_unix_s)
{
    struct slice v = slice_trim(xfer_head_field(h, "retry-after"));
    uint64_t s;

    if (v.p == NULL) {
        return 0;
    }
    if (!slice_u64(v, &s)) {
        s = httpdate_parse(v, now_unix_s, &s) && s > now_unix_s ? s - now_unix_s : 0;
    }
    return min_u64(s, AFTER_MAX_S) * 1000;
}

/* `"api";r=0;t=55` (the draft's list form) or ratelimit-remaining and ratelimit-reset: a spent
 * budget means rest. */
static uint64_t spent_budget_ms(const struct xfer_head *h)
{
    struct slice list = xfer_head_field(h, "ratelimit");
    struct slice left = slice_trim(xfer_head_field(h, "ratelimit-remaining"));
    struct slice reset = slice_trim(xfer_head_field(h, "ratelimit-reset"));
    uint64_t remaining = 1;
    uint64_t seconds = 0;

    while (list.n > 0) {
        struct slice part = slice_trim(slice_cut(&list, ';'));
        if (slice_starts(part, SLICE("r="))) {
            left = slice_from(part, 2);
        } else if (slice_starts(part, SLICE("t="))) {
            reset = slice_from(part, 2);
        }
    }
    if (!slice_u64(left, &remaining) || remaining > 0 || !slice_u64(reset, &seconds)) {
        return 0;
    }
    return min_u64(seconds, BUDGET_MAX_S) * 1000;
}

uint64_t rest_asked_ms(const struct xfer_head *h, uint64_t now_unix_s)
{
    uint64_t after_ms = rest_is_asked(h->status) ? retry_after_ms(h, now_unix_s) : 0;

    return max_u64(after_ms, spent_budget_ms(h));
}
