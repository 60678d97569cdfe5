#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/log.h"
#include "server/admin/admin.h"
#include "server/admin/sample.h"
#include "server/fetch/request.h"

struct text { /* one exposition being written */
    struct buf *out;
    const struct sample *s;
    bool openmetrics;
    const char *name; /* of the metric under way */
};

/* Help first, then the type. OpenMetrics names a counter without its "_total". */
static void head(struct text *t, const char *name, const char *type, const char *help)
{
    size_t n = strlen(name);

    if (t->openmetrics && strcmp(type, "counter") == 0 && n > 6) {
        n -= 6;
    }
    t->name = name;
    buf_addf(t->out, "# HELP %.*s %s\n# TYPE %.*s %s\n", (int)n, name, help, (int)n, name, type);
}

static void print_metric_value(struct buf *out, double v)
{
    /* Whole numbers in full: a counter past 2^53 is beyond any machine's life. */
    if (v == floor(v) && fabs(v) < 9e15) {
        buf_addf(out, "%.0f\n", v);
    } else {
        buf_addf(out, "%.9g\n", v);
    }
}

static void add_one_sample(struct text *t, double v)
{
    buf_addf(t->out, "%s ", t->name);
    print_metric_value(t->out, v);
}

/* --- numbers of each repo, loop, pool --- */

/* Names are of the configuration, which admits neither quotes nor backslashes in them. */
static void of_repo(struct text *t, const char *repo, double v)
{
    buf_addf(t->out, "%s{repo=\"%s\"} ", t->name, repo);
    print_metric_value(t->out, v);
}

static void print_rsync_sessions(struct text *t)
{
    for (unsigned o = 0; o < DOOR_OUTCOMES; o++) {
        buf_addf(t->out, "%s{outcome=\"%s\"} %" PRIu64 "\n", t->name,
                 door_outcome_name((enum door_outcome)o), t->s->rsync.sessions[o]);
    }
}

static void print_sync_runs(struct text *t)
{
    for (size_t i = 0; i < t->s->syncs; i++) {
        const struct sync_view *v = &t->s->sync[i];
        for (unsigned o = RUN_PUBLISHED; o <= RUN_STOPPED; o++) {
            buf_addf(t->out, "%s{repo=\"%s\",outcome=\"%s\"} %" PRIu64 "\n", t->name, v->name,
                     run_outcome_name((enum run_outcome)o), v->runs[o]);
        }
    }
}

static void print_sync_changes(struct text *t)
{
    for (size_t i = 0; i < t->s->syncs; i++) {
        const struct sync_view *v = &t->s->sync[i];
        const struct {
            const char *action;
            uint64_t entries;
        } all[] = {
            {"new", v->fresh}, {"changed", v->changed}, {"gone", v->gone}, {"kept", v->kept}};
        for (size_t a = 0; a < ARRAY_LEN(all); a++) {
            buf_addf(t->out, "%s{repo=\"%s\",action=\"%s\"} %" PRIu64 "\n", t->name, v->name,
                     all[a].action, all[a].entries);
        }
    }
}

#define PRINT_SYNC(what, value)                                                                    \
    static void print_sync_##what(struct text *t)                                                  \
    {                                                                                              \
        for (size_t i = 0; i < t->s->syncs; i++) {                                                 \
            const struct sync_view *v = &t->s->sync[i];                                            \
            of_repo(t, v->name, (double)(value));                                                  \
        }                                                                                          \
    }
PRINT_SYNC(bytes, v->wire_bytes)
PRINT_SYNC(files, v->files)
PRINT_SYNC(attempts, v->attempts_failed)
PRINT_SYNC(took, v->took_s)
PRINT_SYNC(running, v->running)
PRINT_SYNC(held, v->held_seq != 0)
PRINT_SYNC(failures, v->failures)
PRINT_SYNC(success, v->last_ok_unix_s)
PRINT_SYNC(size, v->head.bytes)
PRINT_SYNC(entries, v->head.entries)

/* Without a cluster there are no lines. */
#define PRINT_CLUSTER(what, value)                                                                 \
    static void print_cluster_##what(struct text *t)                                               \
    {                                                                                              \
        const struct cluster_status *c = &t->s->cluster;                                           \
        if (t->s->clustered) {                                                                     \
            add_one_sample(t, (double)(value));                                                    \
        }                                                                                          \
    }
