#include "agent/pull/pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    RESTARTS_MAX = 3,
    SAVE_EVERY_MS = 2000,
    SAVE_EVERY_BYTES = 256 << 20,
    LIST_MAX = 64 << 20,
    RETRY_AFTER_MAX_S = 60,
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
    p->on_done(p->arg, r);
    drop_work(p);
    buf_free(&p->snapshot);
    arena_fini(&p->arena);
    free(p);
}

static void succeed(struct pull *p, const struct digest *d, uint64_t size_bytes, bool was_there)
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

/* --- draining: nothing may be torn down under a job that still runs ---------------------------------------------------------- */

static void rescan(struct pull *p);

static void save_last(struct pull *p)
{
    struct err why;

    if (p->parts != NULL && !p->discard && p->dirty_bytes > 0) {
        buf_clear(&p->snapshot);
        parts_snapshot(p->parts, &p->snapshot);
        if (parts_save(p->pl->agent->shelf, &p->key, p->parts->fd, buf_slice(&p->snapshot), &why) !=
            0) {
            log_warn("pull.state", "what was fetched is lost: %s", why.text);
        }
    }
}

static void drained(struct pull *p)
{
    if (p->phase != PULL_DRAIN || p->jobs != 0 || (p->follow != NULL && follow_busy(p->follow))) {
        return;
    }
    switch (p->drained) {
    case NEXT_RESTART:
        drop_work(p);
        p->discard = p->rescanned = p->chunked = false;
        p->dirty_bytes = 0;
        p->phase = PULL_START;
        break;
    case NEXT_RESCAN:
        rescan(p);
        break;
    case NEXT_FAIL:
        save_last(p);
        p->phase = PULL_DONE;
        break;
    }
}

static void drain(struct pull *p, enum pull_next next)
{
    stop_asking(p);
    fetch_cancel_lanes(p);
    p->phase = PULL_DRAIN;
    p->drained = next;
    drained(p);
}

void pull_fail(struct pull *p, int rc, const struct err *why)
{
    if (p->phase == PULL_DONE || (p->phase == PULL_DRAIN && p->drained == NEXT_FAIL)) {
        return; /* the first reason stands */
    }
    p->result.rc = rc;
    p->result.why = *why;
    p->result.why.code = rc;
    drain(p, NEXT_FAIL);
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
    drain(p, NEXT_RESTART);
}

