#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/codec/units.h"

static void sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"512", 512},
        {"64k", 65536},
        {"64K", 65536},
        {"1.5k", 1536},
        {"2t", (uint64_t)2 << 40},
        {"10g", (uint64_t)10 << 30},
        {"0.25m", 262144},
        {"16777215t", (uint64_t)16777215 << 40},
    };
    static const char *const bad[] = {
        "",     "k",   "-1",      "1.k", "1.5", "1 k",       "1kb",
        "0x10", "1e3", "1.2345m", "+1",  " 1",  "16777216t", "99999999999999999999"};
    uint64_t v;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(size_parse(slice_str(good[i].text), &v));
        assert_int_equal(v, good[i].bytes);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(size_parse(slice_str(bad[i]), &v));
    }
    assert_false(size_parse(SLICE("1\0k"), &v));
}

static void spans_and_rates(void **state)
{
    uint64_t v;
    double d;

    (void)state;
    assert_true(span_parse(SLICE("250ms"), &v) && v == 250);
    assert_true(span_parse(SLICE("30s"), &v) && v == 30000);
    assert_true(span_parse(SLICE("1.5h"), &v) && v == 5400000);
    assert_true(span_parse(SLICE("1d"), &v) && v == 86400000);
    assert_true(span_parse(SLICE("0"), &v) && v == 0);
    assert_false(span_parse(SLICE("30"), &v));
    assert_false(span_parse(SLICE("5y"), &v));
    assert_true(rate_parse(SLICE("100m/s"), &v) && v == 100u << 20);
    assert_true(rate_parse(SLICE("0"), &v) && v == 0);
    assert_false(rate_parse(SLICE("100m"), &v));
    assert_false(rate_parse(SLICE("/s"), &v));
    assert_true(frequency_parse(SLICE("200/s"), &d) && d == 200);
    assert_true(frequency_parse(SLICE("30/m"), &d) && d == 0.5);
    assert_true(frequency_parse(SLICE("0.5/s"), &d) && d == 0.5);
    assert_false(frequency_parse(SLICE("200"), &d));
    assert_false(frequency_parse(SLICE("k/s"), &d));
    assert_true(share_parse(SLICE("5%"), &d) && d == 0.05);
    assert_true(share_parse(SLICE("100%"), &d) && d == 1);
    assert_false(share_parse(SLICE("100.1%"), &d));
    assert_false(share_parse(SLICE("5"), &d));
}

static void for_people(void **state)
{
    char s[UNITS_TEXT];

    (void)state;
    size_format(0, s);
    assert_string_equal(s, "0 B");
    size_format(1023, s);
    assert_string_equal(s, "1023 B");
    size_format(1536, s);
    assert_string_equal(s, "1.50 KiB");
    size_format(1048575, s);
    assert_string_equal(s, "1.00 MiB");
    size_format((uint64_t)250 << 30, s);
    assert_string_equal(s, "250 GiB");
    size_format(UINT64_MAX, s);
    assert_string_equal(s, "16.0 EiB");
    span_format(45, s);
    assert_string_equal(s, "45 ms");
    span_format(1250, s);
    assert_string_equal(s, "1.2 s");
    span_format(200000, s);
    assert_string_equal(s, "3m20s");
    span_format((uint64_t)86400000 * 12 + 4 * 3600000, s);
    assert_string_equal(s, "12d04h");
    span_format(UINT64_MAX, s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes),
        cmocka_unit_test(spans_and_rates),
        cmocka_unit_test(for_people),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
