#include "common/hash/sha512.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/buf.h"

/* FIPS 180-4's "abc". */
static const char of_abc[] = "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a"
                             "2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f";

static void known(void **state)
{
    struct sha512 want, got;

    (void)state;
    assert_true(slice_hex(slice_str(of_abc), want.b, SHA512_BYTES));
    sha512_of(SLICE("abc"), &got);
    assert_true(sha512_eq(&got, &want));
    sha512_of(SLICE_NONE, &got);
    assert_int_equal(got.b[0], 0xcf);
    assert_false(sha512_eq(&got, &want));
}

static void of_a_file(void **state)
{
    static char bytes[(1 << 20) + 7];
    FILE *f = tmpfile();
    struct sha512 want, got;

    (void)state;
    assert_non_null(f);
    memset(bytes, 'x', sizeof bytes);
    assert_int_equal(fwrite(bytes, 1, sizeof bytes, f), sizeof bytes);
    assert_int_equal(fflush(f), 0);
    for (size_t n = sizeof bytes; n > sizeof bytes - 2; n--) {
        sha512_of(slice_of(bytes, n), &want);
        assert_int_equal(sha512_of_fd(fileno(f), n, &got, NULL), 0);
        assert_true(sha512_eq(&got, &want));
    }
    assert_int_equal(sha512_of_fd(fileno(f), 0, &got, NULL), 0);
    assert_true(sha512_of_fd(fileno(f), sizeof bytes + 1, &got, NULL) < 0);
    fclose(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(known), cmocka_unit_test(of_a_file)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
