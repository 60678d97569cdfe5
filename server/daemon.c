#include "server/daemon.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/cluster/cluster.h"
#include "server/cluster/relay_fetch.h"
#include "server/request/traffic.h"
#include "server/http/body_memory.h"
#include "server/hub/pinned_branch.h"
#include "server/hub/prefetch.h"
#include "server/live/modules.h"
#include "server/live/moved.h"
#include "server/live/notices.h"
#include "server/own/own.h"
#include "server/plan/run.h"
#include "server/registry/registry.h"
#include "server/request/serve.h"
#include "server/repo/capability.h"
#include "server/store/keep.h"
#include "server/store/tree.h"
#include "server/upload/upload.h"
#include "server/sync/sync.h"

/* --- what changes while it runs --- */

static void on_change(void *arg, struct slice repo, struct slice key)
{
    struct daemon *d = arg;

    if (key.p == NULL) {
        repos_changed(d->repos, repo);
    } else {
        serve_forget(d->serve, repo, key);
    }
}

static int make_room_on_disk(void *arg, uint64_t need_bytes)
{
    return cache_make_room(arg, need_bytes, NULL);
}

enum { COLLECT_GRACE_S = 3600, CONTENT_THREADS = 16, SYNC_STOP_MS = 3000 };

static void on_published(void *arg, struct slice repo)
{
    struct daemon *d = arg;

    repos_changed(d->repos, repo);
}

static void collect_for_sync(void *arg)
{
    struct daemon *d = arg;
    struct gc_report r;
    struct err why = {0};

    if (atomic_exchange(&d->collecting, true)) {
        return; /* somebody is at it; the rest goes with the next one */
    }
    if (gc_run(d->store, COLLECT_GRACE_S, false, &r, &why) != 0) {
        log_warn("sync.collect", "why=\"%s\"", why.text);
    }
    d->collecting = false;
}

static int make_room_for_sync(void *arg, uint64_t need_bytes)
{
    struct daemon *d = arg;
    return cache_make_room(d->cache, need_bytes, NULL);
}

static void let_conf_go(void *held)
{
    struct conf *c = held;

    conf_free(&c);
}

int daemon_set_sync(struct daemon *d, const struct repo_set *rs, struct err *e)
{
    struct sync_repo_settings *set = mem_array(rs->count + 1, sizeof *set);
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < rs->count; i++) {
        if (rs->repo[i]->synced) {
            set[n++] = (struct sync_repo_settings){rs->repo[i], &rs->conf->repos[i],
                                                   conf_hold(rs->conf), let_conf_go};
        }
    }
    rc = sync_set(d->sync, set, n, rs->conf->sync_runs, e);
    free(set);
    return rc;
}

static struct sync *open_sync(struct daemon *d)
{
    struct run_world w = {.store = d->store,
                          .claims = d->cluster != NULL ? cluster_claims(d->cluster) : NULL,
                          .disk = d->disk,
                          .on_published = on_published,
                          .collect = collect_for_sync,
                          .make_room = make_room_for_sync,
                          .arg = d};
    return sync_open(&w);
}

/* --- what other mirrors change --- */

static void on_entry_end(struct daemon *d)
{
    struct err why = {0};

    if (d->tokens_changed && gate_reload_tokens(d->gate, &why) != 0) {
        log_error("cluster.tokens", "why=\"%s\"", why.text);
    }
    if (d->holds_changed) {
        struct repo_set *rs = repo_set_hold(d->repos);
        if (pinned_branch_load(d->store, rs, &why) != 0) {
            log_error("cluster.holds", "why=\"%s\"", why.text);
        }
        repo_set_release(&rs);
    }
    d->tokens_changed = d->holds_changed = false;
}

static void on_cluster_row(void *arg, enum table t, struct slice key)
{
    struct daemon *d = arg;

    switch (t) {
    case TABLE_TOKEN:
        d->tokens_changed = true;
        break;
    case TABLE_HELD:
        d->holds_changed = true;
        repos_changed(d->repos, slice_cut(&key, '\0'));
        break;
    case TABLE_HEAD:
    case TABLE_SNAP:
    case TABLE_REF:
    case TABLE_NOTE:
    case TABLE_MOVED:
        repos_changed(d->repos, slice_cut(&key, '\0'));
        break;
    case TABLE_CLAIM:
    case TABLE_RUN:
        sync_rows_changed(d->sync);
        break;
    case TABLES:
        on_entry_end(d);
        break;
    default:
        break;
    }
}

