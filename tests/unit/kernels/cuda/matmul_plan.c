/* How we ask cuBLASLt, and what we keep of its answers; that the products are right is a row of
 * tests/gpu/twins.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#ifdef HAVE_SIMT
#    include <dirent.h>
#    include <stdio.h>
#    include <stdlib.h>
#    include <string.h>
#    include <unistd.h>

#    include "common/base/err.h"
#    include "kernels/cuda/matmul_plan.h"

enum { M = 3, N = 8, K = 2 };

struct world {
    struct matmul_plans plans;
    struct matmul_key key;
    struct matmul_operands x;
    float a[M * K], b[K * N], c[M * N];
};

static int all_runs(void)
{
    int count[SIMT_PROPOSALS], sum = 0;

    simt_runs(count);
    for (int i = 0; i < SIMT_PROPOSALS; i++) {
        sum += count[i];
    }
    return sum;
}

static void open_world(struct world *w)
{
    (void)all_runs();
    *w = (struct world){.key = {.m = M, .n = N, .k = K, .dt = DT_F32, .out = DT_F32}};
    assert_int_equal(matmul_plans_init(&w->plans), 0);
    w->plans.worth_measuring = 0;
    w->x = (struct matmul_operands){.d = w->c, .a = w->a, .b = w->b, .c = w->c};
    w->key.aligned_bytes = matmul_alignment(&w->x);
    for (int i = 0; i < M * K; i++) {
        w->a[i] = (float)i;
    }
    for (int i = 0; i < K * N; i++) {
        w->b[i] = (float)i;
    }
}

static uint64_t chosen(struct world *w)
{
    const struct matmul_plan *plan = matmul_plan_find(&w->plans, NULL, &w->key, &w->x);

    assert_non_null(plan);
    return plan->algo.data[0];
}

/* Every file of the cache. */
static void each_file(void (*visit)(const char *path))
{
    char folder[512], path[1024];
    struct dirent *d;
    DIR *dir;

    snprintf(folder, sizeof folder, "%s/trainer/the-host-driver-0-cublasLt-1",
             getenv("XDG_CACHE_HOME"));
    dir = opendir(folder);
    while (dir != NULL && (d = readdir(dir)) != NULL) {
        if (d->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, d->d_name);
            visit(path);
        }
    }
    closedir(dir);
}

static void test_the_fastest_is_measured_once(void **state)
{
    struct world w, later;

    (void)state;
    open_world(&w);
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    assert_true(all_runs() > SIMT_PROPOSALS);
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    assert_int_equal(all_runs(), 0);
    open_world(&later); /* another process: the winner lies on disk */
    assert_int_equal(chosen(&later), SIMT_FASTEST);
    assert_int_equal(all_runs(), 0);
    matmul_plans_fini(&w.plans);
    matmul_plans_fini(&later.plans);
}

static void spoil(const char *path)
{
    FILE *f = fopen(path, "r+");

    assert_non_null(f);
    for (int i = 0; i < 64; i++) {
        fputc(0x5a, f);
    }
    fclose(f);
}

static void test_a_spoiled_file_is_measured_again(void **state)
{
    struct world w;

    (void)state;
    each_file(spoil);
    open_world(&w);
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    assert_true(all_runs() > 0);
    matmul_plans_fini(&w.plans);
    open_world(&w);
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    assert_int_equal(all_runs(), 0);
    matmul_plans_fini(&w.plans);
}

/* What adds to c may be timed, but c must get its sum once. */
static void test_measuring_adds_nothing(void **state)
{
    struct world w;

    (void)state;
    open_world(&w);
    w.key.k = K;
    w.key.adds = true;
    for (int i = 0; i < M * N; i++) {
        w.c[i] = 100;
    }
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    for (int i = 0; i < M * N; i++) {
        assert_true(w.c[i] == 100);
    }
    assert_int_equal(
        matmul_plan_run(&w.plans, NULL, matmul_plan_find(&w.plans, NULL, &w.key, &w.x), &w.x), 0);
    assert_true(w.c[0] == 100 + w.a[0] * w.b[0] + w.a[1] * w.b[N]);
    assert_true(w.c[M * N - 1] == 100 + w.a[4] * w.b[N - 1] + w.a[5] * w.b[2 * N - 1]);
    matmul_plans_fini(&w.plans);
}

/* Without a place to keep the winner another run could choose otherwise: the first proposal,
 * always. */
static void test_nothing_is_measured_that_cannot_be_kept(void **state)
{
    char *cache = strdup(getenv("XDG_CACHE_HOME"));
    struct world w;

    (void)state;
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    open_world(&w);
    assert_int_equal(chosen(&w), 0);
    assert_int_equal(all_runs(), 0);
    matmul_plans_fini(&w.plans);
    setenv("XDG_CACHE_HOME", cache, 1);
    free(cache);
}

static int files;

static void count_file(const char *path)
{
    (void)path;
    files++;
}

/* No room for a sum that may be spoiled: the first proposal now, and a measurement another time. */
static void test_what_was_not_measured_is_not_kept(void **state)
{
    struct world w;
    int before;

    (void)state;
    files = 0;
    each_file(count_file);
    before = files;
    open_world(&w);
    w.key.m = w.key.n = 1 << 28;
    w.key.adds = true;
    w.x.c = w.x.d;
    assert_int_equal(chosen(&w), 0);
    assert_int_equal(all_runs(), 0);
    files = 0;
    each_file(count_file);
    assert_int_equal(files, before);
    matmul_plans_fini(&w.plans);
}

static void test_small_ones_are_not_measured(void **state)
{
    struct world w;

    (void)state;
    open_world(&w);
    w.key.flags = MATMUL_TB; /* not known from before */
    w.plans.worth_measuring = 1e6;
    assert_int_equal(chosen(&w), 0);
    assert_int_equal(all_runs(), 0);
    matmul_plans_fini(&w.plans);
}

