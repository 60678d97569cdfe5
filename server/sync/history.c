#include "server/sync/history.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/base/endian.h"

enum { ROW_MAX = 64 << 10, HISTORY_KEY_MAX = 256, VERSION = 1, LINE_MAX_BYTES = 1000 };

/* --- keys: repo NUL number(s) --- */

static void key_of_history_row(struct buf *out, struct slice repo, const uint64_t *n, size_t count)
{
    buf_clear(out);
    buf_adds(out, repo);
    buf_byte(out, 0);
    for (size_t i = 0; i < count; i++) {
        buf_be(out, 8, n[i]);
    }
}

/* --- reports: numbers in a row, then the texts; what a newer program adds behind them is ignored
 * --- */

enum { REPORT_NUMBERS = 19 };

static void report_numbers(struct run_report *r, uint64_t *n[REPORT_NUMBERS])
{
    uint64_t *all[REPORT_NUMBERS] = {
        &r->id,
        &r->started_unix_s,
        &r->ended_unix_s,
        &r->listed,
        &r->fresh,
        &r->changed,
        &r->gone,
        &r->same,
        &r->kept,
        &r->files_todo,
        &r->files_done,
        &r->bytes_todo,
        &r->bytes_done,
        &r->wire_bytes,
        &r->reused,
        &r->attempts,
        &r->seq,
        &r->memory_bytes,
        NULL,
    };
    memcpy(n, all, sizeof all);
}

void history_add(struct batch *b, struct slice repo, const struct run_report *r)
{
    struct run_report copy = *r;
    struct buf key = BUF_INIT(HISTORY_KEY_MAX), row = BUF_INIT(ROW_MAX);
    uint64_t *n[REPORT_NUMBERS], id = ~r->id;

    report_numbers(&copy, n);
    buf_byte(&row, VERSION);
    buf_byte(&row, (uint8_t)r->outcome);
    buf_byte(&row, (uint8_t)r->stage);
    buf_byte(&row, r->dry);
    for (size_t i = 0; n[i] != NULL; i++) {
        buf_be(&row, 8, *n[i]);
    }
    buf_add(&row, r->root.b, DIGEST_BYTES);
    buf_counted(&row, 2, slice_str(r->upstream));
    buf_counted(&row, 2, slice_str(r->why));
    buf_be(&row, 8, r->saved_bytes);
    if (r->mirror[0] != '\0') {
        buf_counted(&row, 2, slice_str(r->mirror));
    }
    key_of_history_row(&key, repo, &id, 1);
    batch_put(b, TABLE_RUN, buf_slice(&key), buf_slice(&row));
    buf_free(&key);
    buf_free(&row);
}

void history_require_new(struct batch *b, struct slice repo, uint64_t id)
{
    struct buf key = BUF_INIT(HISTORY_KEY_MAX);

    id = ~id;
    key_of_history_row(&key, repo, &id, 1);
    batch_require_absent(b, TABLE_RUN, buf_slice(&key));
    buf_free(&key);
}

int history_put(struct store *s, struct slice repo, const struct run_report *r, struct err *e)
{
    struct batch *b = batch_new();

    history_add(b, repo, r);
    return store_commit(s, &b, COMMIT_LAZY, e);
}

static bool take_history_text(struct slice *rest, char *to, size_t room)
{
    struct slice s;

    if (!slice_counted(rest, 2, &s) || s.n >= room) {
        return false;
    }
    memcpy(to, s.p, s.n);
    to[s.n] = '\0';
    return true;
}

static int report_decode(struct slice row, struct run_report *out, struct err *e)
{
    uint64_t *n[REPORT_NUMBERS];

    *out = (struct run_report){0};
    report_numbers(out, n);
    if (row.n < 4 + (REPORT_NUMBERS - 1) * 8 + DIGEST_BYTES || row.p[0] != VERSION) {
        return err_set(e, E_CORRUPT, "the row of a run cannot be decoded");
    }
    out->outcome = (enum run_outcome)row.p[1];
    out->stage = (enum run_stage)row.p[2];
    out->dry = row.p[3] != 0;
    row = slice_from(row, 4);
    for (size_t i = 0; n[i] != NULL; i++) {
        *n[i] = be_get(row.p, 8);
        row = slice_from(row, 8);
    }
    memcpy(out->root.b, row.p, DIGEST_BYTES);
    row = slice_from(row, DIGEST_BYTES);
    if (!take_history_text(&row, out->upstream, sizeof out->upstream) ||
        !take_history_text(&row, out->why, sizeof out->why)) {
        return err_set(e, E_CORRUPT, "the row of a run cannot be decoded");
    }
    if (row.n >= 8) { /* older programs did not tell */
        out->saved_bytes = be_get(row.p, 8);
        row = slice_from(row, 8);
    }
    if (row.n != 0 && !take_history_text(&row, out->mirror, sizeof out->mirror)) {
        return err_set(e, E_CORRUPT, "the row of a run cannot be decoded");
    }
    return 0;
}

