/* run.c - trainagent run: one job from its file, start to end; and launch, its middle alone. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/job/jitter.h"
#include "agent/job/jobfile.h"
#include "agent/job/launch.h"
#include "agent/job/record.h"
#include "agent/job/service.h"
#include "agent/preflight/preflight.h"
#include "agent/publish/publish.h"
#include "agent/peers/peers.h"
#include "agent/pull/artifact.h"
#include "agent/cache/unpack.h"
#include "agent/command.h"
#include "common/base/log.h"
#include "common/os/clock.h"
#include "common/os/newfile.h"

enum { ARGUMENT_MAX = 64 << 10 };

struct run {
    struct agent *agent;
    struct jobfile job;
    char job_name[80];  /* the same on all nodes */
    char name[96];      /* and of this node's part */
    char dir[PATH_MAX]; /* what this job keeps: lock, in/, out/, result.json */
    char out[PATH_MAX];
    struct artifact *artifact;
    char (*path)[PATH_MAX]; /* of each artifact, for {name} */
    /* shared, on what runs from the local cache itself: gc keeps off */
    struct local_cache_lock **local_cache_lock;
    int lock;
    uint64_t began_ms;       /* the command's first attempt */
    struct nodes nodes;      /* among which this one is */
    const char *preempt_url; /* NULL: not said */
    struct record record;
};

/* --- the job's folder ------------------------------------------------------------------------- */

/* "wiki-gpt2-1a2b3c4d": readable, and another job.conf elsewhere is another job. Node 3's part is
 * "wiki-gpt2-1a2b3c4d-node3", as the nodes may share the folder of jobs; node 0's has no such end,
 * so that a job may go on with one node. */
static int name_job(struct run *r, const char *file, struct err *e)
{
    char *full = realpath(file, NULL);
    const char *base = strrchr(file, '/');
    struct digest d;
    int n;

    if (full == NULL) {
        return err_sys(e, "%s", file);
    }
    digest_of(slice_str(full), &d);
    free(full);
    base = base != NULL ? base + 1 : file;
    n = (int)strcspn(base, ".");
    snprintf(r->job_name, sizeof r->job_name, "%.*s-%02x%02x%02x%02x", n < 64 ? n : 64, base,
             d.b[0], d.b[1], d.b[2], d.b[3]);
    return 0;
}

static void name_part(struct run *r)
{
    int n = snprintf(r->name, sizeof r->name, "%s", r->job_name);

    if (r->nodes.rank > 0) {
        snprintf(r->name + n, sizeof r->name - (size_t)n, "-node%u", r->nodes.rank);
    }
}

static int open_job_folder(struct run *r, struct err *e)
{
    char path[PATH_MAX + 8];
    int rc;

    if (strlen(r->agent->state_dir) + sizeof r->name + 160 > PATH_MAX) {
        return err_set(e, E_USAGE, "the path of the state folder is too long");
    }
    snprintf(r->dir, sizeof r->dir, "%.3800s/jobs/%s", r->agent->state_dir, r->name);
    rc = dir_make(r->dir, 0755, e);
    if (rc != 0) {
        return rc;
    }
    snprintf(path, sizeof path, "%s/lock", r->dir);
    /* No O_CLOEXEC: what the command starts holds the lock too. After a SIGKILL of ours nobody runs
     * beside what it left. */
    r->lock = open(path, O_RDWR | O_CREAT, 0644);
    if (r->lock == -1) {
        return err_sys(e, "%s", path);
    }
    if (flock(r->lock, LOCK_EX | LOCK_NB) == -1) {
        return errno == EWOULDBLOCK
                   ? err_set(e, E_BUSY,
                             "%s: the job, or a process that it started, is still running", r->name)
                   : err_sys(e, "%s", path);
    }
    if (r->job.out != NULL) {
        snprintf(r->out, sizeof r->out, "%s", r->job.out);
    } else {
        snprintf(r->out, sizeof r->out, "%.3800s/jobs/%s/out", r->agent->state_dir, r->job_name);
    }
    return dir_make(r->out, 0755, e);
}

