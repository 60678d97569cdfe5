#include "tests/harness/ask.h"

static struct repo hf = {.name = "hf"};
static struct repo pypi = {.name = "pypi"};
static struct repo *const repos[] = {&hf, &pypi};

static void check(const char *path, const char *root, const struct repo *lookup, const char *below,
                  bool reserved)
{
    struct route to = route_of(repos, ARRAY_LEN(repos), slice_str(path), root);

    assert_ptr_equal(to.repo, lookup);
    assert_int_equal(to.reserved, reserved);
    if (lookup != NULL) {
        assert_slice(to.path, below);
    }
}

static void repos_by_their_first_segment(void **state)
{
    (void)state;
    check("/hf/a/b", NULL, &hf, "a/b", false);
    check("/hf/", NULL, &hf, "", false);
    check("/hf", NULL, &hf, "", false);
    check("/hf//x", NULL, &hf, "/x", false);
    check("/hfx/a", NULL, NULL, "", false);
    check("/HF/a", NULL, NULL, "", false);
    check("/%68f/a", NULL, NULL, "", false);
    check("//hf/a", NULL, NULL, "", false);
    check("", NULL, NULL, "", true);
}

static void reserved_names_stay_ours(void **state)
{
    static const char *const ours[] = {"/",   "/healthz",  "/readyz", "/metrics",  "/v2/",
                                       "/v2", "/-/status", "/-",      "/metrics/x"};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
        check(ours[i], NULL, NULL, "", true);
        check(ours[i], "hf", NULL, "", true);
    }
    check("/healthz2", NULL, NULL, "", false);
}

static void a_listeners_root(void **state)
{
    (void)state;
    check("/org/model/resolve", "hf", &hf, "org/model/resolve", false);
    check("/pypi/simple/", "hf", &pypi, "simple/", false);
    check("/hf/x", "hf", &hf, "x", false);
    check("/org", "gone", NULL, "", false);
    check("//org", "hf", NULL, "", false);
}

TESTS(cmocka_unit_test(repos_by_their_first_segment), cmocka_unit_test(reserved_names_stay_ours),
      cmocka_unit_test(a_listeners_root))
