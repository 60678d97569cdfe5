/* mirror.c - one question to the mirror: is it ready, how soon does it answer, what time has it. */
#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>

#include "agent/agent.h"
#include "agent/preflight/look.h"
#include "common/codec/httpdate.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/xfer/xfer.h"

enum {
    PATIENCE_MS = 4000
}; /* less than the check's limit: a silent mirror is no driver that hangs */

struct mirror_said {
    int rc;
    struct err why;
    int status;
    uint64_t took_ms;
    uint64_t date_s;  /* 0: unknown */
    uint64_t here_ms; /* our clock, in the middle of the question */
    uint64_t began_ms;
    uint64_t patience_ms;
    struct event_base *base;
};

static int on_mirror_check_head(void *arg, const struct xfer_head *h)
{
    struct mirror_said *m = arg;

    m->took_ms = clock_now_ms() - m->began_ms;
    m->here_ms = clock_unix_ms() - m->took_ms / 2;
    m->status = h->status;
    if (!httpdate_parse(xfer_head_field(h, "date"), clock_unix_s(), &m->date_s)) {
        m->date_s = 0;
    }
    return 0;
}

static int on_mirror_check_body(void *arg, struct slice bytes)
{
    (void)arg;
    (void)bytes;
    return 0;
}

static void on_mirror_check_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct mirror_said *m = arg;

    (void)body_bytes;
    m->rc = rc;
    m->why = *why;
    event_base_loopbreak(m->base);
}

static void on_late(evutil_socket_t fd, short what, void *arg)
{
    struct mirror_said *m = arg;

    (void)fd;
    (void)what;
    m->rc = err_set(&m->why, E_TIMEOUT, "no response within %g s", (double)m->patience_ms / 1000);
    event_base_loopbreak(m->base);
}

/* Nothing is freed: the process that asks ends with it. */
static const struct mirror_said *request_mirror_check(struct look *l)
{
    static const struct xfer_events events = {on_mirror_check_head, on_mirror_check_body,
                                              on_mirror_check_done};
    struct timeval patience;
    uint64_t limit_ms;
    struct buf url = BUF_INIT(8 << 10);
    struct mirror_said *m;

    if (l->mirror != NULL) {
        return l->mirror;
    }
    m = l->mirror = NEW(struct mirror_said);
    m->base = event_base_new();
    CHECK(m->base != NULL);
    buf_adds(&url, l->agent->mirror);
    buf_str(&url, "/readyz");
    m->patience_ms = expect_u64(&l->expect, EXPECT_timeout, &limit_ms) && limit_ms > 0
                         ? limit_ms - limit_ms / 5
                         : PATIENCE_MS;
    patience = clock_timeval(m->patience_ms);
    m->began_ms = clock_now_ms();
    event_base_once(m->base, -1, EV_TIMEOUT, on_late, m, &patience);
    xfer_start(xfer_loop_open(m->base, NULL),
               &(struct xfer_params){.url = buf_slice(&url),
                                     .ca_file = l->agent->ca_file,
                                     .no_issuer = AGENT_NO_ISSUER,
                                     .connect_timeout_ms = m->patience_ms},
               &events, m);
    event_base_dispatch(m->base);
    return m;
}

void check_mirror(struct look *l, struct finding *f)
{
    const struct mirror_said *m;
    char took[UNITS_TEXT], most[UNITS_TEXT];
    uint64_t want;

    if (l->agent->mirror.n == 0) {
        finding_skip(f, "no mirror is configured ($TRAINAGENT_MIRROR, --mirror)");
        return;
    }
    m = request_mirror_check(l);
    span_format(m->took_ms, took);
    if (m->rc != 0 && m->status == 0) {
        finding_bad(
            f, "MIRROR_AWAY",
            "check that mirrord runs, that the network is up and that TRAINAGENT_MIRROR is correct",
            "%s", m->why.text);
        return;
    }
    if (m->status == 503) {
        finding_bad(f, "MIRROR_UNREADY", "run mirrorctl status on its host to see why",
                    "the mirror responds that it is not ready (503)");
    } else if (m->status != 200 && m->status != 404) {
        finding_bad(f, "MIRROR_UNREADY", "another server may be running at that address",
                    "the mirror responds to /readyz with %d", m->status);
    }
    if (expect_u64(&l->expect, EXPECT_latency, &want) && m->took_ms > want) {
        span_format(want, most);
        finding_bad(f, "MIRROR_SLOW", "check the network path and the load of the mirror",
                    "the mirror took %s to respond, expected at most %s", took, most);
    }
    finding_ok(f,
               m->status == 404 ? "a server without /readyz responded after %s"
                                : "the mirror responded after %s",
               took);
}

void check_clock(struct look *l, struct finding *f)
{
    const struct mirror_said *m = l->agent->mirror.n != 0 ? request_mirror_check(l) : NULL;
    char skew[UNITS_TEXT], most[UNITS_TEXT];
    uint64_t first, last, off, want = 0;

    if (m == NULL || m->date_s == 0) {
        finding_skip(f,
                     m == NULL ? "no mirror is configured" : "the mirror's response had no Date");
        return;
    }
    /* Its date is cut to seconds, and was made anywhere within the question. */
    first = m->date_s * 1000 - min_u64(m->date_s * 1000, m->took_ms / 2);
    last = m->date_s * 1000 + 999 + m->took_ms / 2;
    off = m->here_ms < first ? first - m->here_ms : m->here_ms > last ? m->here_ms - last : 0;
    span_format(off, skew);
    if (expect_u64(&l->expect, EXPECT_clock_skew, &want) && off > want) {
        span_format(want, most);
        finding_bad(f, "CLOCK_SKEW",
                    "check that chrony or systemd-timesyncd runs, on this node and on the mirror",
                    "this node's clock is %s %s the mirror's, expected at most %s", skew,
                    m->here_ms < first ? "behind" : "ahead of", most);
    }
    finding_ok(f, off == 0 ? "within a second of the mirror's clock" : "%s from the mirror's clock",
               skew);
}
