#include "server/cluster/hints.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "common/xfer/tcp.h"
#include "server/cluster/redis.h"

#define SCHEME SLICE("redis://")

enum {
    REDIS_PORT = 6379,
    REPLY_BYTES_MAX = 4096,
    CONNECT_MS = 2000,
    PING_MS = 4000,
    AGAIN_MS = 1000,
    AGAIN_MAX_MS = 30000,
};

/* One of the two connections. */
struct line {
    int fd; /* -1: none */
    bool ready;
    uint64_t heard_ms; /* when something came last */
    struct buf in, out;
};

struct hints {
    struct hints_settings set;
    struct arena texts;
    const char *host;
    uint16_t port;
    char *authorization;
    struct slice channel, user, password; /* password.p NULL: none is needed */
    int wake;                             /* there is something to send */
    int end;                              /* readable once `ending` is set */
    atomic_bool ending;
    _Atomic uint64_t newest; /* that the others should know of */
    pthread_t thread;
    struct lock lock; /* LOCK_LEAF; guards status */
    struct hints_status status;
    /* The thread's own. */
    struct line publisher, subscriber;
    uint64_t sent;        /* the newest one that was sent on this connection */
    uint64_t hint;        /* not passed to on_hint() yet; 0: none */
    uint64_t hint_due_ms; /* not before */
    uint64_t pinged_ms;
};

/* --- the address --- */

struct place {
    struct slice host;
    struct slice channel; /* empty: not named */
    uint16_t port;
};

static int split_url(const char *url, struct arena *a, struct place *out, struct err *e)
{
    struct slice text = slice_str(url), after;
    struct err why = {0};
    struct url u;

    if (slice_starts(text, SLICE("rediss://"))) {
        return err_set(e, E_CONFIG, "hints: TLS to Redis is not supported; a hint has no secret");
    }
    if (!slice_starts(text, SCHEME) ||
        url_split(arena_fmt(a, "http://" SLICE_FMT, SLICE_ARG(slice_from(text, SCHEME.n))), &u,
                  &why) != 0 ||
        u.query.p != NULL) {
        return err_set(e, E_CONFIG,
                       "hints: \"%.80s\" is no address of Redis; write redis://host:6379, and the "
                       "password into hints_authorization",
                       url);
    }
    after = slice_of(u.host.p + u.host.n + u.ipv6, 1);
    *out = (struct place){.host = u.host,
                          .channel = slice_from(u.path, 1),
                          .port = slice_eqs(after, ":") ? u.port : REDIS_PORT};
    return 0;
}

int hints_check_url(const char *url, struct err *e)
{
    struct arena a = {0};
    struct place p;
    int rc = split_url(url, &a, &p, e);

    arena_fini(&a);
    return rc;
}

/* --- connections --- */

static int connection_error(struct err *e, const char *what)
{
    return err_set(e, E_NETWORK, "%s: %s", what, errno != 0 ? strerror(errno) : "closed");
}

static void close_line(struct line *l)
{
    if (l->fd != -1) {
        close(l->fd);
    }
    l->fd = -1;
    l->ready = false;
    buf_clear(&l->in);
    buf_clear(&l->out);
}

static void say(struct line *l, const char *word, struct slice first, struct slice second)
{
    const struct slice words[] = {slice_str(word), first, second};

    redis_command(&l->out, words, second.p != NULL ? 3 : first.p != NULL ? 2 : 1);
}

static int open_line(struct hints *h, struct line *l, struct err *e)
{
    struct tcp_limit limit = {.until_ms = clock_now_ms() + CONNECT_MS, .wake = h->end};
    int rc = tcp_dial(h->host, h->port, limit, &l->fd, e);

    l->heard_ms = clock_now_ms();
    if (rc == 0 && h->password.p != NULL) {
        say(l, "AUTH", h->user.p != NULL ? h->user : h->password,
            h->user.p != NULL ? h->password : SLICE_NONE);
    }
    return rc;
}

static int send_some(struct line *l, struct err *e)
{
    ssize_t n;

    if (l->out.n == 0) {
        return l->out.rc == 0 ? 0 : err_set(e, E_NETWORK, "it takes nothing");
    }
    errno = 0;
    n = send(l->fd, l->out.p, l->out.n, MSG_NOSIGNAL);
    if (n >= 0) {
        buf_drop(&l->out, (size_t)n);
    }
    return n >= 0 || errno == EAGAIN || errno == EINTR ? 0 : connection_error(e, "send");
}

