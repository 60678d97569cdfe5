/* conf.h - the configuration as read from mirrord.conf: plain data, immutable, one allocation
 * tree.
 *
 * The syntax is libconfuse's, with our own include(). Every scalar setting is one line in
 * settings.def; the parser's tables, the defaults, `-T` and docs/configuration.md are made from
 * it. Errors are: an unknown key (with the nearest name), duplicate titles, repeated keys and
 * unset ${VARIABLES}. Their form is "file:line: what, why, what to do".
 *
 * owns     counted: the last conf_free() releases everything that it points to
 */
#ifndef SERVER_CONF_CONF_H
#define SERVER_CONF_CONF_H

#include "server/cache/cache.h"
#include "server/cluster/cluster.h"
#include "server/gate/gate.h"
#include "server/http/server.h"
#include "server/peers/peers.h"
#include "server/repo/repo.h"
#include "server/rsync/door.h"
#include "server/store/store.h"

struct conf {
    struct store_settings store;
    struct cache_settings cache;
    struct http_limits http;
    uint32_t status_age_ms;
    struct peers_settings peers;     /* again_s 0: no such section */
    struct cluster_settings cluster; /* bucket.url NULL: this mirror stands alone */
    unsigned threads;                /* loops; 0: one per core, at most 32 */
    unsigned disk_threads;           /* 16 */
    const char *public_url;          /* or NULL */
    const char *const *trusted_proxies;
    size_t trusted_proxies_count;
    const char *access_log;        /* path, "stderr", "none" */
    const char *access_log_format; /* json | combined */
    const char *control_socket;    /* <state_dir>/control.sock */
    const char *log_level;
    uint32_t sync_runs; /* simultaneous runs */
    uint32_t drain_ms;  /* 30 s */
    bool plaintext_token;
    struct listener_settings *listeners;
    size_t listeners_count;
    struct repo_conf *repos;
    size_t repos_count;
    struct limit_conf *limits;
    size_t limits_count;
    struct rsync_conf *doors; /* for rsync clients */
    size_t doors_count;
};

MUST_USE int conf_read(const char *path, struct conf **out, struct err *e);
struct conf *conf_hold(struct conf *c); /* requires one more conf_free(); any thread */
void conf_free(struct conf **cp);
/* Valid settings that look like a mistake: "file:line: warning: ...", a line each. The daemon
 * knows more of them: notices.h. */
void conf_warnings(const struct conf *c, struct buf *out);
/* The warning for a configuration without repositories. */
#define CONF_NO_REPOS                                                                              \
    "no repo is configured, so the mirror has nothing to serve; add a repo section, see "          \
    "mirrord.conf(5)"
/* The warning for a repository whose origin has a folder too many, which clients request below
 * the repository; nothing for others. */
void conf_warn_of_origin(const struct repo_conf *r, struct buf *out);
/* The warning for a file system that has less free space than the reserve; false: there is none. */
bool conf_warn_of_reserve(const struct conf *c, struct buf *out);
/* The effective settings, in a form that conf_read() accepts. */
void conf_print(const struct conf *c, struct buf *out);

#endif
