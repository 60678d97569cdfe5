/* handshake.h - the lines before the frames: versions, digests for passwords, the module, its
 * message of the day.
 *
 * A client's end. Bytes go in by handshake_feed() and leave in `out`; it takes no byte of what
 * follows the last line.
 *
 * owns     its buffers; handshake_fini()
 * threads  one at a time
 * errors   E_UNSUPPORTED: a peer below 30; E_BUSY: too many connections there, try later;
 *          E_NOTFOUND, E_DENIED, E_REFUSED: what the peer answered; E_PROTOCOL, E_TOOBIG
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */
#ifndef SERVER_SYNC_RSYNC_HANDSHAKE_H
#define SERVER_SYNC_RSYNC_HANDSHAKE_H

#include "common/base/buf.h"

enum {
    HANDSHAKE_VERSION = 31, /* what we say; the peer may say more */
    HANDSHAKE_VERSION_LEAST = 30,
    HANDSHAKE_LINE_MAX = 4096,
    HANDSHAKE_MOTD_MAX = 64 << 10,
};

/* "@RSYNCD: 31.0 sha512 md5" without its end of line. */
MUST_USE bool handshake_parse(struct slice line, unsigned *version, struct slice *digests);

/* The answer to a challenge: base64 without padding of digest(password challenge). The first digest
 * of ours that stands among theirs (none named: md5); false without one in common. */
MUST_USE bool handshake_answer(struct slice digests, struct slice password, struct slice challenge,
                               struct buf *out);

struct handshake {
    struct slice module; /* borrowed, as the two below */
    struct slice user;
    struct slice password; /* p == NULL: none */
    unsigned offer;        /* 30 or 31 */
    unsigned version;      /* agreed */
    bool versions;         /* have been told */
    bool done;
    struct buf digests; /* the peer's */
    struct buf line;
    struct buf motd;
    struct buf out; /* to be sent and dropped by the caller */
};

enum compat { /* what both can do, a byte after the seed */
              COMPAT_INC_RECURSE = 1,
              COMPAT_SAFE_LIST = 8,
              COMPAT_SEED_FIRST = 0x20,
              COMPAT_VARINT = 0x80,
};

void handshake_init(struct handshake *g, unsigned offer, struct slice module, struct slice user,
                    struct slice password);
void handshake_fini(struct handshake *g);
/* 0: see done. */
MUST_USE int handshake_feed(struct handshake *g, struct slice *in, struct err *e);

#endif
