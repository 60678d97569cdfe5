#include "server/sync/run.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/sync/hook.h"
#include "server/sync/run_priv.h"

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

/* --- what is told --- */

static struct slice repo_of(const struct run *r)
{
    return slice_str(r->job->repo);
}

static void commit_lines(struct run *r)
{
    struct err e = {0};
    struct batch *b;

    lock_take(&r->lock);
    b = r->lines;
    r->lines = batch_new();
    lock_drop(&r->lock);
    r->told_ms = clock_now_ms();
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

static void say(struct run *r, const char *fmt, va_list ap) PRINTF_LIKE(2, 0);
static void say(struct run *r, const char *fmt, va_list ap)
{
    char text[1024];

    vsnprintf(text, sizeof text, fmt, ap);
    make_plain(text);
    log_debug("sync.line", "repo=%s run=%" PRIu64 " %s", r->job->repo, r->look.id, text);
    if (r->line >= HISTORY_LINES) {
        return;
    }
    lock_take(&r->lock);
    history_line(r->lines, repo_of(r), r->look.id, r->line, clock_unix_ms(), slice_str(text));
    lock_drop(&r->lock);
    if (++r->line == HISTORY_LINES) {
        log_info("sync.log_full", "repo=%s run=%" PRIu64, r->job->repo, r->look.id);
    }
    if (clock_now_ms() - r->told_ms > LOG_EVERY_MS) {
        commit_lines(r);
    }
}

void run_say(struct run *r, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(r, fmt, ap);
    va_end(ap);
}

void run_say_of(void *run, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say(run, fmt, ap);
    va_end(ap);
}

void run_at(struct run *r, enum run_stage s)
{
    lock_take(&r->lock);
    r->look.stage = s;
    r->stage_ms = clock_now_ms();
    lock_drop(&r->lock);
}

void run_look(struct run *r, struct run_report *out)
{
    lock_take(&r->lock);
    *out = r->look;
    out->fetching_ms = r->look.stage == RUN_FETCH ? clock_now_ms() - r->stage_ms : 0;
    lock_drop(&r->lock);
}

bool run_is_busy(struct run *r)
{
    bool busy;

    lock_take(&r->lock);
    busy = r->look.stage != RUN_HOOK || r->look.outcome == RUN_RUNNING;
    lock_drop(&r->lock);
    return busy;
}

bool run_is_over(struct run *r)
{
    bool over;

    lock_take(&r->lock);
    over = r->look.ended_unix_s != 0 && r->look.stage != RUN_HOOK;
    lock_drop(&r->lock);
    return over;
}

/* --- the loop --- */

int run_turn(struct run *r, const bool *done, struct err *e)
{
    while (!*done && !r->stopping && !r->too_late) {
        if (event_base_loop(r->base, EVLOOP_ONCE) == -1) {
            return err_set(e, E_INTERNAL, "the event loop failed");
        }
    }
    if (r->stopping) {
        return err_set(e, E_CANCELLED, "stopped");
    }
    return r->too_late ? err_set(e, E_TIMEOUT, "it took longer than `timeout`") : 0;
}

void run_wake(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    *(bool *)arg = true;
}

/* False: stopped meanwhile. */
static bool rest(struct run *r, uint64_t ms)
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

static uint64_t backoff_ms(const struct run *r, uint32_t round)
{
    uint64_t ms = r->job->conf->backoff_ms;
    uint64_t dice = clock_now_ns() / 1000;

    for (uint32_t i = 0; i < round && ms < BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    ms = min_u64(ms, BACKOFF_MAX_MS);
    return ms / 2 + dice % (ms + 1);
}

static void fail_run(struct run *r, int rc, const struct err *why)
{
    struct err e = {0};

    lock_take(&r->lock);
    r->look.outcome = rc == E_CANCELLED ? RUN_STOPPED : RUN_FAILED;
    snprintf(r->look.why, sizeof r->look.why, "%s%s",
             rc == E_NOSPACE ? "no space left here, make room: " : "",
             why->text[0] != '\0' ? why->text : err_plain(rc));
    make_plain(r->look.why);
    lock_drop(&r->lock);
    run_say(r, "%s: %s", run_outcome_name(r->look.outcome), r->look.why);
    if (rc != E_CANCELLED && sync_state_get(r->world.store, repo_of(r), &r->state, &e) == 0) {
        r->state.failures++;
        (void)!run_put_state(r, &e);
    }
}

/* The pause before the next attempt, with the reason of the last one. */
static bool rest_between(struct run *r, uint64_t ms, const char *why)
{
    bool rested;

    lock_take(&r->lock);
    snprintf(r->look.why, sizeof r->look.why, "%s", why);
    make_plain(r->look.why);
    r->look.next_try_unix_s = clock_unix_s() + ms / 1000;
    r->look.stage = RUN_WAIT;
    r->stage_ms = clock_now_ms();
    lock_drop(&r->lock);
    rested = rest(r, ms);
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

static void run_attempts(struct run *r)
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

static int start_hook(struct run *r, enum hook h, struct err *e)
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
static void tell_hooks(struct run *r)
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
    ((struct run *)arg)->too_late = true;
}

static void on_stop(struct letter *l)
{
    (void)l; /* it woke the loop: that is all */
}

static void report(struct run *r)
{
    struct run_report look;
    struct err e = {0};

    lock_take(&r->lock);
    r->look.ended_unix_s = clock_unix_s();
    look = r->look;
    lock_drop(&r->lock);
    commit_lines(r);
    if (history_put(r->world.store, repo_of(r), &look, &e) != 0 ||
        history_trim(r->world.store, repo_of(r), &e) != 0) {
        log_warn("sync.history", "repo=%s why=\"%s\"", r->job->repo, e.text);
    }
    log_info("sync.done",
             "repo=%s run=%" PRIu64 " outcome=%s listed=%" PRIu64 " new=%" PRIu64
             " changed=%" PRIu64 " gone=%" PRIu64 " fetched=%" PRIu64 " bytes=%" PRIu64
             " seq=%" PRIu64 " why=\"%s\"",
             r->job->repo, look.id, run_outcome_name(look.outcome), look.listed, look.fresh,
             look.changed, look.gone, look.files_done, look.bytes_done, look.seq, look.why);
}

static void *run_main(void *arg)
{
    struct run *r = arg;
    struct event *alarm;
    struct timeval tv = {(time_t)r->job->conf->timeout_s, 0};
    struct err e = {0};
    int rc;

    r->base = event_base_new();
    CHECK(r->base != NULL);
    lock_take(&r->lock);
    r->box = mailbox_open(r->base);
    lock_drop(&r->lock);
    r->fetcher = fetcher_open(r->base, FETCHER_ALONE);
    alarm = evtimer_new(r->base, too_late, r);
    CHECK(alarm != NULL);
    evtimer_add(alarm, &tv);
    log_info("sync.start", "repo=%s run=%" PRIu64 " dry=%d", r->job->repo, r->look.id, r->job->dry);
    rc = history_put(r->world.store, repo_of(r), &r->look, &e);
    rc = rc == 0 ? start_hook(r, HOOK_BEFORE, &e) : rc;
    if (rc != 0) {
        fail_run(r, rc, &e);
    } else {
        run_attempts(r);
    }
    report(r);
    tell_hooks(r);
    event_free(alarm);
    fetcher_close(&r->fetcher);
    lock_take(&r->lock);
    r->stopping = true; /* no letter comes any more */
    lock_drop(&r->lock);
    mailbox_close(&r->box);
    event_base_free(r->base);
    r->ended(r->ended_arg, r);
    return NULL;
}

static void run_free(struct run *r)
{
    batch_free(&r->lines);
    lock_fini(&r->lock);
    free(r);
}

int run_open(const struct run_world *w, const struct run_job *job, uint64_t id,
             void (*ended)(void *arg, struct run *r), void *arg, struct run **out, struct err *e)
{
    struct run *r = NEW(struct run);

    r->world = *w;
    r->job = job;
    r->client = XXH3_64bits_withSeed(job->repo, strlen(job->repo), CLIENT_SEED) | 1;
    r->ended = ended;
    r->ended_arg = arg;
    for (size_t i = 0; i < job->conf->hours_count && i < PACE_WINDOWS; i++) {
        r->pace.windows += hours_parse(slice_str(job->conf->hours[i]),
                                       &r->pace.window[r->pace.windows], NULL) == 0;
    }
    r->pace.then_ms = clock_now_ms();
    r->lines = batch_new();
    r->told_ms = clock_now_ms();
    r->look = (struct run_report){.id = id, .dry = job->dry, .started_unix_s = clock_unix_s()};
    lock_init(&r->lock, LOCK_SYNC_RUN);
    r->stop_letter.deliver = on_stop;
    if (!thread_try("sync-run", run_main, r, &r->thread)) {
        run_free(r);
        return err_set(e, E_BUSY,
                       "the run of \"%s\" cannot begin, the system gives mirrord no more threads, "
                       "try again, or raise TasksMax= of its unit",
                       job->repo);
    }
    *out = r;
    return 0;
}

void run_stop(struct run *r)
{
    lock_take(&r->lock);
    if (!r->stopping) {
        r->stopping = true;
        if (r->box != NULL) {
            mailbox_post(r->box, &r->stop_letter);
        }
    }
    lock_drop(&r->lock);
}

void run_close(struct run **rp)
{
    struct run *r = *rp;

    *rp = NULL;
    if (r == NULL) {
        return;
    }
    pthread_join(r->thread, NULL);
    run_free(r);
}
