#include "common/base/state.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/harness/states.h"

enum { SHUT, OPEN, LOCKED, DOORS };

static const struct state door[] = {
    [SHUT] = {"shut", STATE(OPEN) | STATE(LOCKED)},
    [OPEN] = {"open", STATE(SHUT)},
    [LOCKED] = {"locked", STATE(SHUT)},
};
static const struct state_table doors = STATE_TABLE("door", door);

static void a_table_says_what_may_follow(void **state)
{
    static const char *const drawn[DOORS] = {".xx", "x..", "x.."};

    (void)state;
    assert_states(&doors, DOORS, drawn);
    assert_int_equal(state_step(&doors, SHUT, LOCKED), LOCKED);
}

/* What a process says before it aborts, for a step that the table lacks. */
static void said(unsigned from, unsigned to, char *out, size_t room)
{
    int pipes[2];
    int status;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe(pipes), 0);
    pid = fork();
    assert_int_not_equal(pid, -1);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(pipes[1], STDERR_FILENO);
        state_step(&doors, from, to);
        _exit(0);
    }
    close(pipes[1]);
    n = read(pipes[0], out, room - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    close(pipes[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

static void another_step_aborts_and_names_both(void **state)
{
    char line[128];

    (void)state;
    said(OPEN, LOCKED, line, sizeof line);
    assert_string_equal(line, "door: open (1) cannot become locked (2)\n");
    said(OPEN, 7, line, sizeof line);
    assert_string_equal(line, "door: open (1) cannot become ? (7)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_says_what_may_follow),
        cmocka_unit_test(another_step_aborts_and_names_both),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
