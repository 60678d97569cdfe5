#include "agent/pull/pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/peers/swarm.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    RESTARTS_MAX = 3,
    SAVE_EVERY_MS = 2000,
    SAVE_EVERY_BYTES = 256 << 20,
};

/* --- ends and beginnings ------------------------------------------------------------------------------------------------ */

struct pull *pull_add(struct puller *pl, const struct pull_want *w,
                      void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    struct pull *p = NEW(struct pull);

    p->pl = pl;
    p->want = *w;
    p->want.url = arena_copy(&p->arena, w->url);
    p->want.other_url = arena_copy(&p->arena, w->other_url);
    p->url = p->want.url;
    p->bound = !digest_is_zero(&w->digest);
    p->size_bytes = SIZE_UNKNOWN;
    p->on_done = on_done;
    p->arg = arg;
    p->snapshot = BUF_INIT(PARTS_MAX / 8 + 4096);
    list_init(&p->lanes);
    if (w->size_bytes != SIZE_UNKNOWN) {
        p->shown_known = w->size_bytes; /* counted already by whoever learned it */
    }
    CHECK(pl->seats > 0);
    pl->seats--;
    list_push_back(&pl->pulls, &p->node);
    return p;
}

static void stop_asking(struct pull *p)
{
    if (p->ask != NULL) {
        ask_cancel(&p->ask);
        puller_give_conn(p->pl);
    }
}

static void drop_work(struct pull *p)
{
    if (p->phase == PULL_DONE && p->result.rc == 0) {
        swarm_finish(&p->swarm);
    } else {
        swarm_leave(&p->swarm);
    }
    follow_free(&p->follow);
    if (p->discard) {
        parts_discard(p->pl->agent->shelf, &p->parts);
    }
    parts_close(&p->parts);
    chunks_free(&p->list);
    free(p->bad_tries);
    p->bad_tries = NULL;
    shelf_unlock(&p->lock);
}

void pull_end(struct pull *p)
{
    struct pull_result *r = &p->result;
    struct slice shown = p->want.url;

    CHECK(p->phase == PULL_DONE && p->jobs == 0 && list_empty(&p->lanes));
    shown = slice_cut(&shown, '?'); /* a query may be signed */
    err_prefix(&r->why, SLICE_FMT, SLICE_ARG(shown));
    list_remove(&p->node);
    p->pl->seats++;
    p->on_done(p->arg, r);
    drop_work(p);
    buf_free(&p->snapshot);
    arena_fini(&p->arena);
    free(p);
}

void pull_succeed(struct pull *p, const struct digest *d, uint64_t size_bytes, bool was_there)
{
    p->result.digest = *d;
    p->result.size_bytes = size_bytes;
    p->result.was_there = was_there;
    p->size_bytes = size_bytes;
    shelf_note(p->pl->agent->shelf, d, size_bytes, slice_str(p->etag), p->want.url);
    p->pl->done_bytes += size_bytes - p->shown_bytes;
    p->pl->known_bytes += size_bytes - p->shown_known;
    p->shown_bytes = p->shown_known = size_bytes;
    p->phase = PULL_DONE;
}

/* --- the resume state, saved now and then ------------------------------------------------------------------------------------ */

static void save_work(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, saving);
    struct err why;

    if (parts_save(p->pl->agent->shelf, &p->key, p->parts->fd, buf_slice(&p->snapshot), &why) !=
        0) {
        log_warn("pull.state", "not saved: %s",
                 why.text); /* costs bytes after a crash, nothing else */
    }
}

static void save_done(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, saving);

    p->jobs--;
    p->save_runs = false;
    p->saved_at_ms = clock_now_ms();
    pull_job_ended(p);
    puller_feed(p->pl);
}

void pull_tick(struct pull *p, uint64_t now_ms)
{
    if (p->phase != PULL_FETCH) {
        return;
    }
    fetch_tick(p, now_ms);
    if (p->save_runs || p->dirty_bytes == 0 || p->parts->stateless ||
        (p->dirty_bytes < SAVE_EVERY_BYTES && now_ms < p->saved_at_ms + SAVE_EVERY_MS)) {
        return;
    }
    buf_clear(&p->snapshot);
    parts_snapshot(p->parts, &p->snapshot);
    p->dirty_bytes = 0;
    p->save_runs = true;
    p->saving = (struct job){.work = save_work, .done = save_done, .reply = p->pl->mail};
    p->jobs++;
    pool_submit(p->pl->workers, &p->saving, CLIENT_PROGRAM);
}

