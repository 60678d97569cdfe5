#include "common/base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

char *buf_room(struct buf *b, size_t n)
{
    size_t need;
    size_t cap;
    char *p;

    if (b->rc != 0) {
        return NULL;
    }
    if (n > b->max || b->n > b->max - n) {
        b->rc = E_TOOBIG;
        return NULL;
    }
    need = b->n + n;
    if (need + 1 <= b->cap) { /* one spare byte for buf_cstr */
        return b->p + b->n;
    }
    cap = b->cap != 0 ? b->cap : 64;
    while (cap < need + 1) {
        cap *= 2;
    }
    p = realloc(b->p, cap);
    CHECK(p != NULL);
    b->p = p;
    b->cap = cap;
    return b->p + b->n;
}

void buf_grew(struct buf *b, size_t n)
{
    CHECK(b->n + n < b->cap || n == 0);
    b->n += n;
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    char *to;

    if (n == 0) {
        return;
    }
    to = buf_room(b, n);
    if (to != NULL) {
        memcpy(to, p, n);
        b->n += n;
    }
}

void buf_vaddf(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    int n;
    char *to;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    CHECK(n >= 0);
    to = buf_room(b, (size_t)n);
    if (to != NULL) {
        vsnprintf(to, (size_t)n + 1, fmt, ap);
        b->n += (size_t)n;
    }
}

void buf_counted(struct buf *b, unsigned bytes, struct slice s)
{
    if (bytes < 8 && s.n >> 8 * bytes != 0) {
        b->rc = b->rc != 0 ? b->rc : E_TOOBIG;
        return;
    }
    buf_be(b, bytes, s.n);
    buf_adds(b, s);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vaddf(b, fmt, ap);
    va_end(ap);
}

void buf_drop(struct buf *b, size_t n)
{
    CHECK(n <= b->n);
    if (n != 0) {
        memmove(b->p, b->p + n, b->n - n);
        b->n -= n;
    }
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->rc = 0;
}

void buf_free(struct buf *b)
{
    free(b->p);
    *b = BUF_INIT(b->max);
}

const char *buf_cstr(struct buf *b)
{
    if (b->rc != 0 || b->p == NULL) {
        return "";
    }
    b->p[b->n] = '\0';
    return b->p;
}

int buf_read_file(struct buf *b, const char *path, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = 0;

    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    for (;;) {
        char *to = buf_room(b, 65536);
        ssize_t got;
        char one;

        if (to == NULL) { /* near the maximum: only the end of the file may follow */
            b->rc = 0;
            got = b->n < b->max && (to = buf_room(b, b->max - b->n)) != NULL
                      ? read(fd, to, b->max - b->n)
                      : read(fd, &one, 1);
            if (got > 0 && b->n == b->max) {
                b->rc = E_TOOBIG;
                rc = err_set(e, E_TOOBIG, "%s: longer than %zu bytes", path, b->max);
                break;
            }
        } else {
            got = read(fd, to, 65536);
        }
        if (got == -1 && errno == EINTR) {
            continue;
        }
        if (got == -1) {
            rc = err_sys(e, "%s", path);
            break;
        }
        if (got == 0) {
            break;
        }
        buf_grew(b, (size_t)got);
    }
    close(fd);
    return rc;
}
