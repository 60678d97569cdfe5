#include "server/plan/run.h"

#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/lock.h"
#include "server/gate/gate.h"
#include "server/plan/paged_fetch.h"
#include "server/store/tree.h"

enum { ROW_BYTES = 1 << 20, ROWS_BYTES = 64 << 10, STOP_LOOK_MS = 200 };

/* --- states ----------------------------------------------------------------------------------- */

#define BEGINS_ANEW (STATE(PLAN_RUN_ASKING) | STATE(PLAN_RUN_LEFT))
#define TRIES       (BEGINS_ANEW | STATE(PLAN_RUN_FAILED))

static const struct state states[] = {
    [PLAN_RUN_NEW] = {"new", BEGINS_ANEW},
    [PLAN_RUN_ASKING] = {"asking", STATE(PLAN_RUN_READING) | STATE(PLAN_RUN_FETCHING) |
                                       STATE(PLAN_RUN_BODY) | STATE(PLAN_RUN_PLANNED) |
                                       STATE(PLAN_RUN_FAILED) | STATE(PLAN_RUN_LEFT)},
    [PLAN_RUN_READING] = {"reading", TRIES},
    [PLAN_RUN_FETCHING] = {"gathering", TRIES},
    [PLAN_RUN_BODY] = {"body", BEGINS_ANEW},
    [PLAN_RUN_PLANNED] = {"planned", BEGINS_ANEW},
    [PLAN_RUN_FAILED] = {"failed", BEGINS_ANEW},
    [PLAN_RUN_LEFT] = {"left", STATE(PLAN_RUN_LEFT)},
};

const struct state_table plan_run_states = STATE_TABLE("run of a plan", states);

static void set_plan_run_state(struct plan_run *r, enum plan_run_state to)
{
    r->state = state_step(&plan_run_states, r->state, to);
}

/* --- results ---------------------------------------------------------------------------------- */

/* A result with all that it points to: plans are made and dropped while it is kept. Its reader may
 * outlive the run. */
struct known {
    struct list node;
    struct job job;
    struct plan_run *run; /* that waits for it; NULL: it has left */
    struct store *store;
    const struct planner_deps *deps;
    struct slice repo;
    struct result result;
    struct buf bytes;
    struct arena arena;
    struct err why;
    bool asks; /* the row is absent here, and another mirror may have it */
};

static struct known *known_new(struct plan_run *r)
{
    struct known *k = NEW(struct known);
    struct dependency *n = &k->result.dependency;

    k->run = r;
    k->store = r->planner->deps.store;
    k->deps = &r->planner->deps;
    k->repo = arena_copy(&k->arena, slice_str(r->repo->name));
    k->bytes = BUF_INIT(ROW_BYTES);
    *n = r->plan->dependency;
    n->key = arena_copy_opt(&k->arena, n->key);
    n->name = arena_copy_opt(&k->arena, n->name);
    n->version = arena_copy_opt(&k->arena, n->version);
    n->path = arena_copy_opt(&k->arena, n->path);
    return k;
}

static void known_free(struct known *k)
{
    buf_free(&k->bytes);
    arena_fini(&k->arena);
    free(k);
}

static void add_plan_result(struct plan_run *r, const struct result *f)
{
    r->results.result[r->results.count++] = *f;
}

static void learn_known(struct plan_run *r, struct known *k)
{
    k->run = NULL;
    list_push_back(&r->known, &k->node);
    r->known_bytes += k->bytes.cap + k->arena.used_bytes;
    add_plan_result(r, &k->result);
}

/* --- rows: what the store knows --------------------------------------------------------------- */

struct scan {
    const struct dependency *dependency;
    struct buf *out;
};

static int add_row(void *arg, struct slice key, struct slice value)
{
    const struct scan *x = arg;

    if (!slice_starts(key, x->dependency->key) || x->out->n + value.n > ROWS_BYTES) {
        return 1;
    }
    buf_adds(x->out, value);
    return 0;
}

static int rows_read(struct store *s, const struct dependency *n, struct buf *out, struct err *e)
{
    struct scan x = {n, out};
    int rc = store_scan(s, n->table, n->key, SLICE_NONE, add_row, &x, e);

    return rc < 0 ? rc : out->n == 0 ? E_NOTFOUND : 0;
}

static int row_put(struct store *s, const struct dependency *n, struct err *e)
{
    struct batch *b = batch_new();

    if (n->name.p != NULL) {
        batch_require_value(b, n->table, n->key, n->name);
    } else {
        batch_require_absent(b, n->table, n->key);
    }
    batch_put(b, n->table, n->key, n->path);
    return store_commit(s, &b, COMMIT_SYNC, e);
}

