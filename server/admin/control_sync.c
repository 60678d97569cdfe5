/* Verbs about repos that are mirrored whole: sync.*, and of snapshots those that hosted trees share
 * with them. */
#include <unistd.h>

#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/admin/talk.h"
#include "server/sync/sync.h"

enum { LOOK_MS = 100 };

/* The rate and what is left of it are of a run that is fetching, else 0. */
static void report_members(struct buf *out, const struct run_report *r)
{
    uint64_t rate;

    jwrite_u64(out, "run", r->id);
    jwrite_str(out, "outcome", run_outcome_name(r->outcome));
    jwrite_str(out, "stage", run_stage_name(r->stage));
    jwrite_bool(out, "dry", r->dry);
    jwrite_u64(out, "started_unix_s", r->started_unix_s);
    jwrite_u64(out, "ended_unix_s", r->ended_unix_s);
    jwrite_str(out, "upstream", r->upstream);
    jwrite_str(out, "mirror", r->mirror);
    jwrite_str(out, "why", r->why);
    jwrite_u64(out, "attempts", r->attempts);
    jwrite_u64(out, "tries", r->tries);
    jwrite_u64(out, "next_try_unix_s", r->next_try_unix_s);
    jwrite_u64(out, "listed", r->listed);
    jwrite_u64(out, "new", r->fresh);
    jwrite_u64(out, "changed", r->changed);
    jwrite_u64(out, "gone", r->gone);
    jwrite_u64(out, "same", r->same);
    jwrite_u64(out, "kept", r->kept);
    jwrite_u64(out, "reused", r->reused);
    jwrite_u64(out, "saved_bytes", r->saved_bytes);
    jwrite_u64(out, "files_todo", r->files_todo);
    jwrite_u64(out, "files_done", r->files_done);
    jwrite_u64(out, "bytes_todo", r->bytes_todo);
    jwrite_u64(out, "bytes_done", r->bytes_done);
    jwrite_u64(out, "wire_bytes", r->wire_bytes);
    rate = r->fetching_ms > 0 ? r->bytes_done * 1000 / r->fetching_ms : 0;
    jwrite_u64(out, "rate_bytes_per_s", rate);
    jwrite_u64(out, "left_s",
               rate > 0 && r->bytes_todo > r->bytes_done ? (r->bytes_todo - r->bytes_done) / rate
                                                         : 0);
    jwrite_u64(out, "list_memory_bytes", r->memory_bytes);
    jwrite_u64(out, "seq", r->seq);
    if (r->seq != 0) {
        jwrite_hex(out, "root", r->root.b, DIGEST_BYTES);
    } else {
        jwrite_null(out, "root");
    }
}

static void view_members(struct buf *out, const struct sync_view *v)
{
    jwrite_str(out, "repo", v->name);
    jwrite_str(out, "state", sync_word(v));
    jwrite_str(out, "upstream", v->upstream);
    jwrite_str(out, "schedule", v->schedule);
    jwrite_bool(out, "running", v->running);
    jwrite_bool(out, "elsewhere", v->elsewhere);
    jwrite_bool(out, "paused", v->paused);
    jwrite_u64(out, "held_seq", v->held_seq);
    jwrite_bool(out, "hold", v->hold);
    jwrite_u64(out, "next_unix_s", v->paused ? 0 : v->next_unix_s);
    jwrite_u64(out, "last_ok_unix_s", v->last_ok_unix_s);
    jwrite_u64(out, "failures", v->failures);
    jwrite_u64(out, "seq", v->head.seq);
    jwrite_u64(out, "entries", v->head.entries);
    jwrite_u64(out, "bytes", v->head.bytes);
    jwrite_open(out, "last", '{');
    if (v->ever) {
        report_members(out, &v->last);
    }
    jwrite_close(out, '}');
}

static int need_repo_name(const struct talk *t, struct slice *out, struct err *e)
{
    struct repo_set *rs;
    struct repo *r;
    int rc = talk_need_repo(t, &rs, &r, e);

    *out = talk_text(t, "repo");
    repo_set_release(&rs);
    return rc;
}

/* Until the run is over, or the client has left; the run itself goes on then. */
static int wait_for_sync_run(struct talk *t, struct slice repo, uint64_t id, struct run_report *out,
                             struct err *e)
{
    struct sync_view v;
    uint64_t reported = UINT64_MAX, attempts = 0;
    enum run_stage stage = RUN_WAIT;
    int rc;