static void save_last(struct pull *p)
{
    struct err why;

    if (p->parts != NULL && !p->discard && p->dirty_bytes > 0 && !p->parts->stateless) {
        buf_clear(&p->snapshot);
        parts_snapshot(p->parts, &p->snapshot);
        if (parts_save(p->pl->agent->shelf, &p->key, p->parts->fd, buf_slice(&p->snapshot), &why) !=
            0) {
            log_warn("pull.state", "what was fetched is lost: %s", why.text);
        }
    }
}

int pull_differs(const struct pull *p, const struct digest *got, struct err *e)
{
    char have[DIGEST_HEX + 1];
    char want[DIGEST_HEX + 1];

    digest_format(got, have);
    digest_format(&p->digest, want);
    return err_set(e, E_CORRUPT, "sha256 is %s, not %.16s... as %s", have, want,
                   p->bound ? "asked for" : "the mirror says");
}

/* --- draining: nothing may be torn down under a job that still runs ---------------------------------------------------------- */

void pull_drained(struct pull *p)
{
    if (p->phase != PULL_DRAIN || p->jobs != 0 || (p->follow != NULL && follow_busy(p->follow))) {
        return;
    }
    switch (p->drained) {
    case NEXT_RESTART:
        drop_work(p);
        p->discard = p->rescanned = p->chunked = p->hashed = false;
        p->dirty_bytes = 0;
        p->phase = PULL_START;
        break;
    case NEXT_RESCAN:
        seal_rescan(p);
        break;
    case NEXT_FAIL:
        save_last(p);
        p->phase = PULL_DONE;
        break;
    }
}

void pull_drain(struct pull *p, enum pull_next next)
{
    stop_asking(p);
    fetch_cancel_lanes(p);
    p->phase = PULL_DRAIN;
    p->drained = next;
    pull_drained(p);
}

void pull_fail(struct pull *p, int rc, const struct err *why)
{
    if (p->phase == PULL_DONE || (p->phase == PULL_DRAIN && p->drained == NEXT_FAIL)) {
        return; /* the first reason stands */
    }
    p->result.rc = rc;
    p->result.why = *why;
    p->result.why.code = rc;
    pull_drain(p, NEXT_FAIL);
}

void pull_restart(struct pull *p, bool discard, int rc, const struct err *why)
{
    if (p->phase == PULL_DRAIN || p->phase == PULL_DONE) {
        return;
    }
    if (rc == E_CHANGED && p->want.other_url.n != 0) {
        p->url = p->want.other_url; /* the name moved on; the digest has an address of its own */
    }
    if (++p->restarts > RESTARTS_MAX) {
        struct err last = *why;
        if (rc == E_CHANGED && p->bound && p->want.other_url.n == 0) {
            char hex[DIGEST_HEX + 1];
            digest_format(&p->want.digest, hex);
            rc = err_set(&last, E_CORRUPT, "not the sha256 %.16s... asked for, %d times", hex,
                         RESTARTS_MAX);
        } else if (rc == E_CHANGED) {
            err_set(&last, rc, "it changed on the mirror while it was fetched, %d times",
                    RESTARTS_MAX);
        }
        pull_fail(p, rc, &last);
        return;
    }
    p->discard = discard;
    pull_drain(p, NEXT_RESTART);
}

void pull_retry_later(struct pull *p, int rc, const struct err *why, uint64_t after_s)
{
    uint64_t wait_ms = puller_pause_ms(p->pl, p->tries, after_s);
    uint64_t now_ms = clock_now_ms();

    if (now_ms < p->not_before_ms) {
        return; /* one outage, and many connections that it hits */
    }
    if (++p->tries > p->pl->agent->tries) {
        pull_fail(p, rc, why);
        return;
    }
    p->not_before_ms = now_ms + wait_ms;
    log_debug("pull.retry", "wait_ms=%" PRIu64 " why=\"%s\"", wait_ms, why->text);
}

void pull_stop(struct pull *p)
{
    struct err why;

    if (p->phase != PULL_SEAL) { /* all there: a moment, and it is on the shelf */
        err_set(&why, E_CANCELLED, "stopped");
        pull_fail(p, E_CANCELLED, &why);
    }
}

static void feed_once(struct pull *p)
{
    if (p->phase == PULL_FETCH) {
        fetch_feed(p);
    } else {
        learn_feed(p);
    }
}

void pull_feed(struct pull *p)
{
    enum pull_phase before;

    if (p->pl->stopping) {
        pull_stop(p);
        return;
    }
    do {
        before = p->phase;
        feed_once(p);
    } while (p->phase != before);
}
