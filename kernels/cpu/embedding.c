#ifndef TYPE
#    include "kernels/embedding.h"
#    define BODY "kernels/cpu/embedding.c"
#    include "kernels/cpu/each_real.h"

int embedding_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const int32_t *token,
                          const void *wte, const void *wpe, int64_t rows, int64_t seq, int64_t cols)
{
    (void)ks;
    return EACH_REAL(dt, embedding_forward, (y, token, wte, wpe, rows, seq, cols));
}

int embedding_backward_cpu(struct kstream *ks, enum dtype dt, void *dwte, void *dwpe,
                           const void *dy, const int32_t *token, int64_t rows, int64_t seq,
                           int64_t cols, int64_t vocab)
{
    (void)ks;
    (void)vocab;
    return EACH_REAL(dt, embedding_backward, (dwte, dwpe, dy, token, rows, seq, cols));
}

#else

static void FN(embedding_forward)(elem *y, const int32_t *token, const elem *wte, const elem *wpe,
                                  int64_t rows, int64_t seq, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        const elem *t = token[r] < 0 ? NULL : wte + token[r] * cols;
        const elem *p = wpe == NULL ? NULL : wpe + r % seq * cols;

        for (int64_t c = 0; c < cols; c++) {
            y[r * cols + c] = t == NULL   ? (p == NULL ? 0 : p[c])
                              : p == NULL ? t[c]
                                          : PUT(GET(t[c]) + GET(p[c]));
        }
    }
}

static void FN(embedding_backward)(real *dwte, real *dwpe, const elem *dy, const int32_t *token,
                                   int64_t rows, int64_t seq, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++) {
        real *t = token[r] < 0 ? NULL : dwte + token[r] * cols;
        real *p = dwpe == NULL ? NULL : dwpe + r % seq * cols;

        for (int64_t c = 0; c < cols; c++) {
            if (t != NULL) {
                t[c] += GET(dy[r * cols + c]);
            }
            if (p != NULL) {
                p[c] += GET(dy[r * cols + c]);
            }
        }
    }
}

#endif
