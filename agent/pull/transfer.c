#include "agent/pull/transfer.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/ask.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum {
    GO_ON_BYTES = 64 << 10,
    SLOW_TIMES = 8, /* than the others */
    HURRIES_MAX = 3,
    SLOW_SHARE = 6, /* and more than a sixth of what would be silence */
    BAD_TRIES = 3,
    SAVE_EVERY_MS = 2000,
    SAVE_EVERY_BYTES = 256 << 20,
};

struct connection { /* one request under way */
    struct list node;
    struct transfer *of;
    struct xfer *x;
    struct remote_peer *from; /* NULL: the mirror */
    unsigned mirror;          /* which one */
    uint64_t tried;           /* a bit for each mirror that was asked since the last one worked */
    struct pull_block *block; /* being filled */
    struct transfer_range range;
    uint64_t asked_ms;
    unsigned hurried;       /* how often it was asked for anew for being slow */
    uint64_t retry_after_s; /* that an error asked for */
    int refused;            /* the status of a refusal, whose body is its reason; else 0 */
    struct ask_reason reason;
    bool paused; /* no block was free */
    bool framed;
};

struct transfer {
    struct pull_loop *loop;
    struct pull_object *object;
    void (*on_event)(void *arg, enum transfer_event what, int rc, const struct err *why,
                     uint64_t after_s);
    void *arg;
    struct arena arena;
    struct digest key;
    struct parts *parts;
    struct chunk_list list;
    bool chunked;       /* there is a list */
    uint8_t *bad_tries; /* one a chunk */
    uint64_t mirrors;   /* a bit for each that some of the bytes are from */
    uint64_t refuted;   /* and for each whose chunk was not what the list says */
    bool confirmed;     /* some chunk was */
    uint8_t *rotten;    /* of a check: parts that are not what the list says */
    struct list connections;
    bool stopped;
    struct swarm *swarm; /* NULL: none */
    unsigned jobs;       /* on pools */
    struct job checking, saving;
    int job_rc; /* of the check */
    struct err job_why;
    struct buf snapshot; /* of the parts, for the save under way */
    bool saves;
    uint64_t dirty_bytes;
    uint64_t saved_at_ms;
    uint64_t part_ms; /* that a part takes, of late; 0: none has come */
    struct pull_tally *tally;
};

static void report_transfer_event(struct transfer *t, enum transfer_event what, int rc,
                                  const struct err *why)
{
    t->on_event(t->arg, what, rc, why, 0);
}

static void moved(struct transfer *t)
{
    report_transfer_event(t, TRANSFER_MOVED, 0, NULL);
}

/* --- heads: is it what was asked for? --------------------------------------------------------- */

/* "bytes 0-9/100" or "bytes 0-9/" "*" */
static bool content_range_is(struct slice value, const struct transfer_range *want,
                             uint64_t size_bytes)
{
    struct slice range = slice_cut(&value, '/');
    uint64_t a, b, size;

    if (!slice_eq(slice_cut(&range, ' '), SLICE("bytes")) ||
        !slice_u64(slice_cut(&range, '-'), &a) || !slice_u64(range, &b) || a != want->first ||
        b != want->last) {
        return false;
    }
    return slice_eq(value, SLICE("*")) || (slice_u64(value, &size) && size == size_bytes);
}

static int range_head(struct pull_object *o, const struct transfer_range *r,
                      const struct xfer_head *h)
{
    struct slice etag = xfer_head_field(h, "etag");
    struct digest says;
    bool other = (o->etag[0] != '\0' && etag.p != NULL && !slice_eqs(etag, o->etag) &&
                  !(o->several && o->known)) ||
                 (o->known && digest_from_field(xfer_head_field(h, "repr-digest"), &says) &&
                  !digest_eq(&says, &o->digest));

    if (h->status == 206) {
        return !other && content_range_is(xfer_head_field(h, "content-range"), r, o->size_bytes)
                   ? 0
                   : E_CHANGED;
    }
    if (h->status == 200) {
        /* Another object, or a server without ranges: the same restart finds out. */
        o->no_ranges = o->no_ranges || !other;
        return E_CHANGED;
    }
    return h->status == 416 ? E_CHANGED : E_AGAIN;
}

