#include "kernels/float16.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

enum { PATTERNS = 1 << 16, SIGN = 0x8000 };

struct format {
    int mantissa; /* bits of it */
    int bias;
    uint16_t infinity;
    float (*widen)(uint16_t);
    uint16_t (*round)(float);
    uint16_t (*stochastic)(float, uint32_t);
};

static const struct format bf16 = {7, 127, 0x7f80, bf16_widen, bf16_round, bf16_stochastic};
static const struct format f16 = {10, 15, 0x7c00, f16_widen, f16_round, f16_stochastic};

/* By the definition, without a bit of the code under test. `infinity` gives the power of two where
 * numbers end. */
static double meaning(const struct format *f, int h)
{
    int exponent = (h & 0x7fff) >> f->mantissa, fraction = h & ((1 << f->mantissa) - 1);
    double x = exponent == 0
                   ? ldexp(fraction, 1 - f->bias - f->mantissa)
                   : ldexp((1 << f->mantissa) + fraction, exponent - f->bias - f->mantissa);

    return h & SIGN ? -x : x;
}

static void widen_all(const struct format *f)
{
    for (int h = 0; h < PATTERNS; h++) {
        float x = f->widen((uint16_t)h);
        int magnitude = h & 0x7fff;

        if (magnitude > f->infinity) {
            assert_true(isnan(x) && isnan(f->widen(f->round(x))));
        } else if (magnitude == f->infinity) {
            assert_true(isinf(x) && (x < 0) == (h >= SIGN));
        } else {
            assert_true((double)x == meaning(f, h) && (signbit(x) != 0) == (h >= SIGN));
        }
        if (magnitude <= f->infinity) {
            assert_int_equal(f->round(x), h);
            assert_int_equal(f->stochastic(x, UINT32_MAX), h);
            assert_int_equal(f->stochastic(x, 0), h);
        }
    }
}

static void test_widen_all_patterns(void **state)
{
    (void)state;
    widen_all(&bf16);
    widen_all(&f16);
#ifdef __FLT16_MAX__
    for (int h = 0; h < PATTERNS; h++) {
        uint16_t bits = (uint16_t)h;
        _Float16 x;

        memcpy(&x, &bits, sizeof x);
        assert_true((float)x == f16_widen(bits) || (isnan((float)x) && isnan(f16_widen(bits))));
    }
#endif
}

static void rounds(const struct format *f, double x, int want)
{
    assert_int_equal(f->round(float_odd(x)), want);
    assert_int_equal(f->round(float_odd(-x)), want | SIGN);
    if ((double)(float)x == x) {
        assert_int_equal(f->round((float)x), want);
        assert_int_equal(f->round((float)-x), want | SIGN);
    }
}

/* Around the middle of every two neighbours, also by so little that an f32 does not see it. */
static void round_all(const struct format *f)
{
    for (int h = 0; h < f->infinity; h++) {
        double low = meaning(f, h), high = meaning(f, h + 1), middle = (low + high) / 2;

        rounds(f, middle, h % 2 == 0 ? h : h + 1);
        rounds(f, nextafter(middle, 0), h);
        rounds(f, nextafter(middle, INFINITY), h + 1);
        rounds(f, (double)nextafterf((float)middle, 0), h);
        rounds(f, (double)nextafterf((float)middle, INFINITY), h + 1);
        rounds(f, nextafter(low, INFINITY), h);
        rounds(f, nextafter(high, 0), h + 1);
    }
    rounds(f, 1e300, f->infinity);
    rounds(f, INFINITY, f->infinity);
    assert_true(isnan(f->widen(f->round(float_odd(NAN)))));
    assert_true(isnan(f->widen(f->round(-NAN))));
    assert_true(isnan(f->widen(f->stochastic(NAN, UINT32_MAX))));
    /* A NaN whose payload is lost must not become infinite. */
    assert_true(isnan(f->widen(f->round(float_of(0x7f800001)))));
    assert_true(isnan(f->widen(f->stochastic(float_of(0xff800001), 0))));
}

static void test_round_to_nearest_even(void **state)
{
    (void)state;
    round_all(&bf16);
    round_all(&f16);
#ifdef __FLT16_MAX__
    for (uint32_t i = 0; i < 1 << 20; i++) {
        float x = float_of(i * 2654435761u);
        _Float16 want = (_Float16)x;
        uint16_t bits;

        memcpy(&bits, &want, sizeof bits);
        assert_true(f16_round(x) == bits || isnan(x));
    }
#endif
}

/* How often of all `2^bits` noises x is rounded away from zero: as often as it is far from the
 * number below it. */
static void odds(const struct format *f, float x, int bits)
{
    int below = f->round(x), up = 0;
    double share;

    below -= fabs(meaning(f, below)) > fabs((double)x);
    share = (fabs((double)x) - fabs(meaning(f, below))) /
            (fabs(meaning(f, below + 1)) - fabs(meaning(f, below)));
    for (uint32_t i = 0; i < 1u << bits; i++) {
        int h = f->stochastic(x, i);

        assert_true(h == below || h == below + 1);
        up += h != below;
    }
    assert_true(fabs(up - share * (1 << bits)) <= 1);
}

static void test_stochastic_is_right_on_average(void **state)
{
    (void)state;
    odds(&bf16, 1.2345f, 16);
    odds(&bf16, -3e-39f, 16); /* subnormal */
    odds(&bf16, 1e30f, 16);
    odds(&f16, 1.2345f, 13);
    odds(&f16, -60001.5f, 13);
    odds(&f16, 5.05e-5f, 14); /* subnormal, 14 to 17 bits are lost */
    odds(&f16, -3.21e-5f, 14);
    odds(&f16, 7.7e-6f, 17);
    assert_int_equal(f16_stochastic(-1e-12f, UINT32_MAX), SIGN);
    assert_int_equal(f16_stochastic(1e6f, 0), f16.infinity);
    assert_int_equal(f16_stochastic(65535, UINT32_MAX), f16.infinity);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_widen_all_patterns),
        cmocka_unit_test(test_round_to_nearest_even),
        cmocka_unit_test(test_stochastic_is_right_on_average),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