static int receive_some(struct line *l, struct err *e)
{
    char *room = buf_room(&l->in, REPLY_BYTES_MAX - l->in.n);
    ssize_t n;

    if (room == NULL || l->in.n == REPLY_BYTES_MAX) {
        return err_set(e, E_INVALID, "a reply is too long");
    }
    errno = 0;
    n = recv(l->fd, room, REPLY_BYTES_MAX - l->in.n, 0);
    if (n > 0) {
        buf_grew(&l->in, (size_t)n);
        l->heard_ms = clock_now_ms();
    }
    return n > 0 || (n == -1 && (errno == EAGAIN || errno == EINTR))
               ? 0
               : connection_error(e, "receive");
}

/* --- what it says --- */

static void on_message(struct hints *h, struct slice text)
{
    uint64_t seq;

    if (!slice_u64(text, &seq)) {
        return; /* somebody else's */
    }
    h->hint = seq > h->hint ? seq : h->hint;
    lock_take(&h->lock);
    h->status.received++;
    lock_drop(&h->lock);
}

static int on_reply(struct hints *h, struct line *l, const struct redis_reply *r, struct err *e)
{
    if (r->type == '-') {
        return err_set(e, E_DENIED, "%.*s", (int)min_u64(r->text.n, 150), r->text.p);
    }
    if (r->type == '*' && r->items == 3 && slice_eqs(r->item[0], "message")) {
        on_message(h, r->item[2]);
    } else if (r->type == '*' && r->items == 3 && slice_eqs(r->item[0], "subscribe")) {
        l->ready = true;
    } else if (l == &h->publisher && slice_eqs(r->text, "PONG")) {
        l->ready = true;
    }
    return 0;
}

static int read_replies(struct hints *h, struct line *l, struct err *e)
{
    struct slice rest;
    struct redis_reply r;
    int rc = receive_some(l, e), got = 0;

    rest = buf_slice(&l->in);
    while (rc == 0 && (got = redis_reply_read(&rest, &r)) == 1) {
        rc = on_reply(h, l, &r, e);
    }
    buf_drop(&l->in, l->in.n - rest.n);
    return rc == 0 && got < 0 ? err_set(e, E_INVALID, "this is no reply of Redis") : rc;
}

/* --- up and away --- */

static void note(struct hints *h, bool up, const struct err *why)
{
    bool was, first;

    lock_take(&h->lock);
    was = h->status.up;
    first = h->status.since_unix_s == 0;
    h->status.up = up;
    h->status.why = up ? (struct err){0} : *why;
    if (was != up || first) {
        h->status.since_unix_s = clock_unix_s();
    }
    lock_drop(&h->lock);
    if (up && !was) {
        log_info("cluster.hints", "redis=\"%s\"", h->set.url);
    } else if (!up && (was || first)) {
        log_warn("cluster.hints_away", "redis=\"%s\" why=\"%s\"", h->set.url, why->text);
    }
}

static bool is_up(const struct hints *h)
{
    return h->publisher.ready && h->subscriber.ready;
}

/* Before it waits: what is to be said. */
static void prepare(struct hints *h, uint64_t now_ms)
{
    uint64_t newest = atomic_load(&h->newest);
    char room[U64_DIGITS];

    if (is_up(h) && newest > h->sent) {
        say(&h->publisher, "PUBLISH", h->channel, slice_of_u64(room, newest));
        h->sent = newest;
        lock_take(&h->lock);
        h->status.sent++;
        lock_drop(&h->lock);
    }
    if (now_ms >= h->pinged_ms + PING_MS) {
        h->pinged_ms = now_ms;
        say(&h->publisher, "PING", SLICE_NONE, SLICE_NONE);
        say(&h->subscriber, "PING", SLICE_NONE, SLICE_NONE);
    }
}

static void pass_hint_on(struct hints *h, uint64_t now_ms)
{
    if (h->hint != 0 && now_ms >= h->hint_due_ms) {
        h->set.on_hint(h->set.arg, h->hint);
        h->hint = 0;
        h->hint_due_ms = now_ms + HINTS_APART_MS;
    }
}

static void wait_for_something(struct hints *h, struct pollfd p[3], uint64_t now_ms)
{
    uint64_t until = h->pinged_ms + PING_MS, count;

    if (h->hint != 0 && h->hint_due_ms < until) {
        until = h->hint_due_ms;
    }
    p[0] = (struct pollfd){.fd = h->wake, .events = POLLIN};
    p[1] = (struct pollfd){.fd = h->publisher.fd, .events = POLLIN};
    p[2] = (struct pollfd){.fd = h->subscriber.fd, .events = POLLIN};
    p[1].events |= h->publisher.out.n != 0 ? POLLOUT : 0;
    p[2].events |= h->subscriber.out.n != 0 ? POLLOUT : 0;
    if (poll(p, 3, until > now_ms ? (int)(until - now_ms) : 0) > 0 && p[0].revents != 0) {
        (void)!read(h->wake, &count, sizeof count);
    }
}