static int whole_head(struct pull_object *o, const struct xfer_head *h)
{
    struct digest says;

    if (h->status != 200) {
        return h->status == 206 ? E_PROTOCOL : E_AGAIN;
    }
    if (xfer_head_field(h, "content-encoding").n != 0 &&
        !slice_ieq(xfer_head_field(h, "content-encoding"), SLICE("identity"))) {
        return E_UNSUPPORTED;
    }
    if (digest_from_field(xfer_head_field(h, "repr-digest"), &says)) {
        if (o->known && !digest_eq(&says, &o->digest)) {
            return E_CHANGED;
        }
        o->digest = says; /* HEAD did not tell, or was not answered */
        o->known = true;
    }
    if (h->content_length != XFER_UNKNOWN) {
        if (o->size_bytes != SIZE_UNKNOWN && o->size_bytes != h->content_length) {
            return E_CHANGED;
        }
        o->size_bytes = h->content_length;
    }
    return 0;
}

int transfer_judge(struct pull_object *o, const struct transfer_range *r, const struct xfer_head *h)
{
    if (h->status >= 300 && h->status < 400) {
        return E_PROTOCOL;
    }
    return r->ranged ? range_head(o, r, h) : whole_head(o, h);
}

/* --- connections ------------------------------------------------------------------------------ */

static uint64_t connection_at(const struct connection *l)
{
    return l->block->index * PART_BYTES + l->block->n;
}

static bool has_progressed(const struct connection *l)
{
    return connection_at(l) >= l->range.first + GO_ON_BYTES;
}

static void connection_close(struct connection *l, int rc)
{
    struct transfer *t = l->of;

    xfer_cancel(&l->x);
    if (l->from != NULL) {
        t->loop->peer_ops->ended(l->from, (size_t)(l->range.first / PART_BYTES), rc);
    }
    if (l->block != NULL) {
        if (t->chunked) {
            parts_mark(t->parts, l->block->index, PART_MISSING);
        }
        pull_loop_give_block(t->loop, l->block);
    }
    pull_loop_give_conn(t->loop);
    list_remove(&l->node);
    free(l);
}

/* --- blocks: checked and written on the worker threads, counted when they are back --- */

static void write_block(struct job *j)
{
    struct pull_block *b = CONTAINER_OF(j, struct pull_block, job);
    const struct transfer *t = b->of;
    uint64_t at = b->index * PART_BYTES;

    if (b->check || b->whole) {
        digest_of(slice_of(b->p, b->n), &b->digest);
    }
    if (b->check && !digest_eq(&b->digest, &t->list.chunk[b->index])) {
        b->rc = E_CORRUPT;
        return;
    }
    b->rc = t->parts->laid_out ? fd_pwrite_sparse(t->parts->fd, b->p, b->n, at, &b->why)
                               : fd_pwrite_all(t->parts->fd, b->p, b->n, at, &b->why);
    if (b->rc == 0 && !b->whole) {
        /* Begin to write it back now: dirty pages stay few, and the fsync at the end is short. */
        sync_file_range(t->parts->fd, (off_t)at, (off_t)b->n, SYNC_FILE_RANGE_WRITE);
    }
}

static bool is_one(uint64_t bits)
{
    return bits != 0 && (bits & (bits - 1)) == 0;
}

/* TRANSFER_MOVED, or TRANSFER_FAILED when it is too often now; TRANSFER_CHANGED when it is rather
 * the list that is wrong. mirrors: those that it is from. */
static enum transfer_event bad_chunk(struct transfer *t, size_t index, uint64_t mirrors,
                                     struct err *e)
{
    struct mirrors *all = t->loop->agent->mirrors;

    if (is_one(mirrors)) {
        mirrors_lied(all, (unsigned)__builtin_ctzll(mirrors), clock_now_ms());
        t->refuted |= mirrors;
    }
    if (!t->confirmed && t->refuted != 0 && !is_one(t->refuted)) {
        err_set(e, E_CORRUPT, "two mirrors have other data than the chunk list says");
        return TRANSFER_CHANGED;
    }
    if (++t->bad_tries[index] < BAD_TRIES + mirrors_count(all) - 1) {
        return TRANSFER_MOVED;
    }
    err_set(e, E_CORRUPT,
            "part %zu of %zu arrived damaged %d times in a row; the data is corrupted on the "
            "mirror's disk or on the way (run mirrorctl verify on the mirror)",
            index + 1, t->parts->count, (int)t->bad_tries[index]);
    return TRANSFER_FAILED;
}

