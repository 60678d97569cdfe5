/* preflight.c - trainagent preflight. */
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "agent/job/jobfile.h"
#include "agent/preflight/pci.h"
#include "agent/preflight/preflight.h"
#include "agent/preflight/rdma.h"
#include "agent/preflight/sight.h"
#include "agent/command.h"
#include "common/base/buf.h"
#include "common/codec/jwrite.h"
#include "common/os/newfile.h"

enum { SAID_MAX = 1 << 20, COLUMNS = 100 };

/* --- the output of a preflight: a table for people, plain lines, JSON, a file for Prometheus.
 *
 * Lines: first the verdict, because monitoring shows the first line, then one per check: level,
 * name, sentence, code in brackets, what to do. JSON and the metrics' names are stable
 * (docs/operations.md). */

enum { TEXT_MAX = 256 << 10 };

static const char *preflight_verdict(const struct preflight_report *r)
{
    return r->worst == LEVEL_SKIP ? "UNKNOWN" : level_name(r->worst);
}

static int report_exit(const struct preflight_report *r)
{
    return (int)r->worst;
}

static bool reported(const struct finding *f, bool quiet)
{
    return !quiet || f->level == LEVEL_WARN || f->level == LEVEL_CRIT;
}

static void put_more(const struct finding *f, struct buf *out)
{
    if (f->more > 0) {
        buf_addf(out, " (and %u more)", f->more);
    }
}

static void report_lines(const struct preflight_report *r, bool quiet, struct buf *out)
{
    buf_addf(out, "%s: %s\n", preflight_verdict(r), r->text);
    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];

        if (!reported(f, quiet)) {
            continue;
        }
        buf_addf(out, "%-4s %s: %s", level_name(f->level), check_name(f->check), f->text);
        put_more(f, out);
        if (f->code[0] != '\0') {
            buf_addf(out, " [%s] %s", f->code, f->hint);
        }
        buf_byte(out, '\n');
    }
}

/* --- the table -------------------------------------------------------------------------------- */

enum { INDENT = 20, COLUMNS_MIN = 60 };

/* Broken at blanks, below where it began. */
static void put_wrapped(struct buf *out, const char *text, unsigned columns)
{
    struct slice rest = slice_str(text);
    size_t room = (columns > COLUMNS_MIN ? columns : COLUMNS_MIN) - INDENT;

    while (rest.n > 0) {
        size_t n = rest.n;

        if (n > room) {
            for (n = room; n > 0 && rest.p[n] != ' '; n--) {
            }
            n = n > 0 ? n : room;
            while (n < rest.n && ((uint8_t)rest.p[n] & 0xc0) == 0x80) {
                n++; /* not within a letter */
            }
        }
        buf_adds(out, slice_first(rest, n));
        buf_byte(out, '\n');
        rest = slice_from(rest, n);
        while (rest.n > 0 && rest.p[0] == ' ') {
            rest = slice_from(rest, 1);
        }
        if (rest.n > 0) {
            buf_addf(out, "%*s", INDENT, "");
        }
    }
}

static void report_table(const struct preflight_report *r, unsigned columns, bool quiet,
                         struct buf *out)
{
    struct buf text = BUF_INIT(2048);

    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];

        if (!reported(f, quiet)) {
            continue;
        }
        buf_clear(&text);
        buf_str(&text, f->text);
        put_more(f, &text);
        buf_addf(out, "%-12s  %-4s  ", check_name(f->check), level_name(f->level));
        put_wrapped(out, buf_cstr(&text), columns);
        if (f->code[0] != '\0') {
            buf_clear(&text);
            buf_addf(&text, "%s (%s)", f->hint, f->code);
            buf_addf(out, "%*s", INDENT, "");
            put_wrapped(out, buf_cstr(&text), columns);
        }
    }
    buf_addf(out, "%s: %s, %u ms\n", preflight_verdict(r), r->text, r->took_ms);
    buf_free(&text);
}

