/* status.c - what the daemon does now, as JSON: /-/status.json, which the page reads;
 * /-/tunasync.json, synced repos as tunasync's managers tell theirs; and for verb peers.ls the
 * files that nodes share.
 */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "common/codec/jwrite.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/sample.h"
#include "server/admin/talk.h"
#include "server/admin/trouble.h"
#include "server/fetch/request.h"
#include "server/live/modules.h"

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
    struct origin_request_stats up = {0};
    struct traffic_sum sum;

    traffic_sum(s->deps->traffic, r->slot, &sum);
    jwrite_open(out, NULL, '{');
    jwrite_str(out, "name", r->name);
    jwrite_str(out, "protocol", r->ops->name);
    jwrite_bool(out, "anonymous_read", r->anonymous_read);
    if (r->shown_origin != NULL && (whole || r->anonymous_read)) {
        jwrite_str(out, "origin", r->shown_origin);
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

static void fetch_json(struct buf *out, const struct sample *s, const struct fetch_info *f,
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

/* --- synced repos ----------------------------------------------------------------------------- */

const char *sync_word(const struct sync_view *v)
{
    /* One that was held and waits no more has been approved. */
    enum run_outcome last = v->last.outcome == RUN_HELD ? RUN_PUBLISHED : v->last.outcome;

    return v->running         ? run_stage_name(v->last.stage)
           : v->paused        ? "paused"
           : v->held_seq != 0 ? "held"
           : v->hold          ? "on hold"
           : v->waiting       ? "waiting"
           : !v->ever         ? "none"
                              : run_outcome_name(last);
}

static bool is_public(const struct sample *s, const struct sync_view *v)
{
    const struct repo *r = repo_set_find(s->set, slice_str(v->name));

    return r != NULL && r->anonymous_read;
}

static void syncs_json(const struct sample *s, bool whole, struct buf *out)
{
    jwrite_open(out, "sync", '[');
    for (size_t i = 0; i < s->syncs; i++) {
        const struct sync_view *v = &s->sync[i];
        bool seen = whole || is_public(s, v);
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "repo", v->name);
        jwrite_str(out, "state", sync_word(v));
        jwrite_text(out, "why", seen ? slice_str(v->last.why) : SLICE(""));
        jwrite_u64(out, "seq", v->head.seq);
        jwrite_u64(out, "held_seq", v->held_seq);
        jwrite_u64(out, "entries", v->head.entries);
        jwrite_u64(out, "bytes", v->head.bytes);
        jwrite_u64(out, "last_ok_unix_s", v->last_ok_unix_s);
        jwrite_u64(out, "next_unix_s", v->paused ? 0 : v->next_unix_s);
        jwrite_u64(out, "failures", v->failures);
        jwrite_u64(out, "files_todo", v->last.files_todo);
        jwrite_u64(out, "files_done", v->last.files_done);
        jwrite_u64(out, "bytes_todo", v->last.bytes_todo);
        jwrite_u64(out, "bytes_done", v->last.bytes_done);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

/* --- files that nodes share ------------------------------------------------------------------- */

bool swarm_is_public(const struct sample *s, const struct swarm_view *v)
{
    const struct repo *r = repo_set_find(s->set, slice_str(v->repo));

    return r != NULL && r->anonymous_read;
}

static void swarm_json(const struct swarm_view *v, bool seen, struct buf *out)
{
    if (seen) {
        jwrite_hex(out, "digest", v->digest.b, sizeof v->digest.b);
        jwrite_str(out, "repo", v->repo);
        jwrite_str(out, "key", v->key);
    } else { /* not even which repo: its name says that somebody pulls from it now */
        jwrite_null(out, "digest");
        jwrite_null(out, "repo");
        jwrite_null(out, "key");
    }
    jwrite_u64(out, "size", v->size_bytes);
    jwrite_u64(out, "members", v->count.members);
    jwrite_u64(out, "givers", v->count.givers);
    jwrite_u64(out, "chunks", v->count.chunks);
    jwrite_u64(out, "had", v->count.had);
    jwrite_u64(out, "asked", v->count.asked);
    jwrite_u64(out, "age_ms", v->age_ms);
}

static void swarms_json(const struct sample *s, bool whole, struct buf *out)
{
    jwrite_open(out, "swarms", '[');
    for (size_t i = 0; i < s->swarms; i++) {
        jwrite_open(out, NULL, '{');
        swarm_json(&s->swarm[i], whole || swarm_is_public(s, &s->swarm[i]), out);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

int verb_peers_ls(struct talk *t, struct err *e)
{
    struct swarm_view *v = mem_array(SWARMS_MAX, sizeof *v);
    size_t n = peers_look(t->deps->peers, clock_now_ms(), v, SWARMS_MAX);
    int rc = peers_on(t->deps->peers)
                 ? 0
                 : err_set(e, E_NOTFOUND,
                           "nodes cannot share files through this mirror: it has no peers "
                           "section; write peers { } into its configuration");

    for (size_t i = 0; i < n && rc == 0; i++) {
        swarm_json(&v[i], true, talk_row(t));
        if (talk_row_end(t) != 0) {
            break;
        }
    }
    free(v);
    return rc;
}

/* --- status.json ------------------------------------------------------------------------------ */

void status_json(const struct admin_deps *deps, struct slice base_url, bool whole, struct buf *out)
{
    struct traffic_sum all = {0}, one;
    struct origin_request_stats up = traffic_fetched_all(deps->traffic);
    struct sample s;

    sample_take(deps, &s);
    for (unsigned i = 1; i < traffic_repos(deps->traffic); i++) { /* our own pages are no traffic */
        traffic_sum(deps->traffic, i, &one);
        traffic_join(&all, &one);
    }
    jwrite_open(out, NULL, '{');
    jwrite_text(out, "version", SLICE(MIRROR_VERSION));
    jwrite_text(out, "base_url", base_url);
    jwrite_u64(out, "now_ms", clock_unix_ms());
    jwrite_u64(out, "started_unix_s", deps->lifecycle->started_unix_s);
    jwrite_bool(out, "ready", deps->lifecycle->ready && s.healthy);
    trouble_json(&s, whole, NULL, out);
    jwrite_bool(out, "draining", deps->lifecycle->draining);
    jwrite_bool(out, "leaving", deps->lifecycle->leaving);
    jwrite_open(out, "reload", '{');
    jwrite_bool(out, "ok", deps->lifecycle->reload_ok);
    jwrite_u64(out, "count", deps->lifecycle->reloads);
    jwrite_u64(out, "at_unix_s", deps->lifecycle->reload_ok_unix_s);
    jwrite_close(out, '}');
    jwrite_open(out, "connections", '{');
    jwrite_u64(out, "open", s.http.open);
    jwrite_u64(out, "h2", s.http.open_h2);
    jwrite_u64(out, "tls", s.http.open_tls);
    jwrite_close(out, '}');
    certificates_json(out, &s);
    if (modules_address(deps->modules) != NULL) {
        jwrite_open(out, "rsync", '{');
        jwrite_u64(out, "open", s.rsync.open);
        jwrite_u64(out, "served", s.rsync.sessions[DOOR_SERVED]);
        jwrite_u64(out, "files", s.rsync.files);
        jwrite_u64(out, "sent", s.rsync.sent_bytes);
        jwrite_close(out, '}');
    }
    if (s.clustered) {
        jwrite_open(out, "cluster", '{');
        cluster_members(&s, whole, out);
        jwrite_close(out, '}');
    }
    disk_json(out, &s.space, s.healthy);
    jwrite_open(out, "repos", '[');
    for (size_t i = 0; i < s.set->count; i++) {
        repo_json(out, &s, s.set->repo[i], whole);
    }
    jwrite_close(out, ']');
    syncs_json(&s, whole, out);
    jwrite_open(out, "fills", '[');
    for (size_t i = 0; i < s.fetches; i++) {
        fetch_json(out, &s, &s.fetch[i], whole);
    }
    jwrite_close(out, ']');
    if (s.set->conf->peers.again_s != 0) {
        swarms_json(&s, whole, out);
    }
    jwrite_u64(out, "requests", traffic_requests(&all));
    jwrite_u64(out, "bytes_out", s.sent_bytes);
    ratio(out, &all);
    jwrite_u64(out, "upstream_requests", up.requests);
    jwrite_u64(out, "upstream_bytes", s.fetched_bytes);
    jwrite_close(out, '}');
    buf_byte(out, '\n');
    sample_drop(&s);
}

/* --- tunasync.json ---------------------------------------------------------------------------- */

static const char *tunasync_word(const struct sync_view *v)
{
    if (v->running && v->last.outcome == RUN_RUNNING) {
        return v->last.stage == RUN_FETCH ? "syncing" : "pre-syncing";
    }
    if (v->paused) {
        return "paused";
    }
    if (v->held_seq != 0) {
        return "failed";
    }
    if (v->waiting) {
        return "pre-syncing";
    }
    if (v->failures != 0) {
        return "failed";
    }
    return v->last_ok_unix_s != 0 ? "success" : "none";
}

static void time_members(struct buf *out, const char *key, uint64_t unix_s)
{
    time_t t = (time_t)unix_s;
    char text[40], name[40];
    struct tm tm;

    gmtime_r(&t, &tm);
    strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S +0000", &tm);
    snprintf(name, sizeof name, "%s_ts", key);
    jwrite_str(out, key, text);
    jwrite_u64(out, name, unix_s);
}

static void size_text(uint64_t bytes, char out[24])
{
    static const char units[] = "BKMGTPE";
    double n = (double)bytes;
    size_t u = 0;

    for (; n >= 1024 && u + 2 < sizeof units; u++) {
        n /= 1024;
    }
    snprintf(out, 24, u == 0 ? "%.0f%c" : "%.2f%c", n, units[u]);
}

void tunasync_json(const struct admin_deps *deps, struct buf *out)
{
    struct sample s;
    char size[24];

    sample_take(deps, &s);
    jwrite_open(out, NULL, '[');
    for (size_t i = 0; i < s.syncs; i++) {
        const struct sync_view *v = &s.sync[i];
        if (!is_public(&s, v)) {
            continue;
        }
        size_text(v->head.bytes, size);
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "name", v->name);
        jwrite_bool(out, "is_master", true);
        jwrite_str(out, "status", tunasync_word(v));
        time_members(out, "last_update", v->last_ok_unix_s);
        time_members(out, "last_started", v->last.started_unix_s);
        time_members(out, "last_ended", v->last.ended_unix_s);
        time_members(out, "next_schedule", v->paused ? 0 : v->next_unix_s);
        jwrite_str(out, "upstream", v->upstream);
        jwrite_text(out, "size", v->head.seq != 0 ? slice_str(size) : SLICE("unknown"));
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
    buf_byte(out, '\n');
    sample_drop(&s);
}