static int entry_read(struct store *s, struct result *f, struct arena *a, struct err *e)
{
    const struct dependency *n = &f->dependency;
    int rc = n->follow ? tree_resolve(s, &n->root, n->path, a, &f->entry, e)
                       : tree_get(s, &n->root, n->path, a, &f->entry, e);

    return rc == E_INVALID ? E_NOTFOUND : rc; /* links that lead nowhere */
}

static int row_read(struct known *k)
{
    const struct dependency *n = &k->result.dependency;
    int rc = store_get(k->store, n->table, n->key, &k->bytes, &k->why);

    k->asks = rc == E_NOTFOUND && n->elsewhere && k->deps->fetch_row != NULL;
    return rc;
}

/* What another mirror of the cluster has learned of a link is learned here, too. */
static int row_fetch(struct known *k)
{
    const struct dependency *n = &k->result.dependency;
    int rc = k->deps->fetch_row(k->deps->fetch_row_arg, n->key, &k->bytes, &k->why);
    struct batch *b;

    if (rc == E_NOTFOUND) {
        return rc;
    }
    if (rc != 0) {
        buf_clear(&k->bytes);
        return err_set(&k->why, E_AGAIN,
                       "another mirror of the cluster may have it and does not answer; try again");
    }
    b = batch_new();
    batch_put(b, n->table, n->key, buf_slice(&k->bytes));
    return store_commit(k->store, &b, COMMIT_LAZY, &k->why);
}

static int head_read(struct known *k)
{
    struct result *f = &k->result;
    const struct dependency *n = &f->dependency;
    int rc = snap_find(k->store, k->repo, n->name, n->version, &f->snap, &k->why);

    if (rc == E_NOTFOUND && k->deps->catch_up != NULL && k->deps->catch_up(k->deps->catch_up_arg)) {
        rc = snap_find(k->store, k->repo, n->name, n->version, &f->snap, &k->why);
    }
    return rc;
}

/* That there is nothing, or that it has changed, is a result, too. */
static void known_settle(struct known *k, int rc)
{
    k->result.rc = rc;
    k->result.bytes = buf_slice(&k->bytes);
    k->why.code = rc == E_NOTFOUND || rc == E_CHANGED ? 0 : rc;
}

/* Blocks, for another mirror. */
static void known_ask(struct known *k)
{
    known_settle(k, row_fetch(k));
}

/* Blocks. */
static void known_read(struct known *k)
{
    struct result *f = &k->result;
    const struct dependency *n = &f->dependency;
    int rc = 0;

    switch (n->kind) {
    case DEPENDENCY_ROW:
        rc = row_read(k);
        break;
    case DEPENDENCY_ROWS:
        rc = rows_read(k->store, n, &k->bytes, &k->why);
        break;
    case DEPENDENCY_HEAD:
        rc = head_read(k);
        break;
    case DEPENDENCY_ENTRY:
        rc = entry_read(k->store, f, &k->arena, &k->why);
        break;
    case DEPENDENCY_PUT:
        rc = row_put(k->store, n, &k->why);
        break;
    case DEPENDENCY_PAGES:
    case DEPENDENCY_BODY:
    case DEPENDENCY_RIGHT:
        CHECK(false);
    }
    known_settle(k, rc);
}

/* --- steps ------------------------------------------------------------------------------------ */

bool plan_run_forces_refresh(const struct plan_run *r, struct slice subject)
{
    struct request_cache_control d;

    request_cache_control_read(r->req, &d);
    return d.refresh && gate_allows(r->who, "sync", subject);
}

static void learn_right(struct plan_run *r)
{
    struct known *k = known_new(r);
    const struct dependency *n = &k->result.dependency;
    const char *right = slice_eqs(n->name, "publish") ? "publish" : "read";

    k->result.rc = gate_allows(r->who, right, n->path) ? 0 : E_NOTFOUND;
    learn_known(r, k);
}

static int fail_plan_run(struct plan_run *r, int rc)
{
    set_plan_run_state(r, PLAN_RUN_FAILED);
    return rc;
}

enum { ANSWERED = 1 };

/* What is known has been learned. 0: the state says what comes next. ANSWERED: nothing does, the
 * run is not to be touched. */
