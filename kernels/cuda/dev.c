#include "kernels/dev.h"

#include <stdlib.h>
#include <time.h>

#include "common/base/err.h"
#include "kernels/cuda/fault.h"
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

/* An H100's where the device does not say. */
static unsigned multiprocessors(void)
{
    int device = 0, n = 0;

    return cudaGetDevice(&device) == cudaSuccess &&
                   cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device) ==
                       cudaSuccess &&
                   n > 0
               ? (unsigned)n
               : 132;
}

_Static_assert(CUDA_STREAM_BYTES == MATMUL_WORKSPACE_BYTES + SCRATCH_BYTES, "as plans count it");

int stream_open_cuda(struct kstream **out)
{
    struct kstream *ks = calloc(1, sizeof *ks);

    *out = NULL;
    if (ks == NULL) {
        return E_NOSPACE;
    }
    if (TRY_CUDA(cudaStreamCreateWithFlags(&ks->stream, cudaStreamNonBlocking)) != 0 ||
        TRY_CUDA(cudaEventCreateWithFlags(&ks->waited, cudaEventDisableTiming)) != 0 ||
        matmul_plans_init(&ks->matmul) != 0 ||
        TRY_CUDA(cudaMalloc(&ks->scratch, SCRATCH_BYTES)) != 0) {
        stream_close_cuda(&ks);
        return E_CUDA;
    }
    ks->sm = compute_capability();
    ks->multiprocessors = multiprocessors();
    *out = ks;
    return 0;
}

/* The first asks come at once, for most waits are short. */
static void pause_between(int asked)
{
    enum { AT_ONCE = 200, PAUSE_NS = 50000 };

    if (asked > AT_ONCE) {
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    }
}

/* The kernel of a collective whose peer is gone never ends, and a call that waits for it never
 * returns: so the host only asks whether the stream has got there, and poll() says when that is of
 * no more use. */
static int wait_by_asking(struct kstream *ks)
{
    int rc = TRY_CUDA(cudaEventRecord(ks->waited, ks->stream));
    cudaError_t got = cudaErrorNotReady;

    for (int asked = 0; rc == 0 && got == cudaErrorNotReady; asked++) {
        got = cudaEventQuery(ks->waited);
        if (got == cudaErrorNotReady) {
            (void)cudaGetLastError(); /* no error: no later call is to be blamed */
            pause_between(asked);
        } else {
            rc = TRY_CUDA(got);
        }
        rc = rc != 0 ? rc : ks->poll(ks->poll_arg);
    }
    return rc;
}

int stream_sync_cuda(struct kstream *ks)
{
    return ks->poll != NULL ? wait_by_asking(ks) : TRY_CUDA(cudaStreamSynchronize(ks->stream));
}

void stream_watch_cuda(struct kstream *ks, int (*poll)(void *arg), void *arg)
{
    ks->poll = poll;
    ks->poll_arg = arg;
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
    if (ks->waited != NULL) {
        cudaEventDestroy(ks->waited);
    }
    if (ks->stream != NULL) {
        cudaStreamDestroy(ks->stream);
    }
    free(ks);
}

struct kevent {
    cudaEvent_t event;
};

int event_open_cuda(struct kevent **out)
{
    struct kevent *ev = calloc(1, sizeof *ev);

    *out = NULL;
    if (ev == NULL) {
        return E_NOSPACE;
    }
    if (TRY_CUDA(cudaEventCreateWithFlags(&ev->event, cudaEventDisableTiming)) != 0) {
        free(ev);
        return E_CUDA;
    }
    *out = ev;
    return 0;
}

void event_close_cuda(struct kevent **ep)
{
    if (*ep != NULL) {
        cudaEventDestroy((*ep)->event);
        free(*ep);
        *ep = NULL;
    }
}

int event_record_cuda(struct kevent *ev, struct kstream *ks)
{
    return TRY_CUDA(cudaEventRecord(ev->event, ks->stream));
}

int event_wait_cuda(struct kevent *ev, struct kstream *ks)
{
    return TRY_CUDA(cudaStreamWaitEvent(ks->stream, ev->event, 0));
}

/* No room is an answer, not a broken device; but a broken device has no room either, and that is
 * another matter. */
static int no_room(cudaError_t rc, const char *who, int line)
{
    if (rc == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return E_NOSPACE;
    }
    return fault_at(rc, who, line);
}

int mem_alloc_cuda(void **out, size_t size_bytes)
{
    cudaError_t rc = cudaMalloc(out, size_bytes == 0 ? 256 : size_bytes);

    if (rc != cudaSuccess) {
        *out = NULL;
        return no_room(rc, __func__, __LINE__);
    }
    /* Streams here do not wait for the default one: the zeros must be there before anyone uses the
     * memory. */
    rc = cudaMemset(*out, 0, size_bytes);
    rc = rc != cudaSuccess ? rc : cudaDeviceSynchronize();
    if (rc != cudaSuccess) {
        cudaFree(*out);
        *out = NULL;
    }
    return TRY_CUDA(rc);
}

void mem_free_cuda(void *p)
{
    cudaFree(p); /* waits for work that uses it */
}

/* Kernels are loaded when they are first launched, cuBLASLt's and cuDNN's too: that much is left
 * for them. */
#define KERNELS_BYTES ((size_t)256 << 20)

int mem_room_cuda(size_t *free_bytes)
{
    size_t total;
    int rc = TRY_CUDA(cudaMemGetInfo(free_bytes, &total));

    if (rc == 0) {
        *free_bytes -= *free_bytes < KERNELS_BYTES ? *free_bytes : KERNELS_BYTES;
    }
    return rc;
}

int host_alloc_cuda(void **out, size_t size_bytes)
{
    cudaError_t rc = cudaHostAlloc(out, size_bytes == 0 ? 1 : size_bytes, cudaHostAllocDefault);

    if (rc != cudaSuccess) {
        *out = NULL;
        return no_room(rc, __func__, __LINE__);
    }
    return 0;
}

void host_free_cuda(void *p)
{
    cudaFreeHost(p);
}

int mem_zero_cuda(struct kstream *ks, void *p, size_t size_bytes)
{
    return TRY_CUDA(cudaMemsetAsync(p, 0, size_bytes, ks->stream));
}

int mem_copy_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return TRY_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToDevice, ks->stream));
}

int mem_copy_rows_cuda(struct kstream *ks, void *to, size_t to_step, const void *from,
                       size_t from_step, size_t row_bytes, int64_t rows)
{
    return TRY_CUDA(cudaMemcpy2DAsync(to, to_step, from, from_step, row_bytes, (size_t)rows,
                                      cudaMemcpyDeviceToDevice, ks->stream));
}

int mem_put_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    /* From pageable memory this returns when the bytes have been staged. */
    return TRY_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyHostToDevice, ks->stream));
}

int mem_get_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    /* Into pageable memory the copy itself waits for all that is before it. */
    int rc = ks->poll != NULL ? wait_by_asking(ks) : 0;

    rc = rc != 0
             ? rc
             : TRY_CUDA(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDeviceToHost, ks->stream));
    return rc != 0 ? rc : stream_sync_cuda(ks);
}
