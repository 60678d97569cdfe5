#include "tests/harness/store.h"

#include "common/os/pool.h"
#include "server/http/body_memory.h"
#include "server/plan/run.h"
#include "server/repo/plan.h"
#include "tests/harness/states.h"

/* A repo whose plans ask for one need after the other, then reply. */
struct script {
    const struct dependency *dependency;
    size_t count;
    _Atomic unsigned asked, gathered;
    _Atomic bool held; /* ops->gather waits until it is false */
};

static int script_plan(const struct repo *r, const struct http_req *req, struct slice path,
                       const struct principal *who, const struct results *results,
                       struct arena *arena, struct plan *out, struct err *e)
{
    struct script *s = r->state;

    (void)req;
    (void)who;
    s->asked++;
    if (slice_eqs(path, "bad")) {
        return err_set(e, E_INVALID, "this path is bad");
    }
    if (results->count < s->count) {
        out->kind = PLAN_DEPENDENCY;
        out->dependency = s->dependency[results->count];
        /* A plan's texts live no longer than it. */
        out->dependency.key = arena_copy(arena, out->dependency.key);
        return 0;
    }
    plan_reply(out, 200, SLICE("planned"));
    return 0;
}

static int script_gather(const struct repo *r, const struct paged_fetch_part *part, struct buf *out,
                         struct err *e)
{
    struct script *s = r->state;

    (void)e;
    while (s->held) {
        usleep(1000);
    }
    s->gathered++;
    buf_str(out, "made of ");
    buf_adds(out, part->doc);
    return 0;
}

static const struct repo_ops script_ops = {
    .name = "script", .plan = script_plan, .paged_fetch = script_gather};

struct bench {
    struct fixture *f;
    struct loops *loops;
    struct pool *readers;
    struct planners *planners;
    struct body_memory *memory; /* before bench_open(); NULL: it is not counted */
    struct script script;
    struct repo repo;
    struct http_req req;
    struct principal who;
    struct arena arena;
    struct plan plan;
    struct plan_run run;
    /* What the run's events said: */
    struct lock lock;
    struct cond news;
    bool refuse, over, planned;
    int refused;
};

static void bench_open(struct bench *b, struct fixture *f, const struct dependency *dependency,
                       size_t count)
{
    struct planner_deps parts = {.store = f->s, .memory = b->memory, .document_bytes = 1 << 20};

    *b = (struct bench){
        .f = f, .memory = b->memory, .script = {.dependency = dependency, .count = count}};
    b->loops = loops_open(1);
    b->readers = parts.readers = pool_open("reader", 2, 0);
    b->planners = planners_open(&parts, b->loops);
    b->repo = (struct repo){.name = "r", .ops = &script_ops, .state = &b->script};
    b->req = (struct http_req){.method = METHOD_GET, .arena = &b->arena};
    b->who = (struct principal){.name = SLICE("")};
    lock_init(&b->lock, LOCK_LEAF);
    cond_init(&b->news);
}

static void bench_run(struct bench *b, const char *path)
{
    b->run = (struct plan_run){.planner = planners_at(b->planners, 0),
                               .repo = &b->repo,
                               .req = &b->req,
                               .path = slice_str(path),
                               .who = &b->who,
                               .arena = &b->arena,
                               .plan = &b->plan};
    plan_run_init(&b->run);
    b->over = b->planned = false;
    b->refused = 0;
}

static void bench_close(struct bench *b)
{
    pool_close(&b->readers);
    loops_close(&b->loops);
    planners_close(&b->planners);
    body_memory_close(&b->memory);
    arena_fini(&b->arena);
    cond_fini(&b->news);
    lock_fini(&b->lock);
}

/* --- a request, on its loop --- */

static void say(struct bench *b, bool planned, int refused)
{
    lock_take(&b->lock);
    b->over = true;
    b->planned = planned;
    b->refused = refused;
    cond_signal(&b->news);
    lock_drop(&b->lock);
}

static bool admit(void *arg)
{
    struct bench *b = arg;

    if (b->refuse) {
        say(b, false, 0);
    }
    return !b->refuse;
}

static void body(void *arg)
{
    struct bench *b = arg;

    plan_run_body(&b->run, 0, SLICE("a body"));
}

static void planned(void *arg)
{
    say(arg, true, 0);
}

static void refused(void *arg, int rc, const struct err *why)
{
    assert_int_equal(rc, why->code);
    say(arg, false, rc);
}

static void no_memory(void *arg)
{
    say(arg, false, E_TOOBIG);
}

static void start(struct loop *l, void *arg)
{
    static const struct plan_events events = {admit, body, planned, refused, refused, no_memory};
    struct bench *b = arg;

    (void)l;
    plan_run_start(&b->run, &events, b);
}

