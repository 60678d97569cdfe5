/* land.c - what was fetched becomes a snapshot: built, judged, published or parked. */
#include "server/sync/run_priv.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/repo/sync_conf.h"
#include "server/store/blob.h"
#include "server/store/keep.h"
#include "server/store/seek.h"
#include "server/sync/closure.h"
#include "server/sync/removal_limit.h"
#include "server/sync/retain.h"
#include "server/sync/run.h"
#include "server/sync/seen.h"

struct built {
    struct digest root;
    uint64_t entries, bytes;
};

static void build_hold(struct batch *b, struct slice repo, const struct digest *d);

/* --- our own file in a snapshot ---
 *
 * Our own file in a snapshot: when, from where and by whom it was made, in the form in which
 * Debian's mirrors say it, so that those who check mirrors see how old this one is. It is written
 * with each new snapshot, and with no other.
 *
 * threads  the run's; blocks
 */

enum { TEXT_MAX = 16 << 10 };

static void put_time(struct buf *out, const char *name, uint64_t unix_s)
{
    time_t t = (time_t)unix_s;
    char text[64];
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S +0000", &tm);
    buf_addf(out, "%s: %s\n", name, text);
}

/* As date(1) says it: what reads traces reads this line. */
static void put_first_line(struct buf *out, uint64_t unix_s)
{
    time_t t = (time_t)unix_s;
    char text[64];
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%a %b %e %H:%M:%S UTC %Y", &tm);
    buf_addf(out, "%s\n", text);
}

/* "rsync://a.example:873/debian/" -> "a.example" */
static struct slice host_of_upstream(const char *url)
{
    struct slice rest = slice_str(url);

    (void)slice_cut(&rest, '/');
    (void)slice_cut(&rest, '/');
    rest = slice_cut(&rest, '/');
    return rest.n != 0 && rest.p[0] == '[' ? rest : slice_cut(&rest, ':');
}

static void write_text(const struct sync_conf *c, const struct run_report *r, struct buf *out)
{
    uint64_t now = clock_unix_s();
    char host[256] = "";
    struct slice from = host_of_upstream(r->upstream);

    (void)gethostname(host, sizeof host - 1);
    put_first_line(out, now);
    put_time(out, "Date", now);
    put_time(out, "Date-Started", r->started_unix_s);
    buf_str(out, "Creator: mirrord " MIRROR_VERSION "\n");
    buf_addf(out, "Running on host: %s\n", host);
    for (size_t i = 0; i < c->architectures_count; i++) {
        buf_addf(out, "%s%s%s", i == 0 ? "Architectures: " : " ", c->architectures[i],
                 i + 1 == c->architectures_count ? "\n" : "");
    }
    buf_addf(out, "Upstream-mirror: " SLICE_FMT "\n", SLICE_ARG(from));
    buf_addf(out, "Total bytes received: %" PRIu64 "\n", r->wire_bytes);
}

/* *b becomes the same tree with the file in it. */
static int trace_add(struct sync_plan *p, const struct sync_conf *c, const struct run_report *r,
                     struct built *b, struct err *e)
{
    struct buf text = BUF_INIT(TEXT_MAX);
    struct batch *batch = batch_new();
    struct tree_edit edit = {.entry = {.path = slice_str(c->trace), .type = ENTRY_FILE}};
    struct built next = {0};
    int rc;

    write_text(c, r, &text);
    edit.entry.size_bytes = text.n;
    edit.entry.mtime_ns = (int64_t)clock_unix_s() * 1000000000;
    digest_of(buf_slice(&text), &edit.entry.digest);
    rc = blob_put_bytes(p->store, buf_slice(&text), batch, NULL, e);
    if (rc == 0) {
        rc = tree_edit(p->store, &b->root, &edit, 1, batch, &next.root, &next.entries, &next.bytes,
                       e);
    }
    if (rc == 0) {
        build_hold(batch, p->repo, &edit.entry.digest);
        rc = store_commit(p->store, &batch, COMMIT_LAZY, e);
    }
    batch_free(&batch);
    buf_free(&text);
    if (rc == 0) {
        *b = next;
    }
    return rc;
}

