/* seen.h - records what the upstream's list said about a file when it was downloaded, so that the
 * next run can tell whether the file is unchanged without a request.
 *
 * A row in TABLE_STAGE describes bytes that were fetched and are not published yet: the run after
 * a killed one finds them. Once published, the row moves to TABLE_SEEN, but only where the tree
 * does not say the same (rounded times, validators). A row counts only while its digest is the
 * tree's: after a rollback it describes another file.
 *
 * owns     a decoded seen borrows its validator from the row
 * threads  any; rows block
 * errors   E_NOTFOUND, E_CORRUPT
 */
#ifndef SERVER_SYNC_SEEN_H
#define SERVER_SYNC_SEEN_H

#include "server/store/store.h"
#include "server/store/tree.h"
#include "server/sync/entry.h"

struct seen {
    uint64_t listed_size;
    int64_t listed_mtime_ns;
    uint32_t mtime_step_s;
    uint64_t size_step;
    uint64_t taken_unix_s; /* when */
    bool doubtful;         /* the received file was not the listed one: request it again */
    uint64_t size_bytes;   /* as received */
    int64_t mtime_ns;      /* as the tree has it */
    struct digest digest;
    struct slice validator;
};

void seen_encode(const struct seen *s, struct buf *out);
MUST_USE int seen_decode(struct slice row, struct seen *out, struct err *e);
/* repo NUL path */
void seen_key(struct buf *out, struct slice repo, struct slice path);
/* False: the list said what the tree has, so no row is needed. */
bool seen_needs_row(const struct seen *s);

/* Rows of one table and repository, asked for in path order. */
struct seen_walk;
struct seen_walk *seen_walk_open(struct store *s, enum table t, struct slice repo);
void seen_walk_close(struct seen_walk **wp);
/* E_NOTFOUND. Paths must not go backwards; *out is valid until the next call. */
MUST_USE int seen_walk_to(struct seen_walk *w, struct slice path, struct seen *out, struct err *e);
/* The next row after the last one. E_NOTFOUND: none. */
MUST_USE int seen_walk_next(struct seen_walk *w, struct slice *path, struct seen *out,
                            struct err *e);

/* Adds to b: the stage row of a path and its blob's holder. */
void stage_row_put(struct batch *b, struct slice repo, struct slice path, const struct seen *s);
/* Adds to b: the removal of both. */
void stage_row_del(struct batch *b, struct slice repo, struct slice path, const struct digest *d);

#endif
