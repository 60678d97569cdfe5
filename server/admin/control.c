#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/codec/jread.h"
#include "common/codec/nearest.h"
#include "server/admin/admin.h"
#include "server/admin/talk.h"

/* Requests may take hours (verify), so each connection has a thread; they are few, and for
 * administrators alone. */
enum {
    CLIENTS_MAX = 16,
    REQUEST_BYTES = 64 << 10,
    RESULT_BYTES = 4 << 20,
    FLUSH_BYTES = 32 << 10,
    QUIET_S = 60,        /* a client that neither asks nor reads is cut off */
    QUIET_KEPT_S = 3600, /* one for which something is kept may wait for a tape */
};

struct client {
    struct control *control;
    int fd; /* -1: a free slot */
};

struct control {
    const struct admin_deps *deps;
    char *path;
    int fd;
    pthread_t acceptor;
    struct lock lock; /* guards client[].fd and `open` */
    struct cond left;
    unsigned open;
    bool stop;
    struct client client[CLIENTS_MAX];
};

/* --- talk.h --- */

struct slice talk_text(const struct talk *t, const char *key)
{
    return jread_text(t->request, key);
}

bool talk_flag(const struct talk *t, const char *key)
{
    return json_is_true(json_object_get(t->request, key));
}

uint64_t talk_number(const struct talk *t, const char *key, uint64_t absent)
{
    uint64_t n;

    return jread_u64(t->request, key, &n) ? n : absent;
}

int talk_need(const struct talk *t, const char *key, struct slice *out, struct err *e)
{
    *out = talk_text(t, key);
    return out->n > 0 ? 0 : err_set(e, E_USAGE, "the request has no %s; give one", key);
}

static int no_repo(const struct repo_set *rs, struct slice name, struct err *e)
{
    const char **names = mem_array(rs->count + 1, sizeof names[0]);
    const char *near;

    for (size_t i = 0; i < rs->count; i++) {
        names[i] = rs->conf->repos[i].name;
    }
    near = nearest_word(names, rs->count, name);
    free(names);
    return err_set(e, E_NOTFOUND, "there is no repo \"" SLICE_FMT "\"; %s%s%s", SLICE_ARG(name),
                   near != NULL ? "did you mean \"" : "see `mirrorctl repo ls`",
                   near != NULL ? near : "", near != NULL ? "\"?" : "");
}

int talk_need_repo(const struct talk *t, struct repo_set **rs, struct repo **out, struct err *e)
{
    struct slice name;
    int rc = talk_need(t, "repo", &name, e);

    *rs = repo_set_hold(t->deps->repos);
    *out = rc == 0 ? repo_set_find(*rs, name) : NULL;
    if (rc == 0 && *out == NULL) {
        rc = no_repo(*rs, name, e);
    }
    return rc;
}

/* As send(), with the descriptor that is to leave riding on the first byte. */
static ssize_t send_control_bytes(struct talk *t, const char *p, size_t n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } with = {0};
    struct iovec v = {(void *)(uintptr_t)p, n};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};

    if (t->leaves != -1) {
        with.head = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&with.head), &t->leaves, sizeof(int));
        m.msg_control = with.room;
        m.msg_controllen = sizeof with.room;
    }
    return sendmsg(t->fd, &m, MSG_NOSIGNAL);
}

static void shut(int *fd)
{
    if (*fd != -1) {
        close(*fd);
        *fd = -1;
    }
}

static void send_all(struct talk *t)
{
    size_t at = 0;

    while (!t->gone && at < t->out->n) {
        ssize_t n = send_control_bytes(t, t->out->p + at, t->out->n - at);
        if (n > 0) {
            at += (size_t)n;
            shut(&t->leaves);
        } else if (n == 0 || errno != EINTR) {
            t->gone = true;
        }
    }
    buf_clear(t->out);
}

struct buf *talk_row(struct talk *t)
{
    jwrite_open(t->out, NULL, '{');
    jwrite_open(t->out, "row", '{');
    return t->out;
}

int talk_row_end(struct talk *t)
{
    buf_str(t->out, "}}\n");
    if (t->out->n >= FLUSH_BYTES) {
        send_all(t);
    }
    return t->gone ? 1 : 0;
}

int talk_row_flush(struct talk *t)
{
    (void)talk_row_end(t);
    send_all(t);
    return t->gone ? 1 : 0;
}

bool talk_left(struct talk *t)
{
    char byte;

    t->gone = t->gone || recv(t->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    return t->gone;
}

int talk_progress(struct talk *t, uint64_t done, uint64_t total)
{
    jwrite_open(t->out, NULL, '{');
    jwrite_open(t->out, "progress", '{');
    jwrite_u64(t->out, "done", done);
    jwrite_u64(t->out, "total", total);
    buf_str(t->out, "}}\n");
    send_all(t);
    return t->gone ? 1 : 0;
}

int talk_take_fd(struct talk *t, int *fd, struct err *e)
{
    *fd = t->came;
    t->came = -1;
    return *fd != -1 ? 0
                     : err_set(e, E_USAGE,
                               "the request came without the file descriptor that its bytes are "
                               "in; send one with it");
}

void talk_give_fd(struct talk *t, int fd)
{
    shut(&t->leaves);
    t->leaves = fd;
}

static void set_quiet(int fd, time_t s)
{
    const struct timeval quiet = {.tv_sec = s};

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &quiet, sizeof(quiet));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &quiet, sizeof(quiet));
}

