/* http_fixture.c - a small server on server/http alone: memory, files, growing and failing bodies,
 * uploads.
 *
 * Tests drive it over raw sockets; `make bench` and people measure the HTTP core with it, without
 * cache or store. http_fixture [-l ADDRESS]... [-s TLS_ADDRESS] [-c CERT -k KEY] [-r FOLDER] [-n
 * LOOPS] [-o LIMIT=VALUE]... [-d DRAIN_MS] prints one line per listener, then serves until SIGTERM,
 * which drains.
 */
#include <event2/event.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/os/lock.h"
#include "server/http/range.h"
#include "server/http/server.h"

enum { PATTERN_BYTES = 16 * 1024 * 1024, FILES_MAX = 64, ECHO_HIGH = 256 * 1024, STEP_MS = 10 };

struct shown_file {
    char name[64];
    int fd;
    uint64_t size;
};

struct fixture {
    struct http_server *server;
    char *pattern; /* byte i is i % 251 */
    const char *folder;
    struct lock lock; /* over files */
    size_t nfiles;
    struct shown_file files[FILES_MAX];
    _Atomic uint64_t begun, ended, gone, incomplete, uploaded;
};

/* --- bodies ----------------------------------------------------------------------------------- */

static void close_plain(struct body *b)
{
    free(b);
}

static const struct body_ops file_ops = {.close = close_plain};

/* Grows by `step` bytes every STEP_MS until `total`; fails there when it is to. */
struct growing {
    struct body body;
    struct event *tick;
    uint64_t have, total, step;
    bool fails, unknown;
};

static int growing_poll(struct body *b, uint64_t *upto)
{
    struct growing *g = CONTAINER_OF(b, struct growing, body);

    if (g->have >= g->total && g->fails && b->off >= g->total) {
        return E_IO;
    }
    if (g->have >= g->total && g->unknown && !g->fails) {
        b->end = g->total;
    }
    *upto = g->have;
    return 0;
}

static void growing_close(struct body *b)
{
    struct growing *g = CONTAINER_OF(b, struct growing, body);

    event_free(g->tick);
    free(g);
}

static const struct body_ops growing_ops = {.poll = growing_poll, .close = growing_close};

static void on_grow(evutil_socket_t fd, short what, void *arg)
{
    struct growing *g = arg;

    (void)fd;
    (void)what;
    g->have = min_u64(g->total, g->have + g->step);
    if (g->have == g->total) {
        event_del(g->tick);
    }
    if (g->body.wake != NULL) {
        g->body.wake(g->body.wake_arg);
    }
}

static struct body *growing_new(struct fixture *f, struct loop *l, uint64_t total, bool unknown,
                                bool fails)
{
    static const struct timeval step = {.tv_usec = STEP_MS * 1000};
    struct growing *g = NEW(struct growing);

    g->total = min_u64(total, PATTERN_BYTES / 2);
    g->step = max_u64(1, total / 20);
    g->fails = fails;
    g->unknown = unknown;
    g->tick = event_new(l->base, -1, EV_PERSIST, on_grow, g);
    CHECK(g->tick != NULL && event_add(g->tick, &step) == 0);
    g->body = (struct body){.ops = &growing_ops,
                            .end = unknown ? LENGTH_UNKNOWN : g->total * (fails ? 2 : 1),
                            .fd = -1,
                            .bytes = f->pattern};
    return &g->body;
}

/* --- answers ---------------------------------------------------------------------------------- */

static struct http_reply *reply_new(struct exchange *x, int status)
{
    struct http_reply *r = ARENA_NEW(exchange_arena(x), struct http_reply);

    r->status = status;
    reply_add(r, SLICE("content-type"), SLICE("application/octet-stream"));
    return r;
}

static void answer_text(struct exchange *x, int status, struct slice text)
{
    exchange_reply(x, reply_new(x, status), body_of_bytes(text));
}

