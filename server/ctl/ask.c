#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "server/ctl/ctl.h"

enum { LINE_MAX_BYTES = 16 << 20 };

static int reach(const char *path, int *out, struct err *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd, why;

    if (strlen(path) >= sizeof(to.sun_path)) {
        return err_set(e, E_USAGE,
                       "the socket's path is too long: the system's limit is 107 bytes; give "
                       "another with --socket");
    }
    memcpy(to.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1) {
        return err_sys(e, "socket");
    }
    if (connect(fd, (const struct sockaddr *)&to, sizeof(to)) == 0) {
        *out = fd;
        return 0;
    }
    why = errno;
    close(fd);
    if (why == EACCES || why == EPERM) {
        return err_set(e, E_DENIED,
                       "%s cannot be opened: only root and the daemon's group may; use sudo or "
                       "join the group",
                       path);
    }
    return err_set(
        e, E_NETWORK,
        "the daemon does not answer at %s: %s; start it, or give its socket with --socket", path,
        why == ENOENT ? "the socket does not exist" : "no process is listening");
}

json_t *request(const char *verb)
{
    return json_pack("{s:s}", "verb", verb);
}

static int daemon_error(const json_t *error, struct err *e)
{
    const char *code = get_str(error, "code");
    int rc = E_INTERNAL;

#define ERROR(name, value, sysexit, text)                                                          \
    if (strcmp(code, #name) == 0) {                                                                \
        rc = (value);                                                                              \
    }
#include "common/base/errors.def"
#undef ERROR
    return err_set(e, rc, "%s", get_str(error, "text"));
}

/* One line of the answer: true when it was the last. */
static bool take_reply_line(struct slice line, void (*row)(void *arg, const json_t *row),
                            void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                            json_t **ok, int *rc, struct err *e)
{
    json_t *j = json_loadb(line.p, line.n, JSON_ALLOW_NUL, NULL), *v;

    if ((v = json_object_get(j, "row")) != NULL) {
        if (row != NULL) {
            row(arg, v);
        }
    } else if ((v = json_object_get(j, "progress")) != NULL) {
        if (progress != NULL) {
            progress(arg, get_u64(v, "done"), get_u64(v, "total"));
        }
    } else if ((v = json_object_get(j, "ok")) != NULL) {
        *ok = json_incref(v);
        json_decref(j);
        return true;
    } else {
        v = json_object_get(j, "error");
        *rc = v != NULL ? daemon_error(v, e)
                        : err_set(e, E_PROTOCOL,
                                  "the daemon's response is not a line of JSON; it may be of "
                                  "another version: compare `mirrord --version` with `mirrorctl "
                                  "--version`");
        json_decref(j);
        return true;
    }
    json_decref(j);
    return false;
}

/* --- a connection ----------------------------------------------------------------------------- */

struct line {
    int fd;
    unsigned patience_s;
    int came; /* a descriptor that came along, or -1 */
    struct buf in;
};

int line_open(struct ctl *c, struct line **out, struct err *e)
{
    struct timeval patience = {.tv_sec = c->patience_s};
    int fd = -1, rc = 0;

    *out = NULL;
    if (c->socket == NULL) {
        rc = config_places(c->config, &c->found, NULL, e);
        c->socket = c->found;
    }
    rc = rc != 0 ? rc : reach(c->socket, &fd, e);
    if (rc == E_NETWORK && strcmp(c->socket, DEFAULT_SOCKET) == 0 && c->found == NULL &&
        config_places(c->config, &c->found, NULL, NULL) == 0) {
        c->socket = c->found; /* its state_dir is elsewhere */
        rc = reach(c->socket, &fd, e);
    }
    if (rc == 0) {
        *out = NEW(struct line);
        **out = (struct line){
            .fd = fd, .patience_s = c->patience_s, .came = -1, .in = BUF_INIT(LINE_MAX_BYTES)};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    }
    return rc;
}

static void shut(int *fd)
{
    if (*fd != -1) {
        close(*fd);
        *fd = -1;
    }
}

void line_close(struct line **lp)
{
    struct line *l = *lp;

    *lp = NULL;
    if (l != NULL) {
        shut(&l->fd);
        shut(&l->came);
        buf_free(&l->in);
        free(l);
    }
}

/* Who hung up has said why, before we could ask: line_hear() finds it, or tells that there is
 * nothing. */
static int unsaid(struct err *e)
{
    return errno == EPIPE || errno == ECONNRESET ? E_CANCELLED : err_sys(e, "the control socket");
}

/* The descriptor rides on the first byte. */
static int send_with(int to, char first, int fd, struct err *e)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } with = {.head = {.cmsg_len = CMSG_LEN(sizeof(int)),
                       .cmsg_level = SOL_SOCKET,
                       .cmsg_type = SCM_RIGHTS}};
    struct iovec v = {&first, 1};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = with.room, .msg_controllen = sizeof with};

    memcpy(CMSG_DATA(&with.head), &fd, sizeof fd);
    return sendmsg(to, &m, MSG_NOSIGNAL) == 1 ? 0 : unsaid(e);
}