/* --- the node --------------------------------------------------------------------------------- */

static void log_findings(const struct preflight_report *p)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct finding *f = &p->finding[i];
        if (f->level == LEVEL_WARN || f->level == LEVEL_CRIT) {
            log_warn("preflight.found", "check=%s level=%s code=%s %s",
                     check_name((enum check)f->check), level_name((enum level)f->level), f->code,
                     f->text);
        }
    }
}

static int node_is_fit(const struct preflight_params *w, struct err *e)
{
    struct preflight_report *got = NEW(struct preflight_report);
    int rc = preflight_run(w, got, e);

    if (rc == 0) {
        log_findings(got);
        if (got->worst != LEVEL_SKIP && got->worst > got->start_on) {
            rc = err_set(e, E_SICK, "this node is not fit for the job: %.180s", got->text);
        }
    }
    free(got);
    return rc;
}

/* Before anything is fetched, where the job asks for it. */
static int look_at_node(const struct run *r, struct err *e)
{
    const struct preflight_params w = {.agent = r->agent, .job = &r->job.expect, .out = r->out};

    return r->job.preflight ? node_is_fit(&w, e) : 0;
}

/* Before each restart, also where no job asks for it: a rank that died of its GPU dies of it
 * again. */
static int look_at_gpus(const struct agent *agent, uint64_t began_ms, struct err *e)
{
    /* Those whose failures do not pass by themselves. */
    static const char checks[] = "driver,gpus,handle,ecc,remap,retired,nvlink,fabric,cuda,xid";
    struct expect *said = NEW(struct expect);
    struct preflight_params w = {.agent = agent, .said = said};
    char age[48];
    int rc;

    *said = (struct expect){0};
    said->is[EXPECT_ONLY].set = true;
    /* What stood in the kernel's log before did not keep the job from its start. */
    snprintf(age, sizeof age, "xid_age=%" PRIu64 "ms", clock_now_ms() - began_ms + 1);
    rc = expect_names(checks, &said->only, e);
    rc = rc != 0 ? rc : expect_word(age, said, e);
    rc = rc != 0 ? rc : node_is_fit(&w, e);
    free(said);
    return rc;
}

static int look_again(void *arg, struct err *e)
{
    const struct run *r = arg;

    return r->job.preflight ? look_at_node(r, e) : look_at_gpus(r->agent, r->began_ms, e);
}

/* --- the other nodes -------------------------------------------------------------------------- */

static const char *job_environment(const char *name)
{
    return getenv(name);
}

/* With its domain, as the hosts file or the name service has it: a pod of a StatefulSet finds its
 * service by it. */
static void full_hostname(char out[NODES_TEXT])
{
    struct addrinfo hints = {.ai_flags = AI_CANONNAME, .ai_socktype = SOCK_STREAM}, *list = NULL;
    char name[HOST_NAME_MAX + 1] = "";

    (void)gethostname(name, sizeof name - 1);
    snprintf(out, NODES_TEXT, "%s", name);
    if (getenv("KUBERNETES_SERVICE_HOST") != NULL && getaddrinfo(name, NULL, &hints, &list) == 0 &&
        list->ai_canonname != NULL) {
        snprintf(out, NODES_TEXT, "%.255s", list->ai_canonname);
    }
    if (list != NULL) {
        freeaddrinfo(list);
    }
}

/* The command line's over the job file's, over the environment's. */
static int find_nodes(const struct nodes_said *line, const struct nodes_said *file,
                      struct nodes *out, struct err *e)
{
    struct nodes_said said = *line;
    char host[NODES_TEXT];

