/* A model's config.json: what is accepted has a layout of sane size, and is read back from what we
 * write. */
#include <stdlib.h>

#include "agent/train/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buf text = BUF_INIT(1 << 16);
    struct model_config c, again;
    struct layout l;

    if (config_parse(slice_of(data, size), &c, NULL) == 0) {
        layout_init(&l, &c, 1);
        CHECK(l.parameters > 0 && l.size >= l.parameters && l.groups == c.layers + 2);
        layout_fini(&l);
        config_format(&c, &text);
        CHECK(config_parse(buf_slice(&text), &again, NULL) == 0);
        CHECK(again.hidden == c.hidden && again.head_dim == c.head_dim && again.tied == c.tied);
        buf_free(&text);
    }
    return 0;
}
