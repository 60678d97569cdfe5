#include "server/sync/stage_row.h"

#include "server/store/keep.h"

enum { KEY_ROOM = 8192, ROW_ROOM = 8192 };

void stage_row_put(struct batch *b, struct slice repo, struct slice path, const struct seen *s)
{
    struct buf key = BUF_INIT(KEY_ROOM), row = BUF_INIT(ROW_ROOM);

    seen_key(&key, repo, path);
    seen_encode(s, &row);
    batch_put(b, TABLE_STAGE, buf_slice(&key), buf_slice(&row));
    buf_clear(&key);
    holder_key(&key, &s->digest, repo, 's', path);
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    buf_free(&key);
    buf_free(&row);
}

void stage_row_del(struct batch *b, struct slice repo, struct slice path, const struct digest *d)
{
    struct buf key = BUF_INIT(KEY_ROOM);

    seen_key(&key, repo, path);
    batch_del(b, TABLE_STAGE, buf_slice(&key));
    buf_clear(&key);
    holder_key(&key, d, repo, 's', path);
    batch_del(b, TABLE_HOLDER, buf_slice(&key));
    buf_free(&key);
}
