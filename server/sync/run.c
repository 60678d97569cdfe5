/* run.c - the life of a sync run, on its own thread.
 *
 * A run calls the operator's `before` program, then makes attempts. An attempt takes one upstream:
 *
 *   PROBE ──▶ LIST ──▶ PLAN ──▶ FETCH ──▶ VERIFY ──▶ GATE ──▶ PUBLISH     then HOOK, once
 *     └─▶ unchanged                          └─▶ unchanged └─▶ held      (from VERIFY on: land.c)
 *
 * A probe asks whether anything is new. The engine lists, plan.c chooses an action for each entry,
 * and downloads.c brings the bytes: each file is a row in TABLE_STAGE, so the next run continues
 * from there. Then land.c builds the tree, checks and judges it, and publishes it or holds it.
 * After a failure the run tries the next upstream, and after all of them it pauses (RUN_WAIT), up
 * to `tries` attempts; an upstream whose failure is final is not tried again. A stop, the time
 * limit and a full disk end the run immediately.
 * The report and the log are rows; the hook for the outcome runs last.
 */
#include "server/sync/run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/base/endian.h"
#include "common/base/log.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/store/seek.h"
#include "server/sync/hook.h"
#include "server/sync/run_priv.h"

static void run_wake(evutil_socket_t fd, short what, void *arg);

/* --- a dry run ---
 *
 * What a dry run says: the plan, entry by entry, into the run's log.
 */

enum { SAID_MAX = 5000 }; /* of a log that keeps twice as many lines */

struct telling {
    struct sync_run *r;
    uint64_t said, unsaid;
    size_t at; /* in the entry list: both are in the order of paths */
};

/* "+ path, 123 bytes": added; "~" changed; "-" removed. */
static void report_sync_change(struct telling *x, char what, struct slice path, bool sized,
                               uint64_t bytes)
{
    if (x->said++ >= SAID_MAX) {
        x->unsaid++;
    } else if (sized) {
        run_say(x->r, "%c " SLICE_FMT ", %" PRIu64 " bytes", what, SLICE_ARG(path), bytes);
    } else {
        run_say(x->r, "%c " SLICE_FMT, what, SLICE_ARG(path));
    }
}

static int on_old(void *arg, const struct entry *en)
{
    struct telling *x = arg;
    struct entry_list *entry_list = x->r->plan.entry_list;

    if (slice_eq(en->path, x->r->plan.own)) {
        return 0;
    }
    while (x->at < entry_list_count(entry_list)) {
        struct sync_entry listed;
        int order;
        entry_list_get(entry_list, x->at, &listed);
        order = slice_cmp(listed.path, en->path);
        if (order == 0) {
            return 0;
        }
        if (order > 0) {
            break;
        }
        x->at++;
    }
    report_sync_change(x, '-', en->path, en->type == ENTRY_FILE, en->size_bytes);
    return 0;
}

static int tell_listed(struct telling *x, struct err *e)
{
    const struct sync_plan *p = &x->r->plan;
    struct seek base;
    int rc = 0;

    seek_open(&base, p->store, &p->base);
    for (size_t i = 0; rc == 0 && i < entry_list_count(p->entry_list); i++) {
        struct sync_entry en;
        const struct entry *old;
        if (p->action[i] == ACTION_SAME) {
            continue;
        }
        entry_list_get(p->entry_list, i, &en);
        rc = seek_get(&base, en.path, &old, e);
        if (rc == 0 || rc == E_NOTFOUND) {
            report_sync_change(x, rc == 0 ? '~' : '+', en.path,
                               en.type == SYNC_FILE && en.size_bytes != SYNC_SIZE_UNKNOWN,
                               en.size_bytes);
            rc = 0;
        }
    }
    seek_close(&base);
    return rc;
}

/* The plan, into the log. */
static int run_foretell(struct sync_run *r, struct err *e)
{
    struct telling x = {.r = r};
    int rc = tell_listed(&x, e);

    if (rc == 0 && r->plan.has_base && !r->keep_gone) {
        rc = tree_walk(r->plan.store, &r->plan.base, SLICE(""), SLICE_NONE, on_old, &x, e);
    }
    if (x.unsaid != 0) {
        run_say(r, "and %" PRIu64 " more %s", x.unsaid, plural(x.unsaid, "entry", "entries"));
    }
    return rc;
}

/* --- one visit to one upstream ---
 *
 * One visit to one upstream: probe, list, plan, fetch; then it is landed.
 */

enum { FINISH_MS = 10000, PRINT_BYTES = 8 };

/* --- the engine's events --- */

