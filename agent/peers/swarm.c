#include "agent/peers/swarm.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>

#include "agent/peers/bits.h"
#include "agent/peers/peers.h"
#include "agent/pull/ask.h"
#include "common/base/dice.h"
#include "common/base/log.h"
#include "common/os/clock.h"

enum {
    FIRST_WAIT_MS = 1000, /* for the first answer, before the pull begins by itself */
    AGAIN_MS = 5000,      /* until the mirror says another */
    TURNED_AWAY_MS = 30000,
    ASK_PATIENCE_MS = 10000,
    TAKE_ALONE = 8,
    BRINGERS =
        4, /* connections to the mirror at once, of a small swarm together; of a large one each member has one */
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

/* --- what the mirror is told and tells -------------------------------------------------------------------------------- */

static bool is_alone(const struct swarm *s)
{
    return !s->keyed || s->members <= 1;
}

/* The fewer chunks share the mirror's link, the sooner the first of them is there to be given on. */
static size_t lanes_among(const struct swarm *s)
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
    return busy < lanes_among(s);
}

static unsigned take_wanted(const struct swarm *s)
{
    size_t want = !s->keyed ? BRINGERS : is_alone(s) ? TAKE_ALONE : lanes_among(s) + 1;
    size_t left = s->count - s->nhave - s->nmine;

    want = want > s->nmine ? want - s->nmine : 0;
    return s->could && !s->finished ? (unsigned)min_u64(want, left) : 0;
}

static bool take_is_due(const struct swarm *s, uint64_t now_ms)
{
    size_t enough = is_alone(s) ? TAKE_ALONE / 2 : lanes_among(s);

    return s->nmine <= enough && now_ms >= s->take_at_ms && take_wanted(s) > 0;
}

static struct neighbour *known(const struct swarm *s, const char *address)
{
    LIST_EACH (&s->neighbours, n) {
        struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        if (strcmp(x->address, address) == 0) {
            return x;
        }
    }
    return NULL;
}

/* Room for one more by the oldest that is of no use now; false: all are. */
static bool make_room(struct swarm *s)
{
    if (s->nneighbours < NEIGHBOURS_MAX) {
        return true;
    }
    LIST_EACH (&s->neighbours, n) {
        struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        if (!x->active && !x->liar && x->lanes == 0 && x->blocks == 0) {
            list_remove(n);
            s->nneighbours--;
            neighbour_free(x);
            return true;
        }
    }
    return false;
}

static void meet(struct swarm *s, const char *address)
{
    struct neighbour *n;

    if (known(s, address) == NULL && make_room(s)) {
        n = neighbour_new(s, address);
        list_push_back(&s->neighbours, &n->node);
        s->nneighbours++;
    }
}

static void take_key(struct swarm *s, const struct told *t)
{
    if (s->keyed && memcmp(s->psk.key, t->key, PSK_KEY_BYTES) == 0) {
        return;
    }
    memcpy(s->psk.key, t->key, PSK_KEY_BYTES);
    s->keyed = true;
    if (s->gift != NULL) {
        gift_key(s->gift, t->key);
    }
    LIST_EACH (&s->neighbours, n) { /* who did not know the key may know this one */
        struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        x->rests_until_ms = 0;
        x->failures = 0;
    }
}

static uint64_t until_next_take(const struct swarm *s, bool none)
{
    uint64_t none_ms = TAKE_NONE_MS + TAKE_NONE_EACH_MS * min_u64(s->members, UINT16_MAX);

    return none ? min_u64(none_ms, s->again_ms) : TAKE_APART_MS;
}

/* The list is all that is this node's to bring; what has come since it was made stands in it still. */
static void take_up(struct swarm *s, const struct told *t, uint64_t now_ms)
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

static void be_told(struct swarm *s, const struct told *t, uint64_t now_ms)
{
    take_key(s, t);
    s->members = t->members;
    s->again_ms = t->again_ms;
    s->ask_at_ms = now_ms + s->again_ms;
    take_up(s, t, now_ms);
    for (size_t i = 0; i < t->npeers; i++) {
        meet(s, t->peer[i]);
    }
    log_debug("peers.told", "members=%" PRIu64 " take=%zu peers=%zu", t->members, t->ntake,
              t->npeers);
}

static void turn_off(struct swarm *s, int status)
{
    log_debug("peers.off", "status=%d", status);
    s->off = true;
    s->nmine = 0;
    memset(s->mine, 0, BITS_BYTES(s->count));
}

/* No answer, or none that is one: by itself meanwhile, and again later, not all at the same time. */
static void ask_later(struct swarm *s, uint64_t after_ms, uint64_t now_ms)
{
    s->ask_at_ms = now_ms + after_ms + dice_below(&s->peers->dice, after_ms);
    s->take_at_ms = s->ask_at_ms;
    s->members = 1;
}

