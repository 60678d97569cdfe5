/* Each rank is a process of its own, for the watchdog ends it; they share memory in place of a
 * network. */
#include "agent/train/watchdog.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/train/rollcall.h"

enum { RANKS = 3, ELEMENTS = 256 };

/* A sum is complete when all have added theirs. One is under way at a time. */
struct shared {
    atomic_int came, left;
    _Atomic double sum[ELEMENTS];
    atomic_bool failing, written;
};

static struct shared *shared;
/* Short where a timeout is the subject: never where something else must come before it. */
enum { SHORT_MS = 3000, LONG_MS = 600000 };
static uint64_t timeout_ms;
static char folder[] = "/tmp/watchdog.XXXXXX";
static char errors[128] = "/dev/null"; /* where ranks write to */

static void add_up(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double old = atomic_load(&shared->sum[i]);
        while (!atomic_compare_exchange_weak(&shared->sum[i], &old, old + x[i])) {
        }
    }
}

static void meet(atomic_int *at)
{
    int turn = atomic_fetch_add(at, 1) / RANKS;

    while (atomic_load(at) < (turn + 1) * RANKS) {
        poll(NULL, 0, 1);
    }
}

static int shm_allreduce(struct comm *c, struct kstream *ks, enum dtype dt, void *buf, int64_t n)
{
    double *x = buf;

    (void)ks;
    assert_true(dt == DT_F64 && n <= ELEMENTS);
    add_up(x, n);
    meet(&shared->came);
    for (int64_t i = 0; i < n; i++) {
        x[i] = atomic_load(&shared->sum[i]);
    }
    meet(&shared->left);
    if (c->rank == 0) {
        memset(shared->sum, 0, sizeof shared->sum);
    }
    return 0;
}

static int shm_barrier(struct comm *c, struct kstream *ks)
{
    (void)c;
    (void)ks;
    meet(&shared->came);
    return 0;
}

static void never_returns(struct comm *c)
{
    (void)c;
    while (true) {
        pause();
    }
}

/* What one rank does; its process's exit code is 99 when it comes back. */
typedef void scenario(struct watchdog *w, struct comm *c);

static void run_rank(int rank, int world, scenario *play)
{
    struct comm c = {.name = "shm",
                     .rank = rank,
                     .size = world,
                     .facts = "a \"test\"",
                     .flight = flight_open(),
                     .post_allreduce = shm_allreduce,
                     .post_barrier = shm_barrier};
    const struct watchdog_options o = {
        .comm = &c, .k = kops_cpu(), .out = folder, .timeout_ms = timeout_ms};
    struct watchdog *w = NULL;
    int quiet = open(errors, O_WRONLY | O_CREAT | O_APPEND, 0644);

    dup2(quiet, STDERR_FILENO);
    if (watchdog_open(&o, &w, NULL) != 0) {
        _exit(98);
    }
    if (world > 1) {
        comm_barrier(&c, NULL); /* all have connected */
    }
    watchdog_patience(w, false);
    play(w, &c);
    _exit(99);
}

static void run_ranks(int world, scenario *const play[], int exit_code[])
{
    pid_t pid[RANKS];

    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < world; i++) {
        pid[i] = fork();
        if (pid[i] == 0) {
            run_rank(i, world, play[i]);
        }
    }
    for (int i = 0; i < world; i++) {
        int status;

        assert_int_equal(waitpid(pid[i], &status, 0), pid[i]);
        exit_code[i] = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }
}

