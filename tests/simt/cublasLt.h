/* cublasLt.h - the names that a stream's fields have; tests/simt multiplies on the CPU. */
#pragma once

typedef struct simt_opaque *cublasLtHandle_t;
typedef struct simt_opaque *cublasLtMatmulDesc_t;
typedef struct simt_opaque *cublasLtMatrixLayout_t;
typedef struct simt_opaque *cublasLtMatmulAlgo_t;
