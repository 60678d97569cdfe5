/* fetch.c - the life of a fetch, its readers, and what becomes of it without clients.
 *
 * An entry starts a fetch, which sends one request to the origin (ASKING). If the response is a 200
 * or 206, a stage is opened on the pool (STAGING). Any other response goes to the entry, and the
 * fetch ends. Once the stage is open the entry answers the lookups that wait, and range requests
 * write the object (RUNNING). Each write is published: every loop with readers that wait gets one
 * message. seal.c hashes behind the writes, and when all bytes are hashed it seals the blob and
 * commits the rows (SEALING). Then the entry gets ended().
 *
 * When the last client has left, the fetch continues alone (AIM_ALONE) if it is small, nearly
 * complete, was requested by several clients, or runs in the background, within a bound of such
 * fetches per client. If it cannot be resumed later, it ends immediately. Otherwise it rests
 * (AIM_NOTHING): its requests stop reading, are finished after two seconds, and after the grace
 * period the fetch ends and is parked.
 *
 * A failed fetch cuts its readers off, stops its requests, and ends when no job or request is under
 * way any more. Its bytes are parked if they can be resumed, and removed if not. fetch_priv.h draws
 * the states.
 *
 * threads  the fetch thread, except where a function says otherwise
 */
#include "server/cache/fetch.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/codec/httpdate.h"
#include "common/os/clock.h"
#include "common/os/descriptor.h"
#include "server/cache/fetch_priv.h"
#include "server/cache/variant.h"

enum {
    NEARLY_PARTS = 10, /* a tenth may be missing */
    GOING_ON_MAX = 4,
    GOING_ON_ALL = 32,
    REST_MS = 2000,
    IDLE_MAX = 256, /* that wait for somebody to come back; beyond, they are parked at once */
    TRICKLE_BYTES_PER_S = 1024, /* slower than this it is not worth going on */
    ROOM_BYTES = 2 << 20,       /* for a write, with the step in which space is taken */
    TROUBLED_MS = 2000, /* readers without a byte then get the reason: clients give up after 10 s */
    HASTEN_MS = 5000,   /* a new reader may have the origin asked before its time, so often */
    TAIL_BYTES = 1 << 20,
};
#define WITHHELD_BYTES ((uint64_t)64 << 10) /* until length and digest hold */
/* Up to this size a fetch goes on to its end when its clients have left. */
#define SMALL_BYTES ((uint64_t)4 << 20)
/* From this size on a whole fetch is resumed after a restart; one that began with a range, from
 * PEEK_WHOLE_BYTES on. */
#define RESUMED_BYTES ((uint64_t)64 << 20)

static void go_on_alone(struct fetch *f);
static void release_going(struct fetch *f);
static void rest_idle_fetch(struct fetch *f, uint64_t now_ms);
static void abandon(struct fetch *f);

static const struct state of_fetch[] = {
    [FETCH_ASKING] = {"asking", STATE(FETCH_STAGING) | STATE(FETCH_ENDED)},
    [FETCH_STAGING] = {"staging", STATE(FETCH_RUNNING) | STATE(FETCH_ENDED)},
    [FETCH_RUNNING] = {"running", STATE(FETCH_SEALING) | STATE(FETCH_ENDED)},
    [FETCH_SEALING] = {"sealing", STATE(FETCH_ENDED)},
    [FETCH_ENDED] = {"ended", 0},
};
static const struct state of_aim[] = {
    [AIM_RANGES] = {"ranges", STATE(AIM_WHOLE) | STATE(AIM_ALONE) | STATE(AIM_NOTHING)},
    [AIM_WHOLE] = {"whole", STATE(AIM_ALONE) | STATE(AIM_NOTHING)},
    [AIM_ALONE] = {"alone", STATE(AIM_WHOLE)},
    [AIM_NOTHING] = {"nothing", STATE(AIM_RANGES)},
};
const struct state_table fetch_states = STATE_TABLE("fetch", of_fetch);
const struct state_table fetch_aims = STATE_TABLE("goal of a fetch", of_aim);

void fetch_becomes(struct fetch *f, enum fetch_state to)
{
    lock_take(&f->lock);
    f->state = state_step(&fetch_states, f->state, to);
    lock_drop(&f->lock);
}

/* Under the lock. */
static void aim_becomes(struct fetch *f, enum fetch_aim to)
{
    f->aim = state_step(&fetch_aims, f->aim, to);
}

enum fetch_aim fetch_aim(struct fetch *f)
{
    enum fetch_aim aim;

    lock_take(&f->lock);
    aim = f->aim;
    lock_drop(&f->lock);
    return aim;
}

void fetch_aim_at_whole(struct fetch *f)
{
    lock_take(&f->lock);
    if (f->aim == AIM_RANGES) {
        aim_becomes(f, AIM_WHOLE);
    }
    lock_drop(&f->lock);
}

void fetch_use_less(struct fetch *f, enum fetch_use most)
{
    if (f->use > most) {
        f->use = most;
    }
}

/* --- life ------------------------------------------------------------------------------------- */

struct fetch *fetch_hold(struct fetch *f)
{
    atomic_fetch_add_explicit(&f->refs, 1, memory_order_relaxed);
    return f;
}

