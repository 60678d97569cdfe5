#ifndef TYPE
#    include "common/base/check.h"
#    include "kernels/attention_next.h"

#    define BODY "kernels/cpu/attention_next.c"
#    include "kernels/cpu/each_real.h"

int attention_next_cpu(struct kstream *ks, enum dtype dt, void *out, const void *qkv,
                       const void *cache, const struct attention_shape *s, int64_t keys)
{
    (void)ks;
    if (s->head_dim > ATTENTION_MAX_HEAD_DIM) {
        return E_UNSUPPORTED;
    }
    return EACH_REAL(dt, next, (out, qkv, cache, s, keys));
}

#else

/* p becomes the probabilities of the keys. */
static void FN(next_scores)(real *p, const elem *q, const elem *k, int64_t step, int64_t keys,
                            int64_t dim)
{
    real scale = 1 / SQRT((real)dim), max = 0, sum = 0;

    for (int64_t t = 0; t < keys; t++) {
        real dot = 0;

        for (int64_t i = 0; i < dim; i++) {
            dot += GET(q[i]) * GET(k[t * step + i]);
        }
        p[t] = scale * dot;
        max = t == 0 || p[t] > max ? p[t] : max;
    }
    for (int64_t t = 0; t < keys; t++) {
        p[t] = EXP(p[t] - max);
        sum += p[t];
    }
    for (int64_t t = 0; t < keys; t++) {
        p[t] /= sum;
    }
}

static void FN(next)(elem *out, const elem *qkv, const elem *cache, const struct attention_shape *s,
                     int64_t keys)
{
    int64_t dim = s->head_dim, step = 2 * s->kv_heads * dim;

#    pragma omp parallel if (s->batch * s->heads * keys * dim > PARALLEL_FROM)
    {
        void *room;

        CHECK(mem_alloc_cpu(&room, (size_t)keys * sizeof(real)) == 0);
        real *p = room;
#    pragma omp for
        for (int64_t r = 0; r < s->batch * s->heads; r++) {
            int64_t b = r / s->heads, h = r % s->heads;
            const elem *q = qkv + (b * (s->heads + 2 * s->kv_heads) + h) * dim;
            const elem *k = cache + b * s->seq * step + h * s->kv_heads / s->heads * dim;
            const elem *v = k + s->kv_heads * dim;
            real acc[ATTENTION_MAX_HEAD_DIM] = {0};

            FN(next_scores)(p, q, k, step, keys, dim);
            for (int64_t t = 0; t < keys; t++) {
                for (int64_t i = 0; i < dim; i++) {
                    acc[i] += p[t] * GET(v[t * step + i]);
                }
            }
            for (int64_t i = 0; i < dim; i++) {
                out[r * dim + i] = PUT(acc[i]);
            }
        }
        mem_free_cpu(room);
    }
}

#endif