void talk_keep(struct talk *t, void *kept, void (*drop)(void *kept))
{
    if (t->kept != NULL) {
        t->drop(t->kept);
    }
    t->kept = kept;
    t->drop = drop;
    set_quiet(t->fd, kept != NULL ? QUIET_KEPT_S : QUIET_S);
}

/* --- one request --- */

static int run_verb(struct talk *t, struct err *e)
{
    static const struct {
        const char *name;
        int (*run)(struct talk *t, struct err *e);
    } verbs[] = {
#define VERB(name, function) {name, function},
        VERBS(VERB)
#undef VERB
    };
    struct slice verb = talk_text(t, "verb");

    for (size_t i = 0; i < ARRAY_LEN(verbs); i++) {
        if (slice_eqs(verb, verbs[i].name)) {
            return verbs[i].run(t, e);
        }
    }
    return err_set(e, E_UNSUPPORTED,
                   "this daemon does not know \"" SLICE_FMT "\"; it may be of another version: "
                   "compare `mirrord --version` with `mirrorctl --version`",
                   SLICE_ARG(verb));
}

static void answer_control_line(struct talk *t, struct slice line)
{
    struct buf result = BUF_INIT(RESULT_BYTES);
    struct err e = {0};
    json_t *request = json_loadb(line.p, line.n, 0, NULL);
    int rc, leaves;

    t->request = request;
    t->result = &result;
    rc = json_is_object(request)
             ? run_verb(t, &e)
             : err_set(&e, E_USAGE, "the request is not a JSON object on one line");
    if (rc == 0 && result.rc != 0) {
        rc = err_set(&e, result.rc, "the response is too large; ask for less");
    }
    while (rc != 0 && t->out->n > 0 && t->out->p[t->out->n - 1] != '\n') {
        t->out->n--; /* a row that it broke off in */
    }
    leaves = t->leaves; /* with the last line, not with rows before it */
    t->leaves = -1;
    send_all(t);
    t->leaves = leaves;
    if (rc != 0) {
        shut(&t->leaves);
    }
    jwrite_open(t->out, NULL, '{');
    if (rc == 0) {
        jwrite_open(t->out, "ok", '{');
        buf_adds(t->out, buf_slice(&result));
        jwrite_close(t->out, '}');
    } else {
        e.code = rc;
        jwrite_err(t->out, "error", &e);
    }
    buf_str(t->out, "}\n");
    send_all(t);
    shut(&t->leaves);
    shut(&t->came);
    t->request = NULL;
    t->result = NULL;
    json_decref(request);
    if (result.p != NULL) {
        explicit_bzero(result.p, result.n); /* a new token may have stood there */
    }
    buf_free(&result);
}

/* --- connections --- */

/* Root, our own user, our own group: what the socket's mode says, said once more where it cannot be
 * changed. */
static bool client_is_admitted(int fd)
{
    struct ucred who;
    socklen_t n = sizeof(who);
    gid_t groups[256];

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &n) != 0) {
        return false;
    }
    if (who.uid == 0 || who.uid == geteuid() || who.gid == getegid()) {
        return true;
    }
    n = sizeof(groups);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n) != 0) {
        return false;
    }
    for (size_t i = 0; i < n / sizeof(groups[0]); i++) {
        if (groups[i] == getegid()) {
            return true;
        }
    }
    return false;
}

static void close_control_client(struct client *cl)
{
    struct control *c = cl->control;

    lock_take(&c->lock);
    close(cl->fd);
    cl->fd = -1;
    c->open--;
    cond_signal(&c->left);
    lock_drop(&c->lock);
}

/* As recv(), and the descriptor that came along; of more than one the others are closed. With a
 * time to wait for set, a process that was stopped and goes on finds it interrupted (signal(7)):
 * nobody has gone for that. */
static ssize_t receive_control_bytes(struct talk *t, char *p, size_t n)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(4 * sizeof(int))];
    } with;
    struct iovec v = {p, n};
    struct msghdr m = {
        .msg_iov = &v, .msg_iovlen = 1, .msg_control = with.room, .msg_controllen = sizeof with};
    ssize_t got;

    do {
        got = recvmsg(t->fd, &m, MSG_CMSG_CLOEXEC);
    } while (got == -1 && errno == EINTR);
    for (struct cmsghdr *c = got > 0 ? CMSG_FIRSTHDR(&m) : NULL; c != NULL;
         c = CMSG_NXTHDR(&m, c)) {
        size_t count = c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS
                           ? (c->cmsg_len - CMSG_LEN(0)) / sizeof(int)
                           : 0;
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(c) + i * sizeof fd, sizeof fd);
            shut(&t->came);
            t->came = fd;
        }
    }
    return got;
}

