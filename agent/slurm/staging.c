#include "agent/slurm/staging.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/peers/peers.h"
#include "agent/pull/artifact.h"
#include "agent/cache/pins.h"
#include "agent/cache/spare.h"
#include "agent/slurm/detach.h"
#include "agent/slurm/outcome.h"
#include "common/base/buf.h"
#include "common/codec/jwrite.h"
#include "common/codec/url.h"
#include "common/os/clock.h"
#include "common/os/crash.h"
#include "common/os/journald.h"
#include "common/os/newfile.h"

enum { TRIES_GONE = 3, LOOK_MS = 100, LOCK_WAIT_MS = 600000 };
enum { SPARE_FILES_MIN = 8 }; /* a link costs less than a look for a spare */

struct stager {
    const struct staging *s;
    struct agent agent;  /* with the node's token */
    struct agent anyone; /* the same without it */
    char folder[PATH_MAX];
    struct local_cache_lock *lock;
    struct digest *pin;
    struct pins_laid *laid; /* by now in the folder; `at` is in the arena */
    struct arena arena;
    size_t npins, nlaid;
    struct slice from; /* the wish at hand */
    uint64_t stamp;    /* of what was laid out for it */
    struct verdict verdict;
};

/* --- one small file for each job whose files are brought: what its tasks go by.
 * /run/trainagent/<job>
 *
 * The prolog makes it, as root, before anything else; whoever brings the files holds a lock on it
 * as long as he lives, and writes into it at the end, through the descriptor that he was given, how
 * it went. So a reader knows three things without asking anybody: there is none (nothing was asked
 * for), somebody still holds it, or nobody does and it says what became of it. One that nobody
 * holds and that does not say is of somebody who was killed. The epilog removes it, which its
 * holder sees; a boot does as well.
 *
 *   {"job": "42", "state": "staging"}
 *   {"job": "42", "state": "done", "staged": "/var/cache/trainagent/jobs/42", "run": true,
 *    "say": ["..."], "artifacts": [...]}
 *
 * threads  any; blocks as long as its file system does
 * errors   E_INVALID: no job's number */

static int path_of_staging_job(const char *dir, const char *job, char out[PATH_MAX], struct err *e)
{
    if (!pins_job_ok(job)) {
        return err_set(e, E_INVALID, "SLURM_JOB_ID is not a number");
    }
    snprintf(out, PATH_MAX, "%.4000s/%s", dir, job);
    return 0;
}

/* Until it is locked. */
static void new_path(const char *dir, const char *job, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%.4000s/.%s.new", dir, job);
}