PRINT_CLUSTER(up, c->failures == 0 && c->state != CLUSTER_STOPPED && c->state != CLUSTER_NOT_JOINED)
PRINT_CLUSTER(stopped, c->state == CLUSTER_STOPPED || c->state == CLUSTER_BROKEN)
PRINT_CLUSTER(check, c->checked.step == NULL)
PRINT_CLUSTER(checked, c->checked.at_unix_s)
PRINT_CLUSTER(applied, c->applied)
PRINT_CLUSTER(lag, (double)c->lag_ms / 1000)
PRINT_CLUSTER(waiting, c->commits_waiting)
PRINT_CLUSTER(uploads, c->content.uploaded)
PRINT_CLUSTER(upload_bytes, c->content.uploaded_bytes)
PRINT_CLUSTER(fetches, c->content.fetched)
PRINT_CLUSTER(fetch_bytes, c->content.fetched_bytes)
PRINT_CLUSTER(fetches_failed, c->content.failed)
PRINT_CLUSTER(collected, c->collect.deleted)
PRINT_CLUSTER(collected_bytes, c->collect.deleted_bytes)
PRINT_CLUSTER(condemned_bytes, c->collect.waiting_bytes)
PRINT_CLUSTER(last_collection, c->collect.last.ended_unix_s)
PRINT_CLUSTER(collect_failures, c->collect.failures)

/* Results that never came are left out, but for those from which rates start. */
static void print_cluster_requests(struct text *t)
{
    static const char *const methods[BUCKET_METHODS] = {"GET", "PUT", "POST", "DELETE"};
    static const char *const results[BUCKET_RESULTS] = {"ok",   "absent", "exists",
                                                        "busy", "denied", "failed"};

    for (size_t m = 0; t->s->clustered && m < BUCKET_METHODS; m++) {
        for (size_t r = 0; r < BUCKET_RESULTS; r++) {
            uint64_t n = t->s->cluster.bucket.requests[m][r];
            if (n != 0 || r == BUCKET_OK || r == BUCKET_FAILED) {
                buf_addf(t->out, "%s{method=\"%s\",result=\"%s\"} %" PRIu64 "\n", t->name,
                         methods[m], results[r], n);
            }
        }
    }
}

static void print_cluster_bytes(struct text *t)
{
    const struct bucket_stats *b = &t->s->cluster.bucket;

    if (t->s->clustered) {
        buf_addf(t->out, "%s{direction=\"sent\"} %" PRIu64 "\n", t->name, b->sent_bytes);
        buf_addf(t->out, "%s{direction=\"received\"} %" PRIu64 "\n", t->name, b->received_bytes);
    }
}

static void print_cluster_relayed(struct text *t)
{
    const struct relay_stats *r = &t->s->cluster.relayed;

    if (t->s->clustered && t->s->cluster.relays) {
        buf_addf(t->out, "%s{direction=\"sent\"} %" PRIu64 "\n", t->name, r->sent);
        buf_addf(t->out, "%s{direction=\"received\"} %" PRIu64 "\n", t->name, r->received);
        buf_addf(t->out, "%s{direction=\"failed\"} %" PRIu64 "\n", t->name, r->failed);
    }
}

static void print_cluster_owner_requests(struct text *t)
{
    const struct origin_request_stats *o = &t->s->cluster.owners;

    if (t->s->clustered && t->s->cluster.owned) {
        buf_addf(t->out, "%s{result=\"ok\"} %" PRIu64 "\n", t->name,
                 o->requests - min_u64(o->errors, o->requests));
        buf_addf(t->out, "%s{result=\"failed\"} %" PRIu64 "\n", t->name, o->errors);
    }
}

static void print_cluster_owner_bytes(struct text *t)
{
    if (t->s->clustered && t->s->cluster.owned) {
        add_one_sample(t, (double)t->s->cluster.owners.bytes);
    }
}

static void print_cluster_hints_up(struct text *t)
{
    if (t->s->clustered && t->s->cluster.hinted) {
        add_one_sample(t, t->s->cluster.hints.up);
    }
}

