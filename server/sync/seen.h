/* seen.h - what the upstream's list said of a file when its bytes were taken, so that the next run
 * can tell whether it is still that file without asking for it.
 *
 * A row in TABLE_STAGE tells of bytes that were fetched and not yet published: a run that is killed
 * finds them again. Once published it goes to TABLE_SEEN, but only where the tree does not tell the
 * same (rounded times, validators). A row is believed only while its digest is the tree's: after a
 * rollback it speaks of another file.
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
    bool doubtful;         /* what came was not what was listed: ask again */
    uint64_t size_bytes;   /* what came */
    int64_t mtime_ns;      /* as the tree has it */
    struct digest digest;
    struct slice validator;
};

void seen_encode(const struct seen *s, struct buf *out);
MUST_USE int seen_decode(struct slice row, struct seen *out, struct err *e);
/* repo NUL path */
void seen_key(struct buf *out, struct slice repo, struct slice path);
/* False: the list said what the tree has, which needs no row. */
bool seen_needs_row(const struct seen *s);

/* Rows of one table and repo, asked for in path order. */
struct seen_walk;
struct seen_walk *seen_walk_open(struct store *s, enum table t, struct slice repo);
void seen_walk_close(struct seen_walk **wp);
/* E_NOTFOUND. Paths must not go backwards; *out is good until the next call. */
MUST_USE int seen_walk_to(struct seen_walk *w, struct slice path, struct seen *out, struct err *e);
/* The next row behind the last one. E_NOTFOUND: there is none. */
MUST_USE int seen_walk_next(struct seen_walk *w, struct slice *path, struct seen *out,
                            struct err *e);

/* Adds to b: the stage row of a path and its blob's holder. */
void stage_row_put(struct batch *b, struct slice repo, struct slice path, const struct seen *s);
/* Adds to b: both go. */
void stage_row_del(struct batch *b, struct slice repo, struct slice path, const struct digest *d);

#endif
