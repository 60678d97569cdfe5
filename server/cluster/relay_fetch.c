#include "server/cluster/relay_fetch.h"

#include <event2/event.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <time.h>

#include "common/codec/url.h"
#include "common/os/clock.h"
#include "common/xfer/xfer.h"
#include "server/cluster/loop_pool.h"

enum {
    LOOK_MS = 300,
    CONNECT_MS = 1000,
    UPLOADED_SILENCE_S = 20,
    ROW_SILENCE_S = 2,
    URL_BYTES = 128 << 10
};

/* One request, on a loop that the calling thread runs. */
struct question {
    struct event_base *base;
    int (*sink)(void *arg, struct slice bytes);
    void *arg;
    uint32_t silence_s;
    int status;
    int rc; /* of the transfer, or of the sink */
    struct err *e;
    bool began; /* the sink has bytes */
};

static int on_head(void *arg, const struct xfer_head *h)
{
    struct question *q = arg;

    q->status = h->status;
    return h->framed ? 0 : E_PROTOCOL;
}

static int on_body(void *arg, struct slice bytes)
{
    struct question *q = arg;

    if (q->status != 200) {
        return 0;
    }
    q->began = true;
    q->rc = q->sink(q->arg, bytes);
    return q->rc;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct question *q = arg;

    (void)body_bytes;
    if (q->rc == 0 && rc != 0) {
        q->rc = err_set(q->e, rc, "%s", why->text);
    }
    event_base_loopbreak(q->base);
}

static void run_question(struct relay *r, struct question *q, const struct xfer_params *p)
{
    static const struct xfer_events events = {on_head, on_body, on_done};
    struct pool_loop *l = loop_pool_take(relay_loops(r));

    q->base = l->base;
    (void)xfer_start(l->transfers, p, &events, q);
    event_base_loop(l->base, EVLOOP_NO_EXIT_ON_EMPTY);
    loop_pool_put(relay_loops(r), l);
}

/* False: this mirror does not have it. */
static bool ask_one(struct relay *r, const struct member *m, struct slice target,
                    struct question *q)
{
    struct sockaddr_storage nobody = {.ss_family = AF_INET6};
    struct arena a = {0};
    const struct http_req req = {.method_text = SLICE("GET"),
                                 .target = target,
                                 .host = SLICE("cluster"),
                                 .peer = &nobody,
                                 .arena = &a};
    char hop[RELAY_FIELD_ROOM];
    struct slice fields[2] = {SLICE("Host: cluster")};
    struct xfer_params p = {.fields = fields,
                            .nfields = 2,
                            .connect_timeout_ms = CONNECT_MS,
                            .idle_timeout_s = q->silence_s};

    relay_sign(r, &req, target, hop);
    fields[1] = arena_fmt(&a, RELAY_FIELD ": %s", hop);
    p.url = arena_fmt(&a, "%s" SLICE_FMT, m->address, SLICE_ARG(target));
    q->status = 0;
    q->rc = 0;
    run_question(r, q, &p);
    relay_count(r, &(struct relay_stats){.sent = 1, .failed = q->status == 0});
    arena_fini(&a);
    return q->status == 200 && (q->rc == 0 || q->began);
}

/* Until one has it. The number of those that have answered. */
static size_t ask_each(struct relay *r, const struct member *m, size_t n, struct slice target,
                       struct question *q, bool *found)
{
    size_t answered = 0;

    *found = false;
    for (size_t i = 0; !*found && i < n; i++) {
        *found = ask_one(r, &m[i], target, q);
        /* Silence for so short a time may be a busy mirror's. */
        if (q->status == 0 && (q->rc != E_TIMEOUT || q->silence_s != ROW_SILENCE_S)) {
            relay_failed(r, m[i].node, clock_now_ms());
        }
        answered += q->status != 0 && q->status < 500;
    }
    return answered;
}

static int judge(const struct question *q, bool found, bool all_answered, struct err *e)
{
    if (!found && !all_answered) {
        return err_set(e, E_AGAIN, "a mirror of the cluster that may have it cannot be reached");
    }
    return found ? q->rc : err_set(e, E_NOTFOUND, "no other mirror of the cluster has it");
}

/* All that were there a moment ago: one that is about to leave, or has just come back, is not in
 * the list of those that are alive. */
static int ask_recent(struct relay *r, struct slice target, struct question *q)
{
    struct member *m = mem_array(MEMBERS_MAX, sizeof *m);
    size_t n = relay_recent(r, m, MEMBERS_MAX);
    bool found;
    size_t answered = ask_each(r, m, n, target, q, &found);

    free(m);
    return judge(q, found, answered >= n && relay_knows_others(r), q->e);
}

static int ask_until_it_is_back(struct relay *r, struct slice target, struct question *q)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * 1000000L};
    uint64_t end_ms = clock_now_ms() + RELAY_RESTART_MS;
    int rc = ask_recent(r, target, q);

    if (rc != E_AGAIN || !relay_wait_begin(r)) {
        return rc;
    }
    while (rc == E_AGAIN && clock_now_ms() < end_ms && relay_may_wait(r)) {
        nanosleep(&look, NULL);
        rc = ask_recent(r, target, q);
    }
    relay_wait_end(r);
    return rc;
}

int relay_fetch_uploaded(struct relay *r, struct slice repo, struct slice tree,
                         const struct digest *d, int (*sink)(void *arg, struct slice bytes),
                         void *arg, struct err *e)
{
    struct question q = {.sink = sink, .arg = arg, .silence_s = UPLOADED_SILENCE_S, .e = e};
    struct buf target = BUF_INIT(URL_BYTES);
    char hex[DIGEST_HEX + 1];
    int rc;

    digest_format(d, hex);
    buf_str(&target, RELAY_UPLOADED_PATH "?repo=");
    url_encode(repo, &target);
    buf_str(&target, "&tree=");
    url_encode(tree, &target);
    buf_addf(&target, "&sha256=%s", hex);
    rc = ask_until_it_is_back(r, buf_slice(&target), &q);
    buf_free(&target);
    return rc;
}

static int ask_alive(struct relay *r, struct slice target, struct question *q)
{
    struct member *m = mem_array(MEMBERS_MAX, sizeof *m);
    bool found;
    size_t answered = ask_each(r, m, relay_others(r, m, MEMBERS_MAX), target, q, &found);
    size_t recent = relay_recent(r, m, MEMBERS_MAX);

    free(m);
    return judge(q, found, answered >= recent && relay_knows_others(r), q->e);
}

static int into_buf(void *arg, struct slice bytes)
{
    struct buf *out = arg;

    buf_adds(out, bytes);
    return out->rc;
}

int relay_fetch_row(struct relay *r, struct slice key, struct buf *out, struct err *e)
{
    struct question q = {.sink = into_buf, .arg = out, .silence_s = ROW_SILENCE_S, .e = e};
    struct buf target = BUF_INIT(URL_BYTES);
    int rc = E_NOTFOUND;

    if (key.n <= RELAY_KEY_MAX && !relay_is_absent(r, key)) {
        buf_str(&target, RELAY_ROW_PATH "?key=");
        url_encode(key, &target);
        rc = ask_alive(r, buf_slice(&target), &q);
        if (rc == E_NOTFOUND) {
            relay_note_absent(r, key);
        }
    }
    buf_free(&target);
    return rc;
}
