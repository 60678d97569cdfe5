/* handshake.h - the lines before the frames: versions, digests for passwords, the module, its
 * message of the day.
 *
 * This is the client's end. Bytes go in by handshake_feed() and leave in `out`. It consumes no
 * byte after the last line.
 *
 * owns     its buffers; handshake_fini()
 * threads  one at a time
 * errors   E_UNSUPPORTED: a peer below version 30; E_BUSY: the peer has too many connections, try
 *          later; E_NOTFOUND, E_DENIED, E_REFUSED: the peer's answer; E_PROTOCOL, E_TOOBIG
 * source   sessions of the installed client and server (docs/protocols/rsync.md)
 */
#ifndef SERVER_SYNC_RSYNC_HANDSHAKE_H
#define SERVER_SYNC_RSYNC_HANDSHAKE_H

#include "common/base/buf.h"

enum {
    HANDSHAKE_VERSION = 31, /* our version; the peer's may be higher */
    HANDSHAKE_VERSION_LEAST = 30,
    HANDSHAKE_LINE_MAX = 4096,
    HANDSHAKE_MOTD_MAX = 64 << 10,
};

/* "@RSYNCD: 31.0 sha512 md5" without its end of line. */
MUST_USE bool handshake_parse(struct slice line, unsigned *version, struct slice *digests);

/* The answer to a challenge: base64 without padding of digest(password challenge). Uses the first
 * of our digests that the peer also has (md5 if it names none); false if there is none in common.
 */
MUST_USE bool handshake_answer(struct slice digests, struct slice password, struct slice challenge,
                               struct buf *out);

struct handshake {
    struct slice module; /* borrowed, as the two below */
    struct slice user;
    struct slice password; /* p == NULL: none */
    unsigned offer;        /* 30 or 31 */
    unsigned version;      /* agreed */
    bool versions;         /* have been exchanged */
    bool done;
    struct buf digests; /* the peer's */
    struct buf line;
    struct buf motd;
    struct buf out; /* to be sent and removed by the caller */
};

enum compat { /* what both can do; a byte after the seed */
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
