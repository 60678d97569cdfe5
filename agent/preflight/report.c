#include "agent/preflight/report.h"

#include <inttypes.h>
#include <string.h>

#include "common/codec/jwrite.h"
#include "common/os/newfile.h"

enum { TEXT_MAX = 256 << 10 };

static const char *verdict(const struct preflight_report *r)
{
    return r->worst == LEVEL_SKIP ? "UNKNOWN" : level_name(r->worst);
}

int report_exit(const struct preflight_report *r)
{
    return (int)r->worst;
}

static bool told(const struct finding *f, bool quiet)
{
    return !quiet || f->level == LEVEL_WARN || f->level == LEVEL_CRIT;
}

static void put_more(const struct finding *f, struct buf *out)
{
    if (f->more > 0) {
        buf_addf(out, " (and %u more)", f->more);
    }
}

void report_lines(const struct preflight_report *r, bool quiet, struct buf *out)
{
    buf_addf(out, "%s: %s\n", verdict(r), r->text);
    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];

        if (!told(f, quiet)) {
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

/* --- the table --------------------------------------------------------------------------------------------------------- */

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

void report_table(const struct preflight_report *r, unsigned columns, bool quiet, struct buf *out)
{
    struct buf text = BUF_INIT(2048);

    for (size_t i = 0; i < r->n; i++) {
        const struct finding *f = &r->finding[i];

        if (!told(f, quiet)) {
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
    buf_addf(out, "%s: %s, %u ms\n", verdict(r), r->text, r->took_ms);
    buf_free(&text);
}

/* --- for programs ------------------------------------------------------------------------------------------------------ */

void report_json(const struct preflight_report *r, struct buf *out)
{
    jwrite_str(out, "verdict", verdict(r));
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

static void put_head(struct buf *out, const char *name, const char *help)
{
    buf_addf(out, "# HELP trainagent_preflight_%s %s\n# TYPE trainagent_preflight_%s gauge\n", name,
             help, name);
}

void report_metrics(const struct preflight_report *r, struct buf *out)
{
    static const char *const names[] = {"ok", "warn", "crit", "skip"};

    put_head(out, "status", "What a check found: 0 OK, 1 WARN, 2 CRIT, 3 skipped.");
    for (size_t i = 0; i < r->n; i++) {
        buf_addf(out, "trainagent_preflight_status{check=\"%s\"} %u\n",
                 check_name(r->finding[i].check), r->finding[i].level);
    }
    put_head(out, "checks", "How many checks found what.");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        buf_addf(out, "trainagent_preflight_checks{status=\"%s\"} %u\n", names[i], r->count[i]);
    }
    put_head(out, "verdict",
             "The worst of all checks: 0 OK, 1 WARN, 2 CRIT, 3 nothing was looked at.");
    buf_addf(out, "trainagent_preflight_verdict %d\n", report_exit(r));
    put_head(out, "timestamp_seconds", "When the checks began.");
    buf_addf(out, "trainagent_preflight_timestamp_seconds %" PRIu64 "\n", r->began_unix_s);
    put_head(out, "duration_seconds", "How long they took.");
    buf_addf(out, "trainagent_preflight_duration_seconds %u.%03u\n", r->took_ms / 1000,
             r->took_ms % 1000);
}

int report_textfile(const struct preflight_report *r, const char *path, struct err *e)
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

/* --- what there is ----------------------------------------------------------------------------------------------------- */

void report_catalogue(struct buf *out)
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
        "# What `trainagent preflight` looks at\n\n"
        "Made by `make docs` of agent/preflight/checks.def and expect.def; how to use it: docs/operations.md, trainagent(1).\n\n"
        "| check | set | a failure is | what it is |\n|---|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(checks); i++) {
        buf_addf(out, "| %s | %s | %s | %s |\n", checks[i].name,
                 strcmp(checks[i].cost, "FULL") == 0 ? "--full" : "quick", checks[i].severity,
                 checks[i].what);
    }
    buf_str(
        out,
        "\nWhat a node must have: keys of `preflight { }` in its file or in a job, and of `--expect KEY=VALUE`.\n"
        "`only`, `skip` and `warn` are lists of checks: which are made, which are not, whose failures are warnings.\n\n"
        "| key | value | by itself | what it is |\n|---|---|---|---|\n");
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
