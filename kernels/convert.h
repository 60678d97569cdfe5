/* convert.h - converts tensors from one type to another.
 *
 * convert              to the nearest, halves to the even one, in one rounding
 * convert_stochastic   from the accumulation type to dt: 16-bit types go up or down at random
 *                      (float16.h)
 *
 * The random bits are a function of the seed, the step and the element's number. `first` is the
 * number of y[0], so a tensor may be converted in pieces. adamw() rounds its 16-bit parameters in
 * this way: anyone who has only the masters gets the same ones. With cols, y is part of a
 * rectangle of that width, out of a matrix whose rows have whole_cols elements: `first` is then
 * the number of the rectangle's first element, and y[0] is its element `skip`.
 *
 * alias    nothing may overlap
 */
#ifndef KERNELS_CONVERT_H
#define KERNELS_CONVERT_H

#include "kernels/float16.h"
#include "kernels/philox.h"

struct noise {
    uint64_t seed;
    uint64_t step;
    uint64_t first;
    uint64_t cols, whole_cols, skip;
};

/* The number of y[i]. */
static inline HOST_DEVICE uint64_t noise_number(const struct noise *n, uint64_t i)
{
    uint64_t at = n->skip + i;

    return n->first + (n->cols == 0 ? at : at / n->cols * n->whole_cols + at % n->cols);
}

/* Are four elements from a multiple of four on one draw? */
static inline bool noise_in_fours(const struct noise *n)
{
    return (n->first | n->cols | n->whole_cols | n->skip) % 4 == 0;
}

/* The bits of the elements with the numbers 4 * four to 4 * four + 3. */
static inline HOST_DEVICE struct philox noise_of_four(const struct noise *n, uint64_t four)
{
    /* "roun" separates these draws from others with the same seed. */
    return philox_at(n->seed, (UINT64_C(0x726f756e) << 32) + n->step, four);
}

static inline HOST_DEVICE uint32_t noise_at(const struct noise *n, uint64_t i)
{
    uint64_t number = noise_number(n, i);

    return noise_of_four(n, number / 4).v[number % 4];
}

int convert_cpu(struct kstream *ks, enum dtype to, void *y, enum dtype from, const void *x,
                int64_t n);
int convert_stochastic_cpu(struct kstream *ks, enum dtype dt, void *y, const void *x, int64_t n,
                           const struct noise *noise);

#endif
