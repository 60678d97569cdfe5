/* Release, Packages, Sources and gzip of a stranger's archive, by the first byte: what they name
 * are paths that can be. */
#include "server/store/tree.h"
#include "server/sync/debian/packages.h"
#include "server/sync/debian/release.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_file(void *arg, struct slice path, uint64_t size_bytes, const struct digest *d,
                   struct err *e)
{
    (void)arg;
    (void)size_bytes;
    (void)d;
    (void)e;
    CHECK(tree_path_valid(path));
    return 0;
}

static int feed(void *arg, struct slice bytes, struct err *e)
{
    return packages_feed(arg, bytes, e);
}

/* In two pieces: where they meet must not matter. */
static void read_index(struct slice all, size_t cut, bool sources, bool packed)
{
    struct packages_events ev = {.on_file = on_file};
    struct packages *k = packages_open(sources, &ev);
    struct unpack *z = unpack_open(packed ? PACKING_GZIP : PACKING_NONE, feed, k, 1 << 20);
    struct slice a = slice_first(all, cut), b = slice_from(all, cut);
    int rc = unpack_feed(z, a, NULL);

    if (rc == 0) {
        rc = unpack_feed(z, b, NULL);
    }
    if (rc == 0) {
        rc = unpack_finish(z, NULL);
    }
    if (rc == 0) {
        (void)!packages_finish(k, NULL);
    }
    unpack_close(&z);
    packages_close(&k);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct release r;
    struct slice all;

    if (n < 2) {
        return 0;
    }
    all = slice_of(p + 2, n - 2);
    if (p[0] % 4 == 0) {
        if (release_read(all, &r, NULL) == 0) {
            for (size_t i = 0; i < r.count; i++) {
                CHECK(tree_path_valid(r.file[i].path));
                CHECK(release_find(&r, r.file[i].path) != NULL);
            }
            release_free(&r);
        }
    } else {
        read_index(all, all.n * p[1] / 256, p[0] % 4 == 1, p[0] % 4 == 3);
    }
    return 0;
}
