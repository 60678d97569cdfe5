#include <inttypes.h>
#include <stdio.h>

#include "common/codec/jwrite.h"
#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

int ctl_cluster_status(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = act(c, request("cluster.status"), &ok, e);

    if (rc == 0 && strcmp(get_str(ok, "state"), "alone") == 0) {
        say(c, "this mirror stands alone: its configuration has no cluster section\n");
    } else if (rc == 0) {
        rc = print_troubles(c, ok);
        if (!c->json) {
            print_members(c, ok);
        }
    }
    json_decref(ok);
    return rc;
}

/* --- nodes --- */

static void member_row(struct table *t, const json_t *row)
{
    table_text(t, row, "id");
    table_text(t, row, "address");
    table_text(t, row, "version");
    table_text(t, row, "state");
    table_count(t, row, "weight");
    table_count(t, row, "applied");
    table_count(t, row, "behind");
    table_count(t, row, "silent_s");
    table_count(t, row, "format");
}

int ctl_cluster_nodes(struct ctl *c, struct err *e)
{
    json_t *ok = NULL;
    int rc = list(c, request("cluster.nodes"),
                  "NODE,ADDRESS,VERSION,STATE,>WEIGHT,>ENTRIES,>BEHIND,>SILENT S,>FORMAT",
                  member_row, &ok, e);

    if (rc == 0 && get_bool(ok, "alone")) {
        say(c, "this mirror stands alone: its configuration has no cluster section\n");
    }
    json_decref(ok);
    return rc;
}

/* --- drain --- */

static void on_progress_of(void *arg, uint64_t done, uint64_t total)
{
    progress_draw(arg, done, total, clock_now_ms());
}

/* An option that has a time, if it is given. */
static int add_time(struct ctl *c, json_t *req, const char *option, const char *name, struct err *e)
{
    const char *text = option_text(c, option);
    uint64_t ms;

    if (text != NULL && !span_parse(slice_str(text), &ms)) {
        return err_set(e, E_USAGE, "%s \"%s\" is no time; write 5m or 90s", option, text);
    }
    if (text != NULL) {
        json_object_set_new(req, name, json_integer((json_int_t)ms));
    }
    return 0;
}

int ctl_cluster_drain(struct ctl *c, struct err *e)
{
    json_t *req = request("cluster.drain"), *ok = NULL;
    bool off = option_given(c, "--off");
    struct progress *bar;
    int rc = add_time(c, req, "--timeout", "timeout_ms", e);

    rc = rc != 0 ? rc : add_time(c, req, "--notice", "notice_ms", e);
    if (rc != 0) {
        json_decref(req);
        return rc;
    }
    json_object_set_new(req, "off", json_boolean(off));
    bar = c->json || c->quiet ? NULL : progress_open("uploads");
    progress_counts(bar, "uploads");
    rc = ask(c, req, NULL, on_progress_of, bar, &ok, e);
    progress_close(&bar);
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        say(c,
            off ? "the mirror stays in the cluster\n"
                : "no upload is under way, and /readyz answers 503: the mirror may be stopped\n");
    }
    json_decref(ok);
    return rc;
}

/* --- adopt, leave --- */

static int move_cluster(struct ctl *c, const char *verb, const char *title, json_t **ok,
                        struct err *e)
{
    struct progress *bar = c->json || c->quiet ? NULL : progress_open(title);
    int rc = ask(c, request(verb), NULL, on_progress_of, bar, ok, e);

    progress_close(&bar);
    if (rc == 0 && c->json) {
        print_json(*ok);
    }
    return rc;
}

int ctl_cluster_adopt(struct ctl *c, struct err *e)
{
    char bytes[UNITS_TEXT], held[UNITS_TEXT];
    json_t *ok = NULL;
    int rc = move_cluster(c, "cluster.adopt", "adopt", &ok, e);

    if (rc == 0) {
        size_format(get_u64(ok, "uploaded_bytes"), bytes);
        span_format(get_u64(ok, "held_ms"), held);
        say(c,
            "%s: the repositories, tokens and pins of this mirror are the cluster's now (uploaded "
            "%s; changes waited for %s)\n",
            get_str(ok, "bucket"), bytes, held);
    }
    json_decref(ok);
    return rc;
}

/* For a bucket that is lost. Returns only when that fails. */
static int leave_without_daemon(struct ctl *c, struct err *e)
{
    char program[] = "mirrord", leave[] = "--leave-cluster", file[] = "-c", json[] = "--json",
         force[] = "--force";
    char *argv[7] = {program, leave, file, (char *)(uintptr_t)c->config};
    size_t n = 4;

    if (option_given(c, "--force")) {
        argv[n++] = force;
    }
    if (c->json) {
        argv[n++] = json;
    }
    say(c, "no daemon is running at %s: working on the store of %s directly\n", c->socket,
        c->config);
    return run_mirrord(argv, e);
}

int ctl_cluster_leave(struct ctl *c, struct err *e)
{
    char bytes[UNITS_TEXT];
    json_t *ok = NULL;
    int rc;

    if (!option_given(c, "--local")) {
        return err_set(e, E_USAGE,
                       "to stop a mirror whose repositories stay in the cluster, run `mirrorctl "
                       "cluster drain` and stop it; `cluster leave --local` fetches everything and "
                       "takes the mirror out with a copy of all repositories");
    }
    rc = move_cluster(c, "cluster.leave", "leave", &ok, e);
    if (rc == E_NETWORK) {
        return leave_without_daemon(c, e);
    }
    if (rc == 0) {
        size_format(get_u64(ok, "fetched_bytes"), bytes);
        say(c,
            "this mirror stands alone now (fetched %s): remove the cluster section from its "
            "configuration before the next start\n",
            bytes);
    }
    json_decref(ok);
    return rc;
}

