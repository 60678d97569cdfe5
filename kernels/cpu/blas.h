/* blas.h - finds out whether OpenBLAS uses the right kernels for this processor.
 *
 * OpenBLAS chooses its kernels when the program starts, by the processor's model. A model newer
 * than the library gets kernels of 2004, with vectors of 128 bits: on a Xeon of family 6, model
 * 207, version 0.3.21 multiplied at a quarter of the speed of its kernels for AVX-512.
 *
 * threads  any
 */
#ifndef KERNELS_CPU_BLAS_H
#define KERNELS_CPU_BLAS_H

/* The value of $OPENBLAS_CORETYPE for better kernels than those in use; NULL when OpenBLAS knows
 * the processor. OpenBLAS reads that variable only before main(). */
const char *blas_better_core(void);

#endif