static void answer_file(struct exchange *x, int fd, const char *bytes, uint64_t size)
{
    const struct validators v = {
        .etag = SLICE("\"fixture\""), .last_modified_s = 784111777, .total_bytes = size};
    struct http_reply *r = reply_new(x, 200);
    struct body *b = NEW(struct body);

    *b = (struct body){.ops = &file_ops, .end = size, .fd = fd, .bytes = bytes};
    reply_add(r, SLICE("etag"), v.etag);
    reply_add(r, SLICE("accept-ranges"), SLICE("bytes"));
    switch (request_judge(exchange_req(x), &v, &b->off, &b->end)) {
    case RANGE_ANSWER_FULL:
        break;
    case RANGE_ANSWER_PART:
        r->status = 206;
        reply_addf(r, exchange_arena(x), "content-range", "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
                   b->off, b->end - 1, size);
        break;
    case RANGE_ANSWER_UNSATISFIED:
        r->status = 416;
        reply_addf(r, exchange_arena(x), "content-range", "bytes */%" PRIu64, size);
        body_close(&b);
        break;
    case RANGE_ANSWER_NOT_MODIFIED:
        r->status = 304;
        body_close(&b);
        break;
    case RANGE_ANSWER_FAILED:
        r->status = 412;
        body_close(&b);
        break;
    }
    exchange_reply(x, r, b);
}

static struct shown_file *find_file(struct fixture *f, struct slice name)
{
    struct shown_file *found = NULL;
    char path[4096];
    struct stat st;

    lock_take(&f->lock);
    for (size_t i = 0; i < f->nfiles && found == NULL; i++) {
        found = slice_eqs(name, f->files[i].name) ? &f->files[i] : NULL;
    }
    if (found == NULL && f->nfiles < FILES_MAX && name.n < 64 && slice_find(name, '/') < 0) {
        struct shown_file *s = &f->files[f->nfiles];
        snprintf(s->name, sizeof s->name, SLICE_FMT, SLICE_ARG(name));
        snprintf(path, sizeof path, "%s/%s", f->folder, s->name);
        s->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (s->fd != -1 && fstat(s->fd, &st) == 0) {
            s->size = (uint64_t)st.st_size;
            found = s;
            f->nfiles++;
        }
    }
    lock_drop(&f->lock);
    return found;
}

/* --- uploads ---------------------------------------------------------------------------------- */

struct upload {
    struct fixture *fixture;
    struct exchange *x;
    struct event *resume;
    uint64_t bytes;
    uint64_t sum;
    bool slow, paused;
};

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    struct upload *u = arg;

    (void)fd;
    (void)what;
    u->paused = false;
    exchange_pause(u->x, false);
}

/* Also told after its end: whoever leaves before the answer is out is gone all the same. */
static void upload_done(struct upload *u)
{
    if (u->resume != NULL) {
        event_free(u->resume);
        u->resume = NULL;
    }
}

static void upload_data(void *arg, struct slice bytes, bool end)
{
    static const struct timeval soon = {.tv_usec = 5000};
    struct upload *u = arg;

    CHECK(!u->paused); /* nothing arrives while it is paused */
    for (size_t i = 0; i < bytes.n; i++) {
        u->sum = u->sum * 31 + (unsigned char)bytes.p[i];
    }
    u->bytes += bytes.n;
    u->fixture->uploaded += bytes.n;
    if (end) {
        upload_done(u);
        exchange_on(u->x, NULL, NULL);
        answer_text(
            u->x, 200,
            arena_fmt(exchange_arena(u->x), "%" PRIu64 " %016" PRIx64 "\n", u->bytes, u->sum));
    } else if (u->slow) {
        u->paused = true;
        exchange_pause(u->x, true);
        event_add(u->resume, &soon);
    }
}

static void upload_gone(void *arg)
{
    struct upload *u = arg;

    u->fixture->gone++;
    upload_done(u);
}

static const struct exchange_events upload_events = {.on_data = upload_data,
                                                     .on_gone = upload_gone};

static void take_upload(struct fixture *f, struct exchange *x, bool slow)
{
    struct upload *u = ARENA_NEW(exchange_arena(x), struct upload);

    u->fixture = f;
    u->x = x;
    u->slow = slow;
    u->resume = evtimer_new(exchange_loop(x)->base, on_resume, u);
    CHECK(u->resume != NULL);
    exchange_on(x, &upload_events, u);
    if (exchange_req(x)->has_body) {
        exchange_read(x);
    } else {
        upload_data(u, SLICE(""), true);
    }
}