static char *record_of(int rank)
{
    static char text[1 << 16];
    char path[128];
    int fd;
    ssize_t n;

    snprintf(path, sizeof path, "%s/flight-%d.json", folder, rank);
    fd = open(path, O_RDONLY);
    assert_true(fd != -1);
    n = read(fd, text, sizeof text - 1);
    close(fd);
    unlink(path);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static void assert_record(int rank, const char *says)
{
    char *text = record_of(rank);

    if (strstr(text, says) == NULL) {
        fail_msg("%s: not in %s", says, text);
    }
}

/* --- what ranks do ---------------------------------------------------------------------------- */

static void ends_well(struct watchdog *w, struct comm *c)
{
    comm_barrier(c, NULL);
    watchdog_close(&w);
    _exit(0);
}

static void leaves_at_once(struct watchdog *w, struct comm *c)
{
    (void)c;
    watchdog_close(&w);
    _exit(0);
}

static void waits_in_barrier(struct watchdog *w, struct comm *c)
{
    (void)w;
    comm_barrier(c, NULL);
}

static void sums_three(struct watchdog *w, struct comm *c)
{
    (void)w;
    flight_post(c->flight, FLIGHT_ALLREDUCE, DT_F64, 3, "shm"); /* and it never ends */
    never_returns(c);
}

static void does_something_else(struct watchdog *w, struct comm *c)
{
    (void)w;
    while (true) {
        flight_beat(c->flight);
        poll(NULL, 0, 100);
    }
}

static void does_nothing(struct watchdog *w, struct comm *c)
{
    (void)w;
    never_returns(c);
}

static void hashes(struct watchdog *w, struct comm *c)
{
    struct timespec began, now;

    (void)c;
    watchdog_host_work(w, true);
    clock_gettime(CLOCK_MONOTONIC, &began);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - began.tv_sec < 3 * SHORT_MS / 1000);
    watchdog_host_work(w, false);
    watchdog_close(&w);
    _exit(0);
}

static void hangs_in_host_work(struct watchdog *w, struct comm *c)
{
    watchdog_host_work(w, true);
    never_returns(c);
}

static void dies(struct watchdog *w, struct comm *c)
{
    (void)w;
    (void)c;
    raise(SIGKILL);
}

static void has_bad_data(struct watchdog *w, struct comm *c)
{
    (void)c;
    watchdog_fail(w, E_INVALID, "data.bin: damaged");
}

static void fails_while_rank_0_writes(struct watchdog *w, struct comm *c)
{
    (void)c;
    while (!atomic_load(&shared->failing)) {
        poll(NULL, 0, 10);
    }
    watchdog_fail(w, E_INVALID, "data.bin: damaged");
}

static void writes_a_checkpoint(struct watchdog *w, struct comm *c)
{
    watchdog_writes(w, true);
    atomic_store(&shared->failing, true);
    poll(NULL, 0, 10000); /* longer than ranks wait for one that is silent */
    atomic_store(&shared->written, true);
    watchdog_writes(w, false);
    never_returns(c);
}

static void *finishes_writing(void *arg)
{
    poll(NULL, 0, 10000); /* longer than the others wait in their collective */
    atomic_store(&shared->written, true);
    watchdog_writes(arg, false);
    return NULL;
}

static void errs_while_it_writes(struct watchdog *w, struct comm *c)
{
    pthread_t writer;

    (void)c;
    watchdog_writes(w, true);
    assert_int_equal(pthread_create(&writer, NULL, finishes_writing, w), 0);
    watchdog_fail(w, E_INVALID, "data.bin: damaged");
}

static void has_a_sick_gpu(struct watchdog *w, struct comm *c)
{
    (void)c;
    watchdog_fail(w, E_CUDA, "cudaErrorIllegalAddress");
}

static void has_broken_memory(struct watchdog *w, struct comm *c)
{
    (void)c;
    watchdog_fail(w, E_SICK, "cudaErrorECCUncorrectable");
}

static void cannot_abort(struct watchdog *w, struct comm *c)
{
    c->abort = never_returns;
    has_a_sick_gpu(w, c);
}

/* --- tests ------------------------------------------------------------------------------------ */

static void test_good_order(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    run_ranks(3, (scenario *[]){ends_well, ends_well, ends_well}, code);
    assert_true(code[0] == 0 && code[1] == 0 && code[2] == 0);
}

/* Records are of this attempt; those of the one before stay for whoever looks into it. */
static void test_a_record_of_an_earlier_attempt_is_put_aside(void **state)
{
    char path[128], old[128];
    int fd, code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    snprintf(path, sizeof path, "%s/flight-0.json", folder);
    snprintf(old, sizeof old, "%s.old", path);
    fd = open(path, O_WRONLY | O_CREAT, 0644);
    close(fd);
    run_ranks(1, (scenario *[]){leaves_at_once}, code);
    assert_int_equal(code[0], 0);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(unlink(old), 0);
}

