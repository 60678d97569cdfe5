/* A folder page of a stranger's server, HTML or JSON by the first byte, or its list of sums: what
 * it gives are names that can be, one level deep. */
#include "server/store/tree.h"
#include "server/sync/http/index.h"
#include "server/sync/http/sums.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int judge(void *arg, const struct index_item *it)
{
    (void)arg;
    CHECK(tree_path_valid(it->name));
    return 0;
}

static int judge_sum(void *arg, struct slice path, const struct digest *d, struct err *e)
{
    (void)arg;
    (void)d;
    (void)e;
    CHECK(tree_path_valid(path));
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct sums_events sums = {.on_file = judge_sum};
    struct index_events ev = {.on_item = judge};
    struct err e;

    if (n == 0) {
        return 0;
    }
    if (p[0] % 4 == 2) {
        (void)!sums_read(slice_of(p + 1, n - 1), &sums, NULL);
    } else if (p[0] % 2 == 0) {
        (void)!index_read(INDEX_HTML, slice_of(p + 1, n - 1), SLICE("http://h.example/a/b%20c/"),
                          &ev, &e);
    } else {
        (void)!index_read(INDEX_JSON, slice_of(p + 1, n - 1), SLICE_NONE, &ev, &e);
    }
    return 0;
}