static void on_probe(void *arg, enum probe_answer a)
{
    struct sync_run *r = arg;

    r->probe = a;
    r->answered = true;
}

static int on_listed_entry(void *arg, const struct sync_entry *en)
{
    struct sync_run *r = arg;
    struct sync_entry alone = *en;
    struct err why = {0};
    int rc;

    r->updating = r->updating || slice_starts(en->path, SLICE("Archive-Update-in-Progress"));
    if (r->job->conf->trace != NULL && slice_eqs(en->path, r->job->conf->trace)) {
        return 0; /* ours takes its place */
    }
    if (!tree_path_valid(en->path)) {
        r->left_out++;
        return 0;
    }
    if (!file_filter_wants(r->file_filter, en)) {
        r->sifted++;
        return 0;
    }
    if (en->leader.n != 0 && !file_filter_wants_path(r->file_filter, en->leader, false)) {
        alone.leader = SLICE_NONE; /* it stands for itself now */
    }
    rc = entry_list_add(r->entry_list, &alone, &why);
    if (rc == E_INVALID) {
        r->left_out++;
        return 0;
    }
    if (rc != 0) {
        r->why = why; /* the engine knows no more than the code */
    }
    if (rc == 0 && entry_list_count(r->entry_list) % 256 == 0) {
        lock_take(&r->lock);
        r->look.listed = entry_list_count(r->entry_list);
        lock_drop(&r->lock);
    }
    return rc;
}

/* Before the engine's own stands what was made of the list: with other settings the same upstream
 * gives another tree. */
static void put_cursor(struct sync_run *r, struct slice cursor)
{
    r->cursor_bytes = 0;
    if (cursor.n != 0 && cursor.n <= sizeof r->cursor - PRINT_BYTES) {
        be_put(r->cursor, PRINT_BYTES, file_filter_print(r->job->conf));
        memcpy(r->cursor + PRINT_BYTES, cursor.p, cursor.n);
        r->cursor_bytes = PRINT_BYTES + cursor.n;
    }
}

/* SLICE_NONE: none, or of other settings. */
static struct slice get_cursor(const struct sync_run *r)
{
    const struct sync_state *st = &r->state;

    if (st->cursor_bytes <= PRINT_BYTES ||
        be_get(st->cursor, PRINT_BYTES) != file_filter_print(r->job->conf)) {
        return SLICE_NONE;
    }
    return slice_of(st->cursor + PRINT_BYTES, st->cursor_bytes - PRINT_BYTES);
}

static void on_listed(void *arg, int rc, const struct err *why, const struct engine_listed *l)
{
    struct sync_run *r = arg;

    r->answered = true;
    r->rc = rc;
    if (rc != 0) {
        r->why = r->why.code == rc ? r->why : *why;
        r->why.code = rc;
        return;
    }
    r->keep_gone = l->partial;
    r->root_reported = l->root != NULL;
    if (r->root_reported) {
        r->reported_root = *l->root;
    }
    r->top_mtime_ns = l->top_mtime_ns;
    snprintf(r->doubt, sizeof r->doubt, "%s", l->doubt != NULL ? l->doubt : "");
    r->left_out += l->left_out;
    put_cursor(r, l->cursor);
    lock_take(&r->lock);
    r->look.wire_bytes += l->wire_bytes;
    lock_drop(&r->lock);
}

static void on_finished(void *arg, int rc, const struct err *why)
{
    struct sync_run *r = arg;

    if (rc != 0) {
        run_say(r, "the session did not end cleanly: %s", why->text);
    }
    r->answered = true;
}

static void on_broken(void *arg, int rc, const struct err *why)
{
    struct sync_run *r = arg;

    r->broken = r->answered = true;
    r->rc = rc;
    r->why = *why;
    r->why.code = rc;
    run_downloads_broken(r, rc, why);
}

static const struct engine_events engine_events = {on_probe, on_listed_entry, on_listed,
                                                   on_finished, on_broken};

static int await(struct sync_run *r, struct err *e)
{
    int rc = run_turn(r, &r->answered, e);

    r->answered = false;
    if (rc == 0 && r->rc != 0) {
        *e = r->why;
        rc = r->rc;
    }
    return rc;
}

/* --- one attempt --- */

