/* relay.h - which mirror of a cluster has an upload, and how a mirror proves that it passes on the
 * request of a client.
 *
 * An upload of several requests lies on one mirror until it is committed. A balancer may send each
 * request to another mirror, which passes it on (request/relay.h):
 *
 *   an upload with an id     to the mirror that began it: its node's first RELAY_ID digits are the
 *                            first ones of the id
 *   what begins an upload    to the mirror that is responsible for the tree: of those that are
 *   and what commits it      alive, the one with the highest hash of node and tree
 *
 * So the objects of a tree that no version names yet are all on one mirror. The mirrors may
 * disagree for some seconds about which are alive. An upload that was begun before they changed
 * still goes by its id.
 *
 * A request that is passed on has one field more. It is signed with the cluster's secret:
 *
 *   Mirrord-Hop: 1 <the client's address> <http or https> <HMAC-SHA256, hex>
 *
 * The HMAC covers method, target, host, credential, address and scheme. Such a request is never
 * passed on again. The receiver judges the caller's credential itself, as if the client had
 * connected to it. A request that is sent again by somebody who has read it does no more than the
 * client's own request would.
 *
 * owns     borrows the members
 * threads  any
 */
#ifndef SERVER_CLUSTER_RELAY_H
#define SERVER_CLUSTER_RELAY_H

#include "server/cluster/member.h"
#include "server/http/msg.h"

enum {
    RELAY_ID = 12,
    RELAY_FIELD_ROOM = 160,
    RELAY_REST_MS = 10000, /* a mirror that was not reached is not responsible for any tree */
};
#define RELAY_FIELD "mirrord-hop"

enum relay_place {
    RELAY_HERE,  /* this mirror answers: the upload is its own, or lost */
    RELAY_THERE, /* pass it on to *to */
    RELAY_AWAY,  /* its mirror was there a moment ago and may come back: wait, then 503 */
};

struct loop_pool;
struct relay;
struct relay *relay_open(const char *secret, const char *node, struct members *m); /* copied */
void relay_close(struct relay **rp); /* NULL is fine */

/* The digits with which the ids of this mirror's uploads begin. */
struct slice relay_digits(const struct relay *r);
enum relay_place relay_of_upload(struct relay *r, struct slice id, struct member *to);
enum relay_place relay_of_tree(struct relay *r, struct slice repo, struct slice tree,
                               struct member *to);
bool relay_is_alive(struct relay *r, const char *node);
/* It could not be connected to. */
void relay_failed(struct relay *r, const char *node, uint64_t now_ms);
void relay_heard(struct relay *r, const char *node); /* it is there again */

/* The other mirrors that can be asked now; their number. */
size_t relay_others(struct relay *r, struct member *out, size_t room);
/* The other mirrors that are there, or may come back. */
size_t relay_recent(struct relay *r, struct member *out, size_t room);
bool relay_knows_others(struct relay *r); /* false: they have not been read yet */
/* Whether the caller may wait for one to come back, until relay_wait_end(). Few may, and none when
 * this mirror is about to end. */
MUST_USE bool relay_wait_begin(struct relay *r);
MUST_USE bool relay_may_wait(struct relay *r);
void relay_wait_end(struct relay *r);
/* What no mirror has had a moment ago (relay_fetch.h). */
bool relay_is_absent(struct relay *r, struct slice key);
void relay_note_absent(struct relay *r, struct slice key);

/* Loops for questions to other mirrors (relay_fetch.h). */
struct loop_pool *relay_loops(struct relay *r);

/* The number of requests that were passed on to other mirrors, that other mirrors have passed on to
 * this one, and that the other mirror did not answer. */
struct relay_stats {
    uint64_t sent, received, failed;
};
void relay_count(struct relay *r, const struct relay_stats *more);
void relay_stats(struct relay *r, struct relay_stats *out);

/* The value of the field, for a request that is passed on with this target. */
void relay_sign(const struct relay *r, const struct http_req *req, struct slice target,
                char out[RELAY_FIELD_ROOM]);
/* False: the field is not that of a mirror of this cluster. */
MUST_USE bool relay_read(const struct relay *r, const struct http_req *req,
                         struct sockaddr_storage *peer, bool *tls);

#endif