/* --- void --- */

/* mirrord itself looks at the bucket. Returns only when that fails. */
static int void_without_daemon(const struct ctl *c, const char *digest, struct err *e)
{
    char program[] = "mirrord", entry[] = "--void-entry", file[] = "-c", json[] = "--json",
         with[] = "--digest";
    char *argv[9] = {program, entry, (char *)(uintptr_t)c->arg[0], file,
                     (char *)(uintptr_t)c->config};
    size_t n = 5;

    if (digest != NULL) {
        argv[n++] = with;
        argv[n++] = (char *)(uintptr_t)digest;
    }
    if (c->json) {
        argv[n++] = json;
    }
    return run_mirrord(argv, e);
}

static void say_void(const struct ctl *c, const json_t *ok)
{
    uint64_t entry = get_u64(ok, "entry");

    if (get_bool(ok, "declared")) {
        say(c, "entry %" PRIu64 " is void: restart the mirrors that have stopped\n", entry);
        return;
    }
    say(c, "entry %" PRIu64 " is damaged: %" PRIu64 " bytes with SHA-256 %s%s\n", entry,
        get_u64(ok, "bytes"), get_str(ok, "sha256"),
        get_bool(ok, "followed")
            ? "; there is a next entry, so a mirror has applied this one: if that mirror is not "
              "lost, start it, and let it write a checkpoint"
            : "");
    say(c,
        "What it had is lost if it is declared void, also what a client was told. Only if no "
        "mirror that goes on has applied it (ENTRIES of `mirrorctl cluster nodes`):\n"
        "  mirrorctl cluster void %" PRIu64 " --digest %s\n",
        entry, get_str(ok, "sha256"));
}

int ctl_cluster_void(struct ctl *c, struct err *e)
{
    const char *digest = option_text(c, "--digest");
    json_t *req, *ok = NULL;
    uint64_t entry;
    int rc;

    if (!slice_u64(slice_str(c->arg[0]), &entry) || entry == 0) {
        return err_set(e, E_USAGE, "\"%s\" is no number of an entry", c->arg[0]);
    }
    req = request("cluster.void");
    json_object_set_new(req, "entry", json_integer((json_int_t)entry));
    if (digest != NULL) {
        json_object_set_new(req, "sha256", json_string(digest));
    }
    rc = ask(c, req, NULL, NULL, NULL, &ok, e);
    if (rc == E_NETWORK) {
        return void_without_daemon(c, digest, e);
    }
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        say_void(c, ok);
    }
    json_decref(ok);
    return rc;
}

/* --- check --- */

struct steps {
    const struct ctl *ctl;
    json_t *list;
};

/* As mirrord --check-cluster writes it. */
static void on_check_step(void *arg, const json_t *row)
{
    struct steps *s = arg;
    const char *why = get_str(row, "why");

    json_array_append(s->list, (json_t *)(uintptr_t)row); /* counts it, changes nothing else */
    say(s->ctl, "%-6s  %s (%" PRIu64 " ms)%s%s\n", get_bool(row, "ok") ? "ok" : "FAILED",
        get_str(row, "step"), get_u64(row, "took_ms"), why[0] != '\0' ? ": " : "", why);
    fflush(stdout);
}

/* mirrord itself sends the requests. Returns only when that fails. */
static int check_without_daemon(struct ctl *c, struct err *e)
{
    char program[] = "mirrord", check[] = "--check-cluster", file[] = "-c", json[] = "--json";
    char *argv[] = {program, check, file, (char *)(uintptr_t)c->config, c->json ? json : NULL,
                    NULL};

    return run_mirrord(argv, e);
}

static json_t *json_of_err(const struct err *e)
{
    return json_pack("{s:s, s:i, s:s}", "code", err_name(e->code), "exit", err_sysexit(e->code),
                     "text", e->text);
}

/* Returns the exit code. */
static int report_check(const struct ctl *c, const struct steps *s, json_t *ok, const struct err *e)
{
    json_t *out = json_object();

    json_object_set_new(out, "ok", json_boolean(e->code == 0));
    json_object_set(out, "steps", s->list);
    if (e->code == 0) {
        json_object_set(out, "bucket", json_object_get(ok, "bucket"));
        say(c, "%s: the bucket keeps its promises\n", get_str(ok, "bucket"));
    } else {
        json_object_set_new(out, "error", json_of_err(e));
        fprintf(stderr, "mirrorctl: %s\n", e->text);
    }
    if (c->json) {
        print_json(out);
    }
    json_decref(out);
    return err_sysexit(e->code);
}

int ctl_cluster_check(struct ctl *c, struct err *e)
{
    struct steps s = {.ctl = c};
    struct err why = {0};
    json_t *ok = NULL;
    int rc;

    s.list = json_array();
    rc = ask(c, request("cluster.check"), on_check_step, NULL, &s, &ok, &why);
    if (c->socket == NULL) { /* the file names none, and mirrord says what is wrong with it */
        rc = check_without_daemon(c, e);
    } else if (rc == E_NETWORK && json_array_size(s.list) == 0) {
        say(c, "no daemon is running at %s: checking the bucket of %s directly\n", c->socket,
            c->config);
        rc = check_without_daemon(c, e);
    } else if (get_bool(ok, "alone")) {
        say(c, "the daemon stands alone: checking the bucket of %s directly\n", c->config);
        rc = check_without_daemon(c, e);
    } else {
        rc = report_check(c, &s, ok, &why);
    }
    json_decref(s.list);
    json_decref(ok);
    return rc;
}
