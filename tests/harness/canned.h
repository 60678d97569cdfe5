/* canned.h - a mirror whose answers a test writes itself, on a thread and a port of its own: for
 * unit tests of what fetches.
 *
 * A connection is one request: its head (and body, where it says a length) is given to answer(),
 * which writes all of the answer, status line first. Then the connection is closed.
 */
#ifndef TESTS_HARNESS_CANNED_H
#define TESTS_HARNESS_CANNED_H

#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"

struct canned { /* the first three may be set anew when nothing is under way */
    void (*_Atomic answer)(void *arg, struct slice request, struct buf *out);
    void *_Atomic arg;
    _Atomic unsigned requests;
    int fd;
    pthread_t thread;
    char url[64];
};

static inline bool canned_is_whole(struct slice text)
{
    const char *end, *length;

    if (text.p == NULL) {
        return false;
    }
    end = memmem(text.p, text.n, "\r\n\r\n", 4);
    length = memmem(text.p, text.n, "Content-Length: ", 16);
    return end != NULL &&
           text.n >= (size_t)(end + 4 - text.p) +
                         (length != NULL && length < end ? strtoul(length + 16, NULL, 10) : 0);
}

static inline void canned_serve(struct canned *c, int fd)
{
    struct buf in = BUF_INIT(1 << 20);
    struct buf out = BUF_INIT(64 << 20);
    char some[4096];
    ssize_t n = 1;
    size_t sent = 0;

    while (!canned_is_whole(buf_slice(&in)) && n > 0) {
        n = recv(fd, some, sizeof some, 0);
        buf_add(&in, some, n > 0 ? (size_t)n : 0);
    }
    if (n > 0) {
        c->requests++;
        c->answer(c->arg, buf_slice(&in), &out);
    }
    while (sent < out.n && n > 0) {
        n = send(fd, out.p + sent, out.n - sent, MSG_NOSIGNAL);
        sent += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    buf_free(&in);
    buf_free(&out);
}

static inline void *canned_run(void *arg)
{
    struct canned *c = arg;
    int fd;

    while ((fd = accept(c->fd, NULL, NULL)) != -1) {
        canned_serve(c, fd);
    }
    return NULL;
}

static inline void canned_open(struct canned *c)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof at;

    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(c->fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(c->fd, 64) == 0);
    CHECK(getsockname(c->fd, (struct sockaddr *)&at, &n) == 0);
    snprintf(c->url, sizeof c->url, "http://127.0.0.1:%u", ntohs(at.sin_port));
    CHECK(pthread_create(&c->thread, NULL, canned_run, c) == 0);
}

static inline void canned_close(struct canned *c)
{
    shutdown(c->fd, SHUT_RDWR);
    pthread_join(c->thread, NULL);
    close(c->fd);
}

#endif
