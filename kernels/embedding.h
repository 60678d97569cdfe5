/* embedding.h - y[r] = wte[token[r]] + wpe[r mod seq]: rows of two tables, added.
 *
 * Where ranks divide the vocabulary, a token of another rank is negative: it gives a row of zeros
 * (and wpe), and its gradient goes to no row of dwte.
 *
 * shapes   token [rows] int32, each below vocab; wte [vocab, cols]; wpe [seq, cols] or NULL; y, dy
 *          [rows, cols]
 * alias    nothing may overlap
 * adds     backward adds to dwte and dwpe (NULL when there is no wpe)
 * cost     O(rows * cols), bound by memory
 * order    an element of dwte gets its rows' gradients in the order of the rows, whatever the
 *          backend
 */
#ifndef KERNELS_EMBEDDING_H
#define KERNELS_EMBEDDING_H

#include "kernels/dev.h"

int embedding_forward_cpu(struct kstream *ks, enum dtype dt, void *y, const int32_t *token,
                          const void *wte, const void *wpe, int64_t rows, int64_t seq,
                          int64_t cols);
int embedding_backward_cpu(struct kstream *ks, enum dtype dt, void *dwte, void *dwpe,
                           const void *dy, const int32_t *token, int64_t rows, int64_t seq,
                           int64_t cols, int64_t vocab);

#endif
