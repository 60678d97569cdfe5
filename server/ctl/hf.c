#include <inttypes.h>
#include <stdio.h>

#include "common/base/buf.h"
#include "common/codec/progress.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "server/ctl/ctl.h"

/* "12/30", "?" where the listing is not known. */
static void add_share(struct table *t, const json_t *row, const char *here, const char *all)
{
    if (json_is_null(json_object_get(row, all))) {
        table_add(t, "?");
    } else {
        table_addf(t, "%" PRIu64 "/%" PRIu64, get_u64(row, here), get_u64(row, all));
    }
}

static void add_marks(struct table *t, const json_t *row)
{
    bool pinned = get_bool(row, "pinned"), held = get_bool(row, "held");

    table_add(t, pinned && held ? "pinned,held" : pinned ? "pinned" : held ? "held" : "-");
}

static void repo_row(struct table *t, const json_t *row)
{
    const char *type = get_str(row, "type");
    bool model = strcmp(type, "models") == 0;

    table_text(t, row, "repo");
    table_text(t, row, "kind");
    table_addf(t, "%s%s%s", model ? "" : type, model ? "" : "/", get_str(row, "id"));
    table_count(t, row, "revisions");
    add_share(t, row, "files_here", "files");
    table_bytes(t, row, "bytes_here");
    table_bytes(t, row, "bytes");
    table_ago(t, get_u64(row, "last_asked_unix_s"));
    add_marks(t, row);
}

int ctl_hf_ls(struct ctl *c, struct err *e)
{
    json_t *req = request("hf.ls");

    if (c->args > 0) {
        json_object_set_new(req, "repo", json_string(c->arg[0]));
    }
    if (c->args > 1) {
        json_object_set_new(req, "prefix", json_string(c->arg[1]));
    }
    return list(c, req, "REPO,KIND,ID,>REVISIONS,>FILES,>HERE,>OF,>LAST ASKED,MARKS", repo_row,
                NULL, e);
}

static void revision_row(struct table *t, const json_t *row)
{
    table_text(t, row, "revision");
    table_text(t, row, "commit");
    table_ago(t, get_u64(row, "asked_unix_s"));
    add_share(t, row, "files_here", "files");
    table_bytes(t, row, "bytes_here");
    table_bytes(t, row, "bytes");
    add_marks(t, row);
}

static void add_hf_file_row(struct table *t, const json_t *row)
{
    bool lfs = !json_is_null(json_object_get(row, "sha256"));
    const char *name = get_str(row, lfs ? "sha256" : "git_oid");
    const char *state = get_str(row, "state");
    uint64_t size = get_u64(row, "size"), have = get_u64(row, "have");

    table_text(t, row, "path");
    table_size(t, size);
    if (strcmp(state, "partial") == 0 && size != 0) {
        table_addf(t, "partial %" PRIu64 "%%", have * 100 / size);
    } else {
        table_add(t, state);
    }
    table_addf(t, t->ctl->tty ? "%.12s" : "%s", name);
}

/* [REPO] ID [REV]: a repo's name has no '/', and most ids have. */
static json_t *of_id(const struct ctl *c, const char *verb, bool *has_rev)
{
    json_t *req = request(verb);
    size_t i = 0;

    if (c->args == 3 || (c->args == 2 && strchr(c->arg[0], '/') == NULL)) {
        json_object_set_new(req, "repo", json_string(c->arg[i++]));
    }
    json_object_set_new(req, "id", json_string(c->arg[i]));
    *has_rev = strchr(c->arg[i++], '@') != NULL || i < c->args;
    if (i < c->args) {
        json_object_set_new(req, "revision", json_string(c->arg[i]));
    }
    return req;
}

int ctl_hf_show(struct ctl *c, struct err *e)
{
    bool has_rev;
    json_t *req = of_id(c, "hf.show", &has_rev);

    if (has_rev) {
        return list(c, req, "PATH,>SIZE,HERE,DIGEST", add_hf_file_row, NULL, e);
    }
    return list(c, req, "REVISION,COMMIT,>ASKED,>FILES,>HERE,>OF,MARKS", revision_row, NULL, e);
}

