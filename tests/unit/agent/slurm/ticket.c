#include "agent/slurm/ticket.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_life, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_child_holds_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_another_takes_its_name, setup, teardown),
        cmocka_unit_test_setup_teardown(test_names_are_numbers, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
