#include "server/store/node.h"

#include <stdlib.h>

#include "common/base/endian.h"
#include "common/os/clock.h"
#include "server/store/state.h"

enum { FLAG_EXECUTABLE = 1, FLAG_HARD_LINK = 2 };

bool tree_path_valid(struct slice path)
{
    if (path.n == 0 || path.n > TREE_PATH_MAX || slice_find(path, '\0') >= 0 ||
        path.p[path.n - 1] == '/') {
        return false;
    }
    while (path.n != 0) {
        struct slice part = slice_cut(&path, '/');
        if (part.n == 0 || slice_eqs(part, ".") || slice_eqs(part, "..")) {
            return false;
        }
    }
    return true;
}

/* --- writing --- */

void node_begin(struct buf *to)
{
    static const char head[NODE_HEAD];

    buf_clear(to);
    buf_add(to, head, sizeof head);
}

/* Of a file or a link that is a hard link to another: that one, else empty. */
static struct slice leader_of(const struct entry *en)
{
    switch (en->type) {
    case ENTRY_FILE:
        return en->target;
    case ENTRY_LINK:
        return en->leader;
    case ENTRY_DIR:
        break;
    }
    return SLICE_NONE;
}

void node_add_entry(struct buf *to, const struct entry *en)
{
    buf_counted(to, 2, en->path);
    buf_be(to, 1, (uint64_t)en->type);
    buf_be(to, 1,
           (en->executable ? FLAG_EXECUTABLE : 0) | (leader_of(en).n != 0 ? FLAG_HARD_LINK : 0));
    buf_be(to, 8, (uint64_t)en->mtime_ns);
    switch (en->type) {
    case ENTRY_FILE:
        buf_be(to, 8, en->size_bytes);
        buf_adds(to, digest_key(&en->digest));
        break;
    case ENTRY_LINK:
        buf_counted(to, 2, en->target);
        break;
    case ENTRY_DIR:
        break;
    }
    if (leader_of(en).n != 0) {
        buf_counted(to, 2, leader_of(en));
    }
}

void node_add_child(struct buf *to, const struct child *c)
{
    buf_counted(to, 2, c->first);
    buf_adds(to, digest_key(&c->id));
    buf_be(to, 8, c->entries);
    buf_be(to, 8, c->bytes);
}

void node_name(struct buf *encoding, unsigned level, size_t count, struct digest *id)
{
    CHECK(encoding->rc == 0 && encoding->n >= NODE_HEAD);
    encoding->p[0] = 1;
    encoding->p[1] = (char)level;
    be_put(encoding->p + 2, 4, count);
    digest_of(buf_slice(encoding), id);
}

void node_put(struct buf *encoding, unsigned level, size_t count, struct batch *b,
              struct digest *id)
{
    struct buf row = BUF_INIT(NODE_BYTES_MAX + NODE_TIME);

    node_name(encoding, level, count, id);
    buf_be(&row, NODE_TIME, clock_unix_s());
    buf_adds(&row, buf_slice(encoding));
    batch_put(b, TABLE_NODE, digest_key(id), buf_slice(&row));
    buf_free(&row);
}

/* --- reading: every byte may come from a stranger --- */

struct reader {
    struct slice left;
    bool bad;
};

static struct slice take_node_bytes(struct reader *r, size_t n)
{
    struct slice got;

    if (r->bad || n > r->left.n) {
        r->bad = true;
        return SLICE_NONE;
    }
    got = slice_first(r->left, n);
    r->left = slice_from(r->left, n);
    return got;
}

static uint64_t take_node_number(struct reader *r, unsigned bytes)
{
    struct slice s = take_node_bytes(r, bytes);
    return r->bad ? 0 : be_get(s.p, bytes);
}

static struct slice take_counted_text(struct reader *r)
{
    return take_node_bytes(r, (size_t)take_node_number(r, 2));
}

static void take_node_digest(struct reader *r, struct digest *d)
{
    struct slice s = take_node_bytes(r, DIGEST_BYTES);
    if (!r->bad) {
        memcpy(d->b, s.p, DIGEST_BYTES);
    }
}

static void take_entry(struct reader *r, struct entry *en)
{
    uint64_t type, flags;

    *en = (struct entry){.path = take_counted_text(r)};
    type = take_node_number(r, 1);
    flags = take_node_number(r, 1);
    en->executable = (flags & FLAG_EXECUTABLE) != 0;
    en->mtime_ns = (int64_t)take_node_number(r, 8);
    if (type == ENTRY_FILE) {
        en->type = ENTRY_FILE;
        en->size_bytes = take_node_number(r, 8);
        take_node_digest(r, &en->digest);
        if ((flags & FLAG_HARD_LINK) != 0) {
            en->target = take_counted_text(r);
            r->bad = r->bad || !tree_path_valid(en->target);
        }
    } else if (type == ENTRY_DIR) {
        en->type = ENTRY_DIR;
    } else if (type == ENTRY_LINK) {
        en->type = ENTRY_LINK;
        en->target = take_counted_text(r);
        r->bad = r->bad || en->target.n == 0 || en->target.n > TREE_PATH_MAX ||
                 slice_find(en->target, '\0') >= 0;
        if ((flags & FLAG_HARD_LINK) != 0) {
            en->leader = take_counted_text(r);
            r->bad = r->bad || !tree_path_valid(en->leader);
        }
    } else {
        r->bad = true;
    }
    r->bad = r->bad || (flags & ~(uint64_t)(FLAG_EXECUTABLE | FLAG_HARD_LINK)) != 0 ||
             ((flags & FLAG_HARD_LINK) != 0 && type == ENTRY_DIR) || !tree_path_valid(en->path);
}

