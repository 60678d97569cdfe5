#include "server/http/exchange.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common/base/err.h"
#include "common/os/descriptor.h"
#include "server/http/conn.h"

enum { SPARES_MAX = 256, PROBE_BYTES = DRIVE_BYTES, RATE_WINDOW_MS = 10000 };

/* --- states ----------------------------------------------------------------------------------- */

static const struct state of_request[] = {
    [REQUEST_UNREAD] = {"unread", STATE(REQUEST_READING) | STATE(REQUEST_DROPPED)},
    [REQUEST_READING] = {"reading",
                         STATE(REQUEST_PAUSED) | STATE(REQUEST_READ) | STATE(REQUEST_DROPPED)},
    [REQUEST_PAUSED] = {"paused", STATE(REQUEST_READING) | STATE(REQUEST_DROPPED)},
    [REQUEST_READ] = {"read", 0},
    [REQUEST_DROPPED] = {"dropped", STATE(REQUEST_READING)},
};
static const struct state of_answer[] = {
    [ANSWER_AWAITED] = {"awaited", STATE(ANSWER_READY)},
    [ANSWER_READY] = {"ready", STATE(ANSWER_SENDING)},
    [ANSWER_SENDING] = {"sending", STATE(ANSWER_STARVED) | STATE(ANSWER_SENT)},
    [ANSWER_STARVED] = {"starved", STATE(ANSWER_SENDING)},
    [ANSWER_SENT] = {"sent", 0},
};
const struct state_table request_states = STATE_TABLE("request", of_request);
const struct state_table answer_states = STATE_TABLE("answer", of_answer);

static void request_becomes(struct exchange *x, enum request_state to)
{
    x->request = state_step(&request_states, x->request, to);
}

void exchange_answer_becomes(struct exchange *x, enum answer_state to)
{
    x->answer = state_step(&answer_states, x->answer, to);
}

struct pages_job {
    struct job job;
    int fd; /* a duplicate: the answer may be over before we are */
    uint64_t off;
    size_t n;
    int rc;
    struct exchange *x; /* NULL: cancelled */
};

static void pages_cancel(struct pages_job **jp)
{
    if (*jp != NULL) {
        (*jp)->x = NULL;
        *jp = NULL;
    }
}

/* --- life ------------------------------------------------------------------------------------- */

struct exchange *exchange_new(struct conn *c)
{
    struct http_loop *l = c->http_loop;
    struct list *n = list_pop_front(&l->spare);
    struct exchange *x;

    if (n != NULL) {
        struct arena arena;
        x = LIST_ITEM(n, struct exchange, spare);
        arena = x->arena;
        l->nspare--;
        *x = (struct exchange){.arena = arena};
    } else {
        x = NEW(struct exchange);
    }
    c->asked = true;
    x->conn = c;
    x->req.arena = &x->arena;
    x->req.peer = &c->peer;
    x->req.listener = c->listener;
    x->req.tls = c->wire.ssl != NULL;
    return x;
}

static void exchange_free(struct exchange *x)
{
    struct http_loop *l = x->conn->http_loop;

    buf_free(&x->held);
    if (l->nspare < SPARES_MAX) {
        arena_reset(&x->arena);
        l->nspare++;
        list_push_front(&l->spare, &x->spare);
    } else {
        arena_fini(&x->arena);
        free(x);
    }
}

static void name_request(struct exchange *x)
{
    static const char digits[] = "0123456789abcdef";
    /* splitmix64: unique within the process's life, random between processes */
    uint64_t id = x->conn->http_loop->next_id += 0x9e3779b97f4a7c15u;

    id = (id ^ id >> 30) * 0xbf58476d1ce4e5b9u;
    id = (id ^ id >> 27) * 0x94d049bb133111ebu;
    id ^= id >> 31;
    for (int i = 0; i < 16; i++) {
        x->req.id[i] = digits[id >> (60 - 4 * i) & 15];
    }
    x->req.id[16] = '\0';
}

static void split_target(struct http_req *r)
{
    ptrdiff_t mark = slice_find(r->target, '?');

    r->path = mark < 0 ? r->target : slice_first(r->target, (size_t)mark);
    r->query = mark < 0 ? SLICE_NONE : slice_from(r->target, (size_t)mark + 1);
}