/* A small result with long sums: parts are tried as well, where cuBLASLt takes so many. */
static void test_long_sums_are_split(void **state)
{
    enum { LONG = 4096 };
    struct world w;
    float *a = calloc(M * LONG, sizeof *a), *b = calloc(LONG * N, sizeof *b);
    const struct matmul_plan *plan;

    (void)state;
    open_world(&w);
    w.key.k = LONG;
    w.x.a = a;
    w.x.b = b;
    w.key.aligned_bytes = matmul_alignment(&w.x);
    plan = matmul_plan_find(&w.plans, NULL, &w.key, &w.x);
    assert_non_null(plan);
    assert_int_equal(plan->algo.data[0], SIMT_FASTEST);
    assert_int_equal(plan->algo.data[2], SIMT_PARTS);
    assert_int_equal(plan->algo.data[3], CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    matmul_plans_fini(&w.plans);
    free(a);
    free(b);
}

/* f32 has no gelu inside: asked once, remembered. */
static void test_what_is_not_there(void **state)
{
    struct world w;

    (void)state;
    open_world(&w);
    w.key.epilogue = EPILOGUE_DGELU;
    w.x.aside = w.c;
    assert_null(matmul_plan_find(&w.plans, NULL, &w.key, &w.x));
    assert_null(matmul_plan_find(&w.plans, NULL, &w.key, &w.x));
    assert_int_equal(w.plans.count, 1);
    matmul_plans_fini(&w.plans);
}

/* What was proposed and does not run is as if it were not there: another way is found, and found at
 * once. */
static void test_what_is_taken_back(void **state)
{
    struct world w;
    struct matmul_plan *plan;

    (void)state;
    open_world(&w);
    w.plans.worth_measuring = 1e6;
    plan = matmul_plan_find(&w.plans, NULL, &w.key, &w.x);
    assert_non_null(plan);
    simt_take_back(1);
    assert_int_equal(matmul_plan_run(&w.plans, NULL, plan, &w.x), E_UNSUPPORTED);
    simt_take_back(0);
    assert_null(matmul_plan_find(&w.plans, NULL, &w.key, &w.x));
    matmul_plans_fini(&w.plans);
}

/* What one process chose another one takes, whether it would have measured or not; and what is of
 * another machine, or does not fit, changes nothing. */
static void test_choices_are_taken_by_another(void **state)
{
    char text[MATMUL_CHOICES_BYTES], again[MATMUL_CHOICES_BYTES], *line;
    struct world w;

    (void)state;
    open_world(&w);
    matmul_plans_write(&w.plans, text, sizeof text);
    assert_non_null(strstr(text, "for the host"));
    assert_ptr_equal(strchr(text, '\n') + 1, text + strlen(text)); /* nothing is chosen yet */
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    matmul_plans_write(&w.plans, text, sizeof text);
    assert_non_null(strstr(text, " matmul 3x8x2 "));
    matmul_plans_fini(&w.plans);

    open_world(&w);
    w.plans.worth_measuring = 1e6;
    assert_int_equal(chosen(&w), 0);
    matmul_plans_take(&w.plans, text); /* also in place of what is chosen already */
    assert_int_equal(chosen(&w), SIMT_FASTEST);
    assert_int_equal(all_runs(), 0);
    matmul_plans_write(&w.plans, again, sizeof again);
    assert_string_equal(again, text);
    matmul_plans_fini(&w.plans);

    line = strchr(text, '\n') + 1;
    line[20] = line[20] == 'f' ? '0' : 'f'; /* not an algorithm any more */
    open_world(&w);
    w.plans.worth_measuring = 1e6;
    matmul_plans_take(&w.plans, text);
    assert_int_equal(chosen(&w), 0);
    matmul_plans_take(&w.plans, "");
    matmul_plans_take(&w.plans, "for the host");
    matmul_plans_take(&w.plans, "nonsense\n\n 00 zz\n");
    again[5] = 'T';
    matmul_plans_take(&w.plans, again);
    assert_int_equal(chosen(&w), 0);
    matmul_plans_fini(&w.plans);
}

static void test_alignment(void **state)
{
    struct matmul_operands x = {.d = (void *)0x1000, .a = (void *)0x2000, .b = (void *)0x3010};

    (void)state;
    assert_int_equal(matmul_alignment(&x), 16);
    x.b = (void *)0x4000;
    assert_int_equal(matmul_alignment(&x), 256);
    x.bias = (void *)0x4002;
    assert_int_equal(matmul_alignment(&x), 2);
}

int main(void)
{
    char folder[512];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_fastest_is_measured_once),
        cmocka_unit_test(test_a_spoiled_file_is_measured_again),
        cmocka_unit_test(test_measuring_adds_nothing),
        cmocka_unit_test(test_nothing_is_measured_that_cannot_be_kept),
        cmocka_unit_test(test_what_was_not_measured_is_not_kept),
        cmocka_unit_test(test_small_ones_are_not_measured),
        cmocka_unit_test(test_long_sums_are_split),
        cmocka_unit_test(test_what_is_not_there),
        cmocka_unit_test(test_what_is_taken_back),
        cmocka_unit_test(test_choices_are_taken_by_another),
        cmocka_unit_test(test_alignment),
    };

    if (getcwd(folder, sizeof folder - sizeof "/cache") == NULL) {
        return 1;
    }
    setenv("XDG_CACHE_HOME", strcat(folder, "/cache"), 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
static void test_skipped(void **state)
{
    (void)state;
    print_message("skipped: linked with tests/simt, which sanitizers do not understand\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_skipped)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
