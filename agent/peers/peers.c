#include "agent/peers/peers.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent/ask.h"
#include "agent/peers/announcement.h"
#include "agent/peers/bits.h"
#include "agent/peers/choose.h"
#include "agent/peers/give.h"
#include "common/base/dice.h"
#include "common/base/log.h"
#include "common/os/clock.h"

enum {
    PEERS_ASKING =
        24, /* more would wait for each other's connections, and the mirror's answers with them */
    GOODBYE_MS = 1000,
    GOODBYE_HURRY_MS = 300,
    GIVERS_MAX = 4096,
    REMOTE_PEER_PEER_CONNECTIONS = 2,
    REMOTE_PEERS_ACTIVE = 8,
    REMOTE_PEERS_MAX = 32,
};
enum {
    FIRST_WAIT_MS = 1000, /* for the first answer, before the pull begins by itself */
    AGAIN_MS = 5000,      /* until the mirror says another */
    TURNED_AWAY_MS = 30000,
    ASK_PATIENCE_MS = 10000,
    TAKE_ALONE = 8,
    /* Concurrent connections to the mirror, of a small swarm together; in a large one each member
     * has one. */
    BRINGERS = 4,
    TAKE_APART_MS = 25,
    TAKE_NONE_MS = 500,    /* after an answer that had nothing to bring */
    TAKE_NONE_EACH_MS = 4, /* more for each member: a thousand ask the mirror 200 times a second */
    HUNGRY_MS = 250,
    CONTENT_MS = 2000,
    PATIENCE_MS = 2000,
    PATIENCE_EACH_MS = 100, /* more, by chance, for each member: not all at once */
    PATIENCE_MEMBERS = 80,
    STARVED_MS = 10000, /* while others promise */
    HAVE_PATIENCE_MS = 10000,
    STRIKES_MAX = 4, /* then all comes from the mirror until somebody is of use again */
};
enum {
    REST_MS = 10000,
    REST_DOUBLINGS = 4,
    BUSY_MS = 1000,
    CONNECT_MS = 3000,
    IDLE_S = 5,
    SLOW_BYTES_PER_S = 64 << 10,
};

struct giver_name {
    struct list node;
    char address[ADDRESS_ROOM];
};

struct peers {
    const struct agent *agent;
    struct xfer_loop *xfers;
    void (*changed)(void *arg); /* something may be fetched that could not be before */
    void *arg;
    struct shared_files *shared_files;
    struct give *give; /* NULL: takes only */
    struct list swarms;
    uint64_t dice;
    unsigned asking;    /* peers what they have */
    struct list givers; /* addresses that gave something right */
    unsigned ngivers;
    uint64_t linger_ms;  /* how long it stays for others */
    uint64_t ended_ms;   /* when all pulls had ended; 0: they have not */
    bool stays;          /* for others, and it was said */
    uint64_t parting_ms; /* since when it says goodbye; 0: it does not */
};

struct swarm {
    struct list node;
    struct peers *peers;
    struct psk psk; /* identity: the digest */
    struct slice url;
    struct arena arena;
    size_t count;
    uint8_t id[SWARM_ID_BYTES];
    struct shared_file *shared_file;
    uint8_t *have;
    uint8_t *mine; /* to be brought from the mirror */
    size_t nhave;
    size_t nmine;
    struct list remote_peers;
    size_t nneighbours;
    uint64_t members;
    uint64_t again_ms;
    uint64_t joined_ms;
    uint64_t ask_at_ms;
    uint64_t asked_ms;
    struct ask *ask;
    unsigned asked_take; /* with the question under way */
    unsigned failures;
    uint64_t chose_ms;   /* when it had a place for a chunk */
    bool could;          /* begin something, since it was asked last */
    uint64_t take_at_ms; /* not before is more asked for */
    bool keyed;          /* an answer has come */
    bool off;            /* there is no door */
    bool finished;
    bool leaving;
    bool hungry; /* the last choice was to wait */
    uint64_t
        moved_ms;     /* when a chunk came, or was begun from the mirror: a promise moves nothing */
    unsigned strikes; /* chunks brought unasked since others were last of use */
    uint64_t patience_ms;
};