int trace_is_there(struct sync_plan *p, const struct sync_conf *c, bool *yes, struct err *e)
{
    struct arena a = {0};
    struct entry en;
    int rc = 0;

    *yes = true;
    if (c->trace != NULL) {
        rc = p->has_base ? tree_get(p->store, &p->base, slice_str(c->trace), &a, &en, e)
                         : E_NOTFOUND;
        *yes = rc == 0;
    }
    arena_fini(&a);
    return rc == E_NOTFOUND ? 0 : rc;
}

/* --- from a plan to a tree ---
 *
 * A plan that was carried out becomes a tree; and what is tidied up once its head is published.
 *
 * Edits go in by the thousand, each batch a tree of its own that nobody refers to: memory stays
 * small, and nodes that are left over go with the next collection.
 *
 * threads  one at a time; blocks
 * errors   E_CHANGED: something went away meanwhile, plan again; E_INVALID: the paths clash
 */

enum { EDITS = 4096, ROWS_A_BATCH = 1024, ROW_ROOM = 8192 };

struct builder {
    struct sync_plan *p;
    struct seek base;
    struct seen_walk *staged;
    struct arena arena; /* of the edits at hand */
    struct tree_edit *edit;
    size_t count;
    struct built *out;
    struct err *e;
};

/* The tree is among those who refer to the digest. */
static void build_hold(struct batch *b, struct slice repo, const struct digest *d)
{
    struct buf key = BUF_INIT(512);

    holder_key(&key, d, repo, 't', SLICE(SYNC_TREE));
    batch_put(b, TABLE_HOLDER, buf_slice(&key), SLICE(""));
    buf_free(&key);
}

static int flush_landed_edits(struct builder *x)
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
        rc = rc != 0 ? rc : store_commit(x->p->store, &b, COMMIT_LAZY, x->e);
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

static int add_landed_entry(struct builder *x, const struct entry *en, bool remove)
{
    struct tree_edit *t = &x->edit[x->count++];

    *t = (struct tree_edit){.entry = *en, .remove = remove};
    t->entry.path = arena_copy(&x->arena, en->path);
    t->entry.target = en->target.n != 0 ? arena_copy(&x->arena, en->target) : SLICE_NONE;
    t->entry.leader = en->leader.n != 0 ? arena_copy(&x->arena, en->leader) : SLICE_NONE;
    return x->count == EDITS ? flush_landed_edits(x) : 0;
}

/* --- what is listed no more --- */

struct leaving {
    struct builder *x;
    size_t at; /* in the entry list: both are in the order of paths */
    bool keep; /* but not what nobody wants */
};

static int on_old(void *arg, const struct entry *en)
{
    struct leaving *l = arg;
    struct entry_list *r = l->x->p->entry_list;

    if (slice_eq(en->path, l->x->p->own)) {
        return 0;
    }
    while (l->at < entry_list_count(r)) {
        struct sync_entry listed;
        int order;
        entry_list_get(r, l->at, &listed);
        order = slice_cmp(listed.path, en->path);
        if (order == 0) {
            return 0;
        }
        if (order > 0) {
            break;
        }
        l->at++;
    }
    if (l->keep && file_filter_wants_old(l->x->p->file_filter, en)) {
        return 0;
    }
    return add_landed_entry(l->x, &(struct entry){.path = en->path}, true);
}

static int remove_gone(struct builder *x, bool keep)
{
    struct leaving l = {.x = x, .keep = keep};
    int rc = tree_walk(x->p->store, &x->p->base, SLICE(""), SLICE_NONE, on_old, &l, x->e);

    return rc != 0 ? rc : flush_landed_edits(x);
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
        return rc == E_NOTFOUND
                   ? err_set(x->e, E_CHANGED, "the published tree changed during the run")
                   : rc;
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
        return err_set(x->e, E_CHANGED, "the record of a downloaded file is gone");
    }
    if (rc == 0) {
        from_seen(en, &s, out);
    }
    return rc;
}

