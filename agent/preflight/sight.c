#include "agent/preflight/sight.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

bool sight_path(const struct sight *s, char out[PATH_MAX], const char *fmt, ...)
{
    int n = snprintf(out, PATH_MAX, "%s", s->root);
    va_list ap;
    int more;

    if (n >= PATH_MAX) {
        return false;
    }
    va_start(ap, fmt);
    more = vsnprintf(out + n, (size_t)(PATH_MAX - n), fmt, ap);
    va_end(ap);
    return more >= 0 && n + more < PATH_MAX;
}

int sight_read(const struct sight *s, const char *path, char out[SIGHT_TEXT], struct err *e)
{
    char full[PATH_MAX];
    size_t n = 0;
    ssize_t got;
    int fd;

    out[0] = '\0';
    if (!sight_path(s, full, "%s", path)) {
        return err_set(e, E_NOTFOUND, "%.60s...: the path is too long", path);
    }
    fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd == -1) {
        return err_sys(e, "%s", full);
    }
    while (n < SIGHT_TEXT - 1 && (got = read(fd, out + n, SIGHT_TEXT - 1 - n)) != 0) {
        if (got == -1 && errno == EINTR) {
            continue;
        }
        if (got == -1) {
            int rc = err_sys(e, "%s", full);
            close(fd);
            out[0] = '\0';
            return rc;
        }
        n += (size_t)got;
    }
    close(fd);
    while (n > 0 && (uint8_t)out[n - 1] <= ' ') {
        n--;
    }
    out[n] = '\0';
    return 0;
}

bool sight_u64(const struct sight *s, const char *path, uint64_t *out)
{
    char text[SIGHT_TEXT];
    char *end;
    unsigned long long v;

    if (sight_read(s, path, text, NULL) != 0 || text[0] < '0' || text[0] > '9') {
        return false;
    }
    errno = 0;
    v = strtoull(text, &end, text[0] == '0' && (text[1] | 0x20) == 'x' ? 16 : 10);
    if (errno != 0 || end == text) {
        return false;
    }
    *out = v;
    return true;
}

bool sight_is(const struct sight *s, const char *path)
{
    char full[PATH_MAX];

    return sight_path(s, full, "%s", path) && access(full, F_OK) == 0;
}

bool sight_link(const struct sight *s, const char *path, char out[NAME_MAX + 1])
{
    char full[PATH_MAX], to[PATH_MAX];
    const char *base;
    ssize_t n;

    if (!sight_path(s, full, "%s", path)) {
        return false;
    }
    n = readlink(full, to, sizeof to - 1);
    if (n <= 0) {
        return false;
    }
    to[n] = '\0';
    base = strrchr(to, '/');
    snprintf(out, NAME_MAX + 1, "%s", base != NULL ? base + 1 : to);
    return true;
}

DIR *sight_dir(const struct sight *s, const char *path)
{
    char full[PATH_MAX];

    return sight_path(s, full, "%s", path) ? opendir(full) : NULL;
}

bool list_has(struct slice list, uint64_t n)
{
    while (list.n > 0) {
        struct slice last = slice_trim(slice_cut(&list, ','));
        struct slice first = slice_cut(&last, '-');
        uint64_t a, b;

        if (slice_u64(first, &a) && (last.n == 0 ? (b = a, true) : slice_u64(last, &b)) && n >= a &&
            n <= b) {
            return true;
        }
    }
    return false;
}