static void test_a_rank_that_does_not_come(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = SHORT_MS;
    for (int late = 0; late < 3; late++) {
        scenario *play[] = {waits_in_barrier, waits_in_barrier, waits_in_barrier};
        char says[80];

        play[late] = does_something_else;
        run_ranks(3, play, code);
        assert_true(code[0] == 75 && code[1] == 75 && code[2] == 75);
        snprintf(says, sizeof says, "\"why\": \"rank %d has not reached barrier 3 (", late);
        assert_record(0, says);
        assert_record(1, says);
        snprintf(says, sizeof says, "\"exit\": 75, \"suspects\": [%d], ", late);
        assert_record(2, says);
    }
}

static void test_a_rank_whose_main_thread_hangs(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = SHORT_MS;
    run_ranks(1, (scenario *[]){does_nothing}, code);
    assert_int_equal(code[0], 75);
    assert_record(0, "\"why\": \"the main thread of rank 0 has done nothing for ");
}

static void test_long_work_of_the_host(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = SHORT_MS;
    run_ranks(1, (scenario *[]){hashes}, code);
    assert_int_equal(code[0], 0);
    run_ranks(1, (scenario *[]){hangs_in_host_work}, code);
    assert_int_equal(code[0], 75);
    assert_record(0, "\"why\": \"the main thread of rank 0 has done nothing for ");
}

static void test_a_rank_that_dies(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    run_ranks(3, (scenario *[]){waits_in_barrier, dies, waits_in_barrier}, code);
    assert_true(code[0] == 75 && code[1] == -SIGKILL && code[2] == 75);
    assert_record(0, "\"why\": \"rank 1 has died\", \"exit\": 75, \"suspects\": [1]");
    assert_record(2, "\"why\": \"rank 1 has died\", \"exit\": 75, \"suspects\": [1]");
    run_ranks(3, (scenario *[]){dies, waits_in_barrier, waits_in_barrier}, code);
    assert_true(code[0] == -SIGKILL && code[1] == 75 && code[2] == 75);
    assert_record(1, "\"why\": \"rank 0 has died\", \"exit\": 75, \"suspects\": [0]");
    assert_record(2, "\"suspects\": [0]");
}

/* One rank's own error is the end of all, with the same exit code: who starts them again must see
 * that it is final. */
static void test_an_error_that_is_final(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    run_ranks(3, (scenario *[]){waits_in_barrier, waits_in_barrier, has_bad_data}, code);
    assert_true(code[0] == 65 && code[1] == 65 && code[2] == 65);
    run_ranks(3, (scenario *[]){has_bad_data, waits_in_barrier, waits_in_barrier}, code);
    assert_true(code[0] == 65 && code[1] == 65 &&
                code[2] == 65); /* no riddle, so no record: see remove_folder() */
}

static void test_a_checkpoint_under_way_is_written_first(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    run_ranks(3, (scenario *[]){writes_a_checkpoint, waits_in_barrier, fails_while_rank_0_writes},
              code);
    assert_true(atomic_load(&shared->written));
    assert_true(code[0] == 65 && code[1] == 65 && code[2] == 65);
    timeout_ms = 2 * SHORT_MS;
    run_ranks(3, (scenario *[]){errs_while_it_writes, waits_in_barrier, waits_in_barrier}, code);
    assert_true(atomic_load(&shared->written));
    assert_true(code[0] == 65 && code[1] == 65 && code[2] == 65);
}

static void test_an_error_that_passes(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    run_ranks(3, (scenario *[]){waits_in_barrier, has_a_sick_gpu, waits_in_barrier}, code);
    assert_true(code[0] == 75 && code[1] == 75 && code[2] == 75);
    assert_record(0,
                  "\"why\": \"cudaErrorIllegalAddress (rank 1)\", \"exit\": 75, \"suspects\": [1]");
    assert_record(1,
                  "\"why\": \"cudaErrorIllegalAddress (rank 1)\", \"exit\": 75, \"suspects\": [1]");
    assert_record(2,
                  "\"why\": \"cudaErrorIllegalAddress (rank 1)\", \"exit\": 75, \"suspects\": [1]");
}

/* Its node is of no more use to the run, the others are. */
static void test_a_gpu_that_is_broken(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    for (int broken = 0; broken < 2; broken++) {
        scenario *play[] = {waits_in_barrier, waits_in_barrier, waits_in_barrier};
        char says[120];

        play[broken] = has_broken_memory;
        run_ranks(3, play, code);
        for (int i = 0; i < 3; i++) {
            assert_int_equal(code[i], i == broken ? 71 : 75);
            snprintf(
                says, sizeof says,
                "\"why\": \"cudaErrorECCUncorrectable (rank %d)\", \"exit\": %d, \"suspects\": "
                "[%d]",
                broken, code[i], broken);
            assert_record(i, says);
        }
    }
}