static void part_is_there(struct transfer *t, size_t index, size_t n)
{
    t->dirty_bytes += n;
    if (t->swarm != NULL) {
        t->loop->peer_ops->have(t->swarm, index, true);
    }
}

static void block_written(struct job *j)
{
    struct pull_block *b = CONTAINER_OF(j, struct pull_block, job);
    struct transfer *t = b->of;
    enum transfer_event what = TRANSFER_MOVED;
    struct err why = b->why;
    struct remote_peer *from = b->from;
    uint64_t mirrors = b->mirrors;
    bool checked = b->check && from == NULL;
    size_t index = b->index;
    size_t n = b->n;
    int rc = b->rc;

    t->jobs--;
    if (b->whole && rc == 0) {
        parts_hashed(t->parts, &b->digest);
    }
    pull_loop_give_block(t->loop, b);
    parts_mark(t->parts, index, rc == 0 ? PART_DONE : PART_MISSING);
    if (rc == 0) {
        part_is_there(t, index, n);
        if (is_one(mirrors)) {
            mirrors_worked(t->loop->agent->mirrors, (unsigned)__builtin_ctzll(mirrors));
        }
        t->confirmed = t->confirmed || checked;
        what = TRANSFER_WRITTEN;
    } else if (!t->stopped && rc == E_CORRUPT && from == NULL) {
        what = bad_chunk(t, index, mirrors, &why);
    } else if (!t->stopped && rc != E_CORRUPT) {
        what = TRANSFER_FAILED;
    }
    if (from != NULL) {
        t->loop->peer_ops->written(from, index, rc);
    }
    report_transfer_event(t, what, rc, &why);
}

static void block_submit(struct transfer *t, struct pull_block *b, struct remote_peer *from)
{
    b->from = from;
    b->of = t;
    b->check = t->chunked;
    b->job = (struct job){.work = write_block, .done = block_written, .reply = t->loop->mail};
    t->jobs++;
    pool_submit(t->loop->workers, &b->job, CLIENT_PROGRAM);
}

/* --- requests --- */

/* Another node's answer: the whole chunk, or why not. */
static int remote_peer_head(const struct connection *l, const struct xfer_head *h)
{
    switch (h->status) {
    case 200:
        return h->content_length == l->range.last - l->range.first + 1 ? 0 : E_PROTOCOL;
    case 404:
        return E_NOTFOUND;
    case 503:
        return E_BUSY;
    default:
        return E_PROTOCOL;
    }
}

static int on_transfer_head(void *arg, const struct xfer_head *h)
{
    struct connection *l = arg;
    int rc;

    l->refused = 0;
    if (l->from != NULL) {
        return remote_peer_head(l, h);
    }
    if (!slice_u64(xfer_head_field(h, "retry-after"), &l->retry_after_s)) {
        l->retry_after_s = 0;
    }
    if (h->status >= 400 && h->status != 416) {
        l->refused = h->status;
        ask_reason_head(&l->reason, h);
        return 0;
    }
    rc = transfer_judge(l->of->object, &l->range, h);
    if (l->of->object->known) {
        l->of->parts->digest = l->of->object->digest;
    }
    l->framed = h->framed;
    return rc;
}

/* The stream's block is full: on with another, which takes what ran over. False when none is
 * free. */
static bool turn_block(struct connection *l)
{
    struct pull_block *full = l->block;
    struct pull_block *next = pull_loop_take_block(l->of->loop);

    if (next == NULL) {
        return false;
    }
    next->index = full->index + 1;
    next->mirrors = (uint64_t)1 << l->mirror;
    next->n = full->n - (size_t)PART_BYTES;
    memcpy(next->p, full->p + PART_BYTES, next->n);
    full->n = (size_t)PART_BYTES;
    l->block = next;
    parts_mark(l->of->parts, full->index, PART_BUSY);
    block_submit(l->of, full, NULL);
    return true;
}

