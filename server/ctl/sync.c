#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

enum { EXIT_FAILED = 69, EXIT_HELD = 75 };

static json_t *of_repo(const struct ctl *c, const char *verb)
{
    json_t *req = request(verb);

    json_object_set_new(req, "repo", json_string(c->arg[0]));
    return req;
}

static void sync_row(struct table *t, const json_t *row)
{
    const json_t *last = json_object_get(row, "last");
    uint64_t next = get_u64(row, "next_unix_s"), now = clock_unix_s();
    char span[UNITS_TEXT];

    table_text(t, row, "repo");
    table_text(t, row, "state");
    table_ago(t, get_u64(row, "last_ok_unix_s"));
    if (next == 0) {
        table_add(t, "-");
    } else if (!t->ctl->tty) {
        table_addf(t, "%" PRIu64, next);
    } else {
        span_format((next > now ? next - now : 0) * 1000, span);
        table_addf(t, "in %s", span);
    }
    table_addf(t, get_u64(row, "seq") != 0 ? "v%" PRIu64 : "-", get_u64(row, "seq"));
    table_count(t, row, "entries");
    table_size(t, get_u64(row, "bytes"));
    table_text(t, last, "why");
}

int ctl_sync_ls(struct ctl *c, struct err *e)
{
    return list(c, request("sync.ls"), "REPO,STATE,>LAST GOOD,>NEXT,VERSION,>ENTRIES,>SIZE,WHY",
                sync_row, NULL, e);
}

static void run_row(struct table *t, const json_t *row)
{
    uint64_t from = get_u64(row, "started_unix_s"), to = get_u64(row, "ended_unix_s");
    char span[UNITS_TEXT];

    table_count(t, row, "run");
    table_ago(t, from);
    span_format((to > from ? to - from : 0) * 1000, span);
    table_add(t, to != 0 ? span : "-");
    table_text(t, row, "outcome");
    table_addf(t, "+%" PRIu64 " ~%" PRIu64 " -%" PRIu64, get_u64(row, "new"),
               get_u64(row, "changed"), get_u64(row, "gone"));
    table_size(t, get_u64(row, "wire_bytes"));
    table_size(t, get_u64(row, "saved_bytes"));
    table_addf(t, get_u64(row, "seq") != 0 ? "v%" PRIu64 : "-", get_u64(row, "seq"));
    table_text(t, row, "why");
}

int ctl_sync_show(struct ctl *c, struct err *e)
{
    return list(c, of_repo(c, "sync.show"),
                ">RUN,>BEGAN,>TOOK,OUTCOME,ENTRIES,>WIRE,>SAVED,VERSION,WHY", run_row, NULL, e);
}

