/* A lookup that another mirror sends: of any bytes that have the right signature. */
#include <stdlib.h>

#include "common/codec/base64.h"
#include "server/cache/neighbor.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    char *text = mem_new(BASE64_ROOM(n));
    struct neighbor_asked got;
    struct arena a = {0};

    base64_encode(p, n, text);
    if (neighbor_lookup(slice_str(text), &a, &got)) {
        CHECK(got.lookup.repo.n != 0 && got.lookup.key.n <= LOOKUP_KEY_MAX);
        CHECK(got.lookup.asker != CLIENT_ASKS);
    }
    arena_fini(&a);
    free(text);
    return 0;
}
