/* range_request.c - the range requests of a fetch: which segments are requested, which responses
 * may be joined, writes and retries.
 *
 * fetch_plan() decides what is fetched next: the blocks that a reader waits for, then, if the whole
 * object is needed, the gaps from the front. A range request is made for each such segment. It
 * sends one request to the origin after the other (DUE, ASKED) until its segment is complete.
 * Received bytes are gathered and written by a job on the pool; when there is no room, the write is
 * held and tried again. When a request has ended (OVER) and its bytes are written, the range
 * request sends the next one, retries with growing pauses, or is freed.
 *
 * Each response is judged by its head. Only responses with the same strong validator, or an object
 * with a known digest, may be joined from several responses. Any other response belongs to another
 * generation: the fetch starts again, or ends. If the rest cannot be requested by range, a retry
 * begins at byte 0 and compares the bytes that are already there. A retry that brings less than a
 * block is no progress, and after too many of these the whole fetch fails. fetch_priv.h draws the
 * states.
 *
 * In a cluster a request goes to another mirror first (neighbor.h), whose response is the origin's.
 * Once one neighbor has failed, all later requests of the fetch go to the next one, and at last to
 * the origin.
 *
 * threads  the fetch thread; a range request's job runs on a pool thread, which touches `data` and
 *          the result of write_fetched_bytes()
 */
#include <event2/event.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"
#include "server/cache/fetch_priv.h"

enum {
    BACKOFF_MIN_MS = 250,
    BACKOFF_MAX_MS = 30000,
    /* An origin that is gone may come back. One that answers and breaks off at the same byte, so
     * often in a few seconds, will do so again: its clients hear of it before they give up (10
     * s). */
    CUTS_MAX = 4,
    COMPARE_BYTES = 64 << 10,
    WORDS_MS = 5000,
    HELD_MS = 100,       /* a write for which there is no room yet is tried so often, */
    HELD_MAX_MS = 60000, /* ... and so long */
};

struct range_request { /* one upstream request after the other, until its segment is there */
    struct fetch *fetch;
    unsigned slot;
    enum range_request_state state;
    struct origin_request *request; /* ASKED; else NULL */
    const struct object *old;       /* borrowed during the first request: what is revalidated */
    const struct object *asked_old; /* `old` of the request under way */
    const struct neighbor *to;      /* whom the request under way asks; NULL: the origin */
    uint64_t end;                   /* of the segment; LENGTH_UNKNOWN: to the end, wherever it is */
    uint64_t recv;                  /* next byte to come */
    uint64_t ask_end;               /* of the request under way; LENGTH_UNKNOWN: no Range */
    struct buf gather;              /* what came, [recv - gather.n, recv) */
    bool paused;
    /* nobody wants its bytes for the moment: the origin is not read from, nor asked again */
    bool resting;
    bool replay; /* from byte 0 again: what is there is compared, not written */
    enum {
        HEAD_JOINS, /* or is awaited */
        HEAD_AGAIN, /* the answer does not fit: ask anew, for all of it */
        HEAD_OTHER, /* the first head was the owner's business */
    } verdict;
    const struct origin_head
        *no;       /* it is, once its text is in `gather`; or NULL. In the fetch's arena */
    bool straight; /* this request went where an earlier one was led, */
    bool detour;   /* ... the next asks again where that is */
    int rc;        /* OVER: with that */
    struct err why;
    uint64_t fresh_bytes; /* new ones since the last trouble */
    unsigned tries;       /* since the last progress */
    unsigned cuts;        /* of these, the origin gave a head and no body */
    bool headed;          /* this request has its head */
    uint64_t wrote_ms;    /* when the last write was begun */
    struct event *timer;  /* gathered long enough; or the next try */
    enum range_request_write write;
    uint64_t held_since_ms; /* since when no write had room; 0: the last one had */
    struct job job;
    struct buf data; /* being written */
    uint64_t data_at;
    bool write_waits; /* without room it is held: other fetches of its client are not sealed yet */
    int write_rc;
    struct err write_why;
};

static void send_range_request(struct range_request *fl);
static void continue_range_request(struct range_request *fl);
static void on_range_request_done(void *arg, int rc, const struct err *why);
static void ask_elsewhere(struct range_request *fl);
static void range_request_claim(struct range_request *fl);
/* Gives up what lies at and behind `end`. */
static void range_request_shorten(struct fetch *f, unsigned slot, uint64_t end);
static void
range_request_stop(struct range_request *fl); /* no event comes any more; it may still be writing */

/* --- answers that may be joined --------------------------------------------------------------- */

/* n: the length as announced, or (a lower bound) what has come of it. The repo's bound, an index's
 * size and the bound of documents are held before the first byte is passed on, else as soon as they
 * are passed. */
static int join_check_length(const struct fetch *f, uint64_t n, bool whole, struct err *e)
{
    uint64_t lookup = f->lookup.size_bytes;
    uint64_t max = f->lookup.max_bytes;

    if (max != 0 && n > max) {
        return err_set(e, E_REFUSED,
                       "the object has %s%" PRIu64 " bytes; this repo accepts at most %" PRIu64
                       " (max_object)",
                       whole ? "" : "more than ", whole ? n : max, max);
    }
    if (lookup != LENGTH_UNKNOWN && (n > lookup || (whole && n != lookup))) {
        COUNT(f->cache, verify_failures, 1);
        return err_set(e, E_CORRUPT,
                       "the origin's object has %s%" PRIu64
                       " bytes, but the index announces %" PRIu64,
                       whole ? "" : "more than ", whole ? n : lookup, lookup);
    }
    if (f->lookup.document && n > f->cache->set.document_bytes) {
        return err_set(e, E_TOOBIG, "the index document is larger than %" PRIu64 " bytes",
                       f->cache->set.document_bytes);
    }
    return 0;
}

static void set_total(struct fetch *f, uint64_t total)
{
    lock_take(&f->lock);
    f->total_bytes = total;
    lock_drop(&f->lock);
}

