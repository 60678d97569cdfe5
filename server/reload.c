/* reload.c - new settings into a running daemon: all that can fail first, then the rest at once.
 * What only a restart can change is named. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/base/log.h"
#include "common/os/clock.h"
#include "server/admin/admin.h"
#include "server/daemon.h"
#include "server/hub/pinned_branch.h"
#include "server/live/moved.h"
#include "server/live/notices.h"
#include "server/request/serve.h"
#include "server/request/traffic.h"

static bool same_conf_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static void stays_if(struct buf *stays, bool differs, const char *what, const char *which)
{
    if (differs) {
        buf_addf(stays, "%s%s%s%s", stays->n > 0 ? ", " : "", what, which[0] != '\0' ? " " : "",
                 which);
    }
}

static bool same_cluster(const struct cluster_settings *a, const struct cluster_settings *b)
{
    return same_conf_text(a->bucket.url, b->bucket.url) &&
           same_conf_text(a->bucket.endpoint, b->bucket.endpoint) &&
           same_conf_text(a->bucket.region, b->bucket.region) &&
           same_conf_text(a->bucket.addressing, b->bucket.addressing) &&
           same_conf_text(a->bucket.authorization, b->bucket.authorization) &&
           same_conf_text(a->bucket.ca_file, b->bucket.ca_file) &&
           same_conf_text(a->address, b->address) && same_conf_text(a->secret, b->secret) &&
           a->poll_ms == b->poll_ms && a->stale_after_ms == b->stale_after_ms &&
           a->checkpoint_entries == b->checkpoint_entries && a->check_ms == b->check_ms &&
           a->weight == b->weight && a->takeover_s == b->takeover_s &&
           same_conf_text(a->limits, b->limits);
}

/* What the new file says otherwise and only a restart can change, by name. */
static void compare_what_stays(const struct conf *was, const struct conf *is, struct buf *stays)
{
    const struct store_settings *a = &was->store, *b = &is->store;

    stays_if(stays, !same_conf_text(a->state_dir, b->state_dir), "state_dir", "");
    stays_if(stays, was->threads != is->threads, "threads", "");
    stays_if(stays, was->disk_threads != is->disk_threads, "disk_threads", "");
    stays_if(stays, !same_conf_text(was->control_socket, is->control_socket), "control_socket", "");
    stays_if(stays, a->block_cache_bytes != b->block_cache_bytes, "storage block_cache", "");
    stays_if(stays, !same_cluster(&was->cluster, &is->cluster), "cluster", "");
    stays_if(stays, memcmp(&was->cache, &is->cache, sizeof(is->cache)) != 0, "cache", "");
    stays_if(stays, memcmp(&was->http, &is->http, sizeof(is->http)) != 0, "http", "");
    for (size_t i = 0; i < is->doors_count || i < was->doors_count; i++) {
        if (i >= is->doors_count || i >= was->doors_count ||
            !same_conf_text(was->doors[i].address, is->doors[i].address) ||
            was->doors[i].connections != is->doors[i].connections ||
            was->doors[i].stall_ms != is->doors[i].stall_ms ||
            !same_conf_text(was->doors[i].users, is->doors[i].users)) {
            stays_if(stays, true, "rsync", (i < is->doors_count ? is : was)->doors[i].address);
        }
    }
    if (stays->n > 0) {
        log_warn("reload.partly", "a restart is needed for %s", buf_cstr(stays));
    }
}

/* What can fail: the listeners' sockets and certificates, the log's file. The log is last: nothing
 * of it has to be undone. */
static int prepare_reload(struct daemon *d, const struct conf *is, struct http_listeners *listeners,
                          struct err *e)
{
    int rc = http_server_bind(d->http, is->listeners, is->listeners_count, listeners, e);

    if (rc == 0) {
        rc = access_log_set(d->access, is->access_log, is->access_log_format, e);
        if (rc != 0) {
            http_listeners_drop(listeners);
        }
    }
    return rc;
}