/* The leader may stand anywhere: its rows are read by themselves. */
static int leader_entry(struct builder *x, struct slice leader, struct entry *out, bool *gone)
{
    ptrdiff_t i = entry_list_find(x->p->entry_list, leader);
    struct buf key = BUF_INIT(ROW_ROOM), row = BUF_INIT(ROW_ROOM);
    struct sync_entry en;
    struct seen s;
    int rc;

    CHECK(i >= 0); /* plan.c looked */
    entry_list_get(x->p->entry_list, (size_t)i, &en);
    *gone = x->p->action[i] == ACTION_DROP;
    if (*gone) {
        return 0;
    }
    if (x->p->action[i] != ACTION_STAGED) {
        rc = rewrite(x, &en, out);
    } else {
        seen_key(&key, x->p->repo, en.path);
        rc = store_get(x->p->store, TABLE_STAGE, buf_slice(&key), &row, x->e);
        rc = rc != 0 ? rc : seen_decode(buf_slice(&row), &s, x->e);
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
        x->p->action[i] = ACTION_DROP;
        return 0;
    }
    out.path = path;
    out.target = leader;
    return add_landed_entry(x, &out, false);
}

static int write_entry(struct builder *x, size_t i)
{
    struct sync_entry en;
    struct entry out = {0};
    int rc = 0;

    entry_list_get(x->p->entry_list, i, &en);
    out.path = en.path;
    out.mtime_ns = mtime_or_none(en.mtime_ns);
    switch ((enum action)x->p->action[i]) {
    case ACTION_SAME:
    case ACTION_KEEP:
    case ACTION_DROP:
        return 0;
    case ACTION_FETCH:
        return err_set(x->e, E_INTERNAL, "a planned file was never downloaded");
    case ACTION_FOLLOW:
        return follower(x, i, &en);
    case ACTION_STAGED:
        rc = staged(x, &en, &out);
        break;
    case ACTION_WRITE:
        if (en.type == SYNC_FILE) {
            rc = rewrite(x, &en, &out);
        } else {
            out.type = en.type == SYNC_LINK ? ENTRY_LINK : ENTRY_DIR;
            out.target = en.target;
            out.path = arena_copy(&x->arena, en.path);
            out.leader =
                en.type == SYNC_LINK ? plan_link_leader(x->p->entry_list, &en) : SLICE_NONE;
        }
        break;
    }
    return rc != 0 ? rc : add_landed_entry(x, &out, false);
}

/* keep_gone: what is not listed stays (the upstream could not read all of its own), but for what is
 * not wanted any more. */
static int build_tree(struct sync_plan *p, bool keep_gone, struct built *out, struct err *e)
{
    struct builder x = {.p = p, .out = out, .e = e};
    int rc = 0;

    *out = (struct built){.root = p->base, .entries = p->base_entries};
    x.edit = mem_array(EDITS, sizeof x.edit[0]);
    seek_open(&x.base, p->store, &p->base);
    x.staged = seen_walk_open(p->store, TABLE_STAGE, p->repo);
    if (p->has_base && (!keep_gone || p->file_filter != NULL)) {
        rc = remove_gone(&x, keep_gone);
    }
    for (size_t i = 0; rc == 0 && i < entry_list_count(p->entry_list); i++) {
        rc = write_entry(&x, i);
    }
    rc = rc != 0 ? rc : flush_landed_edits(&x);
    seek_close(&x.base);
    seen_walk_close(&x.staged);
    arena_fini(&x.arena);
    free(x.edit);
    return rc;
}

/* --- afterwards --- */

struct settling {
    struct sync_plan *p;
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
    ptrdiff_t i = entry_list_find(x->p->entry_list, path);
    int rc = 0;