static void request(struct bench *b)
{
    loop_call(loops_at(b->loops, 0), start, b);
    lock_take(&b->lock);
    while (!b->over) {
        cond_wait(&b->news, &b->lock);
    }
    lock_drop(&b->lock);
}

static void leave(struct loop *l, void *arg)
{
    struct bench *b = arg;

    (void)l;
    plan_run_leave(&b->run);
}

static void fini(struct loop *l, void *arg)
{
    struct bench *b = arg;

    (void)l;
    plan_run_fini(&b->run);
}

/* --- what there is to be known --- */

static void put_row(struct store *s, const char *key, const char *value)
{
    struct batch *b = batch_new();

    batch_put(b, TABLE_ORIGIN, slice_str(key), slice_str(value));
    assert_int_equal(store_commit(s, &b, COMMIT_SYNC, NULL), 0);
}

static bool row_is(struct store *s, const char *key, const char *value)
{
    struct buf row = BUF_INIT(1024);
    bool is = store_get(s, TABLE_ORIGIN, slice_str(key), &row, NULL) == 0 &&
              slice_eqs(buf_slice(&row), value);

    buf_free(&row);
    return is;
}

static struct digest put_tree(struct store *s, const char *path)
{
    struct tree_edit t = {.entry = {.path = slice_str(path), .type = ENTRY_FILE, .size_bytes = 7}};
    struct batch *b = batch_new();
    struct digest root, empty;
    uint64_t count, bytes;

    memset(t.entry.digest.b, 7, sizeof t.entry.digest.b);
    tree_empty_root(&empty);
    assert_int_equal(tree_edit(s, &empty, &t, 1, b, &root, &count, &bytes, NULL), 0);
    assert_int_equal(store_commit(s, &b, COMMIT_SYNC, NULL), 0);
    return root;
}

static struct digest put_blob(struct store *s, const char *text)
{
    struct batch *b = batch_new();
    struct blob *blob = NULL;
    struct digest d;

    assert_int_equal(blob_put_bytes(s, slice_str(text), b, &blob, NULL), 0);
    d = *blob_digest(blob);
    blob_release(&blob);
    assert_int_equal(store_commit(s, &b, COMMIT_SYNC, NULL), 0);
    return d;
}

enum { ROW, NO_ROW, ROWS, NO_HEAD, ENTRY, NO_ENTRY, RIGHT, BODY, GATHER, PUT, PUT_LATE, KINDS };

static void all_kinds(struct dependency dependency[KINDS], struct store *s, const char *put)
{
    put_row(s, "row/1", "one");
    put_row(s, "row/2", "two");
    dependency[ROW] =
        (struct dependency){.kind = DEPENDENCY_ROW, .table = TABLE_ORIGIN, .key = SLICE("row/1")};
    dependency[NO_ROW] =
        (struct dependency){.kind = DEPENDENCY_ROW, .table = TABLE_ORIGIN, .key = SLICE("none")};
    dependency[ROWS] =
        (struct dependency){.kind = DEPENDENCY_ROWS, .table = TABLE_ORIGIN, .key = SLICE("row/")};
    dependency[NO_HEAD] =
        (struct dependency){.kind = DEPENDENCY_HEAD, .name = SLICE("a/b"), .version = SLICE("")};
    dependency[ENTRY] = (struct dependency){.kind = DEPENDENCY_ENTRY, .path = SLICE("a/file")};
    dependency[ENTRY].root = put_tree(s, "a/file");
    dependency[NO_ENTRY] = dependency[ENTRY];
    dependency[NO_ENTRY].path = SLICE("a/other");
    dependency[RIGHT] =
        (struct dependency){.kind = DEPENDENCY_RIGHT, .name = SLICE("read"), .path = SLICE("r/x")};
    dependency[BODY] = (struct dependency){.kind = DEPENDENCY_BODY};
    dependency[GATHER] =
        (struct dependency){.kind = DEPENDENCY_PAGES,
                            .key = SLICE("what"),
                            .of_blob = true,
                            .one_part = true,
                            .lookup = {.key = SLICE("blob"), .principal = SLICE("")}};
    dependency[GATHER].root = put_blob(s, "a blob");
    dependency[PUT] = (struct dependency){.kind = DEPENDENCY_PUT,
                                          .table = TABLE_ORIGIN,
                                          .key = slice_str(put),
                                          .path = SLICE("first")};
    dependency[PUT_LATE] = dependency[PUT]; /* there is one now */
}