    if (said.nodes == 0 && said.elastic == NULL) {
        said.nodes = file->nodes;
        said.elastic = file->elastic;
    }
    said.node_rank = said.node_rank != NULL ? said.node_rank : file->node_rank;
    said.rendezvous = said.rendezvous != NULL ? said.rendezvous : file->rendezvous;
    said.id = said.id != NULL ? said.id : file->id;
    said.external = said.external || file->external;
    said.join_ms = said.join_ms != 0 ? said.join_ms : file->join_ms;
    said.lost_ms = said.lost_ms != 0 ? said.lost_ms : file->lost_ms;
    full_hostname(host);
    return nodes_find(&said, job_environment, host, out, e);
}

/* --- what it needs ---------------------------------------------------------------------------- */

/* Did nobody touch it since place_input() gave it its name? A hard link was looked at in this run,
 * as the blob that it is. */
static bool untouched(const struct run *r, const struct artifact_file *f, const char *dir,
                      const struct stat *placed)
{
    char path[PATH_MAX];
    char blob[PATH_MAX];
    struct stat here;
    struct stat there;
    int n = snprintf(path, sizeof path, "%s/" SLICE_FMT, dir, SLICE_ARG(f->name));

    if (n >= (int)sizeof path || lstat(path, &here) == -1 || !S_ISREG(here.st_mode) ||
        (uint64_t)here.st_size != f->size_bytes) {
        return false;
    }
    local_cache_blob_path(r->agent->local_cache, &f->digest, blob);
    if (lstat(blob, &there) == 0 && there.st_ino == here.st_ino && there.st_dev == here.st_dev) {
        return true;
    }
    return here.st_ctim.tv_sec < placed->st_ctim.tv_sec ||
           (here.st_ctim.tv_sec == placed->st_ctim.tv_sec &&
            here.st_ctim.tv_nsec <= placed->st_ctim.tv_nsec);
}

static bool as_placed(const struct run *r, const struct artifact *a, const char *dir)
{
    struct stat placed;
    bool ok = lstat(dir, &placed) == 0;

    for (size_t i = 0; ok && i < a->nfiles; i++) {
        ok = untouched(r, &a->file[i], dir, &placed);
    }
    return ok;
}

/* in/<name>/<key>/: made beside, renamed when whole; what an earlier run used under another key
 * goes, and what it changed. */
static int place_input(struct run *r, size_t i, struct err *e)
{
    const struct artifact *a = &r->artifact[i];
    char base[PATH_MAX];
    char dir[PATH_MAX];
    char temp[PATH_MAX];
    char hex[DIGEST_HEX + 1];
    struct digest key;
    int rc = 0;

    artifact_key(a, &key);
    digest_format(&key, hex);
    snprintf(base, sizeof base, "%.3900s/in/%.64s", r->dir, r->job.artifact[i].name);
    snprintf(dir, sizeof dir, "%.4000s/%.16s", base, hex);
    snprintf(temp, sizeof temp, "%.4000s/new~", base);
    if (!as_placed(r, a, dir)) {
        rc = dir_remove_tree(base, e);
        rc = rc != 0 ? rc : artifact_place(r->agent, a, temp, e);
        if (rc == 0 && rename(temp, dir) == -1) {
            rc = err_sys(e, "%s", dir);
        }
    }
    if (rc == 0) {
        artifact_path(a, dir, r->path[i]);
    }
    return rc;
}

/* What stands for all repositories of a Hub that the job has; false: none. */
static bool hubs_key(const struct run *r, char hex[DIGEST_HEX + 1])
{
    struct hasher *h = hasher_new_whole();
    struct digest key;
    bool any = false;

    for (size_t i = 0; i < r->job.nartifacts; i++) {
        if (r->artifact[i].hub != NULL) {
            artifact_key(&r->artifact[i], &key);
            hasher_add(h, key.b, DIGEST_BYTES);
            any = true;
        }
    }
    hasher_final(h, &key);
    hasher_free(&h);
    digest_format(&key, hex);
    return any;
}

/* All of them in one cache of the Hub's client, so that the command finds each by its name:
 * hf/<key>/hub/. */