static void print_cluster_hints(struct text *t)
{
    const struct hints_status *h = &t->s->cluster.hints;

    if (t->s->clustered && t->s->cluster.hinted) {
        buf_addf(t->out, "%s{direction=\"sent\"} %" PRIu64 "\n", t->name, h->sent);
        buf_addf(t->out, "%s{direction=\"received\"} %" PRIu64 "\n", t->name, h->received);
    }
}

static void print_certificates(struct text *t)
{
    for (size_t i = 0; i < t->s->certificates; i++) {
        buf_addf(t->out, "%s{listen=\"%s\"} %" PRId64 "\n", t->name, t->s->certificate[i].listen,
                 t->s->certificate[i].valid.expires_unix_s);
    }
}

static void print_build(struct text *t)
{
    buf_addf(t->out, "%s{version=\"" MIRROR_VERSION "\"} 1\n", t->name);
}

/* Classes and states that never came are left out, but for a repo's hits and misses: rates need a
 * zero to start from. */
static void print_requests(struct text *t)
{
    struct traffic *tr = t->s->deps->traffic;
    struct traffic_sum sum;

    for (unsigned r = 0; r < traffic_repos(tr); r++) {
        traffic_sum(tr, r, &sum);
        for (unsigned c = 0; c < TRAFFIC_CLASSES; c++) {
            for (unsigned st = 0; st < TRAFFIC_STATES; st++) {
                bool always = c == 1 && (st == CACHE_HIT || st == CACHE_MISS) && r != TRAFFIC_OWN;
                if (sum.requests[c][st] != 0 || always) {
                    buf_addf(t->out, "%s{repo=\"%s\",code=\"%uxx\",cache=\"%s\"} %" PRIu64 "\n",
                             t->name, traffic_repo_name(tr, r), c + 1, traffic_state_name(st),
                             sum.requests[c][st]);
                }
            }
        }
    }
}

static void print_bytes(struct text *t)
{
    struct traffic *tr = t->s->deps->traffic;
    struct traffic_sum sum;

    for (unsigned r = 0; r < traffic_repos(tr); r++) {
        traffic_sum(tr, r, &sum);
        for (unsigned st = 0; st < TRAFFIC_STATES; st++) {
            if (sum.bytes[st] != 0 || (st == CACHE_HIT && r != TRAFFIC_OWN)) {
                buf_addf(t->out, "%s{repo=\"%s\",cache=\"%s\"} %" PRIu64 "\n", t->name,
                         traffic_repo_name(tr, r), traffic_state_name(st), sum.bytes[st]);
            }
        }
    }
}

static void print_cut(struct text *t)
{
    struct traffic *tr = t->s->deps->traffic;
    struct traffic_sum sum;

    for (unsigned r = 0; r < traffic_repos(tr); r++) {
        traffic_sum(tr, r, &sum);
        of_repo(t, traffic_repo_name(tr, r), (double)sum.cut);
    }
}