/* --- ahead of demand -------------------------------------------------------------------------- */

static void prefetch_row(struct table *t, const json_t *row)
{
    const char *type = get_str(row, "type");
    bool model = strcmp(type, "models") == 0;

    table_addf(t, "%s/%s%s%s@%s", get_str(row, "repo"), model ? "" : type, model ? "" : "/",
               get_str(row, "id"), get_str(row, "revision"));
    table_text(t, row, "state");
    add_share(t, row, "files_done", "files");
    table_bytes(t, row, "bytes_done");
    table_bytes(t, row, "bytes");
    table_ago(t, get_u64(row, "began_unix_s"));
    table_ago(t, get_u64(row, "ended_unix_s"));
    table_text(t, row, "why");
}

/* A pipe or a file of any kind; what stands around the token is cut off by the daemon. */
static int add_hf_token(const struct ctl *c, json_t *req, struct err *e)
{
    const char *path = option_text(c, "--token-file");
    struct buf text = BUF_INIT(4096);
    json_t *token = NULL;
    int rc;

    if (path == NULL) {
        return 0;
    }
    rc = buf_read_file(&text, path, e);
    if (rc == 0) {
        struct slice s = slice_trim(buf_slice(&text));
        while (s.n != 0 && (s.p[s.n - 1] == '\n' || s.p[s.n - 1] == '\r')) {
            s.n--;
        }
        token = s.n != 0 ? json_stringn(s.p, s.n) : NULL;
        rc = token == NULL ? err_set(e, E_INVALID,
                                     "%s contains no token: it is empty or not text; write a "
                                     "token of the Hub into it",
                                     path)
                           : json_object_set_new(req, "token", token);
    }
    if (text.p != NULL) {
        explicit_bzero(text.p, text.n);
    }
    buf_free(&text);
    return rc;
}

static json_t *json_of_words(const struct words *w)
{
    json_t *list = json_array();

    for (size_t i = 0; i < w->count; i++) {
        json_array_append_new(list, json_string(w->at[i]));
    }
    return list;
}

struct watch { /* a prefetch that is waited for */
    const struct ctl *ctl;
    struct progress *bar;
    char state[16]; /* the last one, and the reason, that were printed */
    char why[320];
    bool hint_reported;
};

static void tell_how_to_end(struct watch *w)
{
    if (!w->hint_reported) {
        fprintf(stderr,
                "Ctrl-C leaves the prefetch running; `mirrorctl hf prefetch %s --stop` "
                "stops it\n",
                w->ctl->arg[0]);
    }
    w->hint_reported = true;
}

static void until_when(uint64_t unix_s, char out[UNITS_TEXT])
{
    uint64_t now = clock_unix_s();

    span_format((unix_s > now ? unix_s - now : 0) * 1000, out);
}

/* A try that failed: a line for each reason, not for each try. */
static void tell_waiting(struct watch *w, const json_t *r)
{
    const char *id = get_str(r, "id"), *why = get_str(r, "why");
    char next[UNITS_TEXT], end[UNITS_TEXT];
    size_t n = strlen(id);

    if (strcmp(w->why, why) == 0) {
        return;
    }
    snprintf(w->why, sizeof w->why, "%s", why);
    w->state[0] = '\0';
    if (strncmp(why, id, n) == 0 && strncmp(why + n, ": ", 2) == 0) {
        why += n + 2; /* the line begins with it */
    }
    progress_wipe(w->bar);
    fprintf(stderr, "%s: waiting: %s", id, why);
    if (get_u64(r, "next_unix_s") != 0 && get_u64(r, "gives_up_unix_s") != 0) {
        until_when(get_u64(r, "next_unix_s"), next);
        until_when(get_u64(r, "gives_up_unix_s"), end);
        fprintf(stderr, "; next attempt in %s, gives up in %s", next, end);
    }
    fputc('\n', stderr);
    tell_how_to_end(w);
}

