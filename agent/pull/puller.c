#include "agent/pull/puller.h"

#include <event2/event.h>
#include <event2/thread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/peers/peers.h"
#include "agent/pull/parts.h"
#include "agent/pull/pull.h"
#include "agent/pull/sheaves.h"
#include "common/base/dice.h"
#include "common/os/clock.h"

enum { PEERS_CONNECTIONS = PEERS_ASKING + 8 /* and what the mirror is told of several files */ };
enum { TICK_MS = 100, SPARE_BLOCKS = 4, WORKERS_MAX = 8, RETRY_AFTER_MAX_S = 60 };

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    struct puller *pl = arg;
    uint64_t now_ms = clock_now_ms();

    (void)fd;
    (void)what;
    LIST_EACH (&pl->pulls, n) {
        pull_tick(LIST_ITEM(n, struct pull, node), now_ms);
    }
    sheaves_tick(pl->sheaves, now_ms);
    peers_tick(pl->peers, now_ms);
    puller_feed(pl);
    if (pl->on_tick != NULL) {
        pl->on_tick(pl->tick_arg, pl, false);
    }
}

static void on_peers(void *arg)
{
    puller_feed(arg);
}

static void on_signal(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    puller_stop(arg);
}

int puller_open(const struct agent *a, struct puller **out, struct err *e)
{
    struct puller *pl = NEW(struct puller);
    unsigned connections = a->connections + 4 + (a->peers ? PEERS_CONNECTIONS : 0);
    struct xfer_limits limits = {.connections = connections,
                                 .host_connections = a->connections + 4,
                                 .user_agent = "trainagent/" MIRROR_VERSION};
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    const struct timeval tick = {0, TICK_MS * 1000};

    *out = NULL;
    pl->base = event_base_new();
    if (pl->base == NULL) {
        free(pl);
        return err_set(e, E_IO, "no event loop");
    }
    if (getrandom(&pl->dice, sizeof pl->dice, GRND_NONBLOCK) != (ssize_t)sizeof pl->dice) {
        pl->dice = clock_now_ns() ^ (uint64_t)getpid();
    }
    pl->dice |= 1;
    pl->agent = a;
    pl->xfers = xfer_loop_open(pl->base, &limits);
    pl->mail = mailbox_open(pl->base);
    pl->workers = pool_open("disk",
                            cores < 2             ? 2
                            : cores > WORKERS_MAX ? WORKERS_MAX
                                                  : (unsigned)cores,
                            0);
    pl->followers = pool_open("follow", cores > 2 ? 2 : 1, 0);
    list_init(&pl->pulls);
    list_init(&pl->free_blocks);
    CHECK(a->connections <= CONNECTIONS_MAX);
    pl->seats = a->connections * SEATS_EACH;
    pl->conns_left = a->connections;
    pl->blocks_left = a->connections + SPARE_BLOCKS;
    pl->tick = event_new(pl->base, -1, EV_PERSIST, on_tick, pl);
    pl->stop[0] = evsignal_new(pl->base, SIGINT, on_signal, pl);
    pl->stop[1] = evsignal_new(pl->base, SIGTERM, on_signal, pl);
    CHECK(pl->tick != NULL && pl->stop[0] != NULL && pl->stop[1] != NULL);
    CHECK(event_add(pl->tick, &tick) == 0);
    CHECK(event_add(pl->stop[0], NULL) == 0 && event_add(pl->stop[1], NULL) == 0);
    pl->sealer = sealer_open(pl);
    pl->sheaves = sheaves_open(pl);
    pl->peers = peers_open(a, pl->xfers, on_peers, pl);
    *out = pl;
    return 0;
}