static bool is_cluster_fresh(void *arg)
{
    return cluster_is_fresh(arg);
}

static void on_share(void *arg, uint32_t mirrors)
{
    struct daemon *d = arg;
    struct repo_set *rs = repo_set_hold(d->repos);

    gate_share(d->gate, mirrors);
    for (size_t i = 0; i < rs->count; i++) {
        if (rs->repo[i]->origin != NULL) {
            origin_share(rs->repo[i]->origin, mirrors);
        }
    }
    repo_set_release(&rs);
}

static size_t on_pauses(void *arg, struct member_pause *out, size_t room)
{
    struct daemon *d = arg;
    struct repo_set *rs = repo_set_hold(d->repos);
    size_t n = 0;

    for (size_t i = 0; i < rs->count && n < room; i++) {
        const struct origin *o = rs->repo[i]->origin;
        uint64_t ms = o != NULL ? origin_asked_rest_ms(o) : 0;
        if (ms != 0) {
            out[n++] = (struct member_pause){origin_identity(o), ms};
        }
    }
    repo_set_release(&rs);
    return n;
}

static void on_pause(void *arg, const struct member_pause *r)
{
    struct daemon *d = arg;
    struct repo_set *rs = repo_set_hold(d->repos);

    for (size_t i = 0; i < rs->count; i++) {
        struct origin *o = rs->repo[i]->origin;
        if (o != NULL && origin_identity(o) == r->origin) {
            origin_rest(o, r->left_ms);
        }
    }
    repo_set_release(&rs);
}

static int follow_cluster(struct daemon *d, struct err *e)
{
    static const struct cluster_limit_ops limits = {on_share, on_pauses, on_pause};

    cluster_on_limits(d->cluster, &limits, d);
    gate_set_fresh(d->gate, is_cluster_fresh, d->cluster);
    cluster_on_full(d->cluster, make_room_on_disk, d->cache);
    cluster_on_row(d->cluster, on_cluster_row, d);
    if (cluster_owners(d->cluster) != NULL) {
        cache_ask_neighbors(d->cache, &owners_ops, cluster_owners(d->cluster));
    }
    return gate_reload_tokens(d->gate, e); /* earlier changes were not reported */
}

/* A mirror joins its cluster, or leaves it, while it runs. */
static int fetch_uploaded(void *arg, struct slice repo, struct slice tree, const struct digest *d,
                          int (*sink)(void *sink_arg, struct slice bytes), void *sink_arg,
                          struct err *e)
{
    struct relay *r = cluster_relay(arg);

    return r != NULL ? relay_fetch_uploaded(r, repo, tree, d, sink, sink_arg, e)
                     : err_set(e, E_NOTFOUND, "this mirror stands alone");
}

static int fetch_row(void *arg, struct slice key, struct buf *out, struct err *e)
{
    struct relay *r = cluster_relay(arg);

    return r != NULL ? relay_fetch_row(r, key, out, e) : E_NOTFOUND;
}

static bool catch_up_with_log(void *arg)
{
    return cluster_catch_up(arg);
}

/* --- opening, in order --- */

static unsigned loops_wanted(const struct conf *c)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned n = c->threads != 0 ? c->threads : cores > 32 ? 32 : cores > 0 ? (unsigned)cores : 1;
    return n;
}

/* A connection, a blob being sent and a fill each hold a descriptor. */
static void raise_nofile(void)
{
    struct rlimit r;

    if (getrlimit(RLIMIT_NOFILE, &r) == 0 && r.rlim_cur < r.rlim_max) {
        r.rlim_cur = r.rlim_max;
        if (setrlimit(RLIMIT_NOFILE, &r) == -1) {
            log_warn("daemon.nofile", "the limit of open files cannot be raised: %s",
                     strerror(errno));
        }
    }
}

void daemon_log_level(const struct conf *c)
{
    static const char *const names[] = {"error", "warn", "info", "debug"};

    for (size_t i = 0; c->log_level != NULL && i < ARRAY_LEN(names); i++) {
        if (strcmp(c->log_level, names[i]) == 0) {
            log_set_level((enum log_level)i);
        }
    }
}

