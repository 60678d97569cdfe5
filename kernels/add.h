/* add.h - y = a + b, element by element: the residual connection (its backward pass is the
 * identity).
 *
 * alias    y may be a or b
 */
#ifndef KERNELS_ADD_H
#define KERNELS_ADD_H

#include "kernels/dev.h"

int add_cpu(struct kstream *ks, enum dtype dt, void *y, const void *a, const void *b, int64_t n);

#endif