void exchange_begin(struct exchange *x)
{
    const struct exchange_handler *h = &x->conn->http_loop->handler;

    name_request(x);
    x->req.unix_s = x->conn->http_loop->loop->unix_s;
    split_target(&x->req);
    x->req.method = method_of(x->req.method_text);
    x->began_ns = http_loop_clock_ns(x->conn->http_loop);
    x->moved_ms = x->window_ms = x->conn->http_loop->loop->now_ms;
    x->dispatched = true;
    x->conn->spare = x->conn->spare && server_is_full(x->conn->http_loop->server);
    h->on_request(h->arg, x);
}

bool exchange_is_spare(const struct exchange *x)
{
    return x->conn->spare;
}

void exchange_refuse(struct exchange *x, int status)
{
    struct http_reply *r = ARENA_NEW(&x->arena, struct http_reply);
    struct slice text = arena_fmt(&x->arena, "%s\n", http_reason(status));

    name_request(x);
    x->req.method = method_of(x->req.method_text); /* HEAD is refused without a body, too */
    r->status = status;
    reply_add(r, SLICE("content-type"), SLICE("text/plain"));
    exchange_reply(x, r, body_of_bytes(text));
}

void exchange_finish(struct exchange *x, bool complete)
{
    struct http_loop *l = x->conn->http_loop;
    struct exchange_end end = {.status = x->answer >= ANSWER_SENDING ? x->reply->status : 0,
                               .body_bytes = x->body_bytes,
                               .first_ns = x->first_ns,
                               .complete = complete};

    x->conn->answered++;
    list_remove_if(&x->paced);
    pages_cancel(&x->pages);
    if (x->dispatched) {
        end.took_ns = http_loop_clock_ns(l) - x->began_ns;
        if (!complete && x->ev != NULL && x->ev->on_gone != NULL) {
            x->ev->on_gone(x->ev_arg);
        }
        if (l->handler.on_end != NULL) {
            l->handler.on_end(l->handler.arg, x, &end);
        }
    }
    body_close(&x->body);
    if (l->memory != NULL) {
        body_memory_drop(l->memory, &x->use);
    }
    atomic_store_explicit(&l->loop->inflight_bytes,
                          atomic_load_explicit(&l->loop->inflight_bytes, memory_order_relaxed) -
                              x->inflight,
                          memory_order_relaxed);
    exchange_free(x);
}

/* --- what the handler calls ------------------------------------------------------------------- */

const struct http_req *exchange_req(const struct exchange *x)
{
    return &x->req;
}

struct loop *exchange_loop(const struct exchange *x)
{
    return x->conn->http_loop->loop;
}

struct arena *exchange_arena(struct exchange *x)
{
    return &x->arena;
}

void exchange_forwarded(struct exchange *x, const struct sockaddr_storage *peer, bool tls,
                        struct slice host)
{
    struct sockaddr_storage *kept = ARENA_NEW(&x->arena, struct sockaddr_storage);

    *kept = *peer;
    x->req.peer = kept;
    x->req.tls = tls;
    x->req.host = host;
}

void exchange_unlock(struct exchange *x, struct slice target, struct slice credential)
{
    struct http_req *r = &x->req;
    struct slice rest = arena_copy(&x->arena, target);
    struct http_field *f;

    r->target = rest;
    r->path = slice_cut(&rest, '?');
    r->query = r->path.n == r->target.n ? SLICE_NONE : rest;
    if (credential.n == 0) {
        return;
    }
    f = arena_alloc(&x->arena, (r->nfields + 1) * sizeof *f);
    f[0] = (struct http_field){SLICE("authorization"), arena_copy(&x->arena, credential)};
    memcpy(f + 1, r->fields, r->nfields * sizeof *f);
    r->fields = f;
    r->nfields++;
}

void exchange_set_client(struct exchange *x, uint64_t client)
{
    x->client = client;
}

static bool hold_body_bytes(struct exchange *x, size_t bytes, enum body_kind kind)
{
    struct http_loop *l = x->conn->http_loop;

    if (l->memory == NULL) {
        return true;
    }
    if (x->client == 0) {
        x->client = client_of(x->req.peer);
    }
    return body_memory_hold(l->memory, &l->port, &x->use, x->client, kind, bytes);
}

bool exchange_keep(struct exchange *x, size_t bytes, enum body_kind kind)
{
    x->handler_sheds = kind == BODY_MAY_END && x->ev != NULL && x->ev->on_shed != NULL;
    if (!hold_body_bytes(x, x->held.n + bytes, kind)) {
        return false;
    }
    x->kept = bytes;
    return true;
}