/* --- for programs ----------------------------------------------------------------------------- */

static void report_json(const struct preflight_report *r, struct buf *out)
{
    jwrite_str(out, "verdict", preflight_verdict(r));
    jwrite_u64(out, "exit", (uint64_t)report_exit(r));
    jwrite_str(out, "text", r->text);
    jwrite_bool(out, "drain", r->drain);
    jwrite_u64(out, "began", r->began_unix_s);
    jwrite_u64(out, "took_ms", r->took_ms);
    jwrite_open(out, "checks", '[');
    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];

        jwrite_open(out, NULL, '{');
        jwrite_str(out, "check", check_name(f->check));
        jwrite_str(out, "status", level_name(f->level));
        jwrite_str(out, "code", f->code);
        jwrite_str(out, "text", f->text);
        jwrite_u64(out, "more", f->more);
        jwrite_str(out, "hint", f->hint);
        jwrite_u64(out, "took_ms", f->took_ms);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

static void put_metric_head(struct buf *out, const char *name, const char *help)
{
    buf_addf(out, "# HELP trainagent_preflight_%s %s\n# TYPE trainagent_preflight_%s gauge\n", name,
             help, name);
}

static void report_metrics(const struct preflight_report *r, struct buf *out)
{
    static const char *const names[] = {"ok", "warn", "crit", "skip"};

    put_metric_head(out, "status", "The result of a check: 0 OK, 1 WARN, 2 CRIT, 3 skipped.");
    for (size_t i = 0; i < r->n; i++) {
        buf_addf(out, "trainagent_preflight_status{check=\"%s\"} %u\n",
                 check_name(r->finding[i].check), r->finding[i].level);
    }
    put_metric_head(out, "checks", "The number of checks by result.");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        buf_addf(out, "trainagent_preflight_checks{status=\"%s\"} %u\n", names[i], r->count[i]);
    }
    put_metric_head(out, "verdict",
                    "The worst result of all checks: 0 OK, 1 WARN, 2 CRIT, 3 all were skipped.");
    buf_addf(out, "trainagent_preflight_verdict %d\n", report_exit(r));
    put_metric_head(out, "timestamp_seconds", "When the checks started, as a Unix time.");
    buf_addf(out, "trainagent_preflight_timestamp_seconds %" PRIu64 "\n", r->began_unix_s);
    put_metric_head(out, "duration_seconds", "How long the checks took, in seconds.");
    buf_addf(out, "trainagent_preflight_duration_seconds %u.%03u\n", r->took_ms / 1000,
             r->took_ms % 1000);
}

static int report_textfile(const struct preflight_report *r, const char *path, struct err *e)
{
    struct buf text = BUF_INIT(TEXT_MAX);
    struct newfile *file = NULL;
    int rc;

    report_metrics(r, &text);
    rc = newfile_open(path, 0644, &file, e);
    if (rc == 0) {
        newfile_write(file, text.p, text.n);
        rc = newfile_commit(&file, e);
    }
    buf_free(&text);
    return rc;
}

/* --- what there is ---------------------------------------------------------------------------- */