static int create_verdict_file(const char *temp, const char *path, const char *job, int *out,
                               struct err *e)
{
    char text[64];
    int n = snprintf(text, sizeof text, "{\"job\":\"%s\",\"state\":\"staging\"}\n", job);
    int fd = open(temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd == -1 ? err_sys(e, "%s", temp) : 0;

    /* Before others may read it nobody else can hold it. */
    if (rc == 0 && (flock(fd, LOCK_EX | LOCK_NB) == -1 || fchmod(fd, 0644) == -1)) {
        rc = err_sys(e, "%s: lock", temp);
    }
    rc = rc != 0 ? rc : fd_write_all(fd, text, (size_t)n, e);
    if (rc == 0 && rename(temp, path) == -1) {
        rc = err_sys(e, "%s", path);
    }
    if (rc != 0 && fd != -1) {
        unlink(temp);
        close(fd);
        fd = -1;
    }
    *out = fd;
    return rc;
}

int ticket_new(const char *dir, const char *job, int *fd, struct err *e)
{
    char path[PATH_MAX];
    char temp[PATH_MAX];
    int rc = path_of_staging_job(dir, job, path, e);

    *fd = -1;
    rc = rc != 0 ? rc : dir_make(dir, 0755, e);
    if (rc == 0) {
        new_path(dir, job, temp);
        unlink(temp);
        rc = create_verdict_file(temp, path, job, fd, e);
    }
    return rc;
}

int ticket_say(int fd, struct slice text, struct err *e)
{
    int rc = fd_pwrite_all(fd, text.p, text.n, 0, e);

    if (rc == 0 && ftruncate(fd, (off_t)text.n) == -1) {
        rc = err_sys(e, "cannot shorten the ticket of a job");
    }
    return rc;
}

bool ticket_gone(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && st.st_nlink == 0;
}

void ticket_remove(const char *dir, const char *job)
{
    char path[PATH_MAX];

    if (path_of_staging_job(dir, job, path, NULL) == 0) {
        unlink(path);
        new_path(dir, job, path);
        unlink(path);
    }
}

bool ticket_exists(const char *dir, const char *job)
{
    char path[PATH_MAX];

    return path_of_staging_job(dir, job, path, NULL) == 0 && access(path, F_OK) == 0;
}

int ticket_look(const char *dir, const char *job, bool *held, struct buf *text, struct err *e)
{
    char path[PATH_MAX];
    int rc = path_of_staging_job(dir, job, path, e);
    int fd;

    *held = false;
    if (rc != 0) {
        return rc;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd == -1) {
        return err_sys(e, "%s", path);
    }
    if (flock(fd, LOCK_SH | LOCK_NB) == -1) {
        *held = errno == EWOULDBLOCK;
        rc = *held ? 0 : err_sys(e, "%s: lock", path);
    }
    buf_clear(text);
    rc = rc != 0 ? rc : buf_read_file(text, path, e);
    close(fd);
    return rc;
}

/* --- the verdict --- */

/* --- the verdict: the result of all that a job requested: may its tasks start, and what do they
 * get to read?
 *
 * The worker makes one and writes it on the ticket; each task's prolog reads it there. Texts from
 * strangers (a comment, a mirror) become single lines of printable bytes: nothing in them can
 * start a line, because Slurm interprets "export NAME=value" in the output of a task's prolog.
 *
 * owns     verdict_fini(); the policy outlives it
 * threads  one at a time */

enum { TEXT_MAX = 1 << 20, LINE_MAX_BYTES = 1024 };

void verdict_init(struct verdict *v, const struct node_slurm *policy)
{
    *v = (struct verdict){
        .policy = policy, .say = BUF_INIT(TEXT_MAX), .artifacts = BUF_INIT(TEXT_MAX)};
}

void verdict_fini(struct verdict *v)
{
    buf_free(&v->say);
    buf_free(&v->artifacts);
}

void verdict_tame(char *text)
{
    for (; *text != '\0'; text++) {
        if ((uint8_t)*text < 0x20 || (uint8_t)*text >= 0x7f) {
            *text = '?';
        }
    }
}

static void add_verdict_line(struct verdict *v, const char *from, enum outcome o, const char *why)
{
    struct buf line = BUF_INIT(LINE_MAX_BYTES);

    buf_addf(&line, "%.600s%s%s%s%.240s%s", from != NULL ? from : "", from != NULL ? ": " : "",
             outcome_words(o), why[0] != '\0' ? " (" : "", why, why[0] != '\0' ? ")" : "");
    jwrite_str(&v->say, NULL, buf_cstr(&line));
    buf_free(&line);
}

void verdict_add(struct verdict *v, const char *from, enum outcome o, bool optional,
                 uint64_t size_bytes, uint64_t fetched_bytes, const char *why)
{
    struct buf *out = &v->artifacts;

    if (from != NULL) {
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "from", from);
        jwrite_str(out, "outcome", outcome_name(o));
        jwrite_bool(out, "optional", optional);
        jwrite_u64(out, "size", size_bytes);
        jwrite_u64(out, "fetched_bytes", fetched_bytes);
        jwrite_close(out, '}');
    }
    if (o != OUTCOME_HERE) {
        v->fails = v->fails || (!optional && outcome_act(v->policy, o) == ACT_FAIL);
        add_verdict_line(v, from, o, why);
    }
}

int verdict_say(const struct verdict *v, int ticket, const char *job, const char *staged,
                struct err *e)
{
    struct buf text = BUF_INIT(3 * TEXT_MAX);
    int rc;

    jwrite_open(&text, NULL, '{');
    jwrite_str(&text, "job", job);
    jwrite_str(&text, "state", "done");
    jwrite_str(&text, "staged", staged);
    jwrite_bool(&text, "run", !v->fails);
    jwrite_key(&text, SLICE("say"));
    buf_byte(&text, '[');
    buf_adds(&text, buf_slice(&v->say));
    buf_byte(&text, ']');
    jwrite_key(&text, SLICE("artifacts"));
    buf_byte(&text, '[');
    buf_adds(&text, buf_slice(&v->artifacts));
    buf_str(&text, "]}\n");
    rc = v->say.rc != 0 || v->artifacts.rc != 0 || text.rc != 0
             ? err_set(e, E_TOOBIG, "the ticket of the job is too long")
             : ticket_say(ticket, buf_slice(&text), e);
    buf_free(&text);
    return rc;
}

