#include "common/hash/crc32c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void test_known_answers(void **state)
{
    (void)state;
    assert_int_equal(crc32c(0, SLICE("123456789")), 0xE3069283);
    assert_int_equal(crc32c(0, SLICE("")), 0);
    /* RFC 3720 B.4: 32 bytes of zeros */
    assert_int_equal(crc32c(0, slice_of((char[32]){0}, 32)), 0x8A9136AA);
}

static void test_in_pieces(void **state)
{
    (void)state;
    assert_int_equal(crc32c(crc32c(0, SLICE("1234")), SLICE("56789")), 0xE3069283);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
