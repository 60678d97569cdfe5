#include "server/cluster/owners.h"

#include <openssl/crypto.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/lock.h"
#include "server/cluster/rendezvous.h"
#include "server/cluster/rests.h"
#include "server/cluster/signature.h"

#define PURPOSE "object"

enum {
    CONNECTIONS = 64,
    CONNECT_MS = 2000,
    STALL_MS = 60000, /* longer than the owner waits for its origin */
};

struct peer {
    char node[MEMBER_ID_ROOM];
    char address[MEMBER_ADDRESS_ROOM];
    struct origin *origin;
    uint64_t used; /* number of the last choice; a place is needed: the least one goes */
};

struct owners {
    struct members *members;
    const char *node;
    uint32_t weight; /* 0: others cannot ask this mirror */
    char *secret;
    struct origin_request_counters count; /* of all */
    struct lock lock;                     /* LOCK_OWNERS; guards what follows */
    struct peer peer[MEMBERS_MAX];
    size_t peers;
    struct rests rests;
    uint64_t choices;
};

/* --- ranks --- */

struct ranked {
    const struct member *member;
    double score;
};

/* The highest of n, in order. */
static void rank(const struct member *m, size_t n, struct slice key,
                 struct ranked top[NEIGHBORS_MAX])
{
    memset(top, 0, NEIGHBORS_MAX * sizeof top[0]);
    for (size_t i = 0; i < n; i++) {
        struct ranked r = {&m[i], rendezvous_score(m[i].node, m[i].weight, key)};
        for (size_t k = 0; k < NEIGHBORS_MAX && r.member != NULL; k++) {
            if (top[k].member == NULL || r.score > top[k].score) {
                struct ranked lower = top[k];
                top[k] = r;
                r = lower;
            }
        }
    }
}

/* --- origins that stand for mirrors. Under the lock --- */

static struct peer *peer_find(struct owners *o, const char *node)
{
    for (size_t i = 0; i < o->peers; i++) {
        if (strcmp(o->peer[i].node, node) == 0) {
            return &o->peer[i];
        }
    }
    return NULL;
}

static struct peer *peer_place(struct owners *o)
{
    struct peer *p = &o->peer[0];

    if (o->peers < ARRAY_LEN(o->peer)) {
        return &o->peer[o->peers++];
    }
    for (size_t i = 1; i < o->peers; i++) {
        p = o->peer[i].used < p->used ? &o->peer[i] : p;
    }
    return p;
}

/* NULL: its address is no URL. */
static struct peer *peer_of(struct owners *o, const struct member *m)
{
    struct peer *p = peer_find(o, m->node);
    char url[MEMBER_ADDRESS_ROOM + 1];
    struct origin_settings set = {.url = url,
                                  .kind = "mirror",
                                  .connections = CONNECTIONS,
                                  .connect_ms = CONNECT_MS,
                                  .stall_ms = STALL_MS};
    struct origin *origin = NULL;
    struct err e;

    if (p != NULL && strcmp(p->address, m->address) == 0) {
        p->used = ++o->choices;
        return p;
    }
    snprintf(url, sizeof url, "%s/", m->address);
    if (origin_new("cluster", &set, &origin, &e) != 0) {
        log_debug("cluster.address", "node=%s why=\"%s\"", m->node, e.text);
        return NULL;
    }
    origin_count_in(origin, &o->count);
    p = p != NULL ? p : peer_place(o);
    origin_free(&p->origin);
    *p = (struct peer){.origin = origin, .used = ++o->choices};
    snprintf(p->node, sizeof p->node, "%s", m->node);
    snprintf(p->address, sizeof p->address, "%s", m->address);
    return p;
}

/* --- what the cache asks --- */

/* Leaves out those that cannot be asked now. */
static size_t askable(struct owners *o, struct member out[MEMBERS_MAX])
{
    size_t n = members_others(o->members, out, MEMBERS_MAX), kept = 0;
    uint64_t now_ms = clock_now_ms();

    lock_take(&o->lock);
    for (size_t i = 0; i < n; i++) {
        if (out[i].state == MEMBER_READY && out[i].address[0] != '\0' &&
            !rests_has(&o->rests, out[i].node, now_ms)) {
            out[kept++] = out[i];
        }
    }
    lock_drop(&o->lock);
    return kept;
}

