/* Names of tensors' slices: what is taken is told by the same name again, and leads to no element
 * outside of its rectangle. */
#include "agent/train/region.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice tensor;
    struct region r;
    int64_t at;

    if (region_parse(slice_of(data, size), &tensor, &r)) {
        CHECK(r.rows > 0 && r.cols > 0 && r.n > 0 && r.from + r.n <= r.rows * r.cols);
        CHECK(region_run(&r, r.n - 1, &r, &at) == 1 && at == r.n - 1);
    }
    return 0;
}
