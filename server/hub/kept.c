#include "server/hub/kept.h"

#include "server/store/blob.h"

enum { KEY_BYTES = 16 << 10 };

static int first_row(void *arg, struct slice key, struct slice value)
{
    (void)key;
    buf_clear(arg);
    buf_adds(arg, value);
    return 1;
}

int kept_row(struct store *s, struct slice repo, struct slice key, struct buf *row, struct err *e)
{
    struct buf from = BUF_INIT(KEY_BYTES), to = BUF_INIT(KEY_BYTES);
    int rc;

    object_key(&from, repo, key, SLICE(""));
    rc = store_get(s, TABLE_OBJECT, buf_slice(&from), row, e);
    if (rc == E_NOTFOUND) { /* key NUL principal */
        buf_adds(&to, buf_slice(&from));
        buf_byte(&from, 0);
        buf_byte(&to, 1);
        rc = store_scan(s, TABLE_OBJECT, buf_slice(&from), buf_slice(&to), first_row, row, e);
        rc = rc == 1 ? 0 : rc == 0 ? err_set(e, E_NOTFOUND, "no such object") : rc;
    }
    buf_free(&from);
    buf_free(&to);
    return rc;
}

bool kept_is_here(struct store *s, struct slice repo, struct slice key)
{
    struct buf row = BUF_INIT(OBJECT_ROW_MAX);
    bool here = kept_row(s, repo, key, &row, NULL) == 0;

    buf_free(&row);
    return here;
}

int kept_read(struct store *s, struct slice row, struct arena *a, struct object *out,
              struct buf *doc, struct err *e)
{
    if (!object_decode(row, a, out)) {
        return err_set(e, E_CORRUPT, "a row of the cache cannot be decoded");
    }
    return blob_read_whole(s, &out->digest, doc, e);
}
