#include "agent/slurm/staging.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/os/newfile.h"

static int setup(void **state)
{
    char *dir = mem_strdup("/tmp/ticket.XXXXXX");

    *state = dir;
    return mkdtemp(dir) == NULL;
}

static int teardown(void **state)
{
    int rc = dir_remove_tree(*state, NULL);

    free(*state);
    return rc;
}

static void test_one_life(void **state)
{
    const char *dir = *state;
    struct buf text = BUF_INIT(4096);
    bool held;
    int fd;

    assert_int_equal(ticket_look(dir, "7", &held, &text, NULL), E_NOTFOUND);
    assert_int_equal(ticket_new(dir, "7", &fd, NULL), 0);
    assert_int_equal(ticket_look(dir, "7", &held, &text, NULL), 0);
    assert_true(held && ticket_exists(dir, "7") && !ticket_gone(fd));
    assert_int_equal(ticket_say(fd, SLICE("short"), NULL), 0);
    assert_int_equal(ticket_look(dir, "7", &held, &text, NULL), 0);
    assert_true(held && slice_eqs(buf_slice(&text), "short"));
    close(fd);
    assert_int_equal(ticket_look(dir, "7", &held, &text, NULL), 0);
    assert_true(!held && slice_eqs(buf_slice(&text), "short"));
    ticket_remove(dir, "7");
    assert_false(ticket_exists(dir, "7"));
    buf_free(&text);
}

/* The lock is of the open file: whoever was handed it holds it, alone. */
static void test_a_child_holds_it(void **state)
{
    const char *dir = *state;
    struct buf text = BUF_INIT(4096);
    int go[2];
    bool held;
    pid_t child;
    char c;
    int fd;

    assert_int_equal(pipe(go), 0);
    assert_int_equal(ticket_new(dir, "7", &fd, NULL), 0);
    child = fork();
    if (child == 0) {
        close(go[1]);
        _exit(read(go[0], &c, 1) != 0); /* until the other end is closed */
    }
    close(go[0]);
    close(fd);
    assert_int_equal(ticket_look(dir, "7", &held, &text, NULL), 0);
    assert_true(held);
    close(go[1]);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(ticket_look(dir, "7", &held, &text, NULL), 0);
    assert_true(!held &&
                slice_starts(buf_slice(&text), SLICE("{\"job\":\"7\",\"state\":\"staging\"}")));
    buf_free(&text);
}

static void test_another_takes_its_name(void **state)
{
    const char *dir = *state;
    int first;
    int second;

    assert_int_equal(ticket_new(dir, "7", &first, NULL), 0);
    assert_int_equal(ticket_new(dir, "7", &second, NULL), 0);
    assert_true(ticket_gone(first) && !ticket_gone(second));
    ticket_remove(dir, "7");
    assert_true(ticket_gone(second));
    close(first);
    close(second);
}

static void test_names_are_numbers(void **state)
{
    static const char *const job[] = {
        "", "x", "-1", "1/2", "../1", "1.json", "111111111111111111111"};
    int fd;

    for (size_t i = 0; i < ARRAY_LEN(job); i++) {
        assert_int_equal(ticket_new(*state, job[i], &fd, NULL), E_INVALID);
        assert_int_equal(fd, -1);
        ticket_remove(*state, job[i]);
        assert_false(ticket_exists(*state, job[i]));
    }
}

/* --- the verdict --- */

/* What a task's prolog reads of what a worker wrote. */
static void pass_on(const struct verdict *v, struct verdict_read *out)
{
    char path[] = "/tmp/verdict.XXXXXX";
    int fd = mkstemp(path);
    struct buf text = BUF_INIT(4 << 20);

    assert_int_equal(verdict_say(v, fd, "42", "/s/jobs/42", NULL), 0);
    assert_int_equal(buf_read_file(&text, path, NULL), 0);
    verdict_read(buf_slice(&text), out);
    buf_free(&text);
    close(fd);
    unlink(path);
}

/* The whole table: each code that a pull may end with, as the node has it, as a wish may have
 * it. */
