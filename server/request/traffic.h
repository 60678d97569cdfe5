/* traffic.h - counts what was answered, by repo, class of status and cache state, with a histogram
 * of durations.
 *
 * Each loop writes its own shard, so counting takes a few plain additions; readers sum the shards.
 * A repo's slot lasts for the life of the process, because a counter must not go back on a reload.
 * Slot 0 is for our own paths; the last slot is shared by repos that got none. Requests to a repo's
 * origins are counted in its slot by the fetches themselves.
 *
 * owns     struct traffic, from traffic_open() to traffic_close()
 * threads  traffic_add(): the loop that owns the shard, wait-free; traffic_repo(): any, a short
 *          lock; sums: any, racy
 */
#ifndef SERVER_REQUEST_TRAFFIC_H
#define SERVER_REQUEST_TRAFFIC_H

#include "server/cache/cache.h"
#include "server/fetch/origin.h"
#include "server/live/repo_set.h"

enum {
    TRAFFIC_OWN = 0,
    TRAFFIC_REPOS = 128,
    TRAFFIC_CLASSES = 5, /* 1xx .. 5xx */
    TRAFFIC_UNCACHED =
        CACHE_FAILED + 1, /* answered without the cache: hosted files, refusals, our own pages */
    TRAFFIC_STATES = TRAFFIC_UNCACHED + 1,
    TRAFFIC_BUCKETS = 12,
};

struct traffic;
struct traffic_event {
    unsigned repo;  /* of traffic_repo(), or TRAFFIC_OWN */
    int status;     /* 0: no answer was begun, which counts as 5xx */
    unsigned state; /* enum cache_state, or TRAFFIC_UNCACHED */
    uint64_t bytes; /* of the body, sent */
    uint64_t took_ns;
    bool complete;
};

struct traffic *traffic_open(unsigned shards); /* loops_count() */
/* The slot of a repo's name; it never changes. */
unsigned traffic_repo(struct traffic *t, const char *name);
/* Gives each repo of a set that is not yet in force its slot, which its origins also count in. */
void traffic_follow(struct traffic *t, const struct repo_set *rs);
bool traffic_fetched(struct traffic *t, unsigned repo,
                     struct origin_request_stats *out); /* false: never had an origin */
struct origin_request_stats traffic_fetched_all(struct traffic *t);
void traffic_add(struct traffic *t, unsigned shard, const struct traffic_event *ev);
void traffic_close(struct traffic **tp);

struct traffic_sum { /* of one repo, or of all */
    uint64_t requests[TRAFFIC_CLASSES][TRAFFIC_STATES];
    uint64_t bytes[TRAFFIC_STATES];
    uint64_t cut; /* answers that were cut short */
};
struct traffic_times {
    uint64_t bucket[TRAFFIC_BUCKETS + 1]; /* not cumulative; the last one is above every bound */
    uint64_t sum_ns, count;
};
extern const double traffic_bounds_s[TRAFFIC_BUCKETS];

unsigned traffic_repos(struct traffic *t); /* slots in use: 0 .. n-1 */
const char *traffic_repo_name(struct traffic *t, unsigned repo);
void traffic_sum(struct traffic *t, unsigned repo, struct traffic_sum *out);
void traffic_join(struct traffic_sum *to, const struct traffic_sum *sum); /* adds it */
uint64_t traffic_requests(const struct traffic_sum *s);
uint64_t traffic_bytes(const struct traffic_sum *s);
void traffic_times(struct traffic *t, struct traffic_times *out);
/* "hit", "miss", ... as in labels; "none" for TRAFFIC_UNCACHED. */
const char *traffic_state_name(unsigned state);
/* The share of answers from the cache that needed no request to the origin; negative when there
 * were none. */
double traffic_hit_ratio(const struct traffic_sum *s);

#endif
