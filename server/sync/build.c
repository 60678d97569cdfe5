#include "server/sync/build.h"

#include <stdlib.h>

#include "common/os/crash.h"
#include "server/repo/sync_conf.h"
#include "server/store/keep.h"
#include "server/store/seek.h"
#include "server/sync/stage_row.h"

enum { EDITS = 4096, ROWS_A_BATCH = 1024, ROW_ROOM = 8192 };

struct builder {
    struct plan_of_run *p;
    struct seek base;
    struct seen_walk *staged;
    struct arena arena; /* of the edits at hand */
    struct tree_edit *edit;
    size_t count;
    struct built *out;
    struct err *e;
};

void build_hold(struct batch *b, struct slice repo, const struct digest *d)
{
    struct buf key = BUF_INIT(512);

    holder_key(&key, d, repo, 't', SLICE(SYNC_TREE));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    buf_free(&key);
}

static int flush(struct builder *x)
{
    struct batch *b = batch_new();
    struct built next;
    int rc = 0;

    if (x->count != 0) {
        rc = tree_edit(x->p->store, &x->out->root, x->edit, x->count, b, &next.root, &next.entries,
                       &next.bytes, x->e);
        for (size_t i = 0; rc == 0 && i < x->count; i++) {
            if (!x->edit[i].remove && x->edit[i].entry.type == ENTRY_FILE) {
                build_hold(b, x->p->repo, &x->edit[i].entry.digest);
            }
        }
        if (rc == 0) {
            rc = store_commit(x->p->store, &b, COMMIT_LAZY, x->e);
        }
        if (rc == 0) {
            *x->out = next;
            crash_point("sync.nodes");
        }
    }
    batch_free(&b);
    x->count = 0;
    arena_fini(&x->arena);
    x->arena = (struct arena){0};
    return rc;
}

static int add(struct builder *x, const struct entry *en, bool remove)
{
    struct tree_edit *t = &x->edit[x->count++];

    *t = (struct tree_edit){.entry = *en, .remove = remove};
    t->entry.path = arena_copy(&x->arena, en->path);
    t->entry.target = en->target.n != 0 ? arena_copy(&x->arena, en->target) : SLICE_NONE;
    t->entry.leader = en->leader.n != 0 ? arena_copy(&x->arena, en->leader) : SLICE_NONE;
    return x->count == EDITS ? flush(x) : 0;
}

/* --- what is listed no more --- */

struct leaving {
    struct builder *x;
    size_t at; /* in the roster: both are in the order of paths */
    bool keep; /* but not what nobody wants */
};

static int on_old(void *arg, const struct entry *en)
{
    struct leaving *l = arg;
    struct roster *r = l->x->p->roster;

    if (slice_eq(en->path, l->x->p->own)) {
        return 0;
    }
    while (l->at < roster_count(r)) {
        struct sync_entry listed;
        int order;
        roster_get(r, l->at, &listed);
        order = slice_cmp(listed.path, en->path);
        if (order == 0) {
            return 0;
        }
        if (order > 0) {
            break;
        }
        l->at++;
    }
    if (l->keep && sift_wants_old(l->x->p->sift, en)) {
        return 0;
    }
    return add(l->x, &(struct entry){.path = en->path}, true);
}

static int remove_gone(struct builder *x, bool keep)
{
    struct leaving l = {.x = x, .keep = keep};
    int rc = tree_walk(x->p->store, &x->p->base, SLICE(""), SLICE_NONE, on_old, &l, x->e);

    return rc == 0 ? flush(x) : rc;
}

/* --- what is --- */

static int64_t mtime_or_none(int64_t mtime_ns)
{
    return mtime_ns != SYNC_TIME_UNKNOWN ? mtime_ns : 0;
}

static void from_seen(const struct sync_entry *en, const struct seen *s, struct entry *out)
{
    *out = (struct entry){.path = en->path,
                          .type = ENTRY_FILE,
                          .executable = en->executable,
                          .mtime_ns = mtime_or_none(s->mtime_ns),
                          .size_bytes = s->size_bytes,
                          .digest = s->digest,
                          .target = en->leader};
}

