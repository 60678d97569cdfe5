/* The safetensors header parser: whatever it accepts must tile the data exactly. */
#include <stdlib.h>

#include "common/codec/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors *s;
    uint64_t sum = 0;

    if (size < 8) {
        return 0;
    }
    if (safetensors_parse(slice_of(data, size), size, &s, NULL) == 0) {
        for (size_t i = 0; i < safetensors_count(s); i++) {
            const struct st_tensor *t = safetensors_at(s, i);

            CHECK(t->begin + t->size_bytes <= size);
            CHECK(safetensors_find(s, t->name) != NULL);
            sum += t->size_bytes;
        }
        CHECK(sum < size);
        safetensors_close(&s);
    }
    return 0;
}
