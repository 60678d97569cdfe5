/* xet.c - fuzzes what clients of Xet's upload: chunks out of xorbs, and shards. */
#include <stdlib.h>

#include "common/base/check.h"
#include "server/repo/hf/xorb.h"
#include "server/repo/hf/xshard.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_file(void *arg, const struct xshard_file *f)
{
    struct xshard_term t;

    (void)arg;
    for (uint32_t i = 0; i < f->terms; i++) {
        xshard_term(f, i, &t);
        CHECK(strlen(t.xorb) == XSHARD_HASH_HEX);
    }
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static uint8_t plain[XORB_CHUNK_BYTES];
    struct xorb_chunk c;

    (void)!xshard_each(slice_of((const char *)p, n), on_file, NULL, NULL);
    if (n > XORB_HEAD_BYTES && xorb_head(p, &c) && c.stored <= n - XORB_HEAD_BYTES) {
        /* Its own copy: a byte beyond it is one too many. */
        uint8_t *stored = mem_new(c.stored);
        memcpy(stored, p + XORB_HEAD_BYTES, c.stored);
        (void)!xorb_unpack(&c, stored, plain, NULL);
        free(stored);
    }
    return 0;
}
