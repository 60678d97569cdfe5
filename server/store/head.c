#include "server/store/head.h"

#include "common/hash/git_oid.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/be.h"
#include "server/store/state.h"

enum { HEAD_BYTES = 18, SNAP_BYTES = 66, ROW_MAX = 4096, NAME_MAX_BYTES = 4096 };

/* --- rows --- */

/* version 1 | live 8 | newest 8 | hold 1 */
static void put_head(struct batch *b, struct slice key, const struct head *h)
{
    char row[HEAD_BYTES] = {1};

    be_put(row + 1, 8, h->live_seq);
    be_put(row + 9, 8, h->newest_seq);
    row[17] = h->hold;
    batch_put(b, TABLE_HEAD, key, slice_of(row, sizeof row));
}

int head_decode(struct slice value, struct head *out, struct err *e)
{
    if (value.n < HEAD_BYTES || value.p[0] != 1) {
        return err_set(e, E_CORRUPT, "a head's row does not decode");
    }
    out->live_seq = be_get(value.p + 1, 8);
    out->newest_seq = be_get(value.p + 9, 8);
    out->hold = value.p[17] != 0;
    return 0;
}

/* version 1 | root 32 | parent 8 | created 8 | entries 8 | bytes 8 | label n 1 | label */
static void put_snap(struct batch *b, struct slice key, const struct snap *sn)
{
    char row[SNAP_BYTES + sizeof sn->label] = {1};
    size_t n = strlen(sn->label);

    memcpy(row + 1, sn->root.b, DIGEST_BYTES);
    be_put(row + 33, 8, sn->parent_seq);
    be_put(row + 41, 8, sn->created_unix_s);
    be_put(row + 49, 8, sn->entries);
    be_put(row + 57, 8, sn->bytes);
    row[65] = (char)n;
    memcpy(row + SNAP_BYTES, sn->label, n);
    batch_put(b, TABLE_SNAP, key, slice_of(row, SNAP_BYTES + n));
}

int snap_decode(struct slice value, uint64_t seq, struct snap *out, struct err *e)
{
    size_t n;

    *out = (struct snap){.seq = seq};
    if (value.n < SNAP_BYTES || value.p[0] != 1) {
        return err_set(e, E_CORRUPT, "a snapshot's row does not decode");
    }
    n = (uint8_t)value.p[65];
    if (n >= sizeof out->label || n > value.n - SNAP_BYTES) {
        return err_set(e, E_CORRUPT, "a snapshot's label is too long");
    }
    memcpy(out->root.b, value.p + 1, DIGEST_BYTES);
    out->parent_seq = be_get(value.p + 33, 8);
    out->created_unix_s = be_get(value.p + 41, 8);
    out->entries = be_get(value.p + 49, 8);
    out->bytes = be_get(value.p + 57, 8);
    memcpy(out->label, value.p + SNAP_BYTES, n);
    return 0;
}

/* repo NUL name */
static void head_key(struct buf *out, struct slice repo, struct slice name)
{
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, name);
}

void snap_key(struct buf *out, struct slice repo, struct slice name, uint64_t seq)
{
    char n[8];

    head_key(out, repo, name);
    buf_byte(out, 0);
    be_put(n, 8, ~seq);
    buf_add(out, n, 8);
}

bool snap_key_parse(struct slice key, struct slice *tree, uint64_t *seq)
{
    if (key.n < 12 || key.p[key.n - 9] != '\0') {
        return false;
    }
    *tree = slice_first(key, key.n - 9);
    *seq = ~be_get(key.p + key.n - 8, 8);
    return slice_find(*tree, '\0') > 0;
}

static int names_valid(struct slice repo, struct slice name, struct err *e)
{
    return repo.n != 0 && name.n != 0 && repo.n + name.n <= NAME_MAX_BYTES &&
                   slice_find(repo, '\0') < 0 && slice_find(name, '\0') < 0
               ? 0
               : err_set(e, E_INVALID, "not a name for a tree");
}

/* --- reading --- */

static int get_head(struct store *s, struct slice repo, struct slice name, struct buf *key,
                    struct buf *row, struct head *out, struct err *e)
{
    int rc = names_valid(repo, name, e);

    if (rc == 0) {
        head_key(key, repo, name);
        rc = kv_get(s->kv, TABLE_HEAD, buf_slice(key), row, e);
    }
    return rc == 0 ? head_decode(buf_slice(row), out, e) : rc;
}

