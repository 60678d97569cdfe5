#include "server/sync/hook.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/jwrite.h"
#include "common/os/child.h"

enum { LINE_MAX_BYTES = 800, LINES_MAX = 200, GRACE_MS = 2000, DOCUMENT_MAX = 64 << 10 };

static const char *hook_name(enum hook h)
{
    switch (h) {
    case HOOK_BEFORE:
        return "before";
    case HOOK_PUBLISHED:
        return "published";
    case HOOK_HELD:
        return "held";
    case HOOK_FAILED:
        return "failed";
    }
    return "?";
}

static const char *const *hook_argv(const struct sync_conf *c, enum hook h, size_t *n)
{
    switch (h) {
    case HOOK_BEFORE:
        *n = c->hook_before_count;
        return c->hook_before;
    case HOOK_PUBLISHED:
        *n = c->hook_published_count;
        return c->hook_published;
    case HOOK_HELD:
        *n = c->hook_held_count;
        return c->hook_held;
    case HOOK_FAILED:
        *n = c->hook_failed_count;
        return c->hook_failed;
    }
    *n = 0;
    return NULL;
}

bool hook_is_set(const struct sync_conf *c, enum hook h)
{
    size_t n = 0;

    (void)hook_argv(c, h, &n);
    return n != 0;
}

/* --- a program's input --- */

struct count {
    const char *name;
    uint64_t value;
};
enum { COUNTS = 9 };

static void counts_of(const struct run_report *r, struct count out[COUNTS])
{
    const struct count all[COUNTS] = {
        {"listed", r->listed},
        {"new", r->fresh},
        {"changed", r->changed},
        {"gone", r->gone},
        {"same", r->same},
        {"kept", r->kept},
        {"files_done", r->files_done},
        {"bytes_done", r->bytes_done},
        {"wire_bytes", r->wire_bytes},
    };
    memcpy(out, all, sizeof all);
}

static void root_of(const struct run_report *r, char hex[DIGEST_HEX + 1])
{
    hex[0] = '\0';
    if (r->seq != 0) {
        digest_format(&r->root, hex);
    }
}

static void write_document(struct buf *out, enum hook h, const char *repo,
                           const struct run_report *r)
{
    struct count count[COUNTS];
    char root[DIGEST_HEX + 1];

    counts_of(r, count);
    root_of(r, root);
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "hook", hook_name(h));
    jwrite_str(out, "repo", repo);
    jwrite_u64(out, "run", r->id);
    jwrite_str(out, "outcome", run_outcome_name(r->outcome));
    jwrite_str(out, "why", r->why);
    jwrite_str(out, "upstream", r->upstream);
    jwrite_u64(out, "seq", r->seq);
    jwrite_str(out, "root", root);
    jwrite_u64(out, "started_unix_s", r->started_unix_s);
    jwrite_u64(out, "ended_unix_s", r->ended_unix_s);
    for (size_t i = 0; i < COUNTS; i++) {
        jwrite_u64(out, count[i].name, count[i].value);
    }
    jwrite_close(out, '}');
    buf_byte(out, '\n');
}

/* Of our own environment only what programs need to find things: it may hold where secrets are. */
static const char *const passed_on[] = {"PATH", "HOME", "LANG", "LC_ALL", "TZ"};
enum { VARIABLES = ARRAY_LEN(passed_on) + 10 };

static const char *hook_variable(struct arena *a, const char *name, const char *value)
{
    return arena_fmt(a, "%s=%s", name, value).p;
}

static const char *hook_number_text(struct arena *a, uint64_t n)
{
    return arena_fmt(a, "%" PRIu64, n).p;
}

static const char *const *hook_environment(struct arena *a, enum hook h, const char *repo,
                                           const struct run_report *r)
{
    const char **env = arena_alloc(a, VARIABLES * sizeof *env);
    struct buf text = BUF_INIT(4096);
    struct count count[COUNTS];
    char root[DIGEST_HEX + 1];
    size_t n = 0;

    for (size_t i = 0; i < ARRAY_LEN(passed_on); i++) {
        const char *value = getenv(passed_on[i]);
        if (value != NULL) {
            env[n++] = hook_variable(a, passed_on[i], value);
        }
    }
    counts_of(r, count);
    for (size_t i = 0; i < COUNTS; i++) {
        buf_addf(&text, "%s%s=%" PRIu64, i != 0 ? " " : "", count[i].name, count[i].value);
    }
    root_of(r, root);
    env[n++] = hook_variable(a, "MIRRORD_HOOK", hook_name(h));
    env[n++] = hook_variable(a, "MIRRORD_REPO", repo);
    env[n++] = hook_variable(a, "MIRRORD_RUN", hook_number_text(a, r->id));
    env[n++] = hook_variable(a, "MIRRORD_SEQ", hook_number_text(a, r->seq));
    env[n++] = hook_variable(a, "MIRRORD_ROOT", root);
    env[n++] = hook_variable(a, "MIRRORD_OUTCOME", run_outcome_name(r->outcome));
    env[n++] = hook_variable(a, "MIRRORD_WHY", r->why);
    env[n++] = hook_variable(a, "MIRRORD_UPSTREAM", r->upstream);
    env[n++] = hook_variable(a, "MIRRORD_COUNTS", buf_cstr(&text));
    env[n] = NULL;
    buf_free(&text);
    return env;
}

