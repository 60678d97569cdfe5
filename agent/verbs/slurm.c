/* slurm.c - trainagent prolog, epilog and taskprolog, as slurmd starts them.
 *
 * Prolog and epilog run as root with no PATH, no HOME and a pipe for stdout that slurmd reads to
 * its end. One that fails drains the node, and a problem with the mirror is no reason for that.
 * So everything that takes time or could fail happens in a worker (detach.h), and these end with
 * 0. A task's prolog runs as the job's user; it is the place where a job gets the result, or is
 * kept from starting.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/job/jobfile.h"
#include "agent/node_conf.h"
#include "agent/cache/pins.h"
#include "agent/slurm/detach.h"
#include "agent/slurm/fit.h"
#include "agent/slurm/staging.h"
#include "agent/command.h"
#include "common/base/buf.h"
#include "common/base/log.h"
#include "common/codec/url.h"
#include "common/os/clock.h"

enum { EPILOG_DEADLINE_MS = 10000, FIRST_DEADLINE_MS = 30000, LOOK_MS = 100, TICKET_MAX = 4 << 20 };

/* --- the variables that a task gets: its clients come to the mirror, whatever its user knows of
 * it.
 *
 * Without `export` in the node's file: TRAINAGENT_MIRROR, HF_ENDPOINT, PIP_INDEX_URL,
 * PIP_TRUSTED_HOST (over plain HTTP), UV_DEFAULT_INDEX; else what stands there. Of several mirrors,
 * other clients than ours get one, each node its own. What the user has
 * set stays. And MIRROR_STAGED, where the job's files are, whatever it was. */

enum { LINE_BYTES = 8192 };

static const char *const usual[] = {"TRAINAGENT_MIRROR={mirrors}", "HF_ENDPOINT={mirror}/hf",
                                    "PIP_INDEX_URL={mirror}/pypi/simple/",
                                    "UV_DEFAULT_INDEX={mirror}/pypi/simple/", NULL};

struct values {
    const char *mirror, *mirrors, *host, *staged, *job; /* NULL: there is none */
};

static const char *slurm_variable_value(void *arg, struct slice name)
{
    const struct values *v = arg;

    return slice_eqs(name, "mirror")    ? v->mirror
           : slice_eqs(name, "mirrors") ? v->mirrors
           : slice_eqs(name, "host")    ? v->host
           : slice_eqs(name, "staged")  ? v->staged
           : slice_eqs(name, "job")     ? v->job
                                        : NULL;
}

/* The node's mirror for clients that take only one, or NULL. */
static const char *mirror_of_node(const struct node_conf *n, struct arena *a)
{
    char host[256] = "";
    struct mirrors *m = NULL;
    const char *url = NULL;
    struct digest key;

    if (n->mirror != NULL && mirrors_open(slice_str(n->mirror), &m, NULL) == 0) {
        (void)!gethostname(host, sizeof host - 1);
        digest_of(slice_str(host), &key);
        url = arena_cstr(a, mirrors_url(m, mirrors_choose(m, &key, 0, MIRRORS_ALL, 0)));
    }
    mirrors_close(&m);
    return url;
}

static const char *mirrors_of_node(const struct node_conf *n, struct arena *a)
{
    struct mirrors *m = NULL;
    const char *all = NULL;

    if (n->mirror != NULL && mirrors_open(slice_str(n->mirror), &m, NULL) == 0) {
        for (unsigned i = 0; i < mirrors_count(m); i++) {
            all = arena_fmt(a, "%s%s" SLICE_FMT, all != NULL ? all : "", all != NULL ? "," : "",
                            SLICE_ARG(mirrors_url(m, i)))
                      .p;
        }
    }
    mirrors_close(&m);
    return all;
}

/* The mirror's, as pip's trusted-host wants it. */
static const char *host_of(const char *mirror, struct arena *a)
{
    struct url u;

    return mirror == NULL || url_split(slice_str(mirror), &u, NULL) != 0 ? NULL
                                                                         : arena_cstr(a, u.host);
}

static bool name_ok(struct slice name)
{
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
              (i > 0 && c >= '0' && c <= '9'))) {
            return false;
        }
    }
    return name.n > 0;
}