static void line_row(void *arg, const json_t *row)
{
    uint64_t ms = get_u64(row, "unix_ms");
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    char when[32];

    (void)arg;
    gmtime_r(&s, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    printf("%s.%03u  %s\n", when, (unsigned)(ms % 1000), get_str(row, "text"));
}

static void gather(void *arg, const json_t *row)
{
    json_array_append(arg, (json_t *)(uintptr_t)row);
}

int ctl_sync_logs(struct ctl *c, struct err *e)
{
    json_t *req = of_repo(c, "sync.logs"), *ok = NULL, *lines = json_array();
    uint64_t run = 0;
    int rc;

    if (c->run != NULL && !slice_u64(slice_str(c->run), &run)) {
        json_decref(req);
        json_decref(lines);
        return err_set(e, E_USAGE,
                       "--run \"%s\" is no number, runs are counted, see `mirrorctl "
                       "sync show`",
                       c->run);
    }
    json_object_set_new(req, "run", json_integer((json_int_t)run));
    rc = ask(c, req, c->json ? gather : line_row, NULL, lines, &ok, e);
    if (rc == 0 && c->json) {
        print_json(lines);
    }
    json_decref(lines);
    json_decref(ok);
    return rc;
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    progress_draw(arg, done, total, clock_now_ms());
}

/* What people want to know of a run, in one line. */
static void tell(const struct ctl *c, const json_t *r)
{
    const char *outcome = get_str(r, "outcome");
    char bytes[UNITS_TEXT], saved[UNITS_TEXT];

    size_format(get_u64(r, "wire_bytes"), bytes);
    size_format(get_u64(r, "saved_bytes"), saved);
    say(c,
        "run %" PRIu64 " of %s: %s; %" PRIu64 " listed, %" PRIu64 " new, %" PRIu64
        " changed, %" PRIu64 " gone; %" PRIu64 " files fetched, %s came, %s was here%s%s\n",
        get_u64(r, "run"), c->arg[0], outcome, get_u64(r, "listed"), get_u64(r, "new"),
        get_u64(r, "changed"), get_u64(r, "gone"), get_u64(r, "files_done"), bytes, saved,
        get_str(r, "why")[0] != '\0' ? ": " : "", get_str(r, "why"));
    if (strcmp(outcome, "planned") == 0) {
        size_format(get_u64(r, "bytes_todo"), bytes);
        say(c, "it would fetch %" PRIu64 " files, %s\n", get_u64(r, "files_todo"), bytes);
    }
    if (strcmp(outcome, "held") == 0) {
        say(c,
            "`mirrorctl snapshot diff %s v%" PRIu64 "` shows it against what is live, `mirrorctl "
            "sync approve %s` publishes it\n",
            c->arg[0], get_u64(r, "seq"), c->arg[0]);
    }
}

int ctl_sync_run(struct ctl *c, struct err *e)
{
    json_t *req = of_repo(c, "sync.run"), *ok = NULL;
    bool wait = c->wait || c->dry_run; /* a dry run is asked for what it says */
    struct progress *bar = NULL;
    const char *outcome;
    int rc;

    json_object_set_new(req, "wait", json_boolean(wait));
    json_object_set_new(req, "dry_run", json_boolean(c->dry_run));
    json_object_set_new(req, "force", json_boolean(c->force));
    if (wait && !c->json && !c->quiet) {
        bar = progress_open(c->arg[0]);
    }
    rc = ask(c, req, NULL, on_progress, bar, &ok, e);
    progress_close(&bar);
    if (rc == 0 && c->json) {
        print_json(ok);
    }
    if (rc == 0 && !wait) {
        say(c, "run %" PRIu64 " of %s has begun\n", get_u64(ok, "run"), c->arg[0]);
    } else if (rc == 0) {
        tell(c, ok);
        outcome = get_str(ok, "outcome");
        rc = strcmp(outcome, "failed") == 0                                    ? EXIT_FAILED
             : strcmp(outcome, "held") == 0 || strcmp(outcome, "stopped") == 0 ? EXIT_HELD
                                                                               : 0;
    }
    json_decref(ok);
    return rc;
}

static int simple(struct ctl *c, const char *verb, const char *told, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_repo(c, verb), &ok, e);

    if (rc == 0) {
        say(c, "%s: %s\n", c->arg[0], told);
    }
    json_decref(ok);
    return rc;
}

int ctl_sync_pause(struct ctl *c, struct err *e)
{
    return simple(c, "sync.pause", "paused", e);
}

int ctl_sync_resume(struct ctl *c, struct err *e)
{
    return simple(c, "sync.resume", "runs by its schedule again", e);
}

int ctl_sync_stop(struct ctl *c, struct err *e)
{
    return simple(c, "sync.stop", "its run stops", e);
}

int ctl_sync_approve(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_repo(c, "sync.approve"), &ok, e);

    if (rc == 0) {
        say(c, "%s is v%" PRIu64 " now, %" PRIu64 " entries\n", c->arg[0], get_u64(ok, "seq"),
            get_u64(ok, "entries"));
    }
    json_decref(ok);
    return rc;
}
