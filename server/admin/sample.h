/* sample.h - the figures of a running daemon at one moment, collected once for metrics, status
 * and the page.
 *
 * owns     sample_drop() releases the repositories
 * threads  any; no disk
 */
#ifndef SERVER_ADMIN_SAMPLE_H
#define SERVER_ADMIN_SAMPLE_H

#include "server/admin/deps.h"
#include "server/request/serve.h"
#include "server/request/traffic.h"
#include "server/sync/sync.h"

enum { SAMPLE_FETCHES = 64, SAMPLE_SYNCS = 256, SAMPLE_SWARMS = 64, SAMPLE_CERTIFICATES = 64 };

struct sample {
    const struct admin_deps *deps;
    struct repo_set *set;
    struct http_stats http;
    struct cache_stats cache;
    struct serve_stats serve;
    struct store_space space;
    bool healthy;
    struct err trouble;                     /* why it is not ready */
    uint64_t damaged, damaged_since_unix_s; /* store_damaged() */
    size_t fetches;
    struct fetch_info fetch[SAMPLE_FETCHES];
    struct sync_view *sync; /* of synced repos */
    size_t syncs;
    struct swarm_view *swarm; /* files that nodes share, the oldest first */
    size_t swarms;
    struct http_certificate *certificate;
    size_t certificates;
    struct peers_stats peers;
    bool clustered; /* `cluster` is valid */
    struct cluster_status cluster;
    struct door_stats rsync;
    uint64_t fetched_bytes; /* from all origins, by any protocol */
    uint64_t sent_bytes;    /* to all clients, including responses that are still in progress */
    uint64_t ratelimited, access_log_dropped;
};

void sample_take(const struct admin_deps *deps, struct sample *out);
void sample_drop(struct sample *s);

#endif