/* Mirrors and the bucket of a cluster have other ETags for the same bytes: the digest judges
 * them. */
static bool same_validator(const struct fetch *f, const struct origin_head *h)
{
    struct slice etag = slice_trim(origin_head_field(h, "etag"));

    return slice_eq(etag, f->object.origin_etag) || (f->lookup.digest_known && f->neighbors != 0);
}

/* May parts be joined? A strong validator, or a digest that judges the whole (RFC 9110
 * 15.3.7.3). */
static bool part_can_be_joined(const struct fetch *f, const struct origin_head *h)
{
    return h->framed && h->total != LENGTH_UNKNOWN &&
           origin_head_field(h, "content-encoding").p == NULL &&
           (f->lookup.digest_known || etag_is_strong(slice_trim(origin_head_field(h, "etag"))));
}

static void join_forget_earlier(struct fetch *f)
{
    lock_take(&f->lock);
    extents_fini(&f->have);
    f->total_bytes = LENGTH_UNKNOWN;
    lock_drop(&f->lock);
    f->object.origin_etag = SLICE_NONE;
}

static int ask_for_all(struct range_request *fl)
{
    fl->verdict = HEAD_AGAIN;
    return 1;
}

/* Is the text behind it wanted, too? Of trouble only where there is no older generation to be given
 * instead. */
static bool has_words(const struct fetch *f, const struct origin_head *h)
{
    return (f->lookup.errors & ERRORS_PASSED_ON) != 0 && !f->lookup.head_only && h->status != 304 &&
           h->status != 429 && (h->status < 500 || !f->replaces) &&
           (h->content_length == LENGTH_UNKNOWN || h->content_length <= TEXT_MAX);
}

static const struct origin_head *keep_head(struct fetch *f, const struct origin_head *h)
{
    struct origin_head *kept = ARENA_NEW(&f->arena, struct origin_head);
    struct http_field *fields = arena_alloc(&f->arena, (h->nfields + 1) * sizeof *fields);

    *kept = *h;
    for (size_t i = 0; i < h->nfields; i++) {
        fields[i].name = arena_copy(&f->arena, h->fields[i].name);
        fields[i].value = arena_copy(&f->arena, h->fields[i].value);
    }
    kept->fields = fields;
    kept->url = arena_copy(&f->arena, h->url);
    kept->why = SLICE_NONE;
    return kept;
}

static void join_tell(struct range_request *fl, bool whole)
{
    struct fetch *f = fl->fetch;
    struct slice text = buf_slice(&fl->gather);

    f->text = !whole ? SLICE_NONE : text.p != NULL ? text : SLICE("");
    f->owner->other(f->owner_arg, f, fl->no);
    f->text = SLICE_NONE;
    fl->no = NULL;
}

/* The head of the fetch's first request. 0: its body may come; else it is cancelled, and `other`,
 * `again`, rc or the fetch's end say why. */
static int join_first(struct range_request *fl, const struct origin_head *h)
{
    struct fetch *f = fl->fetch;
    bool resumed = f->resume_id != 0 && f->total_bytes != LENGTH_UNKNOWN;
    uint64_t total = h->status == 206 ? h->total : h->content_length;

    if (h->status == 416 && fl->ask_end != LENGTH_UNKNOWN && !f->lookup.head_only) {
        return ask_for_all(fl); /* empty, or shorter than the hint */
    }
    if (h->status != 200 && h->status != 206) {
        fl->verdict = HEAD_OTHER;
        if (has_words(f, h)) {
            fl->no = keep_head(f, h);
            return 0;
        }
        f->owner->other(f->owner_arg, f, h);
        return 1;
    }
    if (total != LENGTH_UNKNOWN && join_check_length(f, total, true, &fl->why) != 0) {
        fl->rc = fl->why.code;
        return 1;
    }
    if (f->lookup.head_only || fetch_is_refused(f, h)) {
        fl->verdict = HEAD_OTHER;
        f->owner->other(f->owner_arg, f, h);
        return 1;
    }
    if (h->status == 206) {
        if (!part_can_be_joined(f, h) && (fl->recv > 0 || h->total > fl->ask_end)) {
            return ask_for_all(fl);
        }
        if (resumed && (h->total != f->total_bytes || !same_validator(f, h))) {
            return ask_for_all(fl);
        }
        set_total(f, h->total);
        fl->end = min_u64(fl->end, h->total);
    } else {
        if (resumed) {
            join_forget_earlier(f);
        }
        fl->recv = 0;
        fl->end = h->content_length;
        fetch_aim_at_whole(f);
        set_total(f, h->content_length);
    }
    range_request_claim(fl);
    fetch_learn(f, h, h->status == 206 || fl->ask_end == LENGTH_UNKNOWN || resumed);
    return 0;
}

/* A later request of the same fetch: any other object is another generation, and never joined. */
static int join_later(struct range_request *fl, const struct origin_head *h)
{
    struct fetch *f = fl->fetch;
    struct err why;

    if (h->status == 206 && h->total == f->total_bytes && same_validator(f, h)) {
        if (!fl->straight) {
            fl->detour = false;
            fetch_led(f, h);
        }
        return 0;
    }
    if (h->status == 200 && same_validator(f, h) &&
        (h->content_length == f->total_bytes || f->total_bytes == LENGTH_UNKNOWN)) {
        if (range_request_count(f) >
            1) { /* the origin has stopped giving ranges: one stream does it all */
            f->splices = false;
            for (unsigned i = 0; i < CLAIMS_MAX; i++) {
                if (f->range_requests[i] != NULL && f->range_requests[i] != fl) {
                    range_request_stop(f->range_requests[i]);
                }
            }
        }
        fl->replay = true;
        fl->recv = 0;
        fl->end = f->total_bytes;
        range_request_claim(fl);
        return 0;
    }
    if (h->status == 200 || h->status == 206 || h->status == 412 || h->status == 416) {
        err_set(&why, E_CHANGED, "the origin's file changed while it was fetched");
        fetch_fail(f, E_CHANGED, &why);
        return 1;
    }
    err_set(&fl->why, E_NETWORK, "the origin answered %d in the middle of the download", h->status);
    fl->rc = E_NETWORK;
    fl->tries += !fl->straight && h->status >= 400 && h->status < 500 && h->status != 429 ? 3 : 0;
    return 1;
}

