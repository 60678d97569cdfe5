/* learn.c - what is known of a pull before its first byte: the shelf, HEAD, the lock, the chunk list, the partial file. */
#include <stdlib.h>

#include "agent/peers/swarm.h"
#include "agent/pull/pull.h"
#include "common/base/log.h"
#include "common/os/clock.h"

enum { LIST_MAX = 64 << 20 };

static bool on_shelf(struct pull *p)
{
    uint64_t size;

    if (!p->known && p->etag[0] != '\0') {
        struct digest d;
        if (shelf_recall(p->pl->agent->shelf, p->want.url, slice_str(p->etag), &d) &&
            shelf_find(p->pl->agent->shelf, &d, &size, NULL) == 0) {
            pull_succeed(p, &d, size, true);
            return true;
        }
    }
    if (p->known && shelf_find(p->pl->agent->shelf, &p->digest, &size, NULL) == 0) {
        pull_succeed(p, &p->digest, size, true);
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
            int rc = pull_differs(p, &says, &why);
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
                 : ask_judge(a->status, &a->reason, &e);
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
    const struct ask_want w = {
        .method = method, .url = url, .body_max = body_max, .head_reason = true};

    if (p->ask == NULL && clock_now_ms() >= p->not_before_ms && puller_take_conn(p->pl)) {
        p->ask = ask_start(p->pl->xfers, p->pl->agent, &w, done, p);
    }
}

/* --- the lock, the list, the partial file ------------------------------------------------------------------------------------ */

/* What an earlier run left was checked before it was written, but for what it streamed when there was no list yet: were that wrong, a
 * neighbour would refuse it and trust us no more, and the whole's digest find it here. */
static void join_swarm(struct pull *p)
{
    if (!p->chunked || !p->known) {
        return;
    }
    p->swarm = swarm_join(p->pl->peers, &p->digest, p->size_bytes, p->parts->fd);
    for (size_t i = 0; p->swarm != NULL && i < p->parts->count; i++) {
        if (p->parts->state[i] == PART_DONE) {
            swarm_have(p->swarm, i, true);
        }
    }
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
    join_swarm(p);
    p->follow = follow_new(p->pl->followers, p->pl->mail, p->parts->fd, seal_followed, p);
    follow_to(p->follow, parts_prefix_bytes(p->parts));
    p->saved_at_ms = clock_now_ms();
    p->phase = PULL_FETCH;
    pull_job_ended(p); /* an earlier run may have left nothing to fetch */
}

/* Another job on this node fetches it. One that hangs would have us hang in silence. */
static void say_waiting(struct pull *p, uint64_t now_ms)
{
    if (p->waits_since_ms == 0) {
        p->waits_since_ms = now_ms;
    } else if (now_ms - p->waits_since_ms > (uint64_t)p->pl->agent->idle_timeout_s * 1000 &&
               p->waits_since_ms != UINT64_MAX) {
        struct slice shown = p->want.url;
        p->waits_since_ms = UINT64_MAX;
        shown = slice_cut(&shown, '?');
        log_warn("pull.waits", "url=" SLICE_FMT " another process on this node fetches it",
                 SLICE_ARG(shown));
    }
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
        say_waiting(p, clock_now_ms());
        return; /* the next tick looks again */
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
    struct err e;

    p->ask = NULL;
    puller_give_conn(p->pl);
    if (rc != 0 && rc != E_TOOBIG) {
        pull_retry_later(p, rc, why, 0);
    } else if (rc == 0 && (a->status == 429 || a->status == 503)) {
        pull_retry_later(p, ask_judge(a->status, &a->reason, &e), &e, a->retry_after_s);
    } else { /* without a list: one stream, which is as safe */
        p->chunked = rc == 0 && a->status == 200 && list_fits(p, a->body);
        open_parts(p);
    }
    puller_feed(p->pl);
}

void learn_feed(struct pull *p)
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
    case PULL_SEAL:
    case PULL_DONE:
    case PULL_DRAIN:
        break;
    }
}
