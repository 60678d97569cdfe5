/* fetch.c - the transfers of one pull: parts in parallel, each checked before it is written, or one stream. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/peers/peers.h"
#include "agent/pull/pull.h"
#include "common/os/clock.h"

enum {
    GO_ON_BYTES = 64 << 10,
    SLOW_TIMES = 8, /* than the others */
    HURRIES_MAX = 3,
    SLOW_SHARE = 6, /* and more than a sixth of what would be silence */
};

/* --- lanes ---------------------------------------------------------------------------------------------------------- */

static uint64_t lane_at(const struct lane *l)
{
    return l->block->index * PART_BYTES + l->block->n;
}

static void lane_close(struct lane *l, int rc)
{
    struct pull *p = l->pull;

    xfer_cancel(&l->x);
    if (l->from != NULL) {
        swarm_release(l->from, (size_t)(l->first / PART_BYTES), rc);
    }
    if (l->block != NULL) {
        if (p->chunked) {
            parts_mark(p->parts, l->block->index, PART_MISSING);
        }
        puller_give_block(p->pl, l->block);
    }
    puller_give_conn(p->pl);
    list_remove(&l->node);
    free(l);
}

void fetch_cancel_lanes(struct pull *p)
{
    LIST_EACH (&p->lanes, n) {
        lane_close(LIST_ITEM(n, struct lane, node), E_CANCELLED);
    }
}

/* "bytes 0-9/100" or "bytes 0-9/" "*" */
static bool content_range_is(struct slice value, uint64_t first, uint64_t last, uint64_t size_bytes)
{
    struct slice range = slice_cut(&value, '/');
    uint64_t a, b, size;

    if (!slice_eq(slice_cut(&range, ' '), SLICE("bytes")) ||
        !slice_u64(slice_cut(&range, '-'), &a) || !slice_u64(range, &b) || a != first ||
        b != last) {
        return false;
    }
    return slice_eq(value, SLICE("*")) || (slice_u64(value, &size) && size == size_bytes);
}

static int range_head(struct lane *l, const struct xfer_head *h)
{
    struct pull *p = l->pull;
    struct slice etag = xfer_head_field(h, "etag");
    struct digest says;
    bool other = (p->etag[0] != '\0' && etag.p != NULL && !slice_eqs(etag, p->etag)) ||
                 (p->known && digest_from_field(xfer_head_field(h, "repr-digest"), &says) &&
                  !digest_eq(&says, &p->digest));

    if (h->status == 206) {
        return !other && content_range_is(xfer_head_field(h, "content-range"), l->first, l->last,
                                          p->size_bytes)
                   ? 0
                   : E_CHANGED;
    }
    if (h->status ==
        200) { /* another object, or a server without ranges: the same restart finds out */
        p->no_ranges = p->no_ranges || !other;
        return E_CHANGED;
    }
    return h->status == 416 ? E_CHANGED : E_AGAIN;
}

static int whole_head(struct lane *l, const struct xfer_head *h)
{
    struct pull *p = l->pull;
    struct digest says;

    if (h->status != 200) {
        return h->status == 206 ? E_PROTOCOL : E_AGAIN;
    }
    if (xfer_head_field(h, "content-encoding").n != 0 &&
        !slice_ieq(xfer_head_field(h, "content-encoding"), SLICE("identity"))) {
        return E_UNSUPPORTED;
    }
    if (digest_from_field(xfer_head_field(h, "repr-digest"), &says)) {
        if (p->known && !digest_eq(&says, &p->digest)) {
            return E_CHANGED;
        }
        if (!p->known) { /* HEAD did not tell, or was not answered */
            p->digest = p->parts->digest = says;
            p->known = true;
        }
    }
    if (h->content_length != XFER_UNKNOWN) {
        if (p->size_bytes != SIZE_UNKNOWN && p->size_bytes != h->content_length) {
            return E_CHANGED;
        }
        if (p->size_bytes == SIZE_UNKNOWN) {
            p->size_bytes = h->content_length;
        }
    }
    return 0;
}

/* Another node's answer: the whole chunk, or why not. */
static int neighbour_head(const struct lane *l, const struct xfer_head *h)
{
    switch (h->status) {
    case 200:
        return h->content_length == l->last - l->first + 1 ? 0 : E_PROTOCOL;
    case 404:
        return E_NOTFOUND;
    case 503:
        return E_BUSY;
    default:
        return E_PROTOCOL;
    }
}

