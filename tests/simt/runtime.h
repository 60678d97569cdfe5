/* runtime.h - streams of the host's GPU: queues of work that runs later than it was asked for, as
 * on a real one.
 *
 * A stream's work runs in its order; between streams only events give an order. Without SIMT_SEED
 * work runs as soon as it can, with SIMT_SEED=N not before somebody waits, and N chooses among the
 * streams that could go on: a missing wait then gives wrong numbers with some N. Work that says
 * "not yet" (a collective whose peers have not come, an event's wait) holds up its stream, and
 * whoever waits for that waits on, for ever if need be.
 *
 * SIMT_TRACE    a file's name, to which ".<rank>" is added: a line for each kernel, collective,
 *               record and wait, with its stream's number, and for the begin and end of each named
 *               range, in the order in which they were asked for (tests/harness/overlap.py makes a
 *               timeline of it)
 * FAKE_CUDA_NAME  the name of the GPU. If agent/train/peaks.def knows it, the trainer does not
 *               measure what it can do, which takes more kernels on a faster machine.
 * FAKE_CUDA     "memory=BYTES;illegal=N;ecc=N;kill=N;stop=N;gpus=8", a number for all ranks or
 *               "1.illegal=N" for one: the N-th kernel reads bad memory, or memory that is broken,
 *               and every call fails from then on; or its process is killed or stopped there
 *
 * threads  one of the host's
 */
#pragma once

#include <stdint.h>

#include <functional>

/* True: it is done. False: not yet, it is asked again. */
using simt_work = std::function<bool()>;

void simt_enqueue(const void *stream, simt_work work);
/* A kernel: what FAKE_CUDA's illegal counts. */
void simt_enqueue_kernel(const void *stream, std::function<void()> kernel);
/* A line of the trace. */
void simt_trace(const void *stream, const char *what, uint64_t number);
/* Device memory that a library takes. */
bool simt_take_memory(size_t size_bytes);
/* The number that `variable` has for `name`, or for "<rank>.<name>". */
long simt_wish(const char *variable, const char *name, long otherwise);
