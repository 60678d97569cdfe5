/* Sums in rank order, over Open MPI: the program starts itself under mpirun, with as many ranks as
 * it takes. */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/base/check.h"
#include "common/base/err.h"
#include "kernels/float16.h"
#include "kernels/plugin.h"

#define PIECE (INT64_C(1) << 22) /* comm_mpi.c's */

static char folder[512]; /* of this program */

/* --- a rank ----------------------------------------------------------------------------------- */

/* The i-th number of a rank: of any sign and of sizes far apart, so that each order of a sum has
 * its own bits. */
static double number(int rank, int64_t i)
{
    uint64_t x = ((uint64_t)i * 64 + (uint64_t)rank + 1) * UINT64_C(0x9e3779b97f4a7c15);

    x ^= x >> 29;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 32;
    return ((double)(x >> 40) / 8388608.0 - 1) * (double)(1 << (x & 15));
}

static bool sums_are_ordered_f32(struct comm *c, int64_t n)
{
    float *x = mem_array((size_t)n + 1, sizeof *x);
    bool fine;

    for (int64_t i = 0; i < n; i++) {
        x[i] = (float)number(c->rank, i);
    }
    x[n] = 7; /* what is behind is not ours */
    fine = c->post_allreduce(c, NULL, DT_F32, x, n) == 0 && x[n] == 7;
    for (int64_t i = 0; fine && i < n; i++) {
        float sum = (float)number(0, i);

        for (int r = 1; r < c->size; r++) {
            sum += (float)number(r, i);
        }
        fine = memcmp(&sum, &x[i], sizeof sum) == 0;
    }
    free(x);
    return fine;
}

static bool sums_are_ordered_f64(struct comm *c, int64_t n)
{
    double *x = mem_array((size_t)n + 1, sizeof *x);
    bool fine;

    for (int64_t i = 0; i < n; i++) {
        x[i] = number(c->rank, i) / 3;
    }
    x[n] = 7;
    fine = c->post_allreduce(c, NULL, DT_F64, x, n) == 0 && x[n] == 7;
    for (int64_t i = 0; fine && i < n; i++) {
        double sum = number(0, i) / 3;

        for (int r = 1; r < c->size; r++) {
            sum += number(r, i) / 3;
        }
        fine = memcmp(&sum, &x[i], sizeof sum) == 0;
    }
    free(x);
    return fine;
}

static float widen(enum dtype dt, uint16_t x)
{
    return dt == DT_BF16 ? bf16_widen(x) : f16_widen(x);
}

static uint16_t narrow(enum dtype dt, double x)
{
    return dt == DT_BF16 ? bf16_round((float)x) : f16_round((float)x);
}

/* Each rank gets its piece of sums that are made in f32 and rounded once; and then all pieces. */
static bool narrow_pieces_are_ordered(struct comm *c, enum dtype dt, int64_t n)
{
    uint16_t *x = mem_array((size_t)(n * c->size) + 1, sizeof *x);
    uint16_t *mine = x + c->rank * n;
    bool fine;

    for (int64_t i = 0; i < n * c->size; i++) {
        x[i] = narrow(dt, number(c->rank, i) / 1024);
    }
    x[n * c->size] = 7;
    fine = c->post_reduce_scatter(c, NULL, dt, x, mine, n) == 0;
    fine = c->post_allgather(c, NULL, dt, mine, x, n) == 0 && fine && x[n * c->size] == 7;
    for (int64_t i = 0; fine && i < n * c->size; i++) {
        float sum = 0;

        for (int r = 0; r < c->size; r++) {
            sum += widen(dt, narrow(dt, number(r, i) / 1024));
        }
        fine = narrow(dt, (double)sum) == x[i];
    }
    free(x);
    return fine;
}

/* The same of f32, from and to memory of its own or in place. */
static bool pieces_are_ordered(struct comm *c, int64_t n, bool in_place)
{
    float *x = mem_array((size_t)(n * c->size) + 1, sizeof *x);
    float *apart = mem_array((size_t)n + 1, sizeof *apart),
          *mine = in_place ? x + c->rank * n : apart;
    bool fine;

    for (int64_t i = 0; i < n * c->size; i++) {
        x[i] = (float)number(c->rank, i);
    }
    x[n * c->size] = apart[n] = 7;
    fine = c->post_reduce_scatter(c, NULL, DT_F32, x, mine, n) == 0;
    for (int64_t i = 0; fine && !in_place && i < n * c->size; i++) { /* what is read stays */
        float was = (float)number(c->rank, i);

        fine = memcmp(&was, &x[i], sizeof was) == 0;
    }
    fine = c->post_allgather(c, NULL, DT_F32, mine, x, n) == 0 && fine;
    fine = x[n * c->size] == 7 && apart[n] == 7 && fine;
    for (int64_t i = 0; fine && i < n * c->size; i++) {
        float sum = (float)number(0, i);

        for (int r = 1; r < c->size; r++) {
            sum += (float)number(r, i);
        }
        fine = memcmp(&sum, &x[i], sizeof sum) == 0;
    }
    free(x);
    free(apart);
    return fine;
}

