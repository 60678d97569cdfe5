#include "server/serve/desk.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "server/plan/run.h"
#include "server/serve/rendering.h"
#include "server/serve/sheaf.h"

enum { HOT_ENTRIES = 8192, HOT_BYTES = 64 << 20, HOT_FILES_SHARE = 4 };

/* Of the descriptors that we may have a part, for all loops: the rest is for connections, fills and what is being sent.
 * Nobody gives one back here when they run out. */
static size_t hot_files(unsigned loops)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == -1) {
        return HOT_ENTRIES / loops;
    }
    return (size_t)min_u64(r.rlim_cur / HOT_FILES_SHARE / loops, HOT_ENTRIES);
}

struct serve *serve_open(const struct serve_parts *parts, const struct entrance *const *doors)
{
    struct serve *s = NEW(struct serve);
    unsigned n = loops_count(parts->loops);

    s->parts = *parts;
    s->doors = doors;
    s->renderings = renderings_open(parts->store, parts->disk);
    seats_init(&s->sheaves, SHEAF_SEATS, SHEAF_SEATS / 2);
    s->desk = mem_array(n, sizeof s->desk[0]);
    for (unsigned i = 0; i < n; i++) {
        struct desk *k = &s->desk[i];
        k->serve = s;
        k->parts = &s->parts;
        k->loop = loops_at(parts->loops, i);
        k->hot = hot_open(HOT_ENTRIES, hot_files(n), HOT_BYTES);
        k->planner = planners_at(parts->planners, i);
        k->set = repo_set_hold(parts->repos);
        k->loop->local = k; /* before the first connection: no loop looks at it yet */
    }
    return s;
}

static void settle(struct loop *l, void *arg)
{
    struct desk *k = l->local;

    (void)arg;
    repo_set_release(&k->set);
    k->set = repo_set_hold(k->parts->repos);
    planner_forget(k->planner, SLICE_NONE, SLICE_NONE);
}

void serve_settle(struct serve *s)
{
    loops_each(s->parts.loops, settle, s);
}

struct forget {
    struct slice repo;
    struct slice key;
    _Atomic unsigned left;
    char text[];
};

static void forget(struct loop *l, void *arg)
{
    struct forget *f = arg;
    struct desk *k = l->local;

    k->generation++;
    if (k->hot != NULL) { /* emptied already, when the last fills end with the daemon */
        hot_forget(k->hot, f->repo, f->key);
    }
    planner_forget(k->planner, f->repo, f->key);
    if (atomic_fetch_sub(&f->left, 1) == 1) {
        free(f);
    }
}

void serve_forget(struct serve *s, struct slice repo, struct slice key)
{
    struct forget *f = mem_new(sizeof *f + repo.n + key.n + 1);

    memcpy(f->text, repo.p, repo.n);
    f->repo = slice_of(f->text, repo.n);
    if (key.p != NULL) {
        memcpy(f->text + repo.n, key.p, key.n);
        f->key = slice_of(f->text + repo.n, key.n);
    }
    f->left = loops_count(s->parts.loops);
    loops_each(s->parts.loops, forget, f);
}

struct quiet {
    struct lock lock;
    struct cond all;
    unsigned left;
};

static void empty_when_quiet(struct desk *k)
{
    struct quiet *q = k->quiet;

    if (q == NULL || k->flows != 0) {
        return;
    }
    hot_close(&k->hot);
    repo_set_release(&k->set);
    lock_take(&q->lock);
    if (--q->left == 0) {
        cond_signal(&q->all);
    }
    lock_drop(&q->lock);
}

void desk_flow_over(struct desk *k)
{
    k->flows--;
    empty_when_quiet(k);
}

static void empty_desk(struct loop *l, void *arg)
{
    struct desk *k = l->local;

    k->quiet = arg;
    empty_when_quiet(k);
}

void serve_quiet(struct serve *s)
{
    struct quiet q = {.left = loops_count(s->parts.loops)};

    renderings_stop(s->renderings);
    lock_init(&q.lock, LOCK_LEAF);
    cond_init(&q.all);
    loops_each(s->parts.loops, empty_desk, &q);
    lock_take(&q.lock);
    while (q.left != 0) {
        cond_wait(&q.all, &q.lock);
    }
    lock_drop(&q.lock);
    cond_fini(&q.all);
    lock_fini(&q.lock);
}

void serve_stats(struct serve *s, struct serve_stats *out)
{
    struct rendering_stats st;

    renderings_stats(s->renderings, &st);
    *out = (struct serve_stats){st.made, st.shared, st.memory_bytes, st.file_bytes};
}

void serve_close(struct serve **sp)
{
    struct serve *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        renderings_close(&s->renderings);
        seats_fini(&s->sheaves);
        free(s->desk);
        free(s);
    }
}