/* --- neighbors -------------------------------------------------------------------------------- */

static const struct neighbor *neighbor_now(const struct fetch *f)
{
    return f->asked < f->neighbors ? &f->neighbor[f->asked] : NULL;
}

/* Whoever of the fetch's range requests notices it first. */
static void leave_neighbor(struct fetch *f, const struct neighbor *n)
{
    if (n != NULL && neighbor_now(f) == n) {
        f->asked++;
    }
}

static bool has_left_neighbor(const struct range_request *fl)
{
    return fl->to != NULL && neighbor_now(fl->fetch) != fl->to;
}

/* The neighbor reads in the lookup what the origin reads in header fields. */
static bool aim_at_neighbor(struct range_request *fl, struct origin_request_params *w,
                            struct http_field field[2], struct arena *a)
{
    struct fetch *f = fl->fetch;
    const struct cache *c = f->cache;
    struct buf text = BUF_INIT(NEIGHBOR_TEXT_MAX);
    char signature[NEIGHBOR_SIGNATURE_ROOM];
    bool fits = neighbor_text(&f->lookup, fl->to->sibling, f->parent, &text);

    if (fits) {
        c->neighbors->sign(c->neighbors_arg, buf_slice(&text), signature);
        field[0] =
            (struct http_field){SLICE(NEIGHBOR_LOOKUP_FIELD), arena_copy(a, buf_slice(&text))};
        field[1] = (struct http_field){SLICE(NEIGHBOR_SIGNATURE_FIELD),
                                       arena_copy(a, slice_str(signature))};
        *w = (struct origin_request_params){
            .origin = fl->to->origin,
            .client = w->client,
            .url = arena_fmt(a, "%s%s", origin_url(fl->to->origin), &NEIGHBOR_PATH[1]),
            .head = w->head,
            .stays_home = true,
            .fields = field,
            .nfields = 2,
            .first = w->first,
            .end = w->end,
            .if_range = w->if_range,
            .if_none_match = w->if_none_match,
            .if_modified_since = w->if_modified_since,
            .once = true,
        };
    }
    buf_free(&text);
    return fits;
}

/* True: *out is the head of the origin's response. */
static bool hear_neighbor(struct range_request *fl, const struct origin_head *h,
                          struct origin_head *out)
{
    struct fetch *f = fl->fetch;
    struct slice etag = origin_head_field(h, NEIGHBOR_ETAG_FIELD);
    struct slice url = origin_head_field(h, NEIGHBOR_URL_FIELD);
    bool follows = f->state == FETCH_ASKING ||
                   ((h->status == 200 || h->status == 206) && same_validator(f, h));

    if (!follows ||
        !slice_u64(slice_trim(origin_head_field(h, NEIGHBOR_SINCE_FIELD)), &f->age_here_s)) {
        return false;
    }
    *out = *h;
    out->url = url.p != NULL ? url : f->lookup.url;
    if (f->state == FETCH_ASKING && etag_is_strong(slice_trim(etag))) {
        f->owner_etag = arena_copy(&f->arena, slice_trim(etag));
    }
    return true;
}

/* The origin has given the neighbor no response: as if it had given us none. What the neighbor
 * gives instead is taken where there is nothing here. */
static bool fails_with_neighbor(struct range_request *fl, const struct origin_head *h)
{
    struct slice why = origin_head_field(h, NEIGHBOR_WHY_FIELD), kind = slice_cut(&why, ' ');

    if (fl->fetch->state != FETCH_ASKING || why.n == 0) {
        return false;
    }
    if (h->status < 400 && fl->asked_old == NULL) {
        fl->fetch->head = HEAD_IS_STALE;
        return false;
    }
    fl->rc = err_set(&fl->why,
                     slice_eqs(kind, NEIGHBOR_WHY_TIMEOUT) ? E_TIMEOUT
                     : slice_eqs(kind, NEIGHBOR_WHY_BUSY)  ? E_BUSY
                                                           : E_NETWORK,
                     SLICE_FMT, SLICE_ARG(why));
    return true;
}

/* --- requests --------------------------------------------------------------------------------- */

static const struct state of_range_request[] = {
    [RANGE_REQUEST_DUE] = {"due", STATE(RANGE_REQUEST_ASKED) | STATE(RANGE_REQUEST_OVER) |
                                      STATE(RANGE_REQUEST_STOPPED)},
    [RANGE_REQUEST_ASKED] = {"asked", STATE(RANGE_REQUEST_DUE) | STATE(RANGE_REQUEST_OVER) |
                                          STATE(RANGE_REQUEST_STOPPED)},
    [RANGE_REQUEST_OVER] = {"over", STATE(RANGE_REQUEST_DUE) | STATE(RANGE_REQUEST_STOPPED)},
    [RANGE_REQUEST_STOPPED] = {"stopped", 0},
};
static const struct state of_write[] = {
    [RANGE_REQUEST_WRITES_NONE] = {"nothing to write", STATE(RANGE_REQUEST_WRITE_OUT)},
    [RANGE_REQUEST_WRITE_OUT] = {"write out", STATE(RANGE_REQUEST_WRITES_NONE) |
                                                  STATE(RANGE_REQUEST_WRITE_HELD)},
    [RANGE_REQUEST_WRITE_HELD] = {"write held", STATE(RANGE_REQUEST_WRITE_OUT)},
};
const struct state_table range_request_states = STATE_TABLE("range request", of_range_request);
const struct state_table range_request_writes = STATE_TABLE("write of a range request", of_write);