static void assert_all_known(const struct bench *b, const char *body_text)
{
    const struct result *f = b->run.results.result;

    assert_int_equal(b->run.state, PLAN_RUN_PLANNED);
    assert_int_equal(b->run.results.count, KINDS);
    assert_true(b->plan.kind == PLAN_REPLY && slice_eqs(b->plan.text, "planned"));
    for (size_t i = 0; i < KINDS; i++) {
        assert_int_equal(f[i].dependency.kind, b->script.dependency[i].kind);
    }
    assert_true(f[ROW].rc == 0 && slice_eqs(f[ROW].bytes, "one"));
    assert_int_equal(f[NO_ROW].rc, E_NOTFOUND);
    assert_true(f[ROWS].rc == 0 && slice_eqs(f[ROWS].bytes, "onetwo"));
    assert_int_equal(f[NO_HEAD].rc, E_NOTFOUND);
    assert_true(f[ENTRY].rc == 0 && f[ENTRY].entry.size_bytes == 7);
    assert_true(slice_eqs(f[ENTRY].entry.path, "a/file"));
    assert_int_equal(f[NO_ENTRY].rc, E_NOTFOUND);
    assert_int_equal(f[RIGHT].rc, E_NOTFOUND); /* there is no token */
    assert_true(f[BODY].rc == 0 && slice_eqs(f[BODY].bytes, body_text));
    assert_true(f[GATHER].rc == 0 && slice_eqs(f[GATHER].bytes, "made of a blob"));
    assert_int_equal(f[PUT].rc, 0);
    assert_int_equal(f[PUT_LATE].rc, E_CHANGED);
}

static void states_as_drawn(void **state)
{
    static const char *const drawn[] = {
        /* to: new, asking, reading, gathering, body, planned, failed, left */
        ".x.....x", /* new */
        "..xxxxxx", /* asking */
        ".x....xx", /* reading */
        ".x....xx", /* gathering */
        ".x.....x", /* body */
        ".x.....x", /* planned */
        ".x.....x", /* failed */
        ".......x", /* left */
    };

    (void)state;
    assert_states(&plan_run_states, ARRAY_LEN(drawn), drawn);
}

static void every_caller_knows_all_kinds(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[KINDS] = {0};
    struct bench b = {.memory = NULL};
    struct err e = {0};

    bench_open(&b, f, dependency, KINDS);
    all_kinds(dependency, f->s, "put/request");
    bench_run(&b, "x");
    request(&b);
    assert_true(b.planned);
    assert_all_known(&b, "a body");
    assert_true(row_is(f->s, "put/request", "first"));
    loop_call(loops_at(b.loops, 0), fini, &b);

    all_kinds(dependency, f->s, "put/thread");
    bench_run(&b, "x");
    assert_int_equal(plan_run_wait(&b.run, NULL, &e), 0);
    arena_reset(&b.arena); /* facts outlive the plan that asked for them */
    assert_all_known(&b, "");
    assert_true(row_is(f->s, "put/thread", "first"));
    b.script.asked = 0;
    assert_int_equal(plan_run_wait(&b.run, NULL, &e), 0);
    assert_int_equal(b.script.asked, 1);
    plan_run_fini(&b.run);
    assert_int_equal(b.script.gathered, 1); /* what the request gathered is still there */
    bench_close(&b);
}

static void what_is_here_alone(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[KINDS], only[2] = {0};
    struct bench b = {.memory = NULL};
    struct err e = {0};

    bench_open(&b, f, only, 2);
    all_kinds(dependency, f->s, "put/never");
    for (size_t i = 0; i < 2; i++) {
        only[0] = dependency[ROW];
        only[1] = dependency[i == 0 ? GATHER : PUT];
        bench_run(&b, "x");
        b.run.reads_only = true;
        assert_int_equal(plan_run_wait(&b.run, NULL, &e), E_NOTFOUND);
        assert_int_equal(b.run.results.count, 1);
        plan_run_fini(&b.run);
    }
    assert_int_equal(b.script.gathered, 0);
    assert_false(row_is(f->s, "put/never", "first"));
    bench_close(&b);
}

/* A request is refused; a thread learns that it may be asked again, and that outlives the plan that
 * asked. */
static void a_client_may_hold_no_more(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[KINDS], one = {0};
    struct bench b = {.memory = body_memory_open(1)};
    struct err e = {0};

    bench_open(&b, f, &one, 1);
    all_kinds(dependency, f->s, "put/memory");
    one = dependency[GATHER];
    bench_run(&b, "x");
    request(&b);
    assert_true(!b.planned && b.refused == E_TOOBIG && b.run.state == PLAN_RUN_FAILED);
    loop_call(loops_at(b.loops, 0), fini, &b);

    bench_run(&b, "x");
    assert_int_equal(plan_run_wait(&b.run, NULL, &e), 0);
    arena_reset(&b.arena);
    assert_int_equal(b.run.results.count, 1);
    assert_int_equal(b.run.results.result[0].rc, E_BUSY);
    assert_true(slice_eqs(b.run.results.result[0].dependency.key, "what"));
    plan_run_fini(&b.run);
    assert_int_equal(b.script.gathered, 0);
    bench_close(&b);
}