/* A bar on a terminal; elsewhere a line for each state, on stderr. */
static void on_prefetch(void *arg, const json_t *r)
{
    struct watch *w = arg;
    const char *state = get_str(r, "state");
    bool rests = strcmp(state, "waiting") == 0 || strcmp(state, "asking") == 0;
    char label[96];

    if (rests && get_str(r, "why")[0] != '\0') {
        tell_waiting(w, r);
    } else if (rests && w->why[0] != '\0') {
        /* The next try: it may well fail for the same reason. */
    } else if (strcmp(w->state, state) != 0) {
        snprintf(w->state, sizeof w->state, "%s", state);
        w->why[0] = '\0';
        if (w->bar == NULL) {
            fprintf(stderr, "%s: %s\n", get_str(r, "id"), state);
        }
    }
    snprintf(label, sizeof label, "%s: %" PRIu64 "/%" PRIu64 " %s", get_str(r, "id"),
             get_u64(r, "files_done"), get_u64(r, "files"),
             plural(get_u64(r, "files"), "file", "files"));
    progress_name(w->bar, label);
    progress_draw(w->bar, get_u64(r, "bytes_done"),
                  get_u64(r, "files") != 0 ? get_u64(r, "bytes") : UINT64_MAX, clock_now_ms());
}

static void tell_prefetch(const struct ctl *c, const json_t *ok)
{
    uint64_t bytes = get_u64(ok, "bytes_done"), here = get_u64(ok, "here_bytes");
    char came[UNITS_TEXT], was[UNITS_TEXT], all[UNITS_TEXT];

    size_format(bytes - (here < bytes ? here : bytes), came);
    size_format(here, was);
    size_format(get_u64(ok, "bytes"), all);
    if (strcmp(get_str(ok, "state"), "done") == 0) {
        say(c, "%s at %.12s is complete: %" PRIu64 " %s, %s; %s fetched, %s was here already%s\n",
            get_str(ok, "id"), get_str(ok, "commit"), get_u64(ok, "files"),
            plural(get_u64(ok, "files"), "file", "files"), all, came, was,
            get_bool(ok, "pin") ? "; pinned" : "");
        return;
    }
    say(c, "%s %s: %s%s%s\n", get_str(ok, "id"),
        get_bool(ok, "joined") ? "is already being fetched" : "is being fetched",
        get_str(ok, "state"), get_str(ok, "why")[0] != '\0' ? ", " : "", get_str(ok, "why"));
    say(c,
        "the daemon continues in the background; `mirrorctl hf prefetch` shows it, `mirrorctl "
        "hf prefetch %s --stop` stops it\n",
        c->arg[0]);
}

static int stop_prefetch(struct ctl *c, struct err *e)
{
    json_t *req = request("hf.stop"), *ok = NULL;
    int rc;

    json_object_set_new(req, "id", json_string(c->arg[0]));
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        say(c, "%s: stopped; the files that were fetched are kept\n", c->arg[0]);
    }
    json_decref(ok);
    return rc;
}

static int begin_prefetch(struct ctl *c, struct err *e)
{
    bool wait = option_given(c, "--wait"), watched = wait && !c->json && !c->quiet;
    json_t *req = request("hf.prefetch"), *ok = NULL;
    struct watch w = {.ctl = c};
    int rc;

    json_object_set_new(req, "id", json_string(c->arg[0]));
    json_object_set_new(req, "include", json_of_words(option_words(c, "--include")));
    json_object_set_new(req, "exclude", json_of_words(option_words(c, "--exclude")));
    json_object_set_new(req, "pin", json_boolean(option_given(c, "--pin")));
    json_object_set_new(req, "wait", json_boolean(wait));
    rc = add_hf_token(c, req, e);
    if (rc != 0) {
        json_decref(req);
        return rc;
    }
    if (watched) {
        w.bar = progress_open(c->arg[0]);
    }
    if (w.bar != NULL) {
        tell_how_to_end(&w);
    }
    rc = ask(c, req, watched ? on_prefetch : NULL, NULL, &w, &ok, e);
    progress_close(&w.bar);
    if (rc == 0 && c->json) {
        print_json(ok);
    } else if (rc == 0) {
        tell_prefetch(c, ok);
    }
    json_decref(ok);
    return rc;
}