static unsigned add_neighbor(struct owners *o, const struct member *m, bool sibling,
                             struct neighbor *out)
{
    struct peer *p;

    lock_take(&o->lock);
    p = peer_of(o, m);
    if (p != NULL) {
        *out = (struct neighbor){origin_hold(p->origin), sibling};
    }
    lock_drop(&o->lock);
    return p != NULL;
}

static unsigned choose(void *arg, struct slice row_key, bool sibling,
                       struct neighbor out[NEIGHBORS_MAX])
{
    struct owners *o = arg;
    struct member other[MEMBERS_MAX];
    size_t n = askable(o, other);
    double mine = o->weight != 0 ? rendezvous_score(o->node, o->weight, row_key) : 0;
    struct ranked top[NEIGHBORS_MAX];
    unsigned count = 0;

    rank(other, n, row_key, top);
    if (top[0].member == NULL) {
        return 0;
    }
    if (sibling || mine > top[0].score) {
        for (size_t i = 0; i < NEIGHBORS_MAX && top[i].member != NULL; i++) {
            count += add_neighbor(o, top[i].member, true, &out[count]);
        }
        return count;
    }
    count += add_neighbor(o, top[0].member, false, &out[count]);
    if (top[1].member != NULL && top[1].score > mine) {
        count += add_neighbor(o, top[1].member, false, &out[count]);
    }
    return count;
}

static struct peer *peer_by_origin(struct owners *o, const struct origin *origin)
{
    for (size_t i = 0; i < o->peers; i++) {
        if (o->peer[i].origin == origin) {
            return &o->peer[i];
        }
    }
    return NULL;
}

/* False: that mirror's place was needed for another one. */
static bool node_of(struct owners *o, const struct origin *origin, char node[MEMBER_ID_ROOM])
{
    const struct peer *p;

    lock_take(&o->lock);
    p = peer_by_origin(o, origin);
    snprintf(node, MEMBER_ID_ROOM, "%s", p != NULL ? p->node : "");
    lock_drop(&o->lock);
    return p != NULL;
}

static bool is_alive(void *arg, const struct origin *origin)
{
    struct owners *o = arg;
    char node[MEMBER_ID_ROOM];

    return node_of(o, origin, node) && members_is_alive(o->members, node);
}

static void let_rest(void *arg, const struct origin *origin, int rc)
{
    struct owners *o = arg;
    char node[MEMBER_ID_ROOM];

    if (node_of(o, origin, node)) {
        lock_take(&o->lock);
        rests_add(&o->rests, node, clock_now_ms(),
                  rc == E_TIMEOUT ? OWNER_SILENT_REST_MS : OWNER_BROKE_REST_MS);
        lock_drop(&o->lock);
    }
}

void owners_heard(struct owners *o, const char *node)
{
    lock_take(&o->lock);
    rests_end(&o->rests, node);
    lock_drop(&o->lock);
}

static void sign_lookup(void *arg, struct slice text, char out[NEIGHBOR_SIGNATURE_ROOM])
{
    const struct owners *o = arg;

    signature_make(o->secret, PURPOSE, text, out);
}

const struct neighbor_ops owners_ops = {choose, is_alive, let_rest, sign_lookup};

bool owners_signed(const struct owners *o, struct slice text, struct slice signature)
{
    return signature_is(o->secret, PURPOSE, text, signature);
}

void owners_stats(const struct owners *o, struct origin_request_stats *out)
{
    origin_request_stats_read(&o->count, out);
}

/* --- open and close --- */

struct owners *owners_open(struct members *m, const char *node, uint32_t weight, const char *secret)
{
    struct owners *o = NEW(struct owners);

    *o =
        (struct owners){.members = m, .node = node, .weight = weight, .secret = mem_strdup(secret)};
    origin_request_counters_init(&o->count);
    lock_init(&o->lock, LOCK_OWNERS);
    return o;
}

void owners_close(struct owners **op)
{
    struct owners *o = *op;

    *op = NULL;
    if (o == NULL) {
        return;
    }
    for (size_t i = 0; i < o->peers; i++) {
        origin_free(&o->peer[i].origin);
    }
    lock_fini(&o->lock);
    origin_request_counters_fini(&o->count);
    OPENSSL_cleanse(o->secret, strlen(o->secret));
    free(o->secret);
    free(o);
}