    if (i >= 0 && x->p->action[i] == ACTION_STAGED) {
        rc = hold_again(x, &s->digest);
        rc = rc != 0 ? rc : settle_seen(x, path, s);
    }
    if (rc == 0) {
        stage_row_del(x->b, x->p->repo, path, &s->digest);
    }
    return rc;
}

static int settle_row(struct settling *x, enum table t, struct slice path, const struct seen *s,
                      bool *did)
{
    *did = t == TABLE_STAGE || entry_list_find(x->p->entry_list, path) < 0;
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
static int settle_table(struct sync_plan *p, enum table t, struct err *e)
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

/* After the head was published, or found to be the same: the blobs are held by the tree, stage rows
 * go or become seen rows. */
static int build_settle(struct sync_plan *p, struct err *e)
{
    int rc = settle_table(p, TABLE_STAGE, e);

    return rc != 0 ? rc : settle_table(p, TABLE_SEEN, e);
}

static struct slice repo_of_landing(const struct sync_run *r)
{
    return slice_str(r->job->repo);
}

/* A snapshot that waits; plain: its root before we put anything of ours in, by which it is known
 * again. Without a head there is nothing to compare with: then it is a failure. */
static int park(struct sync_run *r, const struct built *b, const struct digest *plain,
                const struct err *reason, struct err *e)
{
    struct batch *batch = batch_new();
    struct snap sn;
    int rc;

    if (r->head.seq == 0) {
        batch_free(&batch);
        return err_set(e, E_REFUSED, "%s", reason->text);
    }
    if (r->state.held_seq != 0 && digest_eq(&r->state.held_root, plain)) {
        sn.seq = r->state.held_seq; /* as the last time */
        rc = 0;
        batch_free(&batch);
    } else {
        uint64_t old = r->state.held_seq;
        rc = head_park(r->world.store, repo_of_landing(r), SLICE(SYNC_TREE), &b->root, b->entries,
                       b->bytes, clock_unix_s(), batch, &sn, e);
        if (rc == 0) {
            snap_note_time(batch, repo_of_landing(r), SLICE(SYNC_TREE), &sn, r->top_mtime_ns);
            r->state.held_seq = sn.seq;
            r->state.held_root = *plain;
            sync_state_put(batch, repo_of_landing(r), &r->state);
            run_require_claim(r, batch);
            crash_point("sync.park");
            rc = store_commit(r->world.store, &batch, COMMIT_SYNC, e);
            crash_point("sync.parked");
        }
        batch_free(&batch);
        if (rc == 0 && old != 0) {
            (void)!snap_remove(r->world.store, repo_of_landing(r), SLICE(SYNC_TREE), old, NULL);
        }
    }
    if (rc == 0) {
        lock_take(&r->lock);
        r->look.outcome = RUN_HELD;
        r->look.seq = sn.seq;
        r->look.root = b->root;
        snprintf(r->look.why, sizeof r->look.why, "%s", reason->text);
        lock_drop(&r->lock);
        run_say(r, "held: %s; v%" PRIu64 " waits for `mirrorctl sync approve %s`", reason->text,
                sn.seq, r->job->repo);
    }
    return rc;
}

int run_put_state(struct sync_run *r, struct err *e)
{
    struct batch *b = batch_new();

    sync_state_put(b, repo_of_landing(r), &r->state);
    run_require_claim(r, b);
    return store_commit(r->world.store, &b, COMMIT_LAZY, e);
}

void run_outcome(struct sync_run *r, enum run_outcome o, uint64_t seq, const struct digest *root)
{
    lock_take(&r->lock);
    r->look.outcome = o;
    r->look.seq = seq;
    r->look.root = *root;
    lock_drop(&r->lock);
}

static void note_success(struct sync_run *r, uint64_t seq)
{
    r->state.failures = 0;
    r->state.last_ok_unix_s = clock_unix_s();
    r->state.cursor_seq = seq;
    r->state.cursor_bytes = r->cursor_bytes;
    memcpy(r->state.cursor, r->cursor, r->cursor_bytes);
}

/* What waited is overtaken: forgotten, unless it is live now. */
static void drop_held(struct sync_run *r, uint64_t held)
{
    if (held != 0) {
        (void)!snap_remove(r->world.store, repo_of_landing(r), SLICE(SYNC_TREE), held, NULL);
    }
}

static int move_landed_head(struct sync_run *r, const struct built *b, struct err *e)
{
    const bool fresh = r->head.seq == 0;
    struct batch *batch = batch_new();
    uint64_t held = r->state.held_seq;
    struct snap sn;
    int rc =
        head_publish(r->world.store, repo_of_landing(r), SLICE(SYNC_TREE), &b->root, b->entries,
                     b->bytes, fresh ? NULL : &r->head.root, false, clock_unix_s(), batch, &sn, e);

    if (rc == 0) {
        snap_note_time(batch, repo_of_landing(r), SLICE(SYNC_TREE), &sn, r->top_mtime_ns);
        note_success(r, sn.seq);
        r->state.held_seq = 0;
        sync_state_put(batch, repo_of_landing(r), &r->state);
        run_require_claim(r, batch);
        crash_point("sync.publish");
        rc = store_commit(r->world.store, &batch, COMMIT_SYNC, e);
        crash_point("sync.published");
    }
    batch_free(&batch);
    if (rc != 0) {
        return rc;
    }
    run_outcome(r, RUN_PUBLISHED, sn.seq, &b->root);
    r->world.on_published(r->world.arg, repo_of_landing(r));
    run_say(r, "published v%" PRIu64 ": %" PRIu64 " entries, %" PRIu64 " bytes", sn.seq, b->entries,
            b->bytes);
    drop_held(r, held);
    return 0;
}

static int settle_unchanged(struct sync_run *r, const struct built *b, struct err *e)
{
    uint64_t held = r->state.held_seq;
    int rc;

    note_success(r, r->head.seq);
    r->state.held_seq = 0;
    run_outcome(r, RUN_UNCHANGED, r->head.seq, &b->root);
    run_say(r, "unchanged: v%" PRIu64 " stays", r->head.seq);
    rc = run_put_state(r, e);
    if (rc == 0) {
        drop_held(r, held);
        rc = build_settle(&r->plan, e);
    }
    return rc;
}

static int check_closure(struct sync_run *r, const struct built *b, struct err *e)
{
    struct closure_want w = {.store = r->world.store,
                             .root = &b->root,
                             .profile = profile_of(r->job->conf),
                             .file_filter = r->file_filter,
                             .say = run_say_of,
                             .arg = r};
    struct closure_report seen = {0};
    int rc;

    if (w.profile == NULL) {
        return 0;
    }
    rc = closure_check(&w, &seen, e);
    r->open_gates += rc == E_AGAIN;
    if (rc == 0) {
        run_say(r,
                "closure: %" PRIu64 " indexes list %" PRIu64
                " files, which are all present, and %" PRIu64 " that filter excludes; %" PRIu64
                " indexes or links could not be read",
                seen.indexes, seen.files, seen.unwanted, seen.unread);
    }
    return rc;
}

/* The run has published: that older ones stay longer than they should is no failure of it. */
static void release_landed_stage(struct sync_run *r)
{
    struct err e = {0};
    uint64_t gone = 0;

    if (retain_run(r->world.store, repo_of_landing(r), r->job->conf, r->state.held_seq, &gone,
                   &e) != 0) {
        run_say(r, "older snapshots were not removed: %s", e.text);
    }
    if (gone != 0) {
        run_say(r, "%" PRIu64 " older snapshots were removed", gone);
        r->world.on_published(r->world.arg, repo_of_landing(r)); /* "@v7" may lead nowhere now */
        r->world.collect(r->world.arg);
    }
}

/* An upstream that states the root has stated every bit of the tree: a tree that differs is not
 * what the upstream has published, unless we left something out. */
static int check_root(const struct sync_run *r, const struct built *b, struct err *e)
{
    if (!r->root_reported || r->sifted != 0 || digest_eq(&b->root, &r->reported_root)) {
        return 0;
    }
    return r->look.kept != 0
               ? err_set(e, E_CHANGED, "%" PRIu64 " files of the tree could not be downloaded",
                         r->look.kept)
               : err_set(e, E_PROTOCOL,
                         "the upstream's entries do not add up to the tree that it announced");
}

struct unwanted {
    struct file_filter *file_filter;
    uint64_t n;
};

static int count_unwanted(void *arg, const struct entry *en)
{
    struct unwanted *u = arg;

    u->n += !file_filter_wants_old(u->file_filter, en);
    return 0;
}

/* What the settings exclude now was taken away by who wrote them, not by the upstream: it is judged
 * without. */
static int check_removals(struct sync_run *r, const struct removal_limit *limit, struct err *reason,
                          struct err *e)
{
    struct unwanted u = {.file_filter = r->file_filter};
    uint64_t listed = entry_list_count(r->entry_list), before = r->head.entries;
    int rc = removal_judge(limit, before, listed, r->plan.gone, reason);

    if (rc != E_REFUSED || r->file_filter == NULL || listed == 0 || r->head.seq == 0) {
        return rc;
    }
    rc = tree_walk(r->world.store, &r->head.root, SLICE(""), SLICE_NONE, count_unwanted, &u, e);
    if (rc != 0 || u.n == 0) {
        return rc != 0 ? rc : E_REFUSED;
    }
    run_say(r, "%" PRIu64 " published entries are now excluded by filter", u.n);
    err_clear(reason);
    return removal_judge(limit, before - min_u64(before, u.n), listed,
                         r->plan.gone - min_u64(r->plan.gone, u.n), reason);
}

int run_land(struct sync_run *r, struct err *e)
{
    struct removal_limit limit = {0};
    struct err reason = {0};
    struct digest plain;
    struct built b;
    bool held = false, traced = false;
    int rc;

    run_at(r, RUN_VERIFY);
    if (r->job->conf->max_delete != NULL &&
        !removal_limit_parse(r->job->conf->max_delete, &limit)) {
        return err_set(
            e, E_CONFIG,
            "invalid max_delete; write a number such as 40000 or a percentage such as 5%%");
    }
    rc = build_tree(&r->plan, r->keep_gone, &b, e);
    rc = rc != 0 ? rc : check_root(r, &b, e);
    if (rc != 0) {
        return rc;
    }
    crash_point("sync.built");
    plain = b.root;
    rc = trace_is_there(&r->plan, r->job->conf, &traced, e);
    if (rc == 0 && traced && r->head.seq != 0 && digest_eq(&b.root, &r->head.root)) {
        return settle_unchanged(r, &b, e);
    }
    if (rc == 0 && r->job->conf->trace != NULL) {
        rc = trace_add(&r->plan, r->job->conf, &r->look, &b, e);
    }
    if (rc != 0) {
        return rc;
    }
    run_at(r, RUN_GATE);
    rc = check_closure(r, &b, e);
    if (rc != 0) {
        return rc;
    }
    rc = check_removals(r, &limit, &reason, e);
    if (rc == 0 && r->head.seq != 0) {
        rc = head_held(r->world.store, repo_of_landing(r), SLICE(SYNC_TREE), &held, e);
        if (rc == 0 && held) {
            rc = err_set(&reason, E_REFUSED, "this repo is held because it was rolled back");
        }
    }
    if (rc == 0 && r->doubt[0] != '\0') {
        rc = err_set(&reason, E_REFUSED, "%s", r->doubt);
    }
    crash_point("sync.gate");
    if (rc == E_REFUSED) {
        return park(r, &b, &plain, &reason, e);
    }
    run_at(r, RUN_PUBLISH);
    rc = rc != 0 ? rc : move_landed_head(r, &b, e);
    rc = rc != 0 ? rc : build_settle(&r->plan, e);
    crash_point("sync.settled");
    if (rc == 0) {
        release_landed_stage(r);
    }
    crash_point("sync.done");
    return rc;
}
