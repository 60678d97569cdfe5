#include "server/peers/peers.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <uthash.h>
#include <xxhash.h>

#include "common/base/dice.h"
#include "common/base/endian.h"
#include "common/base/list.h"
#include "common/codec/network.h"
#include "common/os/lock.h"

enum { WORD = 64, SILENT_TIMES = 3 };

/* Chunks under way from the mirror share its link: with 1,024 of them at 1 Gbit/s none is there
 * before a minute, and until then nobody has anything to give. So there are as many as come within
 * a few seconds. */
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

/* Members that give. A loopback address means another machine to every reader: such members are
 * sent only to each other. */
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

static bool chunk_set_has(const uint64_t *set, size_t chunk)
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
        if (!chunk_set_has(s->leased, chunk)) {
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

static uint64_t announcement_word(const struct node_announcement *a, size_t word)
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
        if (chunk_set_has(m->have, l->chunk) && s->members > 1) { /* alone it is asked far ahead */
            judge_window(s, now_ms - min_u64(now_ms, l->born_ms));
        }
        if (s->count[l->chunk] > 0) {
            lease_end(s, l);
        }
    }
}

/* One at least: who has nothing under way would lose patience. */
static size_t chunks_per_answer(const struct swarm *s)
{
    size_t each = s->window / s->members;

    return s->members == 1 || each > ANNOUNCEMENT_TAKE_MAX ? ANNOUNCEMENT_TAKE_MAX
           : each > 0                                      ? each
                                                           : 1;
}

