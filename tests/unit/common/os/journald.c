#include "common/os/journald.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

struct sockets {
    char dir[32], journal[64], syslog[64];
};

static int setup(void **state)
{
    struct sockets *s = NEW(struct sockets);

    snprintf(s->dir, sizeof s->dir, "/tmp/journal.XXXXXX");
    *state = s;
    if (mkdtemp(s->dir) == NULL) {
        return 1;
    }
    snprintf(s->journal, sizeof s->journal, "%s/journal", s->dir);
    snprintf(s->syslog, sizeof s->syslog, "%s/log", s->dir);
    return 0;
}

static int teardown(void **state)
{
    struct sockets *s = *state;

    unlink(s->journal);
    unlink(s->syslog);
    rmdir(s->dir);
    free(s);
    return 0;
}

static int bound(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static const char *heard(int fd, char *room, size_t n)
{
    ssize_t got = recv(fd, room, n - 1, MSG_DONTWAIT);

    room[got > 0 ? got : 0] = '\0';
    return room;
}

static const char *const fields[] = {"SLURM_JOB_ID=42", NULL};

static void test_the_journal_first(void **state)
{
    struct sockets *s = *state;
    int journal = bound(s->journal);
    int syslog = bound(s->syslog);
    struct journald *j = journald_open(s->journal, s->syslog, "trainagent", fields);
    char room[4096];

    journald_say(j, LOG_WARN, "a line");
    assert_string_equal(
        heard(journal, room, sizeof room),
        "MESSAGE=a line\nPRIORITY=4\nSYSLOG_IDENTIFIER=trainagent\nSLURM_JOB_ID=42\n");
    journald_say(j, LOG_INFO, "one\nSLURM_JOB_ID=43"); /* nobody's line becomes a field */
    assert_string_equal(heard(journal, room, sizeof room),
                        "MESSAGE=one\nPRIORITY=6\nSYSLOG_IDENTIFIER=trainagent\nSLURM_JOB_ID=42\n");
    assert_string_equal(heard(syslog, room, sizeof room), "");
    journald_close(&j);
    close(journal);
    close(syslog);
}

static void test_syslog_without_one(void **state)
{
    struct sockets *s = *state;
    int syslog = bound(s->syslog);
    struct journald *j = journald_open(s->journal, s->syslog, "trainagent", fields);
    char room[4096];
    char want[64];

    journald_say(j, LOG_ERROR, "a line");
    snprintf(want, sizeof want, "<27>trainagent[%d]: a line", (int)getpid());
    assert_string_equal(heard(syslog, room, sizeof room), want);
    journald_close(&j);
    close(syslog);
}

/* Nothing there, or nobody who reads: it goes on. */
static void test_it_never_waits(void **state)
{
    struct sockets *s = *state;
    struct journald *j = journald_open(s->journal, s->syslog, "trainagent", fields);
    int journal;

    journald_say(j, LOG_INFO, "lost");
    journald_close(&j);
    journald_close(&j);
    journal = bound(s->journal);
    j = journald_open(s->journal, s->syslog, "trainagent", fields);
    for (int i = 0; i < 10000; i++) {
        journald_say(j, LOG_INFO, "more than a socket holds");
    }
    close(journal);
    journald_say(j, LOG_INFO, "lost");
    journald_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_journal_first, setup, teardown),
        cmocka_unit_test_setup_teardown(test_syslog_without_one, setup, teardown),
        cmocka_unit_test_setup_teardown(test_it_never_waits, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
