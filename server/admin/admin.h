/* admin.h - shows and controls the running daemon: metrics, status, the page, the control socket.
 *
 * The control socket (SOCK_STREAM, 0660; SO_PEERCRED root, our own user or group) speaks lines of
 * JSON: one request object {"verb": "cache.ls", ...}, then any number of {"progress": ...} or
 * {"row": ...}, then {"ok": ...} or {"error": {...}}. mirrorctl (server/ctl) is its client.
 */
#ifndef SERVER_ADMIN_ADMIN_H
#define SERVER_ADMIN_ADMIN_H

#include "server/admin/deps.h"

/* Prometheus text 0.0.4, or OpenMetrics if requested: all of metrics.def. Never blocks. */
void metrics_text(const struct admin_deps *deps, bool openmetrics, struct buf *out);
void metrics_doc(struct buf *out); /* docs/metrics.md */
/* /-/status.json; stable keys, documented in docs/operations.md. whole: for readers who may see
 * everything. Others do not see the origin or the contents of a repository that is not public. */
void status_json(const struct admin_deps *deps, struct slice base_url, bool whole, struct buf *out);
/* /-/tunasync.json: the public synced repositories, in the form of tunasync's managers. */
void tunasync_json(const struct admin_deps *deps, struct buf *out);
struct sample;
struct swarm_view;
bool swarm_is_public(const struct sample *s, const struct swarm_view *v);
/* Members about the cluster, of which this mirror is one. */
void cluster_members(const struct sample *s, bool whole, struct buf *out);
/* Members about a damaged entry of the cluster's log. */
void void_members(const struct void_look *look, bool declared, struct buf *out);
/* {"nodes": [{"id", "address", "state", "weight"}]}: the mirrors that are alive, for nodes that
 * choose one. Does not block. */
void cluster_nodes_json(struct cluster *c, struct buf *out);
struct sync_view;
const char *sync_word(const struct sync_view *v); /* "published", "held", "fetch" ... */
/* logged_in: with a link to log out. The page at '/': static, embedded; it reads status.json. The
 * table of repositories is made on the server, so that lynx shows it too. */
void status_page(const struct admin_deps *deps, struct slice base_url, bool logged_in,
                 struct buf *out);

/* The page's Content-Security-Policy: only our own style and script, by their hashes. */
void status_policy(struct buf *out);

/* A verify's findings, as members of an object. */
struct verify_report;
void report_json(const struct verify_report *r, struct buf *out);

struct control;
MUST_USE int control_open(const struct admin_deps *deps, const char *path, struct control **out,
                          struct err *e); /* own thread */
void control_close(struct control **cp);

/* sd_notify: "READY=1" and the like; does nothing without $NOTIFY_SOCKET. */
void notify_systemd(const char *fmt, ...) PRINTF_LIKE(1, 2);

#endif
