#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/os/newfile.h"
#include "server/gate/gate.h"

enum {
    RING_BYTES = 4 << 20,
    LINE_BYTES = 8 << 10,  /* longest line */
    VALUE_BYTES = 1 << 10, /* longest value, escapes included */
    GATHER_MS = 50,        /* a line waits this long for others */
};

/* Loops append to `filling`; the writer swaps it for its own empty one and writes without the lock. So a burst becomes one
 * write(2), and a disk that hangs costs at most the ring. */
struct access_log {
    char *path; /* NULL: stderr */
    bool json;
    int fd;
    pthread_t writer;
    struct lock lock;
    struct cond more;
    struct buf filling, writing;
    bool reopen, stop;
    _Atomic uint64_t dropped;
    uint64_t trouble_ms; /* when a failing write was last told; the writer's own */
};

/* --- one line --- */

static char hex_digit(unsigned n)
{
    return "0123456789abcdef"[n & 15];
}

/* Bytes from outside: printable ASCII stays, all else becomes \u00XX (json) or \xXX (combined). Cut at VALUE_BYTES. */
static void escaped(struct buf *out, struct slice s, bool json)
{
    size_t start = out->n;

    for (size_t i = 0; i < s.n; i++) {
        uint8_t c = (uint8_t)s.p[i];
        if (out->n - start > VALUE_BYTES - 8) {
            buf_str(out, "...");
            return;
        }
        if (c == '"' || c == '\\') {
            buf_byte(out, '\\');
            buf_byte(out, c);
        } else if (c >= ' ' && c < 0x7f) {
            buf_byte(out, c);
        } else {
            buf_str(out, json ? "\\u00" : "\\x");
            buf_byte(out, (uint8_t)hex_digit(c >> 4));
            buf_byte(out, (uint8_t)hex_digit(c));
        }
    }
}

static void pair(struct buf *out, const char *key, struct slice value)
{
    buf_addf(out, ",\"%s\":\"", key);
    escaped(out, value, true);
    buf_byte(out, '"');
}

static void client_text(const struct sockaddr_storage *peer, char out[INET6_ADDRSTRLEN])
{
    const void *address = peer->ss_family == AF_INET6
                              ? (const void *)&((const struct sockaddr_in6 *)peer)->sin6_addr
                              : (const void *)&((const struct sockaddr_in *)peer)->sin_addr;

    if ((peer->ss_family != AF_INET && peer->ss_family != AF_INET6) ||
        inet_ntop(peer->ss_family, address, out, INET6_ADDRSTRLEN) == NULL) {
        snprintf(out, INET6_ADDRSTRLEN, "-");
    }
}

static const char *version_text(enum http_version v)
{
    switch (v) {
    case HTTP_10:
        return "HTTP/1.0";
    case HTTP_11:
        return "HTTP/1.1";
    case HTTP_2:
        return "HTTP/2";
    }
    return "";
}

/* The path without the query: signatures and keys travel there. */
static void json_line(struct buf *out, const struct access_entry *en, uint64_t unix_ms)
{
    const struct http_req *r = en->req;
    char client[INET6_ADDRSTRLEN], when[32];
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;

    client_text(r->peer, client);
    gmtime_r(&s, &tm);
    strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%S", &tm);
    buf_addf(out, "{\"ts\":\"%s.%03uZ\",\"id\":\"%s\",\"client\":\"%s\"", when,
             (unsigned)(unix_ms % 1000), r->id, client);
    pair(out, "principal", en->who != NULL ? en->who->name : SLICE_NONE);
    pair(out, "method", r->method_text);
    pair(out, "host", r->host);
    pair(out, "path", r->path);
    buf_addf(out, ",\"proto\":\"%s\",\"tls\":%s,\"status\":%d,\"bytes\":%" PRIu64,
             version_text(r->version), r->tls ? "true" : "false", en->status, en->bytes);
    buf_addf(out, ",\"complete\":%s,\"dur_ms\":%.3f,\"ttfb_ms\":%.3f",
             en->complete ? "true" : "false", (double)en->took_ns / 1e6,
             (double)en->first_ns / 1e6);
    pair(out, "cache", slice_str(en->cache));
    pair(out, "repo", en->repo);
    pair(out, "range", http_req_field(r, "range"));
    pair(out, "ua", http_req_field(r, "user-agent"));
    buf_str(out, "}\n");
}

static void quoted_or_dash(struct buf *out, struct slice s)
{
    buf_str(out, " \"");
    escaped(out, s.n > 0 ? s : SLICE("-"), false);
    buf_byte(out, '"');
}

static void combined_line(struct buf *out, const struct access_entry *en, uint64_t unix_ms)
{
    const struct http_req *r = en->req;
    char client[INET6_ADDRSTRLEN], when[48];
    time_t s = (time_t)(unix_ms / 1000);
    struct tm tm;

    client_text(r->peer, client);
    gmtime_r(&s, &tm);
    strftime(when, sizeof(when), "%d/%b/%Y:%H:%M:%S +0000", &tm);
    buf_addf(out, "%s - ", client);
    escaped(out, en->who != NULL && en->who->name.n > 0 ? en->who->name : SLICE("-"), false);
    buf_addf(out, " [%s] \"", when);
    escaped(out, r->method_text, false);
    buf_byte(out, ' ');
    escaped(out, r->path, false);
    buf_addf(out, " %s\" %d %" PRIu64, version_text(r->version), en->status, en->bytes);
    quoted_or_dash(out, http_req_field(r, "referer"));
    quoted_or_dash(out, http_req_field(r, "user-agent"));
    buf_byte(out, '\n');
}

