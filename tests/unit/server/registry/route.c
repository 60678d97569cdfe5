#include "server/registry/route.h"

#include "tests/harness/ask.h"

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
    struct route to =
        registry_route(registries, ARRAY_LEN(registries), slice_str(path), q, root, &a);

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

/* The version and the token server are nobody's, whatever the listener's root is and whatever
 * client asks. */
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
      cmocka_unit_test(images_by_namespace), cmocka_unit_test(the_door_is_no_repos))