static int on_transfer_body(void *arg, struct slice bytes)
{
    struct connection *l = arg;
    struct transfer *t = l->of;
    struct pull_block *b = l->block;

    if (l->refused != 0) {
        ask_reason_body(&l->reason, bytes);
        return l->reason.whole ? E_TOOBIG : 0;
    }
    if (b->index >= PARTS_MAX ||
        (t->chunked && bytes.n > parts_length(t->parts, b->index) - b->n)) {
        return E_PROTOCOL; /* more than was asked for */
    }
    if (!t->chunked && t->object->size_bytes != SIZE_UNKNOWN &&
        (connection_at(l) > t->object->size_bytes ||
         bytes.n > t->object->size_bytes - connection_at(l))) {
        return E_CHANGED; /* more than there was: no Content-Length held it to that */
    }
    CHECK(bytes.n <= PART_BYTES + XFER_SLICE_MAX - b->n);
    memcpy(b->p + b->n, bytes.p, bytes.n);
    b->n += bytes.n;
    if (l->from == NULL) {
        b->mirrors |= (uint64_t)1 << l->mirror;
        t->mirrors |= (uint64_t)1 << l->mirror;
    }
    t->tally->fetched_bytes += bytes.n;
    t->tally->peer_bytes += l->from != NULL ? bytes.n : 0;
    l->paused = !t->chunked && b->n >= PART_BYTES && !turn_block(l);
    return l->paused ? XFER_PAUSE : 0;
}

/* --- asking ----------------------------------------------------------------------------------- */

static void on_transfer_done(void *arg, int rc, const struct err *why, uint64_t body_bytes);

static const struct xfer_events events = {on_transfer_head, on_transfer_body, on_transfer_done};

static void connection_ask_remote_peer(struct connection *l)
{
    struct pull_loop *loop = l->of->loop;
    char room[PEER_URL_ROOM];
    struct xfer_params w =
        loop->peer_ops->want(l->from, (size_t)(l->range.first / PART_BYTES), room);

    l->asked_ms = clock_now_ms();
    l->x = xfer_start(loop->xfers, &w, &events, l);
}

static void connection_ask(struct connection *l)
{
    struct transfer *t = l->of;
    struct slice lines[3];
    const struct pull_object *o = t->object;
    struct slice if_range = arena_fmt(&t->arena, "If-Range: %s", o->etag);
    bool conditional = l->range.ranged && o->etag[0] != '\0' && !(o->several && o->known);
    struct slice url = mirrors_at(t->loop->agent->mirrors, l->mirror, o->url, &t->arena);
    struct xfer_params w =
        ask_xfer_params(t->loop->agent, XFER_GET, url, lines, &if_range, conditional ? 1 : 0);

    w.ranged = l->range.ranged;
    w.range_first = l->range.first;
    w.range_last = l->range.last;
    l->refused = 0;
    l->retry_after_s = 0;
    l->asked_ms = clock_now_ms();
    l->x = xfer_start(t->loop->xfers, &w, &events, l);
}

/* Is what is there certain to be of what will come? */
static bool can_resume(const struct transfer *t)
{
    return !t->object->no_ranges && t->object->size_bytes != SIZE_UNKNOWN &&
           (t->object->known || t->object->etag[0] != '\0');
}

/* False: each of them was asked. */
static bool choose_mirror(struct connection *l, enum mirrors_which which)
{
    const struct transfer *t = l->of;
    unsigned next =
        mirrors_choose(t->loop->agent->mirrors, &t->object->key, l->tried, which, clock_now_ms());

    if (next == MIRROR_NONE) {
        return false;
    }
    l->mirror = next;
    l->tried |= (uint64_t)1 << next;
    return true;
}

/* --- how a connection ends -------------------------------------------------------------------- */

/* The rest of what was asked for. */
static void ask_rest(struct connection *l)
{
    l->range.ranged = true;
    l->range.first = connection_at(l);
    l->range.last = l->of->chunked ? l->range.last : l->of->object->size_bytes - 1;
    connection_ask(l);
}

/* With nothing of it here another mirror gets the same request. */
static bool ask_other_mirror(struct connection *l, enum mirrors_which which)
{
    struct transfer *t = l->of;
    bool fresh = connection_at(l) == l->range.first;

    if (t->stopped || l->paused || (!fresh && !can_resume(t)) ||
        (l->range.ranged && connection_at(l) > l->range.last) || !choose_mirror(l, which)) {
        return false;
    }
    if (fresh) {
        connection_ask(l);
    } else {
        ask_rest(l);
    }
    return true;
}

