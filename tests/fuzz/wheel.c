/* wheel.c - fuzzes the reader of METADATA inside a wheel: given by parts and whole it says the
 * same, and asks for nothing outside. */
#include <stdlib.h>

#include "server/repo/python/wheel.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int by_parts(struct slice all, struct buf *out)
{
    struct wheel w;
    uint64_t first, end;
    unsigned asked = 0;
    int rc = 0;

    wheel_begin(&w, SLICE("demo"), all.n);
    while (rc == 0 && wheel_wants(&w, &first, &end)) {
        char *part;
        size_t len = (size_t)(end - first);
        CHECK(first <= end && end <= all.n && ++asked < 5);
        part = malloc(len + (len == 0));
        CHECK(part != NULL);
        if (len != 0) {
            memcpy(part, all.p + first, len);
        }
        rc = wheel_feed(&w, first, slice_of(part, len), out, NULL);
        free(part);
    }
    return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice all = slice_of(p, n);
    struct buf parts = BUF_INIT(WHEEL_METADATA_BYTES + 1),
               whole = BUF_INIT(WHEEL_METADATA_BYTES + 1);
    struct wheel w;
    int rc;

    wheel_begin(&w, SLICE("demo"), n);
    rc = wheel_feed(&w, 0, all, &whole, NULL);
    CHECK(by_parts(all, &parts) == rc);
    CHECK(slice_eq(buf_slice(&parts), buf_slice(&whole)) && (rc == 0) == (w.step == WHEEL_DONE));
    buf_free(&parts);
    buf_free(&whole);
    return 0;
}
