/* mirrorctl cluster gc */
#include <inttypes.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

struct collecting {
    const struct ctl *ctl;
    struct progress *bar;
};

static void on_step(void *arg, const json_t *row)
{
    struct collecting *x = arg;

    progress_wipe(x->bar);
    if (x->bar != NULL) {
        say(x->ctl, "%s\n", get_str(row, "step"));
        fflush(stdout);
    }
}

static void on_run_progress(void *arg, uint64_t done, uint64_t total)
{
    struct collecting *x = arg;

    progress_draw(x->bar, done, total, clock_now_ms());
}

static void say_count(const struct ctl *c, const char *what, const json_t *ok, const char *count,
                      const char *bytes)
{
    char size[UNITS_TEXT];
    uint64_t n = get_u64(ok, count);

    size_format(get_u64(ok, bytes), size);
    say(c, "%s %" PRIu64 " %s, %s\n", what, n, plural(n, "object", "objects"), size);
}

static void say_collected(const struct ctl *c, const json_t *ok, bool dry_run)
{
    if (get_bool(ok, "alone")) {
        say(c, "this mirror stands alone: its configuration has no cluster section\n");
        return;
    }
    say_count(c, "the log names", ok, "objects", "bytes");
    say_count(c, dry_run ? "would condemn" : "condemned", ok, "condemned", "condemned_bytes");
    say_count(c, dry_run ? "orphans that would be deleted:" : "orphans that were deleted:", ok,
              "orphans", "orphan_bytes");
}

int ctl_cluster_gc(struct ctl *c, struct err *e)
{
    json_t *req = request("cluster.gc"), *ok = NULL;
    struct collecting x = {.ctl = c};
    bool dry_run = option_given(c, "--dry-run");
    int rc;

    json_object_set_new(req, "dry_run", json_boolean(dry_run));
    x.bar = c->json || c->quiet ? NULL : progress_open("cluster gc");
    progress_counts(x.bar, "indexes");
    rc = ask(c, req, on_step, on_run_progress, &x, &ok, e);
    progress_close(&x.bar);
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        say_collected(c, ok, dry_run);
    }
    json_decref(ok);
    return rc;
}
