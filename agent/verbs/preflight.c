/* preflight.c - trainagent preflight. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/job/jobfile.h"
#include "agent/preflight/numa.h"
#include "agent/preflight/report.h"
#include "agent/verb.h"
#include "common/codec/jwrite.h"

enum { SAID_MAX = 1 << 20, COLUMNS = 100 };

static int take_line(const struct verb_line *v, struct expect *said, struct err *e)
{
    const struct preflight_line *p = &v->preflight;
    int rc = 0;

    *said = (struct expect){0};
    for (unsigned i = 0; rc == 0 && i < p->nexpect; i++) {
        rc = expect_word(p->expect[i], said, e);
    }
    if (rc == 0 && p->only != NULL) {
        said->is[EXPECT_ONLY].set = true;
        rc = expect_names(p->only, &said->only, e);
    }
    if (rc == 0 && p->skip != NULL) {
        rc = expect_names(p->skip, &said->skip, e);
    }
    return rc;
}

static unsigned columns(void)
{
    struct winsize w;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : COLUMNS;
}

static void say(const struct verb_line *v, const struct preflight_report *r)
{
    const struct sight s = {v->preflight.root != NULL ? v->preflight.root : ""};
    struct buf out = BUF_INIT(SAID_MAX);

    if (v->agent->json) {
        jwrite_open(&out, NULL, '{');
        report_json(r, &out);
        if (v->preflight.explain) {
            numa_json(&s, &out);
        }
        jwrite_close(&out, '}');
        buf_byte(&out, '\n');
    } else if (isatty(STDOUT_FILENO)) {
        report_table(r, columns(), v->agent->quiet, &out);
    } else if (!v->agent->quiet || r->worst != LEVEL_OK) {
        report_lines(r, v->agent->quiet, &out);
    }
    if (v->preflight.explain && !v->agent->json) {
        numa_table(&s, &out);
    }
    fwrite(out.p, 1, out.n, stdout);
    buf_free(&out);
}

static int look(struct verb_line *v, const struct jobfile *job, struct err *e)
{
    const struct preflight_line *p = &v->preflight;
    struct preflight_report *r = NEW(struct preflight_report);
    struct expect *said = NEW(struct expect);
    struct preflight_want w = {.agent = v->agent,
                               .node_file = p->config,
                               .job = job != NULL ? &job->expect : NULL,
                               .out = job != NULL ? job->out : NULL,
                               .said = said,
                               .root = p->root,
                               .full = p->full};
    int rc = take_line(v, said, e);

    rc = rc != 0 ? rc : preflight_run(&w, r, e);
    if (rc == 0) {
        say(v, r);
        v->exit_code = report_exit(r);
        rc = p->textfile != NULL ? report_textfile(r, p->textfile, e) : 0;
    }
    free(said);
    free(r);
    return rc;
}

static void list(void)
{
    struct buf out = BUF_INIT(SAID_MAX);

    report_catalogue(&out);
    fwrite(out.p, 1, out.n, stdout);
    buf_free(&out);
}

int verb_preflight(struct verb_line *v, struct err *e)
{
    struct jobfile job = {0};
    int rc = 0;

    if (v->argc > 1) {
        return err_set(e, E_USAGE, "preflight takes one JOB file, or none");
    }
    if (v->preflight.list) {
        list();
        return 0;
    }
    if (v->argc == 1) {
        rc = jobfile_read(v->argv[0], &job, e);
        if (rc == 0 && v->agent->mirror.n == 0 && job.mirror != NULL) {
            v->agent->mirror = slice_str(job.mirror);
        }
    }
    rc = rc != 0 ? rc : agent_settle(v->agent, false, e);
    rc = rc != 0 ? rc : look(v, v->argc == 1 ? &job : NULL, e);
    jobfile_fini(&job);
    return rc;
}