static void a_plan_ends(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[RESULTS_MAX + 1];
    struct bench b = {.memory = NULL};
    struct err e = {0};

    for (size_t i = 0; i < ARRAY_LEN(dependency); i++) {
        dependency[i] = (struct dependency){
            .kind = DEPENDENCY_ROW, .table = TABLE_ORIGIN, .key = SLICE("none")};
    }
    bench_open(&b, f, dependency, RESULTS_MAX + 1);
    bench_run(&b, "x");
    request(&b);
    assert_int_equal(b.refused, E_INTERNAL);
    loop_call(loops_at(b.loops, 0), fini, &b);
    bench_run(&b, "x");
    assert_int_equal(plan_run_wait(&b.run, NULL, &e), E_INTERNAL);
    assert_int_equal(b.run.state, PLAN_RUN_FAILED);
    plan_run_fini(&b.run);

    bench_run(&b, "bad");
    request(&b);
    assert_int_equal(b.refused, E_INVALID);
    loop_call(loops_at(b.loops, 0), fini, &b);

    bench_run(&b, "x"); /* nothing is read for who may not ask */
    b.refuse = true;
    request(&b);
    assert_true(!b.planned && b.refused == 0 && b.run.results.count == 0);
    loop_call(loops_at(b.loops, 0), fini, &b);
    bench_close(&b);
}

/* Its client leaves while rows are read, or a document: no event comes any more. */
static void a_client_leaves(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[KINDS], one = {0};
    struct bench b = {.memory = NULL};

    bench_open(&b, f, &one, 1);
    all_kinds(dependency, f->s, "put/leave");
    for (size_t i = 0; i < 2; i++) {
        one = dependency[i == 0 ? ROW : GATHER];
        b.script.held = true;
        bench_run(&b, "x");
        loop_call(loops_at(b.loops, 0), start, &b);
        loop_call(loops_at(b.loops, 0), leave, &b);
        b.script.held = false;
        loop_call(loops_at(b.loops, 0), fini, &b);
        if (i == 0 && b.over) { /* the row had come before */
            continue;
        }
        assert_false(b.over);
        assert_int_equal(b.run.state, PLAN_RUN_LEFT);
    }
    bench_close(&b);
    assert_false(b.planned && b.script.gathered > 1);
}

static void a_thread_is_stopped(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[KINDS], one = {0};
    _Atomic bool stop = true;
    struct bench b = {.memory = NULL};
    struct err e = {0};

    bench_open(&b, f, &one, 1);
    all_kinds(dependency, f->s, "put/stop");
    one = dependency[GATHER];
    b.script.held = true;
    bench_run(&b, "x");
    assert_int_equal(plan_run_wait(&b.run, &stop, &e), E_CANCELLED);
    assert_int_equal(b.run.results.count, 0);
    b.script.held = false;
    stop = false;
    assert_int_equal(plan_run_wait(&b.run, &stop, &e), 0); /* asked anew */
    assert_int_equal(b.run.results.count, 1);
    plan_run_fini(&b.run);
    bench_close(&b);
}

static void forget_all(struct loop *l, void *arg)
{
    struct bench *b = arg;

    (void)l;
    planner_forget(planners_at(b->planners, 0), SLICE("r"), SLICE("blob"));
}

static void what_was_gathered_is_kept(void **state)
{
    struct fixture *f = *state;
    struct dependency dependency[KINDS], one = {0};
    struct bench b = {.memory = NULL};
    struct err e = {0};

    bench_open(&b, f, &one, 1);
    all_kinds(dependency, f->s, "put/keep");
    one = dependency[GATHER];
    for (unsigned i = 0; i < 4; i++) {
        bench_run(&b, "x");
        assert_int_equal(plan_run_wait(&b.run, NULL, &e), 0);
        plan_run_fini(&b.run);
        assert_int_equal(b.script.gathered, i / 2 + 1);
        if (i == 1) {
            loop_call(loops_at(b.loops, 0), forget_all, &b);
        }
    }
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_as_drawn),
        cmocka_unit_test_setup_teardown(every_caller_knows_all_kinds, fixture_setup,
                                        fixture_teardown),
        cmocka_unit_test_setup_teardown(what_is_here_alone, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_client_may_hold_no_more, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_plan_ends, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_client_leaves, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_thread_is_stopped, fixture_setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(what_was_gathered_is_kept, fixture_setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