static struct serve *open_serve(struct daemon *d)
{
    static const struct frontend *const doors[] = {&frontend_registry, &frontend_front};
    struct serve_deps p = {.loops = d->loops,
                           .disk = d->disk,
                           .readers = d->readers,
                           .pieces = d->pieces,
                           .content = d->content,
                           .store = d->store,
                           .cluster = d->cluster,
                           .cache = d->cache,
                           .uploads = d->uploads,
                           .gate = d->gate,
                           .peers = d->peers,
                           .access = d->access,
                           .traffic = d->traffic,
                           .repos = d->repos,
                           .planners = d->planners};

    d->own = own_open(&d->admin, &d->hub, d->lifecycle);
    p.own = d->own;
    return serve_open(&p, doors);
}

static int reload(void *arg, struct reload_news *news, struct err *e)
{
    return daemon_reload(arg, news, e);
}

static int try_conf(void *arg, const struct conf *c, struct err *e)
{
    return daemon_try(arg, c, e);
}

static void fill_admin(struct daemon *d)
{
    d->admin = (struct admin_deps){.conf_path = d->conf_path,
                                   .store = d->store,
                                   .cluster = d->cluster,
                                   .cache = d->cache,
                                   .disk = d->disk,
                                   .readers = d->readers,
                                   .gate = d->gate,
                                   .access = d->access,
                                   .http = d->http,
                                   .serve = d->serve,
                                   .traffic = d->traffic,
                                   .peers = d->peers,
                                   .repos = d->repos,
                                   .lifecycle = d->lifecycle,
                                   .modules = d->modules,
                                   .sync = d->sync,
                                   .prefetches = d->prefetches,
                                   .hub = &d->hub,
                                   .collecting = &d->collecting,
                                   .ops = {reload, try_conf, d}};
}

/* The signals are blocked: daemon_run() takes them. */
static bool is_end_signalled(void)
{
    sigset_t set;

    sigpending(&set);
    return sigismember(&set, SIGTERM) == 1 || sigismember(&set, SIGINT) == 1;
}

