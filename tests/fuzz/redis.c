/* Replies of Redis: what a stranger at that port could send. A reply takes bytes or none. */
#include "server/cluster/redis.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice in = slice_of(p, n);
    struct redis_reply r;
    size_t before;
    int rc;

    do {
        before = in.n;
        rc = redis_reply_read(&in, &r);
        CHECK(rc == 1 ? in.n < before : in.n == before);
        CHECK(r.items <= REDIS_ITEMS_MAX);
    } while (rc == 1);
    return 0;
}
