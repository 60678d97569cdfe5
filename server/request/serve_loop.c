#include "server/request/serve_loop.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "server/plan/run.h"
#include "server/request/rendering.h"
#include "server/request/blob_batch.h"
#include "server/request/relay.h"

enum {
    RESPONSE_CACHE_ENTRIES = 8192,
    RESPONSE_CACHE_BYTES = 64 << 20,
    RESPONSE_CACHE_FILES_SHARE = 4
};

/* Of the descriptors that we may have a part, for all loops: the rest is for connections, fetches
 * and what is being sent. Nobody gives one back here when they run out. */
static size_t cached_files(unsigned loops)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == -1) {
        return RESPONSE_CACHE_ENTRIES / loops;
    }
    return (size_t)min_u64(r.rlim_cur / RESPONSE_CACHE_FILES_SHARE / loops, RESPONSE_CACHE_ENTRIES);
}

struct serve *serve_open(const struct serve_deps *deps, const struct frontend *const *doors)
{
    struct serve *s = NEW(struct serve);
    unsigned n = loops_count(deps->loops);

    s->deps = *deps;
    s->doors = doors;
    s->renderings = renderings_open(deps->store, deps->disk);
    client_slots_init(&s->blob_batches, BLOB_BATCH_CLIENT_SLOTS, BLOB_BATCH_CLIENT_SLOTS / 2);
    s->serve_loop = mem_array(n, sizeof s->serve_loop[0]);
    for (unsigned i = 0; i < n; i++) {
        struct serve_loop *k = &s->serve_loop[i];
        k->serve = s;
        k->deps = &s->deps;
        k->loop = loops_at(deps->loops, i);
        k->cached_response =
            response_cache_open(RESPONSE_CACHE_ENTRIES, cached_files(n), RESPONSE_CACHE_BYTES);
        k->planner = planners_at(deps->planners, i);
        k->set = repo_set_hold(deps->repos);
        k->loop->local = k; /* before the first connection: no loop looks at it yet */
    }
    return s;
}

static void refresh_loop_repos(struct loop *l, void *arg)
{
    struct serve_loop *k = l->local;

    (void)arg;
    repo_set_release(&k->set);
    k->set = repo_set_hold(k->deps->repos);
    planner_forget(k->planner, SLICE_NONE, SLICE_NONE);
}

void serve_settle(struct serve *s)
{
    loops_each(s->deps.loops, refresh_loop_repos, s);
}

struct forget {
    struct slice repo;
    struct slice key;
    _Atomic unsigned left;
    char text[];
};

static void forget_loop_state(struct loop *l, void *arg)
{
    struct forget *f = arg;
    struct serve_loop *k = l->local;

    k->generation++;
    if (k->cached_response != NULL) { /* emptied already, when the last fills end with the daemon */
        response_cache_forget(k->cached_response, f->repo, f->key);
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
    f->left = loops_count(s->deps.loops);
    loops_each(s->deps.loops, forget_loop_state, f);
}

struct quiet {
    struct lock lock;
    struct cond all;
    unsigned left;
};

static void empty_when_quiet(struct serve_loop *k)
{
    struct quiet *q = k->quiet;

    if (q == NULL || k->flows != 0) {
        return;
    }
    response_cache_close(&k->cached_response);
    relay_loop_close(&k->relays);
    repo_set_release(&k->set);
    lock_take(&q->lock);
    if (--q->left == 0) {
        cond_signal(&q->all);
    }
    lock_drop(&q->lock);
}

void serve_loop_flow_over(struct serve_loop *k)
{
    k->flows--;
    empty_when_quiet(k);
}

static void empty_serve_loop(struct loop *l, void *arg)
{
    struct serve_loop *k = l->local;

    k->quiet = arg;
    empty_when_quiet(k);
}

void serve_quiet(struct serve *s)
{
    struct quiet q = {.left = loops_count(s->deps.loops)};

    renderings_stop(s->renderings);
    lock_init(&q.lock, LOCK_LEAF);
    cond_init(&q.all);
    loops_each(s->deps.loops, empty_serve_loop, &q);
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
        client_slots_fini(&s->blob_batches);
        free(s->serve_loop);
        free(s);
    }
}
