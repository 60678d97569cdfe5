/* sender.h - what follows the list: the client asks for entries by their index, and gets files
 * whole, until it has said goodbye.
 *
 * The client's block sums are read past: an answer of literals alone is always right, and costs us
 * no more than reading the file. Literals travel plain, or compressed in the way that client and
 * server agreed on.
 *
 * owns     the state of its sums and of its compression, below 1 MiB; sender_fini()
 * threads  its session's own; blocks
 * errors   E_PROTOCOL: requests that cannot be; those of the stream
 * source   sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_SENDER_H
#define SERVER_RSYNC_SENDER_H

#include "common/base/buf.h"
#include "server/rsync/listing.h"
#include "server/rsync/stream.h"
#include "server/rsync/view.h"
#include "server/sync/rsync/checksum.h"
#include "server/sync/rsync/varint.h"

enum literal_kind { LITERAL_PLAIN, LITERAL_ZSTD, LITERAL_ZLIBX, LITERAL_ZLIB };
enum { LITERAL_KINDS = 4, LITERAL_PIECE = 32 << 10 };

/* What we offer: names, the best first. */
#define LITERAL_OFFER "zstd zlibx zlib none"

MUST_USE bool literal_named(struct slice name, enum literal_kind *out);
/* The first of the client's names that we have; false without one. */
MUST_USE bool literal_agree(struct slice clients, enum literal_kind *out);

struct literal {
    enum literal_kind kind;
    struct slice skip; /* endings besides our own, "gz/jp[e]g/7z"; borrowed */
    bool any;          /* byte of this file */
    bool named;        /* this file's name is one of those */
    bool stored;       /* the bytes that come next, and the last ones */
    bool whole;        /* the stream stands between two blocks */
    unsigned wait;     /* pieces that are stored until another trial */
    unsigned patience; /* how many the next time */
    uint64_t in, out;  /* of the trial under way */
    void *stream;      /* z_stream, ZSTD_CCtx */
    uint8_t *room;
};

struct sender {
    struct stream *stream;
    const struct listing *listing;
    const struct view *view;
    const char *module; /* for the log */
    unsigned version;
    bool dry_run;
    uint64_t files, bytes; /* that were sent */
    struct index_coding coming, going;
    struct checksum sum;
    struct literal literal;
    char block[LITERAL_PIECE];
};

/* The fields up to dry_run are the caller's to fill. */
/* skip: endings of names that are not compressed; borrowed. */
void sender_init(struct sender *s, struct stream *stream, enum checksum_kind kind,
                 enum literal_kind literal, struct slice skip);
MUST_USE int sender_run(struct sender *s, struct err *e);
void sender_fini(struct sender *s);

/* One file's bytes as they travel; a sender has its own. */
void literal_init(struct literal *l, enum literal_kind kind, struct slice skip);
void literal_begin(struct literal *l, struct slice path);                /* the next file */
void literal_add(struct literal *l, struct slice bytes, struct buf *to); /* LITERAL_PIECE at most */
void literal_end(struct literal *l, struct buf *to);
void literal_fini(struct literal *l);

#endif
