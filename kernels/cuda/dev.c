#include "kernels/dev.h"

#include <stdlib.h>

#include "common/base/err.h"
#include "kernels/cuda/stream.h"
#include "kernels/cuda/twins.h"

static int compute_capability(void)
{
    int device = 0, major = 0, minor = 0;

    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess) {
        return 0;
    }
    return 10 * major + minor;
}

int stream_open_cuda(struct kstream **out)
{
    struct kstream *ks = calloc(1, sizeof *ks);

    *out = NULL;
    if (ks == NULL) {
        return E_NOSPACE;
    }
    if (cudaStreamCreateWithFlags(&ks->stream, cudaStreamNonBlocking) != cudaSuccess ||
        matmul_plans_init(&ks->matmul) != 0 ||
        cudaMalloc(&ks->scratch, SCRATCH_BYTES) != cudaSuccess) {
        stream_close_cuda(&ks);
        return E_CUDA;
    }
    ks->sm = compute_capability();
    *out = ks;
    return 0;
}

int stream_sync_cuda(struct kstream *ks)
{
    return cudaStreamSynchronize(ks->stream) == cudaSuccess ? 0 : E_CUDA;
}

void stream_close_cuda(struct kstream **sp)
{
    struct kstream *ks = *sp;

    if (ks == NULL) {
        return;
    }
    *sp = NULL;
    attention_choice_fini(&ks->attention);
    cudaFree(ks->scratch);
    matmul_plans_fini(&ks->matmul);
    if (ks->stream != NULL) {
        cudaStreamDestroy(ks->stream);
    }
    free(ks);
}

int mem_alloc_cuda(void **out, size_t size_bytes)
{
    *out = NULL;
    if (cudaMalloc(out, size_bytes == 0 ? 256 : size_bytes) != cudaSuccess) {
        *out = NULL;
        (void)cudaGetLastError(); /* no room is an answer, not a broken device */
        return E_NOSPACE;
    }
    /* Streams here do not wait for the default one: the zeros must be there before anyone uses the memory. */
    return cudaMemset(*out, 0, size_bytes) == cudaSuccess && cudaDeviceSynchronize() == cudaSuccess
               ? 0
               : E_CUDA;
}

void mem_free_cuda(void *p)
{
    cudaFree(p); /* waits for work that uses it */
}

int mem_room_cuda(size_t *free_bytes)
{
    size_t total;

    return cudaMemGetInfo(free_bytes, &total) == cudaSuccess ? 0 : E_CUDA;
}

int host_alloc_cuda(void **out, size_t size_bytes)
{
    *out = NULL;
    if (cudaHostAlloc(out, size_bytes == 0 ? 1 : size_bytes, cudaHostAllocDefault) != cudaSuccess) {
        *out = NULL;
        (void)cudaGetLastError();
        return E_NOSPACE;
    }
    return 0;
}

void host_free_cuda(void *p)
{
    cudaFreeHost(p);
}

int mem_zero_cuda(struct kstream *ks, void *p, size_t size_bytes)
{
    return cudaMemsetAsync(p, 0, size_bytes, ks->stream) == cudaSuccess ? 0 : E_CUDA;
}

int mem_copy_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, ks->stream) ==
                   cudaSuccess
               ? 0
               : E_CUDA;
}

int mem_copy_rows_cuda(struct kstream *ks, void *to, size_t to_step, const void *from,
                       size_t from_step, size_t row_bytes, int64_t rows)
{
    return cudaMemcpy2DAsync(to, to_step, from, from_step, row_bytes, (size_t)rows,
                             cudaMemcpyDeviceToDevice, ks->stream) == cudaSuccess
               ? 0
               : E_CUDA;
}

int mem_put_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    /* From pageable memory this returns when the bytes have been staged. */
    return cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, ks->stream) == cudaSuccess
               ? 0
               : E_CUDA;
}

int mem_get_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    if (cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, ks->stream) != cudaSuccess) {
        return E_CUDA;
    }
    return stream_sync_cuda(ks);
}
