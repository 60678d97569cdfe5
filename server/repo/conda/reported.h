/* reported.h - what a channel's indexes tell, as rows of TABLE_ORIGIN, so that the plan for a
 * package needs no index.
 *
 *   repo NUL "conda" NUL folder NUL 'f' name  -> of a package: SHA-256, size, where it lies, and who told it
 *   repo NUL "conda" NUL folder NUL 'g'       -> when its index was last another: each form of it is asked for anew then
 *   repo NUL "conda" NUL folder NUL 'b'       -> its packages lie elsewhere, by repodata.json (info.base_url, CEP 15)
 *   repo NUL "conda" NUL folder NUL 's'       -> its packages or shards lie elsewhere, by the index of shards (CEP 16)
 *
 * Forms of one index may be of different ages at the origin, and any may be read last. Of a file
 * the newer form's word stands (by Last-Modified), or a later word of the same form; without a
 * change nothing is written, so that a channel of half a million packages costs no write a package
 * each hour. What an index does not name any more keeps its row: clients with the index before
 * still ask for it.
 *
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
    uint64_t modified_unix_s; /* of the index that tells it; 0: it does not say */
    uint8_t source;           /* which of its forms: reported_source() */
    uint8_t place;            /* 0: beside it; or of a reported_kind: as that row says */
};
struct reported_group {
    uint64_t modified_unix_s;
    uint64_t since_unix_s;
};
struct reported_place { /* URLs that end in '/'; p == NULL: beside it */
    struct slice packages, shards;
    struct slice index; /* URL of the one that says so */
};

struct reported_row { /* its value */
    enum reported_kind kind;
    union {
        struct reported_file file;
        struct reported_group group;
        /* REPORTED_REPODATA; rows of REPORTED_SHARDS have the same value */
        struct reported_place place;
    };
};

uint8_t reported_source(struct slice name);
void reported_encode(const struct reported_row *t, struct buf *out);
MUST_USE bool reported_decode(struct slice row, struct reported_row *out); /* slices of the row */

/* For struct lookup_reader, of whatever kind the rows are. */
bool reported_replaces(struct slice old, struct slice fresh);

#endif
