#include "server/repo/hf/key.h"

#include "tests/harness/ask.h"

static void assert_is(struct slice got, const char *lookup)
{
    if (!slice_eqs(got, lookup)) {
        fail_msg("\"" SLICE_FMT "\" is not \"%s\"", SLICE_ARG(got), lookup);
    }
}

static struct manifest_entry entry(bool lfs)
{
    struct manifest_entry f = {.path = SLICE("a b/c#.bin"), .lfs = lfs};

    memset(f.sha256.b, 0xab, sizeof f.sha256.b);
    memset(f.oid.b, 0xcd, sizeof f.oid.b);
    return f;
}

static void test_words(void **state)
{
    struct slice type = SLICE("datasets"), id = SLICE("org/data");
    struct arena a = {0};

    (void)state;
    assert_is(key_info(type, id, SLICE_NONE, &a), "api/datasets/org/data");
    assert_is(key_info(type, id, SLICE("main"), &a), "api/datasets/org/data/revision/main");
    assert_is(key_info(type, id, SLICE("refs/pr/1"), &a),
              "api/datasets/org/data/revision/refs%2Fpr%2F1");
    assert_is(key_tree(type, id, SLICE("0123"), &a), "api/datasets/org/data/tree/0123");
    assert_is(key_auth_check(type, id, &a), "api/datasets/org/data/auth-check");
    arena_fini(&a);
}

static void test_files(void **state)
{
    struct slice type = SLICE("models"), id = SLICE("gpt2");
    struct slice got_type, got_id, etag;
    char room[ETAG_HEX + 1];
    struct arena a = {0};

    (void)state;
    for (int lfs = 0; lfs <= 1; lfs++) {
        struct manifest_entry f = entry(lfs == 1);
        struct slice key = key_file(type, id, &f, &a);
        assert_true(slice_starts(key, key_files(type, id, &a)));
        assert_true(key_read_file(key, &got_type, &got_id, &etag));
        assert_is(got_type, "models");
        assert_is(got_id, "gpt2");
        assert_true(slice_eq(etag, key_etag(&f, room)));
        assert_int_equal(etag.n, lfs == 1 ? DIGEST_HEX : GIT_OID_HEX);
    }
    assert_false(key_read_file(SLICE("api/models/gpt2/tree/0123"), &got_type, &got_id, &etag));
    assert_false(key_read_file(SLICE("models/../x/blobs/0"), &got_type, &got_id, &etag));
    assert_false(
        key_read_file(SLICE("rights/auth-check/models/blobs/blobs/x"), &got_type, &got_id, &etag));
    assert_false(key_read_file(SLICE(""), &got_type, &got_id, &etag));
    arena_fini(&a);
}

static void test_where_a_client_asks(void **state)
{
    struct manifest_entry f = entry(false);
    struct arena a = {0};

    (void)state;
    assert_is(key_resolve(SLICE("datasets/"), SLICE("org/data"), SLICE("0123"), f.path, &a),
              "datasets/org/data/resolve/0123/a%20b/c%23.bin");
    arena_fini(&a);
}

TESTS(cmocka_unit_test(test_words), cmocka_unit_test(test_files),
      cmocka_unit_test(test_where_a_client_asks))