/* The content that the published entry has, with what the list says about it now. */
static int rewrite(struct builder *x, const struct sync_entry *en, struct entry *out)
{
    const struct entry *old;
    int rc = seek_get(&x->base, en->path, &old, x->e);

    if (rc != 0) {
        return rc == E_NOTFOUND ? err_set(x->e, E_CHANGED, "the tree changed under the run") : rc;
    }
    *out = *old;
    out->path = en->path;
    out->executable = en->executable;
    out->target = en->leader;
    if (en->mtime_ns != SYNC_TIME_UNKNOWN && en->mtime_step_s == 0) {
        out->mtime_ns = en->mtime_ns;
    }
    return 0;
}

static int staged(struct builder *x, const struct sync_entry *en, struct entry *out)
{
    struct seen s;
    int rc = seen_walk_to(x->staged, en->path, &s, x->e);

    if (rc == E_NOTFOUND) {
        return err_set(x->e, E_CHANGED, "what was fetched went away again");
    }
    if (rc == 0) {
        from_seen(en, &s, out);
    }
    return rc;
}

/* The leader may stand anywhere: its rows are read by themselves. */
static int leader_entry(struct builder *x, struct slice leader, struct entry *out, bool *gone)
{
    ptrdiff_t i = roster_find(x->p->roster, leader);
    struct buf key = BUF_INIT(ROW_ROOM), row = BUF_INIT(ROW_ROOM);
    struct sync_entry en;
    struct seen s;
    int rc;

    CHECK(i >= 0); /* plan.c looked */
    roster_get(x->p->roster, (size_t)i, &en);
    *gone = x->p->fate[i] == FATE_DROP;
    if (*gone) {
        return 0;
    }
    if (x->p->fate[i] != FATE_STAGED) {
        rc = rewrite(x, &en, out);
    } else {
        seen_key(&key, x->p->repo, en.path);
        rc = store_get(x->p->store, TABLE_STAGE, buf_slice(&key), &row, x->e);
        rc = rc == 0 ? seen_decode(buf_slice(&row), &s, x->e) : rc;
        if (rc == 0) {
            from_seen(&en, &s, out);
        }
    }
    buf_free(&key);
    buf_free(&row);
    return rc;
}

static int follower(struct builder *x, size_t i, const struct sync_entry *en)
{
    struct slice path = arena_copy(&x->arena, en->path);
    struct slice leader = arena_copy(&x->arena, en->leader);
    struct entry out;
    bool gone;
    int rc = leader_entry(x, leader, &out, &gone);

    if (rc != 0) {
        return rc;
    }
    if (gone) {
        x->p->fate[i] = FATE_DROP;
        return 0;
    }
    out.path = path;
    out.target = leader;
    return add(x, &out, false);
}

static int write_entry(struct builder *x, size_t i)
{
    struct sync_entry en;
    struct entry out = {0};
    int rc = 0;

    roster_get(x->p->roster, i, &en);
    out.path = en.path;
    out.mtime_ns = mtime_or_none(en.mtime_ns);
    switch ((enum fate)x->p->fate[i]) {
    case FATE_SAME:
    case FATE_KEEP:
    case FATE_DROP:
        return 0;
    case FATE_FETCH:
        return err_set(x->e, E_INTERNAL, "a file was planned and never fetched");
    case FATE_FOLLOW:
        return follower(x, i, &en);
    case FATE_STAGED:
        rc = staged(x, &en, &out);
        break;
    case FATE_WRITE:
        if (en.type == SYNC_FILE) {
            rc = rewrite(x, &en, &out);
        } else {
            out.type = en.type == SYNC_LINK ? ENTRY_LINK : ENTRY_DIR;
            out.target = en.target;
            out.path = arena_copy(&x->arena, en.path);
            out.leader = en.type == SYNC_LINK ? plan_link_leader(x->p->roster, &en) : SLICE_NONE;
        }
        break;
    }
    return rc == 0 ? add(x, &out, false) : rc;
}

int build_tree(struct plan_of_run *p, bool keep_gone, struct built *out, struct err *e)
{
    struct builder x = {.p = p, .out = out, .e = e};
    int rc = 0;

    *out = (struct built){.root = p->base, .entries = p->base_entries};
    x.edit = mem_array(EDITS, sizeof x.edit[0]);
    seek_open(&x.base, p->store, &p->base);
    x.staged = seen_walk_open(p->store, TABLE_STAGE, p->repo);
    if (p->has_base && (!keep_gone || p->sift != NULL)) {
        rc = remove_gone(&x, keep_gone);
    }
    for (size_t i = 0; rc == 0 && i < roster_count(p->roster); i++) {
        rc = write_entry(&x, i);
    }
    if (rc == 0) {
        rc = flush(&x);
    }
    seek_close(&x.base);
    seen_walk_close(&x.staged);
    arena_fini(&x.arena);
    free(x.edit);
    return rc;
}