static void take_child(struct reader *r, struct child *c)
{
    c->first = take_counted_text(r);
    take_node_digest(r, &c->id);
    c->entries = take_node_number(r, 8);
    c->bytes = take_node_number(r, 8);
    r->bad = r->bad || !tree_path_valid(c->first) || c->entries == 0;
}

static struct slice path_of_node_child(const struct tree_node *n, size_t i)
{
    return n->level == 0 ? n->entry[i].path : n->child[i].first;
}

static void take_items(struct reader *r, struct tree_node *n)
{
    if (n->level == 0) {
        n->entry = mem_array(n->count + 1, sizeof n->entry[0]);
    } else {
        n->child = mem_array(n->count, sizeof n->child[0]);
    }
    for (size_t i = 0; i < n->count && !r->bad; i++) {
        if (n->level == 0) {
            take_entry(r, &n->entry[i]);
        } else {
            take_child(r, &n->child[i]);
        }
        r->bad = r->bad ||
                 (i > 0 && slice_cmp(path_of_node_child(n, i - 1), path_of_node_child(n, i)) >= 0);
    }
}

int node_decode(struct slice bytes, struct tree_node *out, struct err *e)
{
    struct reader r = {bytes, bytes.n > NODE_BYTES_MAX};
    uint64_t version, level, count;

    *out = (struct tree_node){.bytes = BUF_INIT(NODE_BYTES_MAX + NODE_TIME)};
    version = take_node_number(&r, 1);
    level = take_node_number(&r, 1);
    count = take_node_number(&r, 4);
    r.bad = r.bad || version != 1 || level >= NODE_LEVELS || count > NODE_COUNT_MAX ||
            (count == 0 && level != 0);
    if (!r.bad) {
        out->level = (unsigned)level;
        out->count = (size_t)count;
        take_items(&r, out);
    }
    if (r.bad || r.left.n != 0) {
        node_free(out);
        return err_set(e, E_CORRUPT, "the node of a tree cannot be decoded");
    }
    return 0;
}

void node_free(struct tree_node *n)
{
    free(n->entry);
    free(n->child);
    buf_free(&n->bytes);
    n->entry = NULL;
    n->child = NULL;
    n->count = 0;
}

void tree_empty_root(struct digest *out)
{
    struct buf b = BUF_INIT(64);

    node_begin(&b);
    node_name(&b, 0, 0, out);
    buf_free(&b);
}

static const char empty[NODE_HEAD] = {1};

struct slice node_encoding(const struct tree_node *n)
{
    return n->bytes.n != 0 ? slice_from(buf_slice(&n->bytes), NODE_TIME)
                           : slice_of(empty, sizeof empty);
}

/* The empty tree has no row: it is the same everywhere. */
static int load_empty(const struct digest *id, struct tree_node *out, struct err *e)
{
    struct digest root;

    tree_empty_root(&root);
    if (!digest_eq(&root, id)) {
        return err_set(e, E_CORRUPT, "the node of a tree is missing");
    }
    return node_decode(slice_of(empty, sizeof empty), out, e);
}

int node_load(struct store *s, const struct digest *id, struct tree_node *out, struct err *e)
{
    struct buf row = BUF_INIT(NODE_BYTES_MAX + NODE_TIME);
    struct slice bytes;
    struct digest got;
    int rc = kv_get(s->kv, TABLE_NODE, digest_key(id), &row, e);

    *out = (struct tree_node){.bytes = row};
    if (rc != 0) {
        buf_free(&row);
        return rc == E_NOTFOUND ? load_empty(id, out, e) : rc;
    }
    bytes = slice_from(buf_slice(&row), row.n < NODE_TIME ? row.n : NODE_TIME);
    digest_of(bytes, &got);
    rc = digest_eq(&got, id) ? node_decode(bytes, out, e)
                             : err_set(e, E_CORRUPT, "the node of a tree does not match its id");
    if (rc == 0) {
        out->bytes = row;
    } else {
        buf_free(&row);
    }
    return rc;
}

ptrdiff_t node_find(const struct tree_node *n, struct slice path)
{
    size_t low = 0, high = n->count;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (slice_cmp(path_of_node_child(n, mid), path) <= 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return (ptrdiff_t)low - 1;
}