/* Another mirror goes on: this one has failed, or does not have it. refused: its status. */
static bool next_mirror(struct connection *l, int rc, int refused)
{
    struct mirrors *m = l->of->loop->agent->mirrors;

    if (l->from != NULL || l->block == NULL || rc == 0 || mirrors_count(m) == 1) {
        return false;
    }
    if (ask_has_failed(refused != 0 ? 0 : rc, refused)) {
        mirrors_failed(m, l->mirror, clock_now_ms());
        if (has_progressed(l)) {
            l->tried = (uint64_t)1 << l->mirror;
        }
        return ask_other_mirror(l, MIRRORS_ALL);
    }
    return (rc == E_CHANGED || refused == 404 || refused == 401) &&
           ask_other_mirror(l, MIRRORS_FRESH);
}

/* The connection broke: at once for the rest, as long as every try brings something. */
static bool connection_goes_on(struct connection *l, int rc)
{
    struct transfer *t = l->of;

    if (rc != E_NETWORK || l->from != NULL || t->stopped || l->paused || l->block == NULL ||
        !has_progressed(l) || connection_at(l) > l->range.last || !can_resume(t)) {
        return false;
    }
    ask_rest(l);
    return true;
}

static enum transfer_event trouble(int rc)
{
    switch (rc) {
    case E_CHANGED:
        return TRANSFER_CHANGED;
    case E_NOTFOUND:
    case E_DENIED:
    case E_UNSUPPORTED:
        return TRANSFER_FAILED;
    default:
        return TRANSFER_LATER;
    }
}

static int stream_ended(struct connection *l, struct err *e)
{
    struct transfer *t = l->of;
    struct pull_block *b = l->block;
    uint64_t total = b->index * PART_BYTES + b->n;

    if (!l->framed && !t->object->known && t->object->size_bytes == SIZE_UNKNOWN) {
        return err_set(
            e, E_UNSUPPORTED,
            "the server sends no Content-Length, so a truncated response could not be detected; "
            "give the artifact a sha256");
    }
    if (t->object->size_bytes != SIZE_UNKNOWN && total != t->object->size_bytes) {
        return err_set(e, E_NETWORK, "%" PRIu64 " of %" PRIu64 " bytes were received", total,
                       t->object->size_bytes);
    }
    t->object->size_bytes = total;
    parts_end(t->parts, total);
    if (b->n > 0) {
        b->whole = b->index == 0;
        parts_mark(t->parts, b->index, PART_BUSY);
        block_submit(t, b, NULL);
        l->block = NULL;
    }
    return 0;
}

static int chunk_ended(struct connection *l, struct err *e)
{
    struct transfer *t = l->of;
    uint64_t took_ms = clock_now_ms() - l->asked_ms + 1;

    if (l->block->n != parts_length(t->parts, l->block->index)) {
        return err_set(e, E_NETWORK, "a part of the file was truncated");
    }
    t->part_ms = t->part_ms == 0 ? took_ms : (t->part_ms * 7 + took_ms) / 8;
    block_submit(t, l->block, l->from);
    l->block = NULL;
    return 0;
}

static void on_transfer_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct connection *l = arg;
    struct transfer *t = l->of;
    const struct remote_peer *from;
    struct err e = *why;
    uint64_t after_s;

    (void)body_bytes;
    l->x = NULL;
    if (l->refused != 0) { /* however much of the reason came */
        rc = ask_judge(l->refused, &l->reason, &e);
    } else if (rc == 0) {
        rc = t->chunked ? chunk_ended(l, &e) : stream_ended(l, &e);
    }
    if (next_mirror(l, rc, l->refused) || connection_goes_on(l, rc)) {
        return;
    }
    after_s = l->retry_after_s;
    from = l->from;
    connection_close(l, rc);
    if (rc == 0 || from != NULL) { /* another node's trouble is none of the pull's */
        moved(t);
    } else {
        t->on_event(t->arg, trouble(rc), rc, &e, after_s);
    }
}

/* --- starting --------------------------------------------------------------------------------- */

static void connection_start(struct transfer *t, struct pull_block *b, struct remote_peer *from,
                             bool ranged, uint64_t first, uint64_t last)
{
    struct connection *l = NEW(struct connection);

    *l = (struct connection){.of = t, .block = b, .from = from, .range = {ranged, first, last}};
    b->mirrors = 0;
    list_push_back(&t->connections, &l->node);
    if (from != NULL) {
        connection_ask_remote_peer(l);
    } else {
        CHECK(choose_mirror(l, MIRRORS_ALL));
        connection_ask(l);
    }
}

