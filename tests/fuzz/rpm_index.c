/* repomd.xml and primary.xml of a stranger's repository, by the first byte, in two pieces: what
 * they name are paths that can be, with a digest. */
#include "server/store/tree.h"
#include "server/sync/rpm/repomd.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_file(void *arg, struct slice path, uint64_t size_bytes, const struct sum *sum,
                   struct err *e)
{
    (void)arg;
    (void)size_bytes;
    (void)e;
    CHECK(tree_path_valid(path) && sum->kind != SUM_NONE);
    return 0;
}

static void read_primary(struct slice all, size_t cut)
{
    struct primary_events ev = {.on_file = on_file};
    struct primary *k = primary_open(&ev);
    int rc = primary_feed(k, slice_first(all, cut), NULL);

    if (rc == 0) {
        rc = primary_feed(k, slice_from(all, cut), NULL);
    }
    if (rc == 0) {
        (void)!primary_finish(k, NULL);
    }
    primary_close(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct repomd r;
    struct slice all;

    if (n < 2) {
        return 0;
    }
    all = slice_of(p + 2, n - 2);
    if (p[0] % 2 == 0) {
        read_primary(all, all.n * p[1] / 256);
    } else if (repomd_read(all, &r, NULL) == 0) {
        for (size_t i = 0; i < r.count; i++) {
            CHECK(tree_path_valid(r.data[i].path) && r.data[i].sum.kind != SUM_NONE);
        }
        CHECK(repomd_find(&r, "primary") != NULL);
        repomd_free(&r);
    }
    return 0;
}