struct remote_peer {
    struct list node;
    struct swarm *swarm;
    char address[ADDRESS_ROOM];
    uint8_t *have; /* NULL: not known yet */
    size_t nhave;  /* chunks in it */
    bool active;   /* one of those that are asked */
    bool liar;
    unsigned peer_connections;
    unsigned blocks;   /* that came and are being checked and written */
    unsigned failures; /* in a row */
    uint64_t rests_until_ms;
    uint64_t asked_ms; /* for its bitmap */
    struct xfer *x;
    struct buf answer;
    bool gave; /* a chunk that was right */
};

/* --- peers: other nodes that have some of a file
 * -------------------------------------------------------------------
 *
 * A peer is asked for its bitmap now and then. One that fails, is slow, does not have what it
 * announced or sends an invalid response is not used for 10 s, then 20, ...; one that sent a
 * wrong chunk is not used again in this run. Connections are distinguished by the file (psk.h);
 * HTTP/1.1, no proxy. */

static struct remote_peer *remote_peer_new(struct swarm *s, const char *address)
{
    struct remote_peer *n = NEW(struct remote_peer);

    n->swarm = s;
    n->answer = BUF_INIT(BITS_BYTES(s->count));
    snprintf(n->address, sizeof n->address, "%s", address);
    return n;
}

static bool remote_peer_usable(const struct remote_peer *n, uint64_t now_ms)
{
    return !n->liar && now_ms >= n->rests_until_ms;
}

static struct xfer_params remote_peer_params(const struct remote_peer *n, const char *what,
                                             char room[PEER_URL_ROOM])
{
    const char *hex = n->swarm->psk.identity;
    int len = snprintf(room, PEER_URL_ROOM, "https://%.32s.%.32s.peer/%.64s/%.20s", hex, hex + 32,
                       hex, what);

    return (struct xfer_params){
        .method = XFER_GET,
        .url = slice_of(room, (size_t)len),
        .connect_to = n->address,
        .psk = &n->swarm->psk,
        .connect_timeout_ms = CONNECT_MS,
        .idle_timeout_s = IDLE_S,
        .idle_bytes_per_s = SLOW_BYTES_PER_S,
    };
}

/* The request for a chunk. */
static struct xfer_params want_chunk(const struct remote_peer *n, size_t chunk,
                                     char room[PEER_URL_ROOM])
{
    char what[U64_DIGITS + 1];

    snprintf(what, sizeof what, "%zu", chunk);
    return remote_peer_params(n, what, room);
}

static void rest_remote_peer(struct remote_peer *n, uint64_t now_ms)
{
    unsigned times = n->failures < REST_DOUBLINGS ? n->failures : REST_DOUBLINGS;

    n->failures++;
    n->rests_until_ms = now_ms + ((uint64_t)REST_MS << times);
    n->active = false;
}

static void remote_peer_judge(struct remote_peer *n, size_t chunk, int rc, uint64_t now_ms)
{
    if (rc == 0) {
        n->failures = 0;
    } else if (rc == E_BUSY) {
        n->rests_until_ms = now_ms + BUSY_MS;
    } else {
        if (rc == E_NOTFOUND && n->have != NULL) { /* it began anew, or it lies */
            bits_set(n->have, chunk, false);
        }
        rest_remote_peer(n, now_ms);
        log_debug("peers.rest", "peer=%s failures=%u", n->address, n->failures);
    }
}

static void remote_peer_lied(struct remote_peer *n, size_t chunk)
{
    if (!n->liar) {
        log_warn("peers.liar",
                 "peer=%s chunk=%zu the chunk was damaged; this peer is not asked again",
                 n->address, chunk);
    }
    n->liar = true;
    n->active = false;
}

/* --- what a peer has -------------------------------------------------------------------------- */

static int on_have_head(void *arg, const struct xfer_head *h)
{
    struct remote_peer *n = arg;

    return h->status == 200 && h->content_length == BITS_BYTES(n->swarm->count) ? 0 : E_PROTOCOL;
}

static int on_have_body(void *arg, struct slice bytes)
{
    struct remote_peer *n = arg;

    buf_adds(&n->answer, bytes);
    return n->answer.rc;
}