static int serve_line(struct hints *h, struct line *l, short events, struct err *e)
{
    int rc = events & (POLLIN | POLLERR | POLLHUP) ? read_replies(h, l, e) : 0;

    rc = rc != 0 ? rc : send_some(l, e);
    if (rc == 0 && clock_now_ms() > l->heard_ms + HINTS_SILENT_MS) {
        rc = err_set(e, E_TIMEOUT, "it does not answer");
    }
    return rc;
}

/* Until an error or the end. *was_up: it has worked. */
static int session(struct hints *h, bool *was_up, struct err *e)
{
    struct pollfd p[3];
    int rc = open_line(h, &h->publisher, e);

    rc = rc != 0 ? rc : open_line(h, &h->subscriber, e);
    say(&h->subscriber, "SUBSCRIBE", h->channel, SLICE_NONE);
    h->sent = 0;
    h->pinged_ms = 0;
    while (rc == 0 && !atomic_load(&h->ending)) {
        uint64_t now_ms = clock_now_ms();

        prepare(h, now_ms);
        pass_hint_on(h, now_ms);
        wait_for_something(h, p, now_ms);
        rc = serve_line(h, &h->publisher, p[1].revents, e);
        rc = rc != 0 ? rc : serve_line(h, &h->subscriber, p[2].revents, e);
        if (rc == 0 && is_up(h)) {
            *was_up = true;
            note(h, true, NULL);
        }
    }
    close_line(&h->publisher);
    close_line(&h->subscriber);
    return rc;
}

/* What is published meanwhile is sent when the connection is back. */
static void rest(struct hints *h, uint64_t ms)
{
    struct pollfd p = {.fd = h->end, .events = POLLIN};

    (void)!poll(&p, 1, (int)ms);
}

static void *run_hints(void *arg)
{
    struct hints *h = arg;
    uint64_t again_ms = AGAIN_MS;

    while (!atomic_load(&h->ending)) {
        struct err why = {0};
        bool was_up = false;

        if (session(h, &was_up, &why) != 0 && !atomic_load(&h->ending)) {
            note(h, false, &why);
            again_ms = was_up ? AGAIN_MS : again_ms;
            rest(h, again_ms);
            again_ms = min_u64(2 * again_ms, AGAIN_MAX_MS);
        }
    }
    return NULL;
}

/* --- open and close --- */

static void keep_authorization(struct hints *h, const char *text)
{
    struct slice rest;

    h->authorization = mem_strdup(text);
    rest = slice_str(h->authorization);
    h->user = slice_find(rest, ':') >= 0 ? slice_cut(&rest, ':') : SLICE_NONE;
    h->password = rest;
}

struct hints *hints_open(const struct hints_settings *set)
{
    struct hints *h = NEW(struct hints);
    struct place at;

    h->set = *set;
    h->set.url = arena_fmt(&h->texts, "%s", set->url).p;
    CHECK(split_url(h->set.url, &h->texts, &at, NULL) == 0);
    h->host = arena_fmt(&h->texts, SLICE_FMT, SLICE_ARG(at.host)).p;
    h->port = at.port;
    h->channel = at.channel.n != 0 ? at.channel : arena_fmt(&h->texts, "%s", set->channel);
    if (set->authorization != NULL) {
        keep_authorization(h, set->authorization);
    }
    h->publisher = h->subscriber = (struct line){.fd = -1};
    h->publisher.in = h->publisher.out = h->subscriber.in = h->subscriber.out =
        BUF_INIT(REPLY_BYTES_MAX);
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->end = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(h->wake != -1 && h->end != -1);
    lock_init(&h->lock, LOCK_LEAF);
    h->thread = thread_start("hints", run_hints, h);
    return h;
}

static void make_readable(int fd)
{
    uint64_t one = 1;

    (void)!write(fd, &one, sizeof one);
}

void hints_close(struct hints **hp)
{
    struct hints *h = *hp;

    *hp = NULL;
    if (h == NULL) {
        return;
    }
    atomic_store(&h->ending, true);
    make_readable(h->end);
    make_readable(h->wake);
    pthread_join(h->thread, NULL);
    close(h->wake);
    close(h->end);
    buf_free(&h->publisher.in);
    buf_free(&h->publisher.out);
    buf_free(&h->subscriber.in);
    buf_free(&h->subscriber.out);
    lock_fini(&h->lock);
    if (h->authorization != NULL) {
        OPENSSL_cleanse(h->authorization, strlen(h->authorization));
        free(h->authorization);
    }
    arena_fini(&h->texts);
    free(h);
}

void hints_send(struct hints *h, uint64_t seq)
{
    uint64_t newest = atomic_load(&h->newest);

    while (newest < seq && !atomic_compare_exchange_weak(&h->newest, &newest, seq)) {
    }
    make_readable(h->wake);
}

void hints_status(struct hints *h, struct hints_status *out)
{
    lock_take(&h->lock);
    *out = h->status;
    lock_drop(&h->lock);
}
