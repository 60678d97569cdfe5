/* Verbs about the store itself: verify, cache.gc. */
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/talk.h"
#include "server/store/keep.h"

/* --- verify --- */

struct checking {
    struct talk *t;
    uint64_t reported_ms;
};

/* A client that left, or a daemon that stops and hangs up on it, ends the work. */
static bool on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct checking *c = arg;
    uint64_t now_ms = clock_now_ms();

    if (now_ms - c->reported_ms < 200) {
        return true;
    }
    c->reported_ms = now_ms;
    return talk_progress(c->t, done, total) == 0;
}

static void on_finding(void *arg, const char *what)
{
    struct checking *c = arg;
    struct buf *row = talk_row(c->t);

    jwrite_str(row, "finding", what);
    (void)talk_row_end(c->t);
}

void report_json(const struct verify_report *r, struct buf *out)
{
    jwrite_u64(out, "blobs", r->blobs);
    jwrite_u64(out, "bytes", r->bytes);
    jwrite_u64(out, "orphans", r->orphans);
    jwrite_u64(out, "damaged", r->damaged);
    jwrite_u64(out, "missing", r->missing);
    jwrite_u64(out, "bad_rows", r->bad_rows);
    jwrite_u64(out, "repaired", r->repaired);
    jwrite_bool(out, "clean", verify_is_clean(r));
}

int verb_verify(struct talk *t, struct err *e)
{
    struct checking c = {.t = t};
    struct verify_report r = {0};
    int rc = verify_run(t->deps->store, talk_flag(t, "deep"), talk_flag(t, "repair"), on_progress,
                        on_finding, &c, &r, e);

    report_json(&r, t->result);
    return rc;
}

/* --- cache.gc --- */

int verb_cache_gc(struct talk *t, struct err *e)
{
    struct gc_report r = {0};
    int rc;

    if (atomic_exchange(t->deps->collecting, true)) {
        return err_set(e, E_BUSY, "a garbage collection is running; try again when it has ended");
    }
    rc = gc_run(t->deps->store, talk_number(t, "grace_s", 3600), talk_flag(t, "dry_run"), &r, e);
    *t->deps->collecting = false;
    jwrite_u64(t->result, "blobs", r.blobs);
    jwrite_u64(t->result, "bytes", r.bytes);
    jwrite_u64(t->result, "nodes", r.nodes);
    return rc;
}
