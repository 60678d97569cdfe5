/* Every operation of a step runs as the tables run it, on the CPU and by the CUDA twins on the
 * host's GPU. */
#include "agent/train/workload.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#ifdef HAVE_SIMT
#    include "tests/simt/device.h"
#endif

static struct model *open_model(const struct kops *k, const char *shape, enum dtype dt)
{
    const struct model_options o = {.dt = dt, .world = 1, .training = true};
    struct model_config c;
    struct model *m;

    assert_int_equal(config_builtin(shape, &c, NULL), 0);
    assert_int_equal(model_open(&c, k, &o, &m, NULL), 0);
    return m;
}

static size_t of_table(const struct scores *s, const char *table)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n; i++) {
        n += strcmp(s->row[i].table, table) == 0;
    }
    return n;
}

static void runs(const struct kops *k, const char *shape, enum dtype dt, size_t memory_bound)
{
    struct scores s = {.quiet = true};
    struct workload w = {
        .m = open_model(k, shape, dt), .batch = 2, .seq = 8, .least_ns = 1, .scores = &s};

    assert_int_equal(workload_gemm(&w, NULL), 0);
    assert_int_equal(workload_attention(&w, NULL), 0);
    assert_int_equal(workload_memory(&w, NULL), 0);
    assert_int_equal(of_table(&s, "gemm"), 15);
    assert_int_equal(of_table(&s, "attention"), 2);
    assert_int_equal(of_table(&s, "memory-bound"), memory_bound);
    assert_true(w.attention_by[0] != '\0');
    for (size_t i = 0; i < s.n; i++) {
        assert_true(s.row[i].took_ns > 0 && (s.row[i].flop > 0) != (s.row[i].bytes > 0));
    }
    /* 2 m n k of the first product: the packed q, k and v. */
    assert_true(s.row[0].flop == 2.0 * 16 *
                                     (double)((w.m->config.heads + 2 * w.m->config.kv_heads) *
                                              w.m->config.head_dim * w.m->config.hidden));
    model_close(&w.m);
}

static void runs_all(const struct kops *k)
{
    runs(k, "tiny-gpt2", DT_F32, 8);
    runs(k, "tiny-gpt2", DT_BF16, 8);
    runs(k, "tiny-llama", DT_F32, 10);
    runs(k, "tiny-llama", DT_F16, 10);
}

static void test_on_the_cpu(void **state)
{
    (void)state;
    runs_all(kops_cpu());
}

static void test_on_a_gpu(void **state)
{
    (void)state;
#ifdef HAVE_SIMT
    simt_schedule(2);
    runs_all(simt_kops());
#else
    print_message("skipped: sanitizers do not understand threads that are fibers\n");
    skip();
#endif
}

/* Rows as JSON: a rate of its own, and the share of a copy where there was one. */
static void test_scores_as_json(void **state)
{
    const struct score gemm = {
        .table = "gemm", .what = "qkv forward", .shape = "2 x 3 x 4", .took_ns = 1e6, .flop = 2e9};
    const struct score copy = {
        .table = "copy", .what = "copy", .shape = "4 MiB", .took_ns = 2e6, .bytes = 4e9};
    const struct score norm = {.table = "memory-bound",
                               .what = "norm \"forward\"",
                               .shape = "2 x 3",
                               .took_ns = 1e6,
                               .bytes = 1e9};
    struct scores s = {.quiet = true};
    struct buf out = BUF_INIT(4096);

    (void)state;
    scores_add(&s, &gemm);
    scores_add(&s, &copy);
    scores_add(&s, &norm);
    jwrite_open(&out, NULL, '{');
    scores_json(&s, &out);
    jwrite_close(&out, '}');
    assert_string_equal(
        buf_cstr(&out),
        "{\"rows\":[{\"table\":\"gemm\",\"what\":\"qkv forward\",\"shape\":\"2 x 3 x 4\",\"ms\":1,"
        "\"tflops\":2},{\"table\":\"copy\",\"what\":\"copy\",\"shape\":\"4 MiB\",\"ms\":2,"
        "\"gb_per_s\":2000,\"of_copy\":1},{\"table\":\"memory-bound\","
        "\"what\":\"norm \\\"forward\\\"\",\"shape\":\"2 x 3\",\"ms\":1,\"gb_per_s\":1000,"
        "\"of_copy\":0.5}]}");
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_on_the_cpu),
        cmocka_unit_test(test_on_a_gpu),
        cmocka_unit_test(test_scores_as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