int ctl_hf_prefetch(struct ctl *c, struct err *e)
{
    bool stop = option_given(c, "--stop");

    if (c->args == 0 && !stop) {
        return list(c, request("hf.prefetches"),
                    "REVISION,STATE,>FILES,>DONE,>OF,>BEGAN,>ENDED,WHY", prefetch_row, NULL, e);
    }
    if (c->args == 0) {
        return err_set(e, E_USAGE,
                       "--stop needs the ID of a prefetch; see `mirrorctl hf prefetch`");
    }
    return stop ? stop_prefetch(c, e) : begin_prefetch(c, e);
}

/* --- pins ------------------------------------------------------------------------------------- */

int ctl_hf_pin(struct ctl *c, struct err *e)
{
    json_t *req = request("hf.pin"), *ok = NULL;
    int rc;

    json_object_set_new(req, "id", json_string(c->arg[0]));
    rc = add_hf_token(c, req, e);
    if (rc != 0) {
        json_decref(req);
        return rc;
    }
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        say(c,
            "pinned %s at %.12s: those of its %" PRIu64 " %s that are here are kept; `mirrorctl "
            "hf prefetch` fetches the others\n",
            get_str(ok, "id"), get_str(ok, "commit"), get_u64(ok, "files"),
            plural(get_u64(ok, "files"), "file", "files"));
    }
    json_decref(ok);
    return rc;
}

int ctl_hf_unpin(struct ctl *c, struct err *e)
{
    json_t *req = request("hf.unpin"), *ok = NULL;
    int rc;

    json_object_set_new(req, "id", json_string(c->arg[0]));
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        say(c, "unpinned %s\n", c->arg[0]);
    }
    json_decref(ok);
    return rc;
}

/* --- rollback --------------------------------------------------------------------------------- */

static void tell_rollback(const struct ctl *c, const json_t *ok)
{
    const char *id = get_str(ok, "id"), *branch = get_str(ok, "branch");

    if (!get_bool(ok, "held")) {
        say(c, "%s: %s is no longer held\n", id, branch);
        return;
    }
    if (get_bool(ok, "hosted")) {
        say(c, "%s: %s is now at %.12s; the next upload continues from there\n", id, branch,
            get_str(ok, "commit"));
        return;
    }
    say(c, "%s: %s is now at %.12s and stays there until `mirrorctl hf rollback %s --release`\n",
        id, branch, get_str(ok, "commit"), c->arg[0]);
    if (get_bool(ok, "synced")) {
        say(c, "all of repo %s is at v%" PRIu64 " again\n", get_str(ok, "repo"),
            get_u64(ok, "seq"));
    } else if (!json_is_null(json_object_get(ok, "files"))) {
        say(c, "%" PRIu64 " of its %" PRIu64 " %s here\n", get_u64(ok, "files_here"),
            get_u64(ok, "files"), plural(get_u64(ok, "files"), "file is", "files are"));
    }
}

int ctl_hf_rollback(struct ctl *c, struct err *e)
{
    json_t *req = request("hf.rollback"), *ok = NULL;
    int rc;

    json_object_set_new(req, "id", json_string(c->arg[0]));
    json_object_set_new(req, "release", json_boolean(option_given(c, "--release")));
    if (c->args > 1) {
        json_object_set_new(req, "revision", json_string(c->arg[1]));
    }
    rc = act(c, req, &ok, e);
    if (rc == 0) {
        tell_rollback(c, ok);
    }
    json_decref(ok);
    return rc;
}
