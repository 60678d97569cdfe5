#include "agent/train/trial.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/check.h"
#include "common/os/clock.h"
#include "kernels/philox.h"

/* Runs between two waits for the device take so long: a wait of some 10 us is little beside it. */
#define BATCH_NS 2000000.0

enum { NOISE_ELEMENTS = 1 << 20, BATCHES = 7, MAX_RUNS = 1000 };

void *trial_room(struct trial *t, size_t size_bytes)
{
    void *p = NULL;

    CHECK(t->count < TRIAL_OPERANDS);
    if (t->rc == 0) {
        t->rc = t->k->mem_alloc(&p, size_bytes);
    }
    if (t->rc != 0) {
        return NULL;
    }
    t->taken[t->count++] = p;
    return p;
}

/* One piece is made here and copied over the whole on the device: numbers repeat, as far apart as
 * no cache sees it. */
static void fill_trial_values(struct trial *t, enum dtype dt, char *to, int64_t n)
{
    int64_t piece = n < NOISE_ELEMENTS ? n : NOISE_ELEMENTS;
    float *host = mem_array((size_t)piece + 1, sizeof *host);
    void *wide = NULL;

    for (int64_t i = 0; i < piece; i++) {
        host[i] = (float)(2 * philox_uniform(philox_at(1, 0, (uint64_t)i).v[0]) - 1);
    }
    t->rc = t->k->mem_alloc(&wide, (size_t)piece * sizeof *host);
    if (t->rc == 0) {
        t->rc = t->k->mem_put(t->ks, wide, host, (size_t)piece * sizeof *host);
    }
    if (t->rc == 0) {
        t->rc = t->k->convert(t->ks, dt, to, DT_F32, wide, piece);
    }
    for (int64_t at = piece; t->rc == 0 && at < n; at += piece) {
        int64_t left = n - at < piece ? n - at : piece;

        t->rc = t->k->mem_copy(t->ks, to + (size_t)at * dtype_bytes(dt), to,
                               (size_t)left * dtype_bytes(dt));
    }
    if (t->rc == 0) {
        t->rc = t->k->stream_sync(t->ks); /* `wide` and `host` are in use until then */
    }
    t->k->mem_free(wide);
    free(host);
}

void *trial_noise(struct trial *t, enum dtype dt, int64_t n)
{
    void *p = trial_room(t, (size_t)n * dtype_bytes(dt));

    if (p != NULL && n > 0) {
        fill_trial_values(t, dt, p, n);
    }
    return t->rc == 0 ? p : NULL;
}

void trial_words(int32_t *out, size_t n, int64_t vocab, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) {
        double u = philox_uniform(philox_at(seed, 0, i).v[0]);
        int64_t word = (int64_t)exp(u * log((double)vocab)) - 1;

        out[i] = (int32_t)(word < 0 ? 0 : word < vocab ? word : vocab - 1);
    }
}

int32_t *trial_tokens(struct trial *t, int64_t n, int64_t vocab)
{
    int32_t *host = mem_array((size_t)n + 1, sizeof *host);
    void *p = trial_room(t, (size_t)n * sizeof *host);

    trial_words(host, (size_t)n, vocab, 1);
    if (p != NULL) {
        t->rc = t->k->mem_put(t->ks, p, host, (size_t)n * sizeof *host);
    }
    if (t->rc == 0) {
        t->rc = t->k->stream_sync(t->ks);
    }
    free(host);
    return t->rc == 0 ? p : NULL;
}

/* So many runs and a wait; the time of one. */
static double batch(struct trial *t, int (*run)(void *arg), void *arg, int64_t runs)
{
    uint64_t began = clock_now_ns();

    for (int64_t i = 0; t->rc == 0 && i < runs; i++) {
        t->rc = run(arg);
    }
    if (t->rc == 0) {
        t->rc = t->k->stream_sync(t->ks);
    }
    return (double)(clock_now_ns() - began) / (double)runs;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double trial_time(struct trial *t, int (*run)(void *arg), void *arg)
{
    double took[BATCHES], first, enough;
    int64_t runs;
    int n = 0;

    (void)batch(t, run, arg, 1); /* the first plans, and touches the memory */
    first = batch(t, run, arg, 1);
    enough = fmax(BATCH_NS, (double)t->least_ns / BATCHES);
    runs = (int64_t)fmax(1, fmin(MAX_RUNS, enough / fmax(first, 1)));
    for (double spent = 0; t->rc == 0 && n < BATCHES; n++) {
        took[n] = batch(t, run, arg, runs);
        spent += took[n] * (double)runs;
        if (n >= 2 && spent > 4 * (double)t->least_ns) { /* slow ones: three tell as much */
            n++;
            break;
        }
    }
    if (t->rc != 0) {
        return 0;
    }
    qsort(took, (size_t)n, sizeof *took, ascending);
    return took[n / 2];
}

void trial_clear(struct trial *t)
{
    while (t->count > 0) {
        t->k->mem_free(t->taken[--t->count]);
    }
}
