/* reported.h - what a channel's indexes say, as rows of TABLE_ORIGIN, so that the plan for a
 * package needs no index.
 *
 *   repo NUL "conda" NUL folder NUL 'f' name  -> of a package: SHA-256, size, place, source index
 *   repo NUL "conda" NUL folder NUL 'g'       -> when its index last changed: each form of it is
 *                                                then requested again
 *   repo NUL "conda" NUL folder NUL 'b'       -> its packages are elsewhere, by repodata.json
 *                                                (info.base_url, CEP 15)
 *   repo NUL "conda" NUL folder NUL 's'       -> its packages or shards are elsewhere, by the
 *                                                index of shards (CEP 16)
 *
 * The forms of one index may be of different ages at the origin, and may be read in any order. For
 * each file the newer form counts (by Last-Modified), or a later version of the same form. Without
 * a change nothing is written, so a channel of half a million packages does not cost one write per
 * package and hour. A file that an index no longer names keeps its row, because clients with the
 * previous index still request it.
 *
 * owns     nothing: decoded slices are of the row
 * threads  any; pure, rows go into a batch
 */
#ifndef SERVER_REPO_CONDA_REPORTED_H
#define SERVER_REPO_CONDA_REPORTED_H

#include "server/repo/repo.h"

enum reported_kind {
    REPORTED_FILE = 'f',
    REPORTED_GROUP = 'g',
    REPORTED_REPODATA = 'b',
    REPORTED_SHARDS = 's'
};

void reported_key(struct buf *out, struct slice repo, struct slice folder, enum reported_kind kind,
                  struct slice name);

struct reported_file {
    bool digest_known;
    struct digest digest;
    uint64_t size_bytes;      /* LENGTH_UNKNOWN */
    uint64_t modified_unix_s; /* of the index that reports it; 0: unknown */
    uint8_t source;           /* the form of the index: reported_source() */
    uint8_t place;            /* 0: beside the index; else a reported_kind: where that row says */
};
struct reported_group {
    uint64_t modified_unix_s;
    uint64_t since_unix_s;
};
struct reported_place { /* URLs that end in '/'; p == NULL: beside the index */
    struct slice packages, shards;
    struct slice index; /* URL of the index that says so */
};

struct reported_row { /* its value */
    enum reported_kind kind;
    union {
        struct reported_file file;
        struct reported_group group;
        /* REPORTED_REPODATA; rows of REPORTED_SHARDS have the same value. */
        struct reported_place place;
    };
};

uint8_t reported_source(struct slice name);
void reported_encode(const struct reported_row *t, struct buf *out);
MUST_USE bool reported_decode(struct slice row, struct reported_row *out); /* slices of the row */

/* For struct lookup_reader; handles rows of any kind. */
bool reported_replaces(struct slice old, struct slice fresh);

#endif
