/* A sharded index of a stranger's channel, unpacked: what a shard names are file names, what the
 * list becomes leads nowhere but here, and is read again as what was written. */
#include "common/codec/msgpack.h"
#include "server/repo/conda/shards.h"
#include "server/store/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int on_file(void *arg, const struct shard_file *f, struct err *e)
{
    (void)arg;
    (void)e;
    CHECK(tree_path_valid(f->name) && slice_find(f->name, '/') < 0);
    return 0;
}

static void as_list(struct slice doc)
{
    struct buf once = BUF_INIT(1 << 20), twice = BUF_INIT(1 << 20);
    struct shards_places was, is;

    if (shards_rewrite(doc, &was, &once, NULL) == 0) {
        CHECK(shards_rewrite(buf_slice(&once), &is, &twice, NULL) == 0);
        CHECK(slice_eq(buf_slice(&once), buf_slice(&twice)));
        CHECK(is.packages.p == NULL || slice_eqs(is.packages, "./"));
        CHECK(is.shards.p == NULL || slice_eqs(is.shards, "./shards/"));
    }
    buf_free(&once);
    buf_free(&twice);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    struct slice doc = slice_of(p, n), rest = doc;
    int rc = mp_skip(&rest, NULL);

    if (shard_read(doc, on_file, NULL, NULL) == 0) {
        CHECK(rc == 0 && rest.n == 0);
    }
    as_list(doc);
    return 0;
}