/* Echo: the answer grows as the request does; the buffer between them is bounded by pausing. */
struct echo {
    struct body body;
    struct fixture *fixture;
    struct exchange *x;
    struct buf held; /* from body.off on */
    uint64_t base;   /* offset of held's first byte */
    bool paused;
};

static int echo_poll(struct body *b, uint64_t *upto)
{
    struct echo *c = CONTAINER_OF(b, struct echo, body);
    size_t sent = (size_t)(b->off - c->base);

    if (sent > 0) {
        buf_drop(&c->held, sent);
        c->base = b->off;
        b->bytes = c->held.p != NULL ? c->held.p - c->base : NULL;
    }
    if (c->paused && c->held.n < ECHO_HIGH / 2) {
        c->paused = false;
        exchange_pause(c->x, false);
    }
    *upto = c->base + c->held.n;
    return 0;
}

static void echo_close(struct body *b)
{
    struct echo *c = CONTAINER_OF(b, struct echo, body);

    buf_free(&c->held);
    free(c);
}

static const struct body_ops echo_ops = {.poll = echo_poll, .close = echo_close};

static void echo_data(void *arg, struct slice bytes, bool end)
{
    struct echo *c = arg;

    CHECK(!c->paused);
    buf_adds(&c->held, bytes);
    CHECK(c->held.rc == 0);
    c->body.bytes = c->held.p != NULL ? c->held.p - c->base : NULL;
    if (end) {
        c->body.end = c->base + c->held.n;
    } else if (c->held.n > ECHO_HIGH) {
        c->paused = true;
        exchange_pause(c->x, true);
    }
    c->body.wake(c->body.wake_arg);
}

static void echo_gone(void *arg)
{
    struct echo *c = arg;
    c->fixture->gone++;
}

static const struct exchange_events echo_events = {.on_data = echo_data, .on_gone = echo_gone};

static void echo(struct fixture *f, struct exchange *x)
{
    struct echo *c = NEW(struct echo);

    *c = (struct echo){.body = {.ops = &echo_ops, .end = LENGTH_UNKNOWN, .fd = -1},
                       .fixture = f,
                       .x = x,
                       .held = BUF_INIT(8 * 1024 * 1024)};
    exchange_on(x, &echo_events, c);
    exchange_reply(x, reply_new(x, 200), &c->body);
    exchange_read(x);
}

/* --- requests that wait ----------------------------------------------------------------------- */

struct waiting {
    struct fixture *fixture;
    struct exchange *x;
    struct event *after;
};

static void on_after(evutil_socket_t fd, short what, void *arg)
{
    struct waiting *w = arg;

    (void)fd;
    (void)what;
    event_free(w->after);
    exchange_on(w->x, NULL, NULL);
    answer_text(w->x, 200, SLICE("late\n"));
}

static void waiting_gone(void *arg)
{
    struct waiting *w = arg;

    event_free(w->after);
    w->fixture->gone++;
}

static const struct exchange_events waiting_events = {.on_gone = waiting_gone};

static void answer_later(struct fixture *f, struct exchange *x, uint64_t ms)
{
    struct waiting *w = ARENA_NEW(exchange_arena(x), struct waiting);
    const struct timeval tv = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (long)(ms % 1000) * 1000};

    w->fixture = f;
    w->x = x;
    w->after = evtimer_new(exchange_loop(x)->base, on_after, w);
    CHECK(w->after != NULL && event_add(w->after, &tv) == 0);
    exchange_on(x, &waiting_events, w);
}

/* --- routes ----------------------------------------------------------------------------------- */

static void answer_stats(struct fixture *f, struct exchange *x)
{
    struct http_stats st;

    http_server_stats(f->server, &st);
    answer_text(x, 200,
                arena_fmt(exchange_arena(x),
                          "{\"begun\": %" PRIu64 ", \"ended\": %" PRIu64 ", \"gone\": %" PRIu64
                          ", \"incomplete\": %" PRIu64 ", \"uploaded\": %" PRIu64
                          ", \"open\": %" PRIu64 ", \"h2\": %" PRIu64 ", \"tls\": %" PRIu64
                          ", \"protocol_errors\": %" PRIu64 ", \"limited\": %" PRIu64 "}\n",
                          f->begun, f->ended, f->gone, f->incomplete, f->uploaded, st.open,
                          st.open_h2, st.open_tls, st.protocol_errors, st.limited));
}

