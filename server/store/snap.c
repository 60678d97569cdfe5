/* snap.c - snapshots of a tree: their rows, how one is found, labeled and removed. */
#include <inttypes.h>

#include "common/base/endian.h"
#include "common/hash/git_oid.h"
#include "server/store/head.h"
#include "server/store/ref.h"
#include "server/store/state.h"

enum { SNAP_BYTES = 66, TIME_BYTES = 8, ROW_MAX = 4096, SNAP_KEY_MAX = 8192, TRIES = 8 };

/* --- rows --- */

/* version 1 | root 32 | parent 8 | created 8 | entries 8 | bytes 8 | label n 1 | label | top's
 * mtime 8, when it is known */
static void put_snap_row(struct batch *b, struct slice key, const struct snap *sn)
{
    char row[SNAP_BYTES + sizeof sn->label + TIME_BYTES] = {1};
    size_t n = strlen(sn->label);

    memcpy(row + 1, sn->root.b, DIGEST_BYTES);
    be_put(row + 33, 8, sn->parent_seq);
    be_put(row + 41, 8, sn->created_unix_s);
    be_put(row + 49, 8, sn->entries);
    be_put(row + 57, 8, sn->bytes);
    row[65] = (char)n;
    memcpy(row + SNAP_BYTES, sn->label, n);
    n += SNAP_BYTES;
    if (sn->top_mtime_ns != 0) {
        be_put(row + n, TIME_BYTES, (uint64_t)sn->top_mtime_ns);
        n += TIME_BYTES;
    }
    batch_put(b, TABLE_SNAP, key, slice_of(row, n));
}

int snap_decode(struct slice value, uint64_t seq, struct snap *out, struct err *e)
{
    size_t n;

    *out = (struct snap){.seq = seq};
    if (value.n < SNAP_BYTES || value.p[0] != 1) {
        return err_set(e, E_CORRUPT, "the row of a snapshot cannot be decoded");
    }
    n = (uint8_t)value.p[65];
    if (n >= sizeof out->label || n > value.n - SNAP_BYTES) {
        return err_set(e, E_CORRUPT, "the label of a snapshot is too long");
    }
    memcpy(out->root.b, value.p + 1, DIGEST_BYTES);
    out->parent_seq = be_get(value.p + 33, 8);
    out->created_unix_s = be_get(value.p + 41, 8);
    out->entries = be_get(value.p + 49, 8);
    out->bytes = be_get(value.p + 57, 8);
    memcpy(out->label, value.p + SNAP_BYTES, n);
    if (value.n - SNAP_BYTES - n >= TIME_BYTES) {
        out->top_mtime_ns = (int64_t)be_get(value.p + SNAP_BYTES + n, TIME_BYTES);
    }
    return 0;
}

