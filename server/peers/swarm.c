#include "server/peers/swarm.h"

#include <stdlib.h>
#include <uthash.h>
#include <xxhash.h>

#include "common/base/dice.h"
#include "common/base/endian.h"
#include "common/base/list.h"
#include "common/codec/network.h"

enum { WORD = 64, SILENT_TIMES = 3 };

/* Chunks under way from the mirror share its link: with 1,024 of them at 1 Gbit/s none is there before a minute, and until then
 * nobody has anything to give. So there are as many as come within a few seconds. */
enum { WINDOW_FIRST = 64, WINDOW_LEAST = 8, WINDOW_MOST = 4096, QUICK_MS = 1000, SLOW_MS = 4000 };

struct lease {
    struct list all; /* among the swarm's, in the order of their ends */
    struct list own; /* among its member's */
    struct member *member;
    size_t chunk;
    uint64_t born_ms;
};

struct member {
    UT_hash_handle hh;
    uint8_t id[ANNOUNCEMENT_ID];
    struct list seen; /* among all, the silent first */
    uint64_t seen_ms;
    struct swarm_peer at;
    bool local;   /* announces from the mirror's own machine */
    size_t place; /* in its array of givers, when at.port != 0 */
    struct list leases;
    size_t nleases;
    uint64_t *have; /* [words]: chunk 0 is the highest bit of the first */
};

/* Those who give. An address of loopback means another machine to whoever is told it: such are for each other alone. */
struct givers {
    struct member **at;
    size_t n, room;
};

struct swarm {
    uint8_t key[SWARM_KEY];
    uint64_t seed, dice;
    size_t chunks, words;
    uint32_t *count;  /* [chunks] members that have it */
    uint64_t *leased; /* [words] */
    uint64_t *open;   /* [words] nobody has it, nobody was asked */
    size_t first;     /* no word before it has an open chunk */
    size_t had;
    size_t window;         /* leases at once that suit the link, shared by all members */
    uint64_t handed;       /* chunks that members were asked for, ever */
    struct member *member; /* uthash */
    size_t members;
    struct list seen;
    struct list leases;
    struct givers givers[2]; /* elsewhere, on this machine */
};

/* --- bits --- */

static uint64_t bit(size_t chunk)
{
    return UINT64_C(1) << (WORD - 1 - chunk % WORD);
}

static bool has(const uint64_t *set, size_t chunk)
{
    return (set[chunk / WORD] & bit(chunk)) != 0;
}

static void set_open(struct swarm *s, size_t chunk)
{
    s->open[chunk / WORD] |= bit(chunk);
    s->first = s->first < chunk / WORD ? s->first : chunk / WORD;
}

static void set_had(struct swarm *s, size_t chunk)
{
    if (s->count[chunk]++ == 0) {
        s->had++;
        s->open[chunk / WORD] &= ~bit(chunk);
    }
}

static void set_lost(struct swarm *s, size_t chunk)
{
    CHECK(s->count[chunk] > 0);
    if (--s->count[chunk] == 0) {
        s->had--;
        if (!has(s->leased, chunk)) {
            set_open(s, chunk);
        }
    }
}

/* What the bits of `changed` say now. */
static void recount(struct swarm *s, struct member *m, size_t word, uint64_t is)
{
    uint64_t changed = m->have[word] ^ is;

    m->have[word] = is;
    while (changed != 0) {
        unsigned at = (unsigned)__builtin_clzll(changed);
        size_t chunk = word * WORD + at;
        changed &= ~bit(chunk);
        if ((is & bit(chunk)) != 0) {
            set_had(s, chunk);
        } else {
            set_lost(s, chunk);
        }
    }
}

static uint64_t word_of(const struct node_announcement *a, size_t word)
{
    uint8_t bytes[8] = {0};
    size_t from = word * sizeof bytes, left = a->have_bytes - from;

    memcpy(bytes, a->have + from, left < sizeof bytes ? left : sizeof bytes);
    return be_get(bytes, sizeof bytes);
}

/* --- leases --- */