/* What the pipeline sees of a request, a line each. */
static void answer_request(struct exchange *x)
{
    const struct http_req *r = exchange_req(x);
    struct buf b = BUF_INIT(1 << 20);

    buf_addf(
        &b, "method " SLICE_FMT "\npath " SLICE_FMT "\nquery " SLICE_FMT "\nhost " SLICE_FMT "\n",
        SLICE_ARG(r->method_text), SLICE_ARG(r->path), SLICE_ARG(r->query), SLICE_ARG(r->host));
    for (size_t i = 0; i < r->nfields; i++) {
        buf_addf(&b, SLICE_FMT ": " SLICE_FMT "\n", SLICE_ARG(r->fields[i].name),
                 SLICE_ARG(r->fields[i].value));
    }
    answer_text(x, 200, buf_slice(&b));
    buf_free(&b);
}

static void on_request(void *arg, struct exchange *x)
{
    struct fixture *f = arg;
    struct slice rest = slice_from(exchange_req(x)->path, 1);
    struct slice what = slice_cut(&rest, '/');
    struct slice number = slice_cut(&rest, '/');
    uint64_t n = 0;
    struct shown_file *file;

    f->begun++;
    (void)!slice_u64(number, &n);
    if (slice_eqs(what, "hello")) {
        exchange_reply(x, reply_new(x, 200), body_of_bytes(SLICE("hello\n")));
    } else if (slice_eqs(what, "mem")) {
        answer_file(x, -1, f->pattern, min_u64(n, PATTERN_BYTES));
    } else if (slice_eqs(what, "file") && (file = find_file(f, number)) != NULL) {
        answer_file(x, file->fd, NULL, file->size);
    } else if (slice_eqs(what, "grow") || slice_eqs(what, "growx") || slice_eqs(what, "fail") ||
               slice_eqs(what, "failx")) {
        exchange_reply(
            x, reply_new(x, 200),
            growing_new(f, exchange_loop(x), n, what.p[what.n - 1] == 'x', what.p[0] == 'f'));
    } else if (slice_eqs(what, "rate")) {
        struct pace *pace = pace_new(n);
        exchange_set_user(x, pace);
        exchange_pace(x, pace);
        answer_file(x, -1, f->pattern, n);
    } else if (slice_eqs(what, "discard") || slice_eqs(what, "slow")) {
        take_upload(f, x, what.p[0] == 's');
    } else if (slice_eqs(what, "echo")) {
        echo(f, x);
    } else if (slice_eqs(what, "late")) {
        answer_later(f, x, n);
    } else if (slice_eqs(what, "request")) {
        answer_request(x);
    } else if (slice_eqs(what, "stats")) {
        answer_stats(f, x);
    } else {
        answer_text(x, 404, SLICE("no such page\n"));
    }
}

static void on_end(void *arg, struct exchange *x, const struct exchange_end *end)
{
    struct fixture *f = arg;
    struct pace *pace = exchange_user(x);

    pace_release(&pace);
    f->ended++;
    f->incomplete += !end->complete;
}

