/* tree_edit(): leaves without an edit are kept by their ids. From an edited leaf on, entries are
 * cut again until a cut falls where an old leaf begins. Upper nodes are built from the list of
 * leaves; existing ones are not written again. */
#include <stdlib.h>

#include "common/base/endian.h"
#include "server/store/seek.h"
#include "server/store/state.h"

enum { CUT_BITS = 6, CUT_LEVELS = 10 };

/* A run of nodes of one level, in order. */
struct row_of_nodes {
    struct child *child;
    size_t count;
    size_t room;
};

struct cutter {
    struct batch *b;
    struct arena *arena;
    struct row_of_nodes out;
    unsigned level;
    struct buf encoding; /* of the node that is being filled */
    struct child now;
    size_t count;
};

struct editor {
    struct store *s;
    struct arena arena;
    const struct tree_edit **edit; /* sorted, each path once */
    size_t edits;
    struct row_of_nodes leaves; /* of the base */
    struct digest *upper;       /* ids of the base's other nodes, sorted */
    size_t uppers;
    struct cutter cut;
    struct seek base;
};

/* --- the rule: it looks at paths only --- */

static uint64_t path_bits(struct slice path)
{
    struct digest d;

    digest_of(path, &d);
    return be_get(d.b + DIGEST_BYTES - 8, 8);
}

static bool cuts(struct slice path, unsigned level)
{
    return level < CUT_LEVELS &&
           ((path_bits(path) >> (CUT_BITS * level)) & ((1u << CUT_BITS) - 1)) == 0;
}

/* --- filling nodes --- */

static void push_node(struct row_of_nodes *r, const struct child *c)
{
    if (r->count == r->room) {
        r->room = r->room != 0 ? 2 * r->room : 64;
        r->child = realloc(r->child, r->room * sizeof r->child[0]);
        CHECK(r->child != NULL);
    }
    r->child[r->count++] = *c;
}

static int compare_edit_digests(const void *a, const void *b)
{
    return memcmp(a, b, DIGEST_BYTES);
}

static bool known_upper(const struct editor *x, const struct digest *id)
{
    return x->uppers != 0 &&
           bsearch(id, x->upper, x->uppers, sizeof *id, compare_edit_digests) != NULL;
}

static void finish_node(struct editor *x)
{
    struct cutter *c = &x->cut;

    if (c->count == 0) {
        return;
    }
    node_name(&c->encoding, c->level, c->count, &c->now.id);
    if (c->level == 0 || !known_upper(x, &c->now.id)) {
        node_put(&c->encoding, c->level, c->count, c->b, &c->now.id);
    }
    push_node(&c->out, &c->now);
    c->count = 0;
}

static int begin_item(struct cutter *c, struct slice first, uint64_t entries, uint64_t bytes,
                      struct err *e)
{
    if (c->count == 0) {
        node_begin(&c->encoding);
        c->now = (struct child){.first = arena_copy(c->arena, first)};
    }
    c->count++;
    return add_u64(c->now.entries, entries, &c->now.entries) &&
                   add_u64(c->now.bytes, bytes, &c->now.bytes)
               ? 0
               : err_set(e, E_TOOBIG, "the sizes in a tree add up to more than 64 bits");
}

static int fill_entry(struct editor *x, const struct entry *en, struct err *e)
{
    struct cutter *c = &x->cut;
    int rc = begin_item(c, en->path, 1, en->type == ENTRY_FILE ? en->size_bytes : 0, e);

    if (rc == 0) {
        node_add_entry(&c->encoding, en);
        if (c->count == NODE_COUNT_MAX || cuts(en->path, 0)) {
            finish_node(x);
        }
    }
    return rc;
}

/* At least two children a node, whatever the paths' hashes: every level halves, so hostile names
 * cannot make it deep. */
