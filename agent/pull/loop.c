#include "agent/pull/loop.h"

#include <event2/event.h>
#include <event2/thread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/base/dice.h"
#include "common/os/clock.h"

enum { TICK_MS = 100, SPARE_BLOCKS = 4, WORKERS_MAX = 8, RETRY_AFTER_MAX_S = 60 };

static void on_pull_loop_tick(evutil_socket_t fd, short what, void *arg)
{
    struct pull_loop *l = arg;
    uint64_t now_ms = clock_now_ms();

    (void)fd;
    (void)what;
    for (size_t i = 0; i < PULL_KINDS; i++) {
        if (l->kind[i] != NULL) {
            l->kind[i]->tick(l, now_ms);
        }
    }
    if (l->peers != NULL) {
        l->peer_ops->tick(l->peers, now_ms);
    }
    pull_loop_feed(l);
    l->want.on_tick(l->want.arg);
}

static void on_peers(void *arg)
{
    pull_loop_feed(arg);
}

static void on_pull_loop_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    pull_loop_stop(arg);
}

static void seed_dice(struct pull_loop *l)
{
    if (getrandom(&l->dice, sizeof l->dice, GRND_NONBLOCK) != (ssize_t)sizeof l->dice) {
        l->dice = clock_now_ns() ^ (uint64_t)getpid();
    }
    l->dice |= 1;
}

static void open_pools(struct pull_loop *l)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);

    l->workers = pool_open("disk",
                           cores < 2             ? 2
                           : cores > WORKERS_MAX ? WORKERS_MAX
                                                 : (unsigned)cores,
                           0);
    l->followers = pool_open("follow", cores > 2 ? 2 : 1, 0);
}

static void add_events(struct pull_loop *l)
{
    const struct timeval tick = {0, TICK_MS * 1000};

    l->tick = event_new(l->base, -1, EV_PERSIST, on_pull_loop_tick, l);
    l->stop[0] = evsignal_new(l->base, SIGINT, on_pull_loop_signal, l);
    l->stop[1] = evsignal_new(l->base, SIGTERM, on_pull_loop_signal, l);
    CHECK(l->tick != NULL && l->stop[0] != NULL && l->stop[1] != NULL);
    CHECK(event_add(l->tick, &tick) == 0);
    CHECK(event_add(l->stop[0], NULL) == 0 && event_add(l->stop[1], NULL) == 0);
}

static int open_loop(const struct agent *a, const struct pull_loop_params *w,
                     struct pull_loop **out, struct err *e)
{
    struct pull_loop *l = NEW(struct pull_loop);
    bool peers = a->peers && w->peer_ops != NULL;
    struct xfer_limits limits = {.connections =
                                     a->connections + 4 + (peers ? w->peer_ops->connections : 0),
                                 .host_connections = a->connections + 4,
                                 .user_agent = "trainagent/" MIRROR_VERSION};

    *out = NULL;
    l->base = event_base_new();
    if (l->base == NULL) {
        free(l);
        return err_set(e, E_IO, "the event loop could not be created");
    }
    seed_dice(l);
    l->agent = a;
    l->want = *w;
    l->peer_ops = w->peer_ops;
    l->xfers = xfer_loop_open(l->base, &limits);
    l->mail = message_queue_open(l->base);
    open_pools(l);
    list_init(&l->pulls);
    list_init(&l->to_seal);
    list_init(&l->sealing);
    list_init(&l->free_blocks);
    CHECK(a->connections <= CONNECTIONS_MAX);
    l->slots = a->connections * SLOTS_EACH;
    l->conns_left = a->connections;
    l->blocks_left = a->connections + SPARE_BLOCKS;
    add_events(l);
    l->peers = peers ? l->peer_ops->open(a, l->xfers, on_peers, l) : NULL;
    *out = l;
    return 0;
}

static void close_loop(struct pull_loop **lp)
{
    struct pull_loop *l = *lp;
    struct list *n;

    if (l == NULL) {
        return;
    }
    *lp = NULL;
    CHECK(list_empty(&l->to_seal) && list_empty(&l->sealing));
    pool_close(&l->workers);
    if (l->peers != NULL) {
        l->peer_ops->close(&l->peers);
    }
    for (size_t i = 0; i < PULL_KINDS; i++) {
        if (l->kind[i] != NULL) {
            l->kind[i]->close(l);
        }
    }
    pool_close(&l->followers);
    message_queue_close(&l->mail);
    xfer_loop_close(&l->xfers);
    event_free(l->tick);
    event_free(l->stop[0]);
    event_free(l->stop[1]);
    event_base_free(l->base);
    while ((n = list_pop_front(&l->free_blocks)) != NULL) {
        struct pull_block *b = LIST_ITEM(n, struct pull_block, node);
        free(b->p);
        free(b);
    }
    free(l);
}

/* Ends what is done; from here only, where nobody walks the lists. */
static bool reap_pull_members(struct pull_loop *l)
{
    bool any = false;

    for (size_t i = 0; i < PULL_KINDS; i++) {
        any = (l->kind[i] != NULL && l->kind[i]->reap(l)) || any;
    }
    return any;
}

static bool pull_loop_has_room(const struct pull_loop *l)
{
    bool room = !l->stopping;

    for (size_t i = 0; i < PULL_KINDS; i++) {
        room = room && (l->kind[i] == NULL || l->kind[i]->has_room(l));
    }
    return room;
}

static enum pull_more fill_slots(struct pull_loop *l)
{
    enum pull_more m = MORE_ADDED;