static int on_head(void *arg, const struct xfer_head *h)
{
    struct lane *l = arg;
    int rc;

    l->refused = 0;
    if (l->from != NULL) {
        return neighbour_head(l, h);
    }
    if (!slice_u64(xfer_head_field(h, "retry-after"), &l->retry_after_s)) {
        l->retry_after_s = 0;
    }
    if (h->status >= 400 && h->status != 416) {
        l->refused = h->status;
        ask_reason_head(&l->reason, h);
        return 0;
    }
    if (h->status >= 300 && h->status != 416) {
        return E_PROTOCOL;
    }
    rc = l->ranged ? range_head(l, h) : whole_head(l, h);
    l->framed = h->framed;
    return rc;
}

/* The stream's block is full: on with another, which takes what ran over. False when none is free. */
static bool turn_block(struct lane *l)
{
    struct block *full = l->block;
    struct block *next = puller_take_block(l->pull->pl);

    if (next == NULL) {
        return false;
    }
    next->index = full->index + 1;
    next->n = full->n - (size_t)PART_BYTES;
    memcpy(next->p, full->p + PART_BYTES, next->n);
    full->n = (size_t)PART_BYTES;
    l->block = next;
    parts_mark(l->pull->parts, full->index, PART_BUSY);
    block_submit(l->pull, full, NULL);
    return true;
}

static int on_body(void *arg, struct slice bytes)
{
    struct lane *l = arg;
    struct pull *p = l->pull;
    struct block *b = l->block;

    if (l->refused != 0) {
        ask_reason_body(&l->reason, bytes);
        return l->reason.whole ? E_TOOBIG : 0;
    }
    if (b->index >= PARTS_MAX ||
        (p->chunked && bytes.n > parts_length(p->parts, b->index) - b->n)) {
        return E_PROTOCOL; /* more than was asked for */
    }
    if (!p->chunked && p->size_bytes != SIZE_UNKNOWN &&
        (lane_at(l) > p->size_bytes || bytes.n > p->size_bytes - lane_at(l))) {
        return E_CHANGED; /* more than there was: no Content-Length held it to that */
    }
    CHECK(bytes.n <= PART_BYTES + XFER_SLICE_MAX - b->n);
    memcpy(b->p + b->n, bytes.p, bytes.n);
    b->n += bytes.n;
    p->result.fetched_bytes += bytes.n;
    p->result.peer_bytes += l->from != NULL ? bytes.n : 0;
    p->pl->fetched_bytes += bytes.n;
    l->paused = !p->chunked && b->n >= PART_BYTES && !turn_block(l);
    return l->paused ? XFER_PAUSE : 0;
}

/* --- asking ---------------------------------------------------------------------------------------------------------- */

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes);

static const struct xfer_events events = {on_head, on_body, on_done};

static void lane_ask_neighbour(struct lane *l)
{
    char room[NEIGHBOUR_URL];
    char chunk[U64_DIGITS + 1];
    struct xfer_want w;

    snprintf(chunk, sizeof chunk, "%" PRIu64, l->first / PART_BYTES);
    w = neighbour_want(l->from, chunk, room);
    l->asked_ms = clock_now_ms();
    l->x = xfer_start(l->pull->pl->xfers, &w, &events, l);
}

static void lane_ask(struct lane *l)
{
    struct pull *p = l->pull;
    struct slice lines[3];
    struct slice if_range = arena_fmt(&p->arena, "If-Range: %s", p->etag);
    struct xfer_want w = ask_xfer_want(p->pl->agent, XFER_GET, p->url, lines, &if_range,
                                       l->ranged && p->etag[0] != '\0' ? 1 : 0);

    w.ranged = l->ranged;
    w.range_first = l->first;
    w.range_last = l->last;
    l->asked_ms = clock_now_ms();
    l->x = xfer_start(p->pl->xfers, &w, &events, l);
}

/* Is what is there certain to be of what will come? */
static bool can_resume(const struct pull *p)
{
    return !p->no_ranges && p->size_bytes != SIZE_UNKNOWN && (p->known || p->etag[0] != '\0');
}

/* --- how a lane ends --------------------------------------------------------------------------------------------------- */

