/* talk.h - one request on the control socket, as the verbs see it: arguments in, rows and
 * progress out.
 *
 * A verb returns 0, with its result in talk->result (members of the "ok" object), or an error.
 * Rows are sent as they are made. Once the client is gone, talk_row_end() says so and all output
 * is dropped: loops should stop.
 *
 * threads  the connection's own; verbs may block
 */
#ifndef SERVER_ADMIN_TALK_H
#define SERVER_ADMIN_TALK_H

#include <jansson.h>

#include "common/codec/jwrite.h"
#include "server/admin/deps.h"

struct talk {
    const struct admin_deps *deps;
    const json_t *request;
    struct buf *result;
    struct buf *out; /* private, as all below */
    int fd;
    bool gone;
    int came;   /* a descriptor that came with the request, or -1: talk_take_fd() */
    int leaves; /* a descriptor to send with the answer, or -1 */
    void *kept; /* talk_keep() */
    void (*drop)(void *kept);
};

struct slice talk_text(const struct talk *t, const char *key); /* p == NULL when absent */
bool talk_flag(const struct talk *t, const char *key);
uint64_t talk_number(const struct talk *t, const char *key, uint64_t absent);
/* The same, but a missing one is E_USAGE. */
MUST_USE int talk_need(const struct talk *t, const char *key, struct slice *out, struct err *e);

/* The request's "repo", in the active configuration; E_NOTFOUND. Release *rs in any case: *out
 * lives in it. */
MUST_USE int talk_need_repo(const struct talk *t, struct repo_set **rs, struct repo **out,
                            struct err *e);

/* jwrite_*() calls between these two write one row's members. talk_row_end() is nonzero when the
 * client is gone. */
struct buf *talk_row(struct talk *t);
int talk_row_end(struct talk *t);
int talk_row_flush(struct talk *t); /* the same, and sends it immediately */
bool talk_left(struct talk *t);     /* the client is gone: for loops that write nothing for long */
int talk_progress(struct talk *t, uint64_t done, uint64_t total); /* the same */

/* Data too large for a line is passed as a descriptor (SCM_RIGHTS): one with a request, one with
 * an answer. */
/* yours; E_USAGE: there was none */
MUST_USE int talk_take_fd(struct talk *t, int *fd, struct err *e);
void talk_give_fd(struct talk *t, int fd); /* takes it */

/* What one request keeps for the next ones of its connection. drop() runs when the client
 * disconnects, or something else is kept (kept may be NULL: nothing). */
void talk_keep(struct talk *t, void *kept, void (*drop)(void *kept));

/* VERB(name, function) */
#define VERBS(VERB)                                                                                \
    VERB("status", verb_status)                                                                    \
    VERB("repo.ls", verb_repo_ls)                                                                  \
    VERB("repo.show", verb_repo_show)                                                              \
    VERB("cache.ls", verb_cache_ls)                                                                \
    VERB("cache.stats", verb_cache_stats)                                                          \
    VERB("cache.pin", verb_cache_pin)                                                              \
    VERB("cache.unpin", verb_cache_unpin)                                                          \
    VERB("cache.pins", verb_cache_pins)                                                            \
    VERB("cache.rm", verb_cache_rm)                                                                \
    VERB("cache.refresh", verb_cache_refresh)                                                      \
    VERB("cache.gc", verb_cache_gc)                                                                \
    VERB("verify", verb_verify)                                                                    \
    VERB("config.test", verb_config_test)                                                          \
    VERB("config.reload", verb_config_reload)                                                      \
    VERB("token.create", verb_token_create)                                                        \
    VERB("token.ls", verb_token_ls)                                                                \
    VERB("token.revoke", verb_token_revoke)                                                        \
    VERB("snapshot.ls", verb_snapshot_ls)                                                          \
    VERB("snapshot.show", verb_snapshot_show)                                                      \
    VERB("snapshot.diff", verb_snapshot_diff)                                                      \
    VERB("snapshot.rollback", verb_snapshot_rollback)                                              \
    VERB("snapshot.tag", verb_snapshot_tag)                                                        \
    VERB("snapshot.hold", verb_snapshot_hold)                                                      \
    VERB("snapshot.rm", verb_snapshot_rm)                                                          \
    VERB("sync.run", verb_sync_run)                                                                \
    VERB("sync.ls", verb_sync_ls)                                                                  \
    VERB("sync.show", verb_sync_show)                                                              \
    VERB("sync.logs", verb_sync_logs)                                                              \
    VERB("sync.pause", verb_sync_pause)                                                            \
    VERB("sync.resume", verb_sync_resume)                                                          \
    VERB("sync.stop", verb_sync_stop)                                                              \
    VERB("sync.approve", verb_sync_approve)                                                        \
    VERB("hf.ls", verb_hf_ls)                                                                      \
    VERB("hf.show", verb_hf_show)                                                                  \
    VERB("hf.prefetch", verb_hf_prefetch)                                                          \
    VERB("hf.prefetches", verb_hf_prefetches)                                                      \
    VERB("hf.stop", verb_hf_stop)                                                                  \
    VERB("hf.pin", verb_hf_pin)                                                                    \
    VERB("hf.unpin", verb_hf_unpin)                                                                \
    VERB("hf.rollback", verb_hf_rollback)                                                          \
    VERB("hf.export", verb_hf_export)                                                              \
    VERB("hf.export.file", verb_hf_export_file)                                                    \
    VERB("hf.import", verb_hf_import)                                                              \
    VERB("hf.import.file", verb_hf_import_file)                                                    \
    VERB("hf.import.commit", verb_hf_import_commit)                                                \
    VERB("hf.import.abort", verb_hf_import_abort)                                                  \
    VERB("peers.ls", verb_peers_ls)                                                                \
    VERB("upstream.check", verb_upstream_check)                                                    \
    VERB("cluster.status", verb_cluster_status)                                                    \
    VERB("cluster.nodes", verb_cluster_nodes)                                                      \
    VERB("cluster.drain", verb_cluster_drain)                                                      \
    VERB("cluster.void", verb_cluster_void)                                                        \
    VERB("cluster.adopt", verb_cluster_adopt)                                                      \
    VERB("cluster.leave", verb_cluster_leave)                                                      \
    VERB("cluster.check", verb_cluster_check)                                                      \
    VERB("cluster.gc", verb_cluster_gc)                                                            \
    VERB("cluster.verify", verb_cluster_verify)

#define VERB(name, function) int function(struct talk *t, struct err *e);
VERBS(VERB)
#undef VERB

#endif