static int open_engine(struct sync_run *r, const struct run_upstream *u, struct err *e)
{
    const struct sync_conf *c = r->job->conf;
    int rc = file_filter_new(c, &r->file_filter, e);

    if (rc != 0) {
        return rc;
    }
    r->site = (struct engine_site){
        .base = r->base,
        .box = r->box,
        .disk = r->world.disk,
        .client = r->client,
        .store = r->world.store,
        .origin_client = r->origin_client,
        .origin = u->origin,
        .repo = slice_str(r->job->repo),
        .url = slice_str(u->url),
        .secret = r->job->secret,
        .ca_file = r->job->ca_file,
        .proxy = r->job->proxy,
        .no_proxy = r->job->no_proxy,
        .file_filter = r->file_filter,
        .probe = c->probe,
        .conf = c,
        .parallel = c->parallel,
        .connect_ms = r->job->connect_ms,
        .stall_ms = r->job->stall_ms,
        .entries_max = c->entries_max,
        .list_bytes_max = (uint64_t)4 << 30,
        .make_room = r->world.make_room,
        .make_room_arg = r->world.arg,
        .log = run_say_of,
        .log_arg = r,
    };
    r->ops = engine_find(c->engine, r->site.url);
    if (r->ops == NULL) {
        return err_set(e, E_CONFIG, "no engine supports %s", u->url);
    }
    r->rc = 0;
    r->broken = r->answered = false;
    return r->ops->open(&r->site, &engine_events, r, &r->engine, e);
}

static void run_close_attempt(struct sync_run *r)
{
    if (r->engine != NULL) {
        r->ops->close(&r->engine);
    }
    file_filter_free(&r->file_filter);
    sync_plan_free(&r->plan);
    entry_list_free(&r->entry_list);
}

/* True: nothing has changed since the head that is live now was published. */
static int probe_sync_upstream(struct sync_run *r, bool *same, struct err *e)
{
    bool fits = r->head.seq != 0 && r->state.cursor_seq == r->head.seq && r->state.held_seq == 0;
    struct slice cursor = get_cursor(r);
    int rc;

    *same = false;
    if (!fits || r->job->force || cursor.n == 0) {
        return 0;
    }
    run_at(r, RUN_PROBE);
    r->ops->probe(r->engine, cursor);
    rc = await(r, e);
    *same = rc == 0 && r->probe == PROBE_SAME;
    return rc;
}

static int list_sync_upstream(struct sync_run *r, struct err *e)
{
    uint64_t left_out = 0;
    int rc;

    run_at(r, RUN_LIST);
    r->left_out = r->sifted = 0;
    r->updating = false;
    r->entry_list = entry_list_new(r->job->conf->entries_max, r->site.list_bytes_max);
    err_clear(&r->why);
    r->ops->list(r->engine);
    rc = await(r, e);
    if (rc != 0) {
        return rc;
    }
    crash_point("sync.list");
    if (r->updating && strcmp(r->job->conf->profile, "debian") == 0) {
        return err_set(e, E_BUSY, "the upstream reports that it is being updated; try again later");
    }
    entry_list_sort(r->entry_list, &left_out);
    r->left_out += left_out;
    lock_take(&r->lock);
    r->look.listed = entry_list_count(r->entry_list);
    r->look.memory_bytes = entry_list_memory(r->entry_list);
    lock_drop(&r->lock);
    run_say(r, "listed %zu %s, %" PRIu64 " more excluded by filter, left out %" PRIu64 "%s",
            entry_list_count(r->entry_list),
            plural(entry_list_count(r->entry_list), "entry", "entries"), r->sifted, r->left_out,
            r->keep_gone ? "; the upstream could not read everything, so nothing is removed" : "");
    return 0;
}

static int plan_sync_changes(struct sync_run *r, struct err *e)
{
    struct sync_plan *p = &r->plan;
    bool traced = false;
    int rc;

    run_at(r, RUN_PLAN);
    *p = (struct sync_plan){.store = r->world.store,
                            .repo = slice_str(r->job->repo),
                            .entry_list = r->entry_list,
                            .file_filter = r->file_filter,
                            .profile = profile_of(r->job->conf),
                            .has_base = r->head.seq != 0,
                            .base = r->head.root,
                            .base_entries = r->head.entries};
    rc = sync_plan_make(p, e);
    if (rc != 0) {
        return rc;
    }
    rc = trace_is_there(p, r->job->conf, &traced, e);
    if (rc != 0) {
        return rc;
    }
    if (r->job->conf->trace != NULL) {
        p->own = slice_str(r->job->conf->trace);
        p->gone -= traced && p->gone != 0;
    }
    crash_point("sync.plan");
    p->gone = r->keep_gone ? 0 : p->gone;
    lock_take(&r->lock);
    r->look.fresh = p->fresh;
    r->look.changed = p->changed;
    r->look.same = p->same;
    r->look.gone = p->gone;
    r->look.reused = p->reused + p->twins;
    r->look.saved_bytes = p->reused_bytes;
    r->look.kept = 0;
    r->look.files_todo = p->todo_count;
    r->look.bytes_todo = p->fetch_bytes;
    r->look.files_done = r->look.bytes_done = 0;
    lock_drop(&r->lock);
    run_say(r,
            "plan: %" PRIu64 " new, %" PRIu64 " changed, %" PRIu64 " gone, %" PRIu64
            " the same; %zu files to fetch, %" PRIu64 " bytes; %" PRIu64 " were here already",
            p->fresh, p->changed, p->gone, p->same, p->todo_count - p->twins, p->fetch_bytes,
            p->reused + p->twins);
    return 0;
}

