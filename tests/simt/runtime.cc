#include "tests/simt/runtime.h"

#include <cuda_runtime.h>
#include <nvtx3/nvToolsExt.h>

#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

enum { ALIGNMENT = 256, POISON_MAX = 1 << 20, EVENTS_APART = 1000000 };

/* What cudaEventRecord() and those that wait for it share; the handle may go first. */
struct mark {
    uint64_t asked, reached;
    float ms;
    uint64_t number; /* which event */
};

struct simt_event {
    std::shared_ptr<mark> m;
};

struct simt_stream {
    std::deque<simt_work> work;
};

namespace
{

simt_stream default_stream;
std::vector<simt_stream *> streams = {&default_stream};
std::map<void *, std::pair<void *, size_t>> mapped;    /* device memory */
std::map<const char *, size_t> pinned;                 /* host memory that copies read late */
size_t taken;
cudaError_t sticky = cudaSuccess;
long kernels;
bool running;

struct turns {
    bool lazy;
    uint64_t state;
    turns()
    {
        const char *seed = getenv("SIMT_SEED");

        lazy = seed != nullptr;
        state = lazy ? strtoull(seed, nullptr, 10) + 1 : 1;
    }
    size_t next(size_t n)
    {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<size_t>(state >> 33) % n;
    }
} turn;

/* One piece of some stream's work; false when no stream can go on. */
bool pump()
{
    size_t n = streams.size(), first = turn.lazy ? turn.next(n) : 0;

    if (running || sticky != cudaSuccess) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        simt_stream *s = streams[(first + i) % n];

        if (s->work.empty()) {
            continue;
        }
        running = true;
        bool done = s->work.front()();
        running = false;
        if (done) {
            s->work.pop_front();
            return true;
        }
    }
    return false;
}

void nap()
{
    struct timespec t = {0, 100000};

    nanosleep(&t, nullptr);
}

template <typename F> cudaError_t wait_until(F holds)
{
    while (!holds() && sticky == cudaSuccess) {
        if (!pump()) {
            nap();
        }
    }
    return sticky;
}

simt_stream *stream_of(const void *stream)
{
    return stream == nullptr ? &default_stream
                             : const_cast<simt_stream *>(static_cast<const simt_stream *>(stream));
}

bool is_pinned(const void *p, size_t n)
{
    auto it = pinned.upper_bound(static_cast<const char *>(p));

    if (it == pinned.begin()) {
        return false;
    }
    --it;
    return static_cast<const char *>(p) + n <= it->first + it->second;
}

size_t total_memory()
{
    return static_cast<size_t>(simt_wish("FAKE_CUDA", "memory", 64L << 30));
}

} // namespace

long simt_wish(const char *variable, const char *name, long otherwise)
{
    const char *all = getenv(variable), *rank = getenv("RANK");
    std::string plain = std::string(name) + "=";
    std::string mine = std::string(rank != nullptr ? rank : "0") + "." + plain;

    for (const std::string &want : {mine, plain}) {
        for (const char *p = all; p != nullptr && *p != '\0'; p += strcspn(p, ";"), p += *p == ';') {
            if (strncmp(p, want.c_str(), want.size()) == 0) {
                return strtol(p + want.size(), nullptr, 10);
            }
        }
    }
    return otherwise;
}

void simt_enqueue(const void *stream, simt_work work)
{
    stream_of(stream)->work.push_back(std::move(work));
    while (!turn.lazy && pump()) {
    }
}

void simt_trace(const void *stream, const char *what, uint64_t number)
{
    static FILE *f = [] {
        const char *path = getenv("SIMT_TRACE"), *rank = getenv("RANK");
        std::string name = std::string(path != nullptr ? path : "") + "." + (rank != nullptr ? rank : "0");

        return path != nullptr ? fopen(name.c_str(), "w") : nullptr;
    }();
    size_t at = static_cast<size_t>(std::find(streams.begin(), streams.end(), stream_of(stream)) - streams.begin());

    if (f != nullptr) {
        fprintf(f, "%zu %s %llu\n", at, what, static_cast<unsigned long long>(number));
        fflush(f);
    }
}

