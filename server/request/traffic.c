#include "server/request/traffic.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "common/os/lock.h"

const double traffic_bounds_s[TRAFFIC_BUCKETS] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05,
                                                  0.1,    0.5,   1,      5,     30,   300};

/* One writer a cell: a relaxed load and store, no locked instruction. Readers may see a sum one
 * event old. */
typedef _Atomic uint64_t cell;

static void cell_add(cell *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static uint64_t cell_read(const cell *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

struct tally {
    cell requests[TRAFFIC_CLASSES][TRAFFIC_STATES];
    cell bytes[TRAFFIC_STATES];
    cell cut;
};

struct shard {
    cell bucket[TRAFFIC_BUCKETS + 1];
    cell sum_ns;
    struct tally repo[TRAFFIC_REPOS];
};

struct traffic {
    struct lock lock; /* guards names as they are given */
    _Atomic unsigned repos;
    char *name[TRAFFIC_REPOS];
    _Atomic bool fetches[TRAFFIC_REPOS];
    struct origin_request_counters upstream[TRAFFIC_REPOS];
    unsigned shards;
    struct shard *shard[];
};

struct traffic *traffic_open(unsigned shards)
{
    struct traffic *t = mem_new(sizeof(*t) + shards * sizeof(t->shard[0]));

    lock_init(&t->lock, LOCK_METRIC);
    t->shards = shards;
    for (unsigned i = 0; i < shards; i++) {
        t->shard[i] = NEW(struct shard);
    }
    for (unsigned i = 0; i < TRAFFIC_REPOS; i++) {
        origin_request_counters_init(&t->upstream[i]);
    }
    t->name[TRAFFIC_OWN] = mem_strdup("-");
    t->repos = 1;
    return t;
}

unsigned traffic_repo(struct traffic *t, const char *name)
{
    unsigned i;

    lock_take(&t->lock);
    for (i = 0; i < t->repos && strcmp(t->name[i], name) != 0; i++) {
    }
    if (i == t->repos && i < TRAFFIC_REPOS) {
        /* '*' is no repo's name: the last slot is everybody else's. */
        t->name[i] = mem_strdup(i == TRAFFIC_REPOS - 1 ? "*" : name);
        t->repos = i + 1; /* after the name: readers take no lock */
    }
    lock_drop(&t->lock);
    return i < TRAFFIC_REPOS ? i : TRAFFIC_REPOS - 1;
}

/* Where the origins of that repo count. */
static struct origin_request_counters *upstream(struct traffic *t, unsigned repo)
{
    CHECK(repo < t->repos);
    atomic_store(&t->fetches[repo], true);
    return &t->upstream[repo];
}

void traffic_follow(struct traffic *t, const struct repo_set *rs)
{
    for (size_t i = 0; i < rs->count; i++) {
        struct repo *r = rs->repo[i];
        r->slot = traffic_repo(t, r->name);
        if (r->origin != NULL) {
            origin_count_in(r->origin, upstream(t, r->slot));
        }
    }
}

bool traffic_fetched(struct traffic *t, unsigned repo, struct origin_request_stats *out)
{
    CHECK(repo < t->repos);
    origin_request_stats_read(&t->upstream[repo], out);
    return atomic_load(&t->fetches[repo]);
}

struct origin_request_stats traffic_fetched_all(struct traffic *t)
{
    struct origin_request_stats sum = {0}, one;

    for (unsigned i = 0; i < t->repos; i++) {
        origin_request_stats_read(&t->upstream[i], &one);
        sum.requests += one.requests;
        sum.bytes += one.bytes;
        sum.errors += one.errors;
        sum.throttled += one.throttled;
    }
    return sum;
}

static unsigned bucket_of(uint64_t took_ns)
{
    double took_s = (double)took_ns / 1e9;
    unsigned i = 0;

    while (i < TRAFFIC_BUCKETS && took_s > traffic_bounds_s[i]) {
        i++;
    }
    return i;
}

void traffic_add(struct traffic *t, unsigned shard, const struct traffic_event *ev)
{
    int class = ev->status / 100;
    struct shard *s;
    struct tally *r;

    CHECK(shard < t->shards && ev->repo < TRAFFIC_REPOS && ev->state < TRAFFIC_STATES);
    if (class < 1 || class > TRAFFIC_CLASSES) {
        class = TRAFFIC_CLASSES;
    }
    s = t->shard[shard];
    r = &s->repo[ev->repo];
    cell_add(&r->requests[class - 1][ev->state], 1);
    cell_add(&r->bytes[ev->state], ev->bytes);
    if (!ev->complete) {
        cell_add(&r->cut, 1);
    }
    cell_add(&s->bucket[bucket_of(ev->took_ns)], 1);
    cell_add(&s->sum_ns, ev->took_ns);
}

void traffic_close(struct traffic **tp)
{
    struct traffic *t = *tp;

    *tp = NULL;
    if (t == NULL) {
        return;
    }
    for (unsigned i = 0; i < t->shards; i++) {
        free(t->shard[i]);
    }
    for (unsigned i = 0; i < t->repos; i++) {
        free(t->name[i]);
    }
    for (unsigned i = 0; i < TRAFFIC_REPOS; i++) {
        origin_request_counters_fini(&t->upstream[i]);
    }
    lock_fini(&t->lock);
    free(t);
}

unsigned traffic_repos(struct traffic *t)
{
    return t->repos;
}

const char *traffic_repo_name(struct traffic *t, unsigned repo)
{
    CHECK(repo < t->repos);
    return t->name[repo];
}

void traffic_sum(struct traffic *t, unsigned repo, struct traffic_sum *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < t->shards; i++) {
        const struct tally *r = &t->shard[i]->repo[repo];
        for (unsigned s = 0; s < TRAFFIC_STATES; s++) {
            for (unsigned c = 0; c < TRAFFIC_CLASSES; c++) {
                out->requests[c][s] += cell_read(&r->requests[c][s]);
            }
            out->bytes[s] += cell_read(&r->bytes[s]);
        }
        out->cut += cell_read(&r->cut);
    }
}

void traffic_join(struct traffic_sum *to, const struct traffic_sum *sum)
{
    for (unsigned s = 0; s < TRAFFIC_STATES; s++) {
        for (unsigned c = 0; c < TRAFFIC_CLASSES; c++) {
            to->requests[c][s] += sum->requests[c][s];
        }
        to->bytes[s] += sum->bytes[s];
    }
    to->cut += sum->cut;
}

uint64_t traffic_requests(const struct traffic_sum *s)
{
    uint64_t n = 0;

    for (unsigned c = 0; c < TRAFFIC_CLASSES; c++) {
        for (unsigned st = 0; st < TRAFFIC_STATES; st++) {
            n += s->requests[c][st];
        }
    }
    return n;
}

uint64_t traffic_bytes(const struct traffic_sum *s)
{
    uint64_t n = 0;

    for (unsigned st = 0; st < TRAFFIC_STATES; st++) {
        n += s->bytes[st];
    }
    return n;
}

void traffic_times(struct traffic *t, struct traffic_times *out)
{
    memset(out, 0, sizeof(*out));
    for (unsigned i = 0; i < t->shards; i++) {
        for (unsigned b = 0; b <= TRAFFIC_BUCKETS; b++) {
            uint64_t n = cell_read(&t->shard[i]->bucket[b]);
            out->bucket[b] += n;
            out->count += n; /* summed here, so that count always equals the buckets */
        }
        out->sum_ns += cell_read(&t->shard[i]->sum_ns);
    }
}

const char *traffic_state_name(unsigned state)
{
    static const char *const names[TRAFFIC_STATES] = {
        [CACHE_HIT] = "hit",
        [CACHE_MISS] = "miss",
        [CACHE_COLLAPSED] = "collapsed",
        [CACHE_REVALIDATED] = "revalidated",
        [CACHE_REFRESHED] = "refreshed",
        [CACHE_STALE] = "stale",
        [CACHE_UPDATING] = "updating",
        [CACHE_NEGATIVE] = "negative",
        [CACHE_FAILED] = "failed",
        [TRAFFIC_UNCACHED] = "none",
    };
    CHECK(state < TRAFFIC_STATES);
    return names[state];
}

double traffic_hit_ratio(const struct traffic_sum *s)
{
    uint64_t by_state[TRAFFIC_STATES] = {0}, all = 0;

    for (unsigned i = 0; i < TRAFFIC_UNCACHED; i++) {
        for (unsigned c = 0; c < TRAFFIC_CLASSES; c++) {
            by_state[i] += s->requests[c][i];
        }
        all += by_state[i];
    }
    if (all == 0) {
        return -1;
    }
    return (double)(by_state[CACHE_HIT] + by_state[CACHE_STALE] + by_state[CACHE_UPDATING] +
                    by_state[CACHE_NEGATIVE] + by_state[CACHE_COLLAPSED]) /
           (double)all;
}