void puller_close(struct puller **pp)
{
    struct puller *pl = *pp;
    struct list *n;

    if (pl == NULL) {
        return;
    }
    *pp = NULL;
    CHECK(list_empty(&pl->pulls));
    pool_close(&pl->workers);
    peers_close(&pl->peers);
    sheaves_close(&pl->sheaves);
    sealer_close(&pl->sealer);
    pool_close(&pl->followers);
    mailbox_close(&pl->mail);
    xfer_loop_close(&pl->xfers);
    event_free(pl->tick);
    event_free(pl->stop[0]);
    event_free(pl->stop[1]);
    event_base_free(pl->base);
    while ((n = list_pop_front(&pl->free_blocks)) != NULL) {
        struct block *b = LIST_ITEM(n, struct block, node);
        free(b->p);
        free(b);
    }
    free(pl);
}

/* Ends what is done; from here only, where nobody walks the list. An on_done may add pulls or stop them all. */
static bool reap(struct puller *pl)
{
    bool any = false;
    bool again;

    do {
        again = false;
        LIST_EACH (&pl->pulls, n) {
            struct pull *p = LIST_ITEM(n, struct pull, node);
            if (p->phase == PULL_DONE) {
                pull_end(p);
                any = again = true;
                break;
            }
        }
    } while (again);
    return sheaves_reap(pl->sheaves) || any;
}

static enum puller_more fill_seats(struct puller *pl)
{
    enum puller_more m = MORE_ADDED;

    while (m == MORE_ADDED && pl->seats > 0 && sheaves_have_room(pl->sheaves) && !pl->stopping) {
        m = pl->more(pl->more_arg);
    }
    sheaves_no_more(pl->sheaves, m == MORE_NONE);
    return pl->stopping ? MORE_NONE : m;
}

int puller_run(struct puller *pl, struct err *e)
{
    enum puller_more m;
    bool whole = false; /* a signal that comes while it stays for others stops no pull */
    bool ended = false;
    bool done;

    while (!ended) {
        do {
            m = fill_seats(pl);
            puller_feed(pl);
        } while (reap(pl));
        done = list_empty(&pl->pulls) && sheaves_idle(pl->sheaves) && m == MORE_NONE;
        whole = whole || (done && !pl->stopping);
        ended = done && peers_may_end(pl->peers, pl->stopping, clock_now_ms());
        if (!ended && event_base_loop(pl->base, EVLOOP_ONCE) == -1) {
            return err_set(e, E_IO, "the event loop failed");
        }
    }
    if (pl->on_tick != NULL) {
        pl->on_tick(pl->tick_arg, pl, true);
    }
    pl->stopping = pl->stopping && !whole;
    return pl->stopping
               ? err_set(e, E_CANCELLED, "stopped; what was fetched is kept, run it again to go on")
               : 0;
}

void puller_feed(struct puller *pl)
{
    sheaves_feed(pl->sheaves);
    LIST_EACH (&pl->pulls, n) {
        pull_feed(LIST_ITEM(n, struct pull, node));
    }
    sealer_feed(pl->sealer);
}

void puller_stop(struct puller *pl)
{
    pl->stopping = true;
    sheaves_stop(pl->sheaves);
    LIST_EACH (&pl->pulls, n) {
        pull_stop(LIST_ITEM(n, struct pull, node));
    }
}

uint64_t puller_pause_ms(struct puller *pl, unsigned tries, uint64_t retry_after_s)
{
    uint64_t least_ms =
        max_u64((uint64_t)100 << tries, min_u64(retry_after_s, RETRY_AFTER_MAX_S) * 1000);

    return least_ms + dice_below(&pl->dice, least_ms);
}

bool puller_take_conn(struct puller *pl)
{
    if (pl->conns_left == 0 || pl->stopping) {
        return false;
    }
    pl->conns_left--;
    return true;
}

void puller_give_conn(struct puller *pl)
{
    pl->conns_left++;
}

struct block *puller_take_block(struct puller *pl)
{
    struct list *n = list_pop_front(&pl->free_blocks);
    struct block *b;

    if (n != NULL) {
        b = LIST_ITEM(n, struct block, node);
    } else if (pl->blocks_left > 0) {
        pl->blocks_left--;
        b = NEW(struct block);
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

void puller_give_block(struct puller *pl, struct block *b)
{
    list_push_back(&pl->free_blocks, &b->node);
}