static void on_have_done(void *arg, int rc, const struct err *why, uint64_t body_bytes)
{
    struct remote_peer *n = arg;
    uint64_t now_ms = clock_now_ms();

    (void)body_bytes;
    n->x = NULL;
    n->swarm->peers->asking--;
    if (rc != 0) {
        log_debug("peers.have", "peer=%s why=\"%s\"", n->address, why->text);
        rest_remote_peer(n, now_ms);
        return;
    }
    free(n->have);
    n->have = mem_array(n->answer.n, 1);
    memcpy(n->have, n->answer.p, n->answer.n);
    n->nhave = 0;
    for (size_t i = 0; i < n->swarm->count; i++) {
        n->nhave += bits_get(n->have, i);
    }
    n->swarm->peers->changed(n->swarm->peers->arg);
}

static bool remote_peer_ask(struct remote_peer *n)
{
    static const struct xfer_events events = {on_have_head, on_have_body, on_have_done};
    struct peers *ps = n->swarm->peers;
    char room[PEER_URL_ROOM];
    struct xfer_params w;

    CHECK(n->x == NULL);
    if (ps->asking >= PEERS_ASKING) {
        return false;
    }
    w = remote_peer_params(n, "have", room);
    w.idle_bytes_per_s = 1;
    buf_clear(&n->answer);
    n->x = xfer_start(ps->xfers, &w, &events, n);
    ps->asking++;
    return true;
}

static void stop_asking(struct remote_peer *n)
{
    if (n->x != NULL) {
        xfer_cancel(&n->x);
        n->swarm->peers->asking--;
    }
}

static void remote_peer_give_up(struct remote_peer *n, uint64_t now_ms)
{
    stop_asking(n);
    rest_remote_peer(n, now_ms);
}

static void remote_peer_free(struct remote_peer *n)
{
    CHECK(n->peer_connections == 0 && n->blocks == 0);
    stop_asking(n);
    buf_free(&n->answer);
    free(n->have);
    free(n);
}

/* --- announcements to the mirror, and its answers --------------------------------------------- */

static bool is_alone(const struct swarm *s)
{
    return !s->keyed || s->members <= 1;
}

/* The fewer chunks share the mirror's link, the sooner the first of them is there to be given
 * on. */
static size_t peer_connections_among(const struct swarm *s)
{
    return s->members < BRINGERS ? (size_t)(BRINGERS / s->members) : 1;
}

static bool may_bring(const struct swarm *s, const struct parts *p)
{
    size_t seen = 0;
    size_t busy = 0;

    if (is_alone(s)) {
        return true;
    }
    for (size_t i = p->prefix; i < p->count && seen < s->nmine; i++) {
        if (bits_get(s->mine, i)) {
            seen++;
            busy += p->state[i] == PART_BUSY;
        }
    }
    return busy < peer_connections_among(s);
}

static unsigned take_wanted(const struct swarm *s)
{
    size_t want = !s->keyed ? BRINGERS : is_alone(s) ? TAKE_ALONE : peer_connections_among(s) + 1;
    size_t left = s->count - s->nhave - s->nmine;

    want = want > s->nmine ? want - s->nmine : 0;
    return s->could && !s->finished ? (unsigned)min_u64(want, left) : 0;
}

static bool take_is_due(const struct swarm *s, uint64_t now_ms)
{
    size_t enough = is_alone(s) ? TAKE_ALONE / 2 : peer_connections_among(s);

    return s->nmine <= enough && now_ms >= s->take_at_ms && take_wanted(s) > 0;
}

static struct remote_peer *find_remote_peer(const struct swarm *s, const char *address)
{
    LIST_EACH (&s->remote_peers, n) {
        struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        if (strcmp(x->address, address) == 0) {
            return x;
        }
    }
    return NULL;
}

/* Room for one more by the oldest that is of no use now; false: all are. */
static bool make_room_for_peer(struct swarm *s)
{
    if (s->nneighbours < REMOTE_PEERS_MAX) {
        return true;
    }
    LIST_EACH (&s->remote_peers, n) {
        struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        if (!x->active && !x->liar && x->peer_connections == 0 && x->blocks == 0) {
            list_remove(n);
            s->nneighbours--;
            remote_peer_free(x);
            return true;
        }
    }
    return false;
}

