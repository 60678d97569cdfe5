#include "common/os/journald.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/buf.h"

enum { TEXT_MAX = 8192, FACILITY_DAEMON = 3 };

struct journald {
    int fd;
    bool native;
    char *identifier;
    struct buf fields; /* each with its newline */
};

static int dial(const char *path)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
    if (fd != -1 && connect(fd, (const struct sockaddr *)&at, sizeof at) == -1) {
        close(fd);
        fd = -1;
    }
    return fd;
}

struct journald *journald_open(const char *journal, const char *syslog, const char *identifier,
                               const char *const *fields)
{
    struct journald *j = NEW(struct journald);

    j->identifier = mem_strdup(identifier);
    j->fields = BUF_INIT(TEXT_MAX);
    for (; *fields != NULL; fields++) {
        buf_addf(&j->fields, "%s\n", *fields);
    }
    j->fd = dial(journal);
    j->native = j->fd != -1;
    if (j->fd == -1) {
        j->fd = dial(syslog);
    }
    return j;
}

void journald_say(const struct journald *j, enum log_level level, const char *line)
{
    static const int priority[] = {3, 4, 6, 7};
    struct buf text = BUF_INIT(TEXT_MAX);
    size_t n = strcspn(line, "\n"); /* one behind it would be a field of the sender's */

    if (j->fd == -1) {
        return;
    }
    if (j->native) {
        buf_addf(&text, "MESSAGE=%.*s\nPRIORITY=%d\nSYSLOG_IDENTIFIER=%s\n", (int)n, line,
                 priority[level], j->identifier);
        buf_adds(&text, buf_slice(&j->fields));
    } else {
        buf_addf(&text, "<%d>%s[%d]: %.*s", FACILITY_DAEMON * 8 + priority[level], j->identifier,
                 (int)getpid(), (int)n, line);
    }
    if (text.rc == 0) {
        (void)!send(j->fd, text.p, text.n, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
    buf_free(&text);
}

void journald_close(struct journald **jp)
{
    struct journald *j = *jp;

    if (j != NULL) {
        *jp = NULL;
        if (j->fd != -1) {
            close(j->fd);
        }
        buf_free(&j->fields);
        free(j->identifier);
        free(j);
    }
}