bool exchange_holds(struct exchange *x, size_t n)
{
    return hold_body_bytes(x, x->kept + n,
                           x->request == REQUEST_UNREAD ? BODY_MAY_END : x->use.kind);
}

void exchange_end_use(struct body_use *u)
{
    struct exchange *x = CONTAINER_OF(u, struct exchange, use);
    struct conn *c = x->conn;

    if (u->kind != BODY_MAY_END) { /* it was used meanwhile */
        body_memory_spare(c->http_loop->memory, u);
        return;
    }
    if (x->reply !=
        NULL) { /* the handler has let go of the body, and nobody reads what still comes */
        body_memory_drop(c->http_loop->memory, u);
    } else if (x->handler_sheds) {
        x->kept = 0;
        body_memory_drop(c->http_loop->memory, u);
        x->ev->on_shed(x->ev_arg);
    } else if (x->stream != NULL) {
        h2_shed(x);
    } else {
        body_memory_drop(c->http_loop->memory, u);
    }
}

void exchange_set_user(struct exchange *x, void *user)
{
    x->user = user;
}

void *exchange_user(const struct exchange *x)
{
    return x->user;
}

void exchange_on(struct exchange *x, const struct exchange_events *ev, void *arg)
{
    x->ev = ev;
    x->ev_arg = arg;
}

static void wake_exchange(struct exchange *x)
{
    x->conn->ops->wake(x);
    conn_kick(x->conn);
}

/* The minimum rate counts from now: the time in which we held the peer is not the peer's
 * slowness. */
static void start_reading(struct exchange *x)
{
    request_becomes(x, REQUEST_READING);
    x->window_ms = x->moved_ms = x->conn->http_loop->loop->now_ms;
    x->window_bytes = 0;
    wake_exchange(x);
}

void exchange_read(struct exchange *x)
{
    if (x->request != REQUEST_READ) { /* else it was read for another purpose before */
        start_reading(x);
    }
}

void exchange_pause(struct exchange *x, bool paused)
{
    if (paused && x->request == REQUEST_READING) {
        request_becomes(x, REQUEST_PAUSED);
    } else if (!paused && x->request == REQUEST_PAUSED) {
        start_reading(x);
    }
}

void exchange_pace(struct exchange *x, struct pace *p)
{
    x->pace = p;
}

static void on_wake(void *arg)
{
    wake_exchange(arg);
}

void exchange_reply(struct exchange *x, const struct http_reply *r, struct body *body)
{
    exchange_answer_becomes(x, ANSWER_READY);
    x->reply = r;
    x->body = body;
    if (x->request != REQUEST_READ) { /* early */
        request_becomes(x, REQUEST_DROPPED);
    }
    if (body != NULL) {
        CHECK(body->off <= body->end);
        body->wake = on_wake;
        body->wake_arg = x;
        if (body->end != LENGTH_UNKNOWN) {
            x->inflight = body->end - body->off;
            count(&x->conn->http_loop->loop->inflight_bytes, x->inflight);
        }
    }
    x->moved_ms = x->conn->http_loop->loop->now_ms;
    wake_exchange(x);
}

/* --- the request's body ----------------------------------------------------------------------- */

void exchange_deliver(struct exchange *x, struct slice bytes, bool end)
{
    x->moved_ms = x->conn->http_loop->loop->now_ms;
    x->window_bytes += bytes.n;
    if (end) {
        request_becomes(x, REQUEST_READ);
    }
    if (x->ev != NULL && x->ev->on_data != NULL) {
        x->ev->on_data(x->ev_arg, bytes, end);
    }
}

uint64_t exchange_slow_due(const struct exchange *x)
{
    if (x->request != REQUEST_READING || x->arrived) {
        return UINT64_MAX;
    }
    return min_u64(x->moved_ms + x->conn->http_loop->limits->stall_ms,
                   x->window_ms + RATE_WINDOW_MS);
}

bool exchange_too_slow(struct exchange *x, uint64_t now_ms)
{
    const struct http_limits *limits = x->conn->http_loop->limits;
    uint64_t took_ms = now_ms - x->window_ms;
    bool slow;

    if (exchange_slow_due(x) > now_ms) {
        return false;
    }
    if (now_ms - x->moved_ms >= limits->stall_ms) {
        return true;
    }
    if (took_ms < RATE_WINDOW_MS) {
        return false;
    }
    slow = x->window_bytes < (uint64_t)limits->min_rate_bytes_per_s * took_ms / 1000;
    x->window_ms = now_ms;
    x->window_bytes = 0;
    return slow;
}

