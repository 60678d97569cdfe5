/* pull.c - the states of a pull:
 *
 *   NEW ────▶ ASKING ────▶ LOCKING ────▶ LISTING ────▶ FETCHING ────▶ SEALING ────▶ DONE
 *    │ digest and size     ▲ │ there is no list        ▲ │      ▲
 *    └─ were given ────────┘ └─────────────────────────┘ │      │ some parts are damaged
 *                                                        └─▶ CHECKING
 *                                                   the wrong digest
 *
 *   NEW, ASKING, LOCKING ──▶ DONE                         it is in the cache already
 *   ASKING, FETCHING, CHECKING ──▶ RESTARTING ──▶ NEW     it changed, or the bytes are useless
 *   every state but DONE and FAILED ──▶ FAILING ──▶ FAILED
 *
 * A pull begins with a URL, and maybe a digest. HEAD gives size and digest (ASKING). A digest that
 * is in the cache ends the pull. LOCKING waits for another process that downloads the same file.
 * LISTING gets the mirror's chunk list, which verifies each part alone; without a list one stream
 * is used. FETCHING continues from the parts that an earlier run left. When all bytes are here and
 * the digest is right, SEALING gives the file its name in the cache. With a wrong digest CHECKING
 * reads all parts again, and the damaged ones are fetched once more. Temporary failures are
 * retried after a pause.
 *
 * RESTARTING and FAILING wait for the jobs of worker threads, which use what is torn down after
 * them.
 */
#include "agent/pull/pull.h"

#include <inttypes.h>
#include <stdlib.h>

#include "agent/ask.h"
#include "agent/pull/transfer.h"
#include "common/base/log.h"
#include "common/codec/url.h"
#include "common/os/clock.h"

enum { RESTARTS_MAX = 3, LIST_MAX = 64 << 20 };

struct pull {
    struct list node;
    struct pull_loop *loop;
    enum pull_state state;
    struct arena arena;
    struct pull_params want;
    void (*on_done)(void *arg, const struct pull_result *r);
    void *arg;
    struct pull_object object;
    bool bound; /* the digest was asked for, by the job or a listing */
    bool list_lies;
    bool checked; /* the parts, since it began */
    bool discard; /* the partial file, when it restarts or fails */
    struct slice list_url;
    struct ask *ask;
    struct local_cache_lock *lock;
    struct digest key;
    uint64_t waits_since_ms;   /* for the lock; UINT64_MAX: and it was said */
    struct transfer *transfer; /* from FETCHING on */
    struct job job;
    struct sealing sealing;
    uint64_t not_before_ms;
    unsigned tries;
    unsigned restarts;
    struct pull_tally tally;
    struct pull_result result;
};

/* --- states ----------------------------------------------------------------------------------- */

#define TO(state) (1U << PULL_##state)

static const unsigned ways[PULL_STATES] = {
    [PULL_NEW] = TO(ASKING) | TO(LOCKING) | TO(FAILING) | TO(DONE),
    [PULL_ASKING] = TO(LOCKING) | TO(RESTARTING) | TO(FAILING) | TO(DONE),
    [PULL_LOCKING] = TO(LISTING) | TO(FETCHING) | TO(FAILING) | TO(DONE),
    [PULL_LISTING] = TO(FETCHING) | TO(FAILING),
    [PULL_FETCHING] = TO(CHECKING) | TO(SEALING) | TO(RESTARTING) | TO(FAILING),
    [PULL_CHECKING] = TO(FETCHING) | TO(RESTARTING) | TO(FAILING),
    [PULL_SEALING] = TO(FAILING) | TO(DONE),
    [PULL_RESTARTING] = TO(NEW) | TO(FAILING),
    [PULL_FAILING] = TO(FAILED),
};

void pull_state_move(enum pull_state *at, enum pull_state to)
{
    CHECK((ways[*at] & 1U << to) != 0);
    *at = to;
}

static void move(struct pull *p, enum pull_state to)
{
    pull_state_move(&p->state, to);
}

static bool has_ended(const struct pull *p)
{
    return p->state == PULL_DONE || p->state == PULL_FAILED;
}

/* --- ends and beginnings ---------------------------------------------------------------------- */

static void drop_work(struct pull *p)
{
    enum transfer_end how = p->state == PULL_DONE     ? TRANSFER_WHOLE
                            : p->discard              ? TRANSFER_DISCARD
                            : p->state == PULL_FAILED ? TRANSFER_SAVE
                                                      : TRANSFER_KEEP;

    transfer_close(&p->transfer, how);
    local_cache_unlock(&p->lock);
}