void simt_enqueue_kernel(const void *stream, std::function<void()> kernel)
{
    simt_trace(stream, "kernel", 0);
    simt_enqueue(stream, [kernel] {
        kernels++;
        if (kernels == simt_wish("FAKE_CUDA", "kill", 0)) {
            raise(SIGKILL);
        }
        if (kernels == simt_wish("FAKE_CUDA", "stop", 0)) {
            raise(SIGSTOP);
        }
        if (kernels == simt_wish("FAKE_CUDA", "illegal", 0)) {
            sticky = cudaErrorIllegalAddress;
        } else if (kernels == simt_wish("FAKE_CUDA", "ecc", 0)) {
            sticky = cudaErrorECCUncorrectable;
        } else {
            kernel();
        }
        return true;
    });
}

int nvtxRangePushA(const char *name)
{
    simt_trace(nullptr, (std::string("begin:") + name).c_str(), 0);
    return 0;
}

int nvtxRangePop(void)
{
    simt_trace(nullptr, "end", 0);
    return 0;
}

bool simt_take_memory(size_t size_bytes)
{
    if (taken + size_bytes > total_memory()) {
        return false;
    }
    taken += size_bytes;
    return true;
}

/* --- the device ------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void)
{
    return sticky;
}

const char *cudaGetErrorName(cudaError_t rc)
{
    return rc == cudaErrorInvalidConfiguration ? "cudaErrorInvalidConfiguration"
           : rc == cudaErrorIllegalAddress     ? "cudaErrorIllegalAddress"
           : rc == cudaErrorECCUncorrectable   ? "cudaErrorECCUncorrectable"
                                               : "cudaErrorMemoryAllocation";
}

const char *cudaGetErrorString(cudaError_t rc)
{
    return rc == cudaErrorMemoryAllocation ? "out of memory" : "not as it should be";
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = static_cast<int>(simt_wish("FAKE_CUDA", "gpus", 8));
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int)
{
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int)
{
    *prop = {};
    const char *name = getenv("FAKE_CUDA_NAME");
    snprintf(prop->name, sizeof prop->name, "%s", name != nullptr ? name : "the host");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *name, int room, int device)
{
    snprintf(name, static_cast<size_t>(room), "0000:%02x:00.0", 0x10 + device);
    return sticky;
}

/* Little shared memory, so that rows need not be long to have no room in it. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int)
{
    *value = which == cudaDevAttrMaxSharedMemoryPerBlockOptin ? 6 << 10
             : which == cudaDevAttrMultiProcessorCount        ? 132
                                                              : 0;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    return wait_until([] {
        for (simt_stream *s : streams) {
            if (!s->work.empty()) {
                return false;
            }
        }
        return true;
    });
}

/* --- streams and events ----------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned)
{
    *out = new simt_stream();
    streams.push_back(*out);
    return sticky;
}

/* What is left on it still runs, as CUDA promises. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t rc = cudaStreamSynchronize(stream);

    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return rc;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    simt_stream *s = stream_of(stream);

    return wait_until([s] { return s->work.empty(); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    std::shared_ptr<mark> m = event->m;
    uint64_t want = m->asked;

    simt_trace(stream, "wait", m->number * EVENTS_APART + want);
    simt_enqueue(stream, [m, want] { return m->reached >= want; });
    return sticky;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t, enum cudaStreamCaptureStatus *status)
{
    *status = cudaStreamCaptureStatusNone;
    return sticky;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    static uint64_t events;

    *out = new simt_event{std::make_shared<mark>()};
    (*out)->m->number = ++events;
    return sticky;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned)
{
    return cudaEventCreate(out);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return sticky;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    std::shared_ptr<mark> m = event->m;
    uint64_t now = ++m->asked;

    simt_trace(stream, "record", m->number * EVENTS_APART + now);

    simt_enqueue(stream, [m, now] {
        m->reached = now;
        m->ms = simt_clock_ms();
        return true;
    });
    return sticky;
}

/* The device goes on while the host asks. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    pump();
    if (sticky != cudaSuccess) {
        return sticky;
    }
    return event->m->reached >= event->m->asked ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    std::shared_ptr<mark> m = event->m;

    return wait_until([m] { return m->reached >= m->asked; });
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t begin, cudaEvent_t end)
{
    *ms = end->m->ms - begin->m->ms;
    return sticky;
}

/* --- memory ----------------------------------------------------------------------------------- */

