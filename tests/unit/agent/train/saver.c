/* Ranks as threads that save together: killed at any instant, one of them unable to write, files
 * damaged or missing. */
#include "agent/train/saver.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/os/newfile.h"
#include "tests/unit/agent/train/team.h"

enum { RANKS = 3, FOREVER = 1 << 30, KILLS = 25 };
enum { THIS_ATTEMPT = 1, NEXT_ATTEMPT };

static char dir[32];
static const char *no_rename_to; /* the end of a path */
static atomic_int renames_refused;

/* Instead of the system's. */
int rename(const char *from, const char *to)
{
    int (*real)(const char *, const char *);

    if (no_rename_to != NULL && strstr(from, ".1.partial") != NULL &&
        slice_ends(slice_str(to), slice_str(no_rename_to))) {
        atomic_fetch_add(&renames_refused, 1);
        errno = EIO;
        return -1;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "rename");
    return real(from, to);
}

static int begin(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/saver-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int end(void **state)
{
    (void)state;
    return dir_remove_tree(dir, NULL);
}

/* --- ranks that save, and save again ---------------------------------------------------------- */

struct saving {
    int ranks;
    int zero;
    int64_t first, last; /* steps */
    int unable;          /* which rank cannot write at step `first`; -1: none */
    bool outlived;       /* at step `first`, the next attempt begins before these ranks write */
};

struct rank_run {
    struct member comm; /* first: the comm is the run */
    const struct saving *how;
    pthread_t thread;
    int failed;         /* of the last save: what saver_wait() says */
    atomic_bool writes; /* as watchdog_writes() says */
    int copied_unsaid;  /* how often it gathered for a copy while that was false */
};

/* Instead of watchdog.c's, which is not linked. */
void watchdog_writes(struct watchdog *w, bool writes)
{
    atomic_store(&((struct rank_run *)(void *)w)->writes, writes);
}

bool watchdog_waits(struct watchdog *w)
{
    (void)w;
    return false;
}

static int gather_for_a_copy(struct comm *c, struct kstream *ks, enum dtype dt, const void *src,
                             void *dst, int64_t n)
{
    struct rank_run *r = (struct rank_run *)c;

    r->copied_unsaid += !atomic_load(&r->writes);
    return team_allgather(c, ks, dt, src, dst, n);
}

/* Every tensor says of which step it is. */
static void mark(struct model *m, struct optim *o, int64_t step)
{
    const struct {
        char *set;
        struct partition held;
        float value;
    } set[] = {{m->master, m->master_held, (float)step},
               {o->m, m->state_held, (float)step + 0.25F},
               {o->v, m->state_held, (float)step + 0.5F}};

    for (size_t s = 0; s < ARRAY_LEN(set); s++) {
        for (int64_t i = 0; i < partition_size(&m->layout, set[s].held); i++) {
            ((float *)(void *)set[s].set)[i] = set[s].value;
        }
    }
}

static void open_model(int ranks, int rank, int zero, struct comm *c, struct model **m,
                       struct optim **o)
{
    static const struct optim_options oo = {.schedule = {.lr = 0.01, .steps = 1}, .eps = 1e-8};
    const struct model_options mo = {.dt = DT_F32,
                                     .world = ranks,
                                     .rank = rank,
                                     .comm = c,
                                     .zero = zero,
                                     .passes = 1,
                                     .training = true};
    struct model_config shape;

    CHECK(config_builtin("tiny-llama", &shape, NULL) == 0);
    CHECK(model_open(&shape, kops_cpu(), &mo, m, NULL) == 0);
    CHECK(model_reserve(*m, 1, 4, NULL) == 0);
    CHECK(optim_open(*m, &oo, o, NULL) == 0);
}

static void *run_rank(void *arg)
{
    struct rank_run *r = arg;
    const struct saving *how = r->how;
    const struct companions none = {0};
    const struct saver_options so = {.out = dir,
                                     .attempt = THIS_ATTEMPT,
                                     .keep = 2,
                                     .comm = &r->comm.base,
                                     .companions = &none,
                                     .least_bytes = 1};
    struct saver_report sum;
    struct saver *s;
    struct model *m;
    struct optim *o;

    open_model(how->ranks, r->comm.base.rank, how->zero, &r->comm.base, &m, &o);
    CHECK(saver_open(&so, m, o, &s, NULL) == 0);
    saver_watch(s, (struct watchdog *)(void *)r);
    for (int64_t step = how->first; step <= how->last; step++) {
        const struct train_state state = {.step = step, .dtype = "f32", .scaler = {.scale = 1}};

        mark(m, o, step);
        CHECK(saver_save(s, &state, NULL) == 0);
        mark(m, o, -1); /* learning goes on */
        do {
            sum = saver_tell(s, 10);
            CHECK(comm_allreduce(&r->comm.base, m->ks, DT_F64, &sum, 2) == 0);
        } while (saver_settle(s, &sum));
        r->failed = saver_wait(s, NULL);
    }
    saver_close(&s);
    optim_close(&o);
    model_close(&m);
    return NULL;
}

/* The folder of the checkpoint is there now: another one comes to be in the place of this rank's
 * own file. */
static int barrier_of_the_unable(struct comm *c, struct kstream *ks)
{
    const struct rank_run *r = (const struct rank_run *)c;
    char path[PATH_MAX];
    int rc = team_barrier(c, ks);

    snprintf(path, sizeof path,
             "%s/checkpoint-%lld.%d.partial/optimizer-%05d-of-%05d.safetensors/x", dir,
             (long long)r->how->first, THIS_ATTEMPT, c->rank + 1, c->size);
    CHECK(dir_make(path, 0755, NULL) == 0);
    return rc;
}

/* The ranks stand still where they are about to write, and the next attempt comes to the same
 * step. */
static int barrier_of_the_outlived(struct comm *c, struct kstream *ks)
{
    const struct rank_run *r = (const struct rank_run *)c;
    const struct checkpoint next = {.state.step = r->how->first, .attempt = NEXT_ATTEMPT};
    int rc = team_barrier(c, ks);

    if (c->rank == 0) {
        CHECK(checkpoint_prune(dir, &next, false, 0, 0, NULL) == 0);
        CHECK(checkpoint_begin(dir, &next, NULL) == 0);
    }
    return rc != 0 ? rc : team_barrier(c, ks);
}

static void save(const struct saving *how, int failed[MOST_RANKS])
{
    struct rank_run *run = mem_array(MOST_RANKS, sizeof *run);
    struct team team;

    team_init(&team, how->ranks);
    for (int r = 0; r < how->ranks; r++) {
        run[r].how = how;
        run[r].comm = member_open(&team, r, how->ranks);
        run[r].comm.base.post_allgather = gather_for_a_copy;
        if (r == how->unable) {
            run[r].comm.base.post_barrier = barrier_of_the_unable;
        }
        if (how->outlived) {
            run[r].comm.base.post_barrier = barrier_of_the_outlived;
        }
        CHECK(pthread_create(&run[r].thread, NULL, run_rank, &run[r]) == 0);
    }
    for (int r = 0; r < how->ranks; r++) {
        pthread_join(run[r].thread, NULL);
        failed[r] = run[r].failed;
        CHECK(run[r].copied_unsaid == 0 && !run[r].writes);
        member_close(&run[r].comm);
    }
    team_fini(&team);
    free(run);
}

/* --- what is found afterwards ----------------------------------------------------------------- */

static char *path_in(const char *name, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/%s", dir, name);
    return out;
}

static bool all_are(const struct model *m, const char *set, float value)
{
    for (int i = 0; i < m->layout.hubs; i++) {
        const struct hub_tensor *h = &m->layout.hub[i];
        int64_t base = m->layout.tensor[h->tensor].offset + h->first_row * h->cols;

        for (int64_t j = 0; j < h->rows * h->cols; j++) {
            if (((const float *)(const void *)set)[base + j] != value) {
                return false;
            }
        }
    }
    return true;
}

/* Whole, and of one step. */
static void expect_of_step(int64_t step)
{
    char path[PATH_MAX], name[64];
    struct train_state state;
    struct model *m;
    struct optim *o;

    snprintf(name, sizeof name, "checkpoint-%lld", (long long)step);
    path_in(name, path);
    assert_int_equal(checkpoint_verify(path, NULL), 0);
    assert_int_equal(checkpoint_check(path, NULL), 0);
    assert_int_equal(checkpoint_state(path, &state, NULL), 0);
    assert_int_equal(state.step, step);
    open_model(1, 0, 0, NULL, &m, &o);
    assert_int_equal(checkpoint_load(path, m, o, NULL), 0);
    assert_true(all_are(m, m->master, (float)step));
    assert_true(all_are(m, o->m, (float)step + 0.25F));
    assert_true(all_are(m, o->v, (float)step + 0.5F));
    optim_close(&o);
    model_close(&m);
}

static int64_t newest(void)
{
    int64_t step;

    assert_int_equal(checkpoint_newest_below(dir, INT64_MAX, &step, NULL), 0);
    assert_int_equal(step, checkpoint_last_step(dir)); /* what has the name is whole */
    return step;
}

/* --- tests ------------------------------------------------------------------------------------ */

static bool is_there(int64_t step, int attempt)
{
    char path[PATH_MAX], name[64];

    snprintf(name, sizeof name, "checkpoint-%lld.%d.partial", (long long)step, attempt);
    return access(path_in(name, path), F_OK) == 0;
}

/* A process that saves without end, and is killed some time after it has begun to. */
static void kill_while_saving(int64_t after, int zero, useconds_t delay_us)
{
    pid_t child = fork();
    int status;

    assert_true(child != -1);
    if (child == 0) {
        const struct saving how = {RANKS, zero, after + 1, FOREVER, -1, false};
        int failed[MOST_RANKS];

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        save(&how, failed);
        _exit(1);
    }
    while (!is_there(after + 1, THIS_ATTEMPT) && checkpoint_last_step(dir) == after &&
           waitpid(child, &status, WNOHANG) == 0) {
        usleep(200);
    }
    usleep(delay_us);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* KILLS=200 in the environment for more of them. */
static void test_killed_at_any_instant(void **state)
{
    const char *text = getenv("KILLS");
    const struct saving one = {RANKS, 3, 1, 1, -1, false};
    int failed[MOST_RANKS], kills = text != NULL && atoi(text) > 0 ? atoi(text) : KILLS;

    (void)state;
    save(&one, failed);
    for (int i = 0; i < kills; i++) {
        int64_t step = newest();

        kill_while_saving(step, i % 4, (useconds_t)(i * 7919 % 60000));
        assert_true(newest() >= step);
        expect_of_step(newest());
    }
    const struct saving next = {2, 1, newest() + 1, newest() + 1, -1, false};
    save(&next, failed); /* sweeps what the last one left */
    expect_of_step(next.first);
    assert_int_equal(
        checkpoint_prune(dir, &(struct checkpoint){.attempt = THIS_ATTEMPT}, false, 0, 0, NULL), 0);
    assert_false(is_there(next.first, THIS_ATTEMPT));
}

static void test_a_rank_that_cannot_write(void **state)
{
    const struct saving before = {RANKS, 2, 4, 4, -1, false}, bad = {RANKS, 2, 5, 5, 1, false},
                        after = {RANKS, 2, 6, 6, -1, false};
    int failed[MOST_RANKS];

    (void)state;
    save(&before, failed);
    save(&bad, failed);
    assert_true(failed[0] == 0 && failed[1] != 0 && failed[2] == 0);
    assert_int_equal(newest(), 4);
    assert_false(is_there(5, THIS_ATTEMPT));
    save(&after, failed);
    assert_true(failed[0] == 0 && failed[1] == 0 && failed[2] == 0);
    expect_of_step(6);
    expect_of_step(4);
}

/* The one before is there until the new one has its name. */
static void test_a_checkpoint_in_the_place_of_another(void **state)
{
    const struct saving one = {RANKS, 3, 5, 5, -1, false};
    char path[PATH_MAX];
    int failed[MOST_RANKS];

    (void)state;
    save(&one, failed);
    assert_int_equal(dir_make(path_in("checkpoint-5/of-the-first", path), 0755, NULL), 0);
    no_rename_to = "/checkpoint-5";
    save(&one, failed);
    no_rename_to = NULL;
    assert_int_equal(renames_refused, 1);
    assert_true(failed[0] != 0);
    assert_int_equal(access(path_in("checkpoint-5/of-the-first", path), F_OK), 0);
    assert_false(is_there(5, THIS_ATTEMPT));
    assert_int_equal(access(path_in("checkpoint-5.partial", path), F_OK), -1);
    save(&one, failed);
    assert_true(failed[0] == 0);
    assert_int_equal(access(path_in("checkpoint-5/of-the-first", path), F_OK), -1);
    assert_int_equal(access(path_in("checkpoint-5.partial", path), F_OK), -1);
    expect_of_step(5);
}

/* Ranks of an attempt that is over: what they write goes nowhere, least of all into the folder of
 * the one that came after. */
static void test_ranks_that_wake_up_in_another_attempt(void **state)
{
    const struct saving late = {RANKS, 2, 8, 8, -1, true};
    char path[PATH_MAX], name[64];
    int failed[MOST_RANKS];

    (void)state;
    save(&late, failed);
    for (int r = 0; r < RANKS; r++) {
        assert_int_not_equal(failed[r], 0);
    }
    assert_false(is_there(8, THIS_ATTEMPT));
    assert_true(is_there(8, NEXT_ATTEMPT));
    snprintf(name, sizeof name, "checkpoint-8.%d.partial", NEXT_ATTEMPT);
    assert_int_equal(rmdir(path_in(name, path)), 0); /* it is empty */
}

/* Only folders that are named as unfinished checkpoints of this attempt and of earlier ones are
 * removed. */
static void test_folders_of_other_names_are_left_alone(void **state)
{
    static const struct {
        const char *name;
        bool stays;
    } folder[] = {
        {"checkpoint-best.partial", true},      {"checkpoint-7.backup.partial", true},
        {"checkpoint-7.1.old.partial", true},   {"checkpoint-.partial", true},
        {"checkpoint-7..partial", true},        {"checkpoint-7.partial.1", true},
        {"checkpoint-7.1.partial.saved", true}, {"my-checkpoint-7.partial", true},
        {"checkpoint-7.2.partial", true}, /* of a later attempt */
        {"checkpoint-7.1.partial", false},      {"checkpoint-7.0.partial", false},
        {"checkpoint-7.partial", false},
    };
    const struct checkpoint c = {.state.step = 9, .attempt = THIS_ATTEMPT};
    char path[PATH_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(folder); i++) {
        assert_int_equal(dir_make(path_in(folder[i].name, path), 0755, NULL), 0);
    }
    assert_int_equal(checkpoint_prune(dir, &c, true, 0, 0, NULL), 0);
    for (size_t i = 0; i < ARRAY_LEN(folder); i++) {
        if ((access(path_in(folder[i].name, path), F_OK) == 0) != folder[i].stays) {
            fail_msg("%s %s", folder[i].name, folder[i].stays ? "was removed" : "was left");
        }
    }
}

static int64_t count(const char *set, int64_t n, float value)
{
    int64_t found = 0;

    for (int64_t i = 0; i < n; i++) {
        found += ((const float *)(const void *)set)[i] == value;
    }
    return found;
}

/* What a rank alone wrote, and what a trainer of before did: without chunk lists. */
static void test_whole_tensors_are_read_by_many(void **state)
{
    const struct saving alone = {1, 0, 7, 7, -1, false};
    static const char *const lists[] = {"model.safetensors.chunks", "optimizer.safetensors.chunks"};
    struct buf manifest = BUF_INIT(1 << 16), old = BUF_INIT(1 << 16);
    char path[PATH_MAX];
    int failed[MOST_RANKS];
    struct slice rest;
    struct model *m;
    struct optim *o;
    FILE *f;

    (void)state;
    save(&alone, failed);
    for (int times = 0; times < 2; times++) {
        int64_t loaded = 0, wanted = 0;

        for (int rank = 0; rank < RANKS; rank++) {
            open_model(RANKS, rank, 3, &(struct comm){.size = RANKS, .rank = rank}, &m, &o);
            assert_int_equal(checkpoint_load(path_in("checkpoint-7", path), m, o, NULL), 0);
            loaded += count(m->master, partition_size(&m->layout, m->master_held), 7);
            loaded += count(o->v, partition_size(&m->layout, m->state_held), 7.5F);
            wanted = 2 * m->layout.parameters;
            optim_close(&o);
            model_close(&m);
        }
        assert_int_equal(loaded, wanted);
        if (times == 0) {
            assert_int_equal(
                buf_read_file(&manifest, path_in("checkpoint-7/manifest.sha256", path), NULL), 0);
            for (rest = buf_slice(&manifest); rest.n > 0;) {
                struct slice line = slice_cut(&rest, '\n');

                if (!slice_ends(line, SLICE(".chunks"))) {
                    buf_addf(&old, SLICE_FMT "\n", SLICE_ARG(line));
                }
            }
            f = fopen(path, "we");
            assert_non_null(f);
            assert_int_equal(fwrite(old.p, 1, old.n, f), old.n);
            fclose(f);
            for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
                char name[64];

                snprintf(name, sizeof name, "checkpoint-7/%s", lists[i]);
                assert_int_equal(unlink(path_in(name, path)), 0);
            }
            expect_of_step(7);
        }
    }
    buf_free(&manifest);
    buf_free(&old);
}

enum harm { FLIPPED, CUT, GONE };

/* Changes a file of checkpoint-1 after a copy of it was made; its name is in what
 * checkpoint_check() or, where that does not look at the bytes, checkpoint_load() says. */
static void expect_found(const char *name, enum harm harm, bool by_check)
{
    struct buf whole = BUF_INIT(1 << 24);
    char path[PATH_MAX], in[128];
    struct model *m;
    struct optim *o;
    struct err e = {0};
    FILE *f;
    int rc;

    snprintf(in, sizeof in, "checkpoint-1/%s", name);
    path_in(in, path);
    assert_int_equal(buf_read_file(&whole, path, NULL), 0);
    assert_int_equal(unlink(path), 0);
    if (harm != GONE) {
        f = fopen(path, "we");
        assert_non_null(f);
        whole.p[whole.n / 2] ^= 1;
        assert_int_equal(fwrite(whole.p, 1, whole.n - (harm == CUT), f), whole.n - (harm == CUT));
        fclose(f);
        whole.p[whole.n / 2] ^= 1;
    }
    rc = checkpoint_check(path_in("checkpoint-1", path), &e);
    assert_int_equal(rc != 0, by_check);
    if (!by_check) {
        open_model(1, 0, 0, NULL, &m, &o);
        rc = checkpoint_load(path, m, o, &e);
        optim_close(&o);
        model_close(&m);
    }
    assert_true(rc == E_CORRUPT || rc == E_NOTFOUND);
    assert_non_null(strstr(e.text, name));
    f = fopen(path_in(in, path), "we");
    assert_non_null(f);
    assert_int_equal(fwrite(whole.p, 1, whole.n, f), whole.n);
    fclose(f);
    buf_free(&whole);
    expect_of_step(1);
}

static void test_damage_is_found(void **state)
{
    const struct saving one = {RANKS, 3, 1, 1, -1, false};
    int failed[MOST_RANKS];

    (void)state;
    save(&one, failed);
    expect_found("optimizer-00002-of-00003.safetensors", FLIPPED, false);
    expect_found("model-00003-of-00003.safetensors", FLIPPED, false);
    expect_found("optimizer-00003-of-00003.safetensors", GONE, true);
    expect_found("optimizer-00001-of-00003.safetensors", CUT, true);
    expect_found("model-00001-of-00003.safetensors", GONE, true);
    expect_found("optimizer-00002-of-00003.safetensors.chunks", FLIPPED, true);
    expect_found("optimizer-00002-of-00003.safetensors.chunks", GONE, true);
    expect_found("model.safetensors.index.json", FLIPPED, true);
    expect_found("trainer.json", FLIPPED, true);
    expect_found("config.json", GONE, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_rank_that_cannot_write, begin, end),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_in_the_place_of_another, begin, end),
        cmocka_unit_test_setup_teardown(test_ranks_that_wake_up_in_another_attempt, begin, end),
        cmocka_unit_test_setup_teardown(test_folders_of_other_names_are_left_alone, begin, end),
        cmocka_unit_test_setup_teardown(test_whole_tensors_are_read_by_many, begin, end),
        cmocka_unit_test_setup_teardown(test_damage_is_found, begin, end),
        cmocka_unit_test_setup_teardown(test_killed_at_any_instant, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