static bool exports_fill(const char *line, const struct values *v, struct buf *out)
{
    struct values filled = *v;
    struct slice rest = slice_str(line);
    struct slice unknown;

    buf_clear(out);
    if (slice_find(rest, '=') < 0 || !name_ok(slice_cut(&rest, '=')) ||
        jobfile_fill(line, slurm_variable_value, &filled, out, &unknown, NULL) != 0) {
        return false;
    }
    for (size_t i = 0; i < out->n; i++) {
        if ((uint8_t)out->p[i] < 0x20 || out->p[i] == 0x7f) {
            return false; /* a line of its own */
        }
    }
    return true;
}

static void print_one(const char *line, const struct values *v)
{
    struct buf out = BUF_INIT(LINE_BYTES);

    if (exports_fill(line, v, &out)) {
        struct slice rest = buf_slice(&out);
        struct slice name = slice_cut(&rest, '=');
        char *cname = mem_new(name.n + 1);
        const char *has;

        memcpy(cname, name.p, name.n);
        has = getenv(cname);
        if (has == NULL || has[0] == '\0') {
            printf("export " SLICE_FMT "\n", SLICE_ARG(buf_slice(&out)));
        }
        free(cname);
    }
    buf_free(&out);
}

static void exports_print(const struct node_conf *n, const char *job, const char *staged)
{
    const char *const *line = n->slurm.export != NULL ? n->slurm.export : usual;
    struct arena a = {0};
    struct values v = {.mirror = mirror_of_node(n, &a),
                       .mirrors = mirrors_of_node(n, &a),
                       .staged = staged,
                       .job = job};

    v.host = host_of(v.mirror, &a);
    for (; *line != NULL; line++) {
        print_one(*line, &v);
    }
    if (n->slurm.export == NULL && v.mirror != NULL &&
        slice_starts(slice_str(v.mirror), SLICE("http://"))) {
        print_one("PIP_TRUSTED_HOST={host}", &v);
    }
    arena_fini(&a);
    /* Ours alone: a job that was submitted from within another has the other's. */
    if (staged != NULL) {
        printf("export MIRROR_STAGED=%s\n", staged);
    } else if (getenv("MIRROR_STAGED") != NULL) {
        puts("unset MIRROR_STAGED");
    }
}

/* --- the verbs --- */

static const char *env(const char *name)
{
    const char *value = getenv(name);

    return value != NULL ? value : "";
}

static int job_number(const char **out, struct err *e)
{
    *out = env("SLURM_JOB_ID");
    return pins_job_ok(*out)
               ? 0
               : err_set(e, E_USAGE,
                         "SLURM_JOB_ID is not a number; this verb is to be started by slurmd");
}

static int no_arguments(const struct verb_line *v, const char *verb, struct err *e)
{
    return v->argc == 0 ? 0 : err_set(e, E_USAGE, "%s takes no argument", verb);
}

/* --- prolog ----------------------------------------------------------------------------------- */

static int read_site(const struct node_conf *n, struct wishes *out, struct err *e)
{
    const char *const *site = n->slurm.stage;
    int rc = 0;

    for (; rc == 0 && site != NULL && *site != NULL; site++) {
        rc = wish_read(slice_str(*site), out, e);
    }
    return rc != 0 ? err_set(e, E_CONFIG, "slurm { stage } in the node's file: %.150s", e->text)
                   : 0;
}

static int read_comment(const struct node_conf *n, struct wishes *out, struct err *e)
{
    return n->slurm.comments ? comment_read(slice_str(env("SLURM_JOB_COMMENT")), out, e) : 0;
}

static int stage(struct staging *s, uint64_t until_ms, struct err *e)
{
    enum detach_end how;
    int rc = detach(staging_run, s, s->ticket, until_ms, &how, e);

    if (rc != 0) {
        staging_give_up(s, OUTCOME_NODE, e);
    } else if (how == DETACH_GOES_ON) {
        printf("trainagent: the files of job %s are still being downloaded\n", s->job);
    }
    return rc;
}

