#include "agent/train/choice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/base/check.h"
#include "kernels/philox.h"

enum { N = 7, DRAWS = 20000 };

/* Weights 1, 4, 2, 8, 2, 1, 2 at temperature 1: token 3 is the likeliest; 2, 4 and 6 are alike. */
static const double weights[N] = {1, 4, 2, 8, 2, 1, 2};

static void fill(struct choice c[N])
{
    for (int i = 0; i < N; i++) {
        c[i] = (struct choice){(float)log(weights[i]), i};
    }
}

/* How often each token comes, as shares. */
static void shares(const struct choosing *how, double share[N])
{
    memset(share, 0, N * sizeof *share);
    for (int i = 0; i < DRAWS; i++) {
        struct choice c[N];
        int32_t token;

        fill(c);
        assert_int_equal(
            choice_draw(c, N, how, philox_uniform(philox_at(1, 2, (uint64_t)i).v[0]), &token, NULL),
            0);
        assert_in_range(token, 0, N - 1);
        share[token] += 1.0 / DRAWS;
    }
}

/* The kept tokens have their share of what they weigh together (to the temperature's power), the
 * others none. */
static void expect(struct choosing how, unsigned kept)
{
    double share[N], whole = 0, want;

    for (int i = 0; i < N; i++) {
        whole += kept >> i & 1 ? pow(weights[i], 1 / how.temperature) : 0;
    }
    shares(&how, share);
    for (int i = 0; i < N; i++) {
        want = kept >> i & 1 ? pow(weights[i], 1 / how.temperature) / whole : 0;
        assert_true(fabs(share[i] - want) <= (want == 0 ? 0 : 0.015));
    }
}

static void test_what_is_kept(void **state)
{
    (void)state;
    expect((struct choosing){0, 1, 1}, 0x7f);
    expect((struct choosing){0, 1, 2}, 0x7f);
    expect((struct choosing){3, 1, 1}, 1 << 3 | 1 << 1 | 1 << 2); /* of those alike the lowest */
    expect((struct choosing){1, 1, 5}, 1 << 3);
    expect((struct choosing){99, 1, 1}, 0x7f);
    expect((struct choosing){0, 0.35, 1}, 1 << 3);          /* 8 of 20 are enough */
    expect((struct choosing){0, 0.41, 1}, 1 << 3 | 1 << 1); /* 8 are not */
    expect((struct choosing){0, 0.65, 1}, 1 << 3 | 1 << 1 | 1 << 2);
    expect((struct choosing){0, 1e-9, 1}, 1 << 3);   /* never nothing */
    expect((struct choosing){2, 0.65, 1}, 1 << 3);   /* of 12 now */
    expect((struct choosing){0, 0.65, 0.5}, 1 << 3); /* of 94: 64 */
}

static void test_the_likeliest(void **state)
{
    const struct choosing how = {0, 1, 0}, cold = {0, 1, 1e-300};
    struct choice c[N];
    int32_t token;

    (void)state;
    fill(c);
    assert_int_equal(choice_draw(c, N, &cold, 0.9, &token, NULL), 0); /* nothing overflows */
    assert_int_equal(token, 3);
    fill(c);
    assert_int_equal(choice_draw(c, N, &how, 0.9, &token, NULL), 0);
    assert_int_equal(token, 3);
    c[3].logit = c[0].logit = -INFINITY;
    assert_int_equal(choice_draw(c, N, &how, 0.9, &token, NULL), 0);
    assert_int_equal(token, 1);
}

/* As many as a vocabulary has: what heaps keep is what sorting keeps. */
static void test_many(void **state)
{
    enum { MANY = 5000 };
    struct choice *c = mem_array(MANY, sizeof *c);

    (void)state;
    for (int64_t k = 1; k < 400; k += 37) {
        const struct choosing how = {k, 1, 1};
        int32_t token;

        for (int i = 0; i < MANY; i++) {
            c[i] = (struct choice){(float)((i * 7919 + 13) % MANY) / 100.0f, i};
        }
        for (int d = 0; d < 20; d++) {
            assert_int_equal(choice_draw(c, MANY, &how, (d + 0.5) / 20, &token, NULL), 0);
            assert_true((token * 7919 + 13) % MANY >= MANY - k);
        }
    }
    free(c);
}

static void test_broken_models(void **state)
{
    const struct choosing how = {2, 0.9, 1};
    struct choice c[N];
    struct err e = {0};
    int32_t token;

    (void)state;
    fill(c);
    c[5].logit = NAN;
    assert_int_equal(choice_draw(c, N, &how, 0.5, &token, &e), E_CORRUPT);
    assert_non_null(strstr(e.text, "NaN"));
    fill(c);
    c[5].logit = INFINITY;
    assert_int_equal(choice_draw(c, N, &how, 0.5, &token, &e), E_CORRUPT);
    for (int i = 0; i < N; i++) {
        c[i].logit = -INFINITY;
    }
    assert_int_equal(choice_draw(c, N, &how, 0.5, &token, &e), E_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_kept),
        cmocka_unit_test(test_the_likeliest),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_broken_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
