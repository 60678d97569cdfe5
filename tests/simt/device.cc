#include "tests/simt/device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <map>

#include "common/base/err.h"
#include "kernels/cuda/stream.h"
#include "tests/simt/simt.h"

/* The table takes the CPU's. */
#define mem_room_cuda   mem_room_cpu
#define host_alloc_cuda host_alloc_cpu
#define range_begin_cuda range_begin_cpu
#define stream_watch_cuda stream_watch_cpu
#define range_end_cuda  range_end_cpu
#define host_free_cuda  host_free_cpu
#include "kernels/cuda/twins.h"

enum { ALIGNMENT = 256 }; /* as cudaMalloc() promises */

static std::map<void *, std::pair<void *, size_t>> mapped;

int stream_open_cuda(struct kstream **out)
{
    auto *ks = static_cast<struct kstream *>(calloc(1, sizeof **out));

    *out = ks;
    ks->multiprocessors = 132;
    int rc = matmul_plans_init(&ks->matmul);
    return rc != 0 ? rc : mem_alloc_cuda(&ks->scratch, SCRATCH_BYTES);
}

int stream_sync_cuda(struct kstream *)
{
    return 0;
}

void stream_close_cuda(struct kstream **sp)
{
    if (*sp != nullptr) {
        matmul_plans_fini(&(*sp)->matmul);
        mem_free_cuda((*sp)->scratch);
        free(*sp);
        *sp = nullptr;
    }
}

int mem_alloc_cuda(void **out, size_t size_bytes)
{
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    size_t used = (size_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    size_t whole = (used + page - 1) / page * page + page;
    void *map = mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (map == MAP_FAILED) {
        *out = nullptr;
        return E_NOSPACE;
    }
    mprotect(static_cast<char *>(map) + whole - page, page, PROT_NONE);
    *out = static_cast<char *>(map) + whole - page - used;
    mapped[*out] = {map, whole};
    return 0;
}

void mem_free_cuda(void *p)
{
    auto it = mapped.find(p);

    if (it != mapped.end()) {
        munmap(it->second.first, it->second.second);
        mapped.erase(it);
    }
}

int mem_zero_cuda(struct kstream *ks, void *p, size_t size_bytes)
{
    return mem_zero_cpu(ks, p, size_bytes);
}

int mem_copy_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_copy_cpu(ks, to, from, size_bytes);
}

int mem_copy_rows_cuda(struct kstream *ks, void *to, size_t to_step, const void *from,
                       size_t from_step, size_t row_bytes, int64_t rows)
{
    return mem_copy_rows_cpu(ks, to, to_step, from, from_step, row_bytes, rows);
}

int mem_put_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_put_cpu(ks, to, from, size_bytes);
}

int mem_get_cuda(struct kstream *ks, void *to, const void *from, size_t size_bytes)
{
    return mem_get_cpu(ks, to, from, size_bytes);
}

void simt_schedule(unsigned seed)
{
    simt_set_order(seed == 0 ? SIMT_FORWARD : seed == 1 ? SIMT_BACKWARD : SIMT_SHUFFLED, seed);
}

const struct kops *simt_kops(void)
{
    static struct kops table;

    table = (struct kops)
    {
        .name = "simt", .device = "the host", .bf16 = true,
#define OP(name) .name = name##_cuda,
#include "kernels/ops.def"
#undef OP
    };
    return &table;
}