struct report_walk {
    int (*each)(void *arg, const struct run_report *r);
    void *arg;
    struct err *e;
};

static int on_report(void *arg, struct slice key, struct slice value)
{
    struct report_walk *w = arg;
    struct run_report r;
    int rc = report_decode(value, &r, w->e);

    (void)key;
    return rc != 0 ? rc : w->each(w->arg, &r);
}

static int scan_repo(struct store *s, enum table t, struct slice repo, uint64_t from,
                     int (*row)(void *arg, struct slice key, struct slice value), void *arg,
                     struct err *e)
{
    struct buf first = BUF_INIT(HISTORY_KEY_MAX), end = BUF_INIT(HISTORY_KEY_MAX);
    int rc;

    key_of_history_row(&first, repo, &from, 1);
    buf_adds(&end, repo);
    buf_byte(&end, 1);
    rc = store_scan(s, t, buf_slice(&first), buf_slice(&end), row, arg, e);
    buf_free(&first);
    buf_free(&end);
    return rc;
}

int history_list(struct store *s, struct slice repo,
                 int (*each)(void *arg, const struct run_report *r), void *arg, struct err *e)
{
    struct report_walk w = {each, arg, e};

    return scan_repo(s, TABLE_RUN, repo, 0, on_report, &w, e);
}

static int take_first(void *arg, const struct run_report *r)
{
    *(struct run_report *)arg = *r;
    return 1;
}

int history_get(struct store *s, struct slice repo, uint64_t id, struct run_report *out,
                struct err *e)
{
    struct report_walk w = {take_first, out, e};
    int rc = scan_repo(s, TABLE_RUN, repo, id != 0 ? ~id : 0, on_report, &w, e);

    if (rc < 0) {
        return rc;
    }
    return rc == 1 && (id == 0 || out->id == id)
               ? 0
               : err_set(e, E_NOTFOUND,
                         id != 0 ? "this run does not exist" : "no run has been started yet");
}

/* --- trimming --- */

struct trim {
    struct batch *b;
    struct slice repo;
    uint64_t seen, oldest; /* runs below it go */
};

static int trim_report(void *arg, struct slice key, struct slice value)
{
    struct trim *t = arg;

    (void)value;
    if (++t->seen == HISTORY_RUNS) {
        t->oldest = ~be_get(key.p + key.n - 8, 8);
    } else if (t->seen > HISTORY_RUNS) {
        batch_del(t->b, TABLE_RUN, key);
    }
    return 0;
}

static int trim_line(void *arg, struct slice key, struct slice value)
{
    struct trim *t = arg;

    (void)value;
    if (be_get(key.p + t->repo.n + 1, 8) >= t->oldest) {
        return 1;
    }
    batch_del(t->b, TABLE_RUN_LOG, key);
    return 0;
}

int history_trim(struct store *s, struct slice repo, struct err *e)
{
    struct trim t = {.b = batch_new(), .repo = repo};
    int rc = scan_repo(s, TABLE_RUN, repo, 0, trim_report, &t, e);

    if (rc == 0 && t.oldest != 0) {
        rc = scan_repo(s, TABLE_RUN_LOG, repo, 0, trim_line, &t, e);
    }
    if (rc >= 0) {
        rc = store_commit(s, &t.b, COMMIT_LAZY, e);
    }
    batch_free(&t.b);
    return rc;
}

/* --- logs --- */

void history_line(struct batch *b, struct slice repo, uint64_t id, uint64_t line, uint64_t unix_ms,
                  struct slice text)
{
    const uint64_t n[] = {id, line};
    struct buf key = BUF_INIT(HISTORY_KEY_MAX), row = BUF_INIT(ROW_MAX);