    for (;;) {
        rc = sync_look(t->deps->sync, repo, &v, e);
        if (rc != 0 || v.last.id != id || !v.running) {
            break;
        }
        if (v.last.bytes_done + v.last.listed != reported || v.last.stage != stage ||
            v.last.attempts != attempts) {
            reported = v.last.bytes_done + v.last.listed;
            stage = v.last.stage;
            attempts = v.last.attempts;
            report_members(talk_row(t), &v.last);
            (void)talk_row_flush(t);
        }
        if (talk_left(t)) {
            return err_set(e, E_CANCELLED, "the client is gone; the run continues");
        }
        sync_await(t->deps->sync, repo, id, LOOK_MS);
    }
    if (rc == 0 && v.last.id == id) {
        *out = v.last; /* also where there was no room to write it down */
    } else if (rc == 0) {
        rc = history_get(t->deps->store, repo, id, out, e);
    }
    return rc;
}

int verb_sync_run(struct talk *t, struct err *e)
{
    struct run_report r;
    struct slice repo;
    uint64_t id = 0;
    int rc = need_repo_name(t, &repo, e);

    if (rc == 0) {
        rc =
            sync_start(t->deps->sync, repo, talk_flag(t, "dry_run"), talk_flag(t, "force"), &id, e);
    }
    if (rc == 0 && !talk_flag(t, "wait")) {
        jwrite_u64(t->result, "run", id);
        return 0;
    }
    rc = rc != 0 ? rc : wait_for_sync_run(t, repo, id, &r, e);
    if (rc == 0) {
        report_members(t->result, &r);
    }
    return rc;
}

static int on_view(void *arg, const struct sync_view *v)
{
    struct talk *t = arg;

    view_members(talk_row(t), v);
    return talk_row_end(t);
}

int verb_sync_ls(struct talk *t, struct err *e)
{
    int rc = sync_each(t->deps->sync, on_view, t, e);

    return rc < 0 ? rc : 0;
}

static int on_report(void *arg, const struct run_report *r)
{
    struct talk *t = arg;

    report_members(talk_row(t), r);
    return talk_row_end(t);
}

/* The repo as it stands, and its runs as rows. */
int verb_sync_show(struct talk *t, struct err *e)
{
    struct sync_view v;
    struct slice repo;
    int rc = need_repo_name(t, &repo, e);

    rc = rc != 0 ? rc : sync_look(t->deps->sync, repo, &v, e);
    if (rc == 0) {
        rc = history_list(t->deps->store, repo, on_report, t, e);
        rc = rc < 0 ? rc : 0;
    }
    if (rc == 0) {
        view_members(t->result, &v);
    }
    return rc;
}

static int on_sync_log_line(void *arg, uint64_t unix_ms, struct slice text)
{
    struct talk *t = arg;
    struct buf *row = talk_row(t);

    jwrite_u64(row, "unix_ms", unix_ms);
    jwrite_text(row, "text", text);
    return talk_row_end(t);
}

int verb_sync_logs(struct talk *t, struct err *e)
{
    struct run_report r = {.id = talk_number(t, "run", 0)};
    struct sync_view v;
    struct slice repo;
    int rc = need_repo_name(t, &repo, e);

    rc = rc != 0 ? rc : sync_look(t->deps->sync, repo, &v, e);
    if (rc == 0 && r.id == 0 && v.ever) {
        r = v.last;
    } else if (rc == 0) {
        rc = history_get(t->deps->store, repo, r.id, &r, e);
    }
    if (rc == 0) {
        jwrite_u64(t->result, "run", r.id);
        rc = history_lines(t->deps->store, repo, r.id, on_sync_log_line, t, e);
    }
    return rc;
}

static int pause_or_not(struct talk *t, bool pause, struct err *e)
{
    struct slice repo;
    int rc = need_repo_name(t, &repo, e);

    rc = rc != 0 ? rc : sync_pause(t->deps->sync, repo, pause, e);
    if (rc == 0) {
        jwrite_bool(t->result, "paused", pause);
    }
    return rc;
}

int verb_sync_pause(struct talk *t, struct err *e)
{
    return pause_or_not(t, true, e);
}

int verb_sync_resume(struct talk *t, struct err *e)
{
    return pause_or_not(t, false, e);
}

int verb_sync_stop(struct talk *t, struct err *e)
{
    struct slice repo;
    int rc = need_repo_name(t, &repo, e);

    return rc != 0 ? rc : sync_cancel(t->deps->sync, repo, e);
}

int verb_sync_approve(struct talk *t, struct err *e)
{
    struct slice repo;
    struct snap sn;
    int rc = need_repo_name(t, &repo, e);

    rc = rc != 0 ? rc : sync_approve(t->deps->sync, repo, &sn, e);
    if (rc == 0) {
        jwrite_u64(t->result, "seq", sn.seq);
        jwrite_u64(t->result, "entries", sn.entries);
    }
    return rc;
}