static int place_hubs(struct run *r, struct err *e)
{
    char base[PATH_MAX];
    char dir[PATH_MAX];
    char temp[PATH_MAX];
    char hex[DIGEST_HEX + 1];
    struct stat st;
    int rc = 0;

    if (!hubs_key(r, hex)) {
        return 0;
    }
    snprintf(base, sizeof base, "%.1800s/hf", r->dir);
    snprintf(dir, sizeof dir, "%.1900s/%.16s", base, hex);
    snprintf(temp, sizeof temp, "%.1900s/new~", base);
    if (stat(dir, &st) == -1) {
        rc = dir_remove_tree(base, e);
        for (size_t i = 0; rc == 0 && i < r->job.nartifacts; i++) {
            if (r->artifact[i].hub != NULL) {
                rc = artifact_place(r->agent, &r->artifact[i], temp, e);
            }
        }
        if (rc == 0 && rename(temp, dir) == -1) {
            rc = err_sys(e, "%s", dir);
        }
    }
    for (size_t i = 0; rc == 0 && i < r->job.nartifacts; i++) {
        if (r->artifact[i].hub != NULL) {
            artifact_path(&r->artifact[i], dir, r->path[i]);
        }
    }
    snprintf(temp, sizeof temp, "%.1900s/hub", dir);
    setenv("HF_HUB_CACHE", temp, 1);
    return rc;
}

static int settle_input(struct run *r, size_t i, struct err *e)
{
    const struct artifact *a = &r->artifact[i];
    int rc;

    if (a->hub != NULL && !r->job.artifact[i].unpack) {
        return 0; /* place_hubs() does */
    }

    if (!r->job.artifact[i].unpack) {
        return place_input(r, i, e);
    }
    if (a->is_folder) {
        return err_set(e, E_CONFIG,
                       "artifact %s is a folder and cannot be unpacked; leave out unpack",
                       r->job.artifact[i].name);
    }
    rc = unpack_blob(r->agent->local_cache, &a->file[0].digest, r->path[i], &r->local_cache_lock[i],
                     e);
    return rc != 0 ? err_prefix(e, "artifact %s", r->job.artifact[i].name) : 0;
}

static int bring_inputs(struct run *r, struct err *e)
{
    size_t n = r->job.nartifacts;
    int rc = 0;

    r->artifact = mem_array(n + 1, sizeof r->artifact[0]);
    r->path = mem_array(n + 1, sizeof r->path[0]);
    r->local_cache_lock = mem_array(n + 1, sizeof r->local_cache_lock[0]);
    for (size_t i = 0; i < n; i++) {
        const struct job_artifact *j = &r->job.artifact[i];
        r->artifact[i] = (struct artifact){.from = j->from,
                                           .digest = j->digest,
                                           .include = j->include,
                                           .ninclude = j->ninclude,
                                           .exclude = j->exclude,
                                           .nexclude = j->nexclude};
    }
    if (n > 0) {
        const struct artifacts_params w = {.peer_ops = &peers_ops};
        rc = artifacts_pull(r->agent, r->artifact, n, &w, e);
    }
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = settle_input(r, i, e);
    }
    return rc != 0 ? rc : place_hubs(r, e);
}

/* --- the command ------------------------------------------------------------------------------ */

static const char *job_variable_value(void *arg, struct slice name)
{
    const struct run *r = arg;

    if (slice_eq(name, SLICE("out"))) {
        return r->out;
    }
    for (size_t i = 0; i < r->job.nartifacts; i++) {
        if (slice_eqs(name, r->job.artifact[i].name)) {
            return r->path[i];
        }
    }
    return NULL;
}

static int fill_in_variables(struct run *r, const char *text, const char **out, struct err *e)
{
    struct buf b = BUF_INIT(ARGUMENT_MAX);
    struct slice unknown;
    int rc = jobfile_fill(text, job_variable_value, r, &b, &unknown, e);

    if (rc == 0) {
        *out = arena_cstr(&r->job.arena, buf_slice(&b));
    }
    buf_free(&b);
    return rc;
}