/* All bytes are here: a goodbye that fails or hangs is nobody's loss. */
static void finish_engine(struct sync_run *r)
{
    struct err why = {0};
    struct event *t;
    struct timeval tv = clock_timeval(FINISH_MS);

    if (r->broken) {
        return;
    }
    t = evtimer_new(r->base, run_wake, &r->answered);
    CHECK(t != NULL);
    evtimer_add(t, &tv);
    r->answered = false;
    r->ops->finish(r->engine);
    (void)!run_turn(r, &r->answered, &why);
    event_free(t);
}

static int read_base(struct sync_run *r, struct err *e)
{
    int rc = head_get(r->world.store, slice_str(r->job->repo), SLICE(SYNC_TREE), &r->head, e);

    if (rc == E_NOTFOUND) {
        r->head = (struct snap){0};
        rc = 0;
    }
    return rc != 0 ? rc : sync_state_get(r->world.store, slice_str(r->job->repo), &r->state, e);
}

static int run_attempt(struct sync_run *r, const struct run_upstream *u, struct err *e)
{
    bool same = false;
    int rc = read_base(r, e);

    rc = rc != 0 ? rc : open_engine(r, u, e);
    rc = rc != 0 ? rc : probe_sync_upstream(r, &same, e);
    if (rc == 0 && same) {
        run_say(r, "the probe shows that nothing changed");
        run_outcome(r, RUN_UNCHANGED, r->head.seq, &r->head.root);
        r->state.failures = 0;
        r->state.last_ok_unix_s = clock_unix_s();
        return run_put_state(r, e);
    }
    rc = rc != 0 ? rc : list_sync_upstream(r, e);
    rc = rc != 0 ? rc : plan_sync_changes(r, e);
    if (rc == 0 && r->job->dry) {
        rc = run_foretell(r, e);
        if (rc != 0) {
            return rc;
        }
        run_outcome(r, RUN_PLANNED, r->head.seq, &r->head.root);
        return 0;
    }
    if (rc == 0) {
        run_at(r, RUN_FETCH);
        rc = run_download_all(r, e);
    }
    if (rc == 0) {
        finish_engine(r);
    }
    crash_point("sync.fetched");
    return rc != 0 ? rc : run_land(r, e);
}

enum { CLIENT_SEED = 0x73796e63 }; /* a repo's name is no token's */

enum { LOG_EVERY_MS = 1000, BACKOFF_MAX_MS = 3600 * 1000, GATES_MAX = 2 };

const char *run_stage_name(enum run_stage s)
{
    switch (s) {
    case RUN_PROBE:
        return "probe";
    case RUN_LIST:
        return "list";
    case RUN_PLAN:
        return "plan";
    case RUN_FETCH:
        return "fetch";
    case RUN_VERIFY:
        return "verify";
    case RUN_PUBLISH:
        return "publish";
    case RUN_WAIT:
        return "retrying";
    case RUN_GATE:
        return "gate";
    case RUN_HOOK:
        return "hook";
    }
    return "?";
}

const char *run_outcome_name(enum run_outcome o)
{
    switch (o) {
    case RUN_RUNNING:
        return "running";
    case RUN_PUBLISHED:
        return "published";
    case RUN_UNCHANGED:
        return "unchanged";
    case RUN_HELD:
        return "held";
    case RUN_FAILED:
        return "failed";
    case RUN_STOPPED:
        return "stopped";
    case RUN_PLANNED:
        return "planned";
    case RUN_INTERRUPTED:
        return "interrupted";
    }
    return "?";
}

/* --- reports --- */

static struct slice repo_of_sync_run(const struct sync_run *r)
{
    return slice_str(r->job->repo);
}