static void becomes(struct range_request *fl, enum range_request_state to)
{
    fl->state = state_step(&range_request_states, fl->state, to);
}

static void write_becomes(struct range_request *fl, enum range_request_write to)
{
    fl->write = state_step(&range_request_writes, fl->write, to);
}

/* Its request is under way no more, and says nothing of its end. */
static void put_off(struct range_request *fl)
{
    if (fl->state == RANGE_REQUEST_ASKED) {
        origin_request_cancel(&fl->request);
        becomes(fl, RANGE_REQUEST_DUE);
    }
}

static void end_request(struct range_request *fl)
{
    if (fl->state != RANGE_REQUEST_OVER) {
        becomes(fl, RANGE_REQUEST_OVER);
    }
}

static void timer_in(struct range_request *fl, uint64_t ms)
{
    struct timeval tv = clock_timeval(ms);
    evtimer_add(fl->timer, &tv);
}

static void range_request_claim(struct range_request *fl)
{
    struct claim *c = &fl->fetch->claims.of[fl->slot];

    lock_take(&fl->fetch->lock);
    *c = (struct claim){true, fl->recv - fl->gather.n - fl->data.n, fl->end};
    lock_drop(&fl->fetch->lock);
}

static void range_request_free(struct range_request *fl)
{
    struct fetch *f = fl->fetch;

    lock_take(&f->lock);
    f->claims.of[fl->slot].active = false;
    lock_drop(&f->lock);
    f->range_requests[fl->slot] = NULL;
    origin_request_cancel(&fl->request);
    event_free(fl->timer);
    buf_free(&fl->gather);
    buf_free(&fl->data);
    free(fl);
}

unsigned range_request_count(const struct fetch *f)
{
    unsigned n = 0;

    for (unsigned i = 0; i < CLAIMS_MAX; i++) {
        n += f->range_requests[i] != NULL;
    }
    return n;
}

static void range_request_stop(struct range_request *fl)
{
    if (fl->state == RANGE_REQUEST_STOPPED) {
        return;
    }
    put_off(fl);
    evtimer_del(fl->timer);
    if (fl->write == RANGE_REQUEST_WRITE_OUT) {
        becomes(fl, RANGE_REQUEST_STOPPED); /* on_written() frees it */
    } else {
        range_request_free(fl);
    }
}

/* Others wait for a connection that rests: what has come is finished at once. */
static void on_wanted(void *arg)
{
    struct range_request *fl = arg;
    struct fetch *f = fetch_hold(fl->fetch);

    if (fl->resting) {
        range_requests_do(f, RANGE_REQUESTS_FINISH);
    }
    fetch_release(&f);
}

static void range_request_rest(struct range_request *fl)
{
    fl->resting = true;
    if (fl->state == RANGE_REQUEST_ASKED && !origin_request_has_turn(fl->request)) {
        put_off(fl); /* range_request_wake() has it asked anew */
    } else if (fl->state == RANGE_REQUEST_ASKED) {
        origin_request_rest(fl->request, on_wanted);
    }
}

static void resume_range_request(struct range_request *fl)
{
    if (fl->paused && !fl->resting && fl->state == RANGE_REQUEST_ASKED &&
        fl->gather.n < GATHER_MAX / 2) {
        fl->paused = false;
        origin_request_resume(fl->request);
    }
}

static void range_request_wake(struct range_request *fl)
{
    if (!fl->resting) {
        return;
    }
    fl->resting = false;
    if (fl->state == RANGE_REQUEST_ASKED) {
        origin_request_rest(fl->request, NULL);
    }
    resume_range_request(fl);
    if (fl->state == RANGE_REQUEST_DUE) {
        timer_in(fl, 0); /* its next try may have been due meanwhile */
    }
}

static void range_request_hasten(struct range_request *fl)
{
    if (fl->state == RANGE_REQUEST_DUE && !fl->resting && fl->tries > 1) {
        fl->tries--;
        timer_in(fl, 0);
    }
}

static void range_request_elsewhere(struct range_request *fl)
{
    if (fl->to == NULL || fl->state != RANGE_REQUEST_ASKED || fl->no != NULL) {
        return;
    }
    leave_neighbor(fl->fetch, fl->to);
    put_off(fl);
    if (fl->fetch->state == FETCH_ASKING) {
        ask_elsewhere(fl);
    } else {
        fl->paused = false;
        end_request(fl);
        fl->rc = err_set(&fl->why, E_NETWORK, "the mirror that sent it is gone");
        continue_range_request(fl); /* may free it */
    }
}

static void range_request_finish(struct range_request *fl)
{
    if (fl->state == RANGE_REQUEST_STOPPED || fl->replay || fl->verdict == HEAD_AGAIN ||
        fl->no != NULL) {
        return;
    }
    put_off(fl);
    evtimer_del(fl->timer);
    range_request_shorten(fl->fetch, fl->slot, fl->recv);
    fl->paused = fl->resting = false;
    end_request(fl);
    fl->rc = 0;
    continue_range_request(fl); /* may free it */
}

void range_requests_do(struct fetch *f, enum range_requests_do what)
{
    static void (*const each[])(struct range_request * fl) = {
        [RANGE_REQUESTS_STOP] = range_request_stop,
        [RANGE_REQUESTS_REST] = range_request_rest,
        [RANGE_REQUESTS_WAKE] = range_request_wake,
        [RANGE_REQUESTS_HASTEN] = range_request_hasten,
        [RANGE_REQUESTS_FINISH] = range_request_finish,
        [RANGE_REQUESTS_ELSEWHERE] = range_request_elsewhere,
        [RANGE_REQUESTS_GO_ON] = continue_range_request,
    };

    for (unsigned i = 0; i < CLAIMS_MAX; i++) {
        if (f->range_requests[i] != NULL) {
            each[what](f->range_requests[i]);
        }
    }
}