/* Without a ticket its tasks would start as if nothing had been asked for. */
static int refuse_slurm_staging(struct staging *s, uint64_t until_ms, struct err *e)
{
    struct err no_ticket = *e;
    enum detach_end how;

    s->why = &no_ticket;
    if (detach(staging_refuse, s, -1, until_ms, &how, e) != 0) {
        log_error("slurm.ticket",
                  "job=%s the tasks start without the files that the job requested: %s", s->job,
                  e->text);
    }
    *e = no_ticket;
    return e->code;
}

/* True: no job on this node, as its administrator wants it. */
static bool must_drain(const struct staging *s, uint64_t until_ms)
{
    const struct fit_ask ask = {
        .conf_file = s->conf_file, .job = s->job, .shut = s->ticket, .until_ms = until_ms};
    char why[FIT_TEXT];

    if (!s->node->slurm.preflight || !fit_must_drain(&ask, why)) {
        return false;
    }
    printf("trainagent: this node is not fit for jobs: %s\n", why);
    return true;
}

static int run_prolog(struct verb_line *v, struct err *e)
{
    uint64_t start_ms = clock_now_ms();
    struct node_conf *n = &v->agent->node;
    struct staging s = {.node = n, .conf_file = v->agent->conf_file, .ticket = -1};
    struct err wrong = {0};
    struct err no_comment = {0};
    uint64_t deadline_ms;
    int no_ticket = 0;
    bool wants;
    int rc;

    detach_begin();
    detach_bell(v->deadline_ms != 0 ? v->deadline_ms : FIRST_DEADLINE_MS);
    rc = no_arguments(v, "prolog", e);
    rc = rc != 0 ? rc : job_number(&s.job, e);
    if (rc != 0) {
        return rc;
    }
    staging_log_to_journal(s.job);
    rc = node_read(v->agent->conf_file, n, &wrong);
    deadline_ms = v->deadline_ms != 0 ? v->deadline_ms : n->slurm.deadline;
    detach_bell(deadline_ms);
    rc = rc != 0 ? rc : read_site(n, &s.site, &wrong);
    (void)!read_comment(n, &s.comment, &no_comment);
    if (rc != 0) {
        log_error("slurm.node", "job=%s %s", s.job, wrong.text);
    }
    /* A node whose file is wrong would else fail one job after the other, those that want nothing
     * of it too. */
    wants = no_comment.code != 0 || s.comment.n > 0 || (rc == 0 && s.site.n > 0);
    /* Before anything that takes time: if we are ended meanwhile, the tasks must not think that
     * nothing was asked for. */
    if (!wants) {
        ticket_remove(n->slurm.tickets, s.job);
    } else if ((no_ticket = ticket_new(n->slurm.tickets, s.job, &s.ticket, e)) != 0) {
        log_error("slurm.ticket", "job=%s %s", s.job, e->text);
    }
    if (must_drain(&s, start_ms + deadline_ms)) {
        ticket_remove(n->slurm.tickets, s.job);
        v->exit_code = 1;
        return 0;
    }
    if (!wants) {
        return 0;
    }
    if (no_ticket != 0) {
        return refuse_slurm_staging(&s, start_ms + deadline_ms, e);
    }
    if (rc != 0 || no_comment.code != 0) {
        staging_give_up(&s, rc != 0 ? OUTCOME_NODE : OUTCOME_COMMENT,
                        rc != 0 ? &wrong : &no_comment);
        return 0;
    }
    return stage(&s, start_ms + deadline_ms, e);
}

/* --- epilog ----------------------------------------------------------------------------------- */

static int run_epilog(struct verb_line *v, struct err *e)
{
    uint64_t start_ms = clock_now_ms();
    uint64_t deadline_ms = v->deadline_ms != 0 ? v->deadline_ms : EPILOG_DEADLINE_MS;
    struct staging s = {.node = &v->agent->node, .ticket = -1};
    enum detach_end how;
    int rc;

    detach_begin();
    detach_bell(deadline_ms);
    rc = no_arguments(v, "epilog", e);
    rc = rc != 0 ? rc : job_number(&s.job, e);
    if (rc != 0) {
        return rc;
    }
    staging_log_to_journal(s.job);
    rc = node_read(v->agent->conf_file, &v->agent->node, e);
    ticket_remove(v->agent->node.slurm.tickets,
                  s.job); /* whoever still brings files sees it, and ends */
    return rc != 0 ? rc : detach(staging_clear, &s, -1, start_ms + deadline_ms, &how, e);
}