/* --- the other end ---------------------------------------------------------------------------- */

static const char *tamed(struct arena *a, const json_t *v)
{
    const char *text = json_string_value(v);
    char *out = text != NULL ? arena_cstr(a, slice_str(text)) : NULL;

    if (out != NULL) {
        verdict_tame(out);
    }
    return out;
}

void verdict_read(struct slice text, struct verdict_read *out)
{
    json_t *o = json_loadb(text.p != NULL ? text.p : "", text.n, 0, NULL);
    const char *state = json_string_value(json_object_get(o, "state"));
    const json_t *lines = json_object_get(o, "say");
    const char **list;

    *out = (struct verdict_read){.run = json_is_true(json_object_get(o, "run"))};
    out->done = state != NULL && strcmp(state, "done") == 0;
    out->staged = tamed(&out->arena, json_object_get(o, "staged"));
    list = arena_alloc(&out->arena, (json_array_size(lines) + 1) * sizeof list[0]);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const char *line = tamed(&out->arena, json_array_get(lines, i));
        if (line != NULL) {
            list[out->nsay++] = line;
        }
    }
    out->say = list;
    if (out->staged != NULL && out->staged[0] == '\0') {
        out->staged = NULL;
    }
    json_decref(o);
}

bool verdict_is_done(struct slice text)
{
    struct verdict_read got;
    bool done;

    verdict_read(text, &got);
    done = got.done;
    verdict_read_fini(&got);
    return done;
}

void verdict_read_fini(struct verdict_read *v)
{
    arena_fini(&v->arena);
}

/* --- bringing it all --- */

/* --- the log ---------------------------------------------------------------------------------- */

static struct journald *journal; /* of this process, which has no stderr of its own */

static void to_journal(enum log_level level, const char *line)
{
    journald_say(journal, level, line);
}

void staging_log_to_journal(const char *job)
{
    char field[32];
    const char *const fields[] = {field, NULL};

    snprintf(field, sizeof field, "SLURM_JOB_ID=%.20s", job);
    journald_close(&journal);
    journal = journald_open(JOURNALD_SOCKET, SYSLOG_SOCKET, "trainagent", fields);
    log_divert(to_journal);
}

/* --- the job's place on the local cache ------------------------------------------------------- */

/* Of a job that was requeued an earlier worker may not have seen yet that its ticket is gone. An
 * epilog leaves one that does not end: its record stays, for a later epilog (pins_sweep()). */
static int lock_job(struct local_cache *local_cache, const char *job, int ticket,
                    struct local_cache_lock **out, struct err *e)
{
    uint64_t until_ms = clock_now_ms() + LOCK_WAIT_MS;
    struct digest key;
    int rc;

    pins_lock_key(job, &key);
    while ((rc = local_cache_try_lock(local_cache, &key, false, out, e)) == E_BUSY &&
           (ticket == -1 ? clock_now_ms() < until_ms : !ticket_gone(ticket))) {
        usleep(LOOK_MS * 1000);
    }
    return rc == E_BUSY && ticket != -1 ? err_set(e, E_CANCELLED, "the job has ended") : rc;
}

/* Folder, record and lock, or what there is of them. */
static int drop_job(struct local_cache *local_cache, const char *job,
                    struct local_cache_lock **lock, struct err *e)
{
    struct digest key;
    int rc = pins_drop(local_cache, job, e);

    if (rc == 0) {
        pins_lock_key(job, &key);
        local_cache_retire(local_cache, &key, lock);
    }
    return rc;
}

static int open_local_cache(struct stager *st, struct err *e)
{
    int rc = node_become(st->s->node, e);

    if (rc != 0) {
        return rc;
    }
    agent_init(&st->agent);
    st->agent.conf_file = st->s->conf_file;
    st->agent.local_cache_dir = st->s->node->cache;
    st->agent.quiet = st->agent.fleeting = true;
    rc = agent_open(&st->agent, AGENT_MIRROR, e);
    st->anyone = st->agent;
    if (!st->s->node->slurm.comment_token) {
        st->anyone.auth_line = SLICE_NONE;
    }
    return rc;
}

