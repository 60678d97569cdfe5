#include "agent/job/jobfile.h"

#include <confuse.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/codec/units.h"

enum { RESTARTS_MAX = 1000000, RANKS_MAX = 1024 };

/* libconfuse reports through a function without an argument; a job is read once, by one thread. */
static struct err *complaint;

static void on_error(cfg_t *cfg, const char *fmt, va_list ap)
{
    char text[160];

    if (complaint == NULL || complaint->code != 0) {
        return; /* the first one is the cause */
    }
    vsnprintf(text, sizeof text, fmt, ap);
    err_set(complaint, E_CONFIG, "%s:%d: %s", cfg->filename != NULL ? cfg->filename : "job",
            cfg->line, text);
}

static int wrong(struct err *e, const char *path, const char *what)
{
    return err_set(e, E_CONFIG, "%s: %s", path, what);
}

static const char *keep(struct jobfile *j, const char *text)
{
    return text == NULL ? NULL : arena_cstr(&j->arena, slice_str(text));
}

static const char **keep_list(struct jobfile *j, cfg_t *cfg, const char *name, size_t *n)
{
    const char **list;

    *n = cfg_size(cfg, name);
    list = arena_alloc(&j->arena, (*n + 1) * sizeof list[0]);
    for (size_t i = 0; i < *n; i++) {
        list[i] = keep(j, cfg_getnstr(cfg, name, (unsigned)i));
    }
    return list;
}

/* Names become folders and placeholders. */
static bool name_ok(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '-' || c == '_')) {
            return false;
        }
    }
    return s.n > 0 && s.n <= 64;
}

static int read_artifact(struct jobfile *j, cfg_t *cfg, struct job_artifact *a, const char *path,
                         struct err *e)
{
    const char *sha256 = cfg_getstr(cfg, "sha256");

    a->name = keep(j, cfg_title(cfg));
    a->from = keep(j, cfg_getstr(cfg, "from"));
    a->unpack = cfg_getbool(cfg, "unpack") == cfg_true;
    a->include = keep_list(j, cfg, "include", &a->ninclude);
    a->exclude = keep_list(j, cfg, "exclude", &a->nexclude);
    if (!name_ok(slice_str(a->name)) || strcmp(a->name, "out") == 0) {
        return err_set(
            e, E_CONFIG,
            "%s: artifact \"%s\": a name is letters, digits, '-' and '_', and not \"out\"", path,
            a->name);
    }
    if (a->from == NULL) {
        return err_set(e, E_CONFIG, "%s: artifact \"%s\" says no from = \"<repo>/<path>\"", path,
                       a->name);
    }
    if (sha256 != NULL &&
        (!digest_parse(slice_str(sha256), &a->digest) || digest_is_zero(&a->digest))) {
        return err_set(e, E_CONFIG, "%s: artifact \"%s\": sha256 is 64 hex digits", path, a->name);
    }
    return 0;
}

static int read_run(struct jobfile *j, cfg_t *cfg, const char *path, struct err *e)
{
    const char *ranks = cfg_getstr(cfg, "ranks");
    long restarts = cfg_getint(cfg, "restarts");
    uint64_t n = 0;

    j->command = keep_list(j, cfg, "command", &j->ncommand);
    j->out = keep(j, cfg_getstr(cfg, "out"));
    if (j->ncommand == 0) {
        return wrong(e, path, "run says no command = {\"program\", \"argument\"}");
    }
    if (strcmp(ranks, "auto") != 0 &&
        (!slice_u64(slice_str(ranks), &n) || n == 0 || n > RANKS_MAX)) {
        return wrong(e, path, "ranks is auto or a number from 1 to 1024");
    }
    if (restarts < 0 || restarts > RESTARTS_MAX) {
        return wrong(e, path, "restarts is a number from 0 to 1000000");
    }
    if (!span_parse(slice_str(cfg_getstr(cfg, "grace")), &j->grace_ms) ||
        !span_parse(slice_str(cfg_getstr(cfg, "backoff")), &j->backoff_ms)) {
        return wrong(e, path, "grace and backoff are spans, such as 25s");
    }
    j->ranks = (unsigned)n;
    j->restarts = (unsigned)restarts;
    return 0;
}