static void print_times(struct text *t)
{
    struct traffic_times times;
    uint64_t below = 0;

    traffic_times(t->s->deps->traffic, &times);
    for (unsigned i = 0; i < TRAFFIC_BUCKETS; i++) {
        below += times.bucket[i];
        buf_addf(t->out, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", t->name, traffic_bounds_s[i], below);
    }
    buf_addf(t->out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", t->name, times.count);
    buf_addf(t->out, "%s_sum %.9g\n%s_count %" PRIu64 "\n", t->name, (double)times.sum_ns / 1e9,
             t->name, times.count);
}

static void print_upstream(struct text *t, size_t field)
{
    struct traffic *tr = t->s->deps->traffic;
    struct origin_request_stats st;

    for (unsigned r = 0; r < traffic_repos(tr); r++) {
        if (traffic_fetched(tr, r, &st)) {
            of_repo(t, traffic_repo_name(tr, r),
                    (double)*(const uint64_t *)(const void *)((const char *)&st + field));
        }
    }
}

static void print_upstream_requests(struct text *t)
{
    print_upstream(t, offsetof(struct origin_request_stats, requests));
}

static void print_upstream_bytes(struct text *t)
{
    print_upstream(t, offsetof(struct origin_request_stats, bytes));
}

static void print_upstream_errors(struct text *t)
{
    print_upstream(t, offsetof(struct origin_request_stats, errors));
}

static void print_upstream_throttled(struct text *t)
{
    print_upstream(t, offsetof(struct origin_request_stats, throttled));
}

static void print_pools(struct text *t)
{
    buf_addf(t->out, "%s{pool=\"disk\"} %u\n", t->name, pool_waiting(t->s->deps->disk));
    buf_addf(t->out, "%s{pool=\"readers\"} %u\n", t->name, pool_waiting(t->s->deps->readers));
}

/* --- the process, under the names that every exporter uses --- */

static uint64_t resident_bytes(void)
{
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    if (f != NULL) {
        if (fscanf(f, "%*u %llu", &pages) != 1) {
            pages = 0;
        }
        fclose(f);
    }
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void process(struct text *t)
{
    struct rusage use;
    struct rlimit files;
    struct stat st;

    getrusage(RUSAGE_SELF, &use);
    head(t, "process_cpu_seconds_total", "counter", "User and system time.");
    add_one_sample(t, (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
                          (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6);
    head(t, "process_resident_memory_bytes", "gauge", "Memory in use.");
    add_one_sample(t, (double)resident_bytes());
    head(t, "process_start_time_seconds", "gauge", "When the process started, unix time.");
    add_one_sample(t, (double)t->s->deps->lifecycle->started_unix_s);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        head(t, "process_max_fds", "gauge", "Most files open at once.");
        add_one_sample(t, (double)files.rlim_cur);
    }
    /* The folder's size is their number from Linux 6.2 on; before that 0, and counting 10,000 takes
     * too long here. */
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) {
        head(t, "process_open_fds", "gauge", "Files open.");
        add_one_sample(t, (double)st.st_size);
    }
}

/* RocksDB's own, "name value" a line, made into untyped metrics. */
static void rocksdb(struct text *t)
{
    struct buf lines = BUF_INIT(1 << 20);
    struct slice rest;

    store_metrics(t->s->deps->store, &lines);
    rest = buf_slice(&lines);
    while (rest.n > 0) {
        struct slice value = slice_cut(&rest, '\n'), name = slice_cut(&value, ' ');
        if (name.n > 0 && value.n > 0) {
            buf_addf(t->out,
                     "# HELP " SLICE_FMT " RocksDB's own number of that name.\n"
                     "# TYPE " SLICE_FMT " %s\n" SLICE_FMT " " SLICE_FMT "\n",
                     SLICE_ARG(name), SLICE_ARG(name), t->openmetrics ? "unknown" : "untyped",
                     SLICE_ARG(name), SLICE_ARG(value));
        }
    }
    buf_free(&lines);
}

void metrics_text(const struct admin_deps *deps, bool openmetrics, struct buf *out)
{
    struct sample sample;
    const struct sample *s = &sample;
    struct text t = {.out = out, .s = s, .openmetrics = openmetrics};

    sample_take(deps, &sample);
#define METRIC(name, type, value, help)                                                            \
    head(&t, "mirrord_" #name, #type, help);                                                       \
    add_one_sample(&t, (value));
#define METRIC_EACH(name, type, print, help)                                                       \
    head(&t, "mirrord_" #name, #type, help);                                                       \
    print(&t);
#include "server/admin/metrics.def"
#undef METRIC
#undef METRIC_EACH
    process(&t);
    rocksdb(&t);
    if (openmetrics) {
        buf_str(out, "# EOF\n");
    }
    sample_drop(&sample);
}

void metrics_doc(struct buf *out)
{
    static const struct {
        const char *name, *type, *help;
    } rows[] = {
#define METRIC(name, type, value, help)      {#name, #type, help},
#define METRIC_EACH(name, type, print, help) {#name, #type, help},
#include "server/admin/metrics.def"
#undef METRIC
#undef METRIC_EACH
    };

    buf_str(out,
            "# Every metric of mirrord\n\nMade from `server/admin/metrics.def` by `make docs`. "
            "`GET /metrics` returns them in Prometheus' text\nformat, or as OpenMetrics if Accept "
            "asks for it.\n\n| Metric | Type | Meaning |\n|---|---|---|\n");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_addf(out, "| `mirrord_%s` | %s | %s |\n", rows[i].name, rows[i].type, rows[i].help);
    }
    buf_str(out, "\nThere are also `process_*`, as in all exporters, and `mirrord_rocksdb_*`.\n");
}
