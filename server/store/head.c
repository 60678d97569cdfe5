#include "server/store/head.h"

#include <inttypes.h>
#include <sys/random.h>

#include "common/base/endian.h"
#include "server/store/state.h"

enum { HEAD_BYTES = 18, HEAD_ROOM = 26, ROW_MAX = 4096, NAME_MAX_BYTES = 4096 };

/* --- rows --- */

/* version 1 | live 8 | newest 8 | hold 1 | names 8 (absent in older rows) */
void head_put(struct batch *b, struct slice key, const struct head *h)
{
    char row[HEAD_ROOM] = {1};

    be_put(row + 1, 8, h->live_seq);
    be_put(row + 9, 8, h->newest_seq);
    row[17] = h->hold;
    be_put(row + 18, 8, h->names);
    batch_put(b, TABLE_HEAD, key, slice_of(row, sizeof row));
}

int head_decode(struct slice value, struct head *out, struct err *e)
{
    if (value.n < HEAD_BYTES || value.p[0] != 1) {
        return err_set(e, E_CORRUPT, "the row of a head cannot be decoded");
    }
    out->live_seq = be_get(value.p + 1, 8);
    out->newest_seq = be_get(value.p + 9, 8);
    out->hold = value.p[17] != 0;
    out->names = value.n >= HEAD_ROOM ? be_get(value.p + 18, 8) : 0;
    return 0;
}

void head_key(struct buf *out, struct slice repo, struct slice name)
{
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, name);
}

int head_name_valid(struct slice repo, struct slice name, struct err *e)
{
    return repo.n != 0 && name.n != 0 && repo.n + name.n <= NAME_MAX_BYTES &&
                   slice_find(repo, '\0') < 0 && slice_find(name, '\0') < 0
               ? 0
               : err_set(e, E_INVALID,
                         "the tree's name is invalid: empty, too long, or with a NUL byte");
}

/* --- reading --- */

int head_load(struct store *s, struct slice repo, struct slice name, struct buf *key,
              struct buf *row, struct head *out, struct err *e)
{
    int rc = head_name_valid(repo, name, e);

    if (rc == 0) {
        head_key(key, repo, name);
        rc = kv_get(s->kv, TABLE_HEAD, buf_slice(key), row, e);
    }
    return rc != 0 ? rc : head_decode(buf_slice(row), out, e);
}

