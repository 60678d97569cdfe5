#include "server/admin/sample.h"

#include <stdlib.h>

#include "common/os/clock.h"
#include "server/live/modules.h"

/* Runs over HTTP count in their repo's slot, too, those of rsync do not. */
static uint64_t fetched(struct traffic *t, const struct sync_view *sync, size_t syncs)
{
    uint64_t sum = traffic_fetched_all(t).bytes;

    for (size_t i = 0; i < syncs; i++) {
        const struct sync_view *v = &sync[i];
        uint64_t ran = v->wire_bytes + (v->running ? v->last.wire_bytes : 0);
        struct origin_request_stats counted;

        traffic_fetched(t, traffic_repo(t, v->name), &counted);
        sum += ran > counted.bytes ? ran - counted.bytes : 0;
    }
    return sum;
}

void sample_take(const struct admin_deps *deps, struct sample *out)
{
    memset(out, 0, sizeof(*out));
    out->deps = deps;
    out->set = repo_set_hold(deps->repos);
    http_server_stats(deps->http, &out->http);
    out->certificate = mem_array(SAMPLE_CERTIFICATES, sizeof *out->certificate);
    out->certificates = http_server_certificates(deps->http, out->certificate, SAMPLE_CERTIFICATES);
    cache_stats(deps->cache, &out->cache);
    serve_stats(deps->serve, &out->serve);
    store_space(deps->store, &out->space);
    out->healthy = store_healthy(deps->store, &out->trouble);
    out->damaged = store_damaged(deps->store, &out->damaged_since_unix_s);
    out->fetches = cache_fetches(deps->cache, out->fetch, SAMPLE_FETCHES);
    out->sync = mem_array(SAMPLE_SYNCS, sizeof *out->sync);
    out->syncs = deps->sync != NULL ? sync_glance(deps->sync, out->sync, SAMPLE_SYNCS) : 0;
    out->swarm = mem_array(SAMPLE_SWARMS, sizeof *out->swarm);
    out->swarms = peers_look(deps->peers, clock_now_ms(), out->swarm, SAMPLE_SWARMS);
    peers_stats(deps->peers, &out->peers);
    out->clustered = deps->cluster != NULL;
    if (out->clustered) {
        cluster_status(deps->cluster, &out->cluster);
    }
    out->fetched_bytes = fetched(deps->traffic, out->sync, out->syncs);
    modules_sum(deps->modules, &out->rsync);
    out->sent_bytes = out->http.bytes_out + out->rsync.sent_bytes;
    out->ratelimited = gate_limited(deps->gate);
    out->access_log_dropped = access_log_dropped(deps->access);
}

void sample_drop(struct sample *s)
{
    free(s->sync);
    free(s->swarm);
    free(s->certificate);
    repo_set_release(&s->set);
}
