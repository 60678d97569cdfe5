/* repodata.json of a stranger's channel, packed by the first byte, in two pieces: what it names are file names. */
#include "server/store/tree.h"
#include "server/repo/conda/repodata.h"
#include "server/repo/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_file(void *arg, const struct repodata_file *f, struct err *e)
{
    (void)arg;
    (void)e;
    CHECK(tree_path_valid(f->name) && slice_find(f->name, '/') < 0);
    return 0;
}

static int feed(void *arg, struct slice bytes, struct err *e)
{
    return repodata_feed(arg, bytes, e);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct repodata_events ev = {.on_file = on_file};
    struct repodata *r;
    struct unpack *u;
    struct slice all;
    size_t cut;
    int rc;

    if (n < 2) {
        return 0;
    }
    all = slice_of(p + 2, n - 2);
    cut = all.n * p[1] / 256;
    r = repodata_open(&ev);
    u = unpack_open((enum packing)(p[0] % 5), feed, r, 1 << 20);
    rc = unpack_feed(u, slice_first(all, cut), NULL);
    if (rc == 0) {
        rc = unpack_feed(u, slice_from(all, cut), NULL);
    }
    if (rc == 0 && unpack_finish(u, NULL) == 0) {
        (void)!repodata_finish(r, NULL);
    }
    unpack_close(&u);
    repodata_close(&r);
    return 0;
}
