#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/os/newfile.h"
#include "server/ctl/ctl.h"

enum { LINE_MAX_BYTES = 16 << 20 };

static int reach(const char *path, int *out, struct err *e)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd, why;

    if (strlen(path) >= sizeof(to.sun_path)) {
        return err_set(e, E_USAGE,
                       "the socket's path is too long, the system takes 107 bytes, give "
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
                       "%s may not be opened, it is for root and the daemon's group, "
                       "use sudo or join the group",
                       path);
    }
    return err_set(
        e, E_NETWORK,
        "the daemon does not answer at %s, %s, start it or give its socket with --socket", path,
        why == ENOENT ? "there is no socket" : "nobody listens");
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
static bool take_line(struct slice line, void (*row)(void *arg, const json_t *row),
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
                                  "the daemon's answer is no JSON line, it may be of "
                                  "another version, see `mirrord --version`");
        json_decref(j);
        return true;
    }
    json_decref(j);
    return false;
}

int ask(struct ctl *c, json_t *req, void (*row)(void *arg, const json_t *row),
        void (*progress)(void *arg, uint64_t done, uint64_t total), void *arg, json_t **ok,
        struct err *e)
{
    struct buf in = BUF_INIT(LINE_MAX_BYTES), out = BUF_INIT(1 << 20);
    char *text = json_dumps(req, JSON_COMPACT);
    bool done = false;
    int fd = -1, rc = reach(c->socket, &fd, e);

    *ok = NULL;
    if (rc != 0) {
        goto out;
    }
    buf_addf(&out, "%s\n", text);
    rc = fd_write_all(fd, out.p, out.n, e);
    while (rc == 0 && !done) {
        ptrdiff_t end = slice_find(buf_slice(&in), '\n');
        if (end >= 0) {
            done =
                take_line(slice_first(buf_slice(&in), (size_t)end), row, progress, arg, ok, &rc, e);
            buf_drop(&in, (size_t)end + 1);
            continue;
        }
        char *room = buf_room(&in, 64 << 10);
        ssize_t n = room != NULL ? recv(fd, room, 64 << 10, 0) : 0;
        if (n > 0) {
            buf_grew(&in, (size_t)n);
        } else if (n == 0 || errno != EINTR) {
            rc = err_set(e, E_CANCELLED,
                         "the daemon hung up before it had answered, it may have been "
                         "stopped, see its log");
        }
    }
out:
    if (fd != -1) {
        close(fd);
    }
    buf_free(&in);
    buf_free(&out);
    free(text);
    json_decref(req);
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
