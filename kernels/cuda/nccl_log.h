/* nccl_log.h - reads NCCL's own log instead of showing it: how it connected the ranks, and its
 * last warning.
 *
 * If the user has set NCCL_DEBUG and NCCL_DEBUG_FILE they stay as they are, and nothing is known
 * from the log.
 *
 * threads  one, except nccl_log_warning()
 */
#ifndef KERNELS_CUDA_NCCL_LOG_H
#define KERNELS_CUDA_NCCL_LOG_H

#include <stddef.h>

/* Before the first NCCL call. */
void nccl_log_begin(void);
/* 22809, and "2.28.9". */
int nccl_log_version(char *out, size_t room);
/* "NCCL 2.28.9, network IB, via P2P/CUMEM NET/IB/0, 24 channels, NVLS 16"; after the first
 * collective, which connects. */
void nccl_log_facts(char *out, size_t room);
/* "" when there is none. */
void nccl_log_warning(char *out, size_t room);

#endif