/* --- taskprolog ------------------------------------------------------------------------------- */

/* A step of a thousand tasks says it once on each node. */
static void print_line(const char *text)
{
    const char *local = env("SLURM_LOCALID");

    if (local[0] == '\0' || strcmp(local, "0") == 0) {
        printf("print mirror: %s\n", text);
    }
}

static bool fails_by(const struct node_conf *n, enum outcome o)
{
    char line[128];

    snprintf(line, sizeof line, "%s%s", outcome_words(o),
             outcome_act(&n->slurm, o) == ACT_FAIL ? "; the task is not started" : "");
    print_line(line);
    return outcome_act(&n->slurm, o) == ACT_FAIL;
}

/* 0: the ticket's text, once it is the last word or nobody holds it; E_TIMEOUT; E_NOTFOUND: nothing
 * was asked for. */
static int wait_for_staging(const struct node_conf *n, const char *job, uint64_t until_ms,
                            struct buf *text, struct err *e)
{
    bool held = true;
    int rc;

    for (;;) {
        rc = ticket_look(n->slurm.tickets, job, &held, text, e);
        /* A lock alone says nothing: whoever may read the file may lock it, too. */
        if (rc != 0 || !held || verdict_is_done(buf_slice(text))) {
            return rc;
        }
        if (clock_now_ms() >= until_ms) {
            return err_set(e, E_TIMEOUT, "the files are still being downloaded");
        }
        usleep(LOOK_MS * 1000);
    }
}

/* True: the task must not start. */
static bool staging_forbids_start(const struct node_conf *n, struct slice text,
                                  struct verdict_read *got)
{
    verdict_read(text, got);
    if (!got->done) {
        return fails_by(n, OUTCOME_INTERRUPTED);
    }
    for (size_t i = 0; i < got->nsay; i++) {
        print_line(got->say[i]);
    }
    if (!got->run) {
        print_line("the task is not started, because trainagent.conf of this node says fail");
    }
    return !got->run;
}

static int run_taskprolog(struct verb_line *v, struct err *e)
{
    uint64_t start_ms = clock_now_ms();
    struct node_conf *n = &v->agent->node;
    const char *job = env("SLURM_JOB_ID");
    struct buf text = BUF_INIT(TICKET_MAX);
    struct verdict_read got = {.run = true};
    char path[PATH_MAX];
    bool fails = false;
    int rc = no_arguments(v, "taskprolog", e);

    rc = rc != 0 ? rc : node_read(v->agent->conf_file, n, e);
    if (rc != 0) {
        verdict_tame(e->text);
        print_line(e->text);
    }
    rc = wait_for_staging(n, job, start_ms + n->slurm.wait, &text, e);
    if (rc != 0 && rc != E_TIMEOUT &&
        pins_job_ok(job)) { /* its prolog may have had no place for one */
        pins_refusal(n->cache, job, path);
        buf_clear(&text);
        rc = buf_read_file(&text, path, e);
    }
    if (rc == 0) {
        fails = staging_forbids_start(n, buf_slice(&text), &got);
    } else if (rc == E_TIMEOUT) {
        fails = fails_by(n, OUTCOME_LATE);
    }
    exports_print(n, job, got.staged);
    v->exit_code = fails ? 1 : 0;
    verdict_read_fini(&got);
    buf_free(&text);
    return 0;
}

const struct agent_verb verb_prolog = {
    .name = "prolog",
    .run = run_prolog,
    .args = "",
    .help = "for Slurm: download the files that a job's comment names",
    .example = "trainagent prolog --deadline 60s",
};

const struct agent_verb verb_taskprolog = {
    .name = "taskprolog",
    .run = run_taskprolog,
    .args = "",
    .help = "for Slurm: report to a task where its files are, or why they are missing",
    .example = "trainagent taskprolog",
};

const struct agent_verb verb_epilog = {
    .name = "epilog",
    .run = run_epilog,
    .args = "",
    .help = "for Slurm: release the files of a job that ended",
    .example = "trainagent epilog --deadline 60s",
};