int daemon_open(const char *conf_path, struct daemon **out, struct err *e)
{
    struct daemon *d = NEW(struct daemon);
    struct http_listeners listeners;
    struct repo_set *set = NULL;
    struct conf *c = NULL;
    int rc;

    d->lifecycle = lifecycle_open();
    d->conf_path = conf_path;
    rc = conf_read(conf_path, &c, e);
    if (rc != 0) {
        goto out;
    }
    daemon_log_level(c);
    raise_nofile();
    d->loops = loops_open(loops_wanted(c));
    d->traffic = traffic_open(loops_count(d->loops));
    rc = repo_set_open(c, &set, e);
    if (rc != 0) {
        goto out;
    }
    traffic_follow(d->traffic, set);
    d->repos = repos_open(set);
    d->first = repo_set_hold(d->repos);
    notify_systemd("EXTEND_TIMEOUT_USEC=60000000\nSTATUS=opening the store");
    rc = store_open(&c->store, &d->store, e);
    if (rc == 0) {
        rc = stage_sweep(d->store, e);
    }
    if (rc != 0) {
        goto out;
    }
    if (!store_was_clean(d->store)) {
        log_info("store.unclean",
                 "mirrord was not stopped cleanly last time; `mirrorctl verify` removes files "
                 "that were left over");
    }
    if (c->cluster.bucket.url != NULL) {
        notify_systemd("EXTEND_TIMEOUT_USEC=600000000\nSTATUS=reading the cluster's log");
        rc = cluster_open(&c->cluster, d->store, is_end_signalled, &d->cluster, e);
        if (rc != 0) {
            goto out;
        }
        if (c->cluster.secret != NULL) {
            capability_share_key(c->cluster.secret);
        }
    }
    if (c->cluster.bucket.url == NULL) {
        rc = cluster_absent(d->store, e);
        if (rc != 0) {
            goto out;
        }
    }
    moved_note(d->store, set, NULL);
    rc = pinned_branch_load(d->store, set, e);
    if (rc != 0) {
        goto out;
    }
    rc = gate_open(d->store, c->limits, c->limits_count, c->plaintext_token, &d->gate, e);
    if (rc != 0) {
        goto out;
    }
    gate_set_connections(d->gate, c->http.client_connections != 0
                                      ? c->http.client_connections
                                      : (uint32_t)max_u64(c->http.connections / 4, 16));
    gate_set_proxies(d->gate, c->trusted_proxies, c->trusted_proxies_count);
    d->peers = peers_open(&c->peers);
    rc = access_log_open(c->access_log, c->access_log_format, loops_count(d->loops), &d->access, e);
    if (rc != 0) {
        goto out;
    }
    d->uploads = uploads_open(d->store);
    if (d->cluster != NULL) {
        uploads_set_source(d->uploads, &(struct upload_source){fetch_uploaded, d->cluster});
    }
    /* A fill keeps a dozen disk threads busy with copying and hashing; at the loops' own priority,
     * cold readers waited one time slice for each of them: 20 to 50 ms for a first byte on one
     * core, now 3 to 8. */
    d->disk = pool_open("disk", c->disk_threads, 10);
    d->readers = pool_open("reader", 4, 0);
    d->pieces = pool_open("pieces", 1, 10);
    d->content = d->cluster != NULL ? pool_open("content", CONTENT_THREADS, 0) : NULL;
    d->cache = cache_open(d->store, d->disk, &c->cache);
    d->memory = c->http.body_bytes != 0 ? body_memory_open(c->http.body_bytes) : NULL;
    d->planners = planners_open(
        &(struct planner_deps){.store = d->store,
                               .cache = d->cache,
                               .readers = d->readers,
                               .memory = d->memory,
                               .document_bytes = c->cache.document_bytes,
                               .fetch_row = d->cluster != NULL ? fetch_row : NULL,
                               .fetch_row_arg = d->cluster,
                               .askers = d->content,
                               .catch_up = d->cluster != NULL ? catch_up_with_log : NULL,
                               .catch_up_arg = d->cluster},
        d->loops);
    d->hub = (struct hub_deps){d->store,    d->cache, d->uploads,  d->loops,
                               d->planners, d->repos, d->lifecycle};
    d->serve = open_serve(d);
    cache_on_change(d->cache, on_change, d);
    uploads_on_full(d->uploads, make_room_on_disk, d->cache);
    uploads_limit(d->uploads, c->store.client_uploads, c->store.client_upload_bytes);
    cache_limit(d->cache, c->store.client_store_bytes);
    d->http = http_server_open(d->loops, d->disk, d->memory, &c->http, serve_handler(d->serve));
    rc = http_server_bind(d->http, c->listeners, c->listeners_count, &listeners, e);
    if (rc != 0) {
        goto out;
    }
    http_server_listen(d->http, &listeners);
    notices_say(d->gate, c, NULL);
    d->sync = open_sync(d);
    rc = daemon_set_sync(d, set, e);
    if (rc == 0) {
        const struct modules_deps parts = {d->store, d->gate, d->access, d->repos};
        rc = modules_open(&parts, c, &d->modules, e);
    }
    if (rc != 0) {
        goto out;
    }
    d->prefetches = prefetches_open(&d->hub);
    if (d->cluster != NULL) {
        rc = follow_cluster(d, e);
        if (rc != 0) {
            goto out;
        }
    }
    fill_admin(d);
    rc = control_open(&d->admin, c->control_socket, &d->control, e);
out:
    if (rc != 0) {
        daemon_close(&d);
    }
    *out = d;
    return rc;
}

/* Syncs first, so another mirror can go on with them. Then whoever waits for the bucket hears that
 * this mirror ends. */
static void stop_cluster(struct daemon *d, uint64_t sync_wait_ms)
{
    if (d->cluster != NULL) {
        sync_stop(d->sync, sync_wait_ms);
        cluster_stop(d->cluster);
    }
}

/* Reverse order; each closer takes what is open. Steps that are out end before the desks are
 * emptied, fills before the loops that their readers live on. */