static void lease_end(struct swarm *s, struct lease *l)
{
    list_remove(&l->all);
    list_remove(&l->own);
    l->member->nleases--;
    s->leased[l->chunk / WORD] &= ~bit(l->chunk);
    if (s->count[l->chunk] == 0) {
        set_open(s, l->chunk);
    }
    free(l);
}

static void lease_begin(struct swarm *s, struct member *m, size_t chunk, uint64_t now_ms)
{
    struct lease *l = NEW(struct lease);

    l->member = m;
    l->chunk = chunk;
    l->born_ms = now_ms;
    list_push_back(&s->leases, &l->all);
    list_push_back(&m->leases, &l->own);
    m->nleases++;
    s->leased[chunk / WORD] |= bit(chunk);
    s->open[chunk / WORD] &= ~bit(chunk);
    s->handed++;
}

static void judge_window(struct swarm *s, uint64_t took_ms)
{
    if (took_ms < QUICK_MS && s->window < WINDOW_MOST) {
        s->window++;
    } else if (took_ms > SLOW_MS && s->window > WINDOW_LEAST) {
        s->window--;
    }
}

/* Its own: those that came are done, and it is asked for others. */
static void settle_leases(struct swarm *s, struct member *m, uint64_t now_ms)
{
    LIST_EACH (&m->leases, it) {
        struct lease *l = LIST_ITEM(it, struct lease, own);
        if (has(m->have, l->chunk) && s->members > 1) { /* alone it is asked far ahead */
            judge_window(s, now_ms - min_u64(now_ms, l->born_ms));
        }
        if (s->count[l->chunk] > 0) {
            lease_end(s, l);
        }
    }
}

/* One at least: who has nothing under way would lose patience. */
static size_t share(const struct swarm *s)
{
    size_t each = s->window / s->members;

    return s->members == 1 || each > ANNOUNCEMENT_TAKE_MAX ? ANNOUNCEMENT_TAKE_MAX
           : each > 0                                      ? each
                                                           : 1;
}

static void ask_for(struct swarm *s, struct member *m, unsigned take, uint64_t now_ms)
{
    while (take > 0 && m->nleases < share(s)) {
        while (s->first < s->words && s->open[s->first] == 0) {
            s->first++;
        }
        if (s->first == s->words) {
            return;
        }
        lease_begin(s, m, s->first * WORD + (unsigned)__builtin_clzll(s->open[s->first]), now_ms);
        take--;
    }
}

/* --- members --- */

static void givers_add(struct swarm *s, struct member *m)
{
    struct givers *g = &s->givers[m->local];

    if (g->n == g->room) {
        struct member **more = mem_array(g->room * 2 + 8, sizeof more[0]);
        if (g->n != 0) {
            memcpy(more, g->at, g->n * sizeof more[0]);
        }
        free(g->at);
        g->at = more;
        g->room = g->room * 2 + 8;
    }
    m->place = g->n;
    g->at[g->n++] = m;
}

static void givers_remove(struct swarm *s, struct member *m)
{
    struct givers *g = &s->givers[m->local];

    CHECK(g->at[m->place] == m);
    g->at[m->place] = g->at[--g->n];
    g->at[m->place]->place = m->place;
}

static unsigned hash(const struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    return (unsigned)XXH3_64bits_withSeed(id, ANNOUNCEMENT_ID, s->seed);
}

static struct member *find(const struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct member *m;

    HASH_FIND_BYHASHVALUE(hh, s->member, id, ANNOUNCEMENT_ID, hash(s, id), m);
    return m;
}

static struct member *enter(struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct member *m = NEW(struct member);

    memcpy(m->id, id, sizeof m->id);
    m->have = mem_array(s->words, sizeof m->have[0]);
    list_init(&m->leases);
    HASH_ADD_BYHASHVALUE(hh, s->member, id, ANNOUNCEMENT_ID, hash(s, id), m);
    s->members++;
    return m;
}

static void drop(struct swarm *s, struct member *m)
{
    LIST_EACH (&m->leases, it) {
        lease_end(s, LIST_ITEM(it, struct lease, own));
    }
    if (m->at.port != 0) {
        givers_remove(s, m);
    }
    list_remove_if(&m->seen);
    HASH_DELETE(hh, s->member, m);
    s->members--;
    free(m->have);
    free(m);
}