static void test_an_abort_that_hangs(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = LONG_MS;
    run_ranks(1, (scenario *[]){cannot_abort}, code);
    assert_int_equal(code[0], 75);
    assert_record(0, "\"facts\": \"a \\\"test\\\"\"}\n");
}

static void test_ranks_that_call_different_collectives(void **state)
{
    int code[RANKS];

    (void)state;
    timeout_ms = SHORT_MS;
    run_ranks(3, (scenario *[]){waits_in_barrier, waits_in_barrier, sums_three}, code);
    assert_true(code[0] == 70 && code[1] == 70 && code[2] == 70);
    assert_record(
        0,
        "\"why\": \"collective 3 is barrier (f32, 0) on rank 0 and allreduce (f64, 3) on rank 2");
    record_of(1);
    record_of(2);
}

/* A file system that hangs may be the fault itself: a FIFO that nobody reads stands for it. */
static void test_the_verdict_is_said_before_anything_is_written(void **state)
{
    char fifo[128], said[1024] = "";
    int fd = -1, status;
    pid_t pid, ended = 0;

    (void)state;
    timeout_ms = LONG_MS;
    snprintf(fifo, sizeof fifo, "%s/flight-0.json.part", folder);
    snprintf(errors, sizeof errors, "%s/said", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    memset(shared, 0, sizeof *shared);
    pid = fork();
    if (pid == 0) {
        run_rank(0, 1, has_a_sick_gpu);
    }
    while (ended == 0 && strstr(said, "trainer: cudaErrorIllegalAddress") == NULL) {
        poll(NULL, 0, 10);
        ended = waitpid(pid, &status, WNOHANG);
        fd = fd != -1 ? fd : open(errors, O_RDONLY);
        (void)!pread(fd, said, sizeof said - 1, 0);
    }
    assert_int_equal(ended, 0);
    close(fd);
    fd = open(fifo, O_RDONLY); /* the file system goes on */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 75);
    close(fd);
    fd = open(errors, O_RDONLY);
    (void)!pread(fd, said, sizeof said - 1, 0);
    close(fd);
    assert_non_null(strstr(said, "trainer: flight record: "));
    snprintf(fifo, sizeof fifo, "%s/flight-0.json", folder);
    assert_int_equal(unlink(fifo), 0);
    assert_int_equal(unlink(errors), 0);
    snprintf(errors, sizeof errors, "/dev/null");
}

/* Nothing lets it go: the alarm does, after the timeout and the few seconds that an end takes. */
static void test_a_file_system_that_hangs_for_ever(void **state)
{
    char fifo[128];
    int status;
    pid_t pid;

    (void)state;
    timeout_ms = 1;
    snprintf(fifo, sizeof fifo, "%s/flight-0.json.part", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    memset(shared, 0, sizeof *shared);
    pid = fork();
    if (pid == 0) {
        run_rank(0, 1, has_a_sick_gpu);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
    assert_int_equal(unlink(fifo), 0);
}

static int make_folder(void **state)
{
    (void)state;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return mkdtemp(folder) != NULL && shared != MAP_FAILED ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_order),
        cmocka_unit_test(test_a_record_of_an_earlier_attempt_is_put_aside),
        cmocka_unit_test(test_a_rank_that_does_not_come),
        cmocka_unit_test(test_a_rank_whose_main_thread_hangs),
        cmocka_unit_test(test_long_work_of_the_host),
        cmocka_unit_test(test_a_rank_that_dies),
        cmocka_unit_test(test_an_error_that_is_final),
        cmocka_unit_test(test_a_checkpoint_under_way_is_written_first),
        cmocka_unit_test(test_an_error_that_passes),
        cmocka_unit_test(test_a_gpu_that_is_broken),
        cmocka_unit_test(test_an_abort_that_hangs),
        cmocka_unit_test(test_ranks_that_call_different_collectives),
        cmocka_unit_test(test_the_verdict_is_said_before_anything_is_written),
        cmocka_unit_test(test_a_file_system_that_hangs_for_ever),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