/* --- what it says --- */

struct hooking {
    const struct hook_site *site;
    enum hook hook;
    struct child *child;
    struct child_end end;
    bool over;
    struct buf line;
    uint64_t lines;
};

static void say_line(struct hooking *x)
{
    if (x->lines++ < LINES_MAX && x->line.n != 0) {
        x->site->say(x->site->arg, "hook_%s: %s", hook_name(x->hook), buf_cstr(&x->line));
    }
    buf_clear(&x->line);
}

static void on_out(void *arg, struct slice bytes)
{
    struct hooking *x = arg;

    for (size_t i = 0; i < bytes.n; i++) {
        if (bytes.p[i] == '\n') {
            say_line(x);
        } else if (x->line.n < LINE_MAX_BYTES) {
            buf_byte(&x->line, bytes.p[i] != '\0' ? (uint8_t)bytes.p[i] : '?');
        }
    }
}

static void on_hook_child_end(void *arg, const struct child_end *end)
{
    struct hooking *x = arg;

    x->end = *end;
    x->over = true;
}

/* --- the whole --- */

static bool is_stopping(const struct hooking *x)
{
    return x->site->stopping != NULL && *x->site->stopping;
}

static int check_hook_end(struct hooking *x, struct err *e)
{
    const char *name = hook_name(x->hook);

    if (x->line.n != 0) {
        say_line(x);
    }
    if (x->lines > LINES_MAX) {
        x->site->say(x->site->arg, "hook_%s: %" PRIu64 " more lines are not shown", name,
                     x->lines - LINES_MAX);
    }
    if (x->end.stopped) {
        return err_set(e, E_CANCELLED, "the run was stopped during hook_%s", name);
    }
    if (x->end.timed_out) {
        return err_set(e, E_TIMEOUT, "hook_%s was killed: it took longer than hook_timeout", name);
    }
    if (x->end.exit_code != 0) {
        return err_set(e, E_REFUSED, "hook_%s exited with %d%s; see `mirrorctl sync logs`", name,
                       x->end.exit_code, x->end.by_signal ? " (a signal)" : "");
    }
    return 0;
}

static int start_hook_child(struct hooking *x, const struct child_params *w, struct err *e)
{
    static const struct child_events events = {on_out, NULL, on_hook_child_end};
    int rc = child_start(x->site->base, w, &events, x, &x->child, e);

    return rc != 0 ? err_prefix(e, "hook_%s", hook_name(x->hook)) : 0;
}

int hook_run(const struct hook_site *s, const struct sync_conf *c, enum hook h, const char *repo,
             const struct run_report *r, struct err *e)
{
    struct hooking x = {.site = s, .hook = h, .line = BUF_INIT(LINE_MAX_BYTES + 1)};
    struct buf document = BUF_INIT(DOCUMENT_MAX);
    struct arena arena = {0};
    struct child_params w = {.timeout_ms = (uint64_t)c->hook_timeout_s * 1000,
                             .grace_ms = GRACE_MS};
    const char **words;
    size_t n = 0;
    const char *const *given = hook_argv(c, h, &n);
    int rc;

    if (n == 0) {
        return 0;
    }
    words = arena_alloc(&arena, (n + 1) * sizeof *words);
    memcpy(words, given, n * sizeof *words);
    words[n] = NULL;
    write_document(&document, h, repo, r);
    w.argv = words;
    w.env = hook_environment(&arena, h, repo, r);
    w.folder = "/";
    w.input = buf_slice(&document);
    rc = start_hook_child(&x, &w, e);
    while (rc == 0 && !x.over) {
        if (is_stopping(&x)) {
            child_stop(x.child);
        }
        CHECK(event_base_loop(s->base, EVLOOP_ONCE) != -1);
    }
    rc = rc != 0 ? rc : check_hook_end(&x, e);
    child_close(&x.child);
    buf_free(&x.line);
    buf_free(&document);
    arena_fini(&arena);
    return rc;
}

int hook_check(const char *setting, const char *const *argv, size_t n, struct err *e)
{
    if (n == 0) {
        return 0;
    }
    if (argv[0][0] != '/') {
        return err_set(e, E_CONFIG,
                       "%s = {\"%.80s\"}: it is not run by a shell; write its absolute path",
                       setting, argv[0]);
    }
    if (access(argv[0], X_OK) == -1) {
        return err_set(
            e, E_CONFIG,
            "%s = {\"%.80s\"}: the file is missing or not executable; check its path and mode",
            setting, argv[0]);
    }
    return 0;
}
