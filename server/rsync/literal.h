/* literal.h - a file's bytes as they travel: plain, or compressed in the way that client and server agreed on.
 *
 * Only literals exist here, so zlib and zlibx, which differ in what becomes of matches, are the same. zlib: a raw stream a file,
 * flushed at its end without the last four bytes. zstd: one stream a session, flushed at each file's end. Compressed bytes stand
 * behind two bytes, 0x40 and their length; a zero ends the file.
 *
 * Compression is for strangers, so it is cheap: the lowest level, a window of 128 KiB at most. zstd passes over what does not shrink
 * at 5 GB/s. zlib does not: what its name says is compressed already is stored, what turns out not to shrink is stored for a
 * while, then tried again.
 *
 * owns     its stream, below 1 MiB; literal_fini()
 * threads  one at a time
 * source   sessions of the installed client and server; RFC 1951 3.2.4 for what is stored
 */
#ifndef SERVER_RSYNC_LITERAL_H
#define SERVER_RSYNC_LITERAL_H

#include "common/base/buf.h"

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

void literal_init(struct literal *l, enum literal_kind kind, struct slice skip);
void literal_begin(struct literal *l, struct slice path);                /* the next file */
void literal_add(struct literal *l, struct slice bytes, struct buf *to); /* LITERAL_PIECE at most */
void literal_end(struct literal *l, struct buf *to);
void literal_fini(struct literal *l);

#endif
