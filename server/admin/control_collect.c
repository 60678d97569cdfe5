/* Verbs about the content in a cluster's bucket: cluster.gc, cluster.verify. */
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/talk.h"
#include "server/cluster/cluster.h"

struct showing {
    struct talk *t;
    const char *what; /* the step that was reported last */
    uint64_t reported_ms;
};

/* A client that left ends the work, and nothing is condemned by halves. */
static int on_run_progress(void *arg, const char *what, uint64_t done, uint64_t total)
{
    struct showing *x = arg;
    uint64_t now_ms = clock_now_ms();

    if (what != x->what) {
        x->what = what;
        jwrite_str(talk_row(x->t), "step", what);
        return talk_row_flush(x->t);
    }
    if (now_ms - x->reported_ms < 200) {
        return 0;
    }
    x->reported_ms = now_ms;
    return talk_progress(x->t, done, total);
}

/* --- cluster.gc --- */

int verb_cluster_gc(struct talk *t, struct err *e)
{
    struct showing x = {.t = t};
    struct collect_report r;
    int rc;

    if (t->deps->cluster == NULL) {
        jwrite_bool(t->result, "alone", true);
        return 0;
    }
    rc = cluster_collect(t->deps->cluster, talk_flag(t, "dry_run"), on_run_progress, &x, &r, e);
    jwrite_u64(t->result, "indexes", r.indexes);
    jwrite_u64(t->result, "objects", r.objects);
    jwrite_u64(t->result, "bytes", r.bytes);
    jwrite_u64(t->result, "condemned", r.condemned);
    jwrite_u64(t->result, "condemned_bytes", r.condemned_bytes);
    jwrite_u64(t->result, "copied_bytes", r.copied_bytes);
    jwrite_u64(t->result, "orphans", r.orphans);
    jwrite_u64(t->result, "orphan_bytes", r.orphan_bytes);
    return rc;
}

/* --- cluster.verify --- */

static void on_cluster_finding(void *arg, const char *what)
{
    struct showing *x = arg;

    jwrite_str(talk_row(x->t), "finding", what);
    (void)talk_row_end(x->t);
}

int verb_cluster_verify(struct talk *t, struct err *e)
{
    struct showing x = {.t = t};
    const struct cluster_verify how = {.deep = talk_flag(t, "deep"),
                                       .finding = on_cluster_finding,
                                       .progress = on_run_progress,
                                       .arg = &x};
    struct content_verified r;
    int rc;

    if (t->deps->cluster == NULL) {
        jwrite_bool(t->result, "alone", true);
        return 0;
    }
    rc = cluster_verify(t->deps->cluster, &how, &r, e);
    jwrite_bool(t->result, "clean", rc == 0 && r.findings == 0);
    jwrite_u64(t->result, "findings", r.findings);
    jwrite_u64(t->result, "entries", r.entries);
    jwrite_u64(t->result, "indexes", r.indexes);
    jwrite_u64(t->result, "objects", r.objects);
    jwrite_u64(t->result, "bytes", r.bytes);
    jwrite_u64(t->result, "files", r.files);
    jwrite_u64(t->result, "read_bytes", r.deep_bytes);
    jwrite_u64(t->result, "condemned", r.condemned);
    jwrite_u64(t->result, "orphans", r.orphans);
    jwrite_u64(t->result, "orphan_bytes", r.orphan_bytes);
    jwrite_u64(t->result, "unknown_keys", r.unknown);
    return rc;
}
