#include "common/codec/isotime.h"

#include "tests/harness/ask.h"

static void times_are_read(void **state)
{
    static const char *const bad[] = {"",
                                      "2013-05-24",
                                      "2013-05-24T00:00:00",
                                      "2013-05-24T00:00:00+01:00",
                                      "2013-13-24T00:00:00Z",
                                      "2013-05-32T00:00:00Z",
                                      "2013-05-24T24:00:00Z",
                                      "2013-05-24T00:60:00Z",
                                      "2013-05-24T00:00:61Z",
                                      "1969-12-31T23:59:59Z",
                                      "9999-12-31T23:59:59Z",
                                      "2013-05-24T00:00:00.Z",
                                      "2013-05-24T00:00:00.0000000001Z",
                                      "2013-05-24T00:00:00.1",
                                      "2013-05-24T00:00:00.1Zx",
                                      "2013-05-24T00:00:00Zx",
                                      "2013-5-24T00:00:00Z"};
    int64_t ns = 0;

    (void)state;
    assert_true(isotime_parse(SLICE("2013-05-24T00:00:00Z"), &ns) && ns == 1369353600000000000);
    assert_true(isotime_parse(SLICE("2013-05-24T00:00:00.1Z"), &ns) && ns == 1369353600100000000);
    assert_true(isotime_parse(SLICE("2013-05-24T00:00:00.123456789Z"), &ns) &&
                ns == 1369353600123456789);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_false(isotime_parse(slice_str(bad[i]), &ns));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
