/* old_rights DIR - what callers' rights to repositories of a Hub are kept under becomes what it was
 * before there was "rights/auth-check/": plain "rights/". Says how many there were. For
 * tests/system/test_hostile_hub.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/cache/object.h"
#include "server/store/batch.h"
#include "server/store/keep.h"

#define NEW_KEY "rights/auth-check/"
#define OLD_KEY "rights/"

struct renaming {
    struct batch *batch;
    unsigned count;
};

static int on_row(void *arg, struct slice key, struct slice value)
{
    struct renaming *x = arg;
    const char *at = memmem(key.p, key.n, NEW_KEY, strlen(NEW_KEY));
    struct buf old = BUF_INIT(OBJECT_KEY_MAX);
    struct buf holder = BUF_INIT(OBJECT_KEY_MAX);
    struct slice rest = key;
    struct digest d;

    if (at == NULL) {
        return 0;
    }
    buf_add(&old, key.p, (size_t)(at - key.p));
    buf_str(&old, OLD_KEY);
    buf_add(&old, at + strlen(NEW_KEY), (size_t)(key.p + key.n - at) - strlen(NEW_KEY));
    batch_put(x->batch, TABLE_OBJECT, buf_slice(&old), value);
    batch_del(x->batch, TABLE_OBJECT, key);
    if (object_row_digest(value, &d)) {
        holder_key(&holder, &d, slice_cut(&rest, '\0'), 'o', object_key_of_row(buf_slice(&old)));
        batch_put(x->batch, TABLE_HOLDER, buf_slice(&holder), SLICE(""));
    }
    x->count++;
    buf_free(&old);
    buf_free(&holder);
    return 0;
}

int main(int argc, char **argv)
{
    struct store_settings set = {.state_dir = argc > 1 ? argv[1] : "",
                                 .quota_bytes = (uint64_t)8 << 30,
                                 .reserve_bytes = 1,
                                 .high_ratio = 0.8,
                                 .low_ratio = 0.7,
                                 .block_cache_bytes = 8 << 20};
    struct renaming x = {.batch = batch_new()};
    struct store *s = NULL;
    struct err e = {0};
    int rc = store_open(&set, &s, &e);

    rc = rc == 0 ? store_scan(s, TABLE_OBJECT, SLICE(""), SLICE_NONE, on_row, &x, &e) : rc;
    rc = rc == 0 ? store_commit(s, &x.batch, COMMIT_SYNC, &e) : rc;
    batch_free(&x.batch);
    store_close(&s);
    if (rc != 0) {
        fprintf(stderr, "old_rights: %s\n", e.text);
        return 1;
    }
    printf("%u\n", x.count);
    return 0;
}