static int fill_child(struct editor *x, const struct child *child, struct err *e)
{
    struct cutter *c = &x->cut;
    int rc;

    if (c->count == NODE_COUNT_MAX || (c->count >= 2 && cuts(child->first, c->level))) {
        finish_node(x);
    }
    rc = begin_item(c, child->first, child->entries, child->bytes, e);
    if (rc == 0) {
        node_add_child(&c->encoding, child);
    }
    return rc;
}

/* --- reading the base: all ids above the leaves --- */

static void note_upper(struct editor *x, const struct digest *id)
{
    if ((x->uppers & (x->uppers - 1)) == 0) {
        x->upper = realloc(x->upper, (x->uppers != 0 ? 2 * x->uppers : 1) * sizeof *id);
        CHECK(x->upper != NULL);
    }
    x->upper[x->uppers++] = *id;
}

static int list_below(struct editor *x, const struct tree_node *n, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < n->count; i++) {
        struct child c = n->child[i];
        struct tree_node below;
        if (n->level == 1) {
            c.first = arena_copy(&x->arena, c.first);
            push_node(&x->leaves, &c);
            continue;
        }
        note_upper(x, &c.id);
        rc = seek_load(x->s, &c, n->level - 1, &below, e);
        if (rc == 0) {
            rc = list_below(x, &below, e); /* at most NODE_LEVELS deep */
            node_free(&below);
        }
    }
    return rc;
}

static int list_base(struct editor *x, const struct digest *root, struct err *e)
{
    struct tree_node n;
    int rc = node_load(x->s, root, &n, e);

    if (rc != 0) {
        return rc;
    }
    if (n.level != 0) {
        note_upper(x, root);
        rc = list_below(x, &n, e);
    } else if (n.count != 0) {
        struct child c = {.first = arena_copy(&x->arena, n.entry[0].path), .id = *root};
        for (size_t i = 0; i < n.count; i++) {
            c.entries++;
            c.bytes += n.entry[i].type == ENTRY_FILE ? n.entry[i].size_bytes : 0;
        }
        push_node(&x->leaves, &c);
    }
    node_free(&n);
    if (x->uppers != 0) {
        qsort(x->upper, x->uppers, sizeof x->upper[0], compare_edit_digests);
    }
    return rc;
}

/* --- the edits --- */

static int compare_edit_paths(const void *a, const void *b)
{
    const struct tree_edit *const *x = a;
    const struct tree_edit *const *y = b;
    int c = slice_cmp((*x)->entry.path, (*y)->entry.path);

    return c != 0 ? c : *x < *y ? -1 : *x > *y; /* of one array: the later one wins */
}

static bool edit_valid(const struct tree_edit *t)
{
    const struct entry *en = &t->entry;

    if (!tree_path_valid(en->path)) {
        return false;
    }
    if (!t->remove && en->type == ENTRY_FILE) {
        return en->target.n == 0 || tree_path_valid(en->target);
    }
    return t->remove || en->type == ENTRY_DIR ||
           (en->type == ENTRY_LINK && en->target.n != 0 && en->target.n <= TREE_PATH_MAX &&
            slice_find(en->target, '\0') < 0 && (en->leader.n == 0 || tree_path_valid(en->leader)));
}

static int sort_edits(struct editor *x, const struct tree_edit *edits, size_t count, struct err *e)
{
    size_t kept = 0;

    x->edit = mem_array(count + 1, sizeof x->edit[0]);
    for (size_t i = 0; i < count; i++) {
        if (!edit_valid(&edits[i])) {
            return err_set(e, E_INVALID, "not a valid path in a tree: %.100s",
                           arena_cstr(&x->arena, edits[i].entry.path));
        }
        x->edit[i] = &edits[i];
    }
    qsort((void *)x->edit, count, sizeof x->edit[0], compare_edit_paths);
    for (size_t i = 0; i < count; i++) {
        if (i + 1 == count || !slice_eq(x->edit[i]->entry.path, x->edit[i + 1]->entry.path)) {
            x->edit[kept++] = x->edit[i];
        }
    }
    x->edits = kept;
    return 0;
}

