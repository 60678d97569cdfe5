#include "server/sync/seen.h"

#include <stdlib.h>

#include "common/base/endian.h"
#include "server/store/keep.h"

enum {
    ROW_HEAD = 1 + 1 + 8 * 6 + 4 + DIGEST_BYTES,
    FLAG_DOUBTFUL = 1,
    KEY_ROOM = 8192,
    BATCH = 256, /* rows read at once */
    BATCH_BYTES = 4 << 20,
};

/* version 1 | flags | listed size | listed mtime | size step | taken | size | mtime | mtime step 4
 * | digest | validator */
void seen_encode(const struct seen *s, struct buf *out)
{
    const uint64_t n[] = {s->listed_size, (uint64_t)s->listed_mtime_ns,
                          s->size_step,   s->taken_unix_s,
                          s->size_bytes,  (uint64_t)s->mtime_ns};

    buf_byte(out, 1);
    buf_byte(out, s->doubtful ? FLAG_DOUBTFUL : 0);
    for (size_t i = 0; i < ARRAY_LEN(n); i++) {
        buf_be(out, 8, n[i]);
    }
    buf_be(out, 4, s->mtime_step_s);
    buf_add(out, s->digest.b, DIGEST_BYTES);
    buf_adds(out, s->validator);
}

int seen_decode(struct slice row, struct seen *out, struct err *e)
{
    const char *p = row.p + 2;

    if (row.n < ROW_HEAD || row.p[0] != 1) {
        return err_set(e, E_CORRUPT, "the row of a synced file cannot be decoded");
    }
    *out = (struct seen){
        .doubtful = (row.p[1] & FLAG_DOUBTFUL) != 0,
        .listed_size = be_get(p, 8),
        .listed_mtime_ns = (int64_t)be_get(p + 8, 8),
        .size_step = be_get(p + 16, 8),
        .taken_unix_s = be_get(p + 24, 8),
        .size_bytes = be_get(p + 32, 8),
        .mtime_ns = (int64_t)be_get(p + 40, 8),
        .mtime_step_s = (uint32_t)be_get(p + 48, 4),
        .validator = slice_from(row, ROW_HEAD),
    };
    memcpy(out->digest.b, p + 52, DIGEST_BYTES);
    return 0;
}

void seen_key(struct buf *out, struct slice repo, struct slice path)
{
    buf_clear(out);
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, path);
}

bool seen_needs_row(const struct seen *s)
{
    return s->validator.n != 0 || s->doubtful || s->mtime_step_s != 0 || s->size_step > 1 ||
           s->listed_size != s->size_bytes || s->listed_mtime_ns != s->mtime_ns;
}

/* --- rows in order --- */

struct seen_walk {
    struct store *s;
    enum table table;
    struct slice repo;
    struct buf prefix; /* repo NUL */
    struct buf rows;   /* u32 n, key behind the prefix, u32 n, value ... */
    size_t at, left;   /* of them */
    struct buf last;   /* key of the last row that was read */
    bool begun, ended; /* nothing lies behind what was read */
};

struct seen_walk *seen_walk_open(struct store *s, enum table t, struct slice repo)
{
    struct seen_walk *w = NEW(struct seen_walk);

    w->s = s;
    w->table = t;
    w->prefix = BUF_INIT(KEY_ROOM);
    w->rows = BUF_INIT(2 * BATCH_BYTES);
    w->last = BUF_INIT(KEY_ROOM);
    seen_key(&w->prefix, repo, SLICE(""));
    return w;
}

void seen_walk_close(struct seen_walk **wp)
{
    struct seen_walk *w = *wp;

    *wp = NULL;
    if (w != NULL) {
        buf_free(&w->prefix);
        buf_free(&w->rows);
        buf_free(&w->last);
        free(w);
    }
}