static void go(struct swarm *s, struct member *m)
{
    for (size_t w = 0; w < s->words; w++) {
        recount(s, m, w, 0);
    }
    drop(s, m);
}

static void begin(struct swarm *s)
{
    memset(s->count, 0, s->chunks * sizeof s->count[0]);
    memset(s->open, 0xff, s->words * sizeof s->open[0]);
    if (s->chunks % WORD != 0) {
        s->open[s->words - 1] = ~(bit(s->chunks) * 2 - 1); /* no chunk is behind the last */
    }
    s->first = 0;
    s->had = 0;
}

/* A thousand members have millions of chunks together: where nobody stays, what each had need not be uncounted. */
static void clear(struct swarm *s)
{
    LIST_EACH (&s->seen, it) {
        drop(s, LIST_ITEM(it, struct member, seen));
    }
    begin(s);
}

static void move_to(struct swarm *s, struct member *m, const uint8_t from[SWARM_ADDRESS],
                    uint16_t port)
{
    if (m->at.port != 0) {
        givers_remove(s, m);
    }
    memcpy(m->at.address, from, SWARM_ADDRESS);
    m->at.port = port;
    m->local = address_is_loopback(from);
    if (port != 0) {
        givers_add(s, m);
    }
}

static void see(struct swarm *s, struct member *m, uint64_t now_ms)
{
    list_remove_if(&m->seen);
    list_push_back(&s->seen, &m->seen);
    m->seen_ms = now_ms;
}

/* --- who is told of whom --- */

/* Among all who give, those elsewhere first. */
static size_t place_of(const struct swarm *s, const struct member *m)
{
    return m->place + (m->local ? s->givers[0].n : 0);
}

static const struct member *giver(const struct swarm *s, size_t place)
{
    size_t elsewhere = s->givers[0].n;

    return place < elsewhere ? s->givers[0].at[place] : s->givers[1].at[place - elsewhere];
}

static bool drawn(const size_t *before, size_t n, size_t i)
{
    for (size_t k = 0; k < n; k++) {
        if (before[k] == i) {
            return true;
        }
    }
    return false;
}

/* Others, each set of them as likely as any (Floyd; Bentley 1987). */
static void draw_peers(struct swarm *s, const struct member *m, struct swarm_answer *out)
{
    size_t all = s->givers[0].n + (m->local ? s->givers[1].n : 0);
    size_t self = m->at.port != 0 ? place_of(s, m) : all;
    size_t others = all - (self < all);
    size_t n = others < SWARM_PEERS ? others : SWARM_PEERS;
    size_t one[SWARM_PEERS];

    for (size_t k = 0; k < n; k++) {
        size_t last = others - n + k, i = (size_t)dice_below(&s->dice, last + 1);
        one[k] = drawn(one, k, i) ? last : i;
        out->peer[k] = giver(s, one[k] + (one[k] >= self))->at;
    }
    out->peers = n;
}

/* --- from outside --- */

struct swarm *swarm_new(size_t chunks, const uint8_t key[SWARM_KEY], uint64_t seed)
{
    struct swarm *s = NEW(struct swarm);

    CHECK(chunks > 0);
    memcpy(s->key, key, SWARM_KEY);
    s->seed = seed;
    s->dice = seed | 1;
    s->window = WINDOW_FIRST;
    s->chunks = chunks;
    s->words = (chunks + WORD - 1) / WORD;
    s->count = mem_array(chunks, sizeof s->count[0]);
    s->leased = mem_array(s->words, sizeof s->leased[0]);
    s->open = mem_array(s->words, sizeof s->open[0]);
    begin(s);
    list_init(&s->seen);
    list_init(&s->leases);
    return s;
}

void swarm_free(struct swarm **sp)
{
    struct swarm *s = *sp;

    *sp = NULL;
    if (s == NULL) {
        return;
    }
    clear(s);
    explicit_bzero(s->key, sizeof s->key);
    free(s->givers[0].at);
    free(s->givers[1].at);
    free(s->count);
    free(s->leased);
    free(s->open);
    free(s);
}

