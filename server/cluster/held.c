#include "server/cluster/held.h"

#include <stdlib.h>

#include "server/store/blob.h"
#include "server/store/drop.h"
#include "server/store/row.h"

enum { ROW_BYTES = 4096 };

struct collecting {
    struct store *store;
    struct tree_content *trees;
    enum held_what what;
    struct held_blob *blob;
    size_t count, room;
    uint64_t all_bytes;
    struct digest last;
    bool any; /* `last` counts */
    struct err *e;
};

static void add_blob(struct collecting *c, const struct digest *d, uint64_t size_bytes)
{
    if (c->count == c->room) {
        c->room = c->room != 0 ? 2 * c->room : 256;
        c->blob = realloc(c->blob, c->room * sizeof c->blob[0]);
        CHECK(c->blob != NULL);
    }
    c->blob[c->count++] = (struct held_blob){*d, size_bytes};
}

/* 0 if it is not here. */
static int size_here(struct collecting *c, const struct digest *d, bool here, uint64_t *size_bytes)
{
    struct buf row = BUF_INIT(ROW_BYTES);
    struct blob_row r = {0};
    int rc = here ? store_get(c->store, TABLE_BLOB, slice_of(d->b, DIGEST_BYTES), &row, c->e) : 0;

    if (here && rc == 0) {
        rc = blob_row_decode(buf_slice(&row), &r, c->e);
    }
    *size_bytes = r.size_bytes;
    buf_free(&row);
    return rc == E_NOTFOUND ? 0 : rc;
}

static int look_at_blob(struct collecting *c, const struct digest *d)
{
    uint64_t size = 0, placed = 0;
    bool here, has_place = tree_content_has(c->trees, d, &placed);
    int rc = blob_is_here(c->store, d, &here, c->e);

    rc = rc != 0 ? rc : size_here(c, d, here, &size);
    if (rc != 0) {
        return rc;
    }
    size = here ? size : placed;
    c->all_bytes += size;
    if (c->what == HELD_NOT_IN_BUCKET ? !has_place : !here) {
        add_blob(c, d, size);
    }
    return 0;
}

static int on_holder(void *arg, struct slice key, struct slice value)
{
    struct collecting *c = arg;
    struct slice repo, name;
    struct digest d;
    char kind;

    (void)value;
    if (!holder_parse(key, &repo, &kind, &name) || kind != 't') {
        return 0;
    }
    memcpy(d.b, key.p, DIGEST_BYTES);
    if (c->any && digest_eq(&d, &c->last)) {
        return 0;
    }
    c->any = true;
    c->last = d;
    return look_at_blob(c, &d);
}

int held_list(struct store *s, struct tree_content *t, enum held_what what, struct held_blob **out,
              size_t *n, uint64_t *all_bytes, struct err *e)
{
    struct collecting c = {.store = s, .trees = t, .what = what, .e = e};
    int rc = store_scan_once(s, TABLE_HOLDER, SLICE_NONE, SLICE_NONE, on_holder, &c, e);

    if (rc != 0) {
        free(c.blob);
        return rc;
    }
    *out = c.blob;
    *n = c.count;
    *all_bytes = c.all_bytes;
    return 0;
}