/* The connection broke: at once for the rest, as long as every try brings something. */
static bool lane_goes_on(struct lane *l, int rc)
{
    struct pull *p = l->pull;

    if (rc != E_NETWORK || l->from != NULL || p->phase != PULL_FETCH || l->paused ||
        l->block == NULL || lane_at(l) < l->first + GO_ON_BYTES || lane_at(l) > l->last ||
        !can_resume(p)) {
        return false;
    }
    l->ranged = true;
    l->first = lane_at(l);
    lane_ask(l);
    return true;
}

static void lane_failed(struct pull *p, int rc, const struct err *why, uint64_t after_s)
{
    switch (rc) {
    case E_CHANGED:
        pull_restart(p, !p->bound, rc, why);
        break;
    case E_NOTFOUND:
    case E_DENIED:
    case E_UNSUPPORTED:
        pull_fail(p, rc, why);
        break;
    default:
        pull_retry_later(p, rc, why, after_s);
    }
}

static int stream_ended(struct lane *l, struct err *e)
{
    struct pull *p = l->pull;
    struct block *b = l->block;
    uint64_t total = b->index * PART_BYTES + b->n;

    if (!l->framed && !p->known && p->size_bytes == SIZE_UNKNOWN) {
        return err_set(
            e, E_UNSUPPORTED,
            "the server marks no end (no Content-Length), so a cut would look like the end; "
            "give the artifact a sha256");
    }
    if (p->size_bytes != SIZE_UNKNOWN && total != p->size_bytes) {
        return err_set(e, E_NETWORK, "%" PRIu64 " of %" PRIu64 " bytes came", total, p->size_bytes);
    }
    p->size_bytes = total;
    parts_end(p->parts, total);
    if (b->n > 0) {
        b->whole = b->index == 0;
        parts_mark(p->parts, b->index, PART_BUSY);
        block_submit(p, b, NULL);
        l->block = NULL;
    }
    return 0;
}

static int chunk_ended(struct lane *l, struct err *e)
{
    struct pull *p = l->pull;
    uint64_t took_ms = clock_now_ms() - l->asked_ms + 1;

    if (l->block->n != parts_length(p->parts, l->block->index)) {
        return err_set(e, E_NETWORK, "a part came short");
    }
    p->part_ms = p->part_ms == 0 ? took_ms : (p->part_ms * 7 + took_ms) / 8;
    block_submit(p, l->block, l->from);
    l->block = NULL;
    return 0;
}

static void on_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct lane *l = arg;
    struct pull *p = l->pull;
    const struct neighbour *from;
    struct err e = *why;
    uint64_t after_s;

    (void)body_bytes;
    l->x = NULL;
    if (l->refused != 0) { /* however much of the reason came */
        rc = ask_judge(l->refused, &l->reason, &e);
    } else if (rc == 0) {
        rc = p->chunked ? chunk_ended(l, &e) : stream_ended(l, &e);
    }
    if (lane_goes_on(l, rc)) {
        return;
    }
    after_s = l->retry_after_s;
    from = l->from;
    lane_close(l, rc);
    if (rc != 0 && from == NULL) { /* another node's trouble is none of the pull's */
        lane_failed(p, rc, &e, after_s);
    }
    pull_job_ended(p);
    puller_feed(p->pl);
}

/* --- starting ----------------------------------------------------------------------------------------------------------- */

static void lane_start(struct pull *p, struct block *b, struct neighbour *from, bool ranged,
                       uint64_t first, uint64_t last)
{
    struct lane *l = NEW(struct lane);

    *l = (struct lane){
        .pull = p, .block = b, .from = from, .ranged = ranged, .first = first, .last = last};
    list_push_back(&p->lanes, &l->node);
    if (from != NULL) {
        lane_ask_neighbour(l);
    } else {
        lane_ask(l);
    }
}

static bool asks_mirror(const struct pull *p)
{
    bool any = false;

    LIST_EACH (&p->lanes, n) {
        any = any || LIST_ITEM(n, struct lane, node)->from == NULL;
    }
    return any;
}

/* Which chunk next, and from whom; false: none now. */
static bool choose_chunk(struct pull *p, size_t *i, struct neighbour **from)
{
    uint64_t now_ms = clock_now_ms();

    *from = NULL;
    *i = parts_next(p->parts);
    if (*i == p->parts->count) {
        return false;
    }
    if (!swarm_is_on(p->swarm)) {
        return now_ms >= p->not_before_ms;
    }
    return swarm_choose(p->swarm, p->parts, list_empty(&p->lanes), asks_mirror(p),
                        now_ms >= p->not_before_ms, now_ms, i, from) != CHOOSE_NONE;
}