static void meet(struct swarm *s, const char *address)
{
    struct remote_peer *n;

    if (find_remote_peer(s, address) == NULL && make_room_for_peer(s)) {
        n = remote_peer_new(s, address);
        list_push_back(&s->remote_peers, &n->node);
        s->nneighbours++;
    }
}

static void take_key(struct swarm *s, const struct reported *t)
{
    if (s->keyed && memcmp(s->psk.key, t->key, PSK_KEY_BYTES) == 0) {
        return;
    }
    memcpy(s->psk.key, t->key, PSK_KEY_BYTES);
    s->keyed = true;
    if (s->shared_file != NULL) {
        shared_file_key(s->shared_file, t->key);
    }
    LIST_EACH (&s->remote_peers, n) { /* who did not know the key may know this one */
        struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        x->rests_until_ms = 0;
        x->failures = 0;
    }
}

static uint64_t until_next_take(const struct swarm *s, bool none)
{
    uint64_t none_ms = TAKE_NONE_MS + TAKE_NONE_EACH_MS * min_u64(s->members, UINT16_MAX);

    return none ? min_u64(none_ms, s->again_ms) : TAKE_APART_MS;
}

/* The list is all that is this node's to bring; what has come since it was made stands in it
 * still. */
static void take_up(struct swarm *s, const struct reported *t, uint64_t now_ms)
{
    size_t before = s->nmine;

    s->nmine = 0;
    memset(s->mine, 0, BITS_BYTES(s->count));
    for (size_t i = 0; i < t->ntake && !s->finished; i++) {
        if (!bits_get(s->have, t->take[i]) && !bits_get(s->mine, t->take[i])) {
            bits_set(s->mine, t->take[i], true);
            s->nmine++;
        }
    }
    s->strikes = s->nmine > 0 ? 0 : s->strikes;
    s->take_at_ms = now_ms + until_next_take(s, s->asked_take > 0 && s->nmine <= before);
}

static void be_reported(struct swarm *s, const struct reported *t, uint64_t now_ms)
{
    take_key(s, t);
    s->members = t->members;
    s->again_ms = t->again_ms;
    s->ask_at_ms = now_ms + s->again_ms;
    take_up(s, t, now_ms);
    for (size_t i = 0; i < t->npeers; i++) {
        meet(s, t->peer[i]);
    }
    log_debug("peers.answered", "members=%" PRIu64 " take=%zu peers=%zu", t->members, t->ntake,
              t->npeers);
}

static void turn_off(struct swarm *s, int status)
{
    log_debug("peers.off", "status=%d", status);
    s->off = true;
    s->nmine = 0;
    memset(s->mine, 0, BITS_BYTES(s->count));
}

/* No answer, or none that is one: by itself meanwhile, and again later, not all at the same
 * time. */
static void ask_later(struct swarm *s, uint64_t after_ms, uint64_t now_ms)
{
    s->ask_at_ms = now_ms + after_ms + dice_below(&s->peers->dice, after_ms);
    s->take_at_ms = s->ask_at_ms;
    s->members = 1;
}

static void on_swarm_answer(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct swarm *s = arg;
    uint64_t now_ms = clock_now_ms();
    struct reported reported;
    struct err e = *why;

    s->ask = NULL;
    if (s->leaving) {
        return;
    }
    if (rc == 0 && a->status == 200) {
        rc = reported_read(a->body, s->count, &reported, &e);
        if (rc == 0) {
            be_reported(s, &reported, now_ms);
        }
    } else if (rc == 0 && (a->status == 429 || a->status >= 500)) {
        ask_later(s, max_u64(TURNED_AWAY_MS, a->retry_after_s * 1000), now_ms);
    } else if (rc == 0) {
        turn_off(s, a->status);
    }
    if (rc != 0) {
        log_debug("peers.announce", "why=\"%s\"", e.text);
        ask_later(s, s->again_ms, now_ms);
    }
    s->peers->changed(s->peers->arg);
}

