/* link.h - a connection to a peer, plain or TLS, on a loop: bytes both ways, deadlines, pauses.
 *
 * Bytes to be sent stay in the owner's buffer until the socket takes them. A peer that neither
 * sends nor takes anything for stall_ms, while we wait for it, is disconnected: on_end comes with
 * E_TIMEOUT. While the link is paused no clock runs.
 *
 * owns     its socket and TLS; link_close() at any time, also inside an event; no event follows it
 * threads  the loop's; events never run inside link_open, link_pump, link_pause
 * errors   E_NETWORK, E_TIMEOUT; E_DENIED: an invalid certificate, or a proxy that refuses the
 *          connection
 */
#ifndef SERVER_SYNC_RSYNC_LINK_H
#define SERVER_SYNC_RSYNC_LINK_H

#include "common/base/buf.h"
#include "server/sync/rsync/dial.h"

struct link;

struct link_settings { /* copied */
    struct slice host;
    uint16_t port;
    const struct proxy *proxy; /* on the way there; or NULL */
    bool tls;
    const char *ca_file; /* or NULL: the system's */
    uint32_t connect_ms, stall_ms;
    uint32_t keep_alive_ms; /* on_quiet comes when nothing was sent for this long */
};

struct link_events {
    /* Consumes from *in; the rest comes again. After link_pause(l, false) it is called in any
     * case, maybe with nothing. */
    int (*on_bytes)(void *arg, struct slice *in, struct err *e);
    /* the bytes to be sent; the link removes from its front what was sent */
    struct buf *(*out)(void *arg);
    void (*on_sent)(void *arg); /* the buffer got shorter */
    void (*on_quiet)(void *arg);
    /* At most once, and last. rc 0: the peer closed the connection properly. */
    void (*on_end)(void *arg, int rc, const struct err *why);
};

MUST_USE int link_open(const struct link_settings *set, const struct link_site *site,
                       const struct link_events *ev, void *arg, struct link **out, struct err *e);
void link_pump(struct link *l); /* there is more to send */
void link_pause(struct link *l, bool paused);
void link_close(struct link **lp); /* NULL is fine */
uint64_t link_bytes_in(const struct link *l);

#endif
