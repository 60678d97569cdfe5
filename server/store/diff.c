/* tree_diff(): two walks side by side. Where both are before a node of the same id, both skip it;
 * otherwise the one at the higher level descends. Nodes are cut by paths alone, so after a
 * difference both reach the same cuts again. */
#include "server/store/seek.h"

struct side {
    struct store *s;
    struct tree_node node[NODE_LEVELS];
    size_t at[NODE_LEVELS];
    size_t depth; /* nodes on the way; 0: at the end */
};

static struct tree_node *top(struct side *x)
{
    return &x->node[x->depth - 1];
}

static const struct child *at_child(struct side *x)
{
    return x->depth != 0 && top(x)->level != 0 ? &top(x)->child[x->at[x->depth - 1]] : NULL;
}

static const struct entry *at_entry(struct side *x)
{
    return x->depth != 0 && top(x)->level == 0 ? &top(x)->entry[x->at[x->depth - 1]] : NULL;
}

static struct slice at_path(struct side *x)
{
    return at_child(x) != NULL ? at_child(x)->first : at_entry(x)->path;
}

static void step_over(struct side *x)
{
    x->at[x->depth - 1]++;
    while (x->depth != 0 && x->at[x->depth - 1] >= top(x)->count) {
        node_free(top(x));
        x->depth--;
        if (x->depth != 0) {
            x->at[x->depth - 1]++;
        }
    }
}

static int side_open(struct side *x, struct store *s, const struct digest *root, struct err *e)
{
    int rc = node_load(s, root, &x->node[0], e);

    x->s = s;
    if (rc == 0) {
        x->depth = 1;
        if (x->node[0].count == 0) {
            node_free(&x->node[0]);
            x->depth = 0;
        }
    }
    return rc;
}

static void side_close(struct side *x)
{
    while (x->depth != 0) {
        node_free(top(x));
        x->depth--;
    }
}

static int go_down(struct side *x, struct err *e)
{
    int rc;

    if (x->depth == NODE_LEVELS) {
        return err_set(e, E_CORRUPT, "the tree is too deep");
    }
    rc = seek_load(x->s, at_child(x), top(x)->level - 1, &x->node[x->depth], e);
    if (rc == 0) {
        x->at[x->depth++] = 0;
    }
    return rc;
}

static bool entry_eq(const struct entry *a, const struct entry *b)
{
    return a->type == b->type && a->executable == b->executable && a->mtime_ns == b->mtime_ns &&
           a->size_bytes == b->size_bytes && digest_eq(&a->digest, &b->digest) &&
           slice_eq(a->target, b->target) && slice_eq(a->leader, b->leader);
}

struct pair {
    struct side old;
    struct side new;
    int (*each)(void *arg, const struct entry *old_en, const struct entry *new_en);
    void *arg;
};

static int one_sided(struct pair *p, bool old, struct err *e)
{
    struct side *x = old ? &p->old : &p->new;
    const struct entry *en = at_entry(x);
    int rc;

    if (en == NULL) {
        return go_down(x, e);
    }
    rc = old ? p->each(p->arg, en, NULL) : p->each(p->arg, NULL, en);
    step_over(x);
    return rc;
}

static int both_entries(struct pair *p, struct err *e)
{
    const struct entry *a = at_entry(&p->old);
    const struct entry *b = at_entry(&p->new);
    int order = slice_cmp(a->path, b->path);
    int rc;

    if (order != 0) {
        return one_sided(p, order < 0, e);
    }
    rc = entry_eq(a, b) ? 0 : p->each(p->arg, a, b);
    step_over(&p->old);
    step_over(&p->new);
    return rc;
}

/* At least one stands before a node. */
static int approach(struct pair *p, struct err *e)
{
    unsigned old_level = top(&p->old)->level;
    unsigned new_level = top(&p->new)->level;
    int order = slice_cmp(at_path(&p->old), at_path(&p->new));

    if (old_level == new_level && digest_eq(&at_child(&p->old)->id, &at_child(&p->new)->id)) {
        step_over(&p->old);
        step_over(&p->new);
        return 0;
    }
    if (old_level == 0 && order < 0) {
        return one_sided(p, true, e);
    }
    if (new_level == 0 && order > 0) {
        return one_sided(p, false, e);
    }
    if (old_level != new_level) {
        return go_down(old_level > new_level ? &p->old : &p->new, e);
    }
    return go_down(order <= 0 ? &p->old : &p->new, e);
}

int tree_diff(struct store *s, const struct digest *old_root, const struct digest *new_root,
              int (*each)(void *arg, const struct entry *old_en, const struct entry *new_en),
              void *arg, struct err *e)
{
    struct pair p = {.each = each, .arg = arg};
    int rc;

    if (digest_eq(old_root, new_root)) {
        return 0;
    }
    rc = side_open(&p.old, s, old_root, e);
    rc = rc != 0 ? rc : side_open(&p.new, s, new_root, e);
    while (rc == 0 && (p.old.depth != 0 || p.new.depth != 0)) {
        if (p.old.depth == 0 || p.new.depth == 0) {
            rc = one_sided(&p, p.old.depth != 0, e);
        } else if (at_entry(&p.old) != NULL && at_entry(&p.new) != NULL) {
            rc = both_entries(&p, e);
        } else {
            rc = approach(&p, e);
        }
    }
    side_close(&p.old);
    side_close(&p.new);
    return rc;
}