void pull_retry_later(struct pull *p, int rc, const struct err *why, uint64_t after_s)
{
    uint64_t wait_ms = (uint64_t)100 << p->tries;

    if (++p->tries > p->pl->agent->tries) {
        pull_fail(p, rc, why);
        return;
    }
    wait_ms += slice_hash(p->url) % 100; /* not all nodes at once */
    p->not_before_ms =
        clock_now_ms() + max_u64(wait_ms, min_u64(after_s, RETRY_AFTER_MAX_S) * 1000);
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

/* --- what is known, and is it here? ------------------------------------------------------------------------------------------ */

static bool on_shelf(struct pull *p)
{
    uint64_t size;

    if (!p->known && p->etag[0] != '\0') {
        struct digest d;
        if (shelf_recall(p->pl->agent->shelf, p->want.url, slice_str(p->etag), &d) &&
            shelf_find(p->pl->agent->shelf, &d, &size, NULL) == 0) {
            succeed(p, &d, size, true);
            return true;
        }
    }
    if (p->known && shelf_find(p->pl->agent->shelf, &p->digest, &size, NULL) == 0) {
        succeed(p, &p->digest, size, true);
        return true;
    }
    return false;
}

static void start(struct pull *p)
{
    char hex[DIGEST_HEX + 1];

    p->known = p->bound;
    p->digest = p->want.digest;
    p->size_bytes = p->want.size_bytes;
    p->etag[0] = '\0';
    p->list_url = SLICE_NONE;
    if (on_shelf(p)) {
        return;
    }
    if (p->bound && p->size_bytes != SIZE_UNKNOWN) { /* a listing told all that HEAD could */
        digest_format(&p->digest, hex);
        p->list_url =
            arena_fmt(&p->arena, SLICE_FMT "/-/chunks/%s", SLICE_ARG(p->pl->agent->mirror), hex);
        p->phase = PULL_LOCK;
    } else {
        p->phase = PULL_ASK;
    }
}

/* The target of the link whose rel is describedby: `</-/chunks/...>; rel="describedby"`. */
static struct slice described_by(struct slice link)
{
    while (link.n > 0) {
        struct slice item = slice_cut(&link, ',');
        ptrdiff_t from = slice_find(item, '<');
        ptrdiff_t to = slice_find(item, '>');

        if (from >= 0 && to > from &&
            memmem(item.p + to, item.n - (size_t)to, "rel=\"describedby\"", 17) != NULL) {
            return slice_of(item.p + from + 1, (size_t)(to - from) - 1);
        }
    }
    return SLICE_NONE;
}

static int digest_differs(const struct pull *p, const struct digest *got, struct err *e)
{
    char have[DIGEST_HEX + 1];
    char want[DIGEST_HEX + 1];

    digest_format(got, have);
    digest_format(&p->digest, want);
    return err_set(e, E_CORRUPT, "sha256 is %s, not %.16s... as %s", have, want,
                   p->bound ? "asked for" : "the mirror says");
}

static void learn(struct pull *p, const struct ask_answer *a)
{
    struct slice link = described_by(a->link);
    struct buf url = BUF_INIT(8192);
    struct url list;
    struct digest says;
    struct err why;

    p->size_bytes = a->content_length;
    if (a->etag.n > 0 && a->etag.p[0] == '"' && a->etag.n < PARTS_ETAG_ROOM) {
        memcpy(p->etag, a->etag.p, a->etag.n);
        p->etag[a->etag.n] = '\0';
    }
    if (digest_from_field(a->digest, &says)) {
        if (p->bound && !digest_eq(&says, &p->digest)) {
            int rc = digest_differs(p, &says, &why);
            if (p->want.other_url.n != 0 && !slice_eq(p->url, p->want.other_url)) {
                pull_restart(p, false, E_CHANGED, &why);
            } else { /* asked for by the caller: no other try will match it */
                pull_fail(p, rc, &why);
            }
            return;
        }
        p->digest = says;
        p->known = true;
    }
    /* The list is asked for with our token: at the mirror's own host only. */
    if (link.n > 0 && url_resolve(a->url, link, &url, NULL) == 0 &&
        url_split(buf_slice(&url), &list, NULL) == 0 &&
        url_same_host(&list, &p->pl->agent->mirror_url)) {
        p->list_url = arena_copy(&p->arena, buf_slice(&url));
    }
    buf_free(&url);
    p->phase = PULL_LOCK;
    (void)on_shelf(p);
}

static void on_asked(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct pull *p = arg;
    struct err e = *why;

    p->ask = NULL;
    puller_give_conn(p->pl);
    if (rc == E_DENIED || rc == E_INVALID || rc == E_TOOBIG) {
        pull_fail(p, rc, &e);
    } else if (rc != 0) {
        pull_retry_later(p, rc, &e, 0);
    } else if (a->status == 405 || a->status == 501) {
        p->phase = PULL_LOCK; /* no HEAD here: the stream will tell what it is */
    } else {
        rc = a->status / 100 == 3 && slice_ends(a->location, SLICE("/"))
                 ? err_set(&e, E_NOTFOUND, "it is a folder")
                 : ask_judge(a->status, &e);
        if (rc == 0) {
            p->url = arena_copy(&p->arena, a->url);
            learn(p, a);
        } else if (rc == E_AGAIN) {
            pull_retry_later(p, rc, &e, a->retry_after_s);
        } else {
            pull_fail(p, rc, &e);
        }
    }
    puller_feed(p->pl);
}

static void ask(struct pull *p, enum xfer_method method, struct slice url, size_t body_max,
                void (*done)(void *, int, const struct err *, const struct ask_answer *))
{
    const struct ask_want w = {.method = method, .url = url, .body_max = body_max};

    if (p->ask == NULL && clock_now_ms() >= p->not_before_ms && puller_take_conn(p->pl)) {
        p->ask = ask_start(p->pl->xfers, p->pl->agent, &w, done, p);
    }
}

/* --- the lock, the list, the partial file ------------------------------------------------------------------------------------ */

static void on_followed(void *arg, int rc, const struct err *why)
{
    struct pull *p = arg;

    if (rc != 0) {
        pull_fail(p, rc, why);
    }
    pull_job_ended(p);
    puller_feed(p->pl);
}

static void open_parts(struct pull *p)
{
    static const struct digest none;
    struct err why;
    int rc = parts_open(p->pl->agent->shelf, &p->key, p->known ? &p->digest : &none, p->size_bytes,
                        p->etag, &p->parts, &why);

    if (rc != 0) {
        pull_fail(p, rc, &why);
        return;
    }
    if (p->chunked) {
        p->bad_tries = mem_array(p->parts->count + 1, 1);
    }
    p->follow = follow_new(p->pl->followers, p->pl->mail, p->parts->fd, on_followed, p);
    follow_to(p->follow, parts_prefix_bytes(p->parts));
    p->saved_at_ms = clock_now_ms();
    p->phase = PULL_FETCH;
    pull_job_ended(p); /* an earlier run may have left nothing to fetch */
}

static void take_lock(struct pull *p)
{
    struct err why;
    int rc;

    if (p->known) {
        p->key = p->digest;
    } else {
        shelf_key_of_url(p->want.url, &p->key);
    }
    rc = shelf_try_lock(p->pl->agent->shelf, &p->key, false, &p->lock, &why);
    if (rc == E_BUSY) {
        return; /* another job on this node fetches it: the next tick looks again */
    }
    if (rc != 0) {
        pull_fail(p, rc, &why);
        return;
    }
    if (on_shelf(p)) { /* it came while we waited */
        return;
    }
    if (p->list_url.n != 0 && !p->list_lies && !p->no_ranges && p->size_bytes != SIZE_UNKNOWN &&
        p->size_bytes > PART_BYTES) {
        p->phase = PULL_LIST;
    } else {
        open_parts(p);
    }
}

static bool list_fits(struct pull *p, struct slice bytes)
{
    struct err why = {0};

    if (chunks_decode(bytes, &p->list, &why) == 0) {
        if (p->list.chunk_bytes == PART_BYTES && p->list.size_bytes == p->size_bytes &&
            (!p->known || digest_eq(&p->list.whole, &p->digest))) {
            return true;
        }
        err_set(&why, E_INVALID, "it is of another object");
    }
    log_warn("pull.chunks", "the mirror's chunk list is not used: %s", why.text);
    chunks_free(&p->list);
    return false;
}

static void on_list(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct pull *p = arg;

    p->ask = NULL;
    puller_give_conn(p->pl);
    if (rc != 0 && rc != E_TOOBIG) {
        pull_retry_later(p, rc, why, 0);
    } else if (rc == 0 && (a->status == 429 || a->status == 503)) {
        pull_retry_later(p, E_AGAIN, why, a->retry_after_s);
    } else { /* without a list: one stream, which is as safe */
        p->chunked = rc == 0 && a->status == 200 && list_fits(p, a->body);
        open_parts(p);
    }
    puller_feed(p->pl);
}

/* --- the end of a fetch: whole digest, shelf ---------------------------------------------------------------------------------- */

static void rescan_work(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);
    char *bytes = mem_new(PART_BYTES);

    for (size_t i = 0; p->job_rc == 0 && i < p->parts->count; i++) {
        size_t n = parts_length(p->parts, i);
        struct digest got;

        p->job_rc = fd_pread_all(p->parts->fd, bytes, n, i * PART_BYTES, &p->job_why);
        digest_of(slice_of(bytes, n), &got);
        p->rotten[i] = !digest_eq(&got, &p->list.chunk[i]);
    }
    free(bytes);
}