static bool asks_mirror(const struct transfer *t)
{
    bool any = false;

    LIST_EACH (&t->connections, n) {
        any = any || LIST_ITEM(n, struct connection, node)->from == NULL;
    }
    return any;
}

/* Which chunk next, and from whom; false: none now. */
static bool peers_are_on(const struct transfer *t)
{
    return t->swarm != NULL && t->loop->peer_ops->is_on(t->swarm);
}

static bool choose_chunk(struct transfer *t, uint64_t not_before_ms, size_t *i,
                         struct remote_peer **from)
{
    struct peer_now now = {.idle = list_empty(&t->connections), .now_ms = clock_now_ms()};

    now.mirror = now.now_ms >= not_before_ms;
    *from = NULL;
    *i = parts_next(t->parts);
    if (*i == t->parts->count) {
        return false;
    }
    if (!peers_are_on(t)) {
        return now.mirror;
    }
    now.bringing = asks_mirror(t);
    return t->loop->peer_ops->choose(t->swarm, t->parts, &now, i, from) != CHOOSE_NONE;
}

static void feed_chunks(struct transfer *t, uint64_t not_before_ms)
{
    struct remote_peer *from;
    size_t i;

    while (parts_next(t->parts) < t->parts->count && pull_loop_take_conn(t->loop)) {
        struct pull_block *b = pull_loop_take_block(t->loop);

        if (b == NULL || !choose_chunk(t, not_before_ms, &i, &from)) {
            if (b != NULL) {
                pull_loop_give_block(t->loop, b);
            }
            pull_loop_give_conn(t->loop);
            return;
        }
        b->index = i;
        parts_mark(t->parts, i, PART_BUSY);
        connection_start(t, b, from, true, i * PART_BYTES,
                         i * PART_BYTES + parts_length(t->parts, i) - 1);
    }
}

/* Goes on behind the parts that are there, when what they are of is certain to be what will
 * come. */
static void feed_stream(struct transfer *t)
{
    struct parts *parts = t->parts;
    uint64_t from = parts_prefix_bytes(parts);
    bool resume = from > 0 && can_resume(t);
    struct pull_block *b;

    if (t->jobs != 0 || !list_empty(&t->connections) || !pull_loop_take_conn(t->loop)) {
        return;
    }
    b = pull_loop_take_block(t->loop);
    if (b == NULL) {
        pull_loop_give_conn(t->loop);
        return;
    }
    if (from > 0 && !resume) {
        struct err why = {0};
        pull_loop_give_block(t->loop, b);
        pull_loop_give_conn(t->loop);
        report_transfer_event(t, TRANSFER_CHANGED, E_AGAIN, &why);
        return;
    }
    b->index = parts->prefix;
    connection_start(t, b, NULL, resume, from,
                     t->object->size_bytes != SIZE_UNKNOWN && t->object->size_bytes > 0
                         ? t->object->size_bytes - 1
                         : 0);
}

static void unpause(struct transfer *t)
{
    LIST_EACH (&t->connections, n) {
        struct connection *l = LIST_ITEM(n, struct connection, node);
        if (l->paused && turn_block(l)) {
            l->paused = false;
            xfer_resume(l->x);
        }
    }
}

void transfer_feed(struct transfer *t, uint64_t not_before_ms)
{
    unpause(t);
    /* A mirror that is away holds up no other node. */
    if (parts_complete(t->parts) || (clock_now_ms() < not_before_ms && !peers_are_on(t))) {
        return;
    }
    if (t->chunked) {
        feed_chunks(t, not_before_ms);
    } else {
        feed_stream(t);
    }
}

/* --- now and then ----------------------------------------------------------------------------- */

static void show_transfer_progress(struct transfer *t)
{
    uint64_t done = parts_done_bytes(t->parts);

    LIST_EACH (&t->connections, n) {
        const struct connection *l = LIST_ITEM(n, struct connection, node);
        done += l->block != NULL ? l->block->n : 0;
    }
    pull_loop_show(t->loop, t->tally, done,
                   t->object->size_bytes != SIZE_UNKNOWN ? t->object->size_bytes : done);
}

/* One connection among many may crawl (a lossy path, a peer that trickles): the rest of its part
 * over another one. */