static int step_plan_run(struct plan_run *r, struct err *e)
{
    set_plan_run_state(r, PLAN_RUN_ASKING);
    for (;;) {
        int rc;
        *r->plan = (struct plan){0};
        rc =
            r->repo->ops->plan(r->repo, r->req, r->path, r->who, &r->results, r->arena, r->plan, e);
        if (rc != 0) {
            return fail_plan_run(r, rc);
        }
        if (r->plan->kind != PLAN_REPLY && r->events != NULL && !r->events->admit(r->arg)) {
            return ANSWERED; /* it may be gone with its request */
        }
        if (r->plan->kind != PLAN_DEPENDENCY) {
            set_plan_run_state(r, PLAN_RUN_PLANNED);
            return 0;
        }
        if (r->results.count == RESULTS_MAX) {
            log_error("plan.loops", "repo=%s path=" SLICE_FMT, r->repo->name, SLICE_ARG(r->path));
            return fail_plan_run(
                r, err_set(e, E_INTERNAL,
                           "the plan for this path has more dependencies than allowed; "
                           "please report this bug"));
        }
        switch (r->plan->dependency.kind) {
        case DEPENDENCY_RIGHT:
            learn_right(r);
            continue;
        case DEPENDENCY_BODY:
            set_plan_run_state(r, PLAN_RUN_BODY);
            return 0;
        case DEPENDENCY_PAGES:
            set_plan_run_state(r, PLAN_RUN_FETCHING);
            break;
        case DEPENDENCY_PUT:
        case DEPENDENCY_ROW:
        case DEPENDENCY_ROWS:
        case DEPENDENCY_HEAD:
        case DEPENDENCY_ENTRY:
            set_plan_run_state(r, PLAN_RUN_READING);
            break;
        }
        if (r->reads_only && (r->plan->dependency.kind == DEPENDENCY_PAGES ||
                              r->plan->dependency.kind == DEPENDENCY_PUT)) {
            return fail_plan_run(
                r, err_set(e, E_NOTFOUND, "the response needs data that is not in this mirror"));
        }
        return 0;
    }
}

/* --- on a loop -------------------------------------------------------------------------------- */

static void go(struct plan_run *r);

static void read_work(struct job *j)
{
    known_read(CONTAINER_OF(j, struct known, job));
}

static void ask_work(struct job *j)
{
    known_ask(CONTAINER_OF(j, struct known, job));
}

/* Not on the readers: mirrors that ask each other must not keep each other from their stores. */
static void ask_on_pool(struct plan_run *r, struct known *k)
{
    k->asks = false;
    k->job.work = ask_work;
    pool_submit(r->planner->deps.askers, &k->job, r->who->client);
}

static void read_done(struct job *j)
{
    struct known *k = CONTAINER_OF(j, struct known, job);
    struct plan_run *r = k->run;

    if (r == NULL) { /* it has left */
        known_free(k);
        return;
    }
    if (k->asks) {
        ask_on_pool(r, k);
        return;
    }
    r->reading = NULL;
    if (k->why.code == 0) {
        learn_known(r, k);
        go(r);
        return;
    }
    if (k->why.code != E_AGAIN) {
        log_error("plan.read_failed", "repo=%s why=\"%s\"", r->repo->name, k->why.text);
    }
    set_plan_run_state(r, PLAN_RUN_FAILED);
    r->events->failed(r->arg, k->why.code, &k->why);
    known_free(k);
}

static void read_on_pool(struct plan_run *r)
{
    struct known *k = r->reading = known_new(r);

    k->job = (struct job){.work = read_work, .done = read_done, .reply = r->planner->loop->mail};
    pool_submit(r->planner->deps.readers, &k->job, r->who->client);
}

static void on_gathered(struct plan_run *r, const struct result *f)
{
    add_plan_result(r, f);
    go(r);
}

static void on_no_memory(struct plan_run *r, const struct result *f)
{
    (void)f;
    set_plan_run_state(r, PLAN_RUN_FAILED);
    r->events->no_memory(r->arg);
}

static void go(struct plan_run *r)
{
    struct err why = {0};
    int rc = step_plan_run(r, &why);

    if (rc == ANSWERED) {
        return;
    }
    if (rc != 0) {
        r->events->refused(r->arg, rc, &why);
        return;
    }
    switch (r->state) {
    case PLAN_RUN_READING:
        read_on_pool(r);
        return;
    case PLAN_RUN_FETCHING:
        paged_fetch_dependency(r, on_gathered, on_no_memory);
        return;
    case PLAN_RUN_BODY:
        r->events->body(r->arg);
        return;
    case PLAN_RUN_PLANNED:
        r->events->planned(r->arg);
        return;
    case PLAN_RUN_NEW:
    case PLAN_RUN_ASKING:
    case PLAN_RUN_FAILED:
    case PLAN_RUN_LEFT:
        CHECK(false);
    }
}

