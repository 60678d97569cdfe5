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

void sample_take(struct daemon *d, struct sample *out)
{
    memset(out, 0, sizeof(*out));
    out->d = d;
    out->set = repo_set_hold(d->repos);
    http_server_stats(d->http, &out->http);
    out->certificate = mem_array(SAMPLE_CERTIFICATES, sizeof *out->certificate);
    out->certificates = http_server_certificates(d->http, out->certificate, SAMPLE_CERTIFICATES);
    cache_stats(d->cache, &out->cache);
    serve_stats(d->serve, &out->serve);
    store_space(d->store, &out->space);
    out->healthy = store_healthy(d->store, &out->trouble);
    out->damaged = store_damaged(d->store, &out->damaged_since_unix_s);
    out->fills = cache_fills(d->cache, out->fill, SAMPLE_FILLS);
    out->sync = mem_array(SAMPLE_SYNCS, sizeof *out->sync);
    out->syncs = d->sync != NULL ? sync_glance(d->sync, out->sync, SAMPLE_SYNCS) : 0;
    out->swarm = mem_array(SAMPLE_SWARMS, sizeof *out->swarm);
    out->swarms = peers_look(d->peers, clock_now_ms(), out->swarm, SAMPLE_SWARMS);
    peers_stats(d->peers, &out->peers);
    out->fetched_bytes = fetched(d->traffic, out->sync, out->syncs);
    modules_sum(d->modules, &out->rsync);
    out->ratelimited = gate_limited(d->gate);
    out->access_log_dropped = access_log_dropped(d->access);
}

void sample_drop(struct sample *s)
{
    free(s->sync);
    free(s->swarm);
    free(s->certificate);
    repo_set_release(&s->set);
}
