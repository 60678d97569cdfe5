#include "server/cache/filler.h"

#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    BACKOFF_MIN_MS = 250,
    BACKOFF_MAX_MS = 30000,
    /* An origin that is gone may come back. One that answers and breaks off at the same byte, so often in a few seconds, will
     * do so again: its clients hear of it before they give up (10 s). */
    CUTS_MAX = 4,
    COMPARE_BYTES = 64 << 10,
    WORDS_MS = 5000,
    HELD_MS = 100,       /* a write for which there is no room yet is tried so often, */
    HELD_MAX_MS = 60000, /* ... and so long */
};

static void ask(struct filler *fl);
static void settle(struct filler *fl);
static void on_done(void *arg, int rc, const struct err *why);

static void timer_in(struct filler *fl, uint64_t ms)
{
    struct timeval tv = clock_timeval(ms);
    evtimer_add(fl->timer, &tv);
}

void filler_claim(struct filler *fl)
{
    struct claim *c = &fl->fill->claims[fl->slot];

    lock_take(&fl->fill->lock);
    *c = (struct claim){true, fl->recv - fl->gather.n - fl->data.n, fl->end};
    lock_drop(&fl->fill->lock);
}

static void filler_free(struct filler *fl)
{
    struct fill *f = fl->fill;

    lock_take(&f->lock);
    f->claims[fl->slot].active = false;
    lock_drop(&f->lock);
    f->fillers[fl->slot] = NULL;
    fetch_cancel(&fl->fetch);
    event_free(fl->timer);
    buf_free(&fl->gather);
    buf_free(&fl->data);
    free(fl);
}

unsigned filler_count(const struct fill *f)
{
    unsigned n = 0;

    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        n += f->fillers[i] != NULL;
    }
    return n;
}

void filler_stop(struct filler *fl)
{
    fetch_cancel(&fl->fetch);
    evtimer_del(fl->timer);
    if (fl->writing) {
        fl->dead = true; /* on_written() frees it */
    } else {
        filler_free(fl);
    }
}

void filler_stop_all(struct fill *f)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        if (f->fillers[i] != NULL) {
            filler_stop(f->fillers[i]);
        }
    }
}

/* Others wait for a connection that rests: what has come is finished at once. */
static void on_wanted(void *arg)
{
    struct filler *fl = arg;
    struct fill *f = fill_hold(fl->fill);

    if (fl->resting) {
        filler_finish_all(f);
    }
    fill_release(&f);
}

void filler_rest_all(struct fill *f)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        struct filler *fl = f->fillers[i];
        if (fl == NULL) {
            continue;
        }
        fl->resting = true;
        if (fl->fetch != NULL && !fetch_has_turn(fl->fetch)) {
            fetch_cancel(&fl->fetch); /* filler_wake_all() has it asked anew */
        } else if (fl->fetch != NULL) {
            fetch_rest(fl->fetch, on_wanted);
        }
    }
}

static void resume(struct filler *fl)
{
    if (fl->paused && !fl->resting && fl->fetch != NULL && fl->gather.n < GATHER_MAX / 2) {
        fl->paused = false;
        fetch_resume(fl->fetch);
    }
}

void filler_wake_all(struct fill *f)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        struct filler *fl = f->fillers[i];
        if (fl == NULL || !fl->resting) {
            continue;
        }
        fl->resting = false;
        if (fl->fetch != NULL) {
            fetch_rest(fl->fetch, NULL);
        }
        resume(fl);
        if (fl->fetch == NULL && !fl->over) {
            timer_in(fl, 0); /* its next try may have been due meanwhile */
        }
    }
}

void filler_hasten_all(struct fill *f)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        struct filler *fl = f->fillers[i];
        if (fl != NULL && fl->fetch == NULL && !fl->over && !fl->resting && fl->tries > 1) {
            fl->tries--;
            timer_in(fl, 0);
        }
    }
}

void filler_finish_all(struct fill *f)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        struct filler *fl = f->fillers[i];
        if (fl == NULL || fl->replay || fl->again || fl->no != NULL) {
            continue;
        }
        fetch_cancel(&fl->fetch);
        evtimer_del(fl->timer);
        filler_shorten(f, i, fl->recv);
        fl->paused = fl->resting = false;
        fl->over = true;
        fl->rc = 0;
        settle(fl); /* may free it */
    }
}

