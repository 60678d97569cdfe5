#include "server/repo/oci/code.h"

#include "tests/harness/ask.h"

static void a_body(void **state)
{
    struct arena a = {0};

    (void)state;
    assert_slice(oci_errors(OCI_NAME_UNKNOWN, SLICE("no \"x\""), &a),
                 "{\"errors\":[{\"code\":\"NAME_UNKNOWN\",\"message\":\"no \\\"x\\\"\"}]}\n");
    arena_fini(&a);
}

static void a_long_message_of_any_bytes(void **state)
{
    struct arena a = {0};
    char text[10000];

    (void)state;
    memset(text, 1, sizeof text);
    assert_true(oci_errors(OCI_DENIED, slice_of(text, sizeof text), &a).n > 4096);
    arena_fini(&a);
}

static void codes_by_status(void **state)
{
    (void)state;
    assert_int_equal(oci_code_of_status(404, true), OCI_MANIFEST_UNKNOWN);
    assert_int_equal(oci_code_of_status(404, false), OCI_BLOB_UNKNOWN);
    assert_int_equal(oci_code_of_status(401, true), OCI_UNAUTHORIZED);
    assert_int_equal(oci_code_of_status(429, true), OCI_TOOMANYREQUESTS);
    assert_int_equal(oci_code_of_status(502, true), OCI_UNAVAILABLE);
    assert_int_equal(oci_code_of_status(414, true), OCI_UNSUPPORTED);
    for (int c = 0; c <= OCI_UNAVAILABLE; c++) {
        int status = oci_code_status((enum oci_code)c);
        assert_true(status >= 400 && status <= 503);
        assert_true(strlen(oci_code_name((enum oci_code)c)) > 5);
    }
}

TESTS(cmocka_unit_test(a_body), cmocka_unit_test(a_long_message_of_any_bytes),
      cmocka_unit_test(codes_by_status))
