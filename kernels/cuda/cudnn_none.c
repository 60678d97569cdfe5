/* In the place of cudnn_attention.c where cuDNN's headers were not found. */
#include "kernels/cuda/cudnn_attention.h"

static int none_open(cudaStream_t stream, struct cudnn_attention **out, struct err *e)
{
    (void)stream;
    *out = NULL;
    return err_set(e, E_UNSUPPORTED, "this build has no support for cuDNN");
}

/* What was never opened is never called. */
const struct cudnn_calls cudnn_attention = {.open = none_open};