/* The first edit at or behind path. */
static size_t edit_from(const struct editor *x, struct slice path)
{
    size_t low = 0, high = x->edits;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (slice_cmp(x->edit[mid]->entry.path, path) < 0) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low;
}

static const struct tree_edit *edit_of(const struct editor *x, struct slice path)
{
    size_t i = edit_from(x, path);

    return i < x->edits && slice_eq(x->edit[i]->entry.path, path) ? x->edit[i] : NULL;
}

/* --- a file cannot be where a folder is --- */

/* Whether the edited tree has an entry at path that nothing can be below: 1, 0, or an error. */
static int will_stand(struct editor *x, struct slice path, struct err *e)
{
    const struct tree_edit *t = edit_of(x, path);
    const struct entry *en;
    int rc;

    if (t != NULL) {
        return !t->remove && t->entry.type != ENTRY_DIR;
    }
    rc = seek_get(&x->base, path, &en, e);
    return rc == 0 ? en->type != ENTRY_DIR : rc == E_NOTFOUND ? 0 : rc;
}

static int will_exist_below(struct editor *x, struct slice folder, struct err *e)
{
    struct buf at = BUF_INIT(2 * TREE_PATH_MAX);
    bool behind = false;
    int rc = 0;

    for (size_t i = edit_from(x, folder);
         i < x->edits && slice_starts(x->edit[i]->entry.path, folder); i++) {
        if (!x->edit[i]->remove) {
            return 1;
        }
    }
    buf_adds(&at, folder);
    while (rc == 0) {
        const struct entry *en;
        rc = seek_from(&x->base, buf_slice(&at), behind, &en, e);
        if (rc == E_NOTFOUND || (rc == 0 && !slice_starts(en->path, folder))) {
            rc = 0;
            break;
        }
        if (rc == 0 && edit_of(x, en->path) == NULL) {
            rc = 1;
        } else if (rc == 0) {
            buf_clear(&at);
            buf_adds(&at, en->path);
            behind = true;
        }
    }
    buf_free(&at);
    return rc;
}

static int clash(struct editor *x, struct slice path, struct slice with, struct err *e)
{
    return err_set(e, E_INVALID, "%.100s would be both a file and a folder (%.100s)",
                   arena_cstr(&x->arena, path), arena_cstr(&x->arena, with));
}

/* Neighbours in order share folders: those above `before`, which was put and checked, are not asked
 * for again. */
static int check_parents(struct editor *x, struct slice path, struct slice before, struct err *e)
{
    int rc = 0;

    for (size_t n = 1; rc == 0 && n < path.n; n++) {
        if (path.p[n] != '/' || (before.n > n && memcmp(before.p, path.p, n + 1) == 0)) {
            continue;
        }
        rc = will_stand(x, slice_first(path, n), e);
        if (rc == 1) {
            rc = clash(x, slice_first(path, n), path, e);
        }
    }
    return rc;
}

static int check_clashes(struct editor *x, struct err *e)
{
    struct buf folder = BUF_INIT(TREE_PATH_MAX + 1);
    struct slice before = SLICE_NONE;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->edits; i++) {
        struct slice path = x->edit[i]->entry.path;
        const struct entry *old;
        bool is_dir;
        if (x->edit[i]->remove) {
            continue;
        }
        rc = seek_get(&x->base, path, &old, e);
        is_dir = x->edit[i]->entry.type == ENTRY_DIR;
        /* What was there before clashes with nothing, unless it was a folder. */
        if (rc == E_NOTFOUND || (rc == 0 && old->type == ENTRY_DIR && !is_dir)) {
            rc = check_parents(x, path, before, e);
            before = path;
            buf_clear(&folder);
            buf_adds(&folder, path);
            buf_byte(&folder, '/');
            if (rc == 0 && !is_dir && (rc = will_exist_below(x, buf_slice(&folder), e)) == 1) {
                rc = clash(x, path, buf_slice(&folder), e);
            }
        }
    }
    buf_free(&folder);
    return rc;
}

