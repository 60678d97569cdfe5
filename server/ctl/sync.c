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

/* The last run's: an approved or a running one has none. */
static bool has_reason(const char *state)
{
    return strcmp(state, "published") != 0 && strcmp(state, "unchanged") != 0;
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
        table_ago(t, next);
    } else {
        span_format((next > now ? next - now : 0) * 1000, span);
        table_addf(t, "in %s", span);
    }
    table_addf(t, get_u64(row, "seq") != 0 ? "v%" PRIu64 : "-", get_u64(row, "seq"));
    table_count(t, row, "entries");
    table_size(t, get_u64(row, "bytes"));
    if (strcmp(get_str(row, "state"), "on hold") == 0) {
        table_addf(t, "runs publish nothing until `mirrorctl snapshot hold %s --off`",
                   get_str(row, "repo"));
    } else if (has_reason(get_str(row, "state"))) {
        table_text(t, last, "why");
    } else {
        table_add(t, "-");
    }
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
    table_add(t, to == 0 ? "-" : to > from ? span : "< 1 s");
    table_text(t, row, "outcome");
    table_addf(t, "+%" PRIu64 " ~%" PRIu64 " -%" PRIu64, get_u64(row, "new"),
               get_u64(row, "changed"), get_u64(row, "gone"));
    table_size(t, get_u64(row, "wire_bytes"));
    table_size(t, get_u64(row, "saved_bytes"));
    table_addf(t, get_u64(row, "seq") != 0 ? "v%" PRIu64 : "-", get_u64(row, "seq"));
    table_text(t, row, "why");
}

static void tell_running(const struct ctl *c, const json_t *r)
{
    char done[UNITS_TEXT], todo[UNITS_TEXT], rate[UNITS_TEXT], left[UNITS_TEXT];

    size_format(get_u64(r, "bytes_done"), done);
    size_format(get_u64(r, "bytes_todo"), todo);
    size_format(get_u64(r, "rate_bytes_per_s"), rate);
    span_format(get_u64(r, "left_s") * 1000, left);
    say(c, "run %" PRIu64 " is in stage %s, from %s: %" PRIu64 " listed", get_u64(r, "run"),
        get_str(r, "stage"), get_str(r, "upstream"), get_u64(r, "listed"));
    if (get_u64(r, "files_todo") != 0) {
        say(c, ", %" PRIu64 " of %" PRIu64 " %s, %s of %s", get_u64(r, "files_done"),
            get_u64(r, "files_todo"), plural(get_u64(r, "files_todo"), "file", "files"), done,
            todo);
    }
    if (get_u64(r, "rate_bytes_per_s") != 0) {
        say(c, ", %s/s, %s left", rate, left);
    }
    say(c, "\n");
}

/* What is held waits for a word: which one. */
static void tell_held(const struct ctl *c, uint64_t seq, const char *why)
{
    say(c,
        "v%" PRIu64 " is held%s%s: `mirrorctl snapshot diff %s v%" PRIu64 "` compares it with "
        "the live snapshot, `mirrorctl sync approve %s` publishes it\n",
        seq, why[0] != '\0' ? ", " : "", why, c->arg[0], seq, c->arg[0]);
}

int ctl_sync_show(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    const json_t *last;
    char span[UNITS_TEXT];
    uint64_t next, now = clock_unix_s();
    int rc =
        list(c, of_repo(c, "sync.show"),
             ">RUN,>BEGAN,>TOOK,OUTCOME,ENTRIES,>RECEIVED,>REUSED,VERSION,WHY", run_row, &ok, e);

    if (rc == 0) {
        last = json_object_get(ok, "last");
        next = get_u64(ok, "next_unix_s");
        if (get_bool(ok, "running")) {
            tell_running(c, last);
        } else if (get_bool(ok, "elsewhere")) {
            say(c, "run %" PRIu64 " is under way on the mirror %s\n", get_u64(last, "run"),
                get_str(last, "mirror"));
        } else if (next != 0) {
            span_format((next > now ? next - now : 0) * 1000, span);
            say(c, "the next run begins in %s\n", span);
        }
        if (get_u64(ok, "held_seq") != 0) {
            tell_held(c, get_u64(ok, "held_seq"),
                      strcmp(get_str(last, "outcome"), "held") == 0 ? get_str(last, "why") : "");
        }
        if (get_bool(ok, "hold") && get_u64(ok, "held_seq") == 0) {
            say(c,
                "the repo stays at v%" PRIu64 ": runs publish nothing until `mirrorctl snapshot "
                "hold %s --off`\n",
                get_u64(ok, "seq"), c->arg[0]);
        }
        if (get_bool(ok, "paused")) {
            say(c, "its syncs are paused; `mirrorctl sync resume %s` resumes them\n", c->arg[0]);
        }
    }
    json_decref(ok);
    return rc;
}