/* --- what of a file is in memory
 * ---------------------------------------------------------------------------------------
 *
 * What is not, a thread of the pool brings in: loops never wait for a disk. A file system that
 * cannot tell (no RWF_NOWAIT) counts as memory.
 */

enum { PAGES_STEP_BYTES = 256 * 1024, PAGES_AHEAD_BYTES = 4 * 1024 * 1024 };

/* As preadv(), of what is in memory: > 0, E_AGAIN, or E_IO (also at the file's end). */
static ssize_t pages_readv(int fd, const struct iovec *to, int count, uint64_t off)
{
    ssize_t got;

    do {
        got = preadv2(fd, to, count, (off_t)off, RWF_NOWAIT);
        if (got == -1 && (errno == EOPNOTSUPP || errno == ENOSYS)) {
            got = preadv(fd, to, count, (off_t)off);
        }
    } while (got == -1 && errno == EINTR);
    if (got > 0) {
        return got;
    }
    return got == -1 && errno == EAGAIN ? E_AGAIN : E_IO;
}

/* How many of the n bytes at off are in memory, from the first on. E_AGAIN: none; E_IO: the file
 * ends before off. */
static ssize_t pages_present(int fd, uint64_t off, size_t n)
{
    size_t present = 0;

    /* One byte of each step, and no more: a probe of every 128 KiB, the kernel's readahead, costs 5
     * % of a sendfile. A hole between two probes is one short wait of the loop. */
    while (present < n) {
        char byte;
        ssize_t got = pages_readv(fd, &(struct iovec){&byte, 1}, 1, off + present);
        if (got < 0) {
            return present > 0 ? (ssize_t)present : got;
        }
        present += n - present < PAGES_STEP_BYTES ? n - present : PAGES_STEP_BYTES;
    }
    return (ssize_t)n;
}

static void pages_work(struct job *job)
{
    struct pages_job *j = CONTAINER_OF(job, struct pages_job, job);

    /* One request to the disk for all of it, then wait for each piece. */
    posix_fadvise(j->fd, (off_t)j->off, (off_t)j->n, POSIX_FADV_WILLNEED);
    for (size_t at = 0; at < j->n; at += PAGES_STEP_BYTES) {
        char byte;
        if (pread(j->fd, &byte, 1, (off_t)(j->off + at)) != 1) {
            j->rc = at == 0 ? E_IO : 0;
            break;
        }
    }
    close(j->fd);
}

static void pages_done(struct job *job)
{
    struct pages_job *j = CONTAINER_OF(job, struct pages_job, job);
    struct exchange *x = j->x;

    if (x != NULL) {
        x->pages = NULL;
        x->cut = x->cut || j->rc != 0;
        x->body->unreadable = x->body->unreadable || j->rc != 0;
        wake_exchange(x);
    }
    free(j);
}

/* Reads ahead on the pool. NULL: there are too many files open for that. */
static struct pages_job *pages_fetch(struct exchange *x, uint64_t off, size_t n)
{
    struct http_loop *l = x->conn->http_loop;
    int copy = descriptor_within(DESCRIPTORS_OF_FILES, fcntl(x->body->fd, F_DUPFD_CLOEXEC, 0));
    struct pages_job *j;

    if (copy == -1) {
        return NULL;
    }
    j = NEW(struct pages_job);
    *j = (struct pages_job){.job = {.work = pages_work, .done = pages_done, .reply = l->loop->mail},
                            .fd = copy,
                            .off = off,
                            .n = n,
                            .x = x};
    pool_submit(l->disk, &j->job, client_of(x->req.peer));
    return j;
}

/* --- the answer's body ------------------------------------------------------------------------ */

bool exchange_sends_body(const struct exchange *x)
{
    return x->body != NULL && x->req.method != METHOD_HEAD && x->reply->status != 204 &&
           x->reply->status != 304;
}

/* How much its pace lets go now; 0: the HTTP loop's pace timer wakes it. */
static uint64_t paced(struct exchange *x, uint64_t want)
{
    static const struct timeval soon = {.tv_usec = 10000};
    struct http_loop *l = x->conn->http_loop;
    uint64_t n = pace_allows(x->pace, want, l->loop->now_ms);

    if (n == 0 && !list_linked(&x->paced)) {
        list_push_back(&l->paced, &x->paced);
        event_add(l->pace, &soon);
    }
    return n;
}

