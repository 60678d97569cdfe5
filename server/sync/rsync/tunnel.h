/* tunnel.h - a connected socket becomes a way through the proxy at its other end: asks, and reads its answer to the last byte.
 *
 * What the peer behind it says first stays in the socket for whoever takes that over.
 *
 * owns     the socket until done() gives it back or tunnel_close(); done() may close the tunnel
 * threads  the loop's; done() never runs inside tunnel_open. There is no deadline: the owner has one
 */
#ifndef SERVER_SYNC_RSYNC_TUNNEL_H
#define SERVER_SYNC_RSYNC_TUNNEL_H

#include "server/sync/proxy.h"

struct event_base;
struct tunnel;

/* ask: proxy_ask()'s, moved from. done: once; the socket, or -1 and why: E_DENIED, E_NETWORK. */
struct tunnel *tunnel_open(struct event_base *base, int fd, struct buf *ask,
                           void (*done)(void *arg, int fd, const struct err *why), void *arg);
void tunnel_close(struct tunnel **tp); /* NULL is fine */

#endif