void range_request_share_all(struct fetch *f, uint64_t client)
{
    for (unsigned i = 0; i < CLAIMS_MAX; i++) {
        struct range_request *fl = f->range_requests[i];
        if (fl == NULL) {
            continue;
        }
        if (fl->state == RANGE_REQUEST_ASKED) {
            origin_request_share(fl->request, client);
        }
        pool_move(f->cache->disk, &fl->job, client);
    }
}

static void range_request_shorten(struct fetch *f, unsigned slot, uint64_t end)
{
    struct range_request *fl = f->range_requests[slot];

    fl->end = end;
    lock_take(&f->lock);
    f->claims.of[slot].end = end;
    lock_drop(&f->lock);
}

/* --- writing ---------------------------------------------------------------------------------- */

static int compare_range_bytes(struct fetch *f, const char *p, size_t n, uint64_t at, struct err *e)
{
    char there[COMPARE_BYTES];
    int rc = 0;

    while (rc == 0 && n > 0) {
        size_t part = (size_t)min_u64(n, sizeof there);
        rc = fd_pread_all(f->fd, there, part, at, e);
        if (rc == 0 && memcmp(there, p, part) != 0) {
            rc = err_set(e, E_CHANGED, "the origin's object changed while it was fetched");
        }
        p += part;
        at += part;
        n -= part;
    }
    return rc;
}

/* Bytes that are there were sent to readers already: they are never written again, but must be the
 * same. */
static int write_range_bytes(struct range_request *fl, struct err *e)
{
    struct fetch *f = fl->fetch;
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
        rc = there > at ? compare_range_bytes(f, p, (size_t)(upto - at), at, e)
                        : ingest_write(f->ingest, p, (size_t)(upto - at), at, e);
        p += upto - at;
        at = upto;
    }
    return rc;
}

static int put_if_admitted(struct range_request *fl, struct err *e)
{
    struct fetch *f = fl->fetch;
    bool may_wait = fl->held_since_ms == 0 || fl->held_since_ms + HELD_MAX_MS > clock_now_ms();
    int rc = fetch_admit(f, fl->data.n, may_wait, e);

    if (rc == 0) {
        rc = write_range_bytes(fl, e);
        if (rc == E_NOSPACE && fetch_make_room(f, e) == 0) {
            rc = write_range_bytes(fl, e);
        }
    }
    return rc;
}

static void write_fetched_bytes(struct job *j)
{
    struct range_request *fl = CONTAINER_OF(j, struct range_request, job);
    struct fetch *f = fl->fetch;
    struct err *e = &fl->write_why;
    uint64_t n = fl->data.n;

    atomic_fetch_add(&f->cache->arriving_bytes, n);
    fl->write_waits = false;
    fl->write_rc = put_if_admitted(fl, e);
    if (fl->write_rc == E_NOSPACE) {
        fl->write_waits = fetch_may_wait(f);
        /* What took the space may have been sealed since: then there is room now. */
        if (!fl->write_waits) {
            fl->write_rc = put_if_admitted(fl, e);
        }
    }
    if (fl->write_rc == 0) {
        fetch_publish(f, fl->slot, fl->data_at, fl->data_at + fl->data.n); /* readers first */
        ingest_hash_along(f->ingest, buf_slice(&fl->data), fl->data_at);
    }
    atomic_fetch_sub(&f->cache->arriving_bytes, n);
}

/* There is no room for these bytes until others of the client's fetches are sealed: the write is
 * tried again, for a while. */
static bool hold_range_bytes(struct range_request *fl)
{
    struct fetch *f = fl->fetch;
    uint64_t now = clock_now_ms();

    if (!fl->write_waits || (fl->held_since_ms != 0 && now >= fl->held_since_ms + HELD_MAX_MS)) {
        return false;
    }
    if (fl->held_since_ms == 0) {
        fl->held_since_ms = now;
        log_info("fetch.held", "repo=" SLICE_FMT " at=%" PRIu64 " why=\"%s\"",
                 SLICE_ARG(f->lookup.repo), fl->data_at, fl->write_why.text);
    }
    f->over_share = false;
    write_becomes(fl, RANGE_REQUEST_WRITE_HELD);
    timer_in(fl, HELD_MS);
    return true;
}

static void write_data(struct range_request *fl);

static void on_written(struct job *j)
{
    struct range_request *fl = CONTAINER_OF(j, struct range_request, job);
    struct fetch *f = fetch_hold(fl->fetch);

    fetch_job_done(f);
    if (fl->state != RANGE_REQUEST_STOPPED && f->rc == 0 && fl->write_rc == E_NOSPACE &&
        hold_range_bytes(fl)) {
        fetch_release(&f);
        return;
    }
    write_becomes(fl, RANGE_REQUEST_WRITES_NONE);
    buf_clear(&fl->data);
    fl->held_since_ms = 0;
    if (fl->state == RANGE_REQUEST_STOPPED) {
        range_request_free(fl);
        fetch_settle(f);
        fetch_plan(f); /* it was stopped for another: the fetch may have waited for it alone */
        fetch_hash(f);
    } else if (fl->write_rc != 0) {
        fetch_fail(f, fl->write_rc, &fl->write_why);
    } else {
        resume_range_request(fl);
        continue_range_request(fl);
        fetch_hash(f);
    }
    fetch_release(&f);
}

/* The first bytes go out at once; those that follow closely wait for company. */
static void flush_range_bytes(struct range_request *fl)
{
    struct fetch *f = fl->fetch;
    uint64_t now = clock_now_ms();
    struct buf data = fl->data;

    if (f->state != FETCH_RUNNING || fl->write != RANGE_REQUEST_WRITES_NONE || fl->gather.n == 0) {
        return;
    }
    if (fl->state != RANGE_REQUEST_OVER && fl->gather.n < GATHER_BYTES &&
        now < fl->wrote_ms + GATHER_MS) {
        timer_in(fl, fl->wrote_ms + GATHER_MS - now);
        return;
    }
    fl->data_at = fl->recv - fl->gather.n;
    fl->data = fl->gather;
    fl->gather = data;
    fl->wrote_ms = now;
    write_data(fl);
}

