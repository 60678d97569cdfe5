/* dev.h - element types, streams and memory: what every backend has in addition to its
 * operations.
 *
 * An operation is a function `<name>_cpu` with a twin `<name>_cuda` of the same type; ops.h
 * collects them in tables. All of them take the stream first, run on it in order, and return 0 or
 * E_CUDA / E_SICK / E_UNSUPPORTED. On the CPU a stream is a formality, and calls return when the
 * work is done; on CUDA they return when it is queued.
 *
 * memory   belongs to the backend that allocated it; on CUDA only mem_put and mem_get copy between
 *          host and device
 * dtypes   an operation's dt is the type of its tensors (activations, their gradients, parameters).
 *          Statistics (mean, rstd, lse, losses) and gradients of parameters are of dtype_accum(dt),
 *          sums over whole tensors are f64. Inside, values are widened to dtype_accum(dt) and
 *          rounded once, when they are stored
 * threads  one per stream
 */
#ifndef KERNELS_DEV_H
#define KERNELS_DEV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* In functions that both compilers see. */
#ifdef __CUDACC__
#    define HOST_DEVICE __host__ __device__
#else
#    define HOST_DEVICE
#endif

enum dtype { DT_F32, DT_F64, DT_BF16, DT_F16 };

static inline size_t dtype_bytes(enum dtype dt)
{
    return dt == DT_F64 ? sizeof(double) : dt == DT_F32 ? sizeof(float) : sizeof(uint16_t);
}

/* What sums, statistics and parameter gradients are kept in. */
static inline enum dtype dtype_accum(enum dtype dt)
{
    return dt == DT_F64 ? DT_F64 : DT_F32;
}

struct kstream;

/* The device memory that a CUDA stream takes: half of it for products, half for sums. */
enum { CUDA_STREAM_BYTES = 128 << 20 };

/* The device's message when an operation first failed, for people, with its place; "" if none
 * has. For E_CUDA and E_SICK: afterwards this process cannot use the device any more, and after
 * E_SICK no other process can. */
const char *fault_cpu(void);

int stream_open_cpu(struct kstream **out);
int stream_sync_cpu(struct kstream *ks);
/* Every wait for the stream calls poll(arg) repeatedly, and ends with its error. NULL stops that.
 * After such a failure the stream may have work that never ends: nothing may be freed then. */
void stream_watch_cpu(struct kstream *ks, int (*poll)(void *arg), void *arg);
void stream_close_cpu(struct kstream **sp); /* NULL is fine */

/* A mark on a stream, for another stream. Waiting for an event that was never recorded does not
 * wait. */
struct kevent;

int event_open_cpu(struct kevent **out);
void event_close_cpu(struct kevent **ep); /* NULL is fine */
/* Marks what is queued on ks so far; replaces its former mark. */
int event_record_cpu(struct kevent *ev, struct kstream *ks);
/* What is queued on ks from now on runs after what the event marks now. */
int event_wait_cpu(struct kevent *ev, struct kstream *ks);

int mem_alloc_cpu(void **out, size_t size_bytes); /* zeroed, 256-byte aligned */
void mem_free_cpu(void *p);
int mem_room_cpu(size_t *free_bytes); /* about how much can still be allocated */
/* Host memory that mem_get and mem_put copy at full speed (pinned, on CUDA); not zeroed. */
int host_alloc_cpu(void **out, size_t size_bytes);
void host_free_cpu(void *p); /* NULL is fine */
int mem_zero_cpu(struct kstream *ks, void *p, size_t size_bytes);
int mem_copy_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes);
/* A rectangle: `rows` rows of row_bytes, so many bytes apart on either side. */
int mem_copy_rows_cpu(struct kstream *ks, void *to, size_t to_step, const void *from,
                      size_t from_step, size_t row_bytes, int64_t rows);
/* Host to device; `from` may be reused when it returns, but memory of host_alloc only after a
 * wait for the stream. */
int mem_put_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes);
/* Device to host; waits for the stream, so the bytes are there when it returns. */
int mem_get_cpu(struct kstream *ks, void *to, const void *from, size_t size_bytes);

/* Names a period of the calling thread's time for a profiler (NVTX, on CUDA); can be nested, and
 * does nothing without a profiler. */
void range_begin_cpu(const char *name);
void range_end_cpu(void);

#endif
