/* Whole runs of the tiny model through the verbs: what a checkpoint promises. */
#include "agent/train/checkpoint.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "agent/train/shard.h"
#include "agent/train/verbs.h"
#include "common/os/newfile.h"

static char dir[32];

static void write_text(const char *name, const void *p, size_t n)
{
    char path[128];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static int begin(void **state)
{
    uint8_t shard[SHARD_HEADER_BYTES + 2000];
    struct shard about = {.tokens = 2000, .vocab = 48, .tokenizer = "test"};

    (void)state;
    snprintf(dir, sizeof dir, "/tmp/train.XXXXXX");
    assert_non_null(mkdtemp(dir));
    for (int i = 0; i < 2000; i++) {
        shard[SHARD_HEADER_BYTES + i] = (uint8_t)((i * i / 7 + i) % 48);
    }
    digest_of(slice_of(shard + SHARD_HEADER_BYTES, 2000), &about.digest);
    shard_header(&about, shard);
    write_text("data.bin", shard, sizeof shard);
    return 0;
}

/* Raised before a run, it waits until the run listens. */
static void raise_blocked(int signal)
{
    sigset_t mine;

    sigemptyset(&mine);
    sigaddset(&mine, signal);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &mine, NULL), 0);
    assert_int_equal(raise(signal), 0);
}

static int end(void **state)
{
    (void)state;
    return dir_remove_tree(dir, NULL);
}

/* trainer train with the usual arguments and up to three more. */
static int train_from(const char *source, const char *out, const char *a, const char *b,
                      const char *c, struct err *e)
{
    char from[64], data[64], where[64];
    char *argv[12] = {from,
                      (char[]){"--steps=6"},
                      (char[]){"--batch=3"},
                      (char[]){"--accum=2"},
                      (char[]){"--lr=0.01"},
                      (char[]){"--device=cpu"},
                      (char[]){"--log-every=0"},
                      data,
                      where};
    const char *more[] = {a, b, c};
    struct options o;
    int argc = 9, rc;
    char text[3][64];

    snprintf(from, sizeof from, "%s", source);
    snprintf(data, sizeof data, "--data=%s/data.bin", dir);
    snprintf(where, sizeof where, "--out=%s/%s", dir, out);
    for (int i = 0; i < 3 && more[i] != NULL; i++) {
        snprintf(text[i], sizeof text[i], "%s", more[i]);
        argv[argc++] = text[i];
    }
    rc = options_parse(TRAIN, argc, argv, &o, e);
    return rc != 0 ? rc : verb_train(&o, e);
}

static int train(const char *out, const char *a, const char *b, const char *c, struct err *e)
{
    return train_from("--config=tiny-gpt2", out, a, b, c, e);
}

static void expect_same_file(const char *a, const char *b, const char *name)
{
    struct buf x = BUF_INIT(1 << 24), y = BUF_INIT(1 << 24);
    char path[128];

    snprintf(path, sizeof path, "%s/%s/checkpoint-6/%s", dir, a, name);
    assert_int_equal(buf_read_file(&x, path, NULL), 0);
    snprintf(path, sizeof path, "%s/%s/checkpoint-6/%s", dir, b, name);
    assert_int_equal(buf_read_file(&y, path, NULL), 0);
    assert_true(slice_eq(buf_slice(&x), buf_slice(&y)));
    buf_free(&x);
    buf_free(&y);
}

static void expect_same_run(const char *a, const char *b)
{
    expect_same_file(a, b, "model.safetensors");
    expect_same_file(a, b, "optimizer.safetensors");
    expect_same_file(a, b, "trainer.json");
    expect_same_file(a, b, "manifest.sha256");
}