static int open_staging_folder(struct stager *st, struct err *e)
{
    const char *job = st->s->job;
    int rc = lock_job(st->agent.local_cache, job, st->s->ticket, &st->lock, e);

    rc = rc != 0 ? rc : pins_drop(st->agent.local_cache, job, e);
    rc = rc != 0 ? rc : pins_write(st->agent.local_cache, job, &(struct job_pins){0}, e);
    crash_point("staging.record");
    pins_folder(st->agent.local_cache, job, st->folder);
    return rc != 0 ? rc : dir_make_unsynced(st->folder, 0755, e);
}

/* --- one wish --------------------------------------------------------------------------------- */

static bool job_is_gone(void *arg)
{
    const struct stager *st = arg;

    return ticket_gone(st->s->ticket);
}

static int pull(struct stager *st, const struct agent *as, struct artifact *a, struct err *e)
{
    const struct artifacts_params w = {.peer_ops = &peers_ops, .is_gone = job_is_gone, .arg = st};

    return artifacts_pull(as, a, 1, &w, e);
}

static int write_pins(struct stager *st, struct err *e)
{
    const struct job_pins p = {st->pin, st->npins, st->laid, st->nlaid};

    return pins_write(st->agent.local_cache, st->s->job, &p, e);
}

static int pin(struct stager *st, const struct artifact *a, struct err *e)
{
    st->pin = reallocarray(st->pin, st->npins + a->nfiles + 1, sizeof st->pin[0]);
    CHECK(st->pin != NULL);
    for (size_t i = 0; i < a->nfiles; i++) {
        st->pin[st->npins++] = a->file[i].digest;
    }
    return write_pins(st, e);
}

/* A file goes into the folder that its path names, a folder is that one; a Hub's repository knows
 * its own way. */
static void folder_of_staged_file(const struct stager *st, const struct artifact *a,
                                  char dir[PATH_MAX])
{
    struct slice where = wish_place(st->from);

    if (a->hub != NULL) {
        where = SLICE_NONE;
    } else if (!a->is_folder) {
        const char *slash = memrchr(where.p, '/', where.n);
        where.n = (size_t)(slash - where.p); /* comment.h: there is one */
    }
    snprintf(dir, PATH_MAX, "%.3000s%s" SLICE_FMT, st->folder, where.n != 0 ? "/" : "",
             SLICE_ARG(where));
}

/* What of the job's folder is the artifact's alone, and can be handed on. */
static void spare_place(const struct stager *st, const struct artifact *a, char out[PATH_MAX])
{
    char dir[PATH_MAX];

    folder_of_staged_file(st, a, dir);
    artifact_home(a, dir, out);
}

/* For the record, which tells who drops the job what to keep. */
static void note_laid(struct stager *st, const struct artifact *a, const char *path)
{
    struct pins_laid *x;

    st->laid = reallocarray(st->laid, st->nlaid + 1, sizeof st->laid[0]);
    CHECK(st->laid != NULL);
    x = &st->laid[st->nlaid++];
    artifact_key(a, &x->key);
    x->stamp = st->stamp;
    x->at = arena_cstr(&st->arena, slice_str(path + strlen(st->folder) + 1));
}

/* Did an earlier job leave just this? Then it becomes ours. */
static bool take_spare(void *arg, const struct artifact *a)
{
    struct stager *st = arg;
    struct digest key;
    char path[PATH_MAX];
    char *slash;
    bool got;

    if (a->nfiles < SPARE_FILES_MIN) {
        return false;
    }
    artifact_key(a, &key);
    spare_place(st, a, path);
    slash = strrchr(path, '/');
    *slash = '\0';
    got = dir_make_unsynced(path, 0755, NULL) == 0;
    *slash = '/';
    got = got && spare_take(st->agent.local_cache, &key, path, &st->stamp);
    if (got) {
        crash_point("staging.spare");
        note_laid(st, a, path);
    }
    return got;
}

static int place_staged_artifact(struct stager *st, const struct agent *as,
                                 const struct artifact *a, struct err *e)
{
    char path[PATH_MAX];
    int rc;

    folder_of_staged_file(st, a, path);
    rc = artifact_place(as, a, path, e);
    if (rc == 0 && a->is_folder && a->nfiles >= SPARE_FILES_MIN) {
        spare_place(st, a, path);
        crash_point("staging.laid");
        if (spare_stamp(path, &st->stamp, NULL) == 0) {
            note_laid(st, a, path);
            rc = write_pins(st, e);
        }
    }
    return rc;
}

