#include "server/peers/peers.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <uthash.h>

#include "common/os/lock.h"

/* What announcements may make us keep, whoever sends them. */
enum { BYTES_MAX = 256 << 20 };

struct
    account { /* of a client that began swarms: they are on its account, with all of their members */
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

static struct swarm_rules rules_of(const struct peers *p)
{
    return (struct swarm_rules){p->set.again_s, (uint64_t)p->set.lease_s * 1000, p->set.members};
}

static size_t chunks_of(uint64_t size_bytes)
{
    return (size_t)((size_bytes + CHUNK_BYTES - 1) / CHUNK_BYTES);
}

static struct entry *find(const struct peers *p, const struct digest *d)
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

/* --- swarms --- */

static void forget(struct peers *p, struct entry *x)
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
static void settle(struct peers *p, struct entry *x)
{
    size_t chunks = chunks_of(x->size_bytes);
    size_t members = swarm_members(x->swarm);
    uint64_t handed = swarm_handed(x->swarm);

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
        forget(p, x);
    }
}

static struct entry *begin(struct peers *p, const struct digest *d, uint64_t size_bytes,
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

/* The youngest swarm of the client that has most, when that is more than this client has with what comes: its members bring the
 * file from here alone. False: there is none such. */
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
    forget(p, youngest);
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
        return err_set(e, E_BUSY, "%d blobs are shared already, no more are led", SWARMS_MAX);
    }
    while (more > BYTES_MAX - p->bytes && give_way(p, client, more, true)) {
    }
    if (more > BYTES_MAX - p->bytes) {
        return err_set(e, E_BUSY,
                       "the notes on who has what have reached %d MiB, no more are taken",
                       BYTES_MAX >> 20);
    }
    return 0;
}

static int announce(struct peers *p, const struct digest *d, uint64_t size_bytes, uint64_t client,
                    const struct node_announcement *a, const uint8_t from[SWARM_ADDRESS],
                    uint64_t now_ms, struct swarm_answer *out, bool *began, struct err *e)
{
    struct swarm_rules rules = rules_of(p);
    struct entry *x = find(p, d);
    int rc;

    if (p->set.again_s == 0) {
        return err_set(e, E_NOTFOUND, "nodes share nothing through this mirror");
    }
    if (x != NULL) {
        swarm_expire(x->swarm, &rules, now_ms);
        settle(p, x);
        x = find(p, d); /* the last member may have gone with it, and so its key */
    }
    if (x == NULL || !swarm_knows(x->swarm, a->id)) {
        rc = room_for(p, x, size_bytes, client, e);
        if (rc != 0) {
            return rc;
        }
    }
    *began = x == NULL;
    if (x == NULL) {
        x = begin(p, d, size_bytes, client, now_ms);
    }
    rc = swarm_announce(x->swarm, a, from, &rules, now_ms, out, e);
    settle(p, x);
    return rc;
}

int peers_announce(struct peers *p, const struct digest *d, uint64_t size_bytes, uint64_t client,
                   const struct node_announcement *a, const uint8_t from[SWARM_ADDRESS],
                   uint64_t now_ms, struct swarm_answer *out, bool *began, struct err *e)
{
    int rc;

    *began = false;
    lock_take(&p->lock);
    rc = announce(p, d, size_bytes, client, a, from, now_ms, out, began, e);
    p->announcements += rc == 0;
    p->refused += rc == E_BUSY;
    lock_drop(&p->lock);
    return rc;
}

void peers_leave(struct peers *p, const struct digest *d, const uint8_t id[ANNOUNCEMENT_ID])
{
    struct entry *x;

    lock_take(&p->lock);
    x = find(p, d);
    if (x != NULL) {
        swarm_leave(x->swarm, id);
        settle(p, x);
    }
    lock_drop(&p->lock);
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
    x = find(p, d);
    if (x != NULL) {
        copy_name(x->repo, repo);
        copy_name(x->key, key);
    }
    lock_drop(&p->lock);
}

void peers_tick(struct peers *p, uint64_t now_ms)
{
    struct entry *x, *next;
    struct swarm_rules rules;

    lock_take(&p->lock);
    rules = rules_of(p);
    HASH_ITER(hh, p->all, x, next)
    {
        swarm_expire(x->swarm, &rules, now_ms);
        settle(p, x);
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
        forget(p, x);
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
