#include "server/store/ref.h"

#include <inttypes.h>

#include "common/base/endian.h"
#include "common/hash/git_oid.h"
#include "server/store/head.h"
#include "server/store/state.h"

enum { REF_BYTES = 17, KEY_BYTES = 16 << 10, ROW_BYTES = 8 << 10 };

/* --- names --- */

static bool part_valid(struct slice part)
{
    return part.n != 0 && part.p[0] != '.' && !slice_ends(part, SLICE(".lock"));
}

static bool bytes_valid(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        uint8_t c = (uint8_t)name.p[i];
        if (c <= ' ' || c == 0x7f || strchr("~^:?*[\\", c) != NULL ||
            (c == '.' && i + 1 < name.n && name.p[i + 1] == '.') ||
            (c == '@' && i + 1 < name.n && name.p[i + 1] == '{')) {
            return false;
        }
    }
    return true;
}

bool ref_name_valid(struct slice name)
{
    struct slice rest = name;
    struct git_oid commit;
    struct digest root;

    if (name.n == 0 || name.n > REF_NAME_MAX || !bytes_valid(name) || name.p[0] == '-' ||
        name.p[name.n - 1] == '.' || name.p[name.n - 1] == '/' || slice_eqs(name, "@") ||
        slice_eqs(name, "main") || slice_eqs(name, "HEAD") || slice_starts(name, SLICE("refs/")) ||
        git_oid_parse(name, &commit) || digest_parse(name, &root)) {
        return false;
    }
    while (rest.n != 0) {
        if (!part_valid(slice_cut(&rest, '/'))) {
            return false;
        }
    }
    return true;
}

/* --- rows --- */

static void ref_key(struct buf *out, struct slice repo, struct slice tree, char kind,
                    struct slice name)
{
    buf_adds(out, repo);
    buf_byte(out, 0);
    buf_adds(out, tree);
    buf_byte(out, 0);
    if (kind != 0) {
        buf_byte(out, (uint8_t)kind);
        buf_adds(out, name);
    }
}

/* version 1 | seq 8 | created 8 | message */
static void put_ref(struct batch *b, struct slice key, const struct ref *r)
{
    struct buf row = BUF_INIT(ROW_BYTES);

    buf_byte(&row, 1);
    buf_be(&row, 8, r->seq);
    buf_be(&row, 8, r->created_unix_s);
    buf_adds(&row, r->message);
    batch_put(b, TABLE_REF, key, buf_slice(&row));
    buf_free(&row);
}

int ref_decode(struct slice value, struct ref *out, struct err *e)
{
    if (value.n < REF_BYTES || value.p[0] != 1) {
        return err_set(e, E_CORRUPT, "the row of a branch or tag cannot be decoded");
    }
    out->seq = be_get(value.p + 1, 8);
    out->created_unix_s = be_get(value.p + 9, 8);
    out->message = slice_from(value, REF_BYTES);
    return 0;
}

/* A ref's row: *row keeps the bytes that *out points into. */
static int load_ref_row(struct store *s, struct slice key, struct buf *row, struct ref *out,
                        struct err *e)
{
    int rc = kv_get(s->kv, TABLE_REF, key, row, e);

    return rc != 0 ? rc : ref_decode(buf_slice(row), out, e);
}

/* --- reading --- */