static void report_catalogue(struct buf *out)
{
    static const struct {
        const char *name, *cost, *severity, *what;
    } checks[] = {
#define LOOK(name, text, group, cost, severity, limit_s, what) {text, #cost, #severity, what},
#include "agent/preflight/checks.def"
#undef LOOK
    };
    static const struct {
        const char *name, *kind, *by_itself, *what;
    } keys[] = {
#define EXPECT(key, kind, by_itself, what) {#key, #kind, by_itself, what},
#include "agent/preflight/expect.def"
#undef EXPECT
    };

    buf_str(
        out,
        "# What `trainagent preflight` checks\n\n"
        "Made by `make docs` from agent/preflight/checks.def and expect.def. docs/operations.md "
        "and trainagent(1) explain how to use it.\n\n"
        "| check | set | a failure is | what is checked |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        buf_addf(out, "| %s | %s | %s | %s |\n", checks[i].name,
                 strcmp(checks[i].cost, "FULL") == 0 ? "--full" : "quick", checks[i].severity,
                 checks[i].what);
    }
    buf_str(out,
            "\nWhat a node must have is written in `preflight { }` in the node's file or in a job "
            "file, or given by `--expect KEY=VALUE`.\n"
            "`only`, `skip` and `warn` are lists of checks: the only ones that run, those that do "
            "not run, and those whose failures are warnings.\n\n"
            "| key | value | default | meaning |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *kind = keys[i].kind;
        buf_addf(out, "| %s | %s | %s | %s |\n", keys[i].name,
                 strcmp(kind, "COUNT") == 0     ? "number"
                 : strcmp(kind, "VERSION") == 0 ? "version"
                 : strcmp(kind, "SIZE") == 0    ? "size"
                 : strcmp(kind, "SPAN") == 0    ? "span of time"
                 : strcmp(kind, "YES") == 0     ? "yes, no"
                                                : "ok, warn, crit",
                 keys[i].by_itself, keys[i].what);
    }
}

/* --- which CPUs and memory are near which GPU and RDMA device: for --explain. */

struct near {
    char what[56];  /* "gpu 0000:5e:00.0", "rdma mlx5_0" */
    char node[16];  /* "0"; "-" where the machine does not tell */
    char cpus[160]; /* as the kernel lists them */
    unsigned ours;  /* how many of them we may use */
    unsigned all;
};

static void read_near(const struct sight *s, const char *folder, struct near *n)
{
    char path[PATH_MAX], text[SIGHT_TEXT];
    cpu_set_t ours;

    CPU_ZERO(&ours);
    sched_getaffinity(0, sizeof ours, &ours);
    snprintf(path, sizeof path, "%s/numa_node", folder);
    snprintf(n->node, sizeof n->node, "%.15s",
             sight_read(s, path, text, NULL) == 0 && text[0] != '-' && text[0] != '\0' ? text
                                                                                       : "-");
    snprintf(path, sizeof path, "%s/local_cpulist", folder);
    if (sight_read(s, path, text, NULL) != 0) {
        text[0] = '\0';
    }
    snprintf(n->cpus, sizeof n->cpus, "%.159s", text);
    for (unsigned c = 0; c < CPU_SETSIZE; c++) {
        bool local = list_has(slice_str(text), c);
        n->all += local;
        n->ours += local && CPU_ISSET(c, &ours);
    }
}

/* At most one of each device: ports of one share its place. */
static size_t find_near_adapters(const struct sight *s, struct near *out, size_t room)
{
    struct rdma_port port[64];
    struct pci_gpus g;
    size_t n = 0, ports = rdma_ports(s, port, ARRAY_LEN(port));
    char folder[PATH_MAX];

    pci_gpus(s, &g);
    for (size_t i = 0; i < g.n && n < room; i++) {
        out[n] = (struct near){0};
        snprintf(out[n].what, sizeof out[n].what, "gpu %s", g.gpu[i].name);
        snprintf(folder, sizeof folder, "/sys/bus/pci/devices/%s", g.gpu[i].name);
        read_near(s, folder, &out[n++]);
    }
    for (size_t i = 0; i < ports && n < room; i++) {
        int name = (int)strcspn(port[i].name, "/");

        out[n] = (struct near){0};
        snprintf(out[n].what, sizeof out[n].what, "rdma %.*s", name, port[i].name);
        if (n > 0 && strcmp(out[n].what, out[n - 1].what) == 0) {
            continue;
        }
        snprintf(folder, sizeof folder, "/sys/class/infiniband/%.*s/device", name, port[i].name);
        read_near(s, folder, &out[n++]);
    }
    return n;
}

