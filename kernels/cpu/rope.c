#ifndef TYPE
#    include "kernels/rope.h"
#    define BODY "kernels/cpu/rope.c"
#    include "kernels/cpu/each_real.h"

int rope_forward_cpu(struct kstream *ks, enum dtype dt, void *qkv, const void *cos, const void *sin,
                     const struct attention_shape *s)
{
    (void)ks;
    return s->head_dim % 2 != 0 ? E_UNSUPPORTED : EACH_REAL(dt, turn, (qkv, cos, sin, 1, s));
}

int rope_backward_cpu(struct kstream *ks, enum dtype dt, void *dqkv, const void *cos,
                      const void *sin, const struct attention_shape *s)
{
    (void)ks;
    return s->head_dim % 2 != 0 ? E_UNSUPPORTED : EACH_REAL(dt, turn, (dqkv, cos, sin, -1, s));
}

#else

static void FN(turn)(elem *qkv, const real *cosine, const real *sine, int sign,
                     const struct attention_shape *s)
{
    int64_t half = s->head_dim / 2, step = (s->heads + 2 * s->kv_heads) * s->head_dim;

#    pragma omp parallel for if (s->batch * s->seq * step > PARALLEL_FROM)
    for (int64_t r = 0; r < s->batch * s->seq; r++) {
        const real *cs = cosine + r % s->seq * half, *sn = sine + r % s->seq * half;

        for (int64_t h = 0; h < s->heads + s->kv_heads; h++) {
            elem *x = qkv + r * step + h * s->head_dim;

            for (int64_t i = 0; i < half; i++) {
                real a = GET(x[i]), b = GET(x[i + half]), c = cs[i], d = (real)sign * sn[i];

                x[i] = PUT(a * c - b * d);
                x[i + half] = PUT(b * c + a * d);
            }
        }
    }
}

#endif