void daemon_close(struct daemon **dp)
{
    struct daemon *d = *dp;

    if (d == NULL) {
        return;
    }
    *dp = NULL;
    stop_cluster(d, SYNC_STOP_MS);
    control_close(&d->control);
    prefetches_close(&d->prefetches);
    modules_close(&d->modules);
    sync_close(&d->sync);
    http_server_close(&d->http);
    pool_close(&d->readers);
    pool_close(&d->pieces);
    pool_close(&d->content);
    if (d->serve != NULL) {
        serve_quiet(d->serve);
    }
    cache_close(&d->cache);
    pool_close(&d->disk);
    loops_close(&d->loops);
    serve_close(&d->serve);
    own_close(&d->own);
    planners_close(&d->planners);
    body_memory_close(&d->memory);
    access_log_close(&d->access);
    peers_close(&d->peers);
    gate_close(&d->gate);
    uploads_close(&d->uploads);
    store_close(&d->store);
    cluster_close(&d->cluster);
    repo_set_release(&d->first);
    repos_close(&d->repos);
    traffic_close(&d->traffic);
    lifecycle_close(&d->lifecycle);
    free(d);
}

/* --- running --- */

enum { DRAIN_LOOK_MS = 60000, ANSWER_MS = 2000 };

struct drain {
    struct lock lock;
    struct cond over;
    bool done;
};

static void drained(void *arg)
{
    struct drain *dr = arg;

    lock_take(&dr->lock);
    dr->done = true;
    cond_signal(&dr->over);
    lock_drop(&dr->lock);
}

static bool is_drained_within(struct drain *dr, uint64_t ms)
{
    uint64_t began_ms = clock_now_ms(), passed_ms;
    bool done;

    lock_take(&dr->lock);
    while (!dr->done && (passed_ms = clock_now_ms() - began_ms) < ms) {
        (void)cond_wait_ms(&dr->over, &dr->lock, min_u64(ms - passed_ms, DRAIN_LOOK_MS));
    }
    done = dr->done;
    lock_drop(&dr->lock);
    return done;
}

/* Clients that wait for the cluster's bucket are answered so long before their connections are
 * closed. */
static uint64_t answer_ms(const struct conf *c)
{
    return min_u64(c->drain_ms / 2, ANSWER_MS);
}

static void drain(struct daemon *d)
{
    struct drain dr = {0};
    struct repo_set *rs = repo_set_hold(d->repos);

    notify_systemd("STOPPING=1\nSTATUS=draining");
    log_info("daemon.draining", "at_most_ms=%" PRIu32, rs->conf->drain_ms);
    lock_init(&dr.lock, LOCK_LEAF);
    cond_init(&dr.over);
    if (d->cluster != NULL) {
        cluster_leave(d->cluster);
        sync_stop(d->sync, 0); /* their runs go on elsewhere */
    }
    lock_take(&d->lifecycle->reloading); /* a reload under way ends first, none begins after */
    d->lifecycle->draining = true;
    http_server_drain(d->http, rs->conf->drain_ms, drained, &dr);
    lock_drop(&d->lifecycle->reloading);
    if (d->cluster != NULL && !is_drained_within(&dr, rs->conf->drain_ms - answer_ms(rs->conf))) {
        stop_cluster(d, 0);
    }
    (void)is_drained_within(&dr, UINT64_MAX);
    cond_fini(&dr.over);
    lock_fini(&dr.lock);
    repo_set_release(&rs);
}

/* Upload sessions that nobody finished: at the start, then hourly. The cache's keeper does the
 * rest. */
enum { UPKEEP_MS = 3600 * 1000 };

struct upkeep {
    struct job job;
    struct daemon *daemon;
    _Atomic bool out;
    uint64_t next_ms;
};

static void keep_up(struct job *j)
{
    struct upkeep *u = CONTAINER_OF(j, struct upkeep, job);
    struct err why = {0};
    uint64_t dropped = 0;

    if (upload_expire(u->daemon->uploads, clock_unix_s(), &dropped, &why) != 0) {
        log_error("uploads.expire_failed", "%s", why.text);
    } else if (dropped != 0) {
        log_info("uploads.expired", "sessions=%" PRIu64, dropped);
    }
    u->out = false;
}

static void keep_up_when_due(struct daemon *d, struct upkeep *u)
{
    uint64_t now_ms = clock_now_ms();

    if (u->out || now_ms < u->next_ms) {
        return;
    }
    u->daemon = d;
    u->next_ms = now_ms + UPKEEP_MS;
    u->out = true;
    u->job = (struct job){.work = keep_up};
    pool_submit(d->readers, &u->job, CLIENT_PROGRAM);
}

enum { STUCK_MS = 30000 }; /* so long the disk must have been well */

