/* status.c - trainagent status and gc. */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "agent/job/record.h"
#include "agent/slurm/staging.h"
#include "agent/command.h"
#include "agent/probe.h"
#include "common/codec/units.h"
#include "common/os/clock.h"

enum { PROBE_PATIENCE_MS = 2000 };

/* `key` is the name in JSON. */
static void print_cache_totals(const struct agent *a, const struct local_cache_totals *t,
                               const char *key, const char *what)
{
    char blobs[UNITS_TEXT], trees[UNITS_TEXT], partials[UNITS_TEXT];

    if (a->json) {
        printf(
            "{\"%s\":{\"blobs\":%" PRIu64 ",\"blob_bytes\":%" PRIu64 ",\"trees\":%" PRIu64
            ",\"tree_bytes\":%" PRIu64 ",\"partials\":%" PRIu64 ",\"partial_bytes\":%" PRIu64 "}",
            key, t->blobs, t->blob_bytes, t->trees, t->tree_bytes, t->partials, t->partial_bytes);
        return;
    }
    size_format(t->blob_bytes, blobs);
    size_format(t->tree_bytes, trees);
    size_format(t->partial_bytes, partials);
    printf("%-8s %" PRIu64 " %s (%s), %" PRIu64 " unpacked %s (%s), %" PRIu64
           " unfinished %s (%s)\n",
           what, t->blobs, plural(t->blobs, "file", "files"), blobs, t->trees,
           plural(t->trees, "archive", "archives"), trees, t->partials,
           plural(t->partials, "download", "downloads"), partials);
}

static void print_mirror(const struct agent *a, const struct mirror_probe *m, bool first)
{
    bool ready = m->status == 200;
    char took[UNITS_TEXT];

    span_format(m->took_ms, took);
    if (a->json) {
        printf("%s{\"url\":\"" SLICE_FMT "\",\"ready\":%s,\"status\":%d,\"took_ms\":%" PRIu64 "}",
               first ? "" : ",", SLICE_ARG(m->url), ready ? "true" : "false", m->status,
               m->took_ms);
    } else if (m->status == 0) {
        printf("%-8s " SLICE_FMT "  %s\n", "mirror", SLICE_ARG(m->url), m->why.text);
    } else if (ready) {
        printf("%-8s " SLICE_FMT "  ready, responded after %s\n", "mirror", SLICE_ARG(m->url),
               took);
    } else {
        printf("%-8s " SLICE_FMT "  responds to /readyz with %d\n", "mirror", SLICE_ARG(m->url),
               m->status);
    }
}

static void print_mirrors(const struct agent *a)
{
    struct mirror_probe m[MIRRORS_MAX];
    unsigned n = a->mirrors != NULL ? mirrors_count(a->mirrors) : 0;

    if (n > 0) {
        probe_mirrors(a, PROBE_PATIENCE_MS, m);
    }
    if (a->json) {
        fputs(",\"mirrors\":[", stdout);
    }
    for (unsigned i = 0; i < n; i++) {
        print_mirror(a, &m[i], i == 0);
    }
    if (a->json) {
        fputs("]", stdout);
    }
}

static int run_status_verb(struct verb_line *v, struct err *e)
{
    struct local_cache_totals t;
    int rc = v->argc == 0 ? 0 : err_set(e, E_USAGE, "status takes no argument");

    rc = rc != 0 ? rc : agent_open(v->agent, AGENT_YIELDS, e);
    rc = rc != 0 ? rc : local_cache_measure(v->agent->local_cache, &t, e);
    if (rc != 0) {
        return rc;
    }
    print_cache_totals(v->agent, &t, "shelf", "cache");
    if (!v->agent->json) {
        printf("%-8s %s\n", "at", local_cache_dir(v->agent->local_cache));
    }
    print_mirrors(v->agent);
    records_print(v->agent);
    if (v->agent->json) {
        puts("}");
    }
    return 0;
}

static int run_gc(struct verb_line *v, struct err *e)
{
    struct local_cache_gc_params w = {v->keep_bytes, v->keep_age_s, clock_unix_s()};
    struct local_cache_totals removed;
    size_t jobs = 0;
    int rc = v->argc == 0 ? 0 : err_set(e, E_USAGE, "gc takes no argument");

    rc = rc != 0 ? rc : agent_open(v->agent, AGENT_YIELDS, e);
    rc = rc != 0 ? rc : staging_sweep(v->agent->local_cache, &v->agent->node, &jobs, e);
    rc = rc != 0 ? rc : local_cache_gc(v->agent->local_cache, &w, &removed, e);
    if (rc == 0 && (v->agent->json || isatty(STDOUT_FILENO))) {
        print_cache_totals(v->agent, &removed, "removed", "removed");
        if (v->agent->json) {
            puts("}");
        } else if (jobs > 0) {
            printf("%-8s records of %zu %s that %s gone\n", "", jobs, plural(jobs, "job", "jobs"),
                   plural(jobs, "is", "are"));
        }
    }
    return rc;
}

const struct agent_verb verb_status = {
    .name = "status",
    .run = run_status_verb,
    .args = "",
    .help = "show what the local cache holds, whether the mirrors respond, and which jobs ran",
    .example = "trainagent status",
};

const struct agent_verb verb_gc = {
    .name = "gc",
    .run = run_gc,
    .args = "",
    .help = "remove files from the local cache",
    .example = "trainagent gc --keep 200g --age 14d",
};