struct log_lines {
    const struct ctl *ctl;
    json_t *all; /* for --json */
    bool titled;
};

static void line_row(void *arg, const json_t *row)
{
    struct log_lines *x = arg;
    const struct ctl *c = x->ctl;
    uint64_t ms = get_u64(row, "unix_ms");
    time_t s = (time_t)(ms / 1000);
    struct tm tm;
    char when[32];

    say(c, "%s", c->plain && !x->titled ? "TIME\tWHAT\n" : "");
    x->titled = true;
    gmtime_r(&s, &tm);
    strftime(when, sizeof when, c->plain ? "%Y-%m-%dT%H:%M:%S" : "%Y-%m-%d %H:%M:%S", &tm);
    say(c, "%s.%03u%s", when, (unsigned)(ms % 1000), c->plain ? "Z\t" : "  ");
    say(c, "%s\n", get_str(row, "text"));
}

static void gather_sync_row(void *arg, const json_t *row)
{
    const struct log_lines *x = arg;

    json_array_append(x->all, (json_t *)(uintptr_t)row);
}

int ctl_sync_logs(struct ctl *c, struct err *e)
{
    json_t *req = of_repo(c, "sync.logs"), *ok = NULL;
    struct log_lines lines = {.ctl = c, .all = json_array()};
    const char *which = c->args > 1 ? c->arg[1] : option_text(c, "--run");
    uint64_t run = 0;
    int rc;

    if (which != NULL && !slice_u64(slice_str(which), &run)) {
        json_decref(req);
        json_decref(lines.all);
        return err_set(e, E_USAGE,
                       "run \"%s\" is not a number; see `mirrorctl sync show %s` for the runs",
                       which, c->arg[0]);
    }
    json_object_set_new(req, "run", json_integer((json_int_t)run));
    rc = ask(c, req, c->json ? gather_sync_row : line_row, NULL, &lines, &ok, e);
    if (rc == 0 && c->json) {
        print_json(lines.all);
    }
    json_decref(lines.all);
    json_decref(ok);
    return rc;
}

struct watch { /* a run that is waited for */
    const struct ctl *ctl;
    struct progress *bar;
    char stage[16];
    uint64_t attempts_reported; /* the last one that failed */
};

/* What it is at: "debian: fetch 12/100 files". */
static void describe_sync_state(const struct ctl *c, const json_t *r, char *out, size_t room)
{
    const char *stage = get_str(r, "stage");

    if (strcmp(stage, "fetch") == 0) {
        snprintf(out, room, "%s: fetch %" PRIu64 "/%" PRIu64 " %s", c->arg[0],
                 get_u64(r, "files_done"), get_u64(r, "files_todo"),
                 plural(get_u64(r, "files_todo"), "file", "files"));
    } else if (strcmp(stage, "list") == 0) {
        snprintf(out, room, "%s: list %" PRIu64 " %s", c->arg[0], get_u64(r, "listed"),
                 plural(get_u64(r, "listed"), "entry", "entries"));
    } else {
        snprintf(out, room, "%s: %s", c->arg[0], stage);
    }
}

/* "attempt 1 of 6 failed: 10.0.0.5:80: Connection refused; again in 18 s" */
static void tell_attempt(struct watch *w, const json_t *r)
{
    uint64_t next = get_u64(r, "next_try_unix_s"), now = clock_unix_s();
    char span[UNITS_TEXT];

    if (w->attempts_reported == get_u64(r, "attempts")) {
        return;
    }
    w->attempts_reported = get_u64(r, "attempts");
    span_format((next > now ? next - now : 0) * 1000, span);
    progress_wipe(w->bar);
    fprintf(stderr, "%s: attempt %" PRIu64 " of %" PRIu64 " failed: %s; next attempt in %s\n",
            w->ctl->arg[0], get_u64(r, "attempts"), get_u64(r, "tries"), get_str(r, "why"), span);
}

/* A bar on a terminal; elsewhere a line for each stage, on stderr. Attempts that fail have a line
 * on both. */
static void on_run(void *arg, const json_t *r)
{
    struct watch *w = arg;
    bool fetch = strcmp(get_str(r, "stage"), "fetch") == 0;
    char label[200];

    if (strcmp(get_str(r, "stage"), "retrying") == 0) {
        tell_attempt(w, r);
        snprintf(w->stage, sizeof w->stage, "retrying");
        return;
    }
    describe_sync_state(w->ctl, r, label, sizeof label);
    if (w->bar != NULL) {
        progress_name(w->bar, label);
        progress_draw(w->bar, get_u64(r, "bytes_done"),
                      fetch ? get_u64(r, "bytes_todo") : UINT64_MAX, clock_now_ms());
    } else if (strcmp(w->stage, get_str(r, "stage")) != 0) {
        snprintf(w->stage, sizeof w->stage, "%s", get_str(r, "stage"));
        fprintf(stderr, "%s%s%s\n", label, fetch ? ", from " : "",
                fetch ? get_str(r, "upstream") : "");
    }
}

