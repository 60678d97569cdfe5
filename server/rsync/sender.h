/* sender.h - the part of a session after the list: the client requests entries by their index,
 * and gets whole files, until it has said goodbye.
 *
 * The client's block sums are skipped: an answer of literals only is always right, and costs us
 * no more than reading the file. Literals are sent plain, or compressed as client and server
 * agreed.
 *
 * owns     the state of its sums and of its compression, below 1 MiB; sender_fini()
 * threads  its session's own; blocks
 * errors   E_PROTOCOL: invalid requests; those of the stream
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

/* The names that we offer, the best first. */
#define LITERAL_OFFER "zstd zlibx zlib none"

MUST_USE bool literal_named(struct slice name, enum literal_kind *out);
/* The first of the client's names that we have; false if there is none. */
MUST_USE bool literal_agree(struct slice clients, enum literal_kind *out);

struct literal {
    enum literal_kind kind;
    struct slice skip; /* name endings in addition to ours, "gz/jp[e]g/7z"; borrowed */
    bool any;          /* byte of this file */
    bool named;        /* this file's name has one of these endings */
    bool stored;       /* the next bytes, and the last ones, are stored without compression */
    bool whole;        /* the stream is between two blocks */
    unsigned wait;     /* pieces to store until the next trial */
    unsigned patience; /* the number to store after the next failed trial */
    uint64_t in, out;  /* of the current trial */
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

/* The caller sets the fields up to dry_run. */
/* skip: endings of names that are not compressed; borrowed. */
void sender_init(struct sender *s, struct stream *stream, enum checksum_kind kind,
                 enum literal_kind literal, struct slice skip);
MUST_USE int sender_run(struct sender *s, struct err *e);
void sender_fini(struct sender *s);

/* One file's bytes as they are sent; each sender has one. */
void literal_init(struct literal *l, enum literal_kind kind, struct slice skip);
void literal_begin(struct literal *l, struct slice path);                /* the next file */
void literal_add(struct literal *l, struct slice bytes, struct buf *to); /* LITERAL_PIECE at most */
void literal_end(struct literal *l, struct buf *to);
void literal_fini(struct literal *l);

#endif