int line_say(struct line *l, json_t *req, int fd, struct err *e)
{
    struct buf out = BUF_INIT(1 << 20);
    char *text = json_dumps(req, JSON_COMPACT);
    int rc = 0;

    buf_addf(&out, "%s\n", text);
    if (fd != -1) {
        rc = send_with(l->fd, out.p[0], fd, e);
    }
    for (size_t at = fd != -1; rc == 0 && at < out.n;) {
        ssize_t n = send(l->fd, out.p + at, out.n - at, MSG_NOSIGNAL);
        if (n >= 0) {
            at += (size_t)n;
        } else if (errno != EINTR) {
            rc = unsaid(e);
        }
    }
    buf_free(&out);
    free(text);
    json_decref(req);
    return rc == E_CANCELLED ? 0 : rc;
}

static ssize_t receive_reply_bytes(struct line *l, char *p, size_t n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } with;
    struct iovec v = {p, n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = with.room, .msg_controllen = sizeof with};
    ssize_t got = recvmsg(l->fd, &m, MSG_CMSG_CLOEXEC);
    const struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL;

    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS &&
        c->cmsg_len == CMSG_LEN(sizeof(int))) {
        shut(&l->came);
        memcpy(&l->came, CMSG_DATA(c), sizeof(int));
    }
    return got;
}

int line_hear(struct line *l, void (*row)(void *arg, const json_t *row),
              void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, json_t **ok,
              int *fd, struct err *e)
{
    bool done = false;
    int rc = 0;

    *ok = NULL;
    while (rc == 0 && !done) {
        ptrdiff_t end = slice_find(buf_slice(&l->in), '\n');
        if (end >= 0) {
            done = take_reply_line(slice_first(buf_slice(&l->in), (size_t)end), row, progress, arg,
                                   ok, &rc, e);
            buf_drop(&l->in, (size_t)end + 1);
            continue;
        }
        char *room = buf_room(&l->in, 64 << 10);
        ssize_t n = room != NULL ? receive_reply_bytes(l, room, 64 << 10) : 0;
        if (n > 0) {
            buf_grew(&l->in, (size_t)n);
        } else if (n == -1 && errno == EAGAIN) {
            rc = err_set(e, E_TIMEOUT,
                         "the daemon has not responded for %u s; it may hang or the machine may "
                         "be overloaded: see `systemctl status mirrord` and its log",
                         l->patience_s);
        } else if (n == 0 || errno != EINTR) {
            rc = err_set(e, E_CANCELLED,
                         "the daemon closed the connection before it had responded; it may have "
                         "been stopped: see its log");
        }
    }
    if (fd != NULL) {
        *fd = l->came;
        l->came = -1;
    }
    shut(&l->came);
    return rc;
}

int ask(struct ctl *c, json_t *req, void (*row)(void *arg, const json_t *row),
        void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, json_t **ok,
        struct err *e)
{
    struct line *l = NULL;
    int rc = line_open(c, &l, e);

    *ok = NULL;
    if (rc != 0) {
        json_decref(req);
        return rc;
    }
    rc = line_say(l, req, -1, e);
    rc = rc != 0 ? rc : line_hear(l, row, progress, arg, ok, NULL, e);
    line_close(&l);
    return rc;
}

int act(struct ctl *c, json_t *req, json_t **ok, struct err *e)
{
    int rc = ask(c, req, NULL, NULL, NULL, ok, e);

    if (rc == 0 && c->json) {
        print_json(*ok);
    }
    return rc;
}

uint64_t get_u64(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));

    return n > 0 ? (uint64_t)n : 0;
}

const char *get_str(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));

    return s != NULL ? s : "";
}

bool get_bool(const json_t *o, const char *key)
{
    return json_is_true(json_object_get(o, key));
}