static void test_a_stopped_run_goes_on_bit_for_bit(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(train("straight", NULL, NULL, NULL, &e), 0);
    raise_blocked(SIGTERM);
    assert_int_equal(train("broken", NULL, NULL, NULL, &e), E_AGAIN);
    assert_int_equal(err_sysexit(E_AGAIN), 75);
    raise_blocked(SIGTERM);
    assert_int_equal(train("broken", "--resume=auto", NULL, NULL, &e), E_AGAIN);
    assert_int_equal(train("broken", "--resume=auto", NULL, NULL, &e), 0);
    expect_same_run("straight", "broken");
    /* One that is done already stays as it is. */
    assert_int_equal(train("broken", "--resume=auto", NULL, NULL, &e), 0);
    expect_same_run("straight", "broken");
}

/* --stop-at cuts a run short and leaves its schedule alone. */
static void test_a_run_that_ends_early_goes_on_bit_for_bit(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    assert_int_equal(train("straight", NULL, NULL, NULL, &e), 0);
    assert_int_equal(train("broken", "--stop-at=2", NULL, NULL, &e), 0);
    snprintf(path, sizeof path, "%s/broken", dir);
    assert_int_equal(checkpoint_last_step(path), 2);
    assert_int_equal(train("broken", "--resume=auto", "--stop-at=2", NULL, &e), 0);
    assert_int_equal(checkpoint_last_step(path), 2);
    assert_int_equal(train("broken", "--resume=auto", "--stop-at=5", NULL, &e), 0);
    assert_int_equal(checkpoint_last_step(path), 5);
    assert_int_equal(train("broken", "--resume=auto", "--stop-at=99", NULL, &e), 0);
    expect_same_run("straight", "broken");
    assert_int_equal(train("q", "--stop-at=-1", NULL, NULL, &e), E_USAGE);
}

/* Narrow weights are rounded at random: after a resume by the same dice. */
static void test_16_bit_runs_go_on_bit_for_bit(void **state)
{
    static const char *const dtype[] = {"bf16", "fp16"};
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(dtype); i++) {
        char option[32], straight[16], broken[16];

        snprintf(option, sizeof option, "--dtype=%s", dtype[i]);
        snprintf(straight, sizeof straight, "s-%s", dtype[i]);
        snprintf(broken, sizeof broken, "b-%s", dtype[i]);
        assert_int_equal(train(straight, option, NULL, NULL, &e), 0);
        raise_blocked(SIGTERM);
        assert_int_equal(train(broken, option, NULL, NULL, &e), E_AGAIN);
        assert_int_equal(train(broken, "--resume=auto", "--dtype=f32", NULL, &e), E_INVALID);
        assert_int_equal(train(broken, "--resume=auto", NULL, NULL, &e), 0); /* in its own type */
        expect_same_run(straight, broken);
    }
}

/* 2^24 / 48 tokens is more than f16 holds: those steps are not taken, the scale halves until one
 * is. */
static void test_an_overflow_is_skipped_and_the_scale_halves(void **state)
{
    struct train_state s;
    char path[128];
    struct err e;
    int skipped;

    (void)state;
    assert_int_equal(train("o", "--dtype=fp16", "--loss-scale=16777216", NULL, &e), 0);
    snprintf(path, sizeof path, "%s/o/checkpoint-6", dir);
    assert_int_equal(checkpoint_state(path, &s, &e), 0);
    skipped = (int)(s.step - s.updates);
    assert_true(skipped >= 2 && s.updates >= 1);
    assert_true(s.scaler.scale == ldexp(16777216, -skipped));
    assert_int_equal(s.scaler.good, s.updates);

    raise_blocked(SIGTERM);
    assert_int_equal(train("p", "--dtype=fp16", "--loss-scale=16777216", NULL, &e), E_AGAIN);
    assert_int_equal(train("p", "--dtype=fp16", "--resume=auto", NULL, &e), 0);
    expect_same_run("o", "p");
}

/* Tells the whole process, once the run has begun: any thread may be the one that takes it. */
static void *tell(void *arg)
{
    const struct timespec pause = {.tv_nsec = 1000000};

    for (int i = 0; i < 20000 && access(arg, F_OK) == -1; i++) {
        nanosleep(&pause, NULL);
    }
    kill(getpid(), SIGTERM);
    return NULL;
}