static int get_snap(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                    struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf row = BUF_INIT(ROW_MAX);
    int rc;

    snap_key(&key, repo, name, seq);
    rc = kv_get(s->kv, TABLE_SNAP, buf_slice(&key), &row, e);
    if (rc == 0) {
        rc = snap_decode(buf_slice(&row), seq, out, e);
    } else if (rc == E_NOTFOUND) {
        err_set(e, rc, "no snapshot %" PRIu64, seq);
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

int head_get(struct store *s, struct slice repo, struct slice name, struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf row = BUF_INIT(ROW_MAX);
    struct head h;
    int rc = get_head(s, repo, name, &key, &row, &h, e);

    if (rc == 0) {
        rc = get_snap(s, repo, name, h.live_seq, out, e);
        if (rc == E_NOTFOUND) {
            rc = err_set(e, E_CORRUPT, "the live snapshot %" PRIu64 " is missing", h.live_seq);
        }
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

struct snap_walk {
    int (*each)(void *arg, const struct snap *sn);
    void *arg;
    struct err *e;
};

static int on_snap(void *arg, struct slice key, struct slice value)
{
    struct snap_walk *w = arg;
    struct slice tree;
    struct snap sn;
    uint64_t seq;
    int rc;

    if (!snap_key_parse(key, &tree, &seq)) {
        return err_set(w->e, E_CORRUPT, "a snapshot's key does not decode");
    }
    rc = snap_decode(value, seq, &sn, w->e);
    return rc == 0 ? w->each(w->arg, &sn) : rc;
}

int snap_list(struct store *s, struct slice repo, struct slice name,
              int (*each)(void *arg, const struct snap *sn), void *arg, struct err *e)
{
    struct buf from = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf to = BUF_INIT(2 * NAME_MAX_BYTES);
    struct snap_walk w = {each, arg, e};
    int rc = names_valid(repo, name, e);

    if (rc == 0) {
        snap_key(&from, repo, name, UINT64_MAX);
        snap_key(&to, repo, name, 0); /* not itself: numbers begin at 1 */
        rc = kv_scan(s->kv, NULL, TABLE_SNAP, buf_slice(&from), buf_slice(&to), on_snap, &w, e);
    }
    buf_free(&from);
    buf_free(&to);
    return rc;
}

struct snap_search {
    struct slice label;
    const struct digest *root;
    bool commit; /* label: how the root's digest begins */
    struct snap *out;
};

static int match_snap(void *arg, const struct snap *sn)
{
    struct snap_search *w = arg;

    char hex[DIGEST_HEX + 1];

    if (w->commit) {
        digest_format(&sn->root, hex);
    }
    if (w->commit         ? slice_starts(slice_of(hex, DIGEST_HEX), w->label)
        : w->root != NULL ? digest_eq(w->root, &sn->root)
                          : slice_eqs(w->label, sn->label)) {
        *w->out = *sn;
        return 1;
    }
    return 0;
}

int snap_find(struct store *s, struct slice repo, struct slice name, struct slice version,
              struct snap *out, struct err *e)
{
    struct snap_search w = {.label = version, .out = out};
    struct git_oid commit;
    struct digest root;
    uint64_t seq;
    int rc;

    if (version.n == 0) {
        return head_get(s, repo, name, out, e);
    }
    rc = names_valid(repo, name, e);
    if (rc != 0) {
        return rc;
    }
    if (version.p[0] == 'v' && slice_u64(slice_from(version, 1), &seq) && seq != 0) {
        return get_snap(s, repo, name, seq, out, e);
    }
    if (digest_parse(version, &root)) {
        w.root = &root;
    }
    w.commit = git_oid_parse(version, &commit);
    rc = snap_list(s, repo, name, match_snap, &w, e);
    return rc == 1 ? 0 : rc == 0 ? err_set(e, E_NOTFOUND, "no such version") : rc;
}

struct head_walk {
    struct store *s;
    size_t skip; /* repo NUL */
    int (*each)(void *arg, struct slice name, const struct snap *sn);
    void *arg;
    struct err *e;
};

static int on_head(void *arg, struct slice key, struct slice value)
{
    struct head_walk *w = arg;
    struct slice repo = slice_first(key, w->skip - 1);
    struct slice name = slice_from(key, w->skip);
    struct head h;
    struct snap sn;
    int rc = head_decode(value, &h, w->e);

    if (rc == 0) {
        rc = get_snap(w->s, repo, name, h.live_seq, &sn, w->e);
    }
    return rc == 0 ? w->each(w->arg, name, &sn) : rc;
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
    rc = kv_scan(s->kv, NULL, TABLE_HEAD, buf_slice(&from), buf_slice(&to), on_head, &w, e);
    buf_free(&from);
    buf_free(&to);
    return rc;
}

/* --- writing --- */

/* A tree's head together with the snapshot that it now knows. key: the head's. */
static void put_next(struct batch *b, struct buf *key, struct slice repo, struct slice name,
                     const struct head *h, const struct snap *sn)
{
    put_head(b, buf_slice(key), h);
    buf_clear(key);
    snap_key(key, repo, name, sn->seq);
    put_snap(b, buf_slice(key), sn);
}

static int check_root(struct store *s, struct slice repo, struct slice name, const struct head *h,
                      const struct digest *if_root, bool any, struct snap *live, struct err *e)
{
    int rc = get_snap(s, repo, name, h->live_seq, live, e);

    if (rc != 0 || any) {
        return rc;
    }
    if (if_root == NULL) {
        return err_set(e, E_CHANGED, "it exists already (v%" PRIu64 ")", live->seq);
    }
    return digest_eq(if_root, &live->root)
               ? 0
               : err_set(e, E_CHANGED, "somebody published v%" PRIu64 " meanwhile", live->seq);
}

int head_publish(struct store *s, struct slice repo, struct slice name, const struct digest *root,
                 uint64_t entries, uint64_t bytes, const struct digest *if_root, bool any,
                 uint64_t now_unix_s, struct batch *b, struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct head h = {0};
    struct snap live = {0};
    int rc = get_head(s, repo, name, &key, &old, &h, e);

    if (rc == 0) {
        rc = check_root(s, repo, name, &h, if_root, any, &live, e);
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
    } else if (rc == E_NOTFOUND && (if_root == NULL || any)) {
        rc = 0;
        batch_require_absent(b, TABLE_HEAD, buf_slice(&key));
    } else if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CHANGED, "it does not exist any more");
    }
    if (rc == 0) {
        *out = (struct snap){.seq = h.newest_seq + 1,
                             .root = *root,
                             .parent_seq = h.live_seq,
                             .created_unix_s = now_unix_s,
                             .entries = entries,
                             .bytes = bytes};
        h = (struct head){.live_seq = out->seq, .newest_seq = out->seq};
        put_next(b, &key, repo, name, &h, out);
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
    int rc = get_head(s, repo, name, &key, &old, &h, e);

    if (rc == 0) {
        rc = get_snap(s, repo, name, seq, &sn, e);
    }
    if (rc == 0) {
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        h.live_seq = seq;
        h.hold = seq != h.newest_seq;
        put_head(b, buf_slice(&key), &h);
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
    int rc = get_head(s, repo, name, &key, &old, &h, e);

    if (rc == 0) {
        *out = (struct snap){.seq = ++h.newest_seq,
                             .root = *root,
                             .parent_seq = h.live_seq,
                             .created_unix_s = now_unix_s,
                             .entries = entries,
                             .bytes = bytes};
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        put_next(b, &key, repo, name, &h, out);
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
    int rc = get_head(s, repo, name, &key, &row, &h, e);

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
    int rc = get_head(s, repo, name, &key, &old, &h, e);

    if (rc == 0 && h.hold != hold) {
        struct batch *b = batch_new();
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        h.hold = hold;
        put_head(b, buf_slice(&key), &h);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    buf_free(&key);
    buf_free(&old);
    return rc;
}

static int label_is_free(void *arg, const struct snap *sn)
{
    const struct snap *mine = arg;

    return sn->seq != mine->seq && strcmp(sn->label, mine->label) == 0 ? E_EXISTS : 0;
}

int snap_tag(struct store *s, struct slice repo, struct slice name, uint64_t seq,
             struct slice label, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct batch *b = batch_new();
    struct snap sn;
    int rc = names_valid(repo, name, e);

    if (rc == 0 && label.n >= sizeof sn.label) {
        rc = err_set(e, E_INVALID, "a tag has at most %zu bytes", sizeof sn.label - 1);
    }
    if (rc == 0) {
        snap_key(&key, repo, name, seq);
        rc = kv_get(s->kv, TABLE_SNAP, buf_slice(&key), &old, e);
        rc = rc == E_NOTFOUND ? err_set(e, rc, "no snapshot %" PRIu64, seq) : rc;
    }
    if (rc == 0) {
        rc = snap_decode(buf_slice(&old), seq, &sn, e);
    }
    if (rc == 0) {
        memset(sn.label, 0, sizeof sn.label);
        if (label.n != 0) {
            memcpy(sn.label, label.p, label.n);
            rc = snap_list(s, repo, name, label_is_free, &sn, e);
        }
        if (rc == E_EXISTS) {
            err_set(e, rc, "another snapshot has this tag");
        }
    }
    if (rc == 0) {
        batch_require_value(b, TABLE_SNAP, buf_slice(&key), buf_slice(&old));
        put_snap(b, buf_slice(&key), &sn);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&key);
    buf_free(&old);
    return rc;
}

int snap_remove(struct store *s, struct slice repo, struct slice name, uint64_t seq, struct err *e)
{
    struct buf key = BUF_INIT(2 * NAME_MAX_BYTES);
    struct buf old = BUF_INIT(ROW_MAX);
    struct batch *b = batch_new();
    struct head h;
    int rc = get_head(s, repo, name, &key, &old, &h, e);

    if (rc == 0 && h.live_seq == seq) {
        rc = err_set(e, E_BUSY, "v%" PRIu64 " is the live snapshot", seq);
    }
    if (rc == 0) {
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        buf_clear(&key);
        snap_key(&key, repo, name, seq);
        batch_del(b, TABLE_SNAP, buf_slice(&key));
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&key);
    buf_free(&old);
    return rc;
}