/* Also where MPI chooses the order of others. */
static bool narrow_sums_are_ordered(struct comm *c, enum dtype dt, int64_t n)
{
    uint16_t *x = mem_array((size_t)n + 1, sizeof *x);
    bool fine;

    for (int64_t i = 0; i < n; i++) {
        x[i] = narrow(dt, number(c->rank, i) / 1024);
    }
    x[n] = 7;
    fine = c->post_allreduce(c, NULL, dt, x, n) == 0 && x[n] == 7;
    for (int64_t i = 0; fine && i < n; i++) {
        float sum = 0;

        for (int r = 0; r < c->size; r++) {
            sum += widen(dt, narrow(dt, number(r, i) / 1024));
        }
        fine = narrow(dt, (double)sum) == x[i];
    }
    free(x);
    return fine;
}

static plugin_mpi_fn *find_plugin(void)
{
    char path[600];
    void *so, *fn;

    snprintf(path, sizeof path, "%s/../../../trainer-mpi.so", folder);
    so = access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW) : NULL;
    fn = so != NULL ? dlsym(so, "plugin_mpi") : NULL;
    return fn != NULL ? *(plugin_mpi_fn **)(void *)&fn : NULL;
}

/* Exit status: 0 when all sums were right. */
static int run_rank(const char *how)
{
    struct kops staged = *kops_cpu(); /* a device's memory, which MPI does not read */
    bool ordered = strcmp(how, "loose") != 0;
    static const int64_t size[] = {0, 1, 2, 3, 5, 127, 1000, 4097};
    plugin_mpi_fn *plugin = find_plugin();
    char why[224] = "";
    struct comm *c;
    bool fine = true;

    staged.name = "staged";
    if (plugin == NULL || plugin(strcmp(how, "staged") == 0 ? &staged : kops_cpu(), ordered, &c,
                                 why, sizeof why) != 0) {
        fprintf(stderr, "no plugin: %s\n", why);
        return 2;
    }
    for (size_t i = 0; i < ARRAY_LEN(size); i++) {
        fine =
            (!ordered || (sums_are_ordered_f32(c, size[i]) && sums_are_ordered_f64(c, size[i]))) &&
            fine;
        fine =
            pieces_are_ordered(c, size[i], true) && pieces_are_ordered(c, size[i], false) && fine;
        fine = narrow_sums_are_ordered(c, DT_BF16, size[i]) &&
               narrow_sums_are_ordered(c, DT_F16, size[i]) && fine;
        fine = narrow_pieces_are_ordered(c, DT_BF16, size[i]) &&
               narrow_pieces_are_ordered(c, DT_F16, size[i]) && fine;
    }
    fine = (!ordered || sums_are_ordered_f32(c, PIECE + 3)) && fine;
    fine = pieces_are_ordered(c, PIECE / 2 + 3, false) && fine; /* several times, of four ranks */
    c->close(&c);
    return fine ? 0 : 1;
}

/* --- the test --------------------------------------------------------------------------------- */

static void test_sums_go_by_rank(void **state)
{
    static const char *const how[] = {"ordered", "loose", "staged"};
    char command[1400];

    (void)state;
    snprintf(command, sizeof command, "%s/../../../trainer-mpi.so", folder);
    if (system("command -v mpirun >/dev/null") != 0 || access(command, R_OK) != 0) {
        printf("no Open MPI here\n");
        skip();
    }
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    for (int ranks = 2; ranks <= 4; ranks++) {
        for (size_t i = 0; i < ARRAY_LEN(how); i++) {
            snprintf(command, sizeof command,
                     "mpirun --oversubscribe -n %d '%s/comm_mpi' %s >/dev/null", ranks, folder,
                     how[i]);
            assert_int_equal(system(command), 0);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums_go_by_rank)};
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

    CHECK(n > 0);
    folder[n] = '\0';
    *strrchr(folder, '/') = '\0';
    return getenv("OMPI_COMM_WORLD_RANK") != NULL ? run_rank(argc > 1 ? argv[1] : "ordered")
                                                  : cmocka_run_group_tests(tests, NULL, NULL);
}
