#include "agent/probe.h"

#include <event2/event.h>

#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "common/xfer/xfer.h"

struct probe {
    struct event_base *base;
    uint64_t began_ms;
    uint64_t patience_ms;
    unsigned left; /* without a result yet */
};

static int on_probe_head(void *arg, const struct xfer_head *h)
{
    struct mirror_probe *m = arg;

    m->took_ms = clock_now_ms() - m->of->began_ms;
    m->here_ms = clock_unix_ms() - m->took_ms / 2;
    m->status = h->status;
    if (!httpdate_parse(xfer_head_field(h, "date"), clock_unix_s(), &m->date_s)) {
        m->date_s = 0;
    }
    return 0;
}

static int on_probe_body(void *arg, struct slice bytes)
{
    (void)arg;
    (void)bytes;
    return 0;
}

static void on_probe_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct mirror_probe *m = arg;

    (void)body_bytes;
    m->rc = rc;
    m->why = *why;
    if (--m->of->left == 0) {
        event_base_loopbreak(m->of->base);
    }
}

static void on_probe_late(evutil_socket_t fd, short what, void *arg)
{
    struct probe *p = arg;

    (void)fd;
    (void)what;
    event_base_loopbreak(p->base);
}

static void start_probe(struct probe *p, const struct agent *a, struct xfer_loop *xfers,
                        struct mirror_probe *m)
{
    static const struct xfer_events events = {on_probe_head, on_probe_body, on_probe_done};
    struct buf url = BUF_INIT(8 << 10);

    buf_adds(&url, m->url);
    buf_str(&url, "/readyz");
    xfer_start(xfers,
               &(struct xfer_params){.url = buf_slice(&url),
                                     .ca_file = a->ca_file,
                                     .no_issuer = AGENT_NO_ISSUER,
                                     .connect_timeout_ms = p->patience_ms},
               &events, m);
    buf_free(&url);
}

void probe_mirrors(const struct agent *a, uint64_t patience_ms, struct mirror_probe *out)
{
    unsigned n = mirrors_count(a->mirrors);
    struct probe p = {.base = event_base_new(), .patience_ms = patience_ms, .left = n};
    const struct timeval patience = clock_timeval(patience_ms);
    struct xfer_loop *xfers;

    CHECK(p.base != NULL);
    xfers = xfer_loop_open(p.base, NULL);
    event_base_once(p.base, -1, EV_TIMEOUT, on_probe_late, &p, &patience);
    p.began_ms = clock_now_ms();
    for (unsigned i = 0; i < n; i++) {
        out[i] = (struct mirror_probe){.url = mirrors_url(a->mirrors, i), .of = &p};
        out[i].rc =
            err_set(&out[i].why, E_TIMEOUT, "no response within %g s", (double)patience_ms / 1000);
        start_probe(&p, a, xfers, &out[i]);
    }
    event_base_dispatch(p.base);
    xfer_loop_close(&xfers);
    event_base_free(p.base);
}