static int judge(const struct swarm *s, const struct node_announcement *a, struct err *e)
{
    size_t wanted = (s->chunks + 7) / 8;

    if (a->have_bytes != wanted) {
        return err_set(e, E_INVALID,
                       "\"have\" is a bitmap of %zu bytes, this blob has %zu chunks: it takes %zu",
                       a->have_bytes, s->chunks, wanted);
    }
    if (s->chunks % 8 != 0 && (a->have[wanted - 1] & (0xff >> s->chunks % 8)) != 0) {
        return err_set(e, E_INVALID, "\"have\" has bits behind the last of %zu chunks", s->chunks);
    }
    return 0;
}

int swarm_announce(struct swarm *s, const struct node_announcement *a,
                   const uint8_t from[SWARM_ADDRESS], const struct swarm_rules *r, uint64_t now_ms,
                   struct swarm_answer *out, struct err *e)
{
    struct member *m;
    int rc = judge(s, a, e);

    if (rc != 0) {
        return rc;
    }
    m = find(s, a->id);
    if (m == NULL && s->members >= r->members) {
        return err_set(e, E_BUSY, "%zu nodes share this blob already, no more are led together",
                       s->members);
    }
    if (m == NULL) {
        m = enter(s, a->id);
    }
    see(s, m, now_ms);
    move_to(s, m, from, a->port);
    for (size_t w = 0; w < s->words; w++) {
        recount(s, m, w, word_of(a, w));
    }
    settle_leases(s, m, now_ms);
    ask_for(s, m, a->take, now_ms);
    memcpy(out->key, s->key, SWARM_KEY);
    out->takes = 0;
    LIST_EACH (&m->leases, it) {
        out->take[out->takes++] = (uint32_t)LIST_ITEM(it, struct lease, own)->chunk;
    }
    draw_peers(s, m, out);
    out->members = s->members;
    out->again_s = r->again_s;
    return 0;
}

void swarm_leave(struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct member *m = find(s, id);

    if (m != NULL) {
        go(s, m);
    }
}

static bool is_silent(struct list *seen, const struct swarm_rules *r, uint64_t now_ms)
{
    const struct member *m = LIST_ITEM(seen, struct member, seen);

    return now_ms - min_u64(now_ms, m->seen_ms) >= (uint64_t)r->again_s * 1000 * SILENT_TIMES;
}

void swarm_expire(struct swarm *s, const struct swarm_rules *r, uint64_t now_ms)
{
    if (!list_empty(&s->seen) && is_silent(s->seen.prev, r, now_ms)) {
        clear(s);
    }
    while (!list_empty(&s->seen) && is_silent(s->seen.next, r, now_ms)) {
        go(s, LIST_ITEM(s->seen.next, struct member, seen));
    }
    while (!list_empty(&s->leases)) {
        struct lease *l = LIST_ITEM(s->leases.next, struct lease, all);
        if (now_ms - min_u64(now_ms, l->born_ms) < r->lease_ms) {
            break;
        }
        lease_end(s, l);
    }
}

void swarm_count(const struct swarm *s, struct swarm_count *out)
{
    *out = (struct swarm_count){.chunks = s->chunks,
                                .had = s->had,
                                .members = s->members,
                                .givers = s->givers[0].n + s->givers[1].n};
    for (struct list *it = s->leases.next; it != &s->leases; it = it->next) {
        out->asked += s->count[LIST_ITEM(it, struct lease, all)->chunk] == 0;
    }
}

bool swarm_knows(const struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    return find(s, id) != NULL;
}

size_t swarm_members(const struct swarm *s)
{
    return s->members;
}

uint64_t swarm_handed(const struct swarm *s)
{
    return s->handed;
}

size_t swarm_cost(size_t chunks)
{
    return sizeof(struct swarm) + chunks * sizeof(uint32_t) + chunks / 4 + 2 * sizeof(uint64_t);
}

/* With the leases that it may have. */
size_t swarm_member_cost(size_t chunks)
{
    return sizeof(struct member) + chunks / 8 + sizeof(uint64_t) +
           ANNOUNCEMENT_TAKE_MAX * sizeof(struct lease);
}