static void send_swarm_announcement(struct swarm *s, struct slice text)
{
    const struct slice field = SLICE("Content-Type: application/json");
    struct digest key;
    const struct ask_params w = {.method = XFER_POST,
                                 .url = s->url,
                                 .body = text,
                                 .fields = &field,
                                 .nfields = 1,
                                 .key = &key};

    CHECK(digest_parse(slice_str(s->psk.identity), &key));

    s->asked_ms = clock_now_ms();
    s->ask = ask_start(s->peers->xfers, s->peers->agent, &w, on_swarm_answer, s);
}

static void announce_to_mirror(struct swarm *s)
{
    struct buf text = BUF_INIT(ANNOUNCEMENT_MAX);
    const struct announcement a = {.id = s->id,
                                   .port = s->shared_file != NULL ? give_port(s->peers->give) : 0,
                                   .have = s->have,
                                   .count = s->count,
                                   .take = take_wanted(s)};

    s->asked_take = a.take;
    s->could = false;
    announcement_write(&a, &text);
    CHECK(text.rc == 0);
    send_swarm_announcement(s, buf_slice(&text));
    buf_free(&text);
}

static void see_to_mirror(struct swarm *s, uint64_t now_ms)
{
    if (s->off || s->leaving) {
        return;
    }
    if (s->ask != NULL && now_ms > s->asked_ms + ASK_PATIENCE_MS) {
        ask_give_up(&s->ask);
        ask_later(s, s->again_ms, now_ms);
    }
    if (s->ask == NULL && (now_ms >= s->ask_at_ms || take_is_due(s, now_ms))) {
        announce_to_mirror(s);
    }
}

/* --- the peers -------------------------------------------------------------------------------- */

static size_t count_active(const struct swarm *s)
{
    size_t count = 0;

    LIST_EACH (&s->remote_peers, n) {
        count += LIST_ITEM(n, struct remote_peer, node)->active;
    }
    return count;
}

static void choose_remote_peers(struct swarm *s, uint64_t now_ms)
{
    for (size_t have = count_active(s); have < REMOTE_PEERS_ACTIVE; have++) {
        struct remote_peer *one = NULL;
        uint64_t seen = 0;

        LIST_EACH (&s->remote_peers, n) {
            struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
            if (!x->active && remote_peer_usable(x, now_ms) &&
                dice_below(&s->peers->dice, ++seen) == 0) {
                one = x;
            }
        }
        if (one == NULL) {
            return;
        }
        one->active = true;
        one->asked_ms = one->x == NULL ? 0 : one->asked_ms;
    }
}

static void ask_remote_peers(struct swarm *s, uint64_t now_ms)
{
    uint64_t every_ms = s->hungry ? HUNGRY_MS : CONTENT_MS;

    LIST_EACH (&s->remote_peers, n) {
        struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        if (x->x != NULL && now_ms > x->asked_ms + HAVE_PATIENCE_MS) {
            remote_peer_give_up(x, now_ms);
        }
        if (x->active && x->x == NULL && (x->have == NULL || x->nhave < s->count) &&
            remote_peer_usable(x, now_ms) && now_ms >= x->asked_ms + every_ms) {
            if (!remote_peer_ask(x)) {
                return;
            }
            x->asked_ms = now_ms;
        }
    }
}

static bool swarm_is_wanted(const struct swarm *s, uint64_t now_ms)
{
    bool any = false;

    if (!s->finished || s->off || s->shared_file == NULL || is_alone(s)) {
        return false;
    }
    LIST_EACH (&s->remote_peers, n) {
        const struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        if (remote_peer_usable(x, now_ms)) {
            if (x->have == NULL || x->nhave < s->count) {
                return true;
            }
            any = true;
        }
    }
    return !any && s->nneighbours == 0; /* there are others, and we know none of them yet */
}

/* --- choosing --------------------------------------------------------------------------------- */

static bool swarm_is_on(const struct swarm *s)
{
    return !s->off;
}

static size_t list_givers(const struct swarm *s, struct giver *giver, struct remote_peer **who,
                          uint64_t now_ms)
{
    size_t count = 0;

    LIST_EACH (&s->remote_peers, n) {
        struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        if (x->active && x->peer_connections < REMOTE_PEER_PEER_CONNECTIONS &&
            remote_peer_usable(x, now_ms)) {
            giver[count] =
                (struct giver){x->have, REMOTE_PEER_PEER_CONNECTIONS - x->peer_connections};
            who[count++] = x;
        }
    }
    return count;
}

