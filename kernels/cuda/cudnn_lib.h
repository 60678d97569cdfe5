/* cudnn_lib.h - the part of cuDNN that we call, found at run time: a machine without it runs our
 * own kernels.
 *
 * Major version 9 from 9.6 on is accepted, except 9.10.0 and 9.10.1: their backward attention is
 * known to be wrong.
 *
 * owns     the library stays open once it was found
 * threads  cudnn_lib() one at a time
 */
#ifndef KERNELS_CUDA_CUDNN_LIB_H
#define KERNELS_CUDA_CUDNN_LIB_H

#include <cudnn.h>

#include "common/base/err.h"

#define CUDNN_CALLS(CALL)                                                                          \
    CALL(cudnnGetVersion)                                                                          \
    CALL(cudnnGetErrorString)                                                                      \
    CALL(cudnnGetLastErrorString)                                                                  \
    CALL(cudnnCreate)                                                                              \
    CALL(cudnnDestroy)                                                                             \
    CALL(cudnnSetStream)                                                                           \
    CALL(cudnnBackendCreateDescriptor)                                                             \
    CALL(cudnnBackendDestroyDescriptor)                                                            \
    CALL(cudnnBackendSetAttribute)                                                                 \
    CALL(cudnnBackendGetAttribute)                                                                 \
    CALL(cudnnBackendFinalize)                                                                     \
    CALL(cudnnBackendExecute)

struct cudnn_lib {
    size_t version; /* 91900 is 9.19.0 */
#define CALL(name) __typeof__(name) *name;
    CUDNN_CALLS(CALL)
#undef CALL
};

/* NULL when there is no usable one; *e says why. */
const struct cudnn_lib *cudnn_lib(struct err *e);

#endif