static void end_pull(struct pull *p)
{
    struct pull_result *r = &p->result;
    struct slice shown = p->want.url;

    shown = slice_cut(&shown, '?'); /* a query may be signed */
    err_prefix(&r->why, SLICE_FMT, SLICE_ARG(shown));
    r->fetched_bytes = p->tally.fetched_bytes;
    r->peer_bytes = p->tally.peer_bytes;
    list_remove(&p->node);
    p->loop->slots++;
    p->on_done(p->arg, r);
    drop_work(p);
    arena_fini(&p->arena);
    free(p);
}

static void succeed(struct pull *p, const struct digest *d, uint64_t size_bytes, bool was_there)
{
    p->result.digest = *d;
    p->result.size_bytes = size_bytes;
    p->result.was_there = was_there;
    local_cache_note(p->loop->agent->local_cache, d, size_bytes, slice_str(p->object.etag),
                     p->want.url);
    pull_loop_show(p->loop, &p->tally, size_bytes, size_bytes);
    move(p, PULL_DONE);
}

static int differs(const struct pull *p, const struct digest *got, struct err *e)
{
    char have[DIGEST_HEX + 1];
    char want[DIGEST_HEX + 1];

    digest_format(got, have);
    digest_format(&p->object.digest, want);
    return err_set(e, E_CORRUPT, "the sha256 is %s instead of %.16s... as %s", have, want,
                   p->bound ? "requested" : "the mirror says");
}

/* What waits for jobs goes on when none is left. */
static void go_on_when_idle(struct pull *p)
{
    if (p->transfer != NULL && !transfer_is_idle(p->transfer)) {
        return;
    }
    if (p->state == PULL_RESTARTING) {
        drop_work(p);
        p->discard = p->checked = false;
        move(p, PULL_NEW);
    } else if (p->state == PULL_FAILING) {
        move(p, PULL_FAILED);
    }
}

static void stop_work(struct pull *p)
{
    if (p->ask != NULL) {
        ask_cancel(&p->ask);
        pull_loop_give_conn(p->loop);
    }
    if (p->transfer != NULL) {
        transfer_stop(p->transfer);
    }
    go_on_when_idle(p);
}

static void fail_pull(struct pull *p, int rc, const struct err *why)
{
    if (has_ended(p) || p->state == PULL_FAILING) {
        return; /* the first reason stands */
    }
    p->result.rc = rc;
    p->result.why = *why;
    p->result.why.code = rc;
    move(p, PULL_FAILING);
    stop_work(p);
}

/* How it is said that no restart has helped. */
static int too_many_restarts(const struct pull *p, int rc, struct err *e)
{
    char hex[DIGEST_HEX + 1];

    if (rc != E_CHANGED) {
        return rc;
    }
    if (p->bound && p->want.other_url.n == 0) {
        digest_format(&p->want.digest, hex);
        return err_set(e, E_CORRUPT,
                       "the file did not match the requested sha256 %.16s... %d times", hex,
                       RESTARTS_MAX);
    }
    return err_set(e, rc, "the file changed on the mirror during the download, %d times",
                   RESTARTS_MAX);
}

static void restart(struct pull *p, bool discard, int rc, const struct err *why)
{
    struct err last = *why;

    if (p->state == PULL_RESTARTING || p->state == PULL_FAILING || has_ended(p)) {
        return;
    }
    if (rc == E_CHANGED && p->want.other_url.n != 0) {
        p->object.url =
            p->want.other_url; /* the name moved on; the digest has an address of its own */
    }
    if (++p->restarts > RESTARTS_MAX + mirrors_count(p->loop->agent->mirrors) - 1) {
        rc = too_many_restarts(p, rc, &last);
        fail_pull(p, rc, &last);
        return;
    }
    p->discard = discard;
    move(p, PULL_RESTARTING);
    stop_work(p);
}

static void retry_later(struct pull *p, int rc, const struct err *why, uint64_t after_s)
{
    uint64_t wait_ms = pull_loop_pause_ms(p->loop, p->tries, after_s);
    uint64_t now_ms = clock_now_ms();

    if (now_ms < p->not_before_ms) {
        return; /* one outage, and many connections that it hits */
    }
    if (++p->tries > p->loop->agent->tries) {
        fail_pull(p, rc, why);
        return;
    }
    p->not_before_ms = now_ms + wait_ms;
    log_debug("pull.retry", "wait_ms=%" PRIu64 " why=\"%s\"", wait_ms, why->text);
}