/* Half as long with each time that it was for nothing: members who say that they have a file and do
 * not give it cost seconds, not seconds a chunk. */
static void moved(struct swarm *s, uint64_t now_ms)
{
    s->moved_ms = now_ms;
    s->patience_ms =
        (PATIENCE_MS + dice_below(&s->peers->dice,
                                  PATIENCE_EACH_MS * min_u64(s->members, PATIENCE_MEMBERS) + 1)) >>
        s->strikes;
}

/* Those who are asked have nothing for us: others may. */
static void look_round(struct swarm *s)
{
    LIST_EACH (&s->remote_peers, n) {
        struct remote_peer *x = LIST_ITEM(n, struct remote_peer, node);
        x->active = x->active && (x->peer_connections > 0 || x->x != NULL);
    }
}

/* Who waits for promises has a chunk from the mirror beside them, and sooner each time. */
static bool is_starved(const struct swarm *s, uint64_t now_ms)
{
    return s->strikes >= STRIKES_MAX || now_ms > s->moved_ms + ((uint64_t)STARVED_MS >> s->strikes);
}

static enum peer_choice swarm_choose(struct swarm *s, const struct parts *p,
                                     const struct peer_now *now, size_t *chunk,
                                     struct remote_peer **from)
{
    uint64_t now_ms = now->now_ms;
    struct giver giver[REMOTE_PEERS_MAX];
    struct remote_peer *who[REMOTE_PEERS_MAX];
    struct choose_from c = {.state = p->state,
                            .first = p->prefix,
                            .count = p->count,
                            .mine = s->mine,
                            .giver = giver,
                            .brings = now->mirror && may_bring(s, p),
                            .alone = now->mirror && (is_alone(s) || s->strikes >= STRIKES_MAX),
                            .stalled =
                                now->mirror && now->idle && now_ms > s->moved_ms + s->patience_ms,
                            .starved = now->mirror && !now->bringing && is_starved(s, now_ms)};
    enum peer_choice what;
    size_t i;

    *from = NULL;
    s->could = true;
    s->chose_ms = now_ms;
    if (s->asked_ms == 0) { /* it may have waited long for a connection */
        s->joined_ms = now_ms;
        moved(s, now_ms);
    }
    see_to_mirror(s, now_ms);
    if (!s->keyed && s->ask != NULL && now_ms < s->joined_ms + FIRST_WAIT_MS) {
        return CHOOSE_NONE;
    }
    c.ngivers = list_givers(s, giver, who, now_ms);
    what = choose(&c, &s->peers->dice, chunk, &i);
    s->hungry = what == CHOOSE_NONE;
    if (what == CHOOSE_GIVER) {
        *from = who[i];
        who[i]->peer_connections++;
    }
    if (what == CHOOSE_MIRROR && !bits_get(s->mine, *chunk) && !is_alone(s)) {
        s->strikes += s->strikes < STRIKES_MAX;
        look_round(s);
    }
    if (what == CHOOSE_MIRROR) {
        moved(s, now_ms);
    }
    return what;
}

static void swarm_release(struct remote_peer *n, size_t chunk, int rc)
{
    CHECK(n->peer_connections > 0);
    n->peer_connections--;
    if (rc == 0) {
        n->blocks++; /* until it is written */
        moved(n->swarm, clock_now_ms());
    }
    if (rc != E_CANCELLED) {
        remote_peer_judge(n, chunk, rc, clock_now_ms());
    }
}

static void note_giver(struct peers *ps, const char *address)
{
    struct giver_name *one;

    LIST_EACH (&ps->givers, n) {
        if (strcmp(LIST_ITEM(n, struct giver_name, node)->address, address) == 0) {
            return;
        }
    }
    if (ps->ngivers < GIVERS_MAX) {
        one = NEW(struct giver_name);
        memcpy(one->address, address, sizeof one->address);
        list_push_back(&ps->givers, &one->node);
        ps->ngivers++;
    }
}

static void swarm_written(struct remote_peer *n, size_t chunk, int rc)
{
    CHECK(n->blocks > 0);
    n->blocks--;
    if (rc == 0) {
        n->swarm->strikes = 0;
        note_giver(n->swarm->peers, n->address);
    } else if (rc == E_CORRUPT) {
        remote_peer_lied(n, chunk);
    }
}