static void ask_for(struct swarm *s, struct member *m, unsigned take, uint64_t now_ms)
{
    while (take > 0 && m->nleases < chunks_per_answer(s)) {
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

static unsigned member_hash(const struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    return (unsigned)XXH3_64bits_withSeed(id, ANNOUNCEMENT_ID, s->seed);
}

static struct member *member_find(const struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct member *m;

    HASH_FIND_BYHASHVALUE(hh, s->member, id, ANNOUNCEMENT_ID, member_hash(s, id), m);
    return m;
}

static struct member *member_enter(struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct member *m = NEW(struct member);

    memcpy(m->id, id, sizeof m->id);
    m->have = mem_array(s->words, sizeof m->have[0]);
    list_init(&m->leases);
    HASH_ADD_BYHASHVALUE(hh, s->member, id, ANNOUNCEMENT_ID, member_hash(s, id), m);
    s->members++;
    return m;
}

static void member_drop(struct swarm *s, struct member *m)
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

static void member_go(struct swarm *s, struct member *m)
{
    for (size_t w = 0; w < s->words; w++) {
        recount(s, m, w, 0);
    }
    member_drop(s, m);
}

static void open_all(struct swarm *s)
{
    memset(s->count, 0, s->chunks * sizeof s->count[0]);
    memset(s->open, 0xff, s->words * sizeof s->open[0]);
    if (s->chunks % WORD != 0) {
        s->open[s->words - 1] = ~(bit(s->chunks) * 2 - 1); /* no chunk is behind the last */
    }
    s->first = 0;
    s->had = 0;
}

/* A thousand members have millions of chunks together: where nobody stays, what each had need not
 * be uncounted. */
static void clear_all(struct swarm *s)
{
    LIST_EACH (&s->seen, it) {
        member_drop(s, LIST_ITEM(it, struct member, seen));
    }
    open_all(s);
}

static void member_move(struct swarm *s, struct member *m, const uint8_t from[SWARM_ADDRESS],
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

static void member_see(struct swarm *s, struct member *m, uint64_t now_ms)
{
    list_remove_if(&m->seen);
    list_push_back(&s->seen, &m->seen);
    m->seen_ms = now_ms;
}

/* --- which members are sent to which --- */

/* Among all who give, those elsewhere first. */
static size_t place_of_member(const struct swarm *s, const struct member *m)
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
    size_t self = m->at.port != 0 ? place_of_member(s, m) : all;
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

/* --- a swarm --- */

static struct swarm *swarm_new(size_t chunks, const uint8_t key[SWARM_KEY], uint64_t seed)
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
    open_all(s);
    list_init(&s->seen);
    list_init(&s->leases);
    return s;
}

static void swarm_free(struct swarm **sp)
{
    struct swarm *s = *sp;

    *sp = NULL;
    if (s == NULL) {
        return;
    }
    clear_all(s);
    explicit_bzero(s->key, sizeof s->key);
    free(s->givers[0].at);
    free(s->givers[1].at);
    free(s->count);
    free(s->leased);
    free(s->open);
    free(s);
}

static int check_announcement(const struct swarm *s, const struct node_announcement *a,
                              struct err *e)
{
    size_t wanted = (s->chunks + 7) / 8;

    if (a->have_bytes != wanted) {
        return err_set(e, E_INVALID,
                       "\"have\" is a bitmap of %zu bytes, but this blob has %zu chunks, which "
                       "take %zu",
                       a->have_bytes, s->chunks, wanted);
    }
    if (s->chunks % 8 != 0 && (a->have[wanted - 1] & (0xff >> s->chunks % 8)) != 0) {
        return err_set(e, E_INVALID, "\"have\" has bits set after the last of %zu chunks",
                       s->chunks);
    }
    return 0;
}

static int swarm_announce(struct swarm *s, const struct node_announcement *a,
                          const uint8_t from[SWARM_ADDRESS], const struct peers_settings *set,
                          uint64_t now_ms, struct swarm_answer *out, struct err *e)
{
    struct member *m;
    int rc = check_announcement(s, a, e);

    if (rc != 0) {
        return rc;
    }
    m = member_find(s, a->id);
    if (m == NULL && s->members >= set->members) {
        return err_set(e, E_BUSY, "%zu nodes share this blob already, which is the limit",
                       s->members);
    }
    if (m == NULL) {
        m = member_enter(s, a->id);
    }
    member_see(s, m, now_ms);
    member_move(s, m, from, a->port);
    for (size_t w = 0; w < s->words; w++) {
        recount(s, m, w, announcement_word(a, w));
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
    out->again_s = set->again_s;
    return 0;
}

static void swarm_leave(struct swarm *s, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct member *m = member_find(s, id);

    if (m != NULL) {
        member_go(s, m);
    }
}

static bool is_silent(struct list *seen, const struct peers_settings *set, uint64_t now_ms)
{
    const struct member *m = LIST_ITEM(seen, struct member, seen);

    return now_ms - min_u64(now_ms, m->seen_ms) >= (uint64_t)set->again_s * 1000 * SILENT_TIMES;
}

static void swarm_expire(struct swarm *s, const struct peers_settings *set, uint64_t now_ms)
{
    if (!list_empty(&s->seen) && is_silent(s->seen.prev, set, now_ms)) {
        clear_all(s);
    }
    while (!list_empty(&s->seen) && is_silent(s->seen.next, set, now_ms)) {
        member_go(s, LIST_ITEM(s->seen.next, struct member, seen));
    }
    while (!list_empty(&s->leases)) {
        struct lease *l = LIST_ITEM(s->leases.next, struct lease, all);
        if (now_ms - min_u64(now_ms, l->born_ms) < (uint64_t)set->lease_s * 1000) {
            break;
        }
        lease_end(s, l);
    }
}

static void swarm_count(const struct swarm *s, struct swarm_count *out)
{
    *out = (struct swarm_count){.chunks = s->chunks,
                                .had = s->had,
                                .members = s->members,
                                .givers = s->givers[0].n + s->givers[1].n};
    for (struct list *it = s->leases.next; it != &s->leases; it = it->next) {
        out->asked += s->count[LIST_ITEM(it, struct lease, all)->chunk] == 0;
    }
}

static size_t swarm_cost(size_t chunks)
{
    return sizeof(struct swarm) + chunks * sizeof(uint32_t) + chunks / 4 + 2 * sizeof(uint64_t);
}

/* With the leases that it may have. */
static size_t swarm_member_cost(size_t chunks)
{
    return sizeof(struct member) + chunks / 8 + sizeof(uint64_t) +
           ANNOUNCEMENT_TAKE_MAX * sizeof(struct lease);
}

/* What announcements may make us keep, whoever sends them. */
enum { BYTES_MAX = 256 << 20 };

/* Of a client that began swarms: they are on its account, with all of their members. */
struct account {
    UT_hash_handle hh;
    uint64_t client;
    size_t swarms, bytes;
};

struct entry {
    UT_hash_handle hh; /* iterated in the order they began */
    struct account *account;
    struct digest digest;
    char repo[PEERS_NAME], key[PEERS_NAME];
    uint64_t size_bytes, began_ms;
    struct swarm *swarm;
    size_t bytes, members; /* as counted in the whole */
    uint64_t handed;
};

struct peers {
    struct lock lock;
    struct peers_settings set;
    struct entry *all;        /* uthash */
    struct account *accounts; /* uthash, by client; without those that have nothing */
    size_t swarms, members, bytes;
    uint64_t announcements, refused, handed;
};

static size_t chunks_of(uint64_t size_bytes)
{
    return (size_t)((size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

static struct entry *find_peers_entry(const struct peers *p, const struct digest *d)
{
    struct entry *x;

    HASH_FIND(hh, p->all, d, sizeof *d, x);
    return x;
}

/* --- accounts --- */

static struct account *account_find(const struct peers *p, uint64_t client)
{
    struct account *a;

    HASH_FIND(hh, p->accounts, &client, sizeof client, a);
    return a;
}

static struct account *account_enter(struct peers *p, uint64_t client)
{
    struct account *a = account_find(p, client);

    if (a == NULL) {
        a = NEW(struct account);
        a->client = client;
        HASH_ADD(hh, p->accounts, client, sizeof a->client, a);
    }
    a->swarms++;
    return a;
}

static void account_leave(struct peers *p, struct account *a)
{
    if (--a->swarms == 0) {
        HASH_DEL(p->accounts, a);
        free(a);
    }
}

/* --- all of them --- */

static void forget_peers_entry(struct peers *p, struct entry *x)
{
    HASH_DEL(p->all, x);
    x->account->bytes -= x->bytes;
    account_leave(p, x->account);
    p->swarms--;
    p->members -= x->members;
    p->bytes -= x->bytes;
    swarm_free(&x->swarm);
    free(x);
}

/* After anything happened to a swarm: the sums again, and whether it is over. */
static void update_peers_entry(struct peers *p, struct entry *x)
{
    size_t chunks = chunks_of(x->size_bytes);
    size_t members = x->swarm->members;
    uint64_t handed = x->swarm->handed;

    p->members += members - x->members;
    p->bytes -= x->bytes;
    x->account->bytes -= x->bytes;
    x->members = members;
    x->bytes = swarm_cost(chunks) + members * swarm_member_cost(chunks);
    p->bytes += x->bytes;
    x->account->bytes += x->bytes;
    p->handed += handed - x->handed;
    x->handed = handed;
    if (members == 0) {
        forget_peers_entry(p, x);
    }
}

static struct entry *add_peers_entry(struct peers *p, const struct digest *d, uint64_t size_bytes,
                                     uint64_t client, uint64_t now_ms)
{
    struct entry *x = NEW(struct entry);
    uint8_t key[SWARM_KEY];
    uint64_t seed;

    CHECK(RAND_bytes(key, sizeof key) == 1);
    CHECK(RAND_bytes((unsigned char *)&seed, sizeof seed) == 1);
    x->digest = *d;
    x->size_bytes = size_bytes;
    x->began_ms = now_ms;
    x->account = account_enter(p, client);
    x->swarm = swarm_new(chunks_of(size_bytes), key, seed);
    explicit_bzero(key, sizeof key);
    HASH_ADD(hh, p->all, digest, sizeof x->digest, x);
    p->swarms++;
    return x;
}

static size_t held(const struct account *a, bool bytes)
{
    return a == NULL ? 0 : bytes ? a->bytes : a->swarms;
}

/* The youngest swarm of the client that has most, when that is more than this client has with what
 * comes: its members bring the file from here alone. False: there is none such. */
static bool give_way(struct peers *p, uint64_t client, size_t more, bool bytes)
{
    const struct account *most = NULL;
    struct entry *x, *next, *youngest = NULL;
    struct account *a, *after;

    HASH_ITER(hh, p->accounts, a, after)
    {
        most = held(a, bytes) > held(most, bytes) ? a : most;
    }
    if (most == NULL || most->client == client ||
        held(most, bytes) <= held(account_find(p, client), bytes) + more) {
        return false;
    }
    HASH_ITER(hh, p->all, x, next)
    {
        youngest = x->account == most ? x : youngest;
    }
    CHECK(youngest != NULL);
    forget_peers_entry(p, youngest);
    return true;
}

/* One member more, in a swarm that is there or not. */
static int room_for(struct peers *p, const struct entry *x, uint64_t size_bytes, uint64_t client,
                    struct err *e)
{
    size_t chunks = chunks_of(size_bytes);
    size_t more = swarm_member_cost(chunks) + (x == NULL ? swarm_cost(chunks) : 0);

    client = x != NULL ? x->account->client : client;
    if (x == NULL && p->swarms == SWARMS_MAX && !give_way(p, client, 1, false)) {
        return err_set(e, E_BUSY, "%d blobs are shared already, which is the limit", SWARMS_MAX);
    }
    while (more > BYTES_MAX - p->bytes && give_way(p, client, more, true)) {
    }
    if (more > BYTES_MAX - p->bytes) {
        return err_set(e, E_BUSY,
                       "the table of which node has which chunk has reached its limit of %d MiB",
                       BYTES_MAX >> 20);
    }
    return 0;
}

static void remove_peer_node(struct peers *p, const struct digest *d,
                             const uint8_t id[ANNOUNCEMENT_ID])
{
    struct entry *x = find_peers_entry(p, d);

    if (x != NULL) {
        swarm_leave(x->swarm, id);
        update_peers_entry(p, x);
    }
}

static int record_announcement(struct peers *p, const struct digest *d, uint64_t size_bytes,
                               uint64_t client, const struct node_announcement *a,
                               const uint8_t from[SWARM_ADDRESS], uint64_t now_ms,
                               struct swarm_answer *out, bool *began, struct err *e)
{
    struct entry *x = find_peers_entry(p, d);
    int rc;

    if (p->set.again_s == 0) {
        return err_set(e, E_NOTFOUND,
                       "nodes cannot share files through this mirror: it has no "
                       "peers section");
    }
    if (x != NULL) {
        swarm_expire(x->swarm, &p->set, now_ms);
        update_peers_entry(p, x);
        x = find_peers_entry(p, d); /* the last member may have gone with it, and so its key */
    }
    if (x == NULL || member_find(x->swarm, a->id) == NULL) {
        rc = room_for(p, x, size_bytes, client, e);
        if (rc != 0) {
            return rc;
        }
    }
    *began = x == NULL;
    if (x == NULL) {
        x = add_peers_entry(p, d, size_bytes, client, now_ms);
    }
    rc = swarm_announce(x->swarm, a, from, &p->set, now_ms, out, e);
    update_peers_entry(p, x);
    return rc;
}

int peers_announce(struct peers *p, const struct digest *d, uint64_t size_bytes, uint64_t client,
                   const struct node_announcement *a, const uint8_t from[SWARM_ADDRESS],
                   uint64_t now_ms, struct swarm_answer *out, bool *began, struct err *e)
{
    int rc;

    *began = false;
    lock_take(&p->lock);
    if (a->leave) {
        remove_peer_node(p, d, a->id);
        rc = 0;
    } else {
        rc = record_announcement(p, d, size_bytes, client, a, from, now_ms, out, began, e);
        p->announcements += rc == 0;
        p->refused += rc == E_BUSY;
    }
    lock_drop(&p->lock);
    return rc;
}

static void copy_name(char out[PEERS_NAME], struct slice s)
{
    size_t n = min_u64(s.n, PEERS_NAME - 1);

    if (n != 0) {
        memcpy(out, s.p, n);
    }
    out[n] = '\0';
}

void peers_name(struct peers *p, const struct digest *d, struct slice repo, struct slice key)
{
    struct entry *x;

    lock_take(&p->lock);
    x = find_peers_entry(p, d);
    if (x != NULL) {
        copy_name(x->repo, repo);
        copy_name(x->key, key);
    }
    lock_drop(&p->lock);
}

void peers_tick(struct peers *p, uint64_t now_ms)
{
    struct entry *x, *next;

    lock_take(&p->lock);
    HASH_ITER(hh, p->all, x, next)
    {
        swarm_expire(x->swarm, &p->set, now_ms);
        update_peers_entry(p, x);
    }
    lock_drop(&p->lock);
}

size_t peers_look(struct peers *p, uint64_t now_ms, struct swarm_view *out, size_t room)
{
    struct entry *x, *next;
    size_t n = 0;

    lock_take(&p->lock);
    HASH_ITER(hh, p->all, x, next)
    {
        struct swarm_view *v = &out[n];
        if (n == room) {
            break;
        }
        v->digest = x->digest;
        memcpy(v->repo, x->repo, sizeof v->repo);
        memcpy(v->key, x->key, sizeof v->key);
        v->size_bytes = x->size_bytes;
        v->age_ms = now_ms - min_u64(now_ms, x->began_ms);
        swarm_count(x->swarm, &v->count);
        n++;
    }
    lock_drop(&p->lock);
    return n;
}

void peers_stats(struct peers *p, struct peers_stats *out)
{
    lock_take(&p->lock);
    *out = (struct peers_stats){p->announcements, p->refused, p->handed, p->swarms, p->members};
    lock_drop(&p->lock);
}

static void forget_all(struct peers *p)
{
    struct entry *x, *next;

    HASH_ITER(hh, p->all, x, next)
    {
        forget_peers_entry(p, x);
    }
}

struct peers *peers_open(const struct peers_settings *set)
{
    struct peers *p = NEW(struct peers);

    lock_init(&p->lock, LOCK_PEERS);
    p->set = *set;
    return p;
}

void peers_set(struct peers *p, const struct peers_settings *set)
{
    lock_take(&p->lock);
    p->set = *set;
    if (set->again_s == 0) {
        forget_all(p);
    }
    lock_drop(&p->lock);
}

bool peers_on(struct peers *p)
{
    bool on;

    lock_take(&p->lock);
    on = p->set.again_s != 0;
    lock_drop(&p->lock);
    return on;
}

void peers_close(struct peers **pp)
{
    struct peers *p = *pp;

    *pp = NULL;
    if (p != NULL) {
        forget_all(p);
        lock_fini(&p->lock);
        free(p);
    }
}