int head_get(struct store *s, struct slice repo, struct slice name, struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf row = BUF_INIT(ROW_MAX);
    struct head h;
    int rc = head_load(s, repo, name, &key, &row, &h, e);

    if (rc == 0) {
        rc = snap_get(s, repo, name, h.live_seq, out, e);
        if (rc == E_NOTFOUND) {
            rc = err_set(e, E_CORRUPT, "the live snapshot %" PRIu64 " is missing", h.live_seq);
        }
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

struct head_walk {
    struct store *s;
    size_t skip; /* repo NUL */
    int (*each)(void *arg, struct slice name, const struct snap *sn);
    void *arg;
    struct err *e;
};

static int on_head_row(void *arg, struct slice key, struct slice value)
{
    struct head_walk *w = arg;
    struct slice repo = slice_first(key, w->skip - 1);
    struct slice name = slice_from(key, w->skip);
    struct head h;
    struct snap sn;
    int rc = head_decode(value, &h, w->e);

    rc = rc != 0 ? rc : snap_get(w->s, repo, name, h.live_seq, &sn, w->e);
    return rc != 0 ? rc : w->each(w->arg, name, &sn);
}

int head_list(struct store *s, struct slice repo,
              int (*each)(void *arg, struct slice name, const struct snap *sn), void *arg,
              struct err *e)
{
    struct buf from = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf to = BUF_INIT(2 * NAME_MAX_BYTES);
    struct head_walk w = {s, repo.n + 1, each, arg, e};
    int rc;

    buf_adds(&from, repo);
    buf_byte(&from, 0);
    buf_adds(&to, repo);
    buf_byte(&to, 1);
    rc = kv_scan(s->kv, NULL, TABLE_HEAD, buf_slice(&from), buf_slice(&to), on_head_row, &w, e);
    buf_free(&from);
    buf_free(&to);
    return rc;
}

/* --- writing --- */

/* So that a row never equals the one of a tree that had the name before. */
static uint64_t first_names(void)
{
    uint64_t n = 0;

    CHECK(getrandom(&n, sizeof n, 0) == (ssize_t)sizeof n);
    return n;
}

static int check_root(struct store *s, struct slice repo, struct slice name, const struct head *h,
                      const struct digest *if_root, bool any, struct snap *live, struct err *e)
{
    int rc = snap_get(s, repo, name, h->live_seq, live, e);

    if (rc != 0 || any) {
        return rc;
    }
    if (if_root == NULL) {
        return err_set(e, E_CHANGED, "the tree already exists (v%" PRIu64 ")", live->seq);
    }
    return digest_eq(if_root, &live->root)
               ? 0
               : err_set(e, E_CHANGED, "v%" PRIu64 " was published in the meantime; try again",
                         live->seq);
}

int head_publish(struct store *s, struct slice repo, struct slice name, const struct digest *root,
                 uint64_t entries, uint64_t bytes, const struct digest *if_root, bool any,
                 uint64_t now_unix_s, struct batch *b, struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct head h = {0};
    struct snap live = {0};
    int rc = head_load(s, repo, name, &key, &old, &h, e);

    if (rc == 0) {
        rc = check_root(s, repo, name, &h, if_root, any, &live, e);
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
    } else if (rc == E_NOTFOUND && (if_root == NULL || any)) {
        rc = 0;
        h.names = first_names();
        batch_require_absent(b, TABLE_HEAD, buf_slice(&key));
    } else if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CHANGED, "the tree does not exist any more");
    }
    if (rc == 0) {
        *out = (struct snap){.seq = h.newest_seq + 1,
                             .root = *root,
                             .parent_seq = h.live_seq,
                             .created_unix_s = now_unix_s,
                             .entries = entries,
                             .bytes = bytes};
        h.live_seq = h.newest_seq = out->seq;
        h.hold = false;
        head_put(b, buf_slice(&key), &h);
        snap_put(b, repo, name, out);
    }
    buf_free(&key);
    buf_free(&old);
    return rc;
}

int head_set(struct store *s, struct slice repo, struct slice name, uint64_t seq, struct batch *b,
             struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct head h;
    struct snap sn;
    int rc = head_load(s, repo, name, &key, &old, &h, e);

    rc = rc != 0 ? rc : snap_get(s, repo, name, seq, &sn, e);
    if (rc == 0) {
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        h.live_seq = seq;
        h.hold = seq != h.newest_seq;
        head_put(b, buf_slice(&key), &h);
    }
    buf_free(&key);
    buf_free(&old);
    return rc;
}

int head_park(struct store *s, struct slice repo, struct slice name, const struct digest *root,
              uint64_t entries, uint64_t bytes, uint64_t now_unix_s, struct batch *b,
              struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct head h;
    int rc = head_load(s, repo, name, &key, &old, &h, e);

    if (rc == 0) {
        *out = (struct snap){.seq = ++h.newest_seq,
                             .root = *root,
                             .parent_seq = h.live_seq,
                             .created_unix_s = now_unix_s,
                             .entries = entries,
                             .bytes = bytes};
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        head_put(b, buf_slice(&key), &h);
        snap_put(b, repo, name, out);
    }
    buf_free(&key);
    buf_free(&old);
    return rc;
}

int head_held(struct store *s, struct slice repo, struct slice name, bool *held, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf row = BUF_INIT(ROW_MAX);
    struct head h;
    int rc = head_load(s, repo, name, &key, &row, &h, e);

    *held = rc == 0 && h.hold;
    buf_free(&key);
    buf_free(&row);
    return rc;
}

int head_hold(struct store *s, struct slice repo, struct slice name, bool hold, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct head h;
    int rc = head_load(s, repo, name, &key, &old, &h, e);

    if (rc == 0 && h.hold != hold) {
        struct batch *b = batch_new();
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        h.hold = hold;
        head_put(b, buf_slice(&key), &h);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    buf_free(&key);
    buf_free(&old);
    return rc;
}
