/* jsonline.c - fuzzes a line of .jsonl: no crash, no loop, and what it gives is no longer than the
 * line. */
#include "agent/train/jsonline.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct buf out = BUF_INIT(1 << 20);

    if (jsonline_text(slice_of(p, n), SLICE("text"), &out, NULL) == 0) {
        CHECK(out.n < n);
    }
    buf_free(&out);
    return 0;
}
