/* structured.c - fuzzes structured_next(): it ends, and members lie within the text, one after the
 * other. */
#include "common/codec/structured.h"

#include "common/base/check.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice rest = slice_of(p, n);
    struct structured_member m;
    size_t members = 0;

    while (structured_next(&rest, &m) == 1) {
        CHECK(m.key.n > 0 && m.key.p >= (const char *)p && m.key.p + m.key.n <= rest.p);
        CHECK(m.integer > -1000000000000000 && m.integer < 1000000000000000);
        CHECK(++members <= n);
    }
    return 0;
}
