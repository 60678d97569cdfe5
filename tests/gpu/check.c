/* gpu-check - every CUDA operation beside its CPU twin, then a tiny model trained on both, then a run repeated.
 *
 * Prints one table; exits 1 when a row fails. Without a GPU it says so and exits 0.
 */
#include <stdio.h>

#include "common/base/err.h"
#include "tests/gpu/twins.h"

enum { ROUNDS = 6 };

static const double bound = 1e-5;

static int rows(struct twins *c, const struct twin *t, int rounds)
{
    int failed = 0;

    for (; t->name != NULL; t++) {
        bool good = twins_hold(c, t, rounds, bound);

        failed += !good;
        printf("%-24s %12.2e %10.0e  %s%s\n", t->name, c->worst, bound, good ? "ok" : "FAILED ",
               c->trouble != NULL ? c->trouble : "");
        fflush(stdout);
    }
    return failed;
}

int main(void)
{
    struct twins c = {.seed = 1};
    struct err e = {0};
    int failed;

    c.k = kops_cuda(0, &e);
    if (c.k == NULL) {
        printf("gpu-check: skipped, nothing was checked: %s\n", e.text);
        return 0;
    }
    if (c.k->stream_open(&c.ks) != 0) {
        printf("gpu-check: no stream on %s\n", c.k->device);
        return 1;
    }
    printf("%s\n%-24s %12s %10s\n", c.k->device, "operation", "difference", "bound");
    failed = rows(&c, twins_of_operations, ROUNDS) + rows(&c, twins_of_models, 1);
    c.k->stream_close(&c.ks);
    printf("gpu-check: %s\n", failed == 0 ? "all rows hold" : "FAILED");
    return failed == 0 ? 0 : 1;
}
