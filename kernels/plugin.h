/* plugin.h - the shared objects next to the program: trainer-cuda.so, trainer-nccl.so,
 * trainer-mpi.so.
 *
 * Each exports one function and keeps everything else inside, so the program links none of their
 * libraries. They are looked for in the program's folder, then in ../lib/mirrord relative to it;
 * never where a job's environment could point.
 *
 * threads  one at a time; an opened one stays open
 */
#ifndef KERNELS_PLUGIN_H
#define KERNELS_PLUGIN_H

#include "kernels/comm.h"

/* Their exports. `why` gets a sentence when they fail. */
typedef int plugin_cuda_fn(int device, struct kops *out, char *why, size_t room); /* plugin_cuda */
typedef int plugin_mpi_fn(const struct kops *k, bool ordered, struct comm **out, char *why,
                          size_t room); /* plugin_mpi */
/* plugin_nccl: with out NULL it makes an id, else it joins. */
typedef int plugin_nccl_fn(uint8_t *id, int rank, int size, uint64_t timeout_ms, struct comm **out,
                           char *why, size_t room);

#endif