ssize_t exchange_ready(struct exchange *x, size_t max)
{
    struct body *b = x->body;
    uint64_t upto = b->end;
    uint64_t n;

    if (b->ops->poll != NULL) {
        int rc = b->ops->poll(b, &upto);
        if (rc < 0) {
            return rc;
        }
        upto = min_u64(upto, b->end);
    }
    if (b->off >= upto) {
        return b->off >= b->end ? 0 : E_AGAIN;
    }
    n = min_u64(upto - b->off, max);
    if (x->pace != NULL) {
        n = paced(x, n);
    }
    return n != 0 ? (ssize_t)n : E_AGAIN;
}

/* Not in memory, at `at` of the file. 0: no pool, so the loop has to wait itself. */
static ssize_t fetch_pages(struct exchange *x, uint64_t at)
{
    struct http_loop *l = x->conn->http_loop;
    struct body *b = x->body;
    size_t n = (size_t)min_u64(b->end - b->off, PAGES_AHEAD_BYTES);

    if (l->disk == NULL || x->present_end > at) {
        /* Or they were read and are gone again: memory is short; waiting here ends that race. */
        return 0;
    }
    if (x->pages == NULL) {
        x->pages = pages_fetch(x, at, n);
        x->present_end = at + n;
    }
    return x->pages != NULL ? E_AGAIN : 0;
}

ssize_t exchange_present(struct exchange *x, size_t n)
{
    struct body *b = x->body;
    ssize_t got;

    if (x->pages != NULL) {
        return E_AGAIN;
    }
    if (b->off + n <= x->probed_end) {
        return (ssize_t)n;
    }
    got = pages_present(b->fd, b->off, (size_t)min_u64(b->end - b->off, max_u64(n, PROBE_BYTES)));
    b->unreadable = b->unreadable || got == E_IO;
    if (got == E_AGAIN) {
        ssize_t rc = fetch_pages(x, b->off);
        return rc != 0 ? rc : (ssize_t)min_u64(n, PAGES_STEP_BYTES);
    }
    if (got > 0) {
        x->probed_end = b->off + (uint64_t)got;
        got = (ssize_t)min_u64((uint64_t)got, n);
    }
    return got;
}

static ssize_t pull_filev(struct exchange *x, const struct iovec *to, int count, uint64_t at)
{
    int fd = x->body->fd;
    ssize_t got;

    if (x->pages != NULL) {
        return E_AGAIN;
    }
    got = pages_readv(fd, to, count, at);
    if (got == E_AGAIN) {
        got = fetch_pages(x, at);
        if (got == 0) {
            got = preadv(fd, to, count, (off_t)at);
            got = got > 0 ? got : E_IO;
        }
    }
    x->body->unreadable = x->body->unreadable || got == E_IO;
    return got;
}

static ssize_t pull_file(struct exchange *x, char *to, size_t n, uint64_t at)
{
    return pull_filev(x, &(struct iovec){to, n}, 1, at);
}

ssize_t exchange_pull_pieces(struct exchange *x, const struct iovec *to, int count)
{
    return pull_filev(x, to, count, x->body->off);
}

static ssize_t pull_pieces(struct exchange *x, char *to, size_t n)
{
    struct body *b = x->body;
    size_t done = 0;

    while (done < n) {
        const char *bytes = NULL;
        uint64_t at = 0;
        size_t part = b->ops->piece(b, b->off + done, n - done, &bytes, &at);
        if (bytes != NULL) {
            memcpy(to + done, bytes, part);
        } else {
            ssize_t got = pull_file(x, to + done, part, at);
            if (got <= 0) {
                return done != 0 ? (ssize_t)done : got;
            }
            part = (size_t)got;
        }
        done += part;
    }
    return (ssize_t)done;
}

ssize_t exchange_pull(struct exchange *x, char *to, size_t n)
{
    struct body *b = x->body;

    if (b->ops->piece != NULL) {
        return pull_pieces(x, to, n);
    }
    if (b->fd != -1) {
        return pull_file(x, to, n, b->off);
    }
    memcpy(to, b->bytes + b->off, n);
    return (ssize_t)n;
}

void exchange_sent(struct exchange *x, size_t n)
{
    x->body->off += n;
    x->body_bytes += n;
    x->conn->answered_bytes += n;
    x->moved_ms = x->conn->http_loop->loop->now_ms;
    if (x->pace != NULL) {
        pace_charge(x->pace, n, x->moved_ms);
    }
}
