#include "server/repo/oci/path.h"

#include "tests/harness/ask.h"

#define HEX   "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define D256  "sha256:" HEX
#define D512  "sha512:" HEX HEX
#define LONG8 "aaaaaaaa"
#define LONG  LONG8 LONG8 LONG8 LONG8 LONG8 LONG8 LONG8 LONG8

static struct arena arena;

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static void kinds(void **state)
{
    static const struct {
        const char *raw;
        enum oci_kind kind;
        const char *name, *reference;
        bool by_digest;
    } row[] = {
        {"alpine/manifests/latest", OCI_MANIFEST, "alpine", "latest", false},
        {"library/alpine/manifests/3.20", OCI_MANIFEST, "library/alpine", "3.20", false},
        {"a/b/c/d/manifests/" D256, OCI_MANIFEST, "a/b/c/d", D256, true},
        {"a/manifests/sha256%3A" HEX, OCI_MANIFEST, "a", D256, true},
        {"a/manifests/" D512, OCI_MANIFEST, "a", D512, true},
        {"a/blobs/" D256, OCI_BLOB, "a", D256, true},
        {"a/blobs/" D512, OCI_BLOB, "a", D512, true},
        {"a/blobs/uploads/", OCI_UPLOADS, "a", "", false},
        {"a/blobs/uploads", OCI_UPLOADS, "a", "", false},
        {"a/b/blobs/uploads/0f-1_2", OCI_UPLOAD, "a/b", "0f-1_2", false},
        {"a/tags/list", OCI_TAGS, "a", "", false},
        {"a/referrers/" D256, OCI_REFERRERS, "a", D256, true},
        /* words of the protocol are names, too: the end decides */
        {"manifests/manifests/manifests", OCI_MANIFEST, "manifests", "manifests", false},
        {"a/tags/list/tags/list", OCI_TAGS, "a/tags/list", "", false},
        {"a/blobs/uploads/tags/list", OCI_TAGS, "a/blobs/uploads", "", false},
        {"a/blobs/b/manifests/v1", OCI_MANIFEST, "a/blobs/b", "v1", false},
        {"a/tags/other", OCI_OTHER, NULL, NULL, false},
        {"_catalog", OCI_OTHER, NULL, NULL, false},
        {"manifests/latest", OCI_OTHER, NULL, NULL, false},
        {"", OCI_OTHER, NULL, NULL, false},
        {"a", OCI_OTHER, NULL, NULL, false},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct oci_path p;
        enum oci_code code;
        if (oci_path_parse(slice_str(row[i].raw), &arena, &p, &code, NULL) != 0 ||
            p.kind != row[i].kind) {
            fail_msg("%s: kind %d", row[i].raw, (int)p.kind);
        }
        if (row[i].name != NULL) {
            assert_slice(p.name, row[i].name);
            assert_slice(p.reference, row[i].reference);
            assert_int_equal(p.by_digest, row[i].by_digest);
        }
    }
}

static void what_cannot_be(void **state)
{
    static const struct {
        const char *raw;
        enum oci_code code;
    } row[] = {
        {"Alpine/manifests/latest", OCI_NAME_INVALID},
        {"/manifests/latest", OCI_NAME_INVALID},
        {"a//b/manifests/latest", OCI_NAME_INVALID},
        {"a%2Fb/manifests/latest", OCI_NAME_INVALID},
        {"a/../b/manifests/latest", OCI_NAME_INVALID},
        {"a/%00/manifests/latest", OCI_NAME_INVALID},
        {"-a/tags/list", OCI_NAME_INVALID},
        {"a-/tags/list", OCI_NAME_INVALID},
        {"a..b/tags/list", OCI_NAME_INVALID},
        {"a___b/tags/list", OCI_NAME_INVALID},
        {"a_.b/tags/list", OCI_NAME_INVALID},
        {"a b/tags/list", OCI_NAME_INVALID},
        {LONG "/" LONG "/" LONG "/" LONG "/tags/list", OCI_NAME_INVALID},
        {"a/manifests/", OCI_MANIFEST_INVALID},
        {"a/manifests/.x", OCI_MANIFEST_INVALID},
        {"a/manifests/-x", OCI_MANIFEST_INVALID},
        {"a/manifests/x+y", OCI_MANIFEST_INVALID},
        {"a/manifests/" LONG LONG "x", OCI_MANIFEST_INVALID},
        {"a/manifests/md5:0", OCI_DIGEST_INVALID},
        {"a/manifests/sha256:", OCI_DIGEST_INVALID},
        {"a/blobs/latest", OCI_DIGEST_INVALID},
        {"a/blobs/sha256:" HEX "0", OCI_DIGEST_INVALID},
        {"a/blobs/sha512:" HEX, OCI_DIGEST_INVALID},
        {"a/blobs/sha256:0123456789ABCDEF0123456789abcdef0123456789abcdef0123456789abcdef",
         OCI_DIGEST_INVALID},
        {"a/referrers/v1", OCI_DIGEST_INVALID},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct oci_path p;
        struct err e = {0};
        enum oci_code code = OCI_TOOMANYREQUESTS;
        if (oci_path_parse(slice_str(row[i].raw), &arena, &p, &code, &e) != E_INVALID ||
            code != row[i].code || e.text[0] == '\0') {
            fail_msg("%s: %s (%s)", row[i].raw, oci_code_name(code), e.text);
        }
    }
}

static void names_that_can_be(void **state)
{
    static const char *const names[] = {"a", "0", "a.b", "a_b", "a__b", "a-b", "a----b/c.d/e_f"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_true(oci_name_valid(slice_str(names[i])));
    }
    assert_false(oci_name_valid(SLICE("a/")));
    assert_false(oci_name_valid(SLICE("")));
}

static void digests(void **state)
{
    struct oci_digest d;

    (void)state;
    assert_true(oci_digest_parse(SLICE(D256), &d));
    assert_int_equal(d.called.by, CALLED_SHA256);
    assert_int_equal(d.called.sha256.b[1], 0x23);
    assert_true(oci_digest_parse(SLICE(D512), &d));
    assert_int_equal(d.called.by, CALLED_SHA512);
    assert_int_equal(d.called.sha512.b[63], 0xef);
}

TESTS(cmocka_unit_test_teardown(kinds, teardown),
      cmocka_unit_test_teardown(what_cannot_be, teardown), cmocka_unit_test(names_that_can_be),
      cmocka_unit_test(digests))
