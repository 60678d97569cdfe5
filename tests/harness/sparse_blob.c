/* sparse_blob - puts a file of any size into a store that nobody has open: one hole, under a digest
 * that is not its own.
 *
 *   sparse_blob STATE_DIR DIGEST SIZE REPO TREE
 *
 * For what counts a large file's chunks and never reads them: nothing else can be done with it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/store/keep.h"

static void must(bool ok, const char *what, const struct err *e)
{
    if (!ok) {
        fprintf(stderr, "sparse_blob: %s: %s\n", what, e->text);
        exit(1);
    }
}

static void hold(struct batch *b, const struct digest *d, const char *repo, const char *tree)
{
    struct buf row = BUF_INIT(4096);

    holder_key(&row, d, slice_str(repo), 't', slice_str(tree)); /* never evicted */
    batch_put(b, TABLE_HOLDER, buf_slice(&row), SLICE_NONE);
    buf_free(&row);
}

int main(int argc, char **argv)
{
    struct store_settings set = {.quota_bytes = UINT64_C(1) << 50,
                                 .reserve_bytes = 1,
                                 .high_ratio = 1,
                                 .low_ratio = 1,
                                 .block_cache_bytes = 8 << 20};
    struct store *s = NULL;
    struct stage *st = NULL;
    struct batch *b = batch_new();
    struct digest d;
    struct err e = {0};
    uint64_t size = 0;

    if (argc != 6 || !digest_parse(slice_str(argv[2]), &d) ||
        !slice_u64(slice_str(argv[3]), &size)) {
        fprintf(stderr, "usage: sparse_blob STATE_DIR DIGEST SIZE REPO TREE\n");
        return 64;
    }
    set.state_dir = argv[1];
    must(store_open(&set, &s, &e) == 0, "open", &e);
    must(stage_open(s, 0, false, &st, &e) == 0, "stage", &e);
    if (ftruncate(stage_fd(st), (off_t)size) != 0) {
        err_sys(&e, "ftruncate");
        must(false, "hole", &e);
    }
    must(stage_seal(&st, &d, size, NULL, 0, b, NULL, &e) == 0, "seal", &e);
    hold(b, &d, argv[4], argv[5]);
    must(store_commit(s, &b, COMMIT_SYNC, &e) == 0, "commit", &e);
    store_close(&s);
    return 0;
}