static void feed_chunks(struct pull *p)
{
    struct neighbour *from;
    size_t i;

    while (parts_next(p->parts) < p->parts->count && puller_take_conn(p->pl)) {
        struct block *b = puller_take_block(p->pl);

        if (b == NULL || !choose_chunk(p, &i, &from)) {
            if (b != NULL) {
                puller_give_block(p->pl, b);
            }
            puller_give_conn(p->pl);
            return;
        }
        b->index = i;
        parts_mark(p->parts, i, PART_BUSY);
        lane_start(p, b, from, true, i * PART_BYTES,
                   i * PART_BYTES + parts_length(p->parts, i) - 1);
    }
}

/* Goes on behind the parts that are there, when what they are of is certain to be what will come. */
static void feed_stream(struct pull *p)
{
    struct parts *t = p->parts;
    uint64_t from = parts_prefix_bytes(t);
    bool resume = from > 0 && can_resume(p);
    struct block *b;

    if (p->jobs != 0 || !list_empty(&p->lanes) || !puller_take_conn(p->pl)) {
        return;
    }
    b = puller_take_block(p->pl);
    if (b == NULL) {
        puller_give_conn(p->pl);
        return;
    }
    if (from > 0 && !resume) {
        struct err why = {0};
        puller_give_block(p->pl, b);
        puller_give_conn(p->pl);
        pull_restart(p, true, E_AGAIN, &why);
        return;
    }
    b->index = t->prefix;
    lane_start(p, b, NULL, resume, from,
               p->size_bytes != SIZE_UNKNOWN && p->size_bytes > 0 ? p->size_bytes - 1 : 0);
}

static void unpause(struct pull *p)
{
    LIST_EACH (&p->lanes, n) {
        struct lane *l = LIST_ITEM(n, struct lane, node);
        if (l->paused && turn_block(l)) {
            l->paused = false;
            xfer_resume(l->x);
        }
    }
}

void fetch_feed(struct pull *p)
{
    unpause(p);
    /* A mirror that is away holds up no other node. */
    if (parts_complete(p->parts) || (clock_now_ms() < p->not_before_ms && !swarm_is_on(p->swarm))) {
        return;
    }
    if (p->chunked) {
        feed_chunks(p);
    } else {
        feed_stream(p);
    }
}

/* --- now and then ---------------------------------------------------------------------------------------------------- */

static void show(struct pull *p)
{
    uint64_t done = p->parts != NULL ? parts_done_bytes(p->parts) : 0;
    uint64_t known = p->size_bytes != SIZE_UNKNOWN ? p->size_bytes : done;

    LIST_EACH (&p->lanes, n) {
        const struct lane *l = LIST_ITEM(n, struct lane, node);
        done += l->block != NULL ? l->block->n : 0;
    }
    p->pl->done_bytes += done - p->shown_bytes;
    p->pl->known_bytes += known - p->shown_known;
    p->shown_bytes = done;
    p->shown_known = known;
}

/* One connection among many may crawl (a lossy path, a peer that trickles): the rest of its part over another one. */
static void hurry(struct pull *p, uint64_t now_ms)
{
    uint64_t patience_ms = max_u64(p->part_ms * SLOW_TIMES,
                                   (uint64_t)p->pl->agent->idle_timeout_s * 1000 / SLOW_SHARE);

    LIST_EACH (&p->lanes, n) {
        struct lane *l = LIST_ITEM(n, struct lane, node);
        if (!p->chunked || p->part_ms == 0 || l->x == NULL || now_ms <= l->asked_ms + patience_ms ||
            lane_at(l) > l->last) {
            continue;
        }
        if (l->from != NULL) {
            lane_close(l,
                       E_TIMEOUT); /* from somebody else: nothing begins in the middle of a chunk */
        } else if (l->hurried < HURRIES_MAX) {
            l->hurried++;
            xfer_cancel(&l->x);
            l->first = lane_at(l);
            lane_ask(l);
        }
    }
}

void fetch_tick(struct pull *p, uint64_t now_ms)
{
    show(p);
    hurry(p, now_ms);
}
