#include "server/store/rename.h"

#include <xxhash.h>
#include <sys/random.h>

#include "server/store/head.h"
#include "server/store/keep.h"
#include "server/store/node.h"
#include "server/store/ref.h"
#include "server/store/set64.h"
#include "server/store/state.h"

enum { KEY_BYTES = 16 << 10, ROW_BYTES = 8 << 10, BATCH_BYTES = 256 << 20 };

struct renaming {
    struct store *s;
    struct slice repo, from;
    struct slice to; /* p == NULL: it goes */
    bool copy;       /* `from` stays as it is */
    struct batch *b;
    struct set64 seen; /* nodes */
    uint64_t seed;     /* of their hashes: nobody outside chooses two that are the same */
    size_t bytes;      /* of holder rows in b */
    struct buf key;
    struct err *e;
};

/* --- rows that begin with the tree's name --- */

static struct slice key_of_renamed_row(struct renaming *x, struct slice tree, struct slice rest)
{
    buf_clear(&x->key);
    head_key(&x->key, x->repo, tree);
    buf_adds(&x->key, rest);
    return buf_slice(&x->key);
}

struct table_walk {
    struct renaming *x;
    enum table table;
};

static int move_row(void *arg, struct slice key, struct slice value)
{
    struct table_walk *w = arg;
    struct renaming *x = w->x;

    if (x->to.p != NULL) {
        batch_put(x->b, w->table,
                  key_of_renamed_row(x, x->to, slice_from(key, x->repo.n + 1 + x->from.n)), value);
    }
    if (!x->copy) {
        batch_del(x->b, w->table, key);
    }
    return 0;
}

/* All rows "repo NUL tree NUL ...". They change with the head's row alone, which the batch relies
 * on. */
static int move_table(struct renaming *x, enum table t)
{
    struct table_walk w = {x, t};
    struct buf from = BUF_INIT(KEY_BYTES);
    struct buf to = BUF_INIT(KEY_BYTES);
    int rc;

    head_key(&from, x->repo, x->from);
    buf_byte(&from, 0);
    head_key(&to, x->repo, x->from);
    buf_byte(&to, 1);
    rc = kv_scan(x->s->kv, NULL, t, buf_slice(&from), buf_slice(&to), move_row, &w, x->e);
    buf_free(&from);
    buf_free(&to);
    return rc;
}

/* --- holders --- */

static int hold_file(struct renaming *x, const struct digest *d)
{
    struct buf key = BUF_INIT(KEY_BYTES);

    if (x->to.p != NULL) {
        holder_key(&key, d, x->repo, 't', x->to);
        batch_put(x->b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
        x->bytes += key.n;
        buf_clear(&key);
    }
    if (!x->copy) {
        holder_key(&key, d, x->repo, 't', x->from);
        batch_del(x->b, TABLE_HOLDER, buf_slice(&key));
        x->bytes += key.n;
    }
    buf_free(&key);
    return x->bytes > BATCH_BYTES ? E_TOOBIG : 0;
}

static int hold_node(struct renaming *x, const struct digest *id)
{
    struct tree_node n;
    int rc;

    if (!set64_add(&x->seen, XXH3_64bits_withSeed(id->b, DIGEST_BYTES, x->seed))) {
        return 0;
    }
    rc = node_load(x->s, id, &n, x->e);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < n.count; i++) {
        if (n.level != 0) {
            rc = hold_node(x, &n.child[i].id);
        } else if (n.entry[i].type == ENTRY_FILE) {
            rc = hold_file(x, &n.entry[i].digest);
        }
    }
    node_free(&n);
    return rc;
}

static int hold_snap(void *arg, const struct snap *sn)
{
    return hold_node(arg, &sn->root);
}

/* A tree that goes need not give up its holders at once: the collector finds them. */
static int move_holders(struct renaming *x)
{
    int rc = snap_list(x->s, x->repo, x->from, hold_snap, x, x->e);

    if (x->to.p == NULL && (rc == E_TOOBIG || rc == E_CORRUPT)) {
        return 0;
    }
    return rc != E_TOOBIG ? rc
                          : err_set(x->e, rc, "the tree has too many files to be %s in one step",
                                    x->copy ? "copied" : "renamed");
}

/* --- where old names lead --- */

void rename_key(struct buf *out, struct slice repo, struct slice name)
{
    head_key(out, repo, name);
}

void rename_forget(struct batch *b, struct slice repo, struct slice name)
{
    struct buf key = BUF_INIT(KEY_BYTES);

    rename_key(&key, repo, name);
    batch_del(b, TABLE_MOVED, buf_slice(&key));
    buf_free(&key);
}

int rename_find(struct store *s, struct slice repo, struct slice name, struct buf *to,
                struct err *e)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    int rc;

    rename_key(&key, repo, name);
    rc = store_get(s, TABLE_MOVED, buf_slice(&key), to, e);
    buf_free(&key);
    return rc;
}

