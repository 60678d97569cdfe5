/* What the world is told of synced repos: in status.json, and in tunasync's own form for pages that list mirrors. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "server/admin/admin.h"
#include "common/codec/jwrite.h"
#include "server/admin/sample.h"

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

void sync_status_json(const struct sample *s, bool whole, struct buf *out)
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

void tunasync_json(const struct admin_parts *parts, struct buf *out)
{
    struct sample s;
    char size[24];

    sample_take(parts, &s);
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