/* It ends where memory may not be touched, and holds NaN in every type. */
cudaError_t cudaMalloc(void **out, size_t size_bytes)
{
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t used = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t whole = (used + page - 1) / page * page + page;
    void *map;

    *out = nullptr;
    if (sticky != cudaSuccess) {
        return sticky;
    }
    if (!simt_take_memory(whole)) {
        return cudaErrorMemoryAllocation;
    }
    map = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
    if (map == MAP_FAILED) {
        taken -= whole;
        return cudaErrorMemoryAllocation;
    }
    mprotect(static_cast<char *>(map) + whole - page, page, PROT_NONE);
    *out = static_cast<char *>(map) + whole - page - used;
    memset(*out, 0xff, used < POISON_MAX ? used : 0);
    mapped[*out] = {map, whole};
    return cudaSuccess;
}

/* Waits for all work there is, as the real one does. */
cudaError_t cudaFree(void *p)
{
    cudaError_t rc = cudaDeviceSynchronize();
    auto it = mapped.find(p);

    if (it != mapped.end()) {
        taken -= it->second.second;
        munmap(it->second.first, it->second.second);
        mapped.erase(it);
    }
    return rc;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    *total_bytes = total_memory();
    *free_bytes = *total_bytes - taken;
    return sticky;
}

cudaError_t cudaHostAlloc(void **out, size_t size_bytes, unsigned)
{
    *out = aligned_alloc(ALIGNMENT, (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (*out == nullptr) {
        return cudaErrorMemoryAllocation;
    }
    pinned[static_cast<const char *>(*out)] = size_bytes;
    return sticky;
}

cudaError_t cudaFreeHost(void *p)
{
    cudaError_t rc = cudaDeviceSynchronize();

    pinned.erase(static_cast<const char *>(p));
    free(p);
    return rc;
}

cudaError_t cudaMemset(void *p, int value, size_t size_bytes)
{
    return cudaMemsetAsync(p, value, size_bytes, nullptr);
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t size_bytes, cudaStream_t stream)
{
    simt_enqueue(stream, [=] {
        memset(p, value, size_bytes);
        return true;
    });
    return sticky;
}

/* Pageable memory is staged when the call is made (to the device), or waited for (from it); pinned
 * memory is read and written when the stream gets there. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    if (kind == cudaMemcpyHostToDevice && !is_pinned(from, size_bytes)) {
        auto staged = std::make_shared<std::vector<char>>(static_cast<const char *>(from),
                                                          static_cast<const char *>(from) +
                                                              size_bytes);
        simt_enqueue(stream, [=] {
            memcpy(to, staged->data(), size_bytes);
            return true;
        });
        return sticky;
    }
    simt_enqueue(stream, [=] {
        memmove(to, from, size_bytes);
        return true;
    });
    return kind == cudaMemcpyDeviceToHost && !is_pinned(to, size_bytes)
               ? cudaStreamSynchronize(stream)
               : sticky;
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step,
                              size_t row_bytes, size_t rows, enum cudaMemcpyKind,
                              cudaStream_t stream)
{
    simt_enqueue(stream, [=] {
        for (size_t i = 0; i < rows; i++) {
            memcpy(static_cast<char *>(to) + i * to_step,
                   static_cast<const char *>(from) + i * from_step, row_bytes);
        }
        return true;
    });
    return sticky;
}
