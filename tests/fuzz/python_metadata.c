/* python_metadata.c - fuzzes the reader of core metadata: what it gives lies inside the text. */
#include "server/repo/python/metadata.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_requires(void *arg, struct slice requirement, struct err *e)
{
    const struct slice *all = arg;

    (void)e;
    CHECK(requirement.n == 0 ||
          (requirement.p >= all->p && requirement.p + requirement.n <= all->p + all->n));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice text = slice_of(p, n), name, version;
    struct metadata_events ev = {on_requires, &text};

    if (metadata_read(text, &ev, &name, &version, NULL) == 0) {
        CHECK(name.n <= n && version.n <= n);
    }
    return 0;
}