static int run_command(struct run *r, struct launch_result *got, struct err *e)
{
    struct launch_params w = {.ranks = r->job.ranks,
                              .nodes = &r->nodes,
                              .restarts = r->job.restarts,
                              .progress = r->out,
                              .preempt_url = r->preempt_url,
                              .grace_ms = r->job.grace_ms,
                              .backoff_ms = r->job.backoff_ms,
                              .may_restart = look_again,
                              .arg = r};
    char **argv = arena_alloc(&r->job.arena, (r->job.ncommand + 1) * sizeof argv[0]);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < r->job.ncommand; i++) {
        const char *text;
        rc = fill_in_variables(r, r->job.command[i], &text, e);
        argv[i] = rc == 0 ? arena_cstr(&r->job.arena, slice_str(text)) : NULL;
    }
    if (rc != 0) {
        return rc;
    }
    w.argv = argv;
    setenv("TRAINAGENT_OUT", r->out, 1);
    r->began_ms = clock_now_ms();
    rc = launch(&w, got, e);
    r->record.exit_code = got->exit_code;
    r->record.restarts = got->restarts;
    return rc;
}

static int publish_results(struct run *r, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < r->job.npublish; i++) {
        struct publish_params w = {.to = r->job.publish[i].to};
        struct publish_result got;
        rc = fill_in_variables(r, r->job.publish[i].from, &w.dir, e);
        rc = rc != 0 ? rc : publish(r->agent, &w, &got, e);
        if (rc == 0) {
            log_debug("job.published", "to=%s version=%s", w.to, got.version);
        }
    }
    return rc;
}

static int run_all(struct run *r, struct verb_line *v, struct err *e)
{
    struct launch_result got = {.first = true};
    int rc;

    r->record.phase = "preflight";
    rc = look_at_node(r, e);
    if (rc == 0) {
        r->record.phase = "pull";
        rc = bring_inputs(r, e);
    }
    if (rc == 0 && r->job.ncommand > 0) {
        r->record.phase = "run";
        rc = run_command(r, &got, e);
        v->exit_code = got.exit_code;
        if (rc == 0 && got.exit_code == 0 && got.stopped) {
            rc = err_set(e, E_CANCELLED, "%s: stopped; run it again to continue", r->name);
        }
    }
    if (rc == 0 && v->exit_code == 0 && got.first) { /* once, and not by each node */
        r->record.phase = "publish";
        rc = publish_results(r, e);
    }
    return rc;
}

static void close_run(struct run *r)
{
    for (size_t i = 0; r->artifact != NULL && i < r->job.nartifacts; i++) {
        artifact_fini(&r->artifact[i]);
        local_cache_unlock(&r->local_cache_lock[i]);
    }
    free(r->artifact);
    free(r->path);
    free(r->local_cache_lock);
    if (r->lock != -1) {
        close(r->lock);
    }
    jobfile_fini(&r->job);
}

static int run_run(struct verb_line *v, struct err *e)
{
    struct run r = {.agent = v->agent, .lock = -1, .preempt_url = v->preempt_url};
    int rc;

    if (v->argc != 1) {
        return err_set(e, E_USAGE, "run needs one JOB file, as in trainagent run job.conf");
    }
    rc = jobfile_read(v->argv[0], &r.job, e);
    if (rc != 0) {
        return rc;
    }
    if (v->agent->mirror.n == 0 && r.job.mirror != NULL) {
        v->agent->mirror = slice_str(r.job.mirror);
    }
    rc = name_job(&r, v->argv[0], e);
    if (rc == 0 && r.job.ncommand > 0) {
        rc = find_nodes(&v->nodes, &r.job.nodes, &r.nodes, e);
    }
    name_part(&r);
    rc = rc != 0
             ? rc
             : agent_open(v->agent, r.job.nartifacts + r.job.npublish > 0 ? AGENT_MIRROR : 0, e);
    rc = rc != 0 ? rc : open_job_folder(&r, e);
    if (rc == 0) {
        jitter_wait(v->jitter_ms);
        r.record = (struct record){.job = r.name, .began_unix_s = clock_unix_s()};
        rc = run_all(&r, v, e);
        r.record.rc = rc;
        r.record.why = rc != 0 ? e->text : "";
        if (rc == 0 && v->exit_code != 0) {
            r.record.rc = E_INTERNAL;
            r.record.why = "the command failed";
        }
        record_write(r.dir, &r.record);
    }
    close_run(&r);
    return rc;
}