static void commit_lines(struct sync_run *r)
{
    struct err e = {0};
    struct batch *b;

    lock_take(&r->lock);
    b = r->lines;
    r->lines = batch_new();
    lock_drop(&r->lock);
    r->reported_ms = clock_now_ms();
    if (store_commit(r->world.store, &b, COMMIT_LAZY, &e) != 0) {
        log_warn("sync.log_lost", "repo=%s why=\"%s\"", r->job->repo, e.text);
    }
}

/* Names are bytes, and reasons a peer's words: neither steers a terminal. */
static void make_plain(char *text)
{
    for (char *p = text; *p != '\0'; p++) {
        if ((uint8_t)*p < ' ' || *p == 0x7f) {
            *p = '?';
        }
    }
}

static void note_sync_run(struct sync_run *r, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);

static void note_sync_run(struct sync_run *r, const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof text, fmt, ap);
    make_plain(text);
    log_debug("sync.line", "repo=%s run=%" PRIu64 " %s", r->job->repo, r->look.id, text);
    if (r->line >= HISTORY_LINES) {
        return;
    }
    lock_take(&r->lock);
    history_line(r->lines, repo_of_sync_run(r), r->look.id, r->line, clock_unix_ms(),
                 slice_str(text));
    lock_drop(&r->lock);
    if (++r->line == HISTORY_LINES) {
        log_info("sync.log_full", "repo=%s run=%" PRIu64, r->job->repo, r->look.id);
    }
    if (clock_now_ms() - r->reported_ms > LOG_EVERY_MS) {
        commit_lines(r);
    }
}

void run_say(struct sync_run *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_sync_run(r, fmt, ap);
    va_end(ap);
}

void run_say_of(void *run, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    note_sync_run(run, fmt, ap);
    va_end(ap);
}

void run_at(struct sync_run *r, enum run_stage s)
{
    lock_take(&r->lock);
    r->look.stage = s;
    r->stage_ms = clock_now_ms();
    lock_drop(&r->lock);
}

void run_look(struct sync_run *r, struct run_report *out)
{
    lock_take(&r->lock);
    *out = r->look;
    out->fetching_ms = r->look.stage == RUN_FETCH ? clock_now_ms() - r->stage_ms : 0;
    lock_drop(&r->lock);
}

bool run_is_busy(struct sync_run *r)
{
    bool busy;

    lock_take(&r->lock);
    busy = r->look.stage != RUN_HOOK || r->look.outcome == RUN_RUNNING;
    lock_drop(&r->lock);
    return busy;
}

bool run_is_over(struct sync_run *r)
{
    bool over;

    lock_take(&r->lock);
    over = r->look.ended_unix_s != 0 && r->look.stage != RUN_HOOK;
    lock_drop(&r->lock);
    return over;
}

/* --- the loop --- */

int run_turn(struct sync_run *r, const bool *done, struct err *e)
{
    while (!*done && !r->stopping && !r->too_late) {
        if (event_base_loop(r->base, EVLOOP_ONCE) == -1) {
            return err_set(e, E_INTERNAL, "the event loop failed");
        }
    }
    if (r->stopping) {
        return err_set(e, E_CANCELLED, "stopped");
    }
    return r->too_late ? err_set(e, E_TIMEOUT, "the run took longer than `timeout`") : 0;
}

/* sets the bool that arg is */
static void run_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    *(bool *)arg = true;
}

/* False: stopped meanwhile. */
static bool pause_sync_run(struct sync_run *r, uint64_t ms)
{
    bool over = false;
    struct event *t = evtimer_new(r->base, run_wake, &over);
    struct timeval tv = clock_timeval(ms);
    int rc;

    CHECK(t != NULL);
    evtimer_add(t, &tv);
    rc = run_turn(r, &over, NULL);
    event_free(t);
    return rc == 0;
}

/* --- the whole --- */

