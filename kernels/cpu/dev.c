#include "kernels/dev.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/err.h"

struct kstream {
    int unused;
};

int stream_open_cpu(struct kstream **out)
{
    /* matmul.c splits its work among OpenMP's threads; a second pool inside OpenBLAS would fight them for the cores. */
    openblas_set_num_threads(1);
    *out = NEW(struct kstream);
    return 0;
}

int stream_sync_cpu(struct kstream *ks)
{
    (void)ks;
    return 0;
}

void stream_close_cpu(struct kstream **sp)
{
    free(*sp);
    *sp = NULL;
}

int mem_alloc_cpu(void **out, size_t size_bytes)
{
    size_t rounded = (size_bytes + 255) / 256 * 256;

    *out = rounded < size_bytes ? NULL : aligned_alloc(256, rounded == 0 ? 256 : rounded);
    if (*out == NULL) {
        return E_NOSPACE;
    }
    memset(*out, 0, rounded);
    return 0;
}

void mem_free_cpu(void *p)
{
    free(p);
}

int mem_zero_cpu(struct kstream *ks, void *p, size_t size_bytes)
{
    (void)ks;
    memset(p, 0, size_bytes);
    return 0;
}

int mem_copy_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    (void)ks;
    memcpy(to, from, size_bytes);
    return 0;
}

int mem_put_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_copy_cpu(ks, to, from, size_bytes);
}

int mem_get_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_copy_cpu(ks, to, from, size_bytes);
}