void plan_run_init(struct plan_run *r)
{
    list_init(&r->known);
}

void plan_run_start(struct plan_run *r, const struct plan_events *events, void *arg)
{
    r->events = events;
    r->arg = arg;
    go(r);
}

void plan_run_body(struct plan_run *r, int rc, struct slice bytes)
{
    CHECK(r->state == PLAN_RUN_BODY);
    add_plan_result(r,
                    &(struct result){.dependency = r->plan->dependency, .rc = rc, .bytes = bytes});
    go(r);
}

void plan_run_leave(struct plan_run *r)
{
    if (r->reading != NULL) {
        r->reading->run = NULL;
        r->reading = NULL;
    }
    paged_fetch_leave(r);
    set_plan_run_state(r, PLAN_RUN_LEFT);
}

void plan_run_forget_rows(struct plan_run *r)
{
    struct results *f = &r->results;
    size_t kept = 0;

    for (size_t i = 0; i < f->count; i++) {
        if (f->result[i].dependency.kind != DEPENDENCY_ROW &&
            f->result[i].dependency.kind != DEPENDENCY_ROWS) {
            f->result[kept++] = f->result[i];
        }
    }
    f->count = kept;
}

/* --- on a thread that blocks: gatherings are the loop's, all else is done at once ------------- */

struct waiter {
    struct lock lock;
    struct cond news;
    bool came; /* the result */
};

static void on_result(struct plan_run *r, const struct result *f)
{
    struct waiter *w = r->waiter;

    add_plan_result(r, f);
    lock_take(&w->lock);
    w->came = true;
    cond_signal(&w->news);
    lock_drop(&w->lock);
}

static void begin_here(struct loop *l, void *run)
{
    (void)l;
    paged_fetch_dependency(run, on_result, on_result);
}

static void leave_here(struct loop *l, void *run)
{
    (void)l;
    paged_fetch_leave(run);
}

static void drop_here(struct loop *l, void *run)
{
    (void)l;
    paged_fetch_drop(run);
}

static bool wait_for_result(struct waiter *w, const _Atomic bool *stop)
{
    bool came;

    lock_take(&w->lock);
    while (!w->came && (stop == NULL || !*stop)) {
        (void)cond_wait_ms(&w->news, &w->lock, STOP_LOOK_MS);
    }
    came = w->came;
    lock_drop(&w->lock);
    return came;
}

static int paged_fetch_here(struct plan_run *r, const _Atomic bool *stop, struct err *e)
{
    struct loop *l = r->planner->loop;
    struct waiter w = {.came = false};
    int rc = 0;

    lock_init(&w.lock, LOCK_LEAF);
    cond_init(&w.news);
    r->waiter = &w;
    loop_call(l, begin_here, r);
    if (!wait_for_result(&w, stop)) {
        loop_call(l, leave_here, r);
        set_plan_run_state(r, PLAN_RUN_FAILED);
        rc = err_set(e, E_CANCELLED, "the request was canceled");
    }
    cond_fini(&w.news);
    lock_fini(&w.lock);
    return rc;
}

static int read_here(struct plan_run *r, struct err *e)
{
    struct known *k = known_new(r);
    int rc;

    known_read(k);
    if (k->asks) {
        known_ask(k);
    }
    rc = k->why.code;
    if (rc == 0) {
        learn_known(r, k);
    } else {
        set_plan_run_state(r, PLAN_RUN_FAILED);
        err_set(e, rc, "%s", k->why.text);
        known_free(k);
    }
    return rc;
}

int plan_run_wait(struct plan_run *r, const _Atomic bool *stop, struct err *e)
{
    int rc = step_plan_run(r, e);

    while (rc == 0 && r->state != PLAN_RUN_PLANNED) {
        if (r->state == PLAN_RUN_FETCHING) {
            rc = paged_fetch_here(r, stop, e);
        } else if (r->state == PLAN_RUN_READING) {
            rc = read_here(r, e);
        } else {
            CHECK(r->state == PLAN_RUN_BODY);
            add_plan_result(r, &(struct result){.dependency = r->plan->dependency});
        }
        rc = rc != 0 ? rc : step_plan_run(r, e);
    }
    return rc;
}

void plan_run_fini(struct plan_run *r)
{
    struct list *n;

    CHECK(r->reading == NULL);
    if (r->use != NULL && r->events == NULL) {
        loop_call(r->planner->loop, drop_here, r);
    } else {
        paged_fetch_drop(r);
    }
    while ((n = list_pop_front(&r->known)) != NULL) {
        known_free(LIST_ITEM(n, struct known, node));
    }
}
