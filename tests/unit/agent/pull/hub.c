#include "agent/pull/hub.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define SHA    "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static void test_names(void **state)
{
    static const struct {
        const char *from, *type, *prefix, *id, *rev; /* type NULL: no repository */
    } all[] = {
        {"hf/me/gpt", "models", "", "me/gpt", "main"},
        {"hf/gpt2", "models", "", "gpt2", "main"},
        {"hf/me/gpt@v1.0", "models", "", "me/gpt", "v1.0"},
        {"hf/datasets/me/text@refs/pr/1", "datasets", "datasets/", "me/text", "refs/pr/1"},
        {"hf/spaces/me/demo", "spaces", "spaces/", "me/demo", "main"},
        {"hf/models/me/gpt", "models", "", "me/gpt", "main"},
        {"hf/me/gpt/resolve/main/a.bin", NULL, NULL, NULL, NULL},
        {"hf/me/gpt@", NULL, NULL, NULL, NULL},
        {"hf/me/gpt@../../x", NULL, NULL, NULL, NULL},
        {"hf/../gpt", NULL, NULL, NULL, NULL},
        {"hf/me/g pt", NULL, NULL, NULL, NULL},
        {"hf/me/gpt#sha256=" SHA, NULL, NULL, NULL, NULL},
        {"hf/", NULL, NULL, NULL, NULL},
        {"models/me/gpt", NULL, NULL, NULL, NULL},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct arena a = {0};
        struct hub h;
        bool is = hub_from(slice_str(all[i].from), &a, &h);
        if (is != (all[i].type != NULL) ||
            (is && (!slice_eqs(h.type, all[i].type) || !slice_eqs(h.prefix, all[i].prefix) ||
                    !slice_eqs(h.id, all[i].id) || !slice_eqs(h.rev, all[i].rev)))) {
            fail_msg("%s", all[i].from);
        }
        arena_fini(&a);
    }
}

static void test_urls_and_places(void **state)
{
    struct arena a = {0};
    char path[PATH_MAX];
    struct hub h;

    (void)state;
    assert_true(hub_from(SLICE("hf/datasets/me/text@refs/pr/1"), &a, &h));
    assert_true(slice_eqs(hub_next_url(&h, &a), "hf/api/datasets/me/text/revision/refs%2Fpr%2F1"));
    assert_int_equal(hub_read_info(&h, SLICE("{\"sha\": \"" COMMIT "\"}"), &a, NULL), 0);
    assert_true(
        slice_eqs(hub_next_url(&h, &a), "hf/api/datasets/me/text/tree/" COMMIT "?recursive=true"));
    assert_true(slice_eqs(hub_files_url(&h, SLICE("http://m"), &a),
                          "http://m/hf/datasets/me/text/resolve/" COMMIT "/"));
    hub_snapshot(&h, "/home", path);
    assert_string_equal(path, "/home/hub/datasets--me--text/snapshots/" COMMIT);
    arena_fini(&a);
}

static void test_a_revision_that_is_none(void **state)
{
    static const char *const bad[] = {"", "{", "[]", "{}", "{\"sha\": 1}", "{\"sha\": \"main\"}"};
    struct arena a = {0};
    struct hub h;

    (void)state;
    assert_true(hub_from(SLICE("hf/me/gpt"), &a, &h));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(hub_read_info(&h, slice_str(bad[i]), &a, NULL), E_PROTOCOL);
    }
    arena_fini(&a);
}

static int count(void *arg, const struct artifact_file *f)
{
    struct artifact_file *last = arg;

    *last = *f;
    last->name = SLICE_NONE; /* dies with the listing */
    return slice_eqs(f->name, "stop") ? E_INVALID : 0;
}

static int read_files(const char *doc, struct artifact_file *last)
{
    return hub_read_files(slice_str(doc), count, last, NULL);
}

static void test_listings(void **state)
{
    struct artifact_file f = {0};
    struct digest d;

    (void)state;
    assert_true(digest_parse(SLICE(SHA), &d));
    assert_int_equal(
        read_files("[{\"type\":\"directory\",\"path\":\"a\"},{\"type\":\"file\",\"path\":\"a/"
                   "b\",\"size\":7,\"oid\":\"" COMMIT "\"}]",
                   &f),
        0);
    assert_int_equal(f.size_bytes, 7);
    assert_true(digest_is_zero(&f.digest)); /* git's name is all that is known */
    assert_int_equal(read_files("[{\"path\":\"m\",\"size\":9,\"oid\":\"" COMMIT
                                "\",\"lfs\":{\"oid\":\"" SHA "\"}}]",
                                &f),
                     0);
    assert_true(digest_eq(&f.digest, &d));
    assert_int_equal(read_files("[{\"path\":\"stop\",\"size\":9,\"oid\":\"" COMMIT "\"}]", &f),
                     E_INVALID);
}

static void test_listings_that_are_none(void **state)
{
    static const char *const bad[] = {
        "",
        "{}",
        "[1]",
        "[{\"path\":\"a\",\"size\":1}]",
        "[{\"path\":\"a\",\"size\":-1,\"oid\":\"" COMMIT "\"}]",
        "[{\"path\":\"a\",\"size\":\"1\",\"oid\":\"" COMMIT "\"}]",
        "[{\"size\":1,\"oid\":\"" COMMIT "\"}]",
        "[{\"path\":\"a\",\"size\":1,\"oid\":\"xyz\"}]",
        "[{\"path\":\"a\",\"size\":1,\"oid\":\"" COMMIT "\",\"lfs\":{\"oid\":\"" COMMIT "\"}}]",
    };
    struct artifact_file f;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(read_files(bad[i], &f), E_PROTOCOL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_urls_and_places),
        cmocka_unit_test(test_a_revision_that_is_none),
        cmocka_unit_test(test_listings),
        cmocka_unit_test(test_listings_that_are_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