void fetch_release(struct fetch **fp)
{
    struct fetch *f = *fp;
    struct list *n;

    *fp = NULL;
    if (f == NULL || atomic_fetch_sub_explicit(&f->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    CHECK(f->magic == FETCH_MAGIC && f->ingest == NULL && f->jobs == 0);
    while ((n = list_pop_front(&f->audiences)) != NULL) {
        free(LIST_ITEM(n, struct audience, node));
    }
    if (f->fd != -1) {
        close(f->fd);
    }
    extents_fini(&f->have);
    for (unsigned i = 0; i < f->neighbors; i++) {
        origin_free(&f->neighbor[i].origin);
    }
    origin_free(&f->origin);
    lock_fini(&f->lock);
    arena_fini(&f->arena);
    f->magic = 0;
    free(f);
}

static uint64_t block_end(uint64_t at)
{
    return at > UINT64_MAX - BLOCK_BYTES ? at : (at + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* What to ask the origin first. An object that may be large is asked for in bounded ranges from the
 * start: then segments run in parallel and no connection is ever cut off in mid-flight. */
static void first_segment(const struct fetch *f, uint64_t *first, uint64_t *end)
{
    const struct lookup *w = &f->lookup;
    const struct cache_settings *set = &f->cache->set;

    /* Short at first: who asks for a place further on gets a request of its own, and a long one
     * that had to be cut for it would have brought bytes twice. start_segment() lets them grow. */
    *first = 0;
    *end = LENGTH_UNKNOWN;
    if (f->hint_first != 0 || f->hint_end != LENGTH_UNKNOWN) {
        *first = f->hint_first / BLOCK_BYTES * BLOCK_BYTES;
        *end = f->hint_end == LENGTH_UNKNOWN ? *first + set->jump_bytes : block_end(f->hint_end);
        *end = min_u64(*end, *first + set->segment_bytes);
    } else if (w->class == LOOKUP_IMMUTABLE && w->size_bytes >= set->parallel_bytes) {
        *end = min_u64(set->jump_bytes, set->segment_bytes);
    }
    if (w->size_bytes != LENGTH_UNKNOWN && *first < w->size_bytes) {
        *end = *end == LENGTH_UNKNOWN ? *end : min_u64(*end, w->size_bytes);
    }
}

/* Where the range is that was asked for, once the length is known. */
static void place_suffix(struct fetch *f, uint64_t total)
{
    if (f->lookup.hint_suffix != 0 && total != LENGTH_UNKNOWN) {
        f->hint_first = total - min_u64(f->lookup.hint_suffix, total);
        f->hint_end = total;
    }
}

/* What is missing of what is asked for; where nothing is, the next gap tells whether it is still
 * the same. */
static void first_gap(const struct fetch *f, uint64_t *first, uint64_t *end)
{
    uint64_t most = f->cache->set.segment_bytes;
    bool all = f->aim == AIM_WHOLE;

    *first = extents_until(&f->have, all ? 0 : f->hint_first / BLOCK_BYTES * BLOCK_BYTES);
    if (!all && (*first >= f->hint_end || *first >= f->total_bytes)) {
        *first = extents_until(&f->have, 0);
        most = BLOCK_BYTES;
    } else if (!all && f->hint_end != LENGTH_UNKNOWN) {
        most = min_u64(most, block_end(f->hint_end) - *first);
    } else if (!all) {
        most = min_u64(most, f->cache->set.jump_bytes);
    }
    *end = min_u64(extents_next(&f->have, *first), f->total_bytes);
    *end = min_u64(*end, *first + most);
}

/* --- an earlier fetch's part --- */

struct wanted {
    struct slice row_key;
    const struct lookup *w;
};

static bool is_variant(void *arg, const struct partial *p)
{
    const struct wanted *x = arg;
    struct slice name = partial_name(p);
    struct slice vary_key = variant_of_row(object_key_of_row(name));

    return vary_key.n != 0 && name.n == x->row_key.n + 1 + vary_key.n &&
           slice_starts(name, x->row_key) && vary_matches(vary_key, x->w);
}

/* An earlier life left a part of it. True: it is gone on with, on the condition that it is still
 * the same. */
static bool take_earlier_partial(struct fetch *f)
{
    struct wanted x = {f->row_key, &f->lookup};
    struct store *s = f->cache->store;
    struct partial *p = NULL;
    bool same;

    if (lookup_varies(&f->lookup)) { /* they are few: only large ones are parked */
        p = partial_take_if(s, PARTIAL_FETCH, is_variant, &x);
    }
    p = p != NULL ? p : partial_take(s, PARTIAL_FETCH, f->row_key);
    f->earlier = p;
    if (p == NULL) {
        return false;
    }
    same = f->lookup.digest_known ? p->digest_known && digest_eq(&p->digest, &f->lookup.digest)
                                  : etag_is_strong(p->validator) && p->source.n == 8 &&
                                        origin_owns(f->origin, be_get(p->source.p, 8));
    if (!same || extents_bytes(&p->have) >= p->total_bytes) {
        return false;
    }
    f->resume_id = p->id;
    f->object.origin_etag = p->validator.n != 0 ? arena_copy(&f->arena, p->validator) : SLICE_NONE;
    f->total_bytes = p->total_bytes;
    extents_copy(&f->have, &p->have);
    return true;
}

static bool resume_earlier(struct fetch *f, uint64_t *first, uint64_t *end)
{
    if (!take_earlier_partial(f)) {
        return false;
    }
    place_suffix(f, f->total_bytes);
    first_gap(f, first, end);
    return true;
}

static void choose_neighbors(struct fetch *f)
{
    const struct cache *c = f->cache;

    if (c->neighbors != NULL && f->lookup.asker != NEIGHBOR_ASKS_HELD) {
        f->neighbors = c->neighbors->choose(c->neighbors_arg, f->row_key,
                                            f->lookup.asker != CLIENT_ASKS, f->neighbor);
    }
    if (f->lookup.stored == STORED_IS_DOUBTED && f->neighbors != 0 && f->neighbor[0].sibling) {
        f->asked = f->neighbors;
    }
}

struct fetch *fetch_start(struct cache *c, const struct fetch_begin *how,
                          const struct fetch_owner *owner, void *arg)
{
    const struct lookup *w = how->lookup;
    struct fetch *f = NEW(struct fetch);
    uint64_t first = 0;
    uint64_t end = LENGTH_UNKNOWN;

    f->magic = FETCH_MAGIC;
    atomic_init(&f->refs, 1);
    f->cache = c;
    lookup_copy(&f->arena, w, &f->lookup);
    fair_clients_add(&f->clients, w->client);
    f->origin = origin_hold(w->origin);
    f->row_key = arena_copy(&f->arena, how->row_key);
    f->vary_key = SLICE("");
    f->fd = -1;
    f->born_ms = clock_now_ms();
    f->use = how->found ? USE_KEPT : USE_ALL;
    lock_init(&f->lock, LOCK_FETCH);
    f->total_bytes = LENGTH_UNKNOWN;
    list_init(&f->audiences);
    list_init(&f->stalled);
    f->owner = owner;
    f->owner_arg = arg;
    f->replaces = how->replaces;
    f->aim = w->hint_first == 0 && w->hint_end == LENGTH_UNKNOWN && w->hint_suffix == 0
                 ? AIM_WHOLE
                 : AIM_RANGES;
    f->hint_first = w->hint_first;
    f->hint_end = w->hint_end;
    place_suffix(f, w->size_bytes);
    if (!how->asks_origin) {
        choose_neighbors(f);
    }
    if (w->head_only || !resume_earlier(f, &first, &end)) {
        first_segment(f, &first, &end);
    }
    lock_take(&c->lock);
    list_push_back(&c->fetches, &f->node);
    lock_drop(&c->lock);
    COUNT(c, fetches, w->head_only ? 0 : 1);
    range_request_start(f, first, end, how->old);
    return f;
}

/* --- what it is like -------------------------------------------------------------------------- */

struct fetch *fetch_of(struct list *node)
{
    return LIST_ITEM(node, struct fetch, node);
}

void fetch_go_on_alone(struct fetch *f)
{
    f->lookup.background = true;
}

void fetch_keep_no_more(struct fetch *f)
{
    fetch_use_less(f, USE_ALL);
}

bool fetch_has_neighbors(const struct fetch *f)
{
    return f->neighbors != 0;
}

static bool asks_no_parent(const struct fetch *f, unsigned asked)
{
    return asked >= f->neighbors || f->neighbor[asked].sibling;
}

bool fetch_is_first_hand(const struct fetch *f)
{
    return asks_no_parent(f, f->asked);
}

void fetch_leave_parent(struct fetch *f)
{
    unsigned parent = f->asked;

    if (f->rc != 0 || fetch_is_first_hand(f) || !asks_no_parent(f, parent + 1) ||
        f->head == HEAD_IS_STALE || (f->state != FETCH_ASKING && !f->splices)) {
        return;
    }
    range_requests_do(f, RANGE_REQUESTS_ELSEWHERE);
    if (f->asked == parent) { /* none is under way */
        f->asked++;
    }
}

bool fetch_is_stale(const struct fetch *f)
{
    return f->head == HEAD_IS_STALE;
}

uint64_t fetch_confirmed_unix_s(const struct fetch *f)
{
    uint64_t now = clock_unix_s();

    return now - min_u64(now, f->age_here_s);
}

bool fetch_is_headed(const struct fetch *f)
{
    return f->state == FETCH_RUNNING || f->state == FETCH_SEALING;
}

bool fetch_complete(struct fetch *f)
{
    return f->total_bytes != LENGTH_UNKNOWN && fetch_frontier(f) >= f->total_bytes;
}

bool fetch_keeps(const struct fetch *f)
{
    return f->use == USE_KEPT;
}

struct fetch_view fetch_view(struct fetch *f)
{
    struct fetch_view v = {
        .use = f->use,
        .replaces = f->replaces,
        .ranges_alone = f->counts_as == SHARE_RANGE,
        .over_share = f->over_share,
        .row_key = f->row_key,
        .vary_key = f->vary_key,
        .rate_bytes_per_s = atomic_load_explicit(&f->rate_bytes_per_s, memory_order_relaxed),
        .age_ms = clock_now_ms() - f->born_ms,
    };

    lock_take(&f->lock);
    v.failed = f->rc != 0;
    v.rests = f->aim == AIM_NOTHING;
    v.have_bytes = extents_bytes(&f->have);
    v.total_bytes = f->total_bytes;
    v.readers = f->readers;
    lock_drop(&f->lock);
    return v;
}

struct slice fetch_text(const struct fetch *f)
{
    return f->text;
}

const struct lookup *fetch_lookup(const struct fetch *f)
{
    return &f->lookup;
}

const struct object *fetch_object(const struct fetch *f)
{
    return &f->object;
}

/* --- the first head --------------------------------------------------------------------------- */

static struct slice make_etag(struct fetch *f)
{
    char hex[DIGEST_HEX + 1];
    uint64_t generation;

    if (etag_is_strong(f->object.origin_etag)) {
        return f->object.origin_etag;
    }
    if (f->lookup.digest_known) {
        digest_format(&f->lookup.digest, hex);
        return arena_fmt(&f->arena, "\"sha256-%s\"", hex);
    }
    CHECK(getrandom(&generation, sizeof generation, 0) == sizeof generation);
    return arena_fmt(&f->arena, "\"g-%016" PRIx64 "\"", generation);
}

static void on_staged(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, stage_job);

    fetch_job_done(f);
    if (f->rc != 0) {
        fetch_settle(f);
    } else if (f->job_rc != 0) {
        fetch_fail(f, f->job_rc, &f->job_why);
    } else {
        fetch_becomes(f, FETCH_RUNNING);
        f->owner->headed(f->owner_arg, f);
        range_requests_do(f, RANGE_REQUESTS_GO_ON);
        fetch_plan(f);
        fetch_hash(f); /* an empty body is complete by now */
    }
}

static int fits_quota(const struct fetch *f, struct err *e)
{
    struct store_space space;
    char advice[SPACE_ADVICE];

    store_space(f->cache->store, &space);
    return f->total_bytes == LENGTH_UNKNOWN || f->total_bytes <= space.quota_bytes
               ? 0
               : err_set(e, E_NOSPACE,
                         "%" PRIu64 " bytes are more than the quota of %" PRIu64 " bytes; %s",
                         f->total_bytes, space.quota_bytes, store_space_advice(&space, advice));
}

/* --- its client's share (share.h) */

static uint64_t share_left_of(struct fetch *f, struct store_space *space)
{
    store_space(f->cache->store, space);
    return share_left(f->cache->share, f->lookup.client, f->counts_as, space->quota_bytes,
                      clock_now_ms() / 1000);
}

/* Where there is room for nobody, it is not for this client's share. */
static int over_share(struct fetch *f, const struct store_space *space, struct err *e)
{
    char advice[SPACE_ADVICE];

    if (space->quota_bytes == 0) {
        return err_set(e, E_NOSPACE, "the store has no room: %s",
                       store_space_advice(space, advice));
    }
    f->over_share = true;
    return share_refuse(f->cache->share, f->counts_as, space, e);
}

/* What was asked for of it, and is not here. 0: not known. */
static uint64_t asked_bytes(struct fetch *f)
{
    bool all = fetch_aim(f) == AIM_WHOLE;
    uint64_t end = all ? f->total_bytes : min_u64(f->hint_end, f->total_bytes);
    uint64_t first = all ? 0 : min_u64(f->hint_first, end);
    uint64_t have = extents_bytes(&f->have);

    if (end == LENGTH_UNKNOWN) {
        return 0;
    }
    return end - first - min_u64(end - first, have);
}

/* What the same client's other fills hold until they are sealed, and then can be put out: those
 * that are complete, and those that began before this one, whose room comes first. So of two that
 * wait for each other's room, one goes on. What is never sealed, or that nobody wants any more, is
 * not waited for. */
struct unsealed {
    uint64_t bytes; /* that they have */
    uint64_t lack;  /* that they will have beside */
};

static void unsealed_add(struct unsealed *u, struct fetch *g, bool elder)
{
    uint64_t have, lack = 0;

    lock_take(&g->lock);
    have = extents_bytes(&g->have);
    if (g->total_bytes != LENGTH_UNKNOWN && (g->aim == AIM_WHOLE || g->aim == AIM_ALONE)) {
        lack = g->total_bytes - min_u64(g->total_bytes, have);
    }
    if (g->aim != AIM_NOTHING && (elder || have == g->total_bytes)) {
        u->bytes += have;
        u->lack += lack;
    }
    lock_drop(&g->lock);
}

static struct unsealed unsealed_of(struct fetch *f)
{
    struct cache *c = f->cache;
    struct unsealed u = {0};
    bool elder = true;

    if (f->lookup.client == 0) {
        return u; /* the program's own have no share */
    }
    COUNT(c, share_looks, 1);
    lock_take(&c->lock);
    LIST_EACH (&c->fetches, it) {
        struct fetch *g = LIST_ITEM(it, struct fetch, node);
        elder = elder && g != f;
        if (g != f && g->lookup.client == f->lookup.client && g->counts_as == SHARE_OBJECT) {
            unsealed_add(&u, g, elder);
        }
    }
    lock_drop(&c->lock);
    return u;
}

/* One for which there can be no room is refused while a status can still say so. */
static int fits_share(struct fetch *f, struct err *e)
{
    struct store_space space;
    uint64_t left = share_left_of(f, &space);
    uint64_t asked = asked_bytes(f);
    int rc = 0;

    if (asked > left) {
        struct unsealed u = unsealed_of(f);
        left =
            share_left_of(f, &space); /* after: what is sealed now counts twice rather than not */
        rc = asked <= left
                 ? 0
                 : cache_room_beyond(f->cache, f->lookup.client, left, u.bytes, asked - left, e);
    }
    return rc == E_NOSPACE ? over_share(f, &space, e) : rc;
}

bool fetch_may_wait(struct fetch *f)
{
    struct unsealed u = unsealed_of(f);

    return u.bytes != 0 || u.lack != 0;
}

static bool is_reserved(struct fetch *f, uint64_t n, uint64_t left, uint64_t lack)
{
    return lack != 0 && (n > left || lack > left - n) &&
           cache_is_tight(f->cache, f->lookup.client, n + lack);
}

/* Is what room there is kept for the client's elder fetches? All fetches are looked at only where
 * what all of them may lack, whoever wants them, would be too much. */
static bool is_kept_for_elders(struct fetch *f, uint64_t n, uint64_t left)
{
    uint64_t all = atomic_load_explicit(&f->cache->announced_bytes, memory_order_relaxed);

    return is_reserved(f, n, left, all - min_u64(all, f->announced_bytes)) &&
           is_reserved(f, n, left, unsealed_of(f).lack);
}

int fetch_admit(struct fetch *f, uint64_t n, bool may_wait, struct err *e)
{
    struct store_space space;
    /* First: what is being written at the same time counts twice rather than not. */
    uint64_t arriving = atomic_load(&f->cache->arriving_bytes);
    uint64_t left = share_left_of(f, &space);
    int rc = may_wait && is_kept_for_elders(f, arriving, left) ? E_NOSPACE : 0;

    if (rc == 0 && n > left) {
        rc = cache_make_room_beyond(f->cache, f->lookup.client, n, e);
    }
    return rc == E_NOSPACE ? over_share(f, &space, e) : rc;
}

/* Its length is known, or forgotten with 0. */
static void announce_fetched_bytes(struct fetch *f, uint64_t bytes)
{
    atomic_fetch_add_explicit(&f->cache->announced_bytes, bytes - f->announced_bytes,
                              memory_order_relaxed);
    f->announced_bytes = bytes;
}

/* Does its stage survive a restart? */
static bool is_named(struct fetch *f)
{
    return fetch_keeps(f) && f->splices && f->total_bytes != LENGTH_UNKNOWN &&
           f->total_bytes >= (fetch_aim(f) == AIM_WHOLE ? RESUMED_BYTES : PEEK_WHOLE_BYTES);
}

static void open_fetch_stage(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, stage_job);
    struct store *s = f->cache->store;
    struct ingest_how how = {.length_bytes = f->total_bytes == LENGTH_UNKNOWN ? 0 : f->total_bytes,
                             .named = is_named(f)};

    announce_fetched_bytes(f, how.length_bytes);
    if (f->resume_id != 0 && f->have.count > 0) {
        f->job_rc = ingest_resume(s, f->earlier, &how, &f->ingest, &f->job_why);
    }
    if (f->earlier != NULL && f->ingest == NULL) { /* it is not what is being fetched now */
        partial_drop(s, &f->earlier);
        lock_take(&f->lock);
        extents_fini(&f->have);
        lock_drop(&f->lock);
    }
    partial_free(&f->earlier);
    /* An announced size takes no room: bytes do, as they come. What can never be kept whole is not
     * begun. */
    f->job_rc = fits_quota(f, &f->job_why);
    f->counts_as = f->job_rc != 0 ? SHARE_RANGE : SHARE_OBJECT;
    f->job_rc = fetch_aim(f) == AIM_WHOLE ? f->job_rc : 0;
    f->job_rc = f->job_rc != 0 ? f->job_rc : fits_share(f, &f->job_why);
    if (f->ingest == NULL && f->job_rc == 0) {
        f->job_rc = ingest_open(s, &how, &f->ingest, &f->job_why);
    }
    if (f->job_rc == E_NOSPACE && f->counts_as == SHARE_OBJECT && !f->over_share &&
        cache_make_room(f->cache, 0, &f->job_why) == 0) {
        f->job_rc = ingest_open(s, &how, &f->ingest, &f->job_why);
    }
    if (f->job_rc == 0) {
        f->fd = descriptor_within(DESCRIPTORS_OF_FILES,
                                  fcntl(ingest_fd(f->ingest), F_DUPFD_CLOEXEC, 0));
        f->job_rc = f->fd == -1 ? err_sys(&f->job_why, "dup") : 0;
    }
}

/* The rule takes the origin's word for the digest: it is checked like one from an index. */
static void learn_digest(struct fetch *f, const struct origin_head *h)
{
    f->lookup.digest_known = origin_head_digest(h, &f->lookup.digest);
}

void fetch_led(struct fetch *f, const struct origin_head *h)
{
    if (f->asked == f->neighbors && f->lookup.redirects == REDIRECTS_HOLD &&
        !slice_eq(h->url, f->lookup.url) && !slice_eq(h->url, f->led_to)) {
        f->led_to = arena_copy(&f->arena, h->url);
    }
}

bool fetch_is_refused(const struct fetch *f, const struct origin_head *h)
{
    return f->lookup.no_html && (h->status == 200 || h->status == 206) &&
           (origin_head_is_html(h) || h->content_length == 0);
}

/* Whom it is for: what may not be kept, for those alone who asked the same. */
static void learn_vary_key(struct fetch *f, const struct origin_head *h)
{
    struct buf key = BUF_INIT(OBJECT_KEY_MAX);
    struct slice vary_key;

    if (!lookup_varies(&f->lookup)) {
        return;
    }
    vary_key = f->use >= USE_ALL ? variant_of_answer(&f->lookup, h->fields, h->nfields, &f->arena)
                                 : variant_of_all(&f->lookup, h->fields, h->nfields, &f->arena);
    variant_key(&key, f->row_key, vary_key);
    CHECK(key.rc == 0);
    lock_take(&f->cache->lock); /* others look at it: fetch_view() */
    f->vary_key = vary_key;
    f->row_key = arena_copy(&f->arena, buf_slice(&key));
    lock_drop(&f->cache->lock);
    buf_free(&key);
}

void fetch_learn(struct fetch *f, const struct origin_head *h, bool gives_ranges)
{
    struct object *o = &f->object;
    uint64_t now = fetch_confirmed_unix_s(f);
    struct freshness fresh;
    struct slice coding;

    object_learn(o, h, &f->arena);
    o->origin = origin_identity(f->origin);
    if (f->lookup.repr_digest != REPR_DIGEST_IGNORED && !f->lookup.digest_known) {
        learn_digest(f, h);
    }
    coding = object_field(o, "content-encoding");
    freshness_read(h->fields, h->nfields, &f->lookup, now, f->cache->set.default_ttl_s, &fresh);
    o->stored_unix_s = clock_unix_s();
    o->validated_unix_s = now;
    o->age_s = fresh.age_s;
    o->fresh_until_unix_s = fresh.fresh_until_unix_s;
    o->swr_s = fresh.swr_s;
    o->sie_s = fresh.sie_s;
    o->must_revalidate = fresh.must_revalidate;
    o->etag = f->owner_etag.p != NULL ? f->owner_etag : make_etag(f);
    fetch_led(f, h);
    f->splices = gives_ranges && h->ranges && coding.p == NULL && h->framed &&
                 (etag_is_strong(o->origin_etag) || f->lookup.digest_known);
    if (!freshness_keeps(&fresh, &f->lookup)) {
        fetch_use_less(f, USE_ASKERS);
    } else if (!h->framed && !f->lookup.digest_known) {
        /* Without a marked end a cut looks like the end: such bytes are passed on, but never kept
         * as complete. */
        fetch_use_less(f, USE_ALL);
    }
    learn_vary_key(f, h);
    fetch_becomes(f, FETCH_STAGING);
    fetch_job(f, &f->stage_job, open_fetch_stage, on_staged);
}

/* --- progress --------------------------------------------------------------------------------- */

static struct fetch_reader *reader_of(struct body *b)
{
    struct fetch_reader *r = CONTAINER_OF(b, struct fetch_reader, body);
    CHECK(r->magic == READER_MAGIC);
    return r;
}

/* On its loop: there may be bytes. */
static void reader_wake(struct fetch_reader *r)
{
    CHECK(r->magic == READER_MAGIC);
    if (r->waiting && r->body.wake != NULL) {
        r->waiting = false;
        r->body.wake(r->body.wake_arg);
    }
}

static void deliver(struct message *l)
{
    struct audience *a = CONTAINER_OF(l, struct audience, message);
    struct fetch *f = a->fetch;
    struct list waiting;
    struct list *n;

    lock_take(&f->lock);
    a->posted = a->wanted = false;
    lock_drop(&f->lock);
    list_init(&waiting);
    while ((n = list_pop_front(&a->readers)) != NULL) {
        list_push_back(&waiting, n);
    }
    /* A reader that is woken may close itself or others: each leaves whatever list it is in. */
    while ((n = list_pop_front(&waiting)) != NULL) {
        struct fetch_reader *r = LIST_ITEM(n, struct fetch_reader, node);
        list_push_back(&a->readers, n);
        reader_wake(r);
    }
    fetch_release(&f);
}

/* Under the lock. */
static void tell_audiences(struct fetch *f)
{
    LIST_EACH (&f->audiences, it) {
        struct audience *a = LIST_ITEM(it, struct audience, node);
        if (a->wanted && !a->posted) {
            a->posted = true;
            a->message.deliver = deliver;
            fetch_hold(f);
            message_queue_post(a->loop->mail, &a->message);
        }
    }
}

void fetch_publish(struct fetch *f, unsigned slot, uint64_t first, uint64_t end)
{
    share_wrote(f->cache->share, f->lookup.client, f->counts_as, end - first,
                clock_now_ms() / 1000);
    lock_take(&f->lock);
    if (extents_until(&f->have, first) < end) {
        f->troubled_ms = 0;
    }
    extents_add(&f->have, first, end);
    f->claims.of[slot].cur = end;
    tell_audiences(f);
    lock_drop(&f->lock);
    COUNT(f->cache, fetch_total_bytes, end - first);
}

void fetch_wake_all(struct fetch *f)
{
    lock_take(&f->lock);
    tell_audiences(f);
    lock_drop(&f->lock);
}

/* --- bytes that do not come ------------------------------------------------------------------- */

/* A reader that has no byte yet, and waits for these since then, has waited long enough. Any
 * thread, under the lock. */
static bool is_troubled(const struct fetch *f, uint64_t since_ms, uint64_t now_ms)
{
    return f->troubled_ms != 0 && now_ms >= max_u64(f->troubled_ms, since_ms) + TROUBLED_MS;
}

static bool is_here(const struct fetch *f, const struct lookup *w)
{
    uint64_t first = w->hint_first;

    if (w->hint_suffix != 0 && f->total_bytes != LENGTH_UNKNOWN) {
        first = f->total_bytes - min_u64(w->hint_suffix, f->total_bytes);
    }
    return w->head_only || first >= f->total_bytes || extents_until(&f->have, first) > first;
}

bool fetch_turns_away(struct fetch *f, const struct lookup *w, struct err *why)
{
    uint64_t now = clock_now_ms();
    bool in_vain, waited;

    lock_take(&f->lock);
    in_vain = is_troubled(f, 0, now) && !is_here(f, w);
    waited = f->gave_up_ms != 0 && now < f->gave_up_ms + TROUBLED_MS;
    *why = f->trouble;
    lock_drop(&f->lock);
    if (!in_vain || (f->hastened_ms != 0 && now < f->hastened_ms + HASTEN_MS)) {
        return in_vain;
    }
    f->hastened_ms = now;
    range_requests_do(f, RANGE_REQUESTS_HASTEN);
    return waited;
}

uint64_t fetch_frontier(struct fetch *f)
{
    uint64_t at;

    lock_take(&f->lock);
    at = extents_until(&f->have, 0);
    lock_drop(&f->lock);
    return at;
}

static void on_readers_changed(struct message *l)
{
    struct fetch *f = CONTAINER_OF(l, struct fetch, readers_changed);

    lock_take(&f->lock);
    f->readers_changed_posted = false;
    lock_drop(&f->lock);
    abandon(f);
    fetch_plan(f);
    fetch_release(&f);
}

void fetch_post_readers_changed(struct fetch *f)
{
    if (!f->readers_changed_posted && f->state != FETCH_ENDED) {
        f->readers_changed_posted = true;
        f->readers_changed.deliver = on_readers_changed;
        fetch_hold(f);
        message_queue_post(f->cache->mail, &f->readers_changed);
    }
}

void fetch_look_again(struct fetch *f)
{
    lock_take(&f->lock);
    fetch_post_readers_changed(f);
    lock_drop(&f->lock);
}

/* --- readers ---------------------------------------------------------------------------------- */

/* How far this reader may see. Under the lock. */
static uint64_t horizon(const struct fetch *f, const struct fetch_reader *r, uint64_t there)
{
    uint64_t known = f->total_bytes != LENGTH_UNKNOWN ? f->total_bytes : there;

    if (!r->withheld || f->verified) {
        return there;
    }
    return min_u64(there, known > WITHHELD_BYTES ? known - WITHHELD_BYTES : 0);
}

/* Nothing to send yet: the audience gets a message when there is. The fetch gets one if no request
 * fetches these bytes. */
static void wait_here(struct fetch *f, struct fetch_reader *r, uint64_t at, uint64_t there)
{
    r->audience->wanted = true;
    if (there == at && !list_linked(&r->stalled) &&
        !claims_cover(&f->claims, &f->have, at, f->cache->set.jump_bytes)) {
        r->need.at = at;
        list_push_back(&f->stalled, &r->stalled);
        fetch_post_readers_changed(f);
    }
}

/* How far it may read on from `at`; 0 bytes before *end: it is woken when there are more. Nonzero:
 * there will be none. */
static int read_on(struct fetch *f, struct fetch_reader *r, uint64_t at, uint64_t *end,
                   uint64_t *upto)
{
    uint64_t now = clock_now_ms();
    uint64_t there;
    int rc = 0;

    lock_take(&f->lock);
    if (f->total_bytes != LENGTH_UNKNOWN) {
        *end = min_u64(*end, f->total_bytes);
    }
    there = extents_until(&f->have, at);
    *upto = max_u64(min_u64(horizon(f, r, there), *end), at);
    if (f->rc != 0) {
        rc = f->rc; /* nothing of a fetch that failed may look complete */
    } else if (*upto == at && at < *end) {
        if (at == r->first && is_troubled(f, r->born_ms, now)) {
            rc = f->trouble.code; /* nothing was sent: that can still be said */
            f->gave_up_ms = now;
        } else {
            wait_here(f, r, at, there);
        }
    }
    lock_drop(&f->lock);
    return rc;
}

static int reader_poll(struct body *b, uint64_t *upto)
{
    struct fetch_reader *r = reader_of(b);
    int rc = read_on(r->fetch, r, b->off, &b->end, upto);

    r->waiting = r->waiting || (rc == 0 && *upto == b->off && b->off < b->end);
    return rc;
}

static void reader_close(struct body *b)
{
    struct fetch_reader *r = reader_of(b);
    struct fetch *f = r->fetch;

    list_remove_if(&r->node);
    lock_take(&f->lock);
    list_remove_if(&r->stalled);
    f->readers--;
    lock_drop(&f->lock);
    r->magic = 0;
    answer_release(&r->answer);
    free(r);
}

/* Under the lock. */
static struct audience *audience_of(struct fetch *f, struct loop *l)
{
    struct audience *a;

    LIST_EACH (&f->audiences, it) {
        a = LIST_ITEM(it, struct audience, node);
        if (a->loop == l) {
            return a;
        }
    }
    a = NEW(struct audience);
    a->fetch = f;
    a->loop = l;
    list_init(&a->readers);
    list_push_back(&f->audiences, &a->node);
    return a;
}

/* Are the bytes before a range that reaches the end no more than the range itself? Then it is the
 * rest of a whole file that is read on, and not a peek at its end. Under the lock. */
static bool is_the_rest(const struct fetch *f, uint64_t first, uint64_t end)
{
    struct extents before = {0};
    uint64_t missing;

    extents_copy(&before, &f->have);
    extents_add(&before, first, UINT64_MAX);
    missing = first - (extents_bytes(&before) - (UINT64_MAX - first));
    extents_fini(&before);
    return missing <= end - first;
}

static bool is_verified_later(const struct lookup *w)
{
    return w->digest_known || w->sum.kind != LOOKUP_SUM_NONE || w->reader != NULL;
}

/* [first, *end) is what it reads; *end becomes the object's. */
static void join_running_fetch(struct fetch *f, struct fetch_reader *r, struct loop *l,
                               uint64_t first, uint64_t *end)
{
    bool to_the_end;

    r->need.end = *end;
    r->first = first;
    r->born_ms = clock_now_ms();
    lock_take(&f->lock);
    f->readers++;
    if (f->total_bytes != LENGTH_UNKNOWN) {
        *end = min_u64(*end, f->total_bytes);
    }
    to_the_end = *end >= f->total_bytes;
    /* A short range at the end is what lazy readers ask first; whoever reads on to the end wants a
     * whole file. */
    r->withheld = is_verified_later(&f->lookup) && to_the_end &&
                  (first == 0 || (*end - first > TAIL_BYTES && is_the_rest(f, first, *end)));
    if ((r->withheld || (first == 0 && to_the_end)) && f->aim == AIM_RANGES) {
        aim_becomes(f, AIM_WHOLE);
        fetch_post_readers_changed(f);
    }
    r->audience = audience_of(f, l);
    lock_drop(&f->lock);
    list_push_back(&r->audience->readers, &r->node);
}

struct body *fetch_body(struct fetch *f, struct answer *held, struct loop *l, uint64_t first,
                        uint64_t end)
{
    static const struct body_ops ops = {.poll = reader_poll, .close = reader_close};
    struct fetch_reader *r = NEW(struct fetch_reader);

    r->magic = READER_MAGIC;
    r->fetch = f;
    r->answer = answer_hold(held);
    join_running_fetch(f, r, l, first, &end);
    r->body = (struct body){.ops = &ops, .off = first, .end = end, .fd = f->fd};
    return &r->body;
}

/* --- jobs and the end ------------------------------------------------------------------------- */

void fetch_job(struct fetch *f, struct job *j, void (*work)(struct job *),
               void (*done)(struct job *))
{
    f->jobs++;
    j->work = work;
    j->done = done;
    j->reply = f->cache->mail;
    pool_submit(f->cache->disk, j, f->clients.client[0]);
    for (unsigned i = 1; i < f->clients.count; i++) {
        pool_move(f->cache->disk, j, f->clients.client[i]);
    }
}

void fetch_share(struct fetch *f, uint64_t client)
{
    struct job *jobs[] = {&f->stage_job, &f->hash_job, &f->seal_job, &f->sync_job};

    if (!fair_clients_add(&f->clients, client)) {
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(jobs); i++) {
        pool_move(f->cache->disk, jobs[i], client);
    }
    range_request_share_all(f, client);
}

void fetch_job_done(struct fetch *f)
{
    CHECK(f->magic == FETCH_MAGIC && f->jobs > 0);
    f->jobs--;
}

int fetch_make_room(struct fetch *f, struct err *e)
{
    struct store_space space;
    int rc;

    if (share_left_of(f, &space) != 0) {
        return cache_make_room(f->cache, ROOM_BYTES, e);
    }
    rc = cache_make_room_beyond(f->cache, f->lookup.client, ROOM_BYTES, e);
    return rc == E_NOSPACE ? over_share(f, &space, e) : rc;
}

/* What came so far is worth keeping when nothing was wrong with it. */
static bool may_be_resumed(const struct fetch *f)
{
    return fetch_keeps(f) &&
           (f->rc == E_CANCELLED || f->rc == E_NETWORK || f->rc == E_TIMEOUT || f->rc == E_BUSY);
}

static void drop_stage(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, stage_job);

    fetch_put_away(f, may_be_resumed(f));
}

static void retire_fetch(struct fetch *f)
{
    struct err why = f->why;

    fetch_becomes(f, FETCH_ENDED);
    if (f->earlier != NULL && fetch_keeps(f)) {
        partial_give(f->cache->store, &f->earlier);
    } else if (f->earlier != NULL) { /* removed meanwhile */
        partial_lose(f->cache->store, f->earlier->id);
        partial_free(&f->earlier);
    }
    if (f->sealed_id != 0) {
        partial_lose(f->cache->store, f->sealed_id);
    }
    lock_take(&f->cache->lock);
    list_remove(&f->node);
    lock_drop(&f->cache->lock);
    announce_fetched_bytes(f, 0);
    release_going(f);
    f->owner->ended(f->owner_arg, f, f->rc, &why);
}

static void on_dropped(struct job *j)
{
    struct fetch *f = CONTAINER_OF(j, struct fetch, stage_job);

    fetch_job_done(f);
    retire_fetch(f);
}

/* The end waits until no job touches the fetch any more. */
void fetch_settle(struct fetch *f)
{
    bool ending = f->rc != 0 || f->state == FETCH_SEALING;

    if (!ending || f->state == FETCH_ENDED || f->jobs > 0 || range_request_count(f) > 0) {
        return;
    }
    if (f->ingest != NULL) {
        fetch_job(f, &f->stage_job, drop_stage, on_dropped);
    } else {
        retire_fetch(f);
    }
}

void fetch_fail(struct fetch *f, int rc, const struct err *why)
{
    CHECK(rc != 0);
    if (f->state == FETCH_ENDED || f->rc != 0) {
        return;
    }
    lock_take(&f->lock);
    f->rc = rc;
    if (why != NULL) {
        f->why = *why;
    }
    f->why.code = rc;
    tell_audiences(f);
    lock_drop(&f->lock);
    range_requests_do(f, RANGE_REQUESTS_STOP);
    fetch_settle(f);
}

void fetch_stop(struct fetch *f)
{
    struct err why;

    err_set(&why, E_CANCELLED, "the server is shutting down");
    fetch_fail(f, E_CANCELLED, &why);
}

/* --- now and then ----------------------------------------------------------------------------- */

static void measure(struct fetch *f, uint64_t now_ms)
{
    uint64_t have;

    lock_take(&f->lock);
    have = extents_bytes(&f->have);
    lock_drop(&f->lock);
    if (now_ms > f->rate_mark_ms && f->rate_mark_ms != 0) {
        atomic_store_explicit(&f->rate_bytes_per_s,
                              (have - min_u64(have, f->rate_mark_bytes)) * 1000 /
                                  (now_ms - f->rate_mark_ms),
                              memory_order_relaxed);
    }
    f->rate_mark_bytes = have;
    f->rate_mark_ms = now_ms;
}

/* Their polls see that it is in vain. */
static void wake_the_waiting(struct fetch *f, uint64_t now_ms)
{
    lock_take(&f->lock);
    if (is_troubled(f, 0, now_ms)) {
        tell_audiences(f);
    }
    lock_drop(&f->lock);
}

void fetch_tick(struct fetch *f, uint64_t now_ms)
{
    const struct cache *c = f->cache;

    measure(f, now_ms);
    if (f->asked < f->neighbors && f->rc == 0 &&
        !c->neighbors->is_alive(c->neighbors_arg, f->neighbor[f->asked].origin)) {
        f->parent = f->neighbor[f->asked].sibling ? f->parent : PARENT_IS_DEAD;
        range_requests_do(f, RANGE_REQUESTS_ELSEWHERE);
    }
    if (f->state == FETCH_RUNNING && f->rc == 0) {
        wake_the_waiting(f, now_ms);
        fetch_save(f, now_ms);
        rest_idle_fetch(f, now_ms);
    }
}

/* --- when nobody wants it any more ------------------------------------------------------------ */

/* It stops reading from its origin at once. Whoever comes within two seconds, as a client that was
 * restarted does, finds the request where it stood, and not a byte is asked for twice; then the
 * request ends. What has come stays: whoever comes within `grace` goes on from there, later the
 * parked stage is resumed (seal.c). When others wait for the connection the request ends without
 * those two seconds.
 *
 * A fetch goes on to its end all the same when next to nothing is missing, when it is small, or
 * when several clients have asked for all of it: GOING_ON_MAX of one client's at a time,
 * GOING_ON_ALL of all clients'.
 */

void fetch_answered(struct fetch *f, const struct lookup *w)
{
    bool whole = lookup_is_whole(w);

    lock_take(&f->lock);
    f->answers++;
    if (f->aim == AIM_ALONE || f->aim == AIM_NOTHING) {
        aim_becomes(f, f->aim == AIM_ALONE ? AIM_WHOLE : AIM_RANGES);
    }
    f->several = f->several || (whole && w->client != f->lookup.client);
    lock_drop(&f->lock);
    release_going(f);
    f->idle_since_ms = 0;
    fetch_share(f, w->client);
    range_requests_do(f, RANGE_REQUESTS_WAKE);
}

void fetch_given_back(struct fetch *f)
{
    lock_take(&f->lock);
    CHECK(f->answers > 0);
    if (--f->answers == 0) {
        fetch_post_readers_changed(f);
    }
    lock_drop(&f->lock);
}

bool fetch_nearly_there(struct fetch *f)
{
    bool yes;

    lock_take(&f->lock);
    yes = f->total_bytes != LENGTH_UNKNOWN &&
          f->total_bytes - extents_bytes(&f->have) <= f->total_bytes / NEARLY_PARTS;
    lock_drop(&f->lock);
    return yes;
}

struct going { /* a client whose fills go on without it */
    UT_hash_handle hh;
    uint64_t client;
    unsigned fetches;
};

static struct going *going_of(struct cache *c, uint64_t client)
{
    struct going *g = NULL;

    HASH_FIND(hh, c->going, &client, sizeof client, g);
    return g;
}

/* A background fetch of the mirror itself is on no client's account. */
static void go_on_alone(struct fetch *f)
{
    struct cache *c = f->cache;
    struct going *g;

    lock_take(&f->lock);
    aim_becomes(f, AIM_ALONE);
    lock_drop(&f->lock);
    if (!f->lookup.background) {
        g = going_of(c, f->lookup.client);
        if (g == NULL) {
            g = NEW(struct going);
            g->client = f->lookup.client;
            HASH_ADD(hh, c->going, client, sizeof g->client, g);
        }
        f->going = g;
        g->fetches++;
        c->going_count++;
    }
}

static void release_going(struct fetch *f)
{
    struct cache *c = f->cache;
    struct going *g = f->going;

    if (g != NULL) {
        f->going = NULL;
        c->going_count--;
        if (--g->fetches == 0) {
            HASH_DEL(c->going, g);
            free(g);
        }
    }
}

static bool has_room_to_go_on(const struct fetch *f)
{
    const struct going *g = going_of(f->cache, f->lookup.client);

    return f->cache->going_count < GOING_ON_ALL && (g == NULL || g->fetches < GOING_ON_MAX);
}

static bool worth_finishing(struct fetch *f)
{
    if (f->lookup.background) {
        return true;
    }
    return (fetch_nearly_there(f) || f->several ||
            (fetch_aim(f) == AIM_WHOLE && f->total_bytes <= SMALL_BYTES)) &&
           has_room_to_go_on(f);
}

static void end_fetch(struct fetch *f)
{
    struct err why;

    err_set(&why, E_CANCELLED, "canceled: no client reads the object any more");
    fetch_fail(f, E_CANCELLED, &why);
}

void fetch_forsake(struct fetch *f)
{
    if (f->state == FETCH_ASKING && f->rc == 0) {
        end_fetch(f);
    }
}

/* A fetch that nobody wants stops asking, or goes on to its end; and ends when nobody has come
 * back. */
static void abandon(struct fetch *f)
{
    bool left;

    lock_take(&f->lock);
    left = f->answers == 0 && (f->aim == AIM_RANGES || f->aim == AIM_WHOLE);
    lock_drop(&f->lock);
    if (!left || f->state != FETCH_RUNNING || f->rc != 0 || fetch_complete(f)) {
        return;
    }
    if (worth_finishing(f)) {
        go_on_alone(f);
    } else if (!f->splices || f->total_bytes == LENGTH_UNKNOWN) {
        end_fetch(f); /* there is no way to go on later */
    } else {
        lock_take(&f->lock);
        aim_becomes(f, AIM_NOTHING);
        lock_drop(&f->lock);
        range_requests_do(f, RANGE_REQUESTS_REST);
    }
}

static void rest_idle_fetch(struct fetch *f, uint64_t now_ms)
{
    struct cache *c = f->cache;
    enum fetch_aim aim;
    bool wanted;

    lock_take(&f->lock);
    wanted = f->answers > 0;
    aim = f->aim;
    lock_drop(&f->lock);
    if (wanted || fetch_complete(f)) {
        return;
    }
    c->idle_now += aim != AIM_ALONE;
    if (f->idle_since_ms == 0) {
        f->idle_since_ms = now_ms;
        return;
    }
    if (aim == AIM_NOTHING && f->state == FETCH_RUNNING && now_ms - f->idle_since_ms >= REST_MS) {
        range_requests_do(f, RANGE_REQUESTS_FINISH);
    }
    if (aim == AIM_ALONE ? now_ms - f->idle_since_ms >= c->set.grace_ms &&
                               atomic_load_explicit(&f->rate_bytes_per_s, memory_order_relaxed) <
                                   TRICKLE_BYTES_PER_S
                         : now_ms - f->idle_since_ms >= c->set.grace_ms || c->idle > IDLE_MAX) {
        end_fetch(f);
    }
}
