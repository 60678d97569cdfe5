/* pull.h - one visit to an rsync daemon as a state machine: bytes in, bytes and events out; no
 * socket, no store.
 *
 *   handshake -> compatibility flags -> list -> requests and answers, in phases -> statistics
 *   -> goodbye
 *
 * In phase 0 every needed file is requested, with as many open requests as pull_may_ask() allows.
 * Files that arrived damaged are requested again in phase 1. pull_end_phase() says that there are
 * no more requests; the machine ends the phase when all answers have arrived.
 *
 * owns     its buffers; the list until on_list()
 * threads  one at a time; events run only inside pull_feed()
 * errors   E_PROTOCOL, E_TOOBIG, those of handshake.h; E_NETWORK: the peer ended too early
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */
#ifndef SERVER_SYNC_RSYNC_PULL_H
#define SERVER_SYNC_RSYNC_PULL_H

#include "server/sync/rsync/list.h"
#include "server/sync/rsync/sums.h"

enum { PULL_OUT_HIGH = 256 << 10, PULL_IN_FLIGHT_MAX = 1000 /* requests without an answer */ };

struct pull_settings {
    /* below the module; "" or ending in '/': everything in it; else that file. Copied, as are
     * rules */
    struct slice path;
    struct slice module; /* borrowed for the whole visit, as the two below */
    struct slice user;
    struct slice password;
    const char *const *filter; /* rules as rsync writes them */
    size_t filters;
    bool hard_links;
    unsigned offer; /* 31; 30 for tests */
    bool plain;     /* do not offer varint flags, as before 3.2; for tests */
    struct list_limits limits;
};

enum { PULL_PAUSE = 1 };
struct pull_events {                                /* a returned E_* ends the visit with it */
    int (*on_list)(void *arg, struct file_list *l); /* once; sorted; gone when it returns */
    /* An answer to the request of `index` begins. Its bytes follow, those of its basis too, then
     * on_end or another on_begin. */
    int (*on_begin)(void *arg, int32_t index);
    /* here: bytes of the basis, nothing was received. May return PULL_PAUSE: taken, but send no
     * more. */
    int (*on_bytes)(void *arg, struct slice bytes, bool here);
    int (*read_basis)(void *arg, uint64_t off, void *to, size_t n, struct err *e);
    int (*on_end)(void *arg, int32_t index, bool good); /* good: the peer's digest matches */
    void (*on_missing)(void *arg, int32_t index);       /* the peer cannot read it any more */
    void (*on_phase)(void *arg, unsigned phase);        /* 1: failed files may be requested again */
    /* the goodbyes are exchanged; nothing follows */
    void (*on_done)(void *arg);
    void (*on_text)(void *arg, bool error, struct slice text);
};

struct pull;

struct pull *pull_new(const struct pull_settings *set, const struct pull_events *ev, void *arg);
void pull_free(struct pull **pp);

/* Consumes from *in; bytes stay there when paused or done. Call it again with nothing new after
 * pull_resume(). */
MUST_USE int pull_feed(struct pull *p, struct slice *in, struct err *e);
/* The peer has closed the connection: 0 when that is allowed now. */
MUST_USE int pull_eof(struct pull *p, struct err *e);
struct buf *pull_out(struct pull *p); /* to be sent, and removed from its front */
void pull_keep_alive(struct pull *p); /* an empty frame, when nothing else was sent for long */
void pull_resume(struct pull *p);
bool pull_paused(const struct pull *p);

/* After on_list: one more request may begin, or the current one get one more block. */
bool pull_may_ask(const struct pull *p);
/* listed_bytes: the list's size. basis_bytes 0: request the whole file. Else call pull_block()
 * for every block of the basis, in order. */
void pull_ask(struct pull *p, int32_t index, uint64_t listed_bytes, uint64_t basis_bytes,
              bool full_sums);
const struct sums_head *pull_asking(const struct pull *p, uint32_t *next); /* NULL: none */
void pull_block(struct pull *p, struct slice block);
void pull_end_phase(struct pull *p);

bool pull_is_done(const struct pull *p); /* everything is said, though maybe not sent yet */
int32_t pull_io_error(const struct pull *p);
unsigned pull_version(const struct pull *p);
enum checksum_kind pull_checksum(const struct pull *p);

#endif