static uint64_t backoff_ms(const struct sync_run *r, uint32_t round)
{
    uint64_t ms = r->job->conf->backoff_ms;
    uint64_t dice = clock_now_ns() / 1000;

    for (uint32_t i = 0; i < round && ms < BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    ms = min_u64(ms, BACKOFF_MAX_MS);
    return ms / 2 + dice % (ms + 1);
}

static void fail_run(struct sync_run *r, int rc, const struct err *why)
{
    struct err e = {0};

    lock_take(&r->lock);
    r->look.outcome = rc == E_CANCELLED ? r->when_stopped : RUN_FAILED;
    snprintf(r->look.why, sizeof r->look.why, "%s%s",
             rc == E_NOSPACE ? "no space left on this machine; free some: " : "",
             why->text[0] != '\0' ? why->text : err_plain(rc));
    make_plain(r->look.why);
    lock_drop(&r->lock);
    run_say(r, "%s: %s", run_outcome_name(r->look.outcome), r->look.why);
    if (rc != E_CANCELLED &&
        sync_state_get(r->world.store, repo_of_sync_run(r), &r->state, &e) == 0) {
        r->state.failures++;
        (void)!run_put_state(r, &e);
    }
}

/* The pause before the next attempt, with the reason of the last one. */
static bool rest_between(struct sync_run *r, uint64_t ms, const char *why)
{
    bool rested;

    lock_take(&r->lock);
    snprintf(r->look.why, sizeof r->look.why, "%s", why);
    make_plain(r->look.why);
    r->look.next_try_unix_s = clock_unix_s() + ms / 1000;
    r->look.stage = RUN_WAIT;
    r->stage_ms = clock_now_ms();
    lock_drop(&r->lock);
    rested = pause_sync_run(r, ms);
    lock_take(&r->lock);
    r->look.next_try_unix_s = 0;
    r->look.why[0] = rested ? '\0' : r->look.why[0];
    lock_drop(&r->lock);
    return rested;
}

struct turns {   /* whose turn it is of the upstreams */
    bool *never; /* it will give nothing, however often it is asked */
    size_t at, count, left;
    uint32_t rounds;
};

/* True: all have had their turn, a round is over. */
static bool turns_next(struct turns *t, bool never)
{
    t->never[t->at] = never;
    t->left -= never;
    do {
        t->at++;
    } while (t->at < t->count && t->never[t->at]);
    if (t->at < t->count) {
        return false;
    }
    for (t->at = 0; t->left != 0 && t->never[t->at];) {
        t->at++;
    }
    return true;
}

static void run_attempts(struct sync_run *r)
{
    const struct run_job *job = r->job;
    struct turns turns = {.never = mem_array(job->upstreams, sizeof *turns.never),
                          .count = job->upstreams,
                          .left = job->upstreams};
    struct err why = {0};
    int rc = E_CONFIG;

    lock_take(&r->lock);
    r->look.tries = job->conf->tries;
    lock_drop(&r->lock);
    for (uint32_t n = 0; n < job->conf->tries; n++) {
        const struct run_upstream *u = &job->upstream[turns.at];
        enum sync_class class;
        bool round;
        err_clear(&why);
        lock_take(&r->lock);
        r->look.attempts = n + 1;
        snprintf(r->look.upstream, sizeof r->look.upstream, "%s", u->url);
        lock_drop(&r->lock);
        run_say(r, "attempt %u at %s", n + 1, u->url);
        rc = run_attempt(r, u, &why);
        run_close_attempt(r);
        if (rc != 0 && run_has_lost_claim(r)) {
            rc = err_set(&why, E_CANCELLED,
                         "another mirror, or `mirrorctl sync stop`, has ended this run");
        }
        class = rc == E_CHANGED ? SYNC_RETRY : sync_class_of(rc, false);
        if (class == SYNC_OK || class == SYNC_STOPPED || class == SYNC_HERE || r->too_late) {
            break;
        }
        run_say(r, "attempt %u: %s", n + 1, why.text[0] != '\0' ? why.text : err_plain(rc));
        round = turns_next(&turns, class == SYNC_FINAL);
        if (turns.left == 0) {
            break;
        }
        /* An index that names too much was caught half-way, maybe: one more look tells. */
        if (r->open_gates >= GATES_MAX && n + 1 >= job->upstreams) {
            break;
        }
        if (round && n + 1 < job->conf->tries) {
            if (!rest_between(r, backoff_ms(r, turns.rounds++),
                              why.text[0] != '\0' ? why.text : err_plain(rc))) {
                rc = r->stopping ? E_CANCELLED : E_TIMEOUT;
                break;
            }
        }
    }
    free(turns.never);
    if (rc != 0) {
        fail_run(r, rc, &why);
    }
}

/* --- the operator's programs --- */

static int start_hook(struct sync_run *r, enum hook h, struct err *e)
{
    const struct hook_site site = {r->base, &r->stopping, run_say_of, r};
    struct run_report look;

    if (r->job->dry || !hook_is_set(r->job->conf, h)) {
        return 0;
    }
    run_at(r, RUN_HOOK);
    run_look(r, &look);
    return hook_run(&site, r->job->conf, h, r->job->repo, &look, e);
}

/* The run is over and written down: how they end changes nothing of it. */
static void tell_hooks(struct sync_run *r)
{
    struct err e = {0};
    int rc = 0;

    switch (r->look.outcome) {
    case RUN_PUBLISHED:
        rc = start_hook(r, HOOK_PUBLISHED, &e);
        break;
    case RUN_HELD:
        rc = start_hook(r, HOOK_HELD, &e);
        break;
    case RUN_FAILED:
        rc = start_hook(r, HOOK_FAILED, &e);
        break;
    case RUN_RUNNING:
    case RUN_UNCHANGED:
    case RUN_STOPPED:
    case RUN_PLANNED:
    case RUN_INTERRUPTED:
        break;
    }
    if (rc != 0) {
        run_say(r, "%s", e.text);
        log_warn("sync.hook", "repo=%s run=%" PRIu64 " why=\"%s\"", r->job->repo, r->look.id,
                 e.text);
    }
    commit_lines(r);
}

static void too_late(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    ((struct sync_run *)arg)->too_late = true;
}

static void on_sync_run_stop(struct message *l)
{
    (void)l; /* it woke the loop: that is all */
}

/* --- the claim of a cluster --- */

void run_require_claim(const struct sync_run *r, struct batch *b)
{
    if (r->claim.held) {
        claim_require(b, repo_of_sync_run(r), &r->claim);
    }
}

bool run_has_lost_claim(struct sync_run *r)
{
    struct claim_look now;

    return r->claim.held && claim_look(r->world.claims, repo_of_sync_run(r), &now, NULL) == 0 &&
           (now.state == CLAIM_FREE || memcmp(now.row.row, r->claim.row, CLAIM_BYTES) != 0);
}

/* Adds what takes the claim, and the row of the run, whose number is the next one. A run that its
 * mirror did not end is noted as interrupted. */
static int add_claim(struct sync_run *r, struct batch *b, struct err *e)
{
    struct slice repo = repo_of_sync_run(r);
    struct run_report last;
    int rc = history_get(r->world.store, repo, 0, &last, e);

    if (rc != 0 && rc != E_NOTFOUND) {
        return rc;
    }
    if (rc == 0 && last.outcome == RUN_RUNNING) {
        last.outcome = RUN_INTERRUPTED;
        last.ended_unix_s = clock_unix_s();
        history_add(b, repo, &last);
    }
    lock_take(&r->lock);
    r->look.id = rc == 0 ? last.id + 1 : 1;
    lock_drop(&r->lock);
    history_require_new(b, repo, r->look.id);
    history_add(b, repo, &r->look);
    rc = claim_take(r->world.claims, repo, r->look.id, b, &r->claim, e);
    return rc != E_BUSY ? rc
                        : err_set(e, E_BUSY,
                                  "run %" PRIu64 " of \"%s\" is under way on the mirror %s, and a "
                                  "repo has only one at a time; wait for it or stop it",
                                  last.id, r->job->repo, last.mirror);
}

/* Until it is ours, or another mirror's. */
static int take_claim(struct sync_run *r, struct err *e)
{
    int rc = E_CHANGED;

    while (rc == E_CHANGED && !r->stopping) {
        struct batch *b = batch_new();
        rc = add_claim(r, b, e);
        rc = rc != 0 ? rc : store_commit(r->world.store, &b, COMMIT_SYNC, e);
        batch_free(&b);
    }
    r->claim.held = rc == 0;
    return rc;
}

static int begin_run(struct sync_run *r, struct err *e)
{
    return r->world.claims != NULL ? take_claim(r, e)
                                   : history_put(r->world.store, repo_of_sync_run(r), &r->look, e);
}

/* The report, and with it the end of the claim: if that is lost, only the report. */
static int end_run(struct sync_run *r, const struct run_report *look, struct err *e)
{
    struct batch *b = batch_new();
    int rc;

    history_add(b, repo_of_sync_run(r), look);
    if (!r->claim.held) {
        return store_commit(r->world.store, &b, COMMIT_LAZY, e);
    }
    claim_end(b, repo_of_sync_run(r), &r->claim);
    rc = store_commit(r->world.store, &b, COMMIT_LAZY, e);
    return rc == E_CHANGED ? history_put(r->world.store, repo_of_sync_run(r), look, e) : rc;
}

static void report(struct sync_run *r)
{
    struct run_report look;
    struct err e = {0};

    lock_take(&r->lock);
    r->look.ended_unix_s = clock_unix_s();
    look = r->look;
    lock_drop(&r->lock);
    commit_lines(r);
    if (end_run(r, &look, &e) != 0 || history_trim(r->world.store, repo_of_sync_run(r), &e) != 0) {
        log_warn("sync.history", "repo=%s why=\"%s\"", r->job->repo, e.text);
    }
    log_info("sync.done",
             "repo=%s run=%" PRIu64 " outcome=%s listed=%" PRIu64 " new=%" PRIu64
             " changed=%" PRIu64 " gone=%" PRIu64 " fetched=%" PRIu64 " bytes=%" PRIu64
             " seq=%" PRIu64 " why=\"%s\"",
             r->job->repo, look.id, run_outcome_name(look.outcome), look.listed, look.fresh,
             look.changed, look.gone, look.files_done, look.bytes_done, look.seq, look.why);
}

/* From the first row to the last hook. rc: of the first row. */
static void work(struct sync_run *r, int rc, struct err *e)
{
    log_info("sync.start", "repo=%s run=%" PRIu64 " dry=%d", r->job->repo, r->look.id, r->job->dry);
    rc = rc != 0 ? rc : start_hook(r, HOOK_BEFORE, e);
    if (rc != 0) {
        fail_run(r, rc, e);
    } else {
        run_attempts(r);
    }
    report(r);
    tell_hooks(r);
}

static void *run_main(void *arg)
{
    struct sync_run *r = arg;
    struct event *alarm;
    struct timeval tv = {(time_t)r->job->conf->timeout_s, 0};
    struct err e = {0};
    int rc;

    r->base = event_base_new();
    CHECK(r->base != NULL);
    lock_take(&r->lock);
    r->box = message_queue_open(r->base);
    lock_drop(&r->lock);
    r->origin_client = origin_client_open(r->base, ORIGIN_CLIENT_ALONE);
    alarm = evtimer_new(r->base, too_late, r);
    CHECK(alarm != NULL);
    evtimer_add(alarm, &tv);
    rc = begin_run(r, &e);
    r->ev.begun(r->ev.arg, r, rc == 0 || r->world.claims == NULL ? NULL : &e);
    if (rc == 0 || r->world.claims == NULL) {
        work(r, rc, &e);
    }
    event_free(alarm);
    origin_client_close(&r->origin_client);
    lock_take(&r->lock);
    r->stopping = true; /* no message comes any more */
    lock_drop(&r->lock);
    message_queue_close(&r->box);
    event_base_free(r->base);
    r->ev.ended(r->ev.arg, r);
    return NULL;
}

static void run_free(struct sync_run *r)
{
    batch_free(&r->lines);
    lock_fini(&r->lock);
    free(r);
}

int run_open(const struct run_world *w, const struct run_job *job, uint64_t id,
             const struct run_events *ev, struct sync_run **out, struct err *e)
{
    struct sync_run *r = NEW(struct sync_run);

    r->world = *w;
    r->job = job;
    r->client = XXH3_64bits_withSeed(job->repo, strlen(job->repo), CLIENT_SEED) | 1;
    r->ev = *ev;
    for (size_t i = 0; i < job->conf->hours_count && i < PACE_WINDOWS; i++) {
        r->pace.windows += hours_parse(slice_str(job->conf->hours[i]),
                                       &r->pace.window[r->pace.windows], NULL) == 0;
    }
    r->pace.then_ms = clock_now_ms();
    r->lines = batch_new();
    r->reported_ms = clock_now_ms();
    r->look = (struct run_report){.id = id, .dry = job->dry, .started_unix_s = clock_unix_s()};
    r->when_stopped = RUN_STOPPED;
    if (w->claims != NULL) {
        snprintf(r->look.mirror, sizeof r->look.mirror, "%s", claims_self(w->claims));
    }
    lock_init(&r->lock, LOCK_SYNC_RUN);
    r->stop_message.deliver = on_sync_run_stop;
    if (!thread_try("sync-run", run_main, r, &r->thread)) {
        run_free(r);
        return err_set(e, E_BUSY,
                       "the run of \"%s\" cannot start: the system allows mirrord no more "
                       "threads; try again, or raise TasksMax= of its unit",
                       job->repo);
    }
    *out = r;
    return 0;
}

void run_stop(struct sync_run *r)
{
    lock_take(&r->lock);
    if (!r->stopping) {
        r->stopping = true;
        if (r->box != NULL) {
            message_queue_post(r->box, &r->stop_message);
        }
    }
    lock_drop(&r->lock);
}

void run_interrupt(struct sync_run *r)
{
    lock_take(&r->lock);
    if (r->world.claims != NULL && !r->stopping) {
        r->when_stopped = RUN_INTERRUPTED;
    }
    lock_drop(&r->lock);
    run_stop(r);
}

void run_close(struct sync_run **rp)
{
    struct sync_run *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    pthread_join(r->thread, NULL);
    run_free(r);
}