static int on_sync_seen_row(void *arg, struct slice key, struct slice value)
{
    struct seen_walk *w = arg;

    if (!slice_starts(key, buf_slice(&w->prefix))) {
        w->ended = true;
        return 1;
    }
    buf_counted(&w->rows, 4, slice_from(key, w->prefix.n));
    buf_counted(&w->rows, 4, value);
    buf_clear(&w->last);
    buf_adds(&w->last, key);
    return ++w->left == BATCH || w->rows.n > BATCH_BYTES ? 1 : 0;
}

/* From `from` (behind the prefix) on. */
static int load_seen_rows(struct seen_walk *w, struct slice from, struct err *e)
{
    struct buf key = BUF_INIT(KEY_ROOM);
    int rc;

    buf_adds(&key, buf_slice(&w->prefix));
    buf_adds(&key, from);
    buf_clear(&w->rows);
    w->at = w->left = 0;
    rc = store_scan_once(w->s, w->table, buf_slice(&key), SLICE_NONE, on_sync_seen_row, w, e);
    w->ended = w->ended || rc == 0;
    w->begun = true;
    buf_free(&key);
    return rc < 0 ? rc : 0;
}

static struct slice peek_text(const struct seen_walk *w, size_t *at)
{
    size_t n = (size_t)be_get(w->rows.p + *at, 4);
    struct slice s = slice_of(w->rows.p + *at + 4, n);

    *at += 4 + n;
    return s;
}

/* The row at hand; loads more when there is none. E_NOTFOUND: the end. */
static int at_hand(struct seen_walk *w, struct slice *path, struct slice *value, size_t *next,
                   struct err *e)
{
    if (w->left == 0 && w->begun && !w->ended) {
        int rc;
        buf_byte(&w->last, 0); /* the first key behind it */
        rc = load_seen_rows(w, slice_from(buf_slice(&w->last), w->prefix.n), e);
        if (rc != 0) {
            return rc;
        }
    }
    if (w->left == 0) {
        return E_NOTFOUND;
    }
    *next = w->at;
    *path = peek_text(w, next);
    *value = peek_text(w, next);
    return 0;
}

int seen_walk_to(struct seen_walk *w, struct slice path, struct seen *out, struct err *e)
{
    struct slice there, value;
    size_t next;
    int rc = 0, order;

    if (!w->begun) {
        rc = load_seen_rows(w, path, e);
    }
    while (rc == 0 && (rc = at_hand(w, &there, &value, &next, e)) == 0) {
        order = slice_cmp(there, path);
        if (order > 0) {
            return E_NOTFOUND; /* it stays at hand */
        }
        if (order == 0) {
            return seen_decode(value, out, e);
        }
        w->at = next;
        w->left--;
    }
    return rc;
}

int seen_walk_next(struct seen_walk *w, struct slice *path, struct seen *out, struct err *e)
{
    struct slice value;
    size_t next;
    int rc = w->begun ? 0 : load_seen_rows(w, SLICE(""), e);

    rc = rc != 0 ? rc : at_hand(w, path, &value, &next, e);
    if (rc == 0) {
        w->at = next;
        w->left--;
        rc = seen_decode(value, out, e);
    }
    return rc;
}

/* --- rows of what is fetched and not yet published ---
 *
 * Bytes that are here and not yet published: the row that tells of them, and the holder that keeps
 * them.
 *
 * threads  any
 */

enum { STAGE_KEY_ROOM = 8192, ROW_ROOM = 8192 };

void stage_row_put(struct batch *b, struct slice repo, struct slice path, const struct seen *s)
{
    struct buf key = BUF_INIT(STAGE_KEY_ROOM), row = BUF_INIT(ROW_ROOM);

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
    struct buf key = BUF_INIT(STAGE_KEY_ROOM);

    seen_key(&key, repo, path);
    batch_del(b, TABLE_STAGE, buf_slice(&key));
    buf_clear(&key);
    holder_key(&key, d, repo, 's', path);
    batch_del(b, TABLE_HOLDER, buf_slice(&key));
    buf_free(&key);
}
