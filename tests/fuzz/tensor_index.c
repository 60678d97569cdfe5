/* model.safetensors.index.json: it may be anything, and names no file outside its folder. */
#include "agent/train/tensorset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int rc = tensorset_parse_index(slice_of(data, size), NULL);

    CHECK(rc == 0 || rc == E_CORRUPT);
    return 0;
}