static void hurry(struct transfer *t, uint64_t now_ms)
{
    uint64_t patience_ms = max_u64(t->part_ms * SLOW_TIMES,
                                   (uint64_t)t->loop->agent->idle_timeout_s * 1000 / SLOW_SHARE);

    LIST_EACH (&t->connections, n) {
        struct connection *l = LIST_ITEM(n, struct connection, node);
        if (!t->chunked || t->part_ms == 0 || l->x == NULL || now_ms <= l->asked_ms + patience_ms ||
            connection_at(l) > l->range.last) {
            continue;
        }
        if (l->from != NULL) { /* from somebody else: nothing begins in the middle of a chunk */
            connection_close(l, E_TIMEOUT);
        } else if (l->hurried < HURRIES_MAX) {
            l->hurried++;
            xfer_cancel(&l->x);
            mirrors_failed(t->loop->agent->mirrors, l->mirror, now_ms);
            l->tried = (uint64_t)1 << l->mirror;
            (void)choose_mirror(l, MIRRORS_FRESH); /* else the same one, over another connection */
            ask_rest(l);
        }
    }
}

static int save_transfer_journal(struct transfer *t, struct err *e)
{
    return parts_save(t->loop->agent->local_cache, &t->key, t->parts->fd, buf_slice(&t->snapshot),
                      e);
}

static void save_work(struct job *j)
{
    struct err why;

    if (save_transfer_journal(CONTAINER_OF(j, struct transfer, saving), &why) != 0) {
        /* costs bytes after a crash, nothing else */
        log_warn("pull.state", "the progress could not be saved: %s", why.text);
    }
}

static void save_done(struct job *j)
{
    struct transfer *t = CONTAINER_OF(j, struct transfer, saving);

    t->jobs--;
    t->saves = false;
    t->saved_at_ms = clock_now_ms();
    moved(t);
}

static bool must_save(const struct transfer *t, uint64_t now_ms)
{
    return !t->saves && t->dirty_bytes > 0 && !t->parts->stateless &&
           (t->dirty_bytes >= SAVE_EVERY_BYTES || now_ms >= t->saved_at_ms + SAVE_EVERY_MS);
}

static void take_snapshot(struct transfer *t)
{
    buf_clear(&t->snapshot);
    parts_snapshot(t->parts, &t->snapshot);
    t->dirty_bytes = 0;
}

void transfer_tick(struct transfer *t, uint64_t now_ms)
{
    show_transfer_progress(t);
    hurry(t, now_ms);
    if (must_save(t, now_ms)) {
        take_snapshot(t);
        t->saves = true;
        t->saving = (struct job){.work = save_work, .done = save_done, .reply = t->loop->mail};
        t->jobs++;
        pool_submit(t->loop->workers, &t->saving, CLIENT_PROGRAM);
    }
}

static void save_last(struct transfer *t)
{
    struct err why;

    if (t->dirty_bytes > 0 && !t->parts->stateless) {
        take_snapshot(t);
        if (save_transfer_journal(t, &why) != 0) {
            log_warn("pull.state", "the progress of the download is lost: %s", why.text);
        }
    }
}

/* --- the whole -------------------------------------------------------------------------------- */

static void followed(void *arg, int rc, const struct err *why)
{
    report_transfer_event(arg, rc != 0 ? TRANSFER_FAILED : TRANSFER_MOVED, rc, why);
}

static void hash_from_start(struct transfer *t)
{
    parts_hash(t->parts, t->loop->followers, t->loop->mail, followed, t);
}

bool transfer_is_whole(struct transfer *t, struct digest *got)
{
    return t->jobs == 0 && list_empty(&t->connections) && parts_digest(t->parts, got);
}

static void check_work(struct job *j)
{
    struct transfer *t = CONTAINER_OF(j, struct transfer, checking);
    char *bytes = mem_new(PART_BYTES);

    for (size_t i = 0; t->job_rc == 0 && i < t->parts->count; i++) {
        size_t n = parts_length(t->parts, i);
        struct digest got;

        t->job_rc = fd_pread_all(t->parts->fd, bytes, n, i * PART_BYTES, &t->job_why);
        digest_of(slice_of(bytes, n), &got);
        t->rotten[i] = !digest_eq(&got, &t->list.chunk[i]);
    }
    free(bytes);
}

