#include "server/store/mark.h"

#include <xxhash.h>

#include "common/base/endian.h"
#include "server/store/head.h"
#include "server/store/seek.h"
#include "server/store/state.h"

struct marker {
    struct store *s;
    struct mark *m;
    const struct mark_events *ev;
    struct slice tree;
    uint64_t tree_hash;
    struct err *e; /* of the snapshot at work */
    struct err *caller;
};

static uint64_t hash_digest(const struct digest *d)
{
    return be_get(d->b, 8);
}

static uint64_t hash_of_tree(struct slice tree)
{
    return XXH3_64bits(tree.p, tree.n);
}

static uint64_t hash_in_tree(uint64_t tree_hash, const void *p, size_t n)
{
    return XXH3_64bits_withSeed(p, n, tree_hash);
}

static uint64_t hash_head(uint64_t tree_hash, uint64_t seq)
{
    char n[8];

    be_put(n, 8, seq);
    return hash_in_tree(tree_hash, n, sizeof n);
}

bool mark_has_node(const struct mark *m, const struct digest *id)
{
    return set64_has(&m->nodes, hash_digest(id));
}

bool mark_has_digest(const struct mark *m, const struct digest *d)
{
    return set64_has(&m->digests, hash_digest(d));
}

bool mark_has_held(const struct mark *m, struct slice tree, const struct digest *d)
{
    return set64_has(&m->held, hash_in_tree(hash_of_tree(tree), d->b, DIGEST_BYTES));
}

bool mark_has_head(const struct mark *m, struct slice tree, uint64_t newest_seq)
{
    return set64_has(&m->heads, hash_head(hash_of_tree(tree), newest_seq));
}

void mark_free(struct mark *m)
{
    set64_free(&m->nodes);
    set64_free(&m->digests);
    set64_free(&m->held);
    set64_free(&m->heads);
    set64_free(&m->seen);
}

static int mark_file(struct marker *x, const struct entry *en)
{
    if (en->type != ENTRY_FILE) {
        return 0;
    }
    set64_add(&x->m->digests, hash_digest(&en->digest));
    if (!set64_add(&x->m->held, hash_in_tree(x->tree_hash, en->digest.b, DIGEST_BYTES))) {
        return 0;
    }
    return x->ev != NULL && x->ev->on_file != NULL ? x->ev->on_file(x->ev->arg, x->tree, en, x->e)
                                                   : 0;
}

static int mark_node(struct marker *x, const struct digest *id, const struct child *said,
                     unsigned level)
{
    struct tree_node n;
    int rc;

    if (!set64_add(&x->m->seen, hash_in_tree(x->tree_hash, id->b, DIGEST_BYTES))) {
        return 0;
    }
    set64_add(&x->m->nodes, hash_digest(id));
    rc = said != NULL ? seek_load(x->s, said, level, &n, x->e) : node_load(x->s, id, &n, x->e);
    if (rc != 0) {
        return rc;
    }
    for (size_t i = 0; rc == 0 && i < n.count; i++) {
        rc = n.level == 0 ? mark_file(x, &n.entry[i])
                          : mark_node(x, &n.child[i].id, &n.child[i], n.level - 1);
    }
    node_free(&n);
    return rc;
}

static int mark_snap(void *arg, struct slice key, struct slice value)
{
    struct marker *x = arg;
    struct err why = {0};
    struct snap sn;
    uint64_t seq = 0;
    int rc;

    x->e = &why;
    if (!snap_key_parse(key, &x->tree, &seq)) {
        x->tree = key;
        rc = err_set(&why, E_CORRUPT, "a snapshot's key does not decode");
    } else {
        rc = snap_decode(value, seq, &sn, &why);
    }
    if (rc == 0) {
        x->tree_hash = hash_of_tree(x->tree);
        rc = mark_node(x, &sn.root, NULL, 0);
    }
    if (rc == E_CORRUPT && x->ev != NULL && x->ev->on_bad != NULL) {
        x->ev->on_bad(x->ev->arg, x->tree, seq, &why);
        return 0;
    }
    if (rc != 0 && x->caller != NULL) {
        *x->caller = why;
    }
    return rc;
}

static int mark_head(void *arg, struct slice key, struct slice value)
{
    struct marker *x = arg;
    struct head h;

    if (head_decode(value, &h, NULL) == 0) {
        set64_add(&x->m->heads, hash_head(hash_of_tree(key), h.newest_seq));
    }
    return 0;
}

int mark_run(struct store *s, struct kv_view *view, const struct mark_events *ev, struct mark *out,
             struct err *e)
{
    struct marker x = {.s = s, .m = out, .ev = ev, .caller = e};
    int rc;

    *out = (struct mark){0};
    rc = kv_scan(s->kv, view, TABLE_HEAD, SLICE_NONE, SLICE_NONE, mark_head, &x, e);
    rc = rc != 0 ? rc : kv_scan(s->kv, view, TABLE_SNAP, SLICE_NONE, SLICE_NONE, mark_snap, &x, e);
    return rc;
}