/* systemd's watchdog is fed only while every loop comes round. */
struct round {
    _Atomic uint64_t posted, came;
};

static void came_round(struct loop *l, void *arg)
{
    struct round *r = arg;

    (void)l;
    atomic_fetch_add(&r->came, 1);
}

static void feed_watchdog(struct daemon *d, struct round *r)
{
    if (r->came == r->posted) {
        notify_systemd("WATCHDOG=1");
        r->posted += loops_count(d->loops);
        loops_each(d->loops, came_round, r);
    }
}

void daemon_addresses(struct daemon *d, struct buf *out)
{
    const struct listener *l;

    for (size_t i = 0; (l = http_server_listener(d->http, i)) != NULL; i++) {
        buf_addf(out, "%s%s%s", i > 0 ? "," : "", listener_address(l),
                 listener_identity(l) != NULL ? "(tls)" : "");
    }
}

static void say_ready(struct daemon *d)
{
    struct repo_set *rs = repo_set_hold(d->repos);
    struct buf listens = BUF_INIT(64 << 10);

    lock_take(&d->lifecycle->reloading); /* mirrorctl may be at it already */
    daemon_addresses(d, &listens);
    log_info("daemon.ready", "version=%s repos=%zu loops=%u listen=%s", MIRROR_VERSION, rs->count,
             loops_count(d->loops), buf_cstr(&listens));
    lock_drop(&d->lifecycle->reloading);
    buf_free(&listens);
    repo_set_release(&rs);
}

/* RocksDB writes nothing more, and the disk does: a new start is all that helps
 * (docs/decisions/0018). Never soon after the last one, so that what comes back at once leaves time
 * for those who read. */
static bool must_restart(struct daemon *d, uint64_t started_ms)
{
    uint64_t now = clock_now_ms();
    uint64_t stuck_ms = store_stuck_ms(d->store, now);
    struct repo_set *rs;
    uint32_t every_ms;

    if (stuck_ms == 0) {
        return false;
    }
    rs = repo_set_hold(d->repos);
    every_ms = rs->conf->store.restart_ms;
    repo_set_release(&rs);
    return every_ms != 0 && stuck_ms >= min_u64(STUCK_MS, every_ms) && now - started_ms >= every_ms;
}

int daemon_run(struct daemon *d, struct err *e)
{
    static struct round round; /* a letter may come after we left, and a job */
    static struct upkeep upkeep;
    const struct timespec tick = {.tv_sec = 1};
    uint64_t started_ms = clock_now_ms();
    struct err trouble = {0};
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR1);
    http_server_start(d->http);
    modules_start(d->modules);
    if (d->cluster != NULL) {
        cluster_serve(d->cluster);
        cluster_let_know(d->cluster);
    }
    d->lifecycle->ready = true;
    d->lifecycle->reload_ok = true;
    d->lifecycle->reload_ok_unix_s = clock_unix_s();
    notify_systemd("READY=1\nSTATUS=serving");
    say_ready(d);
    for (;;) {
        struct err why = {0};
        int sig = sigtimedwait(&set, NULL, &tick);

        feed_watchdog(d, &round);
        keep_up_when_due(d, &upkeep);
        peers_tick(d->peers, clock_now_ms());
        if (sig == SIGHUP) {
            struct reload_news news = RELOAD_NEWS;
            (void)!daemon_reload(d, &news, &why);
            reload_news_fini(&news);
        } else if (sig == SIGUSR1) {
            access_log_reopen(d->access);
        } else if (sig == SIGTERM || sig == SIGINT) {
            break;
        }
        if (d->cluster != NULL && cluster_must_end(d->cluster, &trouble)) {
            log_error("cluster.cloned", "why=\"%s\"", trouble.text);
            break;
        }
        if (must_restart(d, started_ms) && !store_healthy(d->store, &trouble)) {
            log_error("daemon.must_restart", "why=\"%s\"", trouble.text);
            break;
        }
    }
    drain(d);
    return trouble.code == 0 ? 0
           : trouble.code == E_CONFIG
               ? err_set(e, E_CONFIG, "%s", trouble.text)
               : err_set(e, E_IO,
                         "the store cannot be written until it is opened again; restart mirrord "
                         "(%.300s)",
                         trouble.text);
}
