/* mirrorctl cluster gc, cluster verify */
#include <inttypes.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

struct collecting {
    const struct ctl *ctl;
    struct progress *bar;
    json_t *findings; /* NULL: none are expected */
};

static void on_step(void *arg, const json_t *row)
{
    struct collecting *x = arg;

    progress_wipe(x->bar);
    if (json_object_get(row, "finding") != NULL) {
        json_array_append(x->findings, json_object_get(row, "finding"));
        say(x->ctl, "%s\n", get_str(row, "finding"));
    } else if (x->bar != NULL) {
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
    if (!dry_run && get_u64(ok, "condemned") != 0) {
        say(c, "what is condemned is deleted once collect_delay has passed\n");
    }
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

/* --- verify --- */

static void say_verified(const struct ctl *c, const json_t *ok)
{
    char size[UNITS_TEXT];
    uint64_t files = get_u64(ok, "files"), n = get_u64(ok, "findings");

    size_format(get_u64(ok, "read_bytes"), size);
    say(c,
        "checked %" PRIu64 " entries of the log, %" PRIu64 " indexes, %" PRIu64 " %s of trees; "
        "read %s of content\n",
        get_u64(ok, "entries"), get_u64(ok, "indexes"), files, plural(files, "file", "files"),
        size);
    say_count(c, "the log names", ok, "objects", "bytes");
    say_count(c, "orphans and uploads under way:", ok, "orphans", "orphan_bytes");
    if (n == 0) {
        say(c, "nothing is missing\n");
    } else {
        say(c, "%" PRIu64 " %s\n", n, plural(n, "finding", "findings"));
    }
}

int ctl_cluster_verify(struct ctl *c, struct err *e)
{
    json_t *req = request("cluster.verify"), *ok = NULL;
    struct collecting x = {.ctl = c, .findings = json_array()};
    int rc;

    json_object_set_new(req, "deep", json_boolean(option_given(c, "--deep")));
    x.bar = c->json || c->quiet ? NULL : progress_open("cluster verify");
    rc = ask(c, req, on_step, on_run_progress, &x, &ok, e);
    progress_close(&x.bar);
    if (rc == 0 && get_bool(ok, "alone")) {
        say_collected(c, ok, false);
        if (c->json) {
            print_json(ok);
        }
    } else if (rc == 0) {
        say_verified(c, ok);
        json_object_set(ok, "list", x.findings);
        if (c->json) {
            print_json(ok);
        }
        rc = get_bool(ok, "clean") ? 0 : err_sysexit(E_CORRUPT);
    }
    json_decref(x.findings);
    json_decref(ok);
    return rc;
}