void snap_key(struct buf *out, struct slice repo, struct slice name, uint64_t seq)
{
    head_key(out, repo, name);
    buf_byte(out, 0);
    buf_be(out, 8, ~seq);
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

void snap_put(struct batch *b, struct slice repo, struct slice name, const struct snap *sn)
{
    struct buf key = BUF_INIT(SNAP_KEY_MAX);

    snap_key(&key, repo, name, sn->seq);
    put_snap_row(b, buf_slice(&key), sn);
    buf_free(&key);
}

/* --- finding --- */

void snap_note_time(struct batch *b, struct slice repo, struct slice name, struct snap *sn,
                    int64_t top_mtime_ns)
{
    sn->top_mtime_ns = top_mtime_ns;
    snap_put(b, repo, name, sn);
}

int snap_get(struct store *s, struct slice repo, struct slice name, uint64_t seq, struct snap *out,
             struct err *e)
{
    struct buf key = BUF_INIT(SNAP_KEY_MAX);
    struct buf row = BUF_INIT(ROW_MAX);
    int rc;

    snap_key(&key, repo, name, seq);
    rc = kv_get(s->kv, TABLE_SNAP, buf_slice(&key), &row, e);
    if (rc == 0) {
        rc = snap_decode(buf_slice(&row), seq, out, e);
    } else if (rc == E_NOTFOUND) {
        err_set(e, rc, "no such snapshot: %" PRIu64, seq);
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

static int on_snap_row(void *arg, struct slice key, struct slice value)
{
    struct snap_walk *w = arg;
    struct slice tree;
    struct snap sn;
    uint64_t seq;
    int rc;

    if (!snap_key_parse(key, &tree, &seq)) {
        return err_set(w->e, E_CORRUPT, "the key of a snapshot cannot be decoded");
    }
    rc = snap_decode(value, seq, &sn, w->e);
    return rc != 0 ? rc : w->each(w->arg, &sn);
}

int snap_list(struct store *s, struct slice repo, struct slice name,
              int (*each)(void *arg, const struct snap *sn), void *arg, struct err *e)
{
    struct buf from = BUF_INIT(SNAP_KEY_MAX);
    struct buf to = BUF_INIT(SNAP_KEY_MAX);
    struct snap_walk w = {each, arg, e};
    int rc = head_name_valid(repo, name, e);

    if (rc == 0) {
        snap_key(&from, repo, name, UINT64_MAX);
        snap_key(&to, repo, name, 0); /* not itself: numbers begin at 1 */
        rc = kv_scan(s->kv, NULL, TABLE_SNAP, buf_slice(&from), buf_slice(&to), on_snap_row, &w, e);
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

/* By a name that somebody gave. */
static int find_named(struct store *s, struct slice repo, struct slice name, struct slice version,
                      struct snap *out, struct err *e)
{
    struct snap_search w = {.label = version, .out = out};
    bool heads = slice_starts(version, SLICE("refs/heads/"));
    bool tags = slice_starts(version, SLICE("refs/tags/"));
    int rc = E_NOTFOUND;

    w.label = slice_from(version, heads                                   ? 11
                                  : tags                                  ? 10
                                  : slice_starts(version, SLICE("refs/")) ? 5
                                                                          : 0);
    if (!tags) {
        rc = ref_get(s, repo, name, REF_BRANCH, w.label, out, e);
    }
    if (rc == E_NOTFOUND && !heads) {
        rc = ref_get(s, repo, name, REF_TAG, w.label, out, e);
        if (rc == E_NOTFOUND && w.label.n != 0) {
            rc = snap_list(s, repo, name, match_snap, &w, e);
            rc = rc == 1 ? 0 : rc == 0 ? E_NOTFOUND : rc;
        }
    }
    if (rc == E_NOTFOUND && !tags && (slice_eqs(w.label, "main") || slice_eqs(w.label, "HEAD"))) {
        return head_get(s, repo, name, out, e);
    }
    return rc == E_NOTFOUND ? err_set(e, rc, "no such version") : rc;
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
    rc = head_name_valid(repo, name, e);
    if (rc != 0) {
        return rc;
    }
    if (version.p[0] == 'v' && slice_u64(slice_from(version, 1), &seq) && seq != 0) {
        return snap_get(s, repo, name, seq, out, e);
    }
    w.root = digest_parse(version, &root) ? &root : NULL;
    w.commit = git_oid_parse(version, &commit);
    if (w.root == NULL && !w.commit) {
        return find_named(s, repo, name, version, out, e);
    }
    rc = snap_list(s, repo, name, match_snap, &w, e);
    return rc == 1 ? 0 : rc == 0 ? err_set(e, E_NOTFOUND, "no such version") : rc;
}

/* --- labels --- */

static int label_is_free(void *arg, const struct snap *sn)
{
    const struct snap *mine = arg;

    return sn->seq != mine->seq && strcmp(sn->label, mine->label) == 0 ? E_EXISTS : 0;
}

/* Neither another snapshot has it, nor is it the name of a branch or tag. */
static int label_free(struct store *s, struct slice repo, struct slice name, struct snap *mine,
                      struct err *e)
{
    struct slice label = slice_str(mine->label);
    struct snap taken;
    int rc = snap_list(s, repo, name, label_is_free, mine, e);

    if (rc == 0 && (ref_get(s, repo, name, REF_BRANCH, label, &taken, NULL) != E_NOTFOUND ||
                    ref_get(s, repo, name, REF_TAG, label, &taken, NULL) != E_NOTFOUND)) {
        rc = E_EXISTS;
    }
    return rc == E_EXISTS
               ? err_set(e, rc, "the name is already in use by another tag or by a branch")
               : rc;
}

static int tag_once(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                    struct slice label, struct err *e)
{
    struct buf key = BUF_INIT(SNAP_KEY_MAX);
    struct buf old = BUF_INIT(ROW_MAX);
    struct batch *b = batch_new();
    struct snap sn;
    struct head h;
    int rc = head_load(s, repo, name, &key, &old, &h, e);

    if (rc == 0 && label.n >= sizeof sn.label) {
        rc = err_set(e, E_INVALID, "the tag is longer than %zu bytes", sizeof sn.label - 1);
    }
    rc = rc != 0 ? rc : snap_get(s, repo, name, seq, &sn, e);
    if (rc == 0) {
        memset(sn.label, 0, sizeof sn.label);
        memcpy(sn.label, label.n != 0 ? label.p : "", label.n);
        rc = label.n != 0 ? label_free(s, repo, name, &sn, e) : 0;
    }
    if (rc == 0) {
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        h.names++;
        head_put(b, buf_slice(&key), &h);
        snap_put(b, repo, name, &sn);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&key);
    buf_free(&old);
    return rc;
}

/* A publish meanwhile is no reason to fail. */
int snap_tag(struct store *s, struct slice repo, struct slice name, uint64_t seq,
             struct slice label, struct err *e)
{
    int rc = E_CHANGED;

    for (int i = 0; rc == E_CHANGED && i < TRIES; i++) {
        rc = tag_once(s, repo, name, seq, label, e);
    }
    return rc;
}

/* --- removing --- */

struct removal {
    const struct snap *gone;
    struct slice repo, name;
    struct batch *b;
    struct err *e;
};

static int names_it(void *arg, const struct ref *r)
{
    struct removal *x = arg;

    return r->seq != x->gone->seq
               ? 0
               : err_set(x->e, E_BUSY,
                         "v%" PRIu64 " cannot be deleted while it is the %s " SLICE_FMT, r->seq,
                         r->kind == REF_BRANCH ? "branch" : "tag", SLICE_ARG(r->name));
}

/* Histories lead around what is gone. */
static int relink_child_snap(void *arg, const struct snap *sn)
{
    struct removal *x = arg;
    struct snap heir = *sn;

    if (sn->parent_seq == x->gone->seq) {
        heir.parent_seq = x->gone->parent_seq;
        snap_put(x->b, x->repo, x->name, &heir);
    }
    return 0;
}

static int remove_once(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                       struct err *e)
{
    struct buf key = BUF_INIT(SNAP_KEY_MAX);
    struct buf old = BUF_INIT(ROW_MAX);
    struct batch *b = batch_new();
    struct snap gone = {.seq = seq};
    struct removal x = {.gone = &gone, .repo = repo, .name = name, .b = b, .e = e};
    struct head h;
    int rc = head_load(s, repo, name, &key, &old, &h, e);

    if (rc == 0 && h.live_seq == seq) {
        rc = err_set(e, E_BUSY, "v%" PRIu64 " cannot be deleted: it is the live snapshot", seq);
    }
    rc = rc != 0 ? rc : ref_list(s, repo, name, names_it, &x, e);
    if (rc == 0) {
        rc = snap_get(s, repo, name, seq, &gone, e);
        rc = rc == E_NOTFOUND ? 0 : rc;
    }
    rc = rc != 0 ? rc : snap_list(s, repo, name, relink_child_snap, &x, e);
    if (rc == 0) {
        batch_require_value(b, TABLE_HEAD, buf_slice(&key), buf_slice(&old));
        h.names++; /* nobody else removes one of the same history meanwhile */
        head_put(b, buf_slice(&key), &h);
        buf_clear(&key);
        snap_key(&key, repo, name, seq);
        batch_del(b, TABLE_SNAP, buf_slice(&key));
        batch_del(b, TABLE_NOTE, buf_slice(&key));
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&key);
    buf_free(&old);
    return rc;
}

int snap_remove(struct store *s, struct slice repo, struct slice name, uint64_t seq, struct err *e)
{
    int rc = E_CHANGED;

    for (int i = 0; rc == E_CHANGED && i < TRIES; i++) {
        rc = remove_once(s, repo, name, seq, e);
    }
    return rc;
}
