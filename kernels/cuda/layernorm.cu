#include "kernels/cuda/norm.cuh"

extern "C" int layernorm_forward_cuda(struct kstream *ks, enum dtype dt, void *y, void *mean,
                                      void *rstd, const void *x, const void *g, const void *b,
                                      int64_t rows, int64_t cols, double eps)
{
    return norm_forward<true>(ks, dt, y, mean, rstd, x, g, b, rows, cols, eps);
}

extern "C" int layernorm_backward_cuda(struct kstream *ks, enum dtype dt, void *dx, void *dg,
                                       void *db, void *dsum, const void *dy, const void *x,
                                       const void *g, const void *mean, const void *rstd,
                                       int64_t rows, int64_t cols)
{
    return norm_backward<true>(ks, dt, dx, dg, db, dsum, dy, x, g, mean, rstd, rows, cols);
}
