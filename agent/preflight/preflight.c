#include "agent/preflight/preflight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/preflight/probe.h"
#include "common/os/clock.h"

#define NODE_FILE "/etc/trainagent/preflight.conf"

enum group { FILES, DISK, MIRROR, KERNEL, NVML, CUDA, NCCL, COPY, GEMM, WRITE, GROUPS };
enum cost { QUICK, FULL };

_Static_assert((int)GROUPS <= (int)PROBE_GROUPS, "each group is watched");

static const struct {
    void (*look)(struct look *l, struct finding *f);
    enum group group;
    enum cost cost;
    enum level severity;
    unsigned limit_s;
} checks[CHECKS] = {
#define LOOK(name, text, group, cost, severity, limit_s, what)                                     \
    [CHECK_##name] = {check_##name, group, cost, LEVEL_##severity, limit_s},
#include "agent/preflight/checks.def"
#undef LOOK
};

static bool asks_driver(enum group g)
{
    return g == NVML || g == CUDA || g == COPY || g == GEMM;
}

/* --- what is expected ------------------------------------------------------------------------------------------------ */

static int read_node_file(const struct preflight_want *w, struct expect *x, struct err *e)
{
    const char *env = getenv("TRAINAGENT_PREFLIGHT");
    struct err why = {0};
    int rc;

    if (w->node_file != NULL) {
        return w->node_file[0] != '\0' ? expect_file(w->node_file, x, e) : 0;
    }
    if (env != NULL && env[0] != '\0') {
        return expect_file(env, x, e);
    }
    rc = expect_file(NODE_FILE, x, &why);
    if (rc == E_NOTFOUND) {
        return 0; /* a node without one has only what is expected by itself */
    }
    return rc != 0 ? err_set(e, rc, "%s", why.text) : 0;
}

static int settle(const struct preflight_want *w, struct expect *x, struct err *e)
{
    struct expect node = {0};
    int rc = read_node_file(w, &node, e);

    for (size_t i = 0; i < EXPECT_KEYS; i++) {
        node.is[i].node = node.is[i].set;
    }
    expect_init(x);
    expect_lay(x, &node);
    if (w->job != NULL) {
        expect_lay(x, w->job);
    }
    if (w->said != NULL) {
        expect_lay(x, w->said);
    }
    x->is[EXPECT_drain] = node.is[EXPECT_drain]; /* the node's own: no job decides that */
    return rc;
}

static bool wanted(const struct preflight_want *w, const struct expect *x, size_t i)
{
    uint64_t bit = UINT64_C(1) << i;

    if ((x->skip & bit) != 0) {
        return false;
    }
    /* What is named is made, whatever it costs. */
    return x->is[EXPECT_ONLY].set ? (x->only & bit) != 0 : checks[i].cost == QUICK || w->full;
}

/* --- the verdict ----------------------------------------------------------------------------------------------------- */

static void count(struct preflight_report *r)
{
    bool looked = false;

    r->worst = LEVEL_OK;
    for (size_t i = 0; i < r->n; i++) {
        enum level l = (enum level)r->finding[i].level;
        r->count[l]++;
        if (l != LEVEL_SKIP) {
            looked = true;
            r->worst = l > r->worst ? l : r->worst;
        }
    }
    r->worst = looked ? r->worst : LEVEL_SKIP;
}

static void put_text(struct preflight_report *r)
{
    unsigned more = 0;

    if (r->worst == LEVEL_OK) {
        snprintf(r->text, sizeof r->text, "%u checks, %u skipped", r->count[LEVEL_OK],
                 r->count[LEVEL_SKIP]);
        return;
    }
    if (r->worst == LEVEL_SKIP) {
        snprintf(r->text, sizeof r->text, "nothing could be looked at");
        return;
    }
    more = r->count[r->worst] - 1;
    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];
        if (f->level == (uint8_t)r->worst) {
            int n = snprintf(r->text, sizeof r->text, "%s: %s", check_name(f->check), f->text);
            if (more > 0 && n < (int)sizeof r->text) {
                snprintf(r->text + n, sizeof r->text - (size_t)n, " (and %u more)", more);
            }
            return;
        }
    }
}

int preflight_run(const struct preflight_want *w, struct preflight_report *out, struct err *e)
{
    uint64_t began_ms = clock_now_ms(), limit_ms = 0;
    struct probe_check todo[CHECKS];
    struct look l = {.sight = {w->root != NULL ? w->root : ""}, .agent = w->agent, .out = w->out};
    int rc;

    *out = (struct preflight_report){.began_unix_s = clock_unix_s()};
    rc = settle(w, &l.expect, e);
    if (rc != 0) {
        return rc;
    }
    out->drain = l.expect.is[EXPECT_drain].n != 0;
    out->start_on = (enum level)l.expect.is[EXPECT_start_on].n;
    expect_u64(&l.expect, EXPECT_timeout, &limit_ms);
    for (size_t i = 0; i < CHECKS; i++) {
        if (wanted(w, &l.expect, i)) {
            todo[out->n] =
                (struct probe_check){checks[i].look, checks[i].group,
                                     limit_ms != 0 ? limit_ms : (uint64_t)checks[i].limit_s * 1000,
                                     asks_driver(checks[i].group)};
            out->finding[out->n++] = (struct finding){
                .check = (uint8_t)i,
                .worst_allowed = (l.expect.warn >> i & 1) != 0 ? (uint8_t)LEVEL_WARN
                                                               : (uint8_t)checks[i].severity};
        }
    }
    rc = probe_run(&l, todo, out->finding, out->n, e);
    out->took_ms = (uint32_t)(clock_now_ms() - began_ms);
    count(out);
    put_text(out);
    return rc;
}