static int bring(struct stager *st, const struct agent *as, struct artifact *a, struct err *e)
{
    int rc = artifact_at_hand(as, a) ? 0 : pull(st, as, a, e);

    rc = rc != 0 ? rc : pin(st, a, e);
    crash_point("staging.pinned");
    return rc != 0 || a->laid ? rc : place_staged_artifact(st, as, a, e);
}

/* "data/x: it is not there" behind "data/x: ". */
static void without_prefix(char *text, const char *from)
{
    size_t n = strlen(from);

    if (strncmp(text, from, n) == 0 && strncmp(text + n, ": ", 2) == 0) {
        memmove(text, text + n + 2, strlen(text) - n - 1);
    }
}

static void fulfil(struct stager *st, const struct agent *as, const struct wish *w, bool optional)
{
    struct arena text = {0};
    const char *from = arena_cstr(&text, w->from);
    uint64_t start_ms = clock_now_ms();
    struct artifact a = {.from = from, .lay = take_spare, .lay_arg = st};
    struct err why = {0};
    int rc;

    st->from = w->from;
    rc = bring(st, as, &a, &why);

    /* gc may take a blob between the last look at it and the record that pins it. */
    for (int i = 1; rc == E_CHANGED && i < TRIES_GONE; i++) {
        artifact_fini(&a);
        a = (struct artifact){.from = from, .lay = take_spare, .lay_arg = st};
        rc = bring(st, as, &a, &why);
    }
    if (rc == E_NETWORK) { /* nobody there: the others need not wait as long for the same */
        st->agent.tries = st->anyone.tries = 1;
    }
    url_hide_queries(why.text);
    without_prefix(why.text, from);
    verdict_add(&st->verdict, from, outcome_of(rc), optional, a.size_bytes, a.fetched_bytes,
                why.text);
    if (rc == 0) {
        log_info("slurm.staged",
                 "job=%s from=%s bytes=%" PRIu64 " fetched=%" PRIu64 " took_ms=%" PRIu64,
                 st->s->job, from, a.size_bytes, a.fetched_bytes, clock_now_ms() - start_ms);
    } else {
        log_warn("slurm.missing", "job=%s from=%s %s", st->s->job, from, why.text);
    }
    artifact_fini(&a);
    arena_fini(&text);
}

static void fulfil_all(struct stager *st, const struct agent *as, const struct wishes *w,
                       bool required)
{
    for (size_t i = 0; i < w->n && !ticket_gone(st->s->ticket); i++) {
        fulfil(st, as, &w->one[i], w->one[i].optional || !required);
    }
}

bool staging_required(const struct staging *s)
{
    bool any = s->node->slurm.stage_required && s->site.n > 0;

    for (size_t i = 0; i < s->comment.n; i++) {
        any = any || !s->comment.one[i].optional;
    }
    return any;
}

/* --- what could not begin --------------------------------------------------------------------- */

void staging_give_up(const struct staging *s, enum outcome o, const struct err *why)
{
    struct verdict v;
    struct err e;

    verdict_init(&v, &s->node->slurm);
    verdict_add(&v, NULL, o, o != OUTCOME_COMMENT && !staging_required(s), 0, 0, why->text);
    if (verdict_say(&v, s->ticket, s->job, "", &e) != 0) {
        log_error("slurm.ticket", "job=%s %s", s->job, e.text);
    }
    log_warn("slurm.refused", "job=%s %s", s->job, why->text);
    verdict_fini(&v);
}

static int open_refusal(const struct staging *s, int *fd, struct err *e)
{
    char path[PATH_MAX];
    char *slash;
    int rc = node_become(s->node, e);

    pins_refusal(s->node->cache, s->job, path);
    slash = strrchr(path, '/');
    *slash = '\0';
    rc = rc != 0 ? rc : dir_make_unsynced(path, 0755, e);
    *slash = '/';
    *fd = rc != 0 ? -1 : open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    return rc == 0 && *fd == -1 ? err_sys(e, "%s", path) : rc;
}

void staging_refuse(void *arg)
{
    struct staging s = *(const struct staging *)arg;
    struct err why = {0};

    staging_log_to_journal(s.job);
    if (open_refusal(&s, &s.ticket, &why) == 0) {
        staging_give_up(&s, OUTCOME_NODE, s.why);
        close(s.ticket);
    } else {
        log_error("slurm.ticket",
                  "job=%s the tasks start without the files that the job requested: %s", s.job,
                  why.text);
    }
    log_divert(NULL);
    journald_close(&journal);
}