/* --- NEW, ASKING: is it in the cache, what is it? --------------------------------------------- */

static bool on_local_cache(struct pull *p)
{
    uint64_t size;

    if (!p->object.known && p->object.etag[0] != '\0') {
        struct digest d;
        if (local_cache_recall(p->loop->agent->local_cache, p->want.url, slice_str(p->object.etag),
                               &d) &&
            local_cache_find(p->loop->agent->local_cache, &d, &size, NULL) == 0) {
            succeed(p, &d, size, true);
            return true;
        }
    }
    if (p->object.known &&
        local_cache_find(p->loop->agent->local_cache, &p->object.digest, &size, NULL) == 0) {
        succeed(p, &p->object.digest, size, true);
        return true;
    }
    return false;
}

static void start_pull(struct pull *p)
{
    char hex[DIGEST_HEX + 1];

    p->object.known = p->bound;
    p->object.digest = p->want.digest;
    p->object.size_bytes = p->want.size_bytes;
    p->object.etag[0] = '\0';
    p->object.several = mirrors_count(p->loop->agent->mirrors) > 1;
    if (p->bound) {
        p->object.key = p->want.digest;
    } else {
        mirrors_key(p->loop->agent->mirrors, p->want.url, &p->object.key);
    }
    p->list_url = SLICE_NONE;
    if (on_local_cache(p)) {
        return;
    }
    /* a listing had everything that HEAD could say */
    if (p->bound && p->object.size_bytes != SIZE_UNKNOWN) {
        digest_format(&p->object.digest, hex);
        p->list_url =
            arena_fmt(&p->arena, SLICE_FMT "/-/chunks/%s", SLICE_ARG(p->loop->agent->mirror), hex);
        move(p, PULL_LOCKING);
    } else {
        move(p, PULL_ASKING);
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

static void read_pull_answer(struct pull *p, const struct ask_answer *a)
{
    struct slice link = described_by(a->link);
    const struct mirrors *mirrors = p->loop->agent->mirrors;
    struct buf url = BUF_INIT(8192);
    struct digest says;
    unsigned at;
    struct err why;

    p->object.size_bytes = a->content_length;
    if (a->etag.n > 0 && a->etag.p[0] == '"' && a->etag.n < PARTS_ETAG_ROOM) {
        memcpy(p->object.etag, a->etag.p, a->etag.n);
        p->object.etag[a->etag.n] = '\0';
    }
    if (digest_from_field(a->digest, &says)) {
        if (p->bound && !digest_eq(&says, &p->object.digest)) {
            int rc = differs(p, &says, &why);
            if (p->want.other_url.n != 0 && !slice_eq(p->object.url, p->want.other_url)) {
                restart(p, false, E_CHANGED, &why);
            } else { /* asked for by the caller: no other try will match it */
                fail_pull(p, rc, &why);
            }
            return;
        }
        p->object.digest = says;
        p->object.known = true;
    }
    /* The list is asked for with our token: at a mirror's own host only. */
    if (link.n > 0 && url_resolve(a->url, link, &url, NULL) == 0 &&
        (at = mirrors_find(mirrors, buf_slice(&url))) != MIRROR_NONE) {
        p->list_url = mirrors_plain(mirrors, at, arena_copy(&p->arena, buf_slice(&url)), &p->arena);
    }
    buf_free(&url);
    move(p, PULL_LOCKING);
    (void)on_local_cache(p);
}

static void on_asked(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct pull *p = arg;
    struct err e = *why;

    p->ask = NULL;
    pull_loop_give_conn(p->loop);
    if (rc == E_DENIED || rc == E_INVALID || rc == E_TOOBIG) {
        fail_pull(p, rc, &e);
    } else if (rc != 0) {
        retry_later(p, rc, &e, 0);
    } else if (a->status == 405 || a->status == 501) {
        move(p, PULL_LOCKING); /* no HEAD here: the stream will tell what it is */
    } else {
        rc = a->status / 100 == 3 && slice_ends(a->location, SLICE("/"))
                 ? err_set(&e, E_NOTFOUND, "the name is a folder; add '/' to pull it")
                 : ask_judge(a->status, &a->reason, &e);
        if (rc == 0) {
            p->object.url = arena_copy(&p->arena, a->url);
            read_pull_answer(p, a);
        } else if (rc == E_AGAIN) {
            retry_later(p, rc, &e, a->retry_after_s);
        } else {
            fail_pull(p, rc, &e);
        }
    }
    pull_loop_feed(p->loop);
}

static void
send_pull_request(struct pull *p, enum xfer_method method, struct slice url, size_t body_max,
                  void (*done)(void *, int, const struct err *, const struct ask_answer *))
{
    const struct ask_params w = {.method = method,
                                 .url = url,
                                 .body_max = body_max,
                                 .head_reason = true,
                                 .key = &p->object.key};

    if (p->ask == NULL && clock_now_ms() >= p->not_before_ms && pull_loop_take_conn(p->loop)) {
        p->ask = ask_start(p->loop->xfers, p->loop->agent, &w, done, p);
    }
}

/* --- LOCKING, LISTING: the partial file, and the digests of its parts ------------------------- */

static void on_transfer(void *arg, enum transfer_event what, int rc, const struct err *why,
                        uint64_t after_s);
static void go_on_when_whole(struct pull *p);

static void open_transfer(struct pull *p, struct chunk_list *list)
{
    const struct transfer_params w = {.key = &p->key,
                                      .object = &p->object,
                                      .tally = &p->tally,
                                      .list = list,
                                      .on_event = on_transfer,
                                      .arg = p};
    struct err why;
    int rc = transfer_open(p->loop, &w, &p->transfer, &why);

    if (rc != 0) {
        fail_pull(p, rc, &why);
        return;
    }
    move(p, PULL_FETCHING);
    go_on_when_whole(p); /* an earlier run may have left nothing to fetch */
}

/* Another job on this node fetches it. One that hangs would have us hang in silence. */
static void say_waiting(struct pull *p, uint64_t now_ms)
{
    if (p->waits_since_ms == 0) {
        p->waits_since_ms = now_ms;
    } else if (now_ms - p->waits_since_ms > (uint64_t)p->loop->agent->idle_timeout_s * 1000 &&
               p->waits_since_ms != UINT64_MAX) {
        struct slice shown = p->want.url;
        p->waits_since_ms = UINT64_MAX;
        shown = slice_cut(&shown, '?');
        log_warn("pull.waits", "url=" SLICE_FMT " another process on this node is downloading it",
                 SLICE_ARG(shown));
    }
}

static bool wants_list(const struct pull *p)
{
    return p->list_url.n != 0 && !p->list_lies && !p->object.no_ranges &&
           p->object.size_bytes != SIZE_UNKNOWN && p->object.size_bytes > PART_BYTES;
}

static void take_lock(struct pull *p)
{
    struct err why;
    int rc;

    if (p->object.known) {
        p->key = p->object.digest;
    } else {
        local_cache_key_of_url(p->want.url, &p->key);
    }
    rc = local_cache_try_lock(p->loop->agent->local_cache, &p->key, false, &p->lock, &why);
    if (rc == E_BUSY) {
        say_waiting(p, clock_now_ms());
        return; /* the next tick looks again */
    }
    if (rc != 0) {
        fail_pull(p, rc, &why);
        return;
    }
    if (on_local_cache(p)) { /* it came while we waited */
        return;
    }
    if (wants_list(p)) {
        move(p, PULL_LISTING);
    } else {
        open_transfer(p, NULL);
    }
}

static bool list_fits(const struct pull *p, struct slice bytes, struct chunk_list *out)
{
    struct err why = {0};

    if (chunks_decode(bytes, out, &why) == 0) {
        if (out->chunk_bytes == PART_BYTES && out->size_bytes == p->object.size_bytes &&
            (!p->object.known || digest_eq(&out->whole, &p->object.digest))) {
            return true;
        }
        err_set(&why, E_INVALID, "it belongs to another object");
    }
    log_warn("pull.chunks", "the mirror's chunk list is ignored: %s", why.text);
    chunks_free(out);
    return false;
}

static void on_list(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct pull *p = arg;
    struct chunk_list list = {0};
    struct err e;

    p->ask = NULL;
    pull_loop_give_conn(p->loop);
    if (rc != 0 && rc != E_TOOBIG) {
        retry_later(p, rc, why, 0);
    } else if (rc == 0 && (a->status == 429 || a->status == 503)) {
        rc = ask_judge(a->status, &a->reason, &e);
        retry_later(p, rc, &e, a->retry_after_s);
    } else { /* without a list: one stream, which is as safe */
        bool fits = rc == 0 && a->status == 200 && list_fits(p, a->body, &list);
        open_transfer(p, fits ? &list : NULL);
        chunks_free(&list);
    }
    pull_loop_feed(p->loop);
}

/* --- SEALING: large files each by itself, small ones together --------------------------------- */

static void seal_large(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);
    struct local_cache_sealing *one = &p->sealing.one;

    local_cache_seal(p->loop->agent->local_cache, &one, 1);
}

static void sealed(struct sealing *s)
{
    struct pull *p = CONTAINER_OF(s, struct pull, sealing);

    if (s->one.rc == 0) {
        succeed(p, &p->object.digest, p->object.size_bytes, false);
    } else {
        fail_pull(p, s->one.rc, &s->one.why);
    }
}

static void seal_large_done(struct job *j)
{
    struct pull *p = CONTAINER_OF(j, struct pull, job);

    sealed(&p->sealing);
    pull_loop_feed(p->loop);
}

static void seal_pulled_file(struct pull *p)
{
    struct transfer_view v = transfer_view(p->transfer);

    move(p, PULL_SEALING);
    p->sealing = (struct sealing){
        .one = {.key = p->key, .digest = p->object.digest, .fd = v.fd, .stateless = v.stateless},
        .done = sealed};
    if (p->object.size_bytes <= PART_BYTES) {
        pull_loop_seal(p->loop, &p->sealing);
        return;
    }
    p->job = (struct job){.work = seal_large, .done = seal_large_done, .reply = p->loop->mail};
    pool_submit(p->loop->workers, &p->job, CLIENT_PROGRAM);
}

/* --- FETCHING, CHECKING ----------------------------------------------------------------------- */

/* A stream that one mirror sent alone had wrong bytes: may another one have the right ones? */
static bool other_mirror_helps(struct pull *p, uint64_t sent_by)
{
    struct mirrors *m = p->loop->agent->mirrors;
    uint64_t now_ms = clock_now_ms();

    if (sent_by != 0 && (sent_by & (sent_by - 1)) == 0) {
        mirrors_lied(m, (unsigned)__builtin_ctzll(sent_by), now_ms);
        return mirrors_count(m) > 1 && mirrors_any_fresh(m, now_ms);
    }
    return sent_by != 0; /* it is not known which one it was */
}

static void wrong_digest(struct pull *p, const struct digest *got)
{
    struct transfer_view v = transfer_view(p->transfer);
    struct err why;
    int rc = differs(p, got, &why);

    if (v.chunked && !p->checked) {
        p->checked = true;
        move(p, PULL_CHECKING);
        transfer_check(p->transfer);
    } else if (v.chunked || v.resumed) {
        p->list_lies = p->list_lies || v.chunked;
        restart(p, true, rc, &why);
    } else if (other_mirror_helps(p, v.mirrors)) {
        restart(p, true, rc, &why);
    } else {
        p->discard = true;
        fail_pull(p, rc, &why);
    }
}

/* The whole digest, what to do when it is another, and the way into the cache. */
static void go_on_when_whole(struct pull *p)
{
    struct digest got;

    if (p->state != PULL_FETCHING || !transfer_is_whole(p->transfer, &got)) {
        return;
    }
    if (p->object.known && !digest_eq(&got, &p->object.digest)) {
        wrong_digest(p, &got);
        return;
    }
    p->object.digest = got;
    seal_pulled_file(p);
}

/* Not the digest, but each part was what the list says: either the list is wrong, or the disk. */
static void on_checked(struct pull *p, int bad, const struct err *why)
{
    if (p->state != PULL_CHECKING) {
        return;
    }
    if (bad < 0) {
        fail_pull(p, bad, why);
    } else if (bad == 0) {
        log_warn("pull.chunks",
                 "the mirror's chunk list does not match the digest; the file is downloaded in one "
                 "stream instead");
        p->list_lies = true;
        restart(p, true, E_CORRUPT, &(struct err){0});
    } else {
        log_warn("pull.rotten", "%d parts of an earlier run were damaged and are downloaded again",
                 bad);
        move(p, PULL_FETCHING);
    }
}

static void on_transfer(void *arg, enum transfer_event what, int rc, const struct err *why,
                        uint64_t after_s)
{
    struct pull *p = arg;

    switch (what) {
    case TRANSFER_MOVED:
        break;
    case TRANSFER_WRITTEN:
        p->tries = 0;
        break;
    case TRANSFER_LATER:
        retry_later(p, rc, why, after_s);
        break;
    case TRANSFER_CHANGED:
        p->list_lies = p->list_lies || rc == E_CORRUPT;
        restart(p, rc != E_CHANGED || !p->bound, rc, why);
        break;
    case TRANSFER_FAILED:
        p->discard = p->discard || rc == E_NOSPACE; /* others need the disk, too */
        fail_pull(p, rc, why);
        break;
    case TRANSFER_CHECKED:
        on_checked(p, rc, why);
        break;
    }
    go_on_when_idle(p);
    go_on_when_whole(p);
    pull_loop_feed(p->loop);
}

/* --- all of the loop's ------------------------------------------------------------------------ */

static void feed_once(struct pull *p)
{
    switch (p->state) {
    case PULL_NEW:
        start_pull(p);
        break;
    case PULL_ASKING:
        send_pull_request(p, XFER_HEAD, p->object.url, 0, on_asked);
        break;
    case PULL_LOCKING:
        take_lock(p);
        break;
    case PULL_LISTING:
        send_pull_request(p, XFER_GET, p->list_url, LIST_MAX, on_list);
        break;
    case PULL_FETCHING:
        transfer_feed(p->transfer, p->not_before_ms);
        break;
    case PULL_CHECKING:
    case PULL_SEALING:
    case PULL_RESTARTING:
    case PULL_FAILING:
    case PULL_FAILED:
    case PULL_DONE:
        break;
    }
}

static void stop_pull(struct pull *p)
{
    struct err why;

    if (p->state != PULL_SEALING && p->state != PULL_CHECKING) { /* a moment, and it is there */
        err_set(&why, E_CANCELLED, "stopped");
        fail_pull(p, E_CANCELLED, &why);
    }
}

static void advance_pull(struct pull *p)
{
    enum pull_state before;

    if (p->loop->stopping) {
        stop_pull(p);
        return;
    }
    do {
        before = p->state;
        feed_once(p);
    } while (p->state != before);
}

static void feed_all(struct pull_loop *l)
{
    LIST_EACH (&l->pulls, n) {
        advance_pull(LIST_ITEM(n, struct pull, node));
    }
}

static void tick_all(struct pull_loop *l, uint64_t now_ms)
{
    LIST_EACH (&l->pulls, n) {
        struct pull *p = LIST_ITEM(n, struct pull, node);
        if (p->state == PULL_FETCHING) {
            transfer_tick(p->transfer, now_ms);
        }
    }
}

static void stop_pulls(struct pull_loop *l)
{
    LIST_EACH (&l->pulls, n) {
        stop_pull(LIST_ITEM(n, struct pull, node));
    }
}

static struct pull *first_ended(struct pull_loop *l)
{
    LIST_EACH (&l->pulls, n) {
        struct pull *p = LIST_ITEM(n, struct pull, node);
        if (has_ended(p)) {
            return p;
        }
    }
    return NULL;
}

static bool reap_all(struct pull_loop *l)
{
    bool any = false;
    struct pull *p;

    while ((p = first_ended(l)) != NULL) {
        end_pull(p);
        any = true;
    }
    return any;
}

static bool none_left(const struct pull_loop *l)
{
    return list_empty(&l->pulls);
}

static bool is_slot_free(const struct pull_loop *l)
{
    return l->slots > 0;
}

static void close_pulls(struct pull_loop *l)
{
    CHECK(list_empty(&l->pulls));
}

static const struct pull_kind single = {
    .feed = feed_all,
    .tick = tick_all,
    .stop = stop_pulls,
    .reap = reap_all,
    .is_idle = none_left,
    .has_room = is_slot_free,
    .close = close_pulls,
};

void pull_add(struct pull_loop *l, const struct pull_params *w,
              void (*on_done)(void *arg, const struct pull_result *r), void *arg)
{
    struct pull *p = NEW(struct pull);

    p->loop = l;
    p->want = *w;
    p->want.url = arena_copy(&p->arena, w->url);
    p->want.other_url = arena_copy(&p->arena, w->other_url);
    p->object.url = p->want.url;
    p->object.size_bytes = SIZE_UNKNOWN;
    p->bound = !digest_is_zero(&w->digest);
    p->on_done = on_done;
    p->arg = arg;
    if (w->size_bytes != SIZE_UNKNOWN) {
        p->tally.known_bytes = w->size_bytes; /* counted already by whoever learned it */
    }
    l->kind[KIND_SINGLE] = &single;
    CHECK(l->slots > 0);
    l->slots--;
    list_push_back(&l->pulls, &p->node);
}
