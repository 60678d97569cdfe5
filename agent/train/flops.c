#include "agent/train/flops.h"

#include <stdlib.h>
#include <string.h>

#include "common/os/clock.h"

/* Matrices double from the smallest until one product takes long enough to be timed. */
enum { SMALLEST = 256, LARGEST = 8192, LONG_ENOUGH_NS = 10000000 };

double flops_of_token(const struct model_config *c, const struct layout *l, int64_t seq)
{
    /* A tied embedding multiplies as the head; one of its own is only looked up. */
    int64_t looked_up = c->tied ? 0 : c->vocab * c->hidden;
    double attention = 12 * (double)c->layers * (double)(c->heads * c->head_dim) * (double)seq;

    return 6 * (double)(l->parameters - looked_up) + attention;
}

/* n x n matrices, small random numbers in them: zeros would flatter a chip that is bound by its
 * power. */
static int take_matrices(const struct kops *k, struct kstream *ks, enum dtype dt, int64_t n,
                         void *m[3])
{
    size_t count = (size_t)(n * n);
    uint32_t noise = 1;
    float *host = mem_array(count, sizeof *host);
    void *wide = NULL;
    int rc = k->mem_alloc(&wide, count * sizeof *host);

    for (size_t i = 0; i < count; i++) {
        noise = noise * 1664525 + 1013904223;
        host[i] = (float)(int32_t)noise * 0x1p-31f;
    }
    rc = rc != 0 ? rc : k->mem_put(ks, wide, host, count * sizeof *host);
    for (int i = 0; rc == 0 && i < 3; i++) {
        rc = k->mem_alloc(&m[i], count * dtype_bytes(dt));
        rc = rc != 0 ? rc : k->convert(ks, dt, m[i], DT_F32, wide, (int64_t)count);
    }
    rc = rc != 0 ? rc : k->stream_sync(ks);
    k->mem_free(wide);
    free(host);
    return rc;
}

static int time_multiply(const struct kops *k, struct kstream *ks, enum dtype dt, int64_t n,
                         uint64_t *took_ns)
{
    void *m[3] = {NULL};
    int rc = take_matrices(k, ks, dt, n, m);

    *took_ns = UINT64_MAX;
    for (int i = 0; rc == 0 && i < 3; i++) { /* the first one plans */
        uint64_t began = clock_now_ns();

        rc = k->matmul(ks, dt, dt, m[0], m[1], m[2], n, n, n, MATMUL_TB, NULL);
        rc = rc != 0 ? rc : k->stream_sync(ks);
        *took_ns = min_u64(*took_ns, clock_now_ns() - began);
    }
    for (int i = 0; i < 3; i++) {
        k->mem_free(m[i]);
    }
    return rc;
}

static int measure(const struct kops *k, struct kstream *ks, enum dtype dt, double *per_s,
                   struct err *e)
{
    uint64_t took_ns = 0;
    int64_t n = SMALLEST / 2;
    int rc = 0;

    while (rc == 0 && n < LARGEST && took_ns < LONG_ENOUGH_NS) {
        n *= 2;
        rc = time_multiply(k, ks, dt, n, &took_ns);
    }
    *per_s = 2 * (double)n * (double)n * (double)n / ((double)took_ns / 1e9);
    return rc != 0 ? err_set(e, rc, "%s: a matrix product failed: %s %s", k->device, err_plain(rc),
                             k->fault())
                   : 0;
}

int flops_peak(const struct kops *k, struct kstream *ks, enum dtype dt, struct flops_peak *out,
               struct err *e)
{
    static const struct {
        const char *name;
        double tensor, plain;
    } known[] = {
#define PEAK(name, tensor, plain) {name, tensor, plain},
#include "agent/train/peaks.def"
#undef PEAK
    };

    for (size_t i = 0; i < ARRAY_LEN(known) && dt != DT_F64; i++) {
        if (strstr(k->device, known[i].name) != NULL) {
            double tera = dt == DT_F32 ? known[i].plain : known[i].tensor;

            *out = (struct flops_peak){.per_s = tera * 1e12};
            return 0;
        }
    }
    out->measured = true;
    return measure(k, ks, dt, &out->per_s, e);
}
