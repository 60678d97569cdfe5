#include "tests/harness/ask.h"

static struct repo hf = {.name = "hf"};
static struct repo pypi = {.name = "pypi"};
static struct repo *const repos[] = {&hf, &pypi};

static void check(const char *path, const char *root, const struct repo *want, const char *below,
                  bool reserved)
{
    struct route to = route_of(repos, ARRAY_LEN(repos), slice_str(path), root);

    assert_ptr_equal(to.repo, want);
    assert_int_equal(to.reserved, reserved);
    if (want != NULL) {
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

/* --- below /v2/ --- */

static const struct repo_ops images = {.name = "images", .registry = true};
static const struct repo_ops files = {.name = "files"};
static const char *hub_names[] = {"docker.example", "hub.example:5000", NULL};
static struct repo hub = {.name = "hub", .ops = &images, .names = hub_names};
static struct repo other = {.name = "other", .ops = &images};
static struct repo plain = {.name = "plain", .ops = &files, .names = hub_names};
static struct repo *const registries[] = {&plain, &other, &hub};

static void check_v2(const char *path, const char *query, const char *root, const struct repo *want,
                     const char *below)
{
    struct arena a = {0};
    struct slice q = query != NULL ? slice_str(query) : SLICE_NONE;
    struct route to = route_v2(registries, ARRAY_LEN(registries), slice_str(path), q, root, &a);

    assert_ptr_equal(to.repo, want);
    if (want != NULL) {
        assert_slice(to.path, below);
    }
    arena_fini(&a);
}

static void images_by_their_first_segment(void **state)
{
    (void)state;
    check_v2("/v2/hub/library/a/manifests/x", NULL, NULL, &hub, "library/a/manifests/x");
    check_v2("/v2/other/tags/list", NULL, NULL, &other, "tags/list");
    check_v2("/v2/gone/a/tags/list", NULL, NULL, NULL, "");
    check_v2("/v2/plain/a/tags/list", NULL, NULL, NULL, "");
    check_v2("/v2/", NULL, NULL, NULL, "");
}

static void images_of_a_listeners_root(void **state)
{
    (void)state;
    check_v2("/v2/library/a/tags/list", NULL, "hub", &hub, "library/a/tags/list");
    check_v2("/v2/other/a/tags/list", NULL, "hub", &other, "a/tags/list");
    check_v2("/v2/a/tags/list", NULL, "plain", NULL, "");
    check_v2("/v2/a/tags/list", NULL, "gone", NULL, "");
}

static void images_by_namespace(void **state)
{
    (void)state;
    check_v2("/v2/a/b/tags/list", "ns=docker.example", NULL, &hub, "a/b/tags/list");
    check_v2("/v2/a/b/tags/list", "n=3&ns=DOCKER.example&last=x", NULL, &hub, "a/b/tags/list");
    check_v2("/v2/a/b/tags/list", "ns=hub.example%3A5000", "other", &hub, "a/b/tags/list");
    check_v2("/v2/hub/a/b/tags/list", "ns=docker.example", NULL, &hub, "a/b/tags/list");
    /* another repo's name is no prefix there: the image is the registry's that was named */
    check_v2("/v2/other/b/tags/list", "ns=docker.example", NULL, &hub, "other/b/tags/list");
    check_v2("/v2/hub/a/tags/list", "ns=evil.example", "hub", NULL, "");
    check_v2("/v2/hub/a/tags/list", "ns=", NULL, &hub, "a/tags/list");
}

/* The version and the token server are nobody's, whatever the listener's root is and whatever client asks. */
static void the_door_is_no_repos(void **state)
{
    static const char *const query[] = {NULL, "ns=docker.example", "ns=evil.example", "scope=x"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(query); i++) {
        check_v2("/v2/", query[i], NULL, NULL, "");
        check_v2("/v2/", query[i], "hub", NULL, "");
        check_v2("/v2/-/token", query[i], NULL, NULL, "");
        check_v2("/v2/-/token", query[i], "hub", NULL, "");
        check_v2("/v2/-", query[i], "hub", NULL, "");
        check_v2("/v2//a/tags/list", query[i], "hub", NULL, "");
    }
    check_v2("/v2/-a/tags/list", NULL, "hub", &hub, "-a/tags/list");
}

TESTS(cmocka_unit_test(images_by_their_first_segment), cmocka_unit_test(images_of_a_listeners_root),
      cmocka_unit_test(images_by_namespace), cmocka_unit_test(the_door_is_no_repos),
      cmocka_unit_test(repos_by_their_first_segment), cmocka_unit_test(reserved_names_stay_ours),
      cmocka_unit_test(a_listeners_root))