/* What people want to know of a run, in one line. */
static void print_sync_run(const struct ctl *c, const json_t *r)
{
    const char *outcome = get_str(r, "outcome");
    uint64_t files = get_u64(r, "files_done");
    char bytes[UNITS_TEXT], saved[UNITS_TEXT] = "";

    size_format(get_u64(r, "wire_bytes"), bytes);
    if (get_u64(r, "saved_bytes") != 0) {
        size_format(get_u64(r, "saved_bytes"), saved);
    }
    say(c,
        "run %" PRIu64 " of %s: %s; %" PRIu64 " listed, %" PRIu64 " new, %" PRIu64
        " changed, %" PRIu64 " gone; %" PRIu64 " %s fetched, %s received%s%s%s%s%s\n",
        get_u64(r, "run"), c->arg[0], outcome, get_u64(r, "listed"), get_u64(r, "new"),
        get_u64(r, "changed"), get_u64(r, "gone"), files, plural(files, "file", "files"), bytes,
        saved[0] != '\0' ? ", " : "", saved, saved[0] != '\0' ? " were here already" : "",
        get_str(r, "why")[0] != '\0' ? ": " : "", get_str(r, "why"));
    if (strcmp(outcome, "planned") == 0) {
        size_format(get_u64(r, "bytes_todo"), bytes);
        say(c, "a run would fetch %" PRIu64 " %s, %s\n", get_u64(r, "files_todo"),
            plural(get_u64(r, "files_todo"), "file", "files"), bytes);
    }
    if (strcmp(outcome, "held") == 0) {
        tell_held(c, get_u64(r, "seq"), "");
    }
}

static void plan_row(void *arg, const json_t *row)
{
    const char *text = get_str(row, "text");

    (void)arg;
    if (text[0] != '\0' && strchr("+~-", text[0]) != NULL && text[1] == ' ') {
        puts(text);
    }
}

/* A dry run's log says entry by entry what would change. */
static int print_plan(struct ctl *c, uint64_t run, struct err *e)
{
    json_t *req = of_repo(c, "sync.logs"), *ok = NULL;
    int rc;

    json_object_set_new(req, "run", json_integer((json_int_t)run));
    rc = ask(c, req, c->quiet ? NULL : plan_row, NULL, NULL, &ok, e);
    json_decref(ok);
    return rc;
}

int ctl_sync_run(struct ctl *c, struct err *e)
{
    json_t *req = of_repo(c, "sync.run"), *ok = NULL;
    bool dry_run = option_given(c, "--dry-run");
    bool wait = dry_run || option_given(c, "--wait"); /* a dry run is asked for what it says */
    struct watch w = {.ctl = c};
    bool watched = wait && !c->json && !c->quiet;
    const char *outcome;
    int rc;

    json_object_set_new(req, "wait", json_boolean(wait));
    json_object_set_new(req, "dry_run", json_boolean(dry_run));
    json_object_set_new(req, "force", json_boolean(option_given(c, "--force")));
    if (watched) {
        w.bar = progress_open(c->arg[0]);
    }
    rc = ask(c, req, watched ? on_run : NULL, NULL, &w, &ok, e);
    progress_close(&w.bar);
    if (rc == 0 && c->json) {
        print_json(ok);
    }
    if (rc == 0 && dry_run && !c->json) {
        rc = print_plan(c, get_u64(ok, "run"), e);
    }
    if (rc == 0 && !wait) {
        say(c, "run %" PRIu64 " of %s has started\n", get_u64(ok, "run"), c->arg[0]);
    } else if (rc == 0) {
        print_sync_run(c, ok);
        outcome = get_str(ok, "outcome");
        rc = strcmp(outcome, "failed") == 0                                    ? EXIT_FAILED
             : strcmp(outcome, "held") == 0 || strcmp(outcome, "stopped") == 0 ? EXIT_HELD
                                                                               : 0;
    }
    json_decref(ok);
    return rc;
}

static int simple(struct ctl *c, const char *verb, const char *reported, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_repo(c, verb), &ok, e);

    if (rc == 0) {
        say(c, "%s: %s\n", c->arg[0], reported);
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
    return simple(c, "sync.resume", "resumed; runs start by its schedule again", e);
}

int ctl_sync_stop(struct ctl *c, struct err *e)
{
    return simple(c, "sync.stop", "its run is being stopped", e);
}

int ctl_sync_approve(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, of_repo(c, "sync.approve"), &ok, e);

    if (rc == 0) {
        say(c, "%s is now at v%" PRIu64 ", %" PRIu64 " %s\n", c->arg[0], get_u64(ok, "seq"),
            get_u64(ok, "entries"), plural(get_u64(ok, "entries"), "entry", "entries"));
    }
    json_decref(ok);
    return rc;
}