/* --- afterwards --- */

struct settling {
    struct plan_of_run *p;
    struct batch *b;
    struct seen_walk *seen; /* its rows that are to be written over or to go */
    struct buf key, row;
    struct err *e;
};

/* A collection may have let go of it before the head moved; none does from then on. */
static int hold_again(struct settling *x, const struct digest *d)
{
    int rc;

    buf_clear(&x->key);
    holder_key(&x->key, d, x->p->repo, 't', SLICE(SYNC_TREE));
    rc = store_get(x->p->store, TABLE_HOLDER, buf_slice(&x->key), &x->row, x->e);
    if (rc == E_NOTFOUND) {
        build_hold(x->b, x->p->repo, d);
    }
    return rc == E_NOTFOUND ? 0 : rc;
}

static int settle_seen(struct settling *x, struct slice path, const struct seen *s)
{
    struct seen old;
    int rc = seen_walk_to(x->seen, path, &old, x->e);

    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    seen_key(&x->key, x->p->repo, path);
    if (seen_needs_row(s)) {
        buf_clear(&x->row);
        seen_encode(s, &x->row);
        batch_put(x->b, TABLE_SEEN, buf_slice(&x->key), buf_slice(&x->row));
    } else if (rc == 0) {
        batch_del(x->b, TABLE_SEEN, buf_slice(&x->key));
    }
    return 0;
}

static int settle_stage(struct settling *x, struct slice path, const struct seen *s)
{
    ptrdiff_t i = roster_find(x->p->roster, path);
    int rc = 0;

    if (i >= 0 && x->p->fate[i] == FATE_STAGED) {
        rc = hold_again(x, &s->digest);
        rc = rc == 0 ? settle_seen(x, path, s) : rc;
    }
    if (rc == 0) {
        stage_row_del(x->b, x->p->repo, path, &s->digest);
    }
    return rc;
}

static int settle_row(struct settling *x, enum table t, struct slice path, const struct seen *s,
                      bool *did)
{
    *did = t == TABLE_STAGE || roster_find(x->p->roster, path) < 0;
    if (t == TABLE_STAGE) {
        return settle_stage(x, path, s);
    }
    if (*did) {
        seen_key(&x->key, x->p->repo, path);
        batch_del(x->b, t, buf_slice(&x->key));
    }
    return 0;
}

/* Of stage rows all, of seen rows those of what is not listed any more. */
static int settle_table(struct plan_of_run *p, enum table t, struct err *e)
{
    struct seen_walk *w = seen_walk_open(p->store, t, p->repo);
    struct settling x = {.p = p,
                         .b = batch_new(),
                         .seen = seen_walk_open(p->store, TABLE_SEEN, p->repo),
                         .key = BUF_INIT(ROW_ROOM),
                         .row = BUF_INIT(ROW_ROOM),
                         .e = e};
    size_t count = 0;
    struct slice path;
    struct seen s;
    int rc;

    while ((rc = seen_walk_next(w, &path, &s, e)) == 0) {
        bool did;
        rc = settle_row(&x, t, path, &s, &did);
        if (rc == 0 && did && ++count % ROWS_A_BATCH == 0) {
            rc = store_commit(p->store, &x.b, COMMIT_LAZY, e);
            crash_point("sync.settle");
            x.b = batch_new();
        }
        if (rc != 0) {
            break;
        }
    }
    rc = rc == E_NOTFOUND ? store_commit(p->store, &x.b, COMMIT_LAZY, e) : rc;
    batch_free(&x.b);
    buf_free(&x.key);
    buf_free(&x.row);
    seen_walk_close(&x.seen);
    seen_walk_close(&w);
    return rc;
}

int build_settle(struct plan_of_run *p, struct err *e)
{
    int rc = settle_table(p, TABLE_STAGE, e);

    return rc == 0 ? settle_table(p, TABLE_SEEN, e) : rc;
}
