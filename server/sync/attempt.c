/* attempt.c - one visit to one upstream: probe, list, plan, fetch; then it is landed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/endian.h"
#include "common/codec/units.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "server/sync/run_priv.h"
#include "server/sync/trace.h"

enum { FINISH_MS = 10000, PRINT_BYTES = 8 };

/* --- the engine's events --- */

static void on_probe(void *arg, enum probe_answer a)
{
    struct run *r = arg;

    r->probe = a;
    r->answered = true;
}

static int on_entry(void *arg, const struct sync_entry *en)
{
    struct run *r = arg;
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
    if (!sift_wants(r->sift, en)) {
        r->sifted++;
        return 0;
    }
    if (en->leader.n != 0 && !sift_wants_path(r->sift, en->leader, false)) {
        alone.leader = SLICE_NONE; /* it stands for itself now */
    }
    rc = roster_add(r->roster, &alone, &why);
    if (rc == E_INVALID) {
        r->left_out++;
        return 0;
    }
    if (rc != 0) {
        r->why = why; /* the engine knows no more than the code */
    }
    if (rc == 0 && roster_count(r->roster) % 256 == 0) {
        lock_take(&r->lock);
        r->look.listed = roster_count(r->roster);
        lock_drop(&r->lock);
    }
    return rc;
}

/* Before the engine's own stands what was made of the list: with other settings the same upstream gives another tree. */
static void put_cursor(struct run *r, struct slice cursor)
{
    r->cursor_bytes = 0;
    if (cursor.n != 0 && cursor.n <= sizeof r->cursor - PRINT_BYTES) {
        be_put(r->cursor, PRINT_BYTES, sift_print(r->job->conf));
        memcpy(r->cursor + PRINT_BYTES, cursor.p, cursor.n);
        r->cursor_bytes = PRINT_BYTES + cursor.n;
    }
}

/* SLICE_NONE: none, or of other settings. */
static struct slice get_cursor(const struct run *r)
{
    const struct sync_state *st = &r->state;

    if (st->cursor_bytes <= PRINT_BYTES ||
        be_get(st->cursor, PRINT_BYTES) != sift_print(r->job->conf)) {
        return SLICE_NONE;
    }
    return slice_of(st->cursor + PRINT_BYTES, st->cursor_bytes - PRINT_BYTES);
}