/* --- main ------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} limit_names[] = {
#define LIMIT(field)                                                                               \
    {                                                                                              \
#        field, offsetof(struct http_limits, field)                                                \
    }
    LIMIT(header_bytes),       LIMIT(header_fields),        LIMIT(uri_bytes),
    LIMIT(header_ms),          LIMIT(handshake_ms),         LIMIT(idle_ms),
    LIMIT(stall_ms),           LIMIT(min_rate_bytes_per_s), LIMIT(streams),
    LIMIT(reset_burst),        LIMIT(resets_per_s),         LIMIT(connections),
    LIMIT(reader.bytes_per_s), LIMIT(reader.over_ms),
#undef LIMIT
};

static void set_limit(struct http_limits *limits, const char *text)
{
    struct slice value = slice_str(text);
    struct slice name = slice_cut(&value, '=');
    uint64_t n;

    for (size_t i = 0; i < ARRAY_LEN(limit_names); i++) {
        if (slice_eqs(name, limit_names[i].name) && slice_u64(value, &n)) {
            *(uint32_t *)(void *)((char *)limits + limit_names[i].offset) = (uint32_t)n;
            return;
        }
    }
    fprintf(stderr, "%s: no such limit\n", text);
    exit(64);
}

static void on_drained(void *arg)
{
    (void)arg;
    kill(getpid(), SIGUSR1);
}

int main(int argc, char **argv)
{
    struct fixture *f = NEW(struct fixture);
    struct http_limits limits = {.header_bytes = 32768,
                                 .header_fields = 100,
                                 .uri_bytes = 8192,
                                 .header_ms = 10000,
                                 .handshake_ms = 10000,
                                 .idle_ms = 75000,
                                 .stall_ms = 60000,
                                 .min_rate_bytes_per_s = 16384,
                                 .reader = {1024, 60000},
                                 .streams = 128,
                                 .reset_burst = 200,
                                 .resets_per_s = 20,
                                 .connections = 16384,
                                 .discard_bytes = 1 << 20};
    struct listener_settings sets[8];
    struct http_listeners listeners;
    const char *certificate = NULL;
    const char *key = NULL;
    const char *congestion = NULL;
    unsigned nsets = 0;
    unsigned nloops = 1;
    uint32_t drain_ms = 5000;
    struct loops *loops;
    struct pool *disk;
    sigset_t wanted;
    struct err e;
    int sig = 0;
    int opt;

    f->folder = ".";
    while ((opt = getopt(argc, argv, "l:s:c:k:r:n:o:C:d:")) != -1) {
        switch (opt) {
        case 'l':
        case 's':
            CHECK(nsets < ARRAY_LEN(sets));
            sets[nsets++] =
                (struct listener_settings){.address = optarg, .root = opt == 's' ? "tls" : NULL};
            break;
        case 'c':
            certificate = optarg;
            break;
        case 'k':
            key = optarg;
            break;
        case 'r':
            f->folder = optarg;
            break;
        case 'n':
            nloops = (unsigned)atoi(optarg);
            break;
        case 'C':
            congestion = optarg;
            break;
        case 'd':
            drain_ms = (uint32_t)atoi(optarg);
            break;
        case 'o':
            set_limit(&limits, optarg);
            break;
        default:
            return 64;
        }
    }
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    sigaddset(&wanted, SIGHUP);
    sigaddset(&wanted, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);
    lock_init(&f->lock, LOCK_LEAF);
    f->pattern = mem_new(PATTERN_BYTES);
    for (size_t i = 0; i < PATTERN_BYTES; i++) {
        f->pattern[i] = (char)(i % 251);
    }
    loops = loops_open(nloops);
    disk = pool_open("disk", 2, 0);
    f->server = http_server_open(
        loops, disk, NULL, &limits,
        (struct exchange_handler){.on_request = on_request, .on_end = on_end, .arg = f});
    for (unsigned i = 0; i < nsets; i++) {
        bool tls = sets[i].root != NULL;
        sets[i].root = NULL;
        sets[i].tcp_congestion = congestion;
        sets[i].tls_certificate = tls ? certificate : NULL;
        sets[i].tls_key = tls ? key : NULL;
    }
    if (http_server_bind(f->server, sets, nsets, &listeners, &e) != 0) {
        fprintf(stderr, "%s\n", e.text);
        return err_sysexit(e.code);
    }
    http_server_listen(f->server, &listeners);
    http_server_start(f->server);
    for (size_t i = 0; i < nsets; i++) {
        printf("listening %s\n", listener_address(http_server_listener(f->server, i)));
    }
    fflush(stdout);
    while (sigwait(&wanted, &sig) == 0 && sig != SIGTERM && sig != SIGINT) {
        if (sig != SIGHUP) {
            continue;
        }
        if (http_server_bind(f->server, sets, nsets, &listeners, &e) != 0) {
            fprintf(stderr, "%s\n", e.text);
        } else {
            http_server_listen(f->server, &listeners);
        }
    }
    http_server_drain(f->server, drain_ms, on_drained, NULL);
    while (sigwait(&wanted, &sig) == 0 && sig != SIGUSR1 && sig != SIGINT) {
    }
    http_server_close(&f->server);
    pool_close(&disk);
    loops_close(&loops);
    for (size_t i = 0; i < f->nfiles; i++) {
        close(f->files[i].fd);
    }
    free(f->pattern);
    lock_fini(&f->lock);
    free(f);
    return 0;
}
