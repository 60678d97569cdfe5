/* A schedule as somebody writes it: what reads has a next time, later than now. */
#include "server/sync/cron.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct cron c;

    if (n < 4 || cron_parse(slice_of(p + 4, n - 4), &c, NULL) != 0) {
        return 0;
    }
    uint64_t now = 1700000000 + ((uint64_t)p[0] << 20 | (uint64_t)p[1] << 12 | (uint64_t)p[2] << 4);
    CHECK(cron_next(&c, now) > now);
    return 0;
}