static void rescan_done(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);
    struct err why = {0};
    size_t bad = 0;

    p->jobs--;
    for (size_t i = 0; i < p->parts->count; i++) {
        if (p->rotten[i] != 0) {
            parts_mark(p->parts, i, PART_MISSING);
            bad++;
        }
    }
    free(p->rotten);
    p->rotten = NULL;
    p->phase = PULL_FETCH;
    if (p->job_rc != 0) {
        pull_fail(p, p->job_rc, &p->job_why);
    } else if (bad == 0) {
        log_warn("pull.chunks",
                 "the mirror's chunk list does not belong to the digest: one stream instead");
        p->list_lies = true;
        pull_restart(p, true, E_CORRUPT, &why);
    } else {
        log_warn("pull.rotten", "%zu parts of an earlier run were damaged: fetched again", bad);
        follow_free(&p->follow);
        p->follow = follow_new(p->pl->followers, p->pl->mail, p->parts->fd, on_followed, p);
        follow_to(p->follow, parts_prefix_bytes(p->parts));
    }
    puller_feed(p->pl);
}

static void rescan(struct pull *p)
{
    p->phase = PULL_SEAL;
    p->rescanned = true;
    p->rotten = mem_array(p->parts->count, 1);
    p->job_rc = 0;
    p->job = (struct job){.work = rescan_work, .done = rescan_done, .reply = p->pl->mail};
    p->jobs++;
    pool_submit(p->pl->workers, &p->job);
}

