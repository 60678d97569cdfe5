#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/log.h"
#include "server/admin/admin.h"

/* The whole of sd_notify(3): one datagram. A name that begins with '@' is abstract, its first byte
 * NUL. */
void notify_systemd(const char *fmt, ...)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t n = path != NULL ? strlen(path) : 0;
    char text[512];
    va_list ap;
    int len, fd;

    if (n == 0 || (path[0] != '/' && path[0] != '@') || n >= sizeof(to.sun_path)) {
        return;
    }
    va_start(ap, fmt);
    len = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    CHECK(len > 0 && (size_t)len < sizeof(text));
    memcpy(to.sun_path, path, n);
    if (path[0] == '@') {
        to.sun_path[0] = '\0';
    }
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd == -1 || sendto(fd, text, (size_t)len, MSG_NOSIGNAL, (const struct sockaddr *)&to,
                           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == -1) {
        log_warn("notify.failed", "systemd could not be notified: %s", strerror(errno));
    }
    if (fd != -1) {
        close(fd);
    }
}