static void *serve_client(void *arg)
{
    struct client *cl = arg;
    struct buf in = BUF_INIT(REQUEST_BYTES), out = BUF_INIT(RESULT_BYTES * 2);
    struct talk t = {
        .deps = cl->control->deps, .out = &out, .fd = cl->fd, .came = -1, .leaves = -1};

    while (!t.gone) {
        ptrdiff_t end = slice_find(buf_slice(&in), '\n');
        if (end >= 0) {
            answer_control_line(&t, slice_first(buf_slice(&in), (size_t)end));
            buf_drop(&in, (size_t)end + 1);
            continue;
        }
        char *room = buf_room(&in, 4096);
        ssize_t n = room != NULL ? receive_control_bytes(&t, room, 4096) : 0;
        if (n <= 0) {
            break; /* gone, quiet for too long, or a request past its size */
        }
        buf_grew(&in, (size_t)n);
    }
    talk_keep(&t, NULL, NULL);
    shut(&t.came);
    buf_free(&in);
    buf_free(&out);
    close_control_client(cl);
    return NULL;
}

/* Before its request is read: to serve it takes a thread. */
static void refuse_control_client(int fd, const char *why)
{
    struct buf out = BUF_INIT(1024);
    struct err e = {0};

    err_set(&e, E_BUSY, "%s; try again", why);
    jwrite_open(&out, NULL, '{');
    jwrite_err(&out, "error", &e);
    buf_str(&out, "}\n");
    (void)!send(fd, out.p, out.n, MSG_NOSIGNAL);
    buf_free(&out);
}

static void slot(struct control *c, int fd)
{
    struct client *cl = NULL;
    pthread_t thread;

    if (!client_is_admitted(fd)) {
        log_warn("control.denied", "a client was disconnected: it runs neither as root nor as "
                                   "the daemon's user or group");
        close(fd);
        return;
    }
    set_quiet(fd, QUIET_S);
    lock_take(&c->lock);
    for (size_t i = 0; i < CLIENTS_MAX && cl == NULL && !c->stop; i++) {
        cl = c->client[i].fd == -1 ? &c->client[i] : NULL;
    }
    if (cl != NULL) {
        cl->fd = fd;
        c->open++;
    }
    lock_drop(&c->lock);
    if (cl == NULL) {
        refuse_control_client(
            fd, "too many control clients are connected: the daemon serves 16 at a time");
        close(fd);
        return;
    }
    if (!thread_try("control-client", serve_client, cl, &thread)) {
        refuse_control_client(
            fd, "the control client cannot be served: the system gives mirrord no more "
                "threads");
        close_control_client(cl);
        return;
    }
    pthread_detach(thread); /* control_close() waits for the slot */
}

static void *accept_on(void *arg)
{
    struct control *c = arg;

    for (;;) {
        int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            slot(c, fd);
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            usleep(100 * 1000); /* the descriptors of connections come back */
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return NULL; /* control_close() shut the socket down */
        }
    }
}

int control_open(const struct admin_deps *deps, const char *path, struct control **out,
                 struct err *e)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct control *c;
    int fd, rc;

    if (strlen(path) >= sizeof(at.sun_path)) {
        return err_set(e, E_CONFIG,
                       "%s: the path is too long for a socket; set control_socket "
                       "to a shorter one",
                       path);
    }
    memcpy(at.sun_path, path, strlen(path));
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd == -1) {
        return err_sys(e, "control socket");
    }
    /* The store's lock says that no other daemon is alive here: what lies there is a dead one's. */
    if ((unlink(path) != 0 && errno != ENOENT) ||
        bind(fd, (const struct sockaddr *)&at, sizeof(at)) != 0 || chmod(path, 0660) != 0 ||
        listen(fd, CLIENTS_MAX) != 0) {
        rc = err_sys(e, "control socket %s", path);
        close(fd);
        return rc;
    }
    c = NEW(struct control);
    c->deps = deps;
    c->fd = fd;
    c->path = mem_strdup(path);
    lock_init(&c->lock, LOCK_LEAF);
    cond_init(&c->left);
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        c->client[i] = (struct client){c, -1};
    }
    c->acceptor = thread_start("control", accept_on, c);
    *out = c;
    return 0;
}

void control_close(struct control **cp)
{
    struct control *c = *cp;

    *cp = NULL;
    if (c == NULL) {
        return;
    }
    unlink(c->path);
    shutdown(c->fd, SHUT_RDWR);
    pthread_join(c->acceptor, NULL);
    lock_take(&c->lock);
    c->stop = true;
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        if (c->client[i].fd != -1) {
            shutdown(c->client[i].fd, SHUT_RDWR);
        }
    }
    while (c->open > 0) {
        cond_wait(&c->left, &c->lock);
    }
    lock_drop(&c->lock);
    close(c->fd);
    cond_fini(&c->left);
    lock_fini(&c->lock);
    free(c->path);
    free(c);
}