static void numa_table(const struct sight *s, struct buf *out)
{
    struct near near[128];
    size_t n = find_near_adapters(s, near, ARRAY_LEN(near));

    if (n == 0) {
        buf_str(out, "\nno GPU and no RDMA device\n");
        return;
    }
    buf_addf(out, "\n%-22s %-5s %-24s %s\n", "DEVICE", "NODE", "LOCAL CPUS", "OURS AMONG THEM");
    for (size_t i = 0; i < n; i++) {
        buf_addf(out, "%-22s %-5s %-24s %u of %u\n", near[i].what, near[i].node, near[i].cpus,
                 near[i].ours, near[i].all);
    }
}

static void numa_json(const struct sight *s, struct buf *out)
{
    struct near near[128];
    size_t n = find_near_adapters(s, near, ARRAY_LEN(near));

    jwrite_open(out, "numa", '[');
    for (size_t i = 0; i < n; i++) {
        jwrite_open(out, NULL, '{');
        jwrite_str(out, "device", near[i].what);
        jwrite_str(out, "node", near[i].node);
        jwrite_str(out, "local_cpus", near[i].cpus);
        jwrite_u64(out, "ours", near[i].ours);
        jwrite_close(out, '}');
    }
    jwrite_close(out, ']');
}

/* --- the verb --- */

static int take_expect_line(const struct verb_line *v, struct expect *said, struct err *e)
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

static unsigned terminal_columns(void)
{
    struct winsize w;

    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : COLUMNS;
}

static void print_preflight_report(const struct verb_line *v, const struct preflight_report *r)
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
        report_table(r, terminal_columns(), v->agent->quiet, &out);
    } else if (!v->agent->quiet || r->worst != LEVEL_OK) {
        report_lines(r, v->agent->quiet, &out);
    }
    if (v->preflight.explain && !v->agent->json) {
        numa_table(&s, &out);
    }
    fwrite(out.p, 1, out.n, stdout);
    buf_free(&out);
}

static int run_preflight_checks(struct verb_line *v, const struct jobfile *job, struct err *e)
{
    const struct preflight_line *p = &v->preflight;
    struct preflight_report *r = NEW(struct preflight_report);
    struct expect *said = NEW(struct expect);
    struct preflight_params w = {.agent = v->agent,
                                 .node_file = p->config,
                                 .job = job != NULL ? &job->expect : NULL,
                                 .out = job != NULL ? job->out : NULL,
                                 .said = said,
                                 .root = p->root,
                                 .full = p->full};
    int rc = take_expect_line(v, said, e);

    rc = rc != 0 ? rc : preflight_run(&w, r, e);
    if (rc == 0) {
        print_preflight_report(v, r);
        v->exit_code = report_exit(r);
        rc = p->textfile != NULL ? report_textfile(r, p->textfile, e) : 0;
    }
    free(said);
    free(r);
    return rc;
}

static void list_preflight_checks(void)
{
    struct buf out = BUF_INIT(SAID_MAX);

    report_catalogue(&out);
    fwrite(out.p, 1, out.n, stdout);
    buf_free(&out);
}

static int run_preflight(struct verb_line *v, struct err *e)
{
    struct jobfile job = {0};
    int rc = 0;

    if (v->argc > 1) {
        return err_set(e, E_USAGE, "preflight takes one JOB file, or none");
    }
    if (v->preflight.list) {
        list_preflight_checks();
        return 0;
    }
    if (v->argc == 1) {
        rc = jobfile_read(v->argv[0], &job, e);
        if (rc == 0 && v->agent->mirror.n == 0 && job.mirror != NULL) {
            v->agent->mirror = slice_str(job.mirror);
        }
    }
    rc = rc != 0 ? rc : agent_settle(v->agent, false, e);
    rc = rc != 0 ? rc : run_preflight_checks(v, v->argc == 1 ? &job : NULL, e);
    jobfile_fini(&job);
    return rc;
}

const struct agent_verb verb_preflight = {
    .name = "preflight",
    .run = run_preflight,
    .args = "[JOB]",
    .help = "check this node's health: driver, GPUs, fabric, disks, memory",
    .example = "trainagent preflight --full --expect gpus=8",
};