static int lead_on(void *arg, struct slice key, struct slice value)
{
    struct renaming *x = arg;

    if (!slice_eq(value, x->from)) {
        return 0;
    }
    batch_require_value(x->b, TABLE_MOVED, key, value);
    if (x->to.p != NULL) {
        batch_put(x->b, TABLE_MOVED, key, x->to);
    } else {
        batch_del(x->b, TABLE_MOVED, key);
    }
    return 0;
}

static int move_leads(struct renaming *x)
{
    struct buf from = BUF_INIT(KEY_BYTES);
    struct buf to = BUF_INIT(KEY_BYTES);
    int rc;

    head_key(&from, x->repo, SLICE(""));
    buf_adds(&to, x->repo);
    buf_byte(&to, 1);
    rc = kv_scan(x->s->kv, NULL, TABLE_MOVED, buf_slice(&from), buf_slice(&to), lead_on, x, x->e);
    if (rc == 0 && x->to.p != NULL) {
        batch_put(x->b, TABLE_MOVED, key_of_renamed_row(x, x->from, SLICE("")), x->to);
        rename_forget(x->b, x->repo, x->to);
    }
    buf_free(&from);
    buf_free(&to);
    return rc;
}

/* --- all of it --- */

static int move_renamed_head(struct renaming *x)
{
    struct buf key = BUF_INIT(KEY_BYTES);
    struct buf row = BUF_INIT(ROW_BYTES);
    struct head h;
    struct snap taken;
    int rc = head_load(x->s, x->repo, x->from, &key, &row, &h, x->e);

    if (rc == 0) {
        batch_require_value(x->b, TABLE_HEAD, buf_slice(&key), buf_slice(&row));
    }
    if (rc == 0 && !x->copy) {
        batch_del(x->b, TABLE_HEAD, buf_slice(&key));
    }
    if (rc == 0 && x->to.p != NULL) {
        rc = head_get(x->s, x->repo, x->to, &taken, x->e);
        rc = rc == 0            ? err_set(x->e, E_EXISTS, "a tree of that name already exists")
             : rc == E_NOTFOUND ? 0
                                : rc;
        batch_require_absent(x->b, TABLE_HEAD, key_of_renamed_row(x, x->to, SLICE("")));
        batch_put(x->b, TABLE_HEAD, key_of_renamed_row(x, x->to, SLICE("")), buf_slice(&row));
        /* An old name must not lead past a tree: refuse_lead() looked before. */
        if (x->copy) {
            batch_require_absent(x->b, TABLE_MOVED, key_of_renamed_row(x, x->to, SLICE("")));
        }
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

static int run_repo_rename(struct renaming *x)
{
    static const enum table tables[] = {TABLE_SNAP, TABLE_NOTE, TABLE_REF};
    int rc;

    x->b = batch_new();
    x->key = BUF_INIT(KEY_BYTES);
    CHECK(getrandom(&x->seed, sizeof x->seed, 0) == (ssize_t)sizeof x->seed);
    rc = move_renamed_head(x);
    for (size_t i = 0; rc == 0 && i < ARRAY_LEN(tables); i++) {
        rc = move_table(x, tables[i]);
    }
    rc = rc != 0 ? rc : move_holders(x);
    if (rc == 0 && !x->copy) {
        rc = move_leads(x);
    }
    rc = rc != 0 ? rc : store_commit(x->s, &x->b, COMMIT_SYNC, x->e);
    batch_free(&x->b);
    set64_free(&x->seen);
    buf_free(&x->key);
    return rc;
}

int rename_run(struct store *s, struct slice repo, struct slice from, struct slice to,
               struct err *e)
{
    int rc = slice_eq(from, to) ? err_set(e, E_EXISTS, "the tree already has that name")
                                : head_name_valid(repo, to, e);

    return rc == 0 ? run_repo_rename(
                         &(struct renaming){.s = s, .repo = repo, .from = from, .to = to, .e = e})
                   : rc;
}

/* Whoever uses the old name of a moved tree means that tree. */
static int refuse_lead(struct store *s, struct slice repo, struct slice to, struct err *e)
{
    struct buf now = BUF_INIT(ROW_BYTES);
    int rc = rename_find(s, repo, to, &now, e);

    if (rc == 0) {
        rc = err_set(e, E_EXISTS, "the name is an old one that redirects to " SLICE_FMT,
                     SLICE_ARG(buf_slice(&now)));
    }
    buf_free(&now);
    return rc == E_NOTFOUND ? 0 : rc;
}

int rename_copy(struct store *s, struct slice repo, struct slice from, struct slice to,
                struct err *e)
{
    struct renaming x = {.s = s, .repo = repo, .from = from, .to = to, .copy = true, .e = e};
    int rc = slice_eq(from, to) ? err_set(e, E_EXISTS, "the tree already has that name")
                                : head_name_valid(repo, to, e);

    rc = rc != 0 ? rc : refuse_lead(s, repo, to, e);
    return rc != 0 ? rc : run_repo_rename(&x);
}

int rename_drop(struct store *s, struct slice repo, struct slice name, struct err *e)
{
    return run_repo_rename(&(struct renaming){.s = s, .repo = repo, .from = name, .e = e});
}
