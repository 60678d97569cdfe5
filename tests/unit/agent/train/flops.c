#include "agent/train/flops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

/* Against figures worked out by hand. */
static void test_a_token_costs(void **state)
{
    static const struct {
        const char *name;
        int64_t seq;
        double flops;
    } known[] = {
        {"gpt2-124m", 1024, 6 * 124439808.0 + 12.0 * 12 * 768 * 1024},
        {"llama-1b", 4096, 6 * 1235814400.0 + 12.0 * 16 * 2048 * 4096},
        {"llama-8b", 8192, 6 * (8030261248.0 - 128256.0 * 4096) + 12.0 * 32 * 4096 * 8192},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct model_config c;
        struct layout l;

        assert_int_equal(config_builtin(known[i].name, &c, NULL), 0);
        layout_init(&l, &c, 1);
        assert_true(fabs(flops_of_token(&c, &l, known[i].seq) / known[i].flops - 1) < 1e-12);
        layout_fini(&l);
    }
}

static void test_peaks(void **state)
{
    static const struct {
        const char *device;
        enum dtype dt;
        double tera;
    } known[] = {{"NVIDIA H200", DT_BF16, 989.5},         {"NVIDIA H200", DT_F32, 67},
                 {"NVIDIA H100 PCIe", DT_F16, 756},       {"NVIDIA H100 80GB HBM3", DT_BF16, 989.5},
                 {"NVIDIA A100-SXM4-80GB", DT_BF16, 312}, {"NVIDIA L40S", DT_BF16, 362}};
    struct kops k = *kops_cpu();
    struct flops_peak p;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        p = (struct flops_peak){0};
        snprintf(k.device, sizeof k.device, "%s", known[i].device);
        assert_int_equal(flops_peak(&k, NULL, known[i].dt, &p, NULL), 0);
        assert_true(fabs(p.per_s / known[i].tera / 1e12 - 1) < 1e-12 && !p.measured);
    }
}

static void test_an_unknown_chip_is_measured(void **state)
{
    struct flops_peak p = {0};
    struct kstream *ks;

    (void)state;
    assert_int_equal(kops_cpu()->stream_open(&ks), 0);
    assert_int_equal(flops_peak(kops_cpu(), ks, DT_F32, &p, NULL), 0);
    assert_true(p.per_s > 0 && p.measured);
    kops_cpu()->stream_close(&ks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_token_costs),
        cmocka_unit_test(test_peaks),
        cmocka_unit_test(test_an_unknown_chip_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
