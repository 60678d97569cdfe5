#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "common/codec/jwrite.h"
#include "server/admin/trouble.h"
#include "server/live/modules.h"
#include "server/fetch/fetch.h"

/* A ratio that does not exist yet is null, not 0. */
static void ratio(struct buf *out, const struct traffic_sum *sum)
{
    double r = traffic_hit_ratio(sum);

    if (r < 0) {
        jwrite_null(out, "hit_ratio");
    } else {
        jwrite_ratio(out, "hit_ratio", r);
    }
}

static void repo_json(struct buf *out, const struct sample *s, const struct repo *r, bool whole)
{
    struct origin_health health = {0};
    struct fetch_stats up = {0};
    struct traffic_sum sum;

    traffic_sum(s->parts->traffic, r->slot, &sum);
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "name", r->name);
    jwrite_str(out, "protocol", r->ops->name);
    jwrite_bool(out, "anonymous_read", r->anonymous_read);
    if (r->home != NULL && (whole || r->anonymous_read)) {
        jwrite_str(out, "origin", r->home);
    } else {
        jwrite_null(out, "origin");
    }
    jwrite_u64(out, "requests", traffic_requests(&sum));
    jwrite_u64(out, "bytes", traffic_bytes(&sum));
    ratio(out, &sum);
    if (r->origin != NULL) {
        origin_stats(r->origin, &up);
        origin_health(r->origin, &health);
    }
    jwrite_open(out, "upstream", '{');
    jwrite_u64(out, "requests", up.requests);
    jwrite_u64(out, "bytes", up.bytes);
    jwrite_u64(out, "errors", up.errors);
    jwrite_u64(out, "throttled", up.throttled);
    jwrite_u64(out, "failures", health.failures);
    jwrite_close(out, '}');
    jwrite_close(out, '}');
}

static void fill_json(struct buf *out, const struct sample *s, const struct fill_info *f,
                      bool whole)
{
    const struct repo *r = repo_set_find(s->set, slice_str(f->repo));
    bool seen = whole || (r != NULL && r->anonymous_read);

    jwrite_open(out, NULL, '{');
    jwrite_str(out, "repo", f->repo);
    jwrite_text(out, "key", seen ? slice_str(f->key) : SLICE("…"));
    jwrite_u64(out, "have", f->have_bytes);
    if (f->total_bytes == LENGTH_UNKNOWN) {
        jwrite_null(out, "total");
    } else {
        jwrite_u64(out, "total", f->total_bytes);
    }
    jwrite_u64(out, "readers", f->readers);
    jwrite_u64(out, "rate", f->rate_bytes_per_s);
    jwrite_u64(out, "age_ms", f->age_ms);
    jwrite_close(out, '}');
}

static void disk_json(struct buf *out, const struct store_space *sp, bool healthy)
{
    jwrite_open(out, "disk", '{');
    jwrite_u64(out, "used", sp->used_bytes);
    jwrite_u64(out, "quota", sp->quota_bytes);
    jwrite_u64(out, "staged", sp->staged_bytes);
    jwrite_u64(out, "parked", sp->parked_bytes);
    jwrite_u64(out, "free", sp->disk_free_bytes);
    jwrite_u64(out, "blobs", sp->blobs);
    jwrite_bool(out, "full", sp->full);
    jwrite_bool(out, "healthy", healthy);
    jwrite_close(out, '}');
}

static void certificates_json(struct buf *out, const struct sample *s)
{
    int64_t now = (int64_t)clock_unix_s();

    jwrite_open(out, "certificates", '[');
    for (size_t i = 0; i < s->certificates; i++) {
        const struct http_certificate *c = &s->certificate[i];
        int64_t begins = c->valid.begins_unix_s, expires = c->valid.expires_unix_s;
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "listen", c->listen);
        jwrite_u64(out, "valid_from_unix_s", begins > 0 ? (uint64_t)begins : 0);
        jwrite_u64(out, "expires_unix_s", expires > 0 ? (uint64_t)expires : 0);
        jwrite_bool(out, "soon", expires - now < TLS_EXPIRES_SOON_S);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

void status_json(const struct admin_parts *parts, struct slice base_url, bool whole,
                 struct buf *out)
{
    struct traffic_sum all = {0}, one;
    struct fetch_stats up = traffic_fetched_all(parts->traffic);
    struct sample s;

    sample_take(parts, &s);
    for (unsigned i = 1; i < traffic_repos(parts->traffic);
         i++) { /* our own pages are no traffic */
        traffic_sum(parts->traffic, i, &one);
        traffic_join(&all, &one);
    }
    jwrite_open(out, NULL, '{');
    jwrite_text(out, "version", SLICE(MIRROR_VERSION));
    jwrite_text(out, "base_url", base_url);
    jwrite_u64(out, "now_ms", clock_unix_ms());
    jwrite_u64(out, "started_unix_s", parts->lifecycle->started_unix_s);
    jwrite_bool(out, "ready", parts->lifecycle->ready && s.healthy);
    trouble_json(&s, whole, out);
    jwrite_bool(out, "draining", parts->lifecycle->draining);
    jwrite_open(out, "reload", '{');
    jwrite_bool(out, "ok", parts->lifecycle->reload_ok);
    jwrite_u64(out, "count", parts->lifecycle->reloads);
    jwrite_u64(out, "at_unix_s", parts->lifecycle->reload_ok_unix_s);
    jwrite_close(out, '}');
    jwrite_open(out, "connections", '{');
    jwrite_u64(out, "open", s.http.open);
    jwrite_u64(out, "h2", s.http.open_h2);
    jwrite_u64(out, "tls", s.http.open_tls);
    jwrite_close(out, '}');
    certificates_json(out, &s);
    if (modules_address(parts->modules) != NULL) {
        jwrite_open(out, "rsync", '{');
        jwrite_u64(out, "open", s.rsync.open);
        jwrite_u64(out, "served", s.rsync.sessions[DOOR_SERVED]);
        jwrite_u64(out, "files", s.rsync.files);
        jwrite_u64(out, "sent", s.rsync.sent_bytes);
        jwrite_close(out, '}');
    }
    disk_json(out, &s.space, s.healthy);
    jwrite_open(out, "repos", '[');
    for (size_t i = 0; i < s.set->count; i++) {
        repo_json(out, &s, s.set->repo[i], whole);
    }
    jwrite_close(out, ']');
    sync_status_json(&s, whole, out);
    jwrite_open(out, "fills", '[');
    for (size_t i = 0; i < s.fills; i++) {
        fill_json(out, &s, &s.fill[i], whole);
    }
    jwrite_close(out, ']');
    if (s.set->conf->peers.again_s != 0) {
        swarms_status_json(&s, whole, out);
    }
    jwrite_u64(out, "requests", traffic_requests(&all));
    jwrite_u64(out, "bytes_out", traffic_bytes(&all));
    ratio(out, &all);
    jwrite_u64(out, "upstream_requests", up.requests);
    jwrite_u64(out, "upstream_bytes", s.fetched_bytes);
    jwrite_close(out, '}');
    buf_byte(out, '\n');
    sample_drop(&s);
}
