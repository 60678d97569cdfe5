#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/jo.h"
#include "server/admin/sample.h"
#include "server/fetch/fetch.h"

/* A ratio that does not exist yet is null, not 0. */
static void ratio(struct buf *out, const struct traffic_sum *sum)
{
    double r = traffic_hit_ratio(sum);

    if (r < 0) {
        jo_null(out, "hit_ratio");
    } else {
        jo_ratio(out, "hit_ratio", r);
    }
}

static void repo_json(struct buf *out, const struct sample *s, const struct repo *r, bool whole)
{
    struct fetch_stats up = {0};
    struct traffic_sum sum;

    traffic_sum(s->d->traffic, r->slot, &sum);
    jo_open(out, NULL, '{');
    jo_str(out, "name", slice_str(r->name));
    jo_str(out, "protocol", slice_str(r->ops->name));
    jo_bool(out, "anonymous_read", r->anonymous_read);
    if (r->home != NULL && (whole || r->anonymous_read)) {
        jo_str(out, "origin", slice_str(r->home));
    } else {
        jo_null(out, "origin");
    }
    jo_u64(out, "requests", traffic_requests(&sum));
    jo_u64(out, "bytes", traffic_bytes(&sum));
    ratio(out, &sum);
    if (r->origin != NULL) {
        origin_stats(r->origin, &up);
    }
    jo_open(out, "upstream", '{');
    jo_u64(out, "requests", up.requests);
    jo_u64(out, "bytes", up.bytes);
    jo_u64(out, "errors", up.errors);
    jo_u64(out, "throttled", up.throttled);
    jo_shut(out, '}');
    jo_shut(out, '}');
}

static void fill_json(struct buf *out, const struct sample *s, const struct fill_info *f,
                      bool whole)
{
    const struct repo *r = repo_set_find(s->set, slice_str(f->repo));
    bool seen = whole || (r != NULL && r->anonymous_read);

    jo_open(out, NULL, '{');
    jo_str(out, "repo", slice_str(f->repo));
    jo_str(out, "key", seen ? slice_str(f->key) : SLICE("…"));
    jo_u64(out, "have", f->have_bytes);
    if (f->total_bytes == LENGTH_UNKNOWN) {
        jo_null(out, "total");
    } else {
        jo_u64(out, "total", f->total_bytes);
    }
    jo_u64(out, "readers", f->readers);
    jo_u64(out, "rate", f->rate_bytes_per_s);
    jo_u64(out, "age_ms", f->age_ms);
    jo_shut(out, '}');
}

static void disk_json(struct buf *out, const struct store_space *sp, bool healthy)
{
    jo_open(out, "disk", '{');
    jo_u64(out, "used", sp->used_bytes);
    jo_u64(out, "quota", sp->quota_bytes);
    jo_u64(out, "staged", sp->staged_bytes);
    jo_u64(out, "parked", sp->parked_bytes);
    jo_u64(out, "free", sp->disk_free_bytes);
    jo_u64(out, "blobs", sp->blobs);
    jo_bool(out, "full", sp->full);
    jo_bool(out, "healthy", healthy);
    jo_shut(out, '}');
}

void status_json(struct daemon *d, struct slice base_url, bool whole, struct buf *out)
{
    struct traffic_sum all = {0}, one;
    struct fetch_stats up = traffic_fetched_all(d->traffic);
    struct sample s;

    sample_take(d, &s);
    for (unsigned i = 1; i < traffic_repos(d->traffic); i++) { /* our own pages are no traffic */
        traffic_sum(d->traffic, i, &one);
        traffic_join(&all, &one);
    }
    jo_open(out, NULL, '{');
    jo_str(out, "version", SLICE(MIRROR_VERSION));
    jo_str(out, "base_url", base_url);
    jo_u64(out, "now_ms", clock_unix_ms());
    jo_u64(out, "started_unix_s", d->started_unix_s);
    jo_bool(out, "ready", d->ready && s.healthy);
    jo_bool(out, "draining", d->draining);
    jo_open(out, "reload", '{');
    jo_bool(out, "ok", d->reload_ok);
    jo_u64(out, "count", d->reloads);
    jo_u64(out, "at_unix_s", d->reload_ok_unix_s);
    jo_shut(out, '}');
    jo_open(out, "connections", '{');
    jo_u64(out, "open", s.http.open);
    jo_u64(out, "h2", s.http.open_h2);
    jo_u64(out, "tls", s.http.open_tls);
    jo_shut(out, '}');
    if (d->doors_count > 0) {
        jo_open(out, "rsync", '{');
        jo_u64(out, "open", s.rsync.open);
        jo_u64(out, "served", s.rsync.sessions[DOOR_SERVED]);
        jo_u64(out, "files", s.rsync.files);
        jo_u64(out, "sent", s.rsync.sent_bytes);
        jo_shut(out, '}');
    }
    disk_json(out, &s.space, s.healthy);
    jo_open(out, "repos", '[');
    for (size_t i = 0; i < s.set->count; i++) {
        repo_json(out, &s, s.set->repo[i], whole);
    }
    jo_shut(out, ']');
    sync_status_json(&s, whole, out);
    jo_open(out, "fills", '[');
    for (size_t i = 0; i < s.fills; i++) {
        fill_json(out, &s, &s.fill[i], whole);
    }
    jo_shut(out, ']');
    jo_u64(out, "requests", traffic_requests(&all));
    jo_u64(out, "bytes_out", traffic_bytes(&all));
    ratio(out, &all);
    jo_u64(out, "upstream_requests", up.requests);
    jo_u64(out, "upstream_bytes", up.bytes);
    jo_shut(out, '}');
    buf_byte(out, '\n');
    sample_drop(&s);
}