static void on_answer(void *arg, int rc, const struct err *why, const struct ask_answer *a)
{
    struct swarm *s = arg;
    uint64_t now_ms = clock_now_ms();
    struct told told;
    struct err e = *why;

    s->ask = NULL;
    if (s->leaving) {
        return;
    }
    if (rc == 0 && a->status == 200) {
        rc = told_read(a->body, s->count, &told, &e);
        if (rc == 0) {
            be_told(s, &told, now_ms);
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

static void tell(struct swarm *s, struct slice text)
{
    const struct slice field = SLICE("Content-Type: application/json");
    const struct ask_want w = {
        .method = XFER_POST, .url = s->url, .body = text, .fields = &field, .nfields = 1};

    s->asked_ms = clock_now_ms();
    s->ask = ask_start(s->peers->xfers, s->peers->agent, &w, on_answer, s);
}

static void announce(struct swarm *s)
{
    struct buf text = BUF_INIT(ANNOUNCEMENT_MAX);
    const struct announcement a = {.id = s->id,
                                   .port = s->gift != NULL ? peers_port(s->peers) : 0,
                                   .have = s->have,
                                   .count = s->count,
                                   .take = take_wanted(s)};

    s->asked_take = a.take;
    s->could = false;
    announcement_write(&a, &text);
    CHECK(text.rc == 0);
    tell(s, buf_slice(&text));
    buf_free(&text);
}

static void see_to_mirror(struct swarm *s, uint64_t now_ms)
{
    if (s->off || s->leaving) {
        return;
    }
    if (s->ask != NULL && now_ms > s->asked_ms + ASK_PATIENCE_MS) {
        ask_cancel(&s->ask);
        ask_later(s, s->again_ms, now_ms);
    }
    if (s->ask == NULL && (now_ms >= s->ask_at_ms || take_is_due(s, now_ms))) {
        announce(s);
    }
}

/* --- the neighbours ----------------------------------------------------------------------------------------------------- */

static size_t count_active(const struct swarm *s)
{
    size_t count = 0;

    LIST_EACH (&s->neighbours, n) {
        count += LIST_ITEM(n, struct neighbour, node)->active;
    }
    return count;
}

static void choose_neighbours(struct swarm *s, uint64_t now_ms)
{
    for (size_t have = count_active(s); have < NEIGHBOURS_ACTIVE; have++) {
        struct neighbour *one = NULL;
        uint64_t seen = 0;

        LIST_EACH (&s->neighbours, n) {
            struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
            if (!x->active && neighbour_usable(x, now_ms) &&
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

static void ask_neighbours(struct swarm *s, uint64_t now_ms)
{
    uint64_t every_ms = s->hungry ? HUNGRY_MS : CONTENT_MS;

    LIST_EACH (&s->neighbours, n) {
        struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        if (x->x != NULL && now_ms > x->asked_ms + HAVE_PATIENCE_MS) {
            neighbour_give_up(x, now_ms);
        }
        if (x->active && x->x == NULL && (x->have == NULL || x->nhave < s->count) &&
            neighbour_usable(x, now_ms) && now_ms >= x->asked_ms + every_ms) {
            if (!neighbour_ask(x)) {
                return;
            }
            x->asked_ms = now_ms;
        }
    }
}

void swarm_news(struct swarm *s)
{
    s->peers->changed(s->peers->arg);
}

bool swarm_is_wanted(const struct swarm *s, uint64_t now_ms)
{
    bool any = false;

    if (!s->finished || s->off || s->gift == NULL || is_alone(s)) {
        return false;
    }
    LIST_EACH (&s->neighbours, n) {
        const struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        if (neighbour_usable(x, now_ms)) {
            if (x->have == NULL || x->nhave < s->count) {
                return true;
            }
            any = true;
        }
    }
    return !any && s->nneighbours == 0; /* there are others, and we know none of them yet */
}

/* --- choosing ----------------------------------------------------------------------------------------------------------- */

bool swarm_is_on(const struct swarm *s)
{
    return s != NULL && !s->off;
}

static size_t list_givers(const struct swarm *s, struct giver *giver, struct neighbour **who,
                          uint64_t now_ms)
{
    size_t count = 0;

    LIST_EACH (&s->neighbours, n) {
        struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        if (x->active && x->lanes < NEIGHBOUR_LANES && neighbour_usable(x, now_ms)) {
            giver[count] = (struct giver){x->have, NEIGHBOUR_LANES - x->lanes};
            who[count++] = x;
        }
    }
    return count;
}

/* Half as long with each time that it was for nothing: members who say that they have a file and do not give it cost seconds, not
 * seconds a chunk. */
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
    LIST_EACH (&s->neighbours, n) {
        struct neighbour *x = LIST_ITEM(n, struct neighbour, node);
        x->active = x->active && (x->lanes > 0 || x->x != NULL);
    }
}

/* Who waits for promises has a chunk from the mirror beside them, and sooner each time. */
static bool is_starved(const struct swarm *s, uint64_t now_ms)
{
    return s->strikes >= STRIKES_MAX || now_ms > s->moved_ms + ((uint64_t)STARVED_MS >> s->strikes);
}

enum choice swarm_choose(struct swarm *s, const struct parts *p, bool idle, bool bringing,
                         bool mirror, uint64_t now_ms, size_t *chunk, struct neighbour **from)
{
    struct giver giver[NEIGHBOURS_MAX];
    struct neighbour *who[NEIGHBOURS_MAX];
    struct choose_from c = {.state = p->state,
                            .first = p->prefix,
                            .count = p->count,
                            .mine = s->mine,
                            .giver = giver,
                            .brings = mirror && may_bring(s, p),
                            .alone = mirror && (is_alone(s) || s->strikes >= STRIKES_MAX),
                            .stalled = mirror && idle && now_ms > s->moved_ms + s->patience_ms,
                            .starved = mirror && !bringing && is_starved(s, now_ms)};
    enum choice what;
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
        who[i]->lanes++;
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

void swarm_was_given(struct swarm *s, const struct neighbour *by)
{
    s->strikes = 0;
    peers_gave(s->peers, by->address);
}

void swarm_release(struct neighbour *n, size_t chunk, int rc)
{
    CHECK(n->lanes > 0);
    n->lanes--;
    if (rc == 0) {
        moved(n->swarm, clock_now_ms());
    }
    if (rc != E_CANCELLED) {
        neighbour_judge(n, chunk, rc, clock_now_ms());
    }
}

void swarm_have(struct swarm *s, size_t chunk, bool there)
{
    if (bits_get(s->have, chunk) != there) {
        bits_set(s->have, chunk, there);
        s->nhave = there ? s->nhave + 1 : s->nhave - 1;
    }
    if (there && bits_get(s->mine, chunk)) {
        bits_set(s->mine, chunk, false);
        s->nmine--;
    }
    if (s->gift != NULL) {
        gift_chunk(s->gift, chunk, there);
    }
    moved(s, clock_now_ms());
}

/* --- coming and going ----------------------------------------------------------------------------------------------------- */

struct swarm *swarm_join(struct peers *ps, const struct digest *d, uint64_t size_bytes, int fd)
{
    struct swarm *s;
    struct err why;

    if (ps == NULL || size_bytes < ps->agent->node.peers.min_size ||
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
    if (ps->give != NULL && gifts_offer(ps->gifts, d, size_bytes, fd, &s->gift, &why) != 0) {
        log_warn("peers.give", "takes only: %s", why.text);
    }
    list_init(&s->neighbours);
    s->again_ms = AGAIN_MS;
    s->members = 1;
    s->joined_ms = clock_now_ms();
    s->could = true;
    moved(s, s->joined_ms);
    list_push_back(&ps->swarms, &s->node);
    return s;
}

/* Of many files under way most wait for a connection: what others have of those is not asked every other moment. */
static bool is_curious(const struct swarm *s, uint64_t now_ms)
{
    return s->finished ? s->peers->linger_ms > 0 : now_ms < s->chose_ms + CONTENT_MS;
}

void swarm_tick(struct swarm *s, uint64_t now_ms)
{
    if (s->asked_ms != 0) { /* a file that no connection is free for yet is nobody's business */
        see_to_mirror(s, now_ms);
    }
    if (s->keyed && !s->off && !s->leaving && is_curious(s, now_ms)) {
        choose_neighbours(s, now_ms);
        ask_neighbours(s, now_ms);
    }
}

void swarm_finish(struct swarm **sp)
{
    struct swarm *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        s->finished = true;
        s->hungry = false;
        s->ask_at_ms = 0; /* that all of it is here is worth a word */
        if (s->gift == NULL) {
            swarm_part(s);
        }
    }
}

void swarm_part(struct swarm *s)
{
    struct buf text = BUF_INIT(1024);

    if (s->leaving) {
        return;
    }
    ask_cancel(&s->ask);
    s->leaving = true;
    if (s->keyed && !s->off) {
        announcement_leave(s->id, &text);
        tell(s, buf_slice(&text));
        buf_free(&text);
    }
}

void swarm_leave(struct swarm **sp)
{
    struct swarm *s = *sp;

    if (s != NULL) {
        *sp = NULL;
        if (s->gift != NULL) {
            gift_withdraw(s->gift);
        }
        swarm_part(s);
    }
}

void swarm_free(struct swarm *s)
{
    struct list *n;

    list_remove(&s->node);
    ask_cancel(&s->ask);
    while ((n = list_pop_front(&s->neighbours)) != NULL) {
        neighbour_free(LIST_ITEM(n, struct neighbour, node));
    }
    if (s->gift != NULL) {
        gift_withdraw(s->gift);
    }
    gift_drop(&s->gift);
    explicit_bzero(s->psk.key, sizeof s->psk.key);
    arena_fini(&s->arena);
    free(s->have);
    free(s->mine);
    free(s);
}