static void seal_work(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);

    p->job_rc = shelf_seal(p->pl->agent->shelf, &p->key, p->parts->fd, &p->digest, &p->job_why);
}

static void seal_done(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);

    p->jobs--;
    if (p->job_rc == 0) {
        succeed(p, &p->digest, p->size_bytes, false);
    } else {
        p->phase = PULL_FETCH;
        pull_fail(p, p->job_rc, &p->job_why);
    }
    puller_feed(p->pl);
}

static void wrong_digest(struct pull *p, const struct digest *got)
{
    struct err why;
    int rc = digest_differs(p, got, &why);

    if (p->chunked && !p->rescanned) {
        drain(p, NEXT_RESCAN);
    } else if (p->chunked || p->parts->resumed > 0) {
        p->list_lies = p->list_lies || p->chunked;
        pull_restart(p, true, rc, &why);
    } else {
        p->discard = true;
        pull_fail(p, rc, &why);
    }
}

/* A job, a lane or a stretch of hashing ended: is that all? */
void pull_job_ended(struct pull *p)
{
    struct digest got;

    drained(p);
    if (p->phase != PULL_FETCH || p->jobs != 0 || !list_empty(&p->lanes) ||
        !parts_complete(p->parts) || follow_busy(p->follow) ||
        follow_at(p->follow) != p->size_bytes) {
        return;
    }
    follow_final(p->follow, &got);
    if (p->known && !digest_eq(&got, &p->digest)) {
        wrong_digest(p, &got);
        return;
    }
    p->digest = got;
    p->phase = PULL_SEAL;
    p->job_rc = 0;
    p->job = (struct job){.work = seal_work, .done = seal_done, .reply = p->pl->mail};
    p->jobs++;
    pool_submit(p->pl->workers, &p->job);
}

/* --- saving what is there, now and then ----------------------------------------------------------------------------------------- */

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
    fetch_show(p);
    if (p->save_runs || p->dirty_bytes == 0 ||
        (p->dirty_bytes < SAVE_EVERY_BYTES && now_ms < p->saved_at_ms + SAVE_EVERY_MS)) {
        return;
    }
    buf_clear(&p->snapshot);
    parts_snapshot(p->parts, &p->snapshot);
    p->dirty_bytes = 0;
    p->save_runs = true;
    p->saving = (struct job){.work = save_work, .done = save_done, .reply = p->pl->mail};
    p->jobs++;
    pool_submit(p->pl->workers, &p->saving);
}

static void feed_once(struct pull *p)
{
    switch (p->phase) {
    case PULL_START:
        start(p);
        break;
    case PULL_ASK:
        ask(p, XFER_HEAD, p->url, 0, on_asked);
        break;
    case PULL_LOCK:
        take_lock(p);
        break;
    case PULL_LIST:
        ask(p, XFER_GET, p->list_url, LIST_MAX, on_list);
        break;
    case PULL_FETCH:
        fetch_feed(p);
        break;
    case PULL_SEAL:
    case PULL_DONE:
    case PULL_DRAIN:
        break;
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