    buf_be(&row, 8, unix_ms);
    buf_adds(&row, slice_first(text, text.n < LINE_MAX_BYTES ? text.n : LINE_MAX_BYTES));
    key_of_history_row(&key, repo, n, 2);
    batch_put(b, TABLE_RUN_LOG, buf_slice(&key), buf_slice(&row));
    buf_free(&key);
    buf_free(&row);
}

struct line_walk {
    int (*each)(void *arg, uint64_t unix_ms, struct slice text);
    void *arg;
    uint64_t id;
    size_t repo_n;
};

static int on_history_line(void *arg, struct slice key, struct slice value)
{
    struct line_walk *w = arg;

    if (key.n != w->repo_n + 17 || be_get(key.p + w->repo_n + 1, 8) != w->id || value.n < 8) {
        return 1;
    }
    return w->each(w->arg, be_get(value.p, 8), slice_from(value, 8));
}

int history_lines(struct store *s, struct slice repo, uint64_t id,
                  int (*each)(void *arg, uint64_t unix_ms, struct slice text), void *arg,
                  struct err *e)
{
    struct line_walk w = {each, arg, id, repo.n};
    int rc = scan_repo(s, TABLE_RUN_LOG, repo, id, on_history_line, &w, e);

    return rc < 0 ? rc : 0;
}

/* --- state --- */

enum { STATE_HEAD = 2 + 8 * 4 + DIGEST_BYTES };

static void pause_key(struct buf *out, struct slice repo)
{
    buf_adds(out, repo);
    buf_adds(out, SLICE("\0paused")); /* no repo has such a name */
}

void sync_state_pause(struct batch *b, struct slice repo, bool pause)
{
    struct buf key = BUF_INIT(HISTORY_KEY_MAX);

    pause_key(&key, repo);
    batch_put(b, TABLE_SYNC, buf_slice(&key), pause ? SLICE("1") : SLICE("0"));
    buf_free(&key);
}

/* Without that row the state's own counts, as older programs wrote it. */
static int read_pause(struct store *s, struct slice repo, bool *paused, struct err *e)
{
    struct buf key = BUF_INIT(HISTORY_KEY_MAX), row = BUF_INIT(ROW_MAX);
    int rc;

    pause_key(&key, repo);
    rc = store_get(s, TABLE_SYNC, buf_slice(&key), &row, e);
    *paused = rc == 0 ? slice_eq(buf_slice(&row), SLICE("1")) : *paused;
    buf_free(&key);
    buf_free(&row);
    return rc == E_NOTFOUND ? 0 : rc;
}

int sync_state_get(struct store *s, struct slice repo, struct sync_state *out, struct err *e)
{
    struct buf row = BUF_INIT(ROW_MAX);
    int rc = store_get(s, TABLE_SYNC, repo, &row, e);

    memset(out, 0, sizeof *out);
    if (rc == E_NOTFOUND) {
        rc = 0;
    } else if (rc == 0 && (row.n < STATE_HEAD || row.n - STATE_HEAD > sizeof out->cursor ||
                           row.p[0] != VERSION)) {
        rc = err_set(e, E_CORRUPT, "the row of a sync's state cannot be decoded");
    } else if (rc == 0) {
        out->paused = row.p[1] != 0;
        out->held_seq = be_get(row.p + 2, 8);
        out->failures = be_get(row.p + 10, 8);
        out->last_ok_unix_s = be_get(row.p + 18, 8);
        out->cursor_seq = be_get(row.p + 26, 8);
        memcpy(out->held_root.b, row.p + 34, DIGEST_BYTES);
        out->cursor_bytes = row.n - STATE_HEAD;
        memcpy(out->cursor, row.p + STATE_HEAD, out->cursor_bytes);
    }
    buf_free(&row);
    return rc != 0 ? rc : read_pause(s, repo, &out->paused, e);
}

void sync_state_put(struct batch *b, struct slice repo, const struct sync_state *st)
{
    struct buf row = BUF_INIT(ROW_MAX);
    const uint64_t n[] = {st->held_seq, st->failures, st->last_ok_unix_s, st->cursor_seq};

    buf_byte(&row, VERSION);
    buf_byte(&row, st->paused);
    for (size_t i = 0; i < ARRAY_LEN(n); i++) {
        buf_be(&row, 8, n[i]);
    }
    buf_add(&row, st->held_root.b, DIGEST_BYTES);
    buf_add(&row, st->cursor, st->cursor_bytes);
    batch_put(b, TABLE_SYNC, repo, buf_slice(&row));
    buf_free(&row);
}