static void write_data(struct range_request *fl)
{
    struct fetch *f = fl->fetch;

    write_becomes(fl, RANGE_REQUEST_WRITE_OUT);
    fetch_job(f, &fl->job, write_fetched_bytes, on_written);
}

/* --- the end of a request --------------------------------------------------------------------- */

/* A retry has brought nothing. */
static void note_trouble(struct fetch *f, const struct err *why)
{
    lock_take(&f->lock);
    if (f->troubled_ms == 0) {
        f->troubled_ms = clock_now_ms();
    }
    f->trouble = *why;
    lock_drop(&f->lock);
}

static void prepare_next_try(struct range_request *fl)
{
    struct fetch *f = fl->fetch;

    if (!f->splices || f->total_bytes == LENGTH_UNKNOWN) {
        fl->replay =
            true; /* no way to ask for the rest: all of it again, compared with what we have */
        fl->recv = 0;
        range_request_shorten(f, fl->slot, f->total_bytes);
        fl->end = f->total_bytes;
    }
    becomes(fl, RANGE_REQUEST_DUE);
}

static void try_again(struct range_request *fl)
{
    struct fetch *f = fl->fetch;
    uint64_t ms = BACKOFF_MIN_MS;

    fl->detour = true;           /* what a signature opened closes after its time */
    if (has_left_neighbor(fl)) { /* a neighbor broke off: another one has not been tried yet */
        prepare_next_try(fl);
        timer_in(fl, 0);
        return;
    }
    if (fl->fresh_bytes >= BLOCK_BYTES) { /* a trickle is no progress */
        fl->tries = fl->cuts = 0;
    }
    fl->tries++;
    fl->cuts += fl->headed;
    fl->fresh_bytes = 0;
    if (fl->tries > 1 || fl->rc == E_TIMEOUT) {
        note_trouble(f, &fl->why);
    }
    if (fl->tries > f->cache->set.tries || fl->cuts > CUTS_MAX) {
        fetch_fail(f, fl->rc, &fl->why);
        return;
    }
    for (unsigned i = 1; i < fl->tries && ms < BACKOFF_MAX_MS; i++) {
        ms *= 2;
    }
    ms = min_u64(ms, BACKOFF_MAX_MS);
    log_info("fetch.retry", "repo=" SLICE_FMT " at=%" PRIu64 " try=%u why=\"%s\"",
             SLICE_ARG(f->lookup.repo), fl->recv, fl->tries, fl->why.text);
    prepare_next_try(fl);
    timer_in(fl, ms / 2 + (clock_now_ns() >> 10) % ms);
}

static void segment_done(struct range_request *fl)
{
    struct fetch *f = fl->fetch;

    if (f->total_bytes == LENGTH_UNKNOWN) { /* the marked end of a body without a length */
        if (join_check_length(f, fl->recv, true, &fl->why) != 0) {
            fetch_fail(f, fl->why.code, &fl->why);
            return;
        }
        lock_take(&f->lock);
        f->total_bytes = fl->recv;
        lock_drop(&f->lock);
        fetch_wake_all(f);
    }
    range_request_free(fl);
    fetch_plan(f);
    fetch_hash(f);
}

/* Goes on where the last write or the end of the request left it. */
static void continue_range_request(struct range_request *fl)
{
    struct fetch *f = fl->fetch;

    if (fl->write == RANGE_REQUEST_WRITE_HELD) {
        timer_in(fl, HELD_MS); /* the caller may have stopped it */
        return;
    }
    flush_range_bytes(fl);
    if (fl->state != RANGE_REQUEST_OVER || fl->write != RANGE_REQUEST_WRITES_NONE ||
        fl->gather.n > 0 || f->rc != 0) {
        return;
    }
    if (fl->rc != 0 && fl->recv < fl->end) { /* else what is missing is somebody else's by now */
        try_again(fl);
    } else if (fl->end != LENGTH_UNKNOWN &&
               fl->recv < fl->end) { /* a bounded request: on to the next */
        becomes(fl, RANGE_REQUEST_DUE);
        if (!fl->resting) { /* range_request_wake() has it asked */
            send_range_request(fl);
        }
    } else {
        segment_done(fl);
    }
}

static void on_range_request_timer(evutil_socket_t fd, short what, void *arg)
{
    struct range_request *fl = arg;
    struct fetch *f = fetch_hold(fl->fetch);

    (void)fd;
    (void)what;
    if (fl->write == RANGE_REQUEST_WRITE_HELD) {
        write_data(fl);
    } else if (fl->no != NULL) { /* a trickle of words is not worth waiting for */
        origin_request_cancel(&fl->request);
        on_range_request_done(fl, E_TIMEOUT, NULL);
    } else if (fl->state == RANGE_REQUEST_DUE && fl->recv < fl->end) {
        if (!fl->resting) {
            send_range_request(fl);
        }
    } else {
        if (fl->state == RANGE_REQUEST_DUE) {
            end_request(fl);
        }
        continue_range_request(fl);
    }
    fetch_release(&f);
}

/* --- events of the request -------------------------------------------------------------------- */

static int on_range_request_head(void *arg, const struct origin_head *h)
{
    struct range_request *fl = arg;
    struct fetch *f = fetch_hold(fl->fetch);
    bool asking = f->state == FETCH_ASKING;
    struct origin_head origins;
    int rc;

    f->age_here_s = fl->to == NULL ? 0 : f->age_here_s;
    if (fl->to != NULL && !hear_neighbor(fl, h, &origins)) {
        leave_neighbor(f, fl->to);
        fetch_release(&f);
        return E_CANCELLED;
    }
    h = fl->to != NULL ? &origins : h;
    if (fl->to != NULL && fails_with_neighbor(fl, h)) {
        fetch_release(&f);
        return E_CANCELLED;
    }
    fl->headed = h->status == 200 || h->status == 206;
    rc = asking ? join_first(fl, h) : join_later(fl, h);
    if (asking && rc == 0 && fl->no != NULL) { /* else it may be gone by now */
        timer_in(fl, WORDS_MS);
    }
    fetch_release(&f);
    return rc;
}