void filler_share_all(struct fill *f, uint64_t client)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        struct filler *fl = f->fillers[i];
        if (fl == NULL) {
            continue;
        }
        if (fl->fetch != NULL) {
            fetch_share(fl->fetch, client);
        }
        pool_move(f->cache->disk, &fl->job, client);
    }
}

void filler_shorten(struct fill *f, unsigned slot, uint64_t end)
{
    struct filler *fl = f->fillers[slot];

    fl->end = end;
    lock_take(&f->lock);
    f->claims[slot].end = end;
    lock_drop(&f->lock);
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static int compare(struct fill *f, const char *p, size_t n, uint64_t at, struct err *e)
{
    char there[COMPARE_BYTES];
    int rc = 0;

    while (rc == 0 && n > 0) {
        size_t part = (size_t)min_u64(n, sizeof there);
        rc = fd_pread_all(f->fd, there, part, at, e);
        if (rc == 0 && memcmp(there, p, part) != 0) {
            rc = err_set(e, E_CHANGED, "the origin's bytes changed while they were fetched");
        }
        p += part;
        at += part;
        n -= part;
    }
    return rc;
}

/* Bytes that are there were sent to readers already: they are never written again, but must be the same. */
static int put(struct filler *fl, struct err *e)
{
    struct fill *f = fl->fill;
    const char *p = fl->data.p;
    uint64_t at = fl->data_at;
    uint64_t end = at + fl->data.n;
    int rc = 0;

    while (rc == 0 && at < end) {
        uint64_t there;
        uint64_t next;
        uint64_t upto;
        lock_take(&f->lock);
        there = extents_until(&f->have, at);
        next = extents_next(&f->have, at);
        lock_drop(&f->lock);
        upto = min_u64(end, there > at ? there : next);
        fl->fresh_bytes += there > at ? 0 : upto - at;
        rc = there > at ? compare(f, p, (size_t)(upto - at), at, e)
                        : ingest_write(f->ingest, p, (size_t)(upto - at), at, e);
        p += upto - at;
        at = upto;
    }
    return rc;
}

static int put_if_admitted(struct filler *fl, struct err *e)
{
    struct fill *f = fl->fill;
    bool may_wait = fl->held_since_ms == 0 || fl->held_since_ms + HELD_MAX_MS > clock_now_ms();
    int rc = fill_admit(f, fl->data.n, may_wait, e);

    if (rc == 0) {
        rc = put(fl, e);
        if (rc == E_NOSPACE && fill_make_room(f, e) == 0) {
            rc = put(fl, e);
        }
    }
    return rc;
}

static void write_out(struct job *j)
{
    struct filler *fl = CONTAINER_OF(j, struct filler, job);
    struct fill *f = fl->fill;
    struct err *e = &fl->write_why;

    fl->write_waits = false;
    fl->write_rc = put_if_admitted(fl, e);
    if (fl->write_rc == E_NOSPACE) {
        fl->write_waits = fill_may_wait(f);
        if (!fl->write_waits) { /* what was in the way may have been sealed since: then there is room now */
            fl->write_rc = put_if_admitted(fl, e);
        }
    }
    if (fl->write_rc == 0) {
        fill_wrote(f, fl->data.n);
        fill_publish(f, fl->slot, fl->data_at, fl->data_at + fl->data.n); /* readers first */
        ingest_hash_along(f->ingest, buf_slice(&fl->data), fl->data_at);
    }
}

/* There is no room for these bytes until others of the client's fetches are sealed: the write is tried again, for a while. */
static bool hold(struct filler *fl)
{
    struct fill *f = fl->fill;
    uint64_t now = clock_now_ms();

    if (!fl->write_waits || (fl->held_since_ms != 0 && now >= fl->held_since_ms + HELD_MAX_MS)) {
        return false;
    }
    if (fl->held_since_ms == 0) {
        fl->held_since_ms = now;
        log_info("fill.held", "repo=" SLICE_FMT " at=%" PRIu64 " why=\"%s\"",
                 SLICE_ARG(f->want.repo), fl->data_at, fl->write_why.text);
    }
    f->over_share = false;
    fl->held = true;
    timer_in(fl, HELD_MS);
    return true;
}

static void write_data(struct filler *fl);

static void on_written(struct job *j)
{
    struct filler *fl = CONTAINER_OF(j, struct filler, job);
    struct fill *f = fill_hold(fl->fill);

    fill_job_done(f);
    fl->writing = false;
    if (!fl->dead && f->rc == 0 && fl->write_rc == E_NOSPACE && hold(fl)) {
        fill_release(&f);
        return;
    }
    buf_clear(&fl->data);
    fl->held_since_ms = 0;
    if (fl->dead) {
        filler_free(fl);
        fill_settle(f);
        fill_plan(f); /* it was stopped for another: the fill may have waited for it alone */
        fill_hash(f);
    } else if (fl->write_rc != 0) {
        fill_fail(f, fl->write_rc, &fl->write_why);
    } else {
        resume(fl);
        settle(fl);
        fill_hash(f);
    }
    fill_release(&f);
}

/* The first bytes go out at once; those that follow closely wait for company. */
static void write_on(struct filler *fl)
{
    struct fill *f = fl->fill;
    uint64_t now = clock_now_ms();
    struct buf data = fl->data;

    if (f->state != FILL_RUNNING || fl->writing || fl->held || fl->gather.n == 0) {
        return;
    }
    if (!fl->over && fl->gather.n < GATHER_BYTES && now < fl->wrote_ms + GATHER_MS) {
        timer_in(fl, fl->wrote_ms + GATHER_MS - now);
        return;
    }
    fl->data_at = fl->recv - fl->gather.n;
    fl->data = fl->gather;
    fl->gather = data;
    fl->wrote_ms = now;
    write_data(fl);
}

static void write_data(struct filler *fl)
{
    struct fill *f = fl->fill;

    fl->held = false;
    fl->writing = true;
    fill_job(f, &fl->job, write_out, on_written);
}

void filler_go(struct fill *f)
{
    for (unsigned i = 0; i < FILLERS_MAX; i++) {
        if (f->fillers[i] != NULL) {
            settle(f->fillers[i]);
        }
    }
}

/* --- the end of a request ----------------------------------------------------------------------------------------- */

static void try_again(struct filler *fl)
{
    struct fill *f = fl->fill;
    uint64_t ms = BACKOFF_MIN_MS;

    fl->detour = true;                    /* what a signature opened closes after its time */
    if (fl->fresh_bytes >= BLOCK_BYTES) { /* a trickle is no progress */
        fl->tries = fl->cuts = 0;
    }
    fl->tries++;
    fl->cuts += fl->headed;
    fl->fresh_bytes = 0;
    if (fl->tries > 1 || fl->rc == E_TIMEOUT) {
        fill_trouble(f, &fl->why);
    }
    if (fl->tries > f->cache->set.tries || fl->cuts > CUTS_MAX) {
        fill_fail(f, fl->rc, &fl->why);
        return;
    }
    for (unsigned i = 1; i < fl->tries && ms < BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    ms = min_u64(ms, BACKOFF_MAX_MS);
    log_info("fill.retry", "repo=" SLICE_FMT " at=%" PRIu64 " try=%u why=\"%s\"",
             SLICE_ARG(f->want.repo), fl->recv, fl->tries, fl->why.text);
    if (!f->splices || f->total_bytes == LENGTH_UNKNOWN) {
        fl->replay =
            true; /* no way to ask for the rest: all of it again, compared with what we have */
        fl->recv = 0;
        filler_shorten(f, fl->slot, f->total_bytes);
        fl->end = f->total_bytes;
    }
    fl->over = false;
    timer_in(fl, ms / 2 + (clock_now_ns() >> 10) % ms);
}

static void segment_done(struct filler *fl)
{
    struct fill *f = fl->fill;

    if (f->total_bytes == LENGTH_UNKNOWN) { /* the marked end of a body without a length */
        if (splice_check_length(f, fl->recv, true, &fl->why) != 0) {
            fill_fail(f, fl->why.code, &fl->why);
            return;
        }
        lock_take(&f->lock);
        f->total_bytes = fl->recv;
        lock_drop(&f->lock);
        fill_wake_all(f);
    }
    filler_free(fl);
    fill_plan(f);
    fill_hash(f);
}

/* Goes on where the last write or the end of the request left it. */
static void settle(struct filler *fl)
{
    struct fill *f = fl->fill;

    if (fl->held) {
        timer_in(fl, HELD_MS); /* the caller may have stopped it */
        return;
    }
    write_on(fl);
    if (!fl->over || fl->writing || fl->gather.n > 0 || f->rc != 0) {
        return;
    }
    if (fl->rc != 0 && fl->recv < fl->end) { /* else what is missing is somebody else's by now */
        try_again(fl);
    } else if (fl->end != LENGTH_UNKNOWN &&
               fl->recv < fl->end) { /* a bounded request: on to the next */
        fl->over = false;
        if (!fl->resting) { /* filler_wake_all() has it asked */
            ask(fl);
        }
    } else {
        segment_done(fl);
    }
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct filler *fl = arg;
    struct fill *f = fill_hold(fl->fill);

    (void)fd;
    (void)what;
    if (fl->held) {
        write_data(fl);
    } else if (fl->no != NULL) { /* a trickle of words is not worth waiting for */
        fetch_cancel(&fl->fetch);
        on_done(fl, E_TIMEOUT, NULL);
    } else if (fl->fetch == NULL && !fl->over && fl->recv < fl->end) {
        if (!fl->resting) {
            ask(fl);
        }
    } else {
        fl->over = fl->over || fl->fetch == NULL;
        settle(fl);
    }
    fill_release(&f);
}

/* --- events of the request ---------------------------------------------------------------------------------------- */

static int on_head(void *arg, const struct fetch_head *h)
{
    struct filler *fl = arg;
    struct fill *f = fill_hold(fl->fill);
    bool asking = f->state == FILL_ASKING;
    int rc;

    fl->headed = h->status == 200 || h->status == 206;
    rc = asking ? splice_first(fl, h) : splice_later(fl, h);
    if (asking && rc == 0 && fl->no != NULL) { /* else it may be gone by now */
        timer_in(fl, WORDS_MS);
    }
    fill_release(&f);
    return rc;
}

static int on_body(void *arg, struct slice bytes)
{
    struct filler *fl = arg;
    struct fill *f = fill_hold(fl->fill);
    uint64_t left =
        fl->end == LENGTH_UNKNOWN ? LENGTH_UNKNOWN : fl->end - min_u64(fl->end, fl->recv);
    bool full = bytes.n > left; /* somebody else took over what follows */
    struct err why;
    int rc = 0;

    if (fl->no != NULL) {
        full = fl->gather.n + bytes.n > TEXT_MAX;
        buf_adds(&fl->gather, full ? SLICE_NONE : bytes);
        fill_release(&f);
        return full ? E_TOOBIG : 0;
    }
    bytes.n = (size_t)min_u64(bytes.n, left);
    buf_adds(&fl->gather, bytes);
    CHECK(fl->gather.rc == 0); /* GATHER_MAX and one more gulp */
    fl->recv += bytes.n;
    if (f->total_bytes == LENGTH_UNKNOWN && splice_check_length(f, fl->recv, false, &why) != 0) {
        fill_fail(f, why.code, &why); /* cancels this request too */
        fill_release(&f);
        return E_CANCELLED;
    }
    write_on(fl);
    if (full) {
        rc = E_CANCELLED;
    } else if (fl->gather.n >= GATHER_MAX || fl->resting) {
        fl->paused = true;
        rc = FETCH_PAUSE;
    }
    fill_release(&f);
    return rc;
}

static void on_done(void *arg, int rc, const struct err *why)
{
    struct filler *fl = arg;
    struct fill *f = fill_hold(fl->fill);
    uint64_t due = fl->ask_end != LENGTH_UNKNOWN ? min_u64(fl->ask_end, fl->end) : fl->end;
    bool whole = rc == 0 || (rc == E_CANCELLED && fl->recv >= fl->end);

    fl->fetch = NULL;
    fl->paused = false;
    if (fl->no != NULL) {
        evtimer_del(fl->timer);
        splice_tell(fl, rc == 0);
        fill_fail(f, E_CANCELLED, why);
    } else if (fl->again) {
        if (f->resume_id != 0) {
            splice_forget_earlier(f);
        }
        fl->again = false;
        fl->recv = 0;
        fl->end = LENGTH_UNKNOWN;
        f->want_all = true;
        filler_claim(fl);
        ask(fl);
    } else if (f->state == FILL_ASKING || fl->other) {
        bool ours = fl->rc != 0; /* on_head() had a reason */
        fill_fail(f, ours ? fl->rc : rc != 0 ? rc : E_CANCELLED, ours ? &fl->why : why);
    } else {
        fl->over = true;
        if (whole && due != LENGTH_UNKNOWN && fl->recv < due) {
            fl->rc = err_set(&fl->why, E_NETWORK, "the body ended early");
        } else if (whole) {
            fl->rc = 0;
        } else if (fl->rc == 0 || rc != E_CANCELLED) {
            fl->rc = rc;
            fl->why = *why;
        }
        settle(fl);
    }
    fill_release(&f);
}

/* What the client had of the fields that its repo forwards. */
static size_t forwarded(const struct want *w, struct http_field *out)
{
    size_t n = 0;

    for (size_t i = 0; i < w->forwards; i++) {
        if (w->forward[i].sent == SENT && w->forward[i].value.p != NULL) {
            CHECK(n < FETCH_FIELDS);
            out[n++] = (struct http_field){w->forward[i].name, w->forward[i].value};
        }
    }
    return n;
}

static void ask(struct filler *fl)
{
    static const struct fetch_events events = {on_head, on_body, on_done};
    struct fill *f = fl->fill;
    bool asking = f->state == FILL_ASKING;
    bool resumed = f->object.origin_etag.p != NULL;
    struct http_field forward[FETCH_FIELDS];
    struct fetch_want w = {
        .origin = f->origin,
        .client = f->want.client,
        .url = f->want.url,
        .via = f->want.via,
        .head = f->want.head_only,
        .stays_home = f->want.stays_home,
        .accept = f->want.accept,
        .fields = forward,
        .authorization = f->want.authorization,
        .token_scope = f->want.token_scope,
        .content = f->want.content,
        .end = LENGTH_UNKNOWN,
    };

    w.nfields = forwarded(&f->want, forward);
    fl->rc = 0;
    fl->headed = false;
    fl->straight = !asking && !fl->detour && f->led_to.p != NULL;
    if (fl->straight) {
        w.url = f->led_to;
        w.via = f->want.url;
        w.content = SLICE_NONE; /* the origin has named them before it led there */
    }
    fl->ask_end = LENGTH_UNKNOWN;
    if (!w.head && !fl->replay && fl->end != LENGTH_UNKNOWN && (asking || f->splices)) {
        w.first = fl->recv;
        w.end = fl->ask_end = fl->end;
        w.if_range =
            resumed && etag_is_strong(f->object.origin_etag) ? f->object.origin_etag : SLICE_NONE;
    }
    if (asking && fl->old != NULL) {
        w.if_none_match = fl->old->origin_etag;
        w.if_modified_since = w.if_none_match.p == NULL ? fl->old->last_modified : SLICE_NONE;
        fl->old = NULL; /* asked a second time: for all of it */
    }
    fl->fetch = fetch_start(f->cache->fetcher, &w, &events, fl);
    for (unsigned i = 1; i < f->clients.count; i++) {
        fetch_share(fl->fetch, f->clients.client[i]);
    }
}

void filler_start(struct fill *f, uint64_t first, uint64_t end, const struct object *old)
{
    struct filler *fl = NEW(struct filler);

    fl->fill = f;
    while (f->fillers[fl->slot] != NULL) {
        fl->slot++;
        CHECK(fl->slot < FILLERS_MAX);
    }
    f->fillers[fl->slot] = fl;
    fl->recv = first;
    fl->end = end;
    fl->old = old;
    fl->gather = BUF_INIT(GATHER_MAX + (2 << 20));
    fl->data = BUF_INIT(GATHER_MAX + (2 << 20));
    fl->timer = evtimer_new(f->cache->base, on_timer, fl);
    CHECK(fl->timer != NULL);
    filler_claim(fl);
    ask(fl);
}