/* --- all of it -------------------------------------------------------------------------------- */

static void write_staging_verdict(struct stager *st)
{
    struct err why;

    if (verdict_say(&st->verdict, st->s->ticket, st->s->job, st->folder, &why) != 0) {
        log_error("slurm.ticket", "job=%s %s", st->s->job, why.text);
    }
}

void staging_run(void *arg)
{
    struct stager st = {.s = arg};
    struct err why = {0};
    int rc;

    staging_log_to_journal(st.s->job);
    verdict_init(&st.verdict, &st.s->node->slurm);
    rc = open_local_cache(&st, &why);
    rc = rc != 0 ? rc : open_staging_folder(&st, &why);
    if (rc == 0) {
        fulfil_all(&st, &st.agent, &st.s->site, st.s->node->slurm.stage_required);
        fulfil_all(&st, &st.anyone, &st.s->comment, true);
    } else {
        enum outcome o = outcome_of(rc);
        verdict_add(&st.verdict, NULL, o == OUTCOME_FULL ? o : OUTCOME_NODE,
                    !staging_required(st.s), 0, 0, why.text);
        log_error("slurm.node", "job=%s %s", st.s->job, why.text);
    }
    write_staging_verdict(&st);
    if (ticket_gone(st.s->ticket) && st.lock != NULL &&
        drop_job(st.agent.local_cache, st.s->job, &st.lock, &why) != 0) {
        log_warn("slurm.clear", "job=%s %s", st.s->job, why.text);
    }
    local_cache_unlock(&st.lock);
    free(st.pin);
    free(st.laid);
    arena_fini(&st.arena);
    verdict_fini(&st.verdict);
    agent_fini(&st.agent);
    log_divert(NULL);
    journald_close(&journal);
}

/* --- when the job has ended ------------------------------------------------------------------- */

enum { SWEEP_AGE_S = 3600 };

static bool has_ticket(void *arg, const char *job)
{
    const struct node_conf *n = arg;

    return ticket_exists(n->slurm.tickets, job);
}

static bool is_the_nodes(const struct local_cache *local_cache, const struct node_conf *n)
{
    struct stat a;
    struct stat b;

    return stat(local_cache_dir(local_cache), &a) == 0 && stat(n->cache, &b) == 0 &&
           a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* In a container that was given the local cache alone, every job would pass for gone. */
int staging_sweep(struct local_cache *local_cache, const struct node_conf *n, size_t *dropped,
                  struct err *e)
{
    uint64_t now_s = clock_unix_s();
    int rc;

    *dropped = 0;
    if (!is_the_nodes(local_cache, n) || access(n->slurm.tickets, R_OK | X_OK) == -1) {
        return 0;
    }
    rc = pins_sweep(local_cache, now_s - SWEEP_AGE_S, has_ticket, (void *)(uintptr_t)n, dropped, e);
    spare_sweep(local_cache, now_s - SPARE_AGE_S);
    return rc;
}

void staging_clear(void *arg)
{
    const struct staging *s = arg;
    struct local_cache_lock *lock = NULL;
    struct local_cache *local_cache = NULL;
    struct err why = {0};
    size_t dropped = 0;
    int rc;

    staging_log_to_journal(s->job);
    rc = access(s->node->cache, F_OK) == -1 ? E_NOTFOUND : node_become(s->node, &why);
    if (rc == 0) {
        rc = local_cache_open(s->node->cache, &local_cache, &why);
        rc = rc != 0
                 ? rc
                 : lock_job(local_cache, s->job, -1, &lock, &why); /* the worker stops by itself */
        /* The same job again, requeued: what is there now is its new prolog's. */
        if (rc == 0 && !ticket_exists(s->node->slurm.tickets, s->job)) {
            rc = drop_job(local_cache, s->job, &lock, &why);
        }
        rc = rc != 0 ? rc : staging_sweep(local_cache, s->node, &dropped, &why);
    }
    if (rc != 0 && rc != E_NOTFOUND) {
        log_warn("slurm.clear", "job=%s %s", s->job, why.text);
    }
    local_cache_unlock(&lock);
    local_cache_close(&local_cache);
    log_divert(NULL);
    journald_close(&journal);
}
