#include "server/repo/hf/path.h"

#include "tests/harness/ask.h"

static struct arena arena;

static int teardown(void **state)
{
    (void)state;
    arena_fini(&arena);
    return 0;
}

static void routes(void **state)
{
    static const struct {
        const char *raw;
        enum hf_route route;
        const char *type, *id, *rev, *path;
    } row[] = {
        {"api/models/gpt2", HF_INFO, "models", "gpt2", NULL, ""},
        {"api/models/org/name", HF_INFO, "models", "org/name", NULL, ""},
        {"api/datasets/org/name/revision/main", HF_INFO, "datasets", "org/name", "main", ""},
        {"api/models/gpt2/revision/refs%2Fpr%2F4", HF_INFO, "models", "gpt2", "refs/pr/4", ""},
        {"api/models/gpt2/tree/main", HF_TREE, "models", "gpt2", "main", ""},
        {"api/models/gpt2/tree/main/a%2Fb%20c", HF_TREE, "models", "gpt2", "main", "a/b c"},
        {"api/models/org/name/tree/v1/a/b/", HF_TREE, "models", "org/name", "v1", "a/b"},
        {"api/models/org/name/paths-info/v1", HF_PATHS, "models", "org/name", "v1", ""},
        {"api/spaces/org/name/refs", HF_REFS, "spaces", "org/name", NULL, ""},
        {"api/models/org/name/commits/main", HF_COMMITS, "models", "org/name", "main", ""},
        {"api/models/org/name/auth-check", HF_AUTH_CHECK, "models", "org/name", NULL, ""},
        {"api/models/org/name/xet-read-token/abc", HF_XET, "models", "org/name", "abc", ""},
        {"api/models/org/name/commit/main", HF_WRITE, "models", "org/name", "main", ""},
        {"api/models/tree/revision/main", HF_INFO, "models", "tree", "main", ""},
        {"api/models/org/tree", HF_INFO, "models", "org/tree", NULL, ""},
        {"api/models/org/name/auth-check/write", HF_AUTH_CHECK, "models", "org/name", NULL, ""},
        {"api/models/org/name/auth-check/x", HF_NONE, "models", "org/name", NULL, ""},
        {"api/models/org/name/", HF_INFO, "models", "org/name", NULL, ""},
        {"api/models/org/name/refs/", HF_REFS, "models", "org/name", NULL, ""},
        {"api/models/org/name/refs/x", HF_NONE, "models", "org/name", NULL, ""},
        {"api/models/org/name/commits/main/x", HF_NONE, "models", "org/name", "main", ""},
        {"api/models/org/name/revision/main/x", HF_NONE, "models", "org/name", "main", ""},
        {"api/models/org/name/paths-info/main/../../xet-read-token/main", HF_NONE, "models",
         "org/name", "main", ""},
        {"api/models", HF_OTHER, "models", NULL, NULL, ""},
        {"api/Models", HF_NONE, NULL, NULL, NULL, ""},
        {"api/Models/org/name/xet-read-token/main", HF_NONE, NULL, NULL, NULL, ""},
        {"api/%6Dodels/org/name/xet-read-token/main", HF_NONE, NULL, NULL, NULL, ""},
        {"api/buckets/org/b/xet-read-token", HF_BUCKET, "buckets", "org/b", "", ""},
        {"api/buckets/org/b/xet-read-token/a%2Fb", HF_BUCKET, "buckets", "org/b", "a/b", ""},
        {"api/buckets/org/b/xet/a%2Fb/v1/reconstructions/00", HF_BUCKET, "buckets", "org/b", "a/b",
         "v1/reconstructions/00"},
        {"api/buckets/org/b/xet-write-token", HF_WRITE, "buckets", "org/b", NULL, ""},
        {"api/buckets/org/b/xet-other-token", HF_NONE, NULL, NULL, NULL, ""},
        {"api/buckets/org/b/xet%2Dread-token", HF_NONE, NULL, NULL, NULL, ""},
        {"api/buckets/org/b", HF_BUCKET, "buckets", "org/b", NULL, ""},
        {"api/buckets/org", HF_BUCKET, "buckets", "org", NULL, ""},
        {"api/buckets/org/b/tree/a%2Fb", HF_BUCKET, "buckets", "org/b", NULL, "a/b"},
        {"api/buckets/org/b/paths-info", HF_BUCKET, "buckets", "org/b", NULL, ""},
        {"api/buckets/org/b/batch", HF_WRITE, "buckets", "org/b", NULL, ""},
        {"api/buckets/org/b/events", HF_NONE, NULL, NULL, NULL, ""},
        {"api/buckets/org/XET-read-token", HF_NONE, NULL, NULL, NULL, ""},
        {"api/buckets/xet-x", HF_NONE, NULL, NULL, NULL, ""},
        {"buckets/org/b/resolve/a/b%20c", HF_BUCKET, "buckets", "org/b", NULL, "a/b c"},
        {"buckets/b/resolve/main/x", HF_FILE, "models", "buckets/b", "main", "x"},
        {"org/name/raw/main/a/b", HF_FILE, "models", "org/name", "main", "a/b"},
        {"org/raw/resolve/main/a", HF_FILE, "models", "org/raw", "main", "a"},
        {"api/models/org/name/discussions", HF_ABOUT, "models", "org/name", NULL, ""},
        {"api/models/org/name/discussions/7", HF_ABOUT, "models", "org/name", NULL, "7"},
        {"api/models/org/name/likers", HF_ABOUT, "models", "org/name", NULL, ""},
        {"api/models/org/likers", HF_INFO, "models", "org/likers", NULL, ""},
        {"api/models/org/name/safetensors-metadata/a/b.json", HF_ABOUT, "models", "org/name", NULL,
         "a/b.json"},
        {"api/models/org/name/duplicate", HF_WRITE, "models", "org/name", NULL, ""},
        {"api/models/org/duplicate", HF_INFO, "models", "org/duplicate", NULL, ""},
        {"api/datasets/org/name/lfs-files/duplicate", HF_WRITE, "datasets", "org/name", NULL,
         "duplicate"},
        {"api/Buckets", HF_NONE, NULL, NULL, NULL, ""},
        {"api/x/xet%2Dread-token", HF_NONE, NULL, NULL, NULL, ""},
        {"api/x%2FXET-read-token", HF_NONE, NULL, NULL, NULL, ""},
        {"api//x", HF_NONE, NULL, NULL, NULL, ""},
        {"api/Whoami-v2", HF_NONE, NULL, NULL, NULL, ""},
        {"api/quicksearch", HF_OTHER, NULL, NULL, NULL, ""},
        {"api/whoami-v2", HF_WHOAMI, NULL, NULL, NULL, ""},
        {"api/telemetry/x/y", HF_TELEMETRY, NULL, NULL, NULL, ""},
        {"api/repos/create", HF_WRITE, NULL, NULL, NULL, ""},
        {"gpt2/resolve/main/a/b.json", HF_FILE, "models", "gpt2", "main", "a/b.json"},
        {"org/name/resolve/refs%2Fpr%2F1/a%25b", HF_FILE, "models", "org/name", "refs/pr/1", "a%b"},
        {"datasets/org/name/resolve/main/x", HF_FILE, "datasets", "org/name", "main", "x"},
        {"datasets/glue/resolve/main/x", HF_FILE, "datasets", "glue", "main", "x"},
        {"kernels/org/name/resolve/main/x", HF_FILE, "kernels", "org/name", "main", "x"},
        {"api/resolve-cache/models/org/name/0123456789012345678901234567890123456789/a/b", HF_FILE,
         "models", "org/name", "0123456789012345678901234567890123456789", "a/b"},
        {"api/resolve-cache/datasets/glue/0123456789012345678901234567890123456789/a", HF_FILE,
         "datasets", "glue", "0123456789012345678901234567890123456789", "a"},
        {"org/name.git/info/lfs/objects/batch", HF_WRITE, "models", "org/name", NULL, ""},
        {"org/name", HF_NONE, "models", NULL, NULL, ""},
        {"", HF_NONE, "models", NULL, NULL, ""},
        {"api/models/a/b/c/d", HF_NONE, "models", NULL, NULL, ""},
        {"api/models/a%2Fb", HF_NONE, "models", NULL, NULL, ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct hf_path p;
        if (hf_path_parse(slice_str(row[i].raw), &arena, &p, NULL) != 0 ||
            p.route != row[i].route) {
            fail_msg("%s: route %d", row[i].raw, (int)p.route);
        }
        if (row[i].type != NULL) {
            assert_slice(p.type, row[i].type);
        }
        if (row[i].id != NULL) {
            assert_slice(p.id, row[i].id);
        }
        assert_int_equal(p.rev.p == NULL, row[i].rev == NULL);
        if (row[i].rev != NULL) {
            assert_slice(p.rev, row[i].rev);
        }
        assert_slice(p.path, row[i].path);
    }
}

/* The Hub is asked for what was judged, not for what was written. */
static void others_are_written_anew(void **state)
{
    static const struct {
        const char *raw, *other;
    } row[] = {
        {"api/models", "api/models"},
        {"api/datasets/", "api/datasets"},
        {"api/whoami-v2", "api/whoami-v2"},
        {"api/collections/org/a%20b/%63", "api/collections/org/a%20b/c"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct hf_path p;
        assert_int_equal(hf_path_parse(slice_str(row[i].raw), &arena, &p, NULL), 0);
        assert_slice(p.other, row[i].other);
    }
    assert_true(hf_is_card(SLICE("README.md")) && hf_is_card(SLICE(".gitattributes")));
    assert_false(hf_is_card(SLICE("sub/README.md")) || hf_is_card(SLICE("readme.md")));
}

static void what_cannot_be(void **state)
{
    static const char *const row[] = {
        "org/name/resolve/main/",           "org/name/resolve/main",
        "org/name/resolve/main/a/../b",     "org/name/resolve/main/a%2F..%2Fb",
        "org/name/resolve/main/%2e%2e/b",   "org/name/resolve/main//b",
        "org/name/resolve/main/%00",        "org/name/resolve/main/a%0Ab",
        "org/name/resolve/..%2F..%2Fetc/a", "org/name/resolve/main/%zz",
        "api/models/org/name/tree/main/..", "api/x/../buckets/org/b",
        "api/x/%2e%2e/buckets/org/b",       "api/x%2F..%2Fbuckets",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct hf_path p;
        if (hf_path_parse(slice_str(row[i]), &arena, &p, NULL) == 0) {
            fail_msg("%s was taken", row[i]);
        }
    }
    assert_false(hf_is_id(SLICE("..")));
    assert_false(hf_is_id(SLICE("a/..")));
    assert_false(hf_is_id(SLICE("a/b/c")));
    assert_false(hf_is_id(SLICE("a/")));
    assert_false(hf_is_id(SLICE("")));
    assert_false(hf_is_commit(SLICE("0123456789")));
    assert_false(hf_is_commit(SLICE("ABCDEF7890123456789012345678901234567890")));
}

TESTS(cmocka_unit_test(routes), cmocka_unit_test(others_are_written_anew),
      cmocka_unit_test_teardown(what_cannot_be, teardown))