static int on_range_request_body(void *arg, struct slice bytes)
{
    struct range_request *fl = arg;
    struct fetch *f = fetch_hold(fl->fetch);
    uint64_t left =
        fl->end == LENGTH_UNKNOWN ? LENGTH_UNKNOWN : fl->end - min_u64(fl->end, fl->recv);
    bool full = bytes.n > left; /* somebody else took over what follows */
    struct err why;
    int rc = 0;

    if (fl->no != NULL) {
        full = fl->gather.n + bytes.n > TEXT_MAX;
        buf_adds(&fl->gather, full ? SLICE_NONE : bytes);
        fetch_release(&f);
        return full ? E_TOOBIG : 0;
    }
    bytes.n = (size_t)min_u64(bytes.n, left);
    buf_adds(&fl->gather, bytes);
    CHECK(fl->gather.rc == 0); /* GATHER_MAX and one more gulp */
    fl->recv += bytes.n;
    if (f->total_bytes == LENGTH_UNKNOWN && join_check_length(f, fl->recv, false, &why) != 0) {
        fetch_fail(f, why.code, &why); /* cancels this request too */
        fetch_release(&f);
        return E_CANCELLED;
    }
    flush_range_bytes(fl);
    if (full) {
        rc = E_CANCELLED;
    } else if (fl->gather.n >= GATHER_MAX || fl->resting) {
        fl->paused = true;
        rc = ORIGIN_REQUEST_PAUSE;
    }
    fetch_release(&f);
    return rc;
}

/* The neighbor had no response of the origin's. */
static void ask_elsewhere(struct range_request *fl)
{
    fl->old = fl->asked_old;
    if (!fl->resting) { /* range_request_wake() has it asked */
        send_range_request(fl);
    }
}

static void on_range_request_done(void *arg, int rc, const struct err *why)
{
    struct range_request *fl = arg;
    struct fetch *f = fetch_hold(fl->fetch);
    uint64_t due = fl->ask_end != LENGTH_UNKNOWN ? min_u64(fl->ask_end, fl->end) : fl->end;
    bool whole = rc == 0 || (rc == E_CANCELLED && fl->recv >= fl->end);

    bool broke = fl->to != NULL && rc != 0 && rc != E_CANCELLED;

    fl->request = NULL;
    becomes(fl, RANGE_REQUEST_DUE);
    fl->paused = false;
    if (broke) {
        f->parent = fl->to->sibling ? f->parent : PARENT_IS_DEAD;
        f->cache->neighbors->failed(f->cache->neighbors_arg, fl->to->origin, rc);
        leave_neighbor(f, fl->to);
    }
    if (has_left_neighbor(fl) && !fl->headed && fl->no == NULL) {
        ask_elsewhere(fl);
    } else if (fl->no != NULL) {
        evtimer_del(fl->timer);
        join_tell(fl, rc == 0);
        fetch_fail(f, E_CANCELLED, why);
    } else if (fl->verdict == HEAD_AGAIN) {
        if (f->resume_id != 0) {
            join_forget_earlier(f);
        }
        fl->verdict = HEAD_JOINS;
        fl->recv = 0;
        fl->end = LENGTH_UNKNOWN;
        fetch_aim_at_whole(f);
        range_request_claim(fl);
        send_range_request(fl);
    } else if (f->state == FETCH_ASKING || fl->verdict == HEAD_OTHER) {
        bool ours = fl->rc != 0; /* on_range_request_head() had a reason */
        fetch_fail(f, ours ? fl->rc : rc != 0 ? rc : E_CANCELLED, ours ? &fl->why : why);
    } else {
        becomes(fl, RANGE_REQUEST_OVER);
        if (whole && due != LENGTH_UNKNOWN && fl->recv < due) {
            fl->rc = err_set(&fl->why, E_NETWORK, "the body ended before its announced length");
        } else if (whole) {
            fl->rc = 0;
        } else if (fl->rc == 0 || rc != E_CANCELLED) {
            fl->rc = rc;
            fl->why = *why;
        }
        continue_range_request(fl);
    }
    fetch_release(&f);
}

/* What the client had of the fields that its repo forwards. */
static size_t forwarded(const struct lookup *w, struct http_field *out)
{
    size_t n = 0;

    for (size_t i = 0; i < w->forwards; i++) {
        if (w->forward[i].sent == SENT && w->forward[i].value.p != NULL) {
            CHECK(n < ORIGIN_REQUEST_FIELDS);
            out[n++] = (struct http_field){w->forward[i].name, w->forward[i].value};
        }
    }
    return n;
}

