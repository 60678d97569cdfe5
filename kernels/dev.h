/* dev.h - element types, streams and memory: what every backend has beside its operations.
 *
 * An operation is a function `<name>_cpu` with a twin `<name>_cuda` of the same type; ops.h gathers them into tables.
 * All of them take the stream first, run on it in order, and return 0 or E_CUDA / E_UNSUPPORTED. On the CPU a stream is
 * a formality and calls return when the work is done; on CUDA they return when it is queued.
 *
 * memory   belongs to the backend that allocated it; on CUDA only mem_put and mem_get cross the border
 * dtypes   tensors and statistics (mean, rstd, lse, losses) are f32, or f64 throughout; sums over tensors are f64
 * threads  one thread a stream
 */
#ifndef KERNELS_DEV_H
#define KERNELS_DEV_H

#include <stddef.h>
#include <stdint.h>

enum dtype { DT_F32, DT_F64 };

static inline size_t dtype_bytes(enum dtype dt)
{
    return dt == DT_F64 ? sizeof(double) : sizeof(float);
}

/* What sums, statistics and parameter gradients are kept in. */
static inline enum dtype dtype_accum(enum dtype dt)
{
    return dt == DT_F64 ? DT_F64 : DT_F32;
}

struct kstream;

int stream_open_cpu(struct kstream **out);
int stream_sync_cpu(struct kstream *ks);
void stream_close_cpu(struct kstream **sp); /* NULL is fine */

int mem_alloc_cpu(void **out, size_t size_bytes); /* zeroed, 256-byte aligned */
void mem_free_cpu(void *p);
int mem_room_cpu(size_t *free_bytes); /* what may still be allocated, about */
int mem_zero_cpu(struct kstream *ks, void *p, size_t size_bytes);
int mem_copy_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes);
/* Host to device; `from` may be reused when it returns. */
int mem_put_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes);
/* Device to host; waits for the stream, so the bytes are there when it returns. */
int mem_get_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes);

#endif
