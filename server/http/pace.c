#include "server/http/pace.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/base/err.h"

enum { BURST_MIN_BYTES = 16 * 1024, QUANTUM_MIN_BYTES = 1024 };
#define RATE_MAX 100000000000u /* 100 GB/s: products with nanoseconds stay below 2^64 */

struct pace {
    _Atomic unsigned holds;
    uint64_t rate;            /* bytes per second */
    uint64_t burst_ns;        /* what an idle client has saved */
    _Atomic uint64_t paid_ns; /* until then all is spent */
};

struct pace *pace_new(uint64_t rate_bytes_per_s)
{
    struct pace *p = NEW(struct pace);
    uint64_t burst;

    CHECK(rate_bytes_per_s > 0);
    p->holds = 1;
    p->rate = min_u64(rate_bytes_per_s, RATE_MAX);
    burst = max_u64(p->rate / 8, BURST_MIN_BYTES);
    p->burst_ns = burst * 1000000000u / p->rate;
    return p;
}

struct pace *pace_hold(struct pace *p)
{
    atomic_fetch_add(&p->holds, 1);
    return p;
}

void pace_release(struct pace **pp)
{
    struct pace *p = *pp;

    *pp = NULL;
    if (p != NULL && atomic_fetch_sub(&p->holds, 1) == 1) {
        free(p);
    }
}

uint64_t pace_allows(const struct pace *p, uint64_t want, uint64_t now_ms)
{
    uint64_t now_ns = now_ms * 1000000;
    uint64_t paid_ns = max_u64(atomic_load_explicit(&p->paid_ns, memory_order_relaxed), now_ns);
    uint64_t saved_ns = paid_ns - now_ns < p->burst_ns ? p->burst_ns - (paid_ns - now_ns) : 0;
    uint64_t n = saved_ns * p->rate / 1000000000u;

    /* Worth a packet: at high rates a few milliseconds' bytes, so that answers on other loops find
     * some too. */
    return n >= min_u64(want, max_u64(p->rate / 400, QUANTUM_MIN_BYTES)) ? min_u64(n, want) : 0;
}

void pace_charge(struct pace *p, uint64_t n, uint64_t now_ms)
{
    uint64_t cost_ns = (n * 1000000000u + p->rate - 1) / p->rate;
    uint64_t was = atomic_load_explicit(&p->paid_ns, memory_order_relaxed);

    while (!atomic_compare_exchange_weak(&p->paid_ns, &was,
                                         max_u64(was, now_ms * 1000000) + cost_ns)) {
    }
}