static void test_policy(void **state)
{
    static const struct {
        int rc;
        enum outcome is;
    } ends[] = {
        {0, OUTCOME_HERE},
        {E_NOTFOUND, OUTCOME_MISSING},
        {E_DENIED, OUTCOME_DENIED},
        {E_REFUSED, OUTCOME_DENIED},
        {E_NETWORK, OUTCOME_UNREACHABLE},
        {E_TIMEOUT, OUTCOME_UNREACHABLE},
        {E_AGAIN, OUTCOME_UNREACHABLE},
        {E_BUSY, OUTCOME_UNREACHABLE},
        {E_CORRUPT, OUTCOME_DAMAGED},
        {E_INVALID, OUTCOME_DAMAGED},
        {E_PROTOCOL, OUTCOME_DAMAGED},
        {E_CHANGED, OUTCOME_DAMAGED},
        {E_NOSPACE, OUTCOME_FULL},
        {E_CANCELLED, OUTCOME_INTERRUPTED},
        {E_IO, OUTCOME_NODE},
        {E_CONFIG, OUTCOME_NODE},
        {E_USAGE, OUTCOME_NODE},
    };
    struct node_conf n;

    (void)state;
    node_init(&n);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        for (int optional = 0; optional < 2; optional++) {
            struct verdict v;
            struct verdict_read got;
            enum outcome o = outcome_of(ends[i].rc);
            assert_int_equal(o, ends[i].is);
            assert_int_equal(outcome_act(&n.slurm, o), o == OUTCOME_HERE ? ACT_WARN : ACT_FAIL);
            verdict_init(&v, &n.slurm);
            verdict_add(&v, "d/x", o, optional, 1, 1, "why");
            pass_on(&v, &got);
            assert_true(got.done);
            assert_int_equal(got.run, o == OUTCOME_HERE || optional);
            assert_int_equal(got.nsay, o != OUTCOME_HERE);
            verdict_read_fini(&got);
            verdict_fini(&v);
        }
    }
    node_fini(&n);
}

static void test_a_node_that_warns(void **state)
{
    struct node_conf n;
    struct verdict v;
    struct verdict_read got;

    (void)state;
    node_init(&n);
    n.slurm.on_missing = ACT_WARN;
    verdict_init(&v, &n.slurm);
    verdict_add(&v, "d/x", OUTCOME_MISSING, false, 0, 0, "");
    pass_on(&v, &got);
    assert_true(got.run && got.nsay == 1);
    assert_string_equal(got.say[0], "d/x: the mirror has no such file");
    assert_string_equal(got.staged, "/s/jobs/42");
    verdict_read_fini(&got);
    verdict_add(&v, "d/y", OUTCOME_FULL, false, 0, 0, ""); /* one that fails is enough */
    pass_on(&v, &got);
    assert_true(!got.run && got.nsay == 2);
    verdict_read_fini(&got);
    verdict_fini(&v);
    node_fini(&n);
}

static void test_texts_stay_on_their_line(void **state)
{
    struct node_conf n;
    struct verdict v;
    struct verdict_read got;

    (void)state;
    node_init(&n);
    verdict_init(&v, &n.slurm);
    verdict_add(&v, "d/x", OUTCOME_DENIED, false, 0, 0, "no\nexport LD_PRELOAD=/x\r\x1b[2J \"\\");
    pass_on(&v, &got);
    assert_int_equal(got.nsay, 1);
    assert_string_equal(got.say[0],
                        "d/x: the mirror does not permit this node to read the file (no?export "
                        "LD_PRELOAD=/x??[2J \"\\)");
    verdict_read_fini(&got);
    verdict_fini(&v);
    node_fini(&n);
}

static void test_what_a_killed_worker_leaves(void **state)
{
    static const char *const text[] = {
        "",     "{\"job\":\"42\",\"state\":\"staging\"}", "{\"state\":\"done\"",
        "[]",   "{\"state\":\"done\",\"run\":true}}",     "\xff",
        "null", "{\"state\":7,\"run\":true,\"say\":{}}"};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        struct verdict_read got;
        verdict_read(slice_str(text[i]), &got);
        assert_true(!got.done && got.nsay == 0 && got.staged == NULL);
        verdict_read_fini(&got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_child_holds_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_takes_its_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_are_numbers, setup, teardown),
        cmocka_unit_test(test_policy),
        cmocka_unit_test(test_a_node_that_warns),
        cmocka_unit_test(test_texts_stay_on_their_line),
        cmocka_unit_test(test_what_a_killed_worker_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}