/* The small operations in one translation unit: of the time that a file of theirs takes to compile,
 * half and more goes into CUDA's headers. What is static in one must have a name that no other has.
 */
#include "kernels/cuda/adamw.cu"
#include "kernels/cuda/add.cu"
#include "kernels/cuda/attention_next.cu"
#include "kernels/cuda/bias.cu"
#include "kernels/cuda/convert.cu"
#include "kernels/cuda/gelu.cu"
#include "kernels/cuda/layernorm.cu"
#include "kernels/cuda/orthonormal.cu"
#include "kernels/cuda/probe.cu"
#include "kernels/cuda/rmsnorm.cu"
#include "kernels/cuda/rope.cu"
#include "kernels/cuda/swiglu.cu"