static void swarm_have(struct swarm *s, size_t chunk, bool there)
{
    if (bits_get(s->have, chunk) != there) {
        bits_set(s->have, chunk, there);
        s->nhave = there ? s->nhave + 1 : s->nhave - 1;
    }
    if (there && bits_get(s->mine, chunk)) {
        bits_set(s->mine, chunk, false);
        s->nmine--;
    }
    if (s->shared_file != NULL) {
        shared_file_chunk(s->shared_file, chunk, there);
    }
    moved(s, clock_now_ms());
}

/* --- coming and going ------------------------------------------------------------------------- */

static struct swarm *swarm_join(struct peers *ps, const struct digest *d, uint64_t size_bytes,
                                int fd)
{
    struct swarm *s;
    struct err why;

    if (size_bytes < ps->agent->node.peers.min_size ||
        size_bytes > (uint64_t)ANNOUNCED_CHUNKS_MAX * CHUNK_BYTES) {
        return NULL;
    }
    s = NEW(struct swarm);
    s->peers = ps;
    s->count = (size_t)((size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
    s->have = mem_array(BITS_BYTES(s->count) + 1, 1);
    s->mine = mem_array(BITS_BYTES(s->count) + 1, 1);
    digest_format(d, s->psk.identity);
    s->url = arena_fmt(&s->arena, SLICE_FMT "/-/peers/%s", SLICE_ARG(ps->agent->mirror),
                       s->psk.identity);
    if (getrandom(s->id, sizeof s->id, GRND_NONBLOCK) != (ssize_t)sizeof s->id) {
        memcpy(s->id, d->b, sizeof s->id / 2);
        le_put(s->id + sizeof s->id / 2, 8, dice_below(&ps->dice, UINT64_MAX));
    }
    if (ps->give != NULL &&
        shared_files_offer(ps->shared_files, d, size_bytes, fd, &s->shared_file, &why) != 0) {
        log_warn("peers.give", "this node downloads from peers but does not upload: %s", why.text);
    }
    list_init(&s->remote_peers);
    s->again_ms = AGAIN_MS;
    s->members = 1;
    s->joined_ms = clock_now_ms();
    s->could = true;
    moved(s, s->joined_ms);
    list_push_back(&ps->swarms, &s->node);
    return s;
}

/* Of many files under way most wait for a connection: what others have of those is not asked every
 * other moment. */
static bool is_curious(const struct swarm *s, uint64_t now_ms)
{
    return s->finished ? s->peers->linger_ms > 0 : now_ms < s->chose_ms + CONTENT_MS;
}

static void swarm_tick(struct swarm *s, uint64_t now_ms)
{
    if (s->asked_ms != 0) { /* a file that no connection is free for yet is nobody's business */
        see_to_mirror(s, now_ms);
    }
    if (s->keyed && !s->off && !s->leaving && is_curious(s, now_ms)) {
        choose_remote_peers(s, now_ms);
        ask_remote_peers(s, now_ms);
    }
}

static void swarm_part(struct swarm *s)
{
    struct buf text = BUF_INIT(1024);

    if (s->leaving) {
        return;
    }
    ask_cancel(&s->ask);
    s->leaving = true;
    if (s->keyed && !s->off) {
        announcement_leave(s->id, &text);
        send_swarm_announcement(s, buf_slice(&text));
        buf_free(&text);
    }
}

static void swarm_leave(struct swarm **sp, bool whole)
{
    struct swarm *s = *sp;

    *sp = NULL;
    if (whole) {
        s->finished = true;
        s->hungry = false;
        s->ask_at_ms = 0; /* that all of it is here is worth a word */
    } else if (s->shared_file != NULL) {
        shared_file_withdraw(s->shared_file);
    }
    if (!whole || s->shared_file == NULL) {
        swarm_part(s);
    }
}

static void swarm_free(struct swarm *s)
{
    struct list *n;

    list_remove(&s->node);
    ask_cancel(&s->ask);
    while ((n = list_pop_front(&s->remote_peers)) != NULL) {
        remote_peer_free(LIST_ITEM(n, struct remote_peer, node));
    }
    if (s->shared_file != NULL) {
        shared_file_withdraw(s->shared_file);
    }
    shared_file_drop(&s->shared_file);
    explicit_bzero(s->psk.key, sizeof s->psk.key);
    arena_fini(&s->arena);
    free(s->have);
    free(s->mine);
    free(s);
}

/* --- all swarms of a run ---------------------------------------------------------------------- */

static struct peers *peers_open(const struct agent *a, struct xfer_loop *xfers,
                                void (*changed)(void *arg), void *arg)
{
    const struct node_peers *want = &a->node.peers;
    struct peers *ps;
    struct err why;

    ps = NEW(struct peers);
    ps->agent = a;
    ps->xfers = xfers;
    ps->changed = changed;
    ps->arg = arg;
    ps->linger_ms = a->lingers ? want->linger : 0;
    list_init(&ps->swarms);
    list_init(&ps->givers);
    ps->shared_files = shared_files_open();
    if (getrandom(&ps->dice, sizeof ps->dice, GRND_NONBLOCK) != (ssize_t)sizeof ps->dice) {
        ps->dice = clock_now_ns() ^ (uint64_t)getpid();
    }
    ps->dice |= 1;
    if (give_open(ps->shared_files, want->address, (uint16_t)want->port, (unsigned)want->uploads,
                  &ps->give, &why) != 0) {
        log_warn("peers.give", "this node downloads from peers but does not upload: %s", why.text);
    }
    return ps;
}

static bool all_gone(struct peers *ps)
{
    LIST_EACH (&ps->swarms, n) {
        struct swarm *s = LIST_ITEM(n, struct swarm, node);
        if (s->leaving && s->ask == NULL) {
            swarm_free(s);
        }
    }
    return list_empty(&ps->swarms);
}

static void peers_tick(struct peers *ps, uint64_t now_ms)
{
    (void)all_gone(ps);
    LIST_EACH (&ps->swarms, n) {
        swarm_tick(LIST_ITEM(n, struct swarm, node), now_ms);
    }
}

static bool somebody_waits(const struct peers *ps, uint64_t now_ms)
{
    LIST_EACH (&ps->swarms, n) {
        if (swarm_is_wanted(LIST_ITEM(n, struct swarm, node), now_ms)) {
            return true;
        }
    }
    return false;
}

static bool peers_may_end(struct peers *ps, bool hurry, uint64_t now_ms)
{
    if (ps->ended_ms == 0) {
        ps->ended_ms = now_ms;
    }
    if (ps->parting_ms == 0) {
        if (!hurry && now_ms - ps->ended_ms < ps->linger_ms && somebody_waits(ps, now_ms)) {
            if (!ps->stays) {
                ps->stays = true;
                log_debug("peers.stays", "waiting for peers that still miss chunks");
            }
            return false;
        }
        ps->parting_ms = now_ms;
        LIST_EACH (&ps->swarms, n) {
            swarm_part(LIST_ITEM(n, struct swarm, node));
        }
    }
    return all_gone(ps) || now_ms - ps->parting_ms >= (hurry ? GOODBYE_HURRY_MS : GOODBYE_MS);
}

static void peers_close(struct peers **pp)
{
    struct peers *ps = *pp;
    struct list *n;

    *pp = NULL;
    give_close(&ps->give);
    LIST_EACH (&ps->swarms, it) {
        swarm_free(LIST_ITEM(it, struct swarm, node));
    }
    while ((n = list_pop_front(&ps->givers)) != NULL) {
        free(LIST_ITEM(n, struct giver_name, node));
    }
    shared_files_close(&ps->shared_files);
    free(ps);
}

static unsigned peers_givers(const struct peers *ps)
{
    return ps->ngivers;
}

const struct peer_ops peers_ops = {
    .connections = PEERS_ASKING + 8, /* and announces several files to the mirror */
    .open = peers_open,
    .close = peers_close,
    .tick = peers_tick,
    .may_end = peers_may_end,
    .givers = peers_givers,
    .join = swarm_join,
    .leave = swarm_leave,
    .is_on = swarm_is_on,
    .have = swarm_have,
    .choose = swarm_choose,
    .want = want_chunk,
    .ended = swarm_release,
    .written = swarm_written,
};
