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
        struct fetch_stats counted;

        traffic_fetched(t, traffic_repo(t, v->name), &counted);
        sum += ran > counted.bytes ? ran - counted.bytes : 0;
    }
    return sum;
}

void sample_take(const struct admin_parts *parts, struct sample *out)
{
    memset(out, 0, sizeof(*out));
    out->parts = parts;
    out->set = repo_set_hold(parts->repos);
    http_server_stats(parts->http, &out->http);
    out->certificate = mem_array(SAMPLE_CERTIFICATES, sizeof *out->certificate);
    out->certificates =
        http_server_certificates(parts->http, out->certificate, SAMPLE_CERTIFICATES);
    cache_stats(parts->cache, &out->cache);
    serve_stats(parts->serve, &out->serve);
    store_space(parts->store, &out->space);
    out->healthy = store_healthy(parts->store, &out->trouble);
    out->damaged = store_damaged(parts->store, &out->damaged_since_unix_s);
    out->fills = cache_fills(parts->cache, out->fill, SAMPLE_FILLS);
    out->sync = mem_array(SAMPLE_SYNCS, sizeof *out->sync);
    out->syncs = parts->sync != NULL ? sync_glance(parts->sync, out->sync, SAMPLE_SYNCS) : 0;
    out->swarm = mem_array(SAMPLE_SWARMS, sizeof *out->swarm);
    out->swarms = peers_look(parts->peers, clock_now_ms(), out->swarm, SAMPLE_SWARMS);
    peers_stats(parts->peers, &out->peers);
    out->fetched_bytes = fetched(parts->traffic, out->sync, out->syncs);
    modules_sum(parts->modules, &out->rsync);
    out->sent_bytes = out->http.bytes_out + out->rsync.sent_bytes;
    out->ratelimited = gate_limited(parts->gate);
    out->access_log_dropped = access_log_dropped(parts->access);
}

void sample_drop(struct sample *s)
{
    free(s->sync);
    free(s->swarm);
    free(s->certificate);
    repo_set_release(&s->set);
}