/* --- merging --- */

static int fill_edit(struct editor *x, size_t i, struct err *e)
{
    return x->edit[i]->remove ? 0 : fill_entry(x, &x->edit[i]->entry, e);
}

/* Entries of one old leaf with the edits up to `end`. */
static int merge_leaf(struct editor *x, const struct child *leaf, size_t *at, size_t end,
                      struct err *e)
{
    struct tree_node n;
    int rc = seek_load(x->s, leaf, 0, &n, e);

    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < n.count; i++) {
        int order = 1;
        while (rc == 0 && *at < end &&
               (order = slice_cmp(x->edit[*at]->entry.path, n.entry[i].path)) < 0) {
            rc = fill_edit(x, (*at)++, e);
        }
        if (rc == 0 && *at < end && order == 0) {
            rc = fill_edit(x, (*at)++, e);
        } else if (rc == 0) {
            rc = fill_entry(x, &n.entry[i], e);
        }
    }
    while (rc == 0 && *at < end) {
        rc = fill_edit(x, (*at)++, e);
    }
    node_free(&n);
    return rc;
}

static int merge_leaves(struct editor *x, struct err *e)
{
    size_t at = 0;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < x->leaves.count; i++) {
        const struct child *leaf = &x->leaves.child[i];
        size_t end = i + 1 < x->leaves.count ? edit_from(x, leaf[1].first) : x->edits;
        if (at == end && x->cut.count == 0) {
            push_node(&x->cut.out, leaf);
        } else {
            rc = merge_leaf(x, leaf, &at, end, e);
        }
    }
    while (rc == 0 && at < x->edits) { /* an empty base */
        rc = fill_edit(x, at++, e);
    }
    finish_node(x);
    return rc;
}

static int build_above(struct editor *x, struct err *e)
{
    int rc = 0;

    while (rc == 0 && x->cut.out.count > 1) {
        struct row_of_nodes below = x->cut.out;
        x->cut.out = (struct row_of_nodes){0};
        x->cut.level++;
        CHECK(x->cut.level < NODE_LEVELS);
        for (size_t i = 0; rc == 0 && i < below.count; i++) {
            rc = fill_child(x, &below.child[i], e);
        }
        finish_node(x);
        free(below.child);
    }
    return rc;
}

static int edit_tree(struct editor *x, const struct digest *base, const struct tree_edit *edits,
                     size_t count, struct err *e)
{
    int rc = sort_edits(x, edits, count, e);

    rc = rc != 0 ? rc : list_base(x, base, e);
    rc = rc != 0 ? rc : check_clashes(x, e);
    rc = rc != 0 ? rc : merge_leaves(x, e);
    return rc != 0 ? rc : build_above(x, e);
}

int tree_edit(struct store *s, const struct digest *base, const struct tree_edit *edits,
              size_t count, struct batch *b, struct digest *root, uint64_t *entries,
              uint64_t *bytes, struct err *e)
{
    struct editor x = {.s = s};
    int rc;

    x.cut = (struct cutter){.b = b, .arena = &x.arena, .encoding = BUF_INIT(NODE_BYTES_MAX)};
    seek_open(&x.base, s, base);
    rc = edit_tree(&x, base, edits, count, e);
    if (rc == 0 && x.cut.out.count != 0) {
        *root = x.cut.out.child[0].id;
        *entries = x.cut.out.child[0].entries;
        *bytes = x.cut.out.child[0].bytes;
    } else if (rc == 0) {
        tree_empty_root(root);
        *entries = *bytes = 0;
    }
    seek_close(&x.base);
    free(x.cut.out.child);
    free(x.leaves.child);
    free(x.upper);
    free((void *)x.edit);
    buf_free(&x.cut.encoding);
    arena_fini(&x.arena);
    return rc;
}