static int look_for_launch(void *arg, struct err *e)
{
    const struct run *r = arg;

    return look_at_gpus(r->agent, r->began_ms, e);
}

/* As Kubeflow sets it for torchrun; 0: auto, as "gpu" and the like are here. */
static unsigned torchrun_ranks(void)
{
    enum { RANKS_MAX = 1024 };
    uint64_t n;

    return slice_u64(slice_str(getenv("PET_NPROC_PER_NODE")), &n) && n <= RANKS_MAX ? (unsigned)n
                                                                                    : 0;
}

static int run_launch(struct verb_line *v, struct err *e)
{
    struct run r = {.agent = v->agent, .lock = -1, .began_ms = clock_now_ms()};
    struct launch_params w = {.argv = v->argv,
                              .ranks = v->ranks != 0 ? (unsigned)v->ranks : torchrun_ranks(),
                              .nodes = &r.nodes,
                              .restarts = v->restarts,
                              .preempt_url = v->preempt_url,
                              .grace_ms = v->grace_ms,
                              .progress = v->checkpoints,
                              .may_restart = look_for_launch,
                              .arg = &r};
    struct launch_result got = {0};
    int rc;

    if (v->argc == 0) {
        return err_set(e, E_USAGE, "launch needs a command, as in trainagent launch -- CMD ARG...");
    }
    rc = find_nodes(&v->nodes, &(struct nodes_said){0}, &r.nodes, e);
    rc = rc != 0 ? rc : agent_settle(v->agent, false, e);
    rc = rc != 0 ? rc : launch(&w, &got, e);
    v->exit_code = got.exit_code;
    return rc;
}

/* The command's line has what node 0 says else: its agents follow this one in restarts. */
static int run_rendezvous(struct verb_line *v, struct err *e)
{
    struct nodes_said said = v->nodes;
    struct nodes nodes;
    const struct service_params w = {.nodes = &nodes,
                                     .restarts = v->restarts,
                                     .grace_ms = v->grace_ms != 0 ? v->grace_ms : LAUNCH_GRACE_MS,
                                     .backoff_ms = LAUNCH_BACKOFF_MS,
                                     .progress = v->checkpoints};
    int rc;

    if (v->argc != 0) {
        return err_set(e, E_USAGE, "rendezvous takes only options, not \"%.40s\"", v->argv[0]);
    }
    said.node_rank = "0"; /* of none: nobody asks for it */
    said.external = true;
    rc = find_nodes(&said, &(struct nodes_said){0}, &nodes, e);
    if (rc == 0 && nodes.max < 2) {
        rc = err_set(e, E_USAGE, "rendezvous needs two or more nodes; give --nodes or --elastic");
    }
    return rc != 0 ? rc : service_run(&w, &v->exit_code, e);
}

const struct agent_verb verb_run = {
    .name = "run",
    .run = run_run,
    .args = "JOB",
    .help = "pull, launch, restart and publish as a job file says",
    .example = "trainagent run job.conf",
};

const struct agent_verb verb_launch = {
    .name = "launch",
    .run = run_launch,
    .args = "-- CMD...",
    .help = "start and supervise the ranks of a command on one or more nodes",
    .example = "trainagent launch --ranks auto --restarts 3 --checkpoints out -- python3 train.py",
};

const struct agent_verb verb_rendezvous = {
    .name = "rendezvous",
    .run = run_rendezvous,
    .args = "--nodes N --rendezvous HOST:PORT",
    .help = "run the rendezvous of a job's agents as a separate process",
    .example = "trainagent rendezvous --elastic 2:4 --rendezvous login1:29400",
};