static void on_listed(void *arg, int rc, const struct err *why, const struct engine_listed *l)
{
    struct run *r = arg;

    r->answered = true;
    r->rc = rc;
    if (rc != 0) {
        r->why = r->why.code == rc ? r->why : *why;
        r->why.code = rc;
        return;
    }
    r->keep_gone = l->partial;
    r->root_told = l->root != NULL;
    if (r->root_told) {
        r->told_root = *l->root;
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
    struct run *r = arg;

    if (rc != 0) {
        run_say(r, "the goodbye failed: %s", why->text);
    }
    r->answered = true;
}

static void on_broken(void *arg, int rc, const struct err *why)
{
    struct run *r = arg;

    r->broken = r->answered = true;
    r->rc = rc;
    r->why = *why;
    r->why.code = rc;
    run_takes_broken(r, rc, why);
}

static const struct engine_events engine_events = {on_probe, on_entry, on_listed, on_finished,
                                                   on_broken};

static int await(struct run *r, struct err *e)
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

static int open_engine(struct run *r, const struct run_upstream *u, struct err *e)
{
    const struct sync_conf *c = r->job->conf;
    int rc = sift_new(c, &r->sift, e);

    if (rc != 0) {
        return rc;
    }
    r->site = (struct engine_site){
        .base = r->base,
        .box = r->box,
        .disk = r->world.disk,
        .client = r->client,
        .store = r->world.store,
        .fetcher = r->fetcher,
        .origin = u->origin,
        .repo = slice_str(r->job->repo),
        .url = slice_str(u->url),
        .secret = r->job->secret,
        .ca_file = r->job->ca_file,
        .proxy = r->job->proxy,
        .no_proxy = r->job->no_proxy,
        .sift = r->sift,
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
        return err_set(e, E_CONFIG, "no engine speaks to %s", u->url);
    }
    r->rc = 0;
    r->broken = r->answered = false;
    return r->ops->open(&r->site, &engine_events, r, &r->engine, e);
}

void run_close_attempt(struct run *r)
{
    if (r->engine != NULL) {
        r->ops->close(&r->engine);
    }
    sift_free(&r->sift);
    plan_free(&r->plan);
    roster_free(&r->roster);
}

/* True: nothing has changed since the head that is live now was published. */
static int probe(struct run *r, bool *same, struct err *e)
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

static int list(struct run *r, struct err *e)
{
    uint64_t left_out = 0;
    int rc;

    run_at(r, RUN_LIST);
    r->left_out = r->sifted = 0;
    r->updating = false;
    r->roster = roster_new(r->job->conf->entries_max, r->site.list_bytes_max);
    err_clear(&r->why);
    r->ops->list(r->engine);
    rc = await(r, e);
    if (rc != 0) {
        return rc;
    }
    crash_point("sync.list");
    if (r->updating && strcmp(r->job->conf->profile, "debian") == 0) {
        return err_set(e, E_BUSY, "the upstream is being updated itself, it says");
    }
    roster_sort(r->roster, &left_out);
    r->left_out += left_out;
    lock_take(&r->lock);
    r->look.listed = roster_count(r->roster);
    r->look.memory_bytes = roster_memory(r->roster);
    lock_drop(&r->lock);
    run_say(r, "listed %zu %s, %" PRIu64 " more not wanted, left out %" PRIu64 "%s",
            roster_count(r->roster), plural(roster_count(r->roster), "entry", "entries"), r->sifted,
            r->left_out,
            r->keep_gone ? "; the upstream could not read all, nothing is removed" : "");
    return 0;
}

static int plan(struct run *r, struct err *e)
{
    struct plan_of_run *p = &r->plan;
    bool traced = false;
    int rc;

    run_at(r, RUN_PLAN);
    *p = (struct plan_of_run){.store = r->world.store,
                              .repo = slice_str(r->job->repo),
                              .roster = r->roster,
                              .sift = r->sift,
                              .has_base = r->head.seq != 0,
                              .base = r->head.root,
                              .base_entries = r->head.entries};
    rc = plan_make(p, e);
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
    plan_order(p, profile_of(r->job->conf));
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
static void finish_engine(struct run *r)
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

static int read_base(struct run *r, struct err *e)
{
    int rc = head_get(r->world.store, slice_str(r->job->repo), SLICE(SYNC_TREE), &r->head, e);

    if (rc == E_NOTFOUND) {
        r->head = (struct snap){0};
        rc = 0;
    }
    return rc == 0 ? sync_state_get(r->world.store, slice_str(r->job->repo), &r->state, e) : rc;
}

int run_attempt(struct run *r, const struct run_upstream *u, struct err *e)
{
    bool same = false;
    int rc = read_base(r, e);

    if (rc == 0) {
        rc = open_engine(r, u, e);
    }
    if (rc == 0) {
        rc = probe(r, &same, e);
    }
    if (rc == 0 && same) {
        run_say(r, "the probe says that nothing changed");
        run_outcome(r, RUN_UNCHANGED, r->head.seq, &r->head.root);
        r->state.failures = 0;
        r->state.last_ok_unix_s = clock_unix_s();
        return run_put_state(r, e);
    }
    if (rc == 0) {
        rc = list(r, e);
    }
    if (rc == 0) {
        rc = plan(r, e);
    }
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
        rc = run_take_all(r, e);
    }
    if (rc == 0) {
        finish_engine(r);
    }
    crash_point("sync.fetched");
    return rc == 0 ? run_land(r, e) : rc;
}