static int take(struct jobfile *j, cfg_t *cfg, const char *path, struct err *e)
{
    int rc = 0;

    j->mirror = keep(j, cfg_getstr(cfg, "mirror"));
    j->nartifacts = cfg_size(cfg, "artifact");
    j->artifact = arena_alloc(&j->arena, (j->nartifacts + 1) * sizeof j->artifact[0]);
    for (size_t i = 0; rc == 0 && i < j->nartifacts; i++) {
        rc = read_artifact(j, cfg_getnsec(cfg, "artifact", (unsigned)i), &j->artifact[i], path, e);
    }
    j->npublish = cfg_size(cfg, "publish");
    j->publish = arena_alloc(&j->arena, (j->npublish + 1) * sizeof j->publish[0]);
    for (size_t i = 0; rc == 0 && i < j->npublish; i++) {
        cfg_t *p = cfg_getnsec(cfg, "publish", (unsigned)i);
        j->publish[i].from = keep(j, cfg_getstr(p, "from"));
        j->publish[i].to = keep(j, cfg_getstr(p, "to"));
        if (j->publish[i].from == NULL || j->publish[i].to == NULL) {
            rc =
                wrong(e, path, "publish needs from = \"{out}\" and to = \"<repo>/<owner>/<name>\"");
        }
    }
    if (rc == 0 && cfg_size(cfg, "run") > 1) {
        rc = wrong(e, path, "more than one run");
    } else if (rc == 0 && cfg_size(cfg, "run") == 1) {
        rc = read_run(j, cfg_getnsec(cfg, "run", 0), path, e);
    }
    return rc;
}

int jobfile_read(const char *path, struct jobfile *j, struct err *e)
{
    cfg_opt_t artifact[] = {
        CFG_STR("from", NULL, CFGF_NODEFAULT),    CFG_STR("sha256", NULL, CFGF_NODEFAULT),
        CFG_BOOL("unpack", cfg_false, CFGF_NONE), CFG_STR_LIST("include", NULL, CFGF_NONE),
        CFG_STR_LIST("exclude", NULL, CFGF_NONE), CFG_END()};
    cfg_opt_t run[] = {CFG_STR_LIST("command", NULL, CFGF_NONE),
                       CFG_STR("ranks", "auto", CFGF_NONE),
                       CFG_INT("restarts", 0, CFGF_NONE),
                       CFG_STR("grace", "25s", CFGF_NONE),
                       CFG_STR("backoff", "1s", CFGF_NONE),
                       CFG_STR("out", NULL, CFGF_NODEFAULT),
                       CFG_END()};
    cfg_opt_t publish[] = {CFG_STR("from", NULL, CFGF_NODEFAULT),
                           CFG_STR("to", NULL, CFGF_NODEFAULT), CFG_END()};
    cfg_opt_t top[] = {CFG_STR("mirror", NULL, CFGF_NODEFAULT),
                       CFG_SEC("artifact", artifact, CFGF_MULTI | CFGF_TITLE | CFGF_NO_TITLE_DUPES),
                       CFG_SEC("run", run, CFGF_MULTI), CFG_SEC("publish", publish, CFGF_MULTI),
                       CFG_END()};
    struct err said = {0};
    cfg_t *cfg = cfg_init(top, CFGF_NONE);
    int rc = 0;
    int got;

    *j = (struct jobfile){0};
    CHECK(cfg != NULL);
    if (access(path, R_OK) == -1) {
        cfg_free(cfg);
        return err_sys(e, "%s", path);
    }
    complaint = &said;
    cfg_set_error_function(cfg, on_error);
    got = cfg_parse(cfg, path);
    complaint = NULL;
    if (got != CFG_SUCCESS) {
        rc = err_set(e, E_CONFIG, "%s", said.code != 0 ? said.text : path);
    } else {
        rc = take(j, cfg, path, e);
    }
    cfg_free(cfg);
    if (rc != 0) {
        jobfile_fini(j);
    }
    return rc;
}

void jobfile_fini(struct jobfile *j)
{
    arena_fini(&j->arena);
    *j = (struct jobfile){0};
}

int jobfile_fill(const char *text, const char *(*value)(void *arg, struct slice name), void *arg,
                 struct buf *out, struct err *e)
{
    struct slice rest = slice_str(text);

    while (rest.n > 0) {
        ptrdiff_t end = slice_find(rest, '}');
        struct slice name;
        const char *v;

        if (rest.p[0] != '{') {
            buf_byte(out, (uint8_t)rest.p[0]);
            rest = slice_from(rest, 1);
            continue;
        }
        if (rest.n > 1 && rest.p[1] == '{') {
            buf_byte(out, '{');
            rest = slice_from(rest, 2);
            continue;
        }
        name = end > 0 ? slice_of(rest.p + 1, (size_t)end - 1) : SLICE_NONE;
        v = end > 0 ? value(arg, name) : NULL;
        if (v == NULL) {
            return err_set(e, E_CONFIG,
                           "\"%.100s\": {" SLICE_FMT
                           "} is no artifact of this job, nor {out}; a plain brace is written {{",
                           text, SLICE_ARG(name));
        }
        buf_str(out, v);
        rest = slice_from(rest, (size_t)end + 1);
    }
    return out->rc != 0 ? err_set(e, E_TOOBIG, "\"%.100s\": too long", text) : 0;
}
