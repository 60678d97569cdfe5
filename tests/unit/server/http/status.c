#include "server/http/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "common/base/check.h"
#include "common/base/err.h"

static void test_all_alike(void **state)
{
    (void)state;
    for (enum status_about a = STATUS_REQUEST; a <= STATUS_OURS; a++) {
        assert_int_equal(status_of_error(E_BUSY, a), 503);
        assert_int_equal(status_of_error(E_TIMEOUT, a), 503);
        assert_int_equal(status_of_error(E_CANCELLED, a), 503);
        assert_int_equal(status_of_error(E_CHANGED, a), 503);
        assert_int_equal(status_of_error(E_NETWORK, a), 502);
        assert_int_equal(status_of_error(E_NOSPACE, a), 507);
        assert_int_equal(status_of_error(E_REFUSED, a), 403);
        assert_int_equal(status_of_error(E_IO, a), 500);
        assert_int_equal(status_of_error(E_INTERNAL, a), 500);
    }
}

static void test_whose_bytes(void **state)
{
    static const struct {
        int rc, request, origin, ours;
    } all[] = {
        {E_NOTFOUND, 404, 500, 500},    {E_DENIED, 403, 502, 500},  {E_INVALID, 400, 502, 500},
        {E_TOOBIG, 400, 502, 500},      {E_CORRUPT, 500, 502, 500}, {E_PROTOCOL, 500, 502, 500},
        {E_UNSUPPORTED, 500, 502, 500}, {E_CONFIG, 500, 502, 500},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        assert_int_equal(status_of_error(all[i].rc, STATUS_REQUEST), all[i].request);
        assert_int_equal(status_of_error(all[i].rc, STATUS_ORIGIN), all[i].origin);
        assert_int_equal(status_of_error(all[i].rc, STATUS_OURS), all[i].ours);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_alike),
        cmocka_unit_test(test_whose_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