    while (m == MORE_ADDED && pull_loop_has_room(l)) {
        m = l->want.more(l->want.arg);
    }
    l->no_more = m == MORE_NONE;
    return l->stopping ? MORE_NONE : m;
}

static bool all_done(const struct pull_loop *l, enum pull_more m)
{
    bool idle = m == MORE_NONE;

    for (size_t i = 0; i < PULL_KINDS; i++) {
        idle = idle && (l->kind[i] == NULL || l->kind[i]->is_idle(l));
    }
    return idle;
}

static int run_pull_events(struct pull_loop *l, struct err *e)
{
    enum pull_more m;
    bool whole = false; /* a signal that comes while it stays for others stops no pull */
    bool ended = false;
    bool done;

    while (!ended) {
        do {
            m = fill_slots(l);
            pull_loop_feed(l);
        } while (reap_pull_members(l));
        done = all_done(l, m);
        whole = whole || (done && !l->stopping);
        ended = done &&
                (l->peers == NULL || l->peer_ops->may_end(l->peers, l->stopping, clock_now_ms()));
        if (!ended && event_base_loop(l->base, EVLOOP_ONCE) == -1) {
            return err_set(e, E_IO, "the event loop failed");
        }
    }
    l->stopping = l->stopping && !whole;
    return l->stopping
               ? err_set(e, E_CANCELLED, "stopped; the downloaded parts are kept for the next run")
               : 0;
}

int pull_loop_run(const struct agent *a, const struct pull_loop_params *w, struct err *e)
{
    struct pull_loop *l = NULL;
    int rc = open_loop(a, w, &l, e);

    if (rc == 0) {
        w->begin(w->arg, l);
        rc = run_pull_events(l, e);
        w->end(w->arg);
        close_loop(&l);
    }
    return rc;
}

/* --- small files into the cache, many with one sync ------------------------------------------- */

static void seal_work(struct job *j)
{
    struct pull_loop *l = CONTAINER_OF(j, struct pull_loop, seal_job);

    local_cache_seal(l->agent->local_cache, l->sealing_one, l->nsealing);
}

static void seal_done(struct job *j)
{
    struct pull_loop *l = CONTAINER_OF(j, struct pull_loop, seal_job);
    struct list *n;

    free(l->sealing_one);
    while ((n = list_pop_front(&l->sealing)) != NULL) {
        struct sealing *x = LIST_ITEM(n, struct sealing, node);
        x->done(x);
    }
    pull_loop_feed(l);
}

static void seal_gathered(struct pull_loop *l)
{
    struct list *n;

    if (!list_empty(&l->sealing) || l->nto_seal == 0) {
        return;
    }
    l->sealing_one = mem_array(l->nto_seal, sizeof(struct local_cache_sealing *));
    l->nsealing = 0;
    l->nto_seal = 0;
    while ((n = list_pop_front(&l->to_seal)) != NULL) {
        list_push_back(&l->sealing, n);
        l->sealing_one[l->nsealing++] = &LIST_ITEM(n, struct sealing, node)->one;
    }
    l->seal_job = (struct job){.work = seal_work, .done = seal_done, .reply = l->mail};
    pool_submit(l->workers, &l->seal_job, CLIENT_PROGRAM);
}

void pull_loop_seal(struct pull_loop *l, struct sealing *x)
{
    list_push_back(&l->to_seal, &x->node);
    l->nto_seal++;
}

/* --- what is shared --------------------------------------------------------------------------- */

void pull_loop_feed(struct pull_loop *l)
{
    for (size_t i = 0; i < PULL_KINDS; i++) {
        if (l->kind[i] != NULL) {
            l->kind[i]->feed(l);
        }
    }
    seal_gathered(l);
}

void pull_loop_stop(struct pull_loop *l)
{
    l->stopping = true;
    for (size_t i = 0; i < PULL_KINDS; i++) {
        if (l->kind[i] != NULL) {
            l->kind[i]->stop(l);
        }
    }
}

void pull_loop_show(struct pull_loop *l, struct pull_tally *t, uint64_t done, uint64_t known)
{
    l->done_bytes += done - t->done_bytes;
    l->known_bytes += known - t->known_bytes;
    t->done_bytes = done;
    t->known_bytes = known;
}

uint64_t pull_loop_pause_ms(struct pull_loop *l, unsigned tries, uint64_t retry_after_s)
{
    uint64_t least_ms =
        max_u64((uint64_t)100 << tries, min_u64(retry_after_s, RETRY_AFTER_MAX_S) * 1000);

    return least_ms + dice_below(&l->dice, least_ms);
}

bool pull_loop_take_conn(struct pull_loop *l)
{
    if (l->conns_left == 0 || l->stopping) {
        return false;
    }
    l->conns_left--;
    return true;
}

void pull_loop_give_conn(struct pull_loop *l)
{
    l->conns_left++;
}

struct pull_block *pull_loop_take_block(struct pull_loop *l)
{
    struct list *n = list_pop_front(&l->free_blocks);
    struct pull_block *b;

    if (n != NULL) {
        b = LIST_ITEM(n, struct pull_block, node);
    } else if (l->blocks_left > 0) {
        l->blocks_left--;
        b = NEW(struct pull_block);
        b->p = malloc(PART_BYTES +
                      XFER_SLICE_MAX); /* untouched pages cost nothing: a small file needs few */
        CHECK(b->p != NULL);
    } else {
        return NULL;
    }
    b->n = 0;
    b->rc = 0;
    b->whole = false;
    return b;
}

void pull_loop_give_block(struct pull_loop *l, struct pull_block *b)
{
    list_push_back(&l->free_blocks, &b->node);
}
