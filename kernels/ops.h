/* ops.h - the operations of ops.def as tables, one per backend.
 *
 * A CUDA twin has exactly its CPU twin's type, or the compiler refuses the table. The CUDA half
 * is a shared object (trainer-cuda.so) opened at run time, so that the same program runs where
 * CUDA is not installed.
 *
 * threads  the tables are constant; kops_cuda() must first be called from one thread
 */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include "kernels/adamw.h"
#include "kernels/add.h"
#include "kernels/attention.h"
#include "kernels/attention_next.h"
#include "kernels/bias.h"
#include "kernels/convert.h"
#include "kernels/crossentropy.h"
#include "kernels/dev.h"
#include "kernels/embedding.h"
#include "kernels/gelu.h"
#include "kernels/layernorm.h"
#include "kernels/matmul.h"
#include "kernels/orthonormal.h"
#include "kernels/reduce.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

struct kops {
    const char *name; /* "cpu", "cuda" */
    char device[96];  /* for people: the chip's name */
    char place[32]; /* and its place, as the kernel's log names it: "0000:19:00.0"; "" if unknown */
    size_t stream_bytes; /* of the device's memory that each stream takes */
    bool bf16;           /* the device multiplies bf16 at full speed */
#define OP(name) __typeof__(name##_cpu) *name;
#include "kernels/ops.def"
#undef OP
};

struct err;

const struct kops *kops_cpu(void);
/* For that device of the machine. NULL without the shared object, a driver or the device; *e says
 * which. */
const struct kops *kops_cuda(int device, struct err *e);

#endif