static void send_range_request(struct range_request *fl)
{
    static const struct origin_request_events events = {
        on_range_request_head, on_range_request_body, on_range_request_done};
    struct fetch *f = fl->fetch;
    bool asking = f->state == FETCH_ASKING;
    bool resumed = f->object.origin_etag.p != NULL;
    struct http_field forward[ORIGIN_REQUEST_FIELDS], about[2];
    struct arena a = {0}; /* the request copies what it is given */
    struct origin_request_params w = {
        .origin = f->origin,
        .client = f->lookup.client,
        .url = f->lookup.url,
        .via = f->lookup.via,
        .head = f->lookup.head_only,
        .stays_home = f->lookup.redirects == REDIRECTS_AT_HOME,
        .accept = f->lookup.accept,
        .fields = forward,
        .authorization = f->lookup.authorization,
        .token_scope = f->lookup.token_scope,
        .content = f->lookup.content,
        .end = LENGTH_UNKNOWN,
    };

    w.nfields = forwarded(&f->lookup, forward);
    fl->to = neighbor_now(f);
    fl->rc = 0;
    fl->headed = false;
    fl->straight = fl->to == NULL && !asking && !fl->detour && f->led_to.p != NULL;
    if (fl->straight) {
        w.url = f->led_to;
        w.via = f->lookup.url;
        w.content = SLICE_NONE; /* the origin has named them before it led there */
    }
    fl->ask_end = LENGTH_UNKNOWN;
    if (!w.head && !fl->replay && fl->end != LENGTH_UNKNOWN && (asking || f->splices)) {
        w.first = fl->recv;
        w.end = fl->ask_end = fl->end;
        w.if_range =
            resumed && etag_is_strong(f->object.origin_etag) ? f->object.origin_etag : SLICE_NONE;
    }
    fl->asked_old = fl->old;
    if (asking && fl->old != NULL) {
        w.if_none_match = fl->old->origin_etag;
        w.if_modified_since = w.if_none_match.p == NULL ? fl->old->last_modified : SLICE_NONE;
        fl->old = NULL; /* asked a second time: for all of it */
    }
    if (fl->to != NULL && !aim_at_neighbor(fl, &w, about, &a)) {
        f->asked = f->neighbors;
        fl->to = NULL;
    }
    becomes(fl, RANGE_REQUEST_ASKED);
    fl->request = origin_request_start(f->cache->origin_client, &w, &events, fl);
    arena_fini(&a);
    for (unsigned i = 1; i < f->clients.count; i++) {
        origin_request_share(fl->request, f->clients.client[i]);
    }
}

void range_request_start(struct fetch *f, uint64_t first, uint64_t end, const struct object *old)
{
    struct range_request *fl = NEW(struct range_request);

    fl->fetch = f;
    while (f->range_requests[fl->slot] != NULL) {
        fl->slot++;
        CHECK(fl->slot < CLAIMS_MAX);
    }
    f->range_requests[fl->slot] = fl;
    fl->recv = first;
    fl->end = end;
    fl->old = old;
    fl->gather = BUF_INIT(GATHER_MAX + (2 << 20));
    fl->data = BUF_INIT(GATHER_MAX + (2 << 20));
    fl->timer = evtimer_new(f->cache->base, on_range_request_timer, fl);
    CHECK(fl->timer != NULL);
    range_request_claim(fl);
    send_range_request(fl);
}

/* --- which bytes next ------------------------------------------------------------------------- */

/* As long as what is there already, from a jump's length to a segment's: see first_segment(). */
static void start_segment(struct fetch *f, uint64_t first, uint64_t end)
{
    const struct cache_settings *set = &f->cache->set;
    uint64_t step;

    lock_take(&f->lock);
    step = max_u64(set->jump_bytes, extents_bytes(&f->have));
    lock_drop(&f->lock);
    range_request_start(f, first, min_u64(end, first + min_u64(step, set->segment_bytes)), NULL);
}

/* A segment for a reader, cut out of whoever is on the way there but still far. */
static void fetch_for(struct fetch *f, const struct reader_need *n)
{
    struct extent segment;
    unsigned holder;
    bool lacks;

    lock_take(&f->lock);
    lacks = claims_cut(&f->claims, &f->have, n, f->total_bytes, f->cache->set.jump_bytes, &segment,
                       &holder);
    lock_drop(&f->lock);
    if (lacks && holder < CLAIMS_MAX) {
        range_request_shorten(f, holder, segment.first);
    }
    if (lacks) {
        start_segment(f, segment.first, segment.end);
    }
}

/* What the next stalled reader waits for; it is off the list. */
static bool next_need(struct fetch *f, struct reader_need *out)
{
    struct list *it;

    lock_take(&f->lock);
    it = list_pop_front(&f->stalled);
    if (it != NULL) {
        *out = LIST_ITEM(it, struct fetch_reader, stalled)->need;
    }
    lock_drop(&f->lock);
    return it != NULL;
}

/* While all range requests are out the others stay on the list: the next plan serves them. */
static void serve_readers(struct fetch *f)
{
    struct reader_need need;

    while (range_request_count(f) < CLAIMS_MAX && next_need(f, &need)) {
        fetch_for(f, &need);
    }
}

/* A range alone does not make us fetch all of it, unless next to nothing is missing. */
static void decide_about_the_rest(struct fetch *f)
{
    bool little = fetch_nearly_there(f) || f->total_bytes <= PEEK_WHOLE_BYTES;
    bool wanted;

    lock_take(&f->lock);
    wanted = f->answers > 0;
    lock_drop(&f->lock);
    if (wanted && little) {
        fetch_aim_at_whole(f);
    }
}

static void fetch_gaps(struct fetch *f)
{
    unsigned most = f->total_bytes >= f->cache->set.parallel_bytes ? f->cache->set.fillers : 1;

    while (range_request_count(f) < most && range_request_count(f) < CLAIMS_MAX) {
        struct extent gap;
        bool lacks;
        lock_take(&f->lock);
        lacks = claims_gap(&f->claims, &f->have, f->total_bytes, &gap);
        lock_drop(&f->lock);
        if (!lacks) {
            return;
        }
        start_segment(f, gap.first, gap.end);
    }
}

void fetch_plan(struct fetch *f)
{
    enum fetch_aim aim;

    if (f->state != FETCH_RUNNING || f->rc != 0 || f->total_bytes == LENGTH_UNKNOWN) {
        return;
    }
    if (f->splices) {
        serve_readers(f);
    }
    if (range_request_count(f) == 0) {
        decide_about_the_rest(f);
    }
    aim = fetch_aim(f);
    if ((aim == AIM_WHOLE || aim == AIM_ALONE) && (f->splices || range_request_count(f) == 0)) {
        fetch_gaps(f);
    }
}
