/* blas.h - which of OpenBLAS's kernels fit this processor.
 *
 * OpenBLAS chooses its kernels when the program starts, by the processor's model. A model younger
 * than the library gets those of 2004, with vectors of 128 bits: on a Xeon of family 6, model 207,
 * version 0.3.21 multiplied at a quarter of the speed of its kernels for AVX-512.
 *
 * threads  any
 */
#ifndef KERNELS_CPU_BLAS_H
#define KERNELS_CPU_BLAS_H

/* The name for $OPENBLAS_CORETYPE of kernels that fit better than those in use; NULL where OpenBLAS
 * knows the processor. OpenBLAS reads that variable before main() only. */
const char *blas_better_core(void);

#endif
