/* daemon.h - the parts of a running mirrord, built in order and torn down in reverse (daemon.c).
 *
 * A reload (reload.c) builds new repos, limits and access rules from the file and swaps them in on
 * every loop; listeners come and go, those that stay are kept. What cannot change while running
 * (threads, state_dir...) is named in the log and to mirrorctl.
 *
 * threads  fields are set before the loops start; the repos in force change on reload: a loop has
 *          its own in its desk, others take them by repo_set_hold()
 */
#ifndef SERVER_DAEMON_H
#define SERVER_DAEMON_H

#include "server/admin/deps.h"
#include "server/hub/deps.h"
#include "server/live/lifecycle.h"
#include "server/live/repo_set.h"

struct daemon {
    const char *conf_path;
    struct store *store;
    struct cluster *cluster; /* NULL: this mirror stands alone */
    /* by the entry of the cluster's log that is being applied; of that thread */
    bool tokens_changed, holds_changed;
    struct pool *disk;
    struct pool *readers; /* row lookups, rewriting, listings */
    struct pool *content; /* waits for the cluster's bucket; NULL: this mirror stands alone */
    struct pool *pieces; /* one thread that reads files whole, for lists of what they are made of */
    struct loops *loops;
    struct cache *cache;
    struct planners *planners; /* one a loop: they make plans of requests */
    struct uploads *uploads;
    struct gate *gate;
    struct peers *peers; /* nodes that share a file */
    struct access_log *access;
    struct http_server *http;
    struct own *own;            /* the front entrance */
    struct body_memory *memory; /* that requests hold; NULL: it is not counted */
    struct serve *serve;
    struct control *control;
    struct modules *modules; /* for rsync clients */
    struct lifecycle *lifecycle;
    struct repos *repos;           /* in force */
    struct repo_set *first;        /* as started: its conf has what only a restart changes */
    struct sync *sync;             /* repos that are mirrored whole */
    struct hub_deps hub;           /* repositories of a Hub: what they use */
    struct prefetches *prefetches; /* fetched ahead of demand: server/hub/prefetch.h */
    _Atomic bool collecting;       /* one gc_run() at a time */
    struct admin_deps admin;       /* what is shown and steered */
    struct traffic *traffic;       /* counters by repo, kind and class: server/request/traffic.h */
};

MUST_USE int daemon_open(const char *conf_path, struct daemon **out, struct err *e);
/* Until SIGTERM/SIGINT: 0. SIGHUP reloads, SIGUSR1 reopens logs. E_IO: only a new start helps. */
MUST_USE int daemon_run(struct daemon *d, struct err *e);
void daemon_close(struct daemon **dp);
/* Any thread but a loop; the old settings stay when it fails. */
MUST_USE int daemon_reload(struct daemon *d, struct reload_news *news, struct err *e);
/* Whether a reload with this configuration would be refused; changes nothing. Any thread but a
 * loop. */
MUST_USE int daemon_try(struct daemon *d, const struct conf *c, struct err *e);

void daemon_log_level(const struct conf *c);
/* The listeners' addresses as bound: a port 0 has become one. While no reload is under way. */
void daemon_addresses(struct daemon *d, struct buf *out);
/* The synced repos of a configuration, from now on. */
MUST_USE int daemon_set_sync(struct daemon *d, const struct repo_set *rs, struct err *e);

#endif