static int try_repos(const struct conf *c, struct err *e)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < c->repos_count; i++) {
        struct repo *r = NULL;
        rc = repo_open(&c->repos[i], &r, e);
        repo_close(&r);
    }
    return rc;
}

/* As reload() and prepare_reload(), in their order, but that nothing is kept. */
int daemon_try(struct daemon *d, const struct conf *c, struct err *e)
{
    int rc = try_repos(c, e);

    lock_take(&d->lifecycle->reloading);
    if (rc == 0) {
        rc = http_server_try(d->http, c->listeners, c->listeners_count, e);
    }
    if (rc == 0) {
        rc = access_log_try(d->access, c->access_log, e);
    }
    lock_drop(&d->lifecycle->reloading);
    return rc;
}

static void put_in_force(struct daemon *d, struct repo_set *fresh)
{
    const struct conf *c = fresh->conf;
    struct repo_set *old;

    gate_set_limits(d->gate, c->limits, c->limits_count, c->plaintext_token);
    gate_set_proxies(d->gate, c->trusted_proxies, c->trusted_proxies_count);
    peers_set(d->peers, &c->peers);
    store_set_space(d->store, &c->store);
    uploads_limit(d->uploads, c->store.client_uploads, c->store.client_upload_bytes);
    cache_limit(d->cache, c->store.client_store_bytes);
    daemon_log_level(c);
    old = repos_replace(d->repos, fresh);
    serve_settle(d->serve);
    for (size_t i = 0; i < old->count; i++) {
        serve_forget(d->serve, slice_str(old->repo[i]->name), SLICE_NONE);
    }
    repo_set_release(&old);
}

static int reload(struct daemon *d, struct reload_news *news, struct err *e)
{
    struct http_listeners listeners;
    struct repo_set *fresh = NULL;
    struct conf *c = NULL;
    int rc = conf_read(d->conf_path, &c, e);

    if (rc == 0) {
        rc = repo_set_open(c, &fresh, e);
    }
    if (rc == 0) {
        traffic_follow(d->traffic, fresh);
        rc = pinned_branch_load(d->store, fresh, e);
    }
    if (rc == 0) {
        rc = prepare_reload(d, c, &listeners, e);
    }
    if (rc != 0) {
        repo_set_release(&fresh);
        return rc;
    }
    compare_what_stays(d->first->conf, c, &news->needs_restart);
    moved_note(d->store, fresh, &news->warnings);
    rc = daemon_set_sync(d, fresh, e);
    if (rc != 0) {
        log_error("reload.sync", "%s", e->text); /* its runs stay as they were */
        buf_addf(&news->warnings, "%sthe syncs keep their old settings: %s",
                 news->warnings.n > 0 ? "\n" : "", e->text);
    }
    put_in_force(d, fresh);
    http_server_listen(d->http, &listeners); /* last: a new root may be a new repo */
    notices_say(d->gate, c, &news->warnings);
    return 0;
}

int daemon_reload(struct daemon *d, struct reload_news *news, struct err *e)
{
    struct buf listens = BUF_INIT(64 << 10);
    int rc;

    lock_take(&d->lifecycle->reloading);
    notify_systemd("RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_now_ns() / 1000);
    rc = d->lifecycle->draining ? err_set(e, E_CANCELLED, "the daemon is stopping")
                                : reload(d, news, e);
    lifecycle_reloaded(d->lifecycle, rc, e);
    if (rc == 0) {
        struct repo_set *rs = repo_set_hold(d->repos);
        daemon_addresses(d, &listens);
        log_info("reload.done", "file=%s repos=%zu listen=%s", d->conf_path, rs->count,
                 buf_cstr(&listens));
        repo_set_release(&rs);
    } else {
        log_error("reload.refused", "the old settings remain in force: %s", e->text);
    }
    notify_systemd("READY=1");
    lock_drop(&d->lifecycle->reloading);
    buf_free(&listens);
    return rc;
}