int ref_get(struct store *s, struct slice repo, struct slice tree, enum ref_kind kind,
            struct slice name, struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    struct ref r;
    int rc;

    ref_key(&key, repo, tree, (char)kind, name);
    rc = key.rc == 0 ? load_ref_row(s, buf_slice(&key), &row, &r, e)
                     : err_set(e, E_NOTFOUND, "no such branch or tag");
    if (rc == 0) {
        rc = snap_get(s, repo, tree, r.seq, out, e);
        if (rc == E_NOTFOUND) {
            rc =
                err_set(e, E_CORRUPT,
                        "snapshot %" PRIu64 ", to which a branch or tag points, is missing", r.seq);
        }
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

struct ref_walk {
    size_t skip; /* repo NUL tree NUL */
    int (*each)(void *arg, const struct ref *r);
    void *arg;
    struct err *e;
};

static int on_ref_row(void *arg, struct slice key, struct slice value)
{
    struct ref_walk *w = arg;
    struct ref r;
    int rc = ref_decode(value, &r, w->e);

    if (rc != 0) {
        return rc;
    }
    r.kind = (enum ref_kind)key.p[w->skip];
    r.name = slice_from(key, w->skip + 1);
    return w->each(w->arg, &r);
}

int ref_list(struct store *s, struct slice repo, struct slice tree,
             int (*each)(void *arg, const struct ref *r), void *arg, struct err *e)
{
    struct buf from = BUF_INIT(KEY_BYTES);
    struct buf to = BUF_INIT(KEY_BYTES);
    struct ref_walk w = {.skip = repo.n + tree.n + 2, .each = each, .arg = arg, .e = e};
    int rc;

    ref_key(&from, repo, tree, 'a', SLICE(""));
    ref_key(&to, repo, tree, 'z', SLICE(""));
    rc = kv_scan(s->kv, NULL, TABLE_REF, buf_slice(&from), buf_slice(&to), on_ref_row, &w, e);
    buf_free(&from);
    buf_free(&to);
    return rc;
}

/* --- writing --- */

/* The head, which every change of a ref changes too. */
struct names {
    struct buf key;
    struct buf row;
    struct head head;
};

static int names_begin(struct store *s, struct slice repo, struct slice tree, struct names *n,
                       struct batch *b, struct err *e)
{
    int rc;

    *n = (struct names){.key = BUF_INIT(KEY_BYTES), .row = BUF_INIT(ROW_BYTES)};
    rc = head_load(s, repo, tree, &n->key, &n->row, &n->head, e);
    if (rc == 0) {
        batch_require_value(b, TABLE_HEAD, buf_slice(&n->key), buf_slice(&n->row));
        n->head.names++;
    }
    return rc;
}

static void names_end(struct names *n)
{
    buf_free(&n->key);
    buf_free(&n->row);
}

static int name_is_free(struct store *s, struct slice repo, struct slice tree, struct slice name,
                        struct err *e)
{
    struct buf version = BUF_INIT(2 * REF_NAME_MAX);
    struct snap taken;
    int rc;

    buf_str(&version, "refs/");
    buf_adds(&version, name);
    rc = snap_find(s, repo, tree, buf_slice(&version), &taken, NULL);
    buf_free(&version);
    if (rc == 0) {
        return err_set(e, E_EXISTS, "a branch or tag of this name already exists: " SLICE_FMT,
                       SLICE_ARG(name));
    }
    return rc == E_NOTFOUND ? 0 : err_set(e, rc, "the tree's branches and tags cannot be read");
}

static int count_ref(void *arg, const struct ref *r)
{
    (void)r;
    return ++*(int *)arg == REFS_MAX ? E_TOOBIG : 0;
}

int ref_create(struct store *s, struct slice repo, struct slice tree, const struct ref *r,
               struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct batch *b = batch_new();
    struct names n;
    struct snap sn;
    int count = 0;
    int rc = names_begin(s, repo, tree, &n, b, e);

    if (rc == 0 && (!ref_name_valid(r->name) || r->message.n > REF_MESSAGE_MAX)) {
        rc = err_set(e, E_INVALID, "invalid name or message for a branch or tag: " SLICE_FMT,
                     SLICE_ARG(r->name));
    }
    rc = rc != 0 ? rc : name_is_free(s, repo, tree, r->name, e);
    if (rc == 0) {
        rc = ref_list(s, repo, tree, count_ref, &count, e);
        rc = rc == E_TOOBIG ? err_set(e, rc,
                                      "the tree already has %d branches and tags, which is the "
                                      "maximum; delete one first",
                                      REFS_MAX)
                            : rc;
    }
    rc = rc != 0 ? rc : snap_get(s, repo, tree, r->seq, &sn, e);
    if (rc == 0) {
        ref_key(&key, repo, tree, (char)r->kind, r->name);
        put_ref(b, buf_slice(&key), r);
        head_put(b, buf_slice(&n.key), &n.head);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&key);
    names_end(&n);
    return rc;
}

int ref_remove(struct store *s, struct slice repo, struct slice tree, enum ref_kind kind,
               struct slice name, struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    struct batch *b = batch_new();
    struct names n;
    struct ref r;
    int rc = names_begin(s, repo, tree, &n, b, e);

    if (rc == 0) {
        ref_key(&key, repo, tree, (char)kind, name);
        rc = load_ref_row(s, buf_slice(&key), &row, &r, e);
    }
    if (rc == 0) {
        batch_del(b, TABLE_REF, buf_slice(&key));
        head_put(b, buf_slice(&n.key), &n.head);
        rc = store_commit(s, &b, COMMIT_SYNC, e);
    }
    batch_free(&b);
    buf_free(&key);
    buf_free(&row);
    names_end(&n);
    return rc;
}

/* The branch's row at another version; *live is the one that it had. */
static int branch_begin(struct store *s, struct slice repo, struct slice tree, struct slice branch,
                        struct names *n, struct buf *key, struct buf *row, struct ref *r,
                        struct batch *b, struct err *e)
{
    int rc = names_begin(s, repo, tree, n, b, e);

    if (rc == 0) {
        ref_key(key, repo, tree, REF_BRANCH, branch);
        rc = load_ref_row(s, buf_slice(key), row, r, e);
    }
    return rc;
}

int branch_publish(struct store *s, struct slice repo, struct slice tree, struct slice branch,
                   const struct digest *root, uint64_t entries, uint64_t bytes,
                   const struct digest *if_root, uint64_t now_unix_s, struct batch *b,
                   struct snap *out, struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    struct names n;
    struct snap live;
    struct ref r;
    int rc = branch_begin(s, repo, tree, branch, &n, &key, &row, &r, b, e);

    if (rc == 0) {
        rc = snap_get(s, repo, tree, r.seq, &live, e);
    } else if (rc == E_NOTFOUND) {
        rc = err_set(e, E_CHANGED, "the branch does not exist any more");
    }
    if (rc == 0 && !digest_eq(if_root, &live.root)) {
        rc = err_set(e, E_CHANGED, "v%" PRIu64 " was published in the meantime; try again",
                     live.seq);
    }
    if (rc == 0) {
        *out = (struct snap){.seq = ++n.head.newest_seq,
                             .root = *root,
                             .parent_seq = r.seq,
                             .created_unix_s = now_unix_s,
                             .entries = entries,
                             .bytes = bytes};
        r.seq = out->seq;
        put_ref(b, buf_slice(&key), &r);
        head_put(b, buf_slice(&n.key), &n.head);
        snap_put(b, repo, tree, out);
    }
    buf_free(&key);
    buf_free(&row);
    names_end(&n);
    return rc;
}

int branch_set(struct store *s, struct slice repo, struct slice tree, struct slice branch,
               uint64_t seq, struct batch *b, struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    struct names n;
    struct snap sn;
    struct ref r;
    int rc = branch_begin(s, repo, tree, branch, &n, &key, &row, &r, b, e);

    rc = rc != 0 ? rc : snap_get(s, repo, tree, seq, &sn, e);
    if (rc == 0) {
        r.seq = seq;
        put_ref(b, buf_slice(&key), &r);
        head_put(b, buf_slice(&n.key), &n.head);
    }
    buf_free(&key);
    buf_free(&row);
    names_end(&n);
    return rc;
}
