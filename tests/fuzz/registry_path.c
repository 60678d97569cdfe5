/* registry_path.c - fuzzes paths below /v2/ and where they lead: what is read is what the grammar
 * allows. */
#include "server/registry/route.h"
#include "server/repo/oci/path.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_path(struct slice raw, struct arena *a)
{
    struct oci_path at;
    enum oci_code code = OCI_TOOMANYREQUESTS;
    struct err e = {0};

    if (oci_path_parse(raw, a, &at, &code, &e) != 0) {
        CHECK(code != OCI_TOOMANYREQUESTS);
        return;
    }
    if (at.kind == OCI_OTHER) {
        return;
    }
    CHECK(oci_name_valid(at.name) && slice_find(at.name, '%') < 0);
    CHECK(!at.by_digest || at.digest.text.n == (at.digest.called.by == CALLED_SHA256 ? 71 : 135));
    CHECK(at.kind != OCI_BLOB || at.by_digest);
    CHECK(at.kind != OCI_MANIFEST || at.by_digest || oci_tag_valid(at.reference));
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    static const struct repo_ops ops = {.name = "oci", .registry = true};
    static const char *names[] = {"registry.example", NULL};
    static struct repo repo = {.name = "hub", .ops = &ops, .names = names};
    static struct repo *const repos[] = {&repo};
    struct arena a = {0};
    struct slice query = slice_of(p, n);
    struct slice path = slice_cut(&query, '?');
    struct slice whole = arena_fmt(&a, OCI_ROOT SLICE_FMT, SLICE_ARG(path));
    struct route to = registry_route(repos, 1, whole, query, n % 2 != 0 ? "hub" : NULL, &a);

    CHECK(to.path.p >= whole.p && to.path.p + to.path.n == whole.p + whole.n);
    check_path(to.path, &a);
    arena_fini(&a);
    return 0;
}
