/* mirror.c - one request to each mirror: is it ready, how soon does it answer, what time has it. */
#include <inttypes.h>
#include <stdio.h>

#include "agent/agent.h"
#include "agent/preflight/look.h"
#include "agent/probe.h"
#include "common/codec/units.h"

enum {
    PATIENCE_MS = 4000
}; /* less than the check's limit: a silent mirror is no driver that hangs */

/* Nothing is freed: the process that asks ends with it. NULL: there is no mirror. */
static const struct mirror_probe *request_mirror_check(struct look *l)
{
    uint64_t limit_ms;

    if (l->agent->mirror.n != 0 && l->mirror == NULL) {
        l->mirror = mem_array(mirrors_count(l->agent->mirrors), sizeof l->mirror[0]);
        probe_mirrors(l->agent,
                      expect_u64(&l->expect, EXPECT_timeout, &limit_ms) && limit_ms > 0
                          ? limit_ms - limit_ms / 5
                          : PATIENCE_MS,
                      l->mirror);
    }
    return l->mirror;
}

static void judge_mirror(const struct look *l, const struct mirror_probe *m, struct finding *f)
{
    char took[UNITS_TEXT], most[UNITS_TEXT];
    uint64_t want;

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
                    SLICE_FMT " responds that it is not ready (503)", SLICE_ARG(m->url));
    } else if (m->status != 200 && m->status != 404) {
        finding_bad(f, "MIRROR_UNREADY", "another server may be running at that address",
                    SLICE_FMT " responds to /readyz with %d", SLICE_ARG(m->url), m->status);
    }
    if (expect_u64(&l->expect, EXPECT_latency, &want) && m->took_ms > want) {
        span_format(want, most);
        finding_bad(f, "MIRROR_SLOW", "check the network path and the load of the mirror",
                    SLICE_FMT " took %s to respond, expected at most %s", SLICE_ARG(m->url), took,
                    most);
    }
    if (mirrors_count(l->agent->mirrors) > 1) {
        finding_ok(f, SLICE_FMT " responded after %s", SLICE_ARG(m->url), took);
    } else {
        finding_ok(f,
                   m->status == 404 ? "a server without /readyz responded after %s"
                                    : "the mirror responded after %s",
                   took);
    }
}

void check_mirror(struct look *l, struct finding *f)
{
    const struct mirror_probe *m = request_mirror_check(l);

    if (m == NULL) {
        finding_skip(f, "no mirror is configured ($TRAINAGENT_MIRROR, --mirror)");
        return;
    }
    for (unsigned i = 0; i < mirrors_count(l->agent->mirrors); i++) {
        judge_mirror(l, &m[i], f);
    }
}

/* Of the first one that said what time it is. */
static const struct mirror_probe *one_with_clock(const struct look *l, const struct mirror_probe *m)
{
    for (unsigned i = 0; m != NULL && i < mirrors_count(l->agent->mirrors); i++) {
        if (m[i].date_s != 0) {
            return &m[i];
        }
    }
    return m;
}

void check_clock(struct look *l, struct finding *f)
{
    const struct mirror_probe *m = one_with_clock(l, request_mirror_check(l));
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