void access_log_write(struct access_log *l, const struct access_entry *en)
{
    struct buf line = BUF_INIT(LINE_BYTES);
    bool wake = false, taken = false;

    if (l == NULL) {
        return;
    }
    (void)buf_room(&line, 1024); /* at once: it would grow four times */
    if (l->json) {
        json_line(&line, en, clock_unix_ms());
    } else {
        combined_line(&line, en, clock_unix_ms());
    }
    CHECK(line.rc == 0); /* every value is cut: nine of them fit */
    lock_take(&l->lock);
    if (l->filling.n + line.n <= RING_BYTES) {
        wake = l->filling.n == 0 ||
               (l->filling.n < RING_BYTES / 2 && l->filling.n + line.n >= RING_BYTES / 2);
        buf_adds(&l->filling, buf_slice(&line));
        taken = true;
    }
    lock_drop(&l->lock);
    if (wake) {
        cond_signal(&l->more);
    }
    if (!taken) {
        atomic_fetch_add(&l->dropped, 1);
    }
    buf_free(&line);
}

/* --- the writer --- */

static int open_file(const char *path, struct err *e)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640);

    return fd >= 0 ? fd : err_sys(e, "%s", path);
}

static void trouble(struct access_log *l, const char *what)
{
    uint64_t now_ms = clock_now_ms();

    if (l->trouble_ms == 0 || now_ms - l->trouble_ms > 60000) {
        l->trouble_ms = now_ms;
        log_error("access_log.trouble", "%s: lines are lost until it is mended", what);
    }
}

static void reopen_now(struct access_log *l)
{
    struct err e = {0};
    int fd;

    if (l->path == NULL) {
        return;
    }
    fd = open_file(l->path, &e);
    if (fd < 0) {
        trouble(l, e.text); /* and go on in the old one */
        return;
    }
    close(l->fd);
    l->fd = fd;
}

static uint64_t lines_in(struct slice s)
{
    uint64_t n = 0;

    for (size_t i = 0; i < s.n; i++) {
        n += s.p[i] == '\n';
    }
    return n;
}

static void *write_on(void *arg)
{
    struct access_log *l = arg;
    struct err e = {0};
    bool stop = false, reopen;

    while (!stop) {
        lock_take(&l->lock);
        while (l->filling.n == 0 && !l->reopen && !l->stop) {
            cond_wait(&l->more, &l->lock);
        }
        if (!l->reopen && !l->stop && l->filling.n < RING_BYTES / 2) {
            (void)cond_wait_ms(&l->more, &l->lock, GATHER_MS);
        }
        struct buf full = l->filling;
        l->filling = l->writing;
        l->writing = full;
        reopen = l->reopen;
        l->reopen = false;
        stop = l->stop;
        lock_drop(&l->lock);
        /* First what was logged before the signal, then the new file: logrotate's renamed file ends where it should. */
        if (l->writing.n > 0 && fd_write_all(l->fd, l->writing.p, l->writing.n, &e) != 0) {
            atomic_fetch_add(&l->dropped, lines_in(buf_slice(&l->writing)));
            trouble(l, e.text);
        }
        buf_clear(&l->writing);
        if (reopen) {
            reopen_now(l);
        }
    }
    return NULL;
}

int access_log_open(const char *path, const char *format, struct access_log **out, struct err *e)
{
    struct access_log *l;
    int fd = STDERR_FILENO;

    *out = NULL;
    if (strcmp(path, "none") == 0) {
        return 0; /* every call takes NULL */
    }
    if (strcmp(path, "stderr") != 0) {
        fd = open_file(path, e);
        if (fd < 0) {
            return fd;
        }
    }
    l = NEW(struct access_log);
    l->fd = fd;
    l->path = fd != STDERR_FILENO ? mem_strdup(path) : NULL;
    l->json = strcmp(format, "json") == 0;
    l->filling = l->writing = BUF_INIT(RING_BYTES);
    lock_init(&l->lock, LOCK_ACCESS_LOG);
    cond_init(&l->more);
    l->writer = thread_start("access-log", write_on, l);
    *out = l;
    return 0;
}

void access_log_reopen(struct access_log *l)
{
    if (l == NULL) {
        return;
    }
    lock_take(&l->lock);
    l->reopen = true;
    lock_drop(&l->lock);
    cond_signal(&l->more);
}

uint64_t access_log_dropped(struct access_log *l)
{
    return l != NULL ? atomic_load(&l->dropped) : 0;
}

void access_log_close(struct access_log **lp)
{
    struct access_log *l = *lp;

    *lp = NULL;
    if (l == NULL) {
        return;
    }
    lock_take(&l->lock);
    l->stop = true;
    lock_drop(&l->lock);
    cond_signal(&l->more);
    pthread_join(l->writer, NULL);
    if (l->path != NULL) {
        close(l->fd);
    }
    cond_fini(&l->more);
    lock_fini(&l->lock);
    buf_free(&l->filling);
    buf_free(&l->writing);
    free(l->path);
    free(l);
}