static void test_threads_that_were_there_before_do_not_take_the_signal(void **state)
{
    char path[64];
    pthread_t thread;
    struct err e;

    (void)state;
    snprintf(path, sizeof path, "%s/told/metrics.jsonl", dir);
    assert_int_equal(pthread_create(&thread, NULL, tell, path), 0);
    assert_int_equal(train("told", "--steps=1000000", NULL, NULL, &e), E_AGAIN);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void test_usr1_saves_and_goes_on(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    raise_blocked(SIGUSR1);
    assert_int_equal(train("usr1", NULL, NULL, NULL, &e), 0);
    snprintf(path, sizeof path, "%s/usr1/checkpoint-1", dir);
    assert_int_equal(checkpoint_verify(path, &e), 0);
    snprintf(path, sizeof path, "%s/usr1/checkpoint-6", dir);
    assert_int_equal(checkpoint_verify(path, &e), 0);
}

static void test_only_the_newest_are_kept(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    assert_int_equal(train("kept", "--save-every=1", "--keep=2", NULL, &e), 0);
    snprintf(path, sizeof path, "%s/kept/checkpoint-4", dir);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/kept/checkpoint-5", dir);
    assert_int_equal(access(path, F_OK), 0);
}

/* Files may not grow beyond `bytes` from now on; writing more is an error, not a signal. */
static void limit_files(rlim_t bytes)
{
    struct rlimit limit;

    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static bool there(const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* Where a smaller --keep or a crash leaves too much, it goes before anything is written: the disk
 * may be full of it. */
static void test_room_is_made_before_it_is_needed(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    assert_int_equal(train("n", "--save-every=2", NULL, NULL, &e), 0);
    write_text("n/checkpoint-6/model.safetensors", "x",
               1); /* passed over, and no reason to let go of the others */
    snprintf(path, sizeof path, "%s/n/checkpoint-5.partial", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    limit_files(20000);
    assert_int_equal(train("n", "--resume=auto", "--keep=1", NULL, &e), E_IO);
    limit_files(RLIM_INFINITY);
    assert_true(there("n/checkpoint-4") && there("n/checkpoint-6"));
    assert_false(there("n/checkpoint-2") || there("n/checkpoint-5.partial"));
    assert_int_equal(train("n", "--resume=auto", "--keep=1", NULL, &e), 0);
    assert_true(there("n/checkpoint-6"));
    assert_false(there("n/checkpoint-4"));
}

static void test_a_folder_is_one_runs(void **state)
{
    char path[128];
    struct err e;
    int fd;

    (void)state;
    assert_int_equal(train("s", NULL, NULL, NULL, &e), 0);
    snprintf(path, sizeof path, "%s/s", dir);
    fd = open(path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(fd, LOCK_EX), 0); /* as another run does */
    assert_int_equal(train("s", "--resume=auto", "--steps=7", NULL, &e), E_BUSY);
    close(fd);
    assert_int_equal(train("s", "--resume=auto", "--steps=7", NULL, &e), 0);
}

static void test_a_damaged_checkpoint_is_passed_over(void **state)
{
    struct err e;

    (void)state;
    assert_int_equal(train("whole", "--save-every=2", NULL, NULL, &e), 0);
    assert_int_equal(train("hurt", "--save-every=2", NULL, NULL, &e), 0);
    write_text("hurt/checkpoint-6/model.safetensors", "x", 1);
    assert_int_equal(train("hurt", "--resume=auto", NULL, NULL, &e), 0);
    expect_same_run("whole", "hurt");
}

static int partials(const char *name)
{
    char pattern[128];
    glob_t found;
    int n;

    snprintf(pattern, sizeof pattern, "%s/%s/*.partial", dir, name);
    n = glob(pattern, 0, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    if (n > 0) {
        globfree(&found);
    }
    return n;
}

/* The run goes on, the end says it, nothing is left behind, and what was there stays. */
static void test_a_checkpoint_that_cannot_be_written(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    raise_blocked(SIGTERM);
    assert_int_equal(train("f", NULL, NULL, NULL, &e), E_AGAIN);
    limit_files(20000);
    assert_int_equal(train("f", "--resume=auto", "--save-every=2", NULL, &e), E_IO);
    limit_files(RLIM_INFINITY);
    snprintf(path, sizeof path, "%s/f/checkpoint-1", dir);
    assert_int_equal(checkpoint_verify(path, &e), 0);
    snprintf(path, sizeof path, "%s/f", dir);
    assert_int_equal(checkpoint_count(path), 1);
    assert_int_equal(partials("f"), 0);
    assert_int_equal(train("f", "--resume=auto", NULL, NULL, &e), 0);
    assert_int_equal(train("whole", NULL, NULL, NULL, &e), 0);
    expect_same_run("f", "whole");
}

/* What lay beside the model that a run began with goes into its checkpoints. */
static void test_a_tokenizer_comes_along(void **state)
{
    struct buf text = BUF_INIT(100);
    char model[64], path[128];
    struct err e;

    (void)state;
    assert_int_equal(train("base", NULL, NULL, NULL, &e), 0);
    write_text("base/checkpoint-6/tokenizer.json", "{\"model\":1}", 11);
    snprintf(model, sizeof model, "--model=%s/base/checkpoint-6", dir);
    raise_blocked(SIGTERM);
    assert_int_equal(train_from(model, "tuned", NULL, NULL, NULL, &e), E_AGAIN);
    assert_int_equal(train("tuned", "--resume=auto", NULL, NULL, &e), 0);
    snprintf(path, sizeof path, "%s/tuned/checkpoint-6/tokenizer.json", dir);
    assert_int_equal(buf_read_file(&text, path, &e), 0);
    assert_true(slice_eqs(buf_slice(&text), "{\"model\":1}"));
    snprintf(path, sizeof path, "%s/tuned/checkpoint-6", dir);
    assert_int_equal(checkpoint_verify(path, &e), 0);
    buf_free(&text);
}

static void test_metrics_are_not_reported_twice(void **state)
{
    struct buf text = BUF_INIT(1 << 16);
    char path[128];
    struct slice rest;
    struct err e;
    int lines = 0;
    FILE *f;

    (void)state;
    assert_int_equal(train("m", "--save-every=2", NULL, NULL, &e), 0);
    write_text("m/checkpoint-6/trainer.json", "", 0);
    snprintf(path, sizeof path, "%s/m/metrics.jsonl", dir);
    f = fopen(path, "ae");
    assert_non_null(f);
    assert_true(fputs("{\"step\":1", f) >= 0); /* of 17, say: where the power went */
    assert_int_equal(fclose(f), 0);
    assert_int_equal(train("m", "--resume=auto", NULL, NULL, &e), 0);
    assert_int_equal(buf_read_file(&text, path, &e), 0);
    for (rest = buf_slice(&text); rest.n > 0; lines++) {
        char want[32];
        int n = snprintf(want, sizeof want, "{\"step\":%d,\"loss\":", lines + 1);

        assert_true(slice_starts(slice_cut(&rest, '\n'), slice_of(want, (size_t)n)));
    }
    assert_int_equal(lines, 6);
    buf_free(&text);
}

static void test_refusals(void **state)
{
    char older[64];
    struct err e;

    (void)state;
    assert_int_equal(train("r", NULL, NULL, NULL, &e), 0);
    assert_int_equal(train("r", NULL, NULL, NULL, &e), E_EXISTS);
    assert_int_equal(train("r", "--resume=auto", "--seed=2", NULL, &e), E_INVALID);
    assert_int_equal(train("r", "--resume=auto", "--seq=4", NULL, &e), E_INVALID);
    assert_int_equal(train("r", "--resume=auto", "--config=demo", NULL, &e), E_INVALID);
    assert_int_equal(train("q", "--batch=0", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--seq=9", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--dtype=fp64", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--beta1=1", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--beta2=1.5", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--eps=0", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--lr=-1", NULL, NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--dtype=fp16", "--loss-scale=0", NULL, &e), E_USAGE);
    assert_int_equal(train("q", "--data=/nowhere/*", NULL, NULL, &e), E_NOTFOUND);
    snprintf(older, sizeof older, "--resume=%s/a/checkpoint-2", dir);
    assert_int_equal(train("a", "--save-every=2", NULL, NULL, &e), 0);
    assert_int_equal(train("a", older, NULL, NULL, &e), E_EXISTS);
    assert_int_equal(train("b", older, NULL, NULL, &e), 0);
    expect_same_run("a", "b");
    write_text("r/checkpoint-6/manifest.sha256", "", 0);
    assert_int_equal(train("r", "--resume=auto", NULL, NULL, &e), E_CORRUPT);
}

/* As many tokens, others: the order of samples would be the same and the run another one. */
static void test_other_data_of_the_same_size(void **state)
{
    uint8_t shard[SHARD_HEADER_BYTES + 2000];
    struct shard about = {.tokens = 2000, .vocab = 48, .tokenizer = "test"};
    struct err e;

    (void)state;
    assert_int_equal(train("o", NULL, NULL, NULL, &e), 0);
    assert_int_equal(train("o", "--resume=auto", "--steps=7", NULL, &e), 0);
    memset(shard, 1, sizeof shard);
    digest_of(slice_of(shard + SHARD_HEADER_BYTES, 2000), &about.digest);
    shard_header(&about, shard);
    write_text("data.bin", shard, sizeof shard);
    assert_int_equal(train("o", "--resume=auto", "--steps=8", NULL, &e), E_INVALID);
    assert_non_null(strstr(e.text, "other data"));
}

static void test_a_manifest_names_no_other_folder(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    assert_int_equal(train("n", NULL, NULL, NULL, &e), 0);
    write_text("n/checkpoint-6/manifest.sha256",
               "0000000000000000000000000000000000000000000000000000000000000000  ../../data.bin\n",
               81);
    snprintf(path, sizeof path, "%s/n/checkpoint-6", dir);
    assert_int_equal(checkpoint_verify(path, &e), E_CORRUPT);
}

/* Where a file should be there is something that nobody ever writes to. */
static void test_nothing_waits_for_a_fifo(void **state)
{
    char path[128];
    struct err e;

    (void)state;
    assert_int_equal(train("f", NULL, NULL, NULL, &e), 0);
    snprintf(path, sizeof path, "%s/f/checkpoint-6/model.safetensors", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(train("f", "--resume=auto", "--steps=7", NULL, &e), E_CORRUPT);
    snprintf(path, sizeof path, "%s/data.bin", dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(train("g", NULL, NULL, NULL, &e), E_CORRUPT);
    assert_non_null(strstr(e.text, "not a token shard"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_stopped_run_goes_on_bit_for_bit, begin, end),
        cmocka_unit_test_setup_teardown(test_a_run_that_ends_early_goes_on_bit_for_bit, begin, end),
        cmocka_unit_test_setup_teardown(test_16_bit_runs_go_on_bit_for_bit, begin, end),
        cmocka_unit_test_setup_teardown(test_an_overflow_is_skipped_and_the_scale_halves, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_threads_that_were_there_before_do_not_take_the_signal,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_usr1_saves_and_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(test_only_the_newest_are_kept, begin, end),
        cmocka_unit_test_setup_teardown(test_room_is_made_before_it_is_needed, begin, end),
        cmocka_unit_test_setup_teardown(test_a_folder_is_one_runs, begin, end),
        cmocka_unit_test_setup_teardown(test_a_damaged_checkpoint_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(test_a_checkpoint_that_cannot_be_written, begin, end),
        cmocka_unit_test_setup_teardown(test_a_tokenizer_comes_along, begin, end),
        cmocka_unit_test_setup_teardown(test_metrics_are_not_reported_twice, begin, end),
        cmocka_unit_test_setup_teardown(test_refusals, begin, end),
        cmocka_unit_test_setup_teardown(test_other_data_of_the_same_size, begin, end),
        cmocka_unit_test_setup_teardown(test_a_manifest_names_no_other_folder, begin, end),
        cmocka_unit_test_setup_teardown(test_nothing_waits_for_a_fifo, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
