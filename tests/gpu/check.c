/* gpu-check - every CUDA operation beside its CPU twin, then a tiny model trained on both, then a run repeated.
 *
 * Prints one table; exits 1 when a row fails. Without a GPU it says so and exits 0. --look only says whether there is one;
 * --models leaves the operations out.
 */
#include <stdio.h>
#include <string.h>

#include "common/base/err.h"
#include "tests/gpu/twins.h"

enum { ROUNDS = 6 };

static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
static const char *const names[] = {"f32", "bf16", "f16"};

static int row(struct twins *c, const struct twin *t, size_t type, int rounds)
{
    bool good = twins_hold(c, t, types[type], rounds);

    printf("%-24s %-5s %12.2e %10.0e  %s%s\n", t->name, names[type], c->worst,
           twins_bound(types[type]), good ? "ok" : "FAILED ", c->trouble != NULL ? c->trouble : "");
    fflush(stdout);
    return !good;
}

static int rows(struct twins *c, const struct twin *t, int rounds)
{
    int failed = 0;

    for (; t->name != NULL; t++) {
        for (size_t i = 0; i < ARRAY_LEN(types); i++) {
            if ((t->types & 1u << types[i]) != 0) {
                failed += row(c, t, i, rounds);
            }
        }
    }
    return failed;
}

int main(int argc, char **argv)
{
    const char *only = argc > 1 ? argv[1] : "";
    struct twins c = {.seed = 1};
    struct err e = {0};
    int failed;

    c.k = kops_cuda(0, &e);
    if (c.k == NULL) {
        printf("gpu-check: skipped, nothing was checked: %s\n", e.text);
        return 0;
    }
    if (strcmp(only, "--look") == 0) {
        printf("gpu-check: %s\n", c.k->device);
        return 0;
    }
    if (c.k->stream_open(&c.ks) != 0) {
        printf("gpu-check: no stream on %s\n", c.k->device);
        return 1;
    }
    printf("%s\n%-24s %-5s %12s %10s\n", c.k->device, "operation", "type", "difference", "bound");
    failed = strcmp(only, "--models") == 0 ? 0 : rows(&c, twins_of_operations, ROUNDS);
    failed += rows(&c, twins_of_models, 1);
    c.k->stream_close(&c.ks);
    printf("gpu-check: %s\n", failed == 0 ? "all rows hold" : "FAILED");
    return failed == 0 ? 0 : 1;
}