static void check_done(struct job *j)
{
    struct transfer *t = CONTAINER_OF(j, struct transfer, checking);
    int bad = 0;

    t->jobs--;
    for (size_t i = 0; i < t->parts->count; i++) {
        if (t->rotten[i] != 0) {
            parts_mark(t->parts, i, PART_MISSING);
            if (t->swarm != NULL) {
                t->loop->peer_ops->have(t->swarm, i, false);
            }
            bad++;
        }
    }
    free(t->rotten);
    t->rotten = NULL;
    if (t->job_rc == 0 && bad > 0) {
        hash_from_start(t);
    }
    report_transfer_event(t, TRANSFER_CHECKED, t->job_rc != 0 ? t->job_rc : bad, &t->job_why);
}

void transfer_check(struct transfer *t)
{
    CHECK(t->chunked && transfer_is_idle(t));
    t->rotten = mem_array(t->parts->count, 1);
    t->job_rc = 0;
    t->checking = (struct job){.work = check_work, .done = check_done, .reply = t->loop->mail};
    t->jobs++;
    pool_submit(t->loop->workers, &t->checking, CLIENT_PROGRAM);
}

struct transfer_view transfer_view(const struct transfer *t)
{
    return (struct transfer_view){.fd = t->parts->fd,
                                  .stateless = t->parts->stateless,
                                  .chunked = t->chunked,
                                  .resumed = t->parts->resumed > 0,
                                  .mirrors = t->mirrors};
}

/* --- its life --------------------------------------------------------------------------------- */

/* What an earlier run left was checked before it was written, but for what it streamed when there
 * was no list yet: were that wrong, a peer would refuse it and trust us no more, and the whole's
 * digest find it here. */
static void join_swarm(struct transfer *t)
{
    const struct pull_loop *l = t->loop;

    if (l->peers == NULL || !t->chunked || !t->object->known) {
        return;
    }
    t->swarm = l->peer_ops->join(l->peers, &t->object->digest, t->object->size_bytes, t->parts->fd);
    for (size_t i = 0; t->swarm != NULL && i < t->parts->count; i++) {
        if (t->parts->state[i] == PART_DONE) {
            l->peer_ops->have(t->swarm, i, true);
        }
    }
}

int transfer_open(struct pull_loop *l, const struct transfer_params *w, struct transfer **out,
                  struct err *e)
{
    static const struct digest none;
    const struct pull_object *o = w->object;
    struct parts *parts = NULL;
    struct transfer *t;
    int rc = parts_open(l->agent->local_cache, w->key, o->known ? &o->digest : &none, o->size_bytes,
                        o->etag, &parts, e);

    *out = NULL;
    if (rc != 0) {
        return rc;
    }
    t = NEW(struct transfer);
    t->loop = l;
    t->object = w->object;
    t->tally = w->tally;
    t->on_event = w->on_event;
    t->arg = w->arg;
    t->key = *w->key;
    t->parts = parts;
    t->snapshot = BUF_INIT(PARTS_MAX / 8 + 4096);
    list_init(&t->connections);
    if (w->list != NULL) {
        t->chunked = true;
        t->list = *w->list;
        *w->list = (struct chunk_list){0};
        t->bad_tries = mem_array(parts->count + 1, 1);
    }
    join_swarm(t);
    hash_from_start(t);
    t->saved_at_ms = clock_now_ms();
    *out = t;
    return 0;
}

void transfer_stop(struct transfer *t)
{
    t->stopped = true;
    LIST_EACH (&t->connections, n) {
        connection_close(LIST_ITEM(n, struct connection, node), E_CANCELLED);
    }
}

bool transfer_is_idle(const struct transfer *t)
{
    return t->jobs == 0 && list_empty(&t->connections) && !parts_is_hashing(t->parts);
}

void transfer_close(struct transfer **tp, enum transfer_end how)
{
    struct transfer *t = *tp;

    if (t == NULL) {
        return;
    }
    *tp = NULL;
    CHECK(transfer_is_idle(t));
    if (t->swarm != NULL) {
        t->loop->peer_ops->leave(&t->swarm, how == TRANSFER_WHOLE);
    }
    if (how == TRANSFER_SAVE) {
        save_last(t);
    }
    parts_close(&t->parts, how == TRANSFER_DISCARD ? t->loop->agent->local_cache : NULL);
    chunks_free(&t->list);
    free(t->bad_tries);
    buf_free(&t->snapshot);
    arena_fini(&t->arena);
    free(t);
}
