/* generation.h - the shared rows of collection (collect.h), in TABLE_COLLECT.
 *
 *   "g"             8 random bytes: the generation of the places
 *   "o"             T (8): keys that were written before T and that nothing named then are orphans
 *   "c", nonce (8)  a list of condemned objects, dead/<nonce> (dead_list.h); the row is removed
 *                   when all of them are deleted. Value: their number (8), bytes (8)
 *   "r"             the run of a collection (struct collect_run)
 *
 * Every entry that ends places, or that makes orphans, changes the generation. A publish reads the
 * generation before it looks at the first place, and requires that it is still the same. So a
 * publish that relied on a place which has ended cannot be committed: it looks again. It may keep
 * what it has uploaded unless it began before T.
 *
 * threads  any; all block
 */
#ifndef SERVER_CLUSTER_GENERATION_H
#define SERVER_CLUSTER_GENERATION_H

#include "server/store/store.h"

struct generation {
    bool none; /* nothing was ever collected */
    uint64_t number;
};

MUST_USE int generation_get(struct store *s, struct generation *out, struct err *e);
void generation_require(struct batch *b, const struct generation *g);
void generation_change(struct batch *b);

/* Whether the batch requires a generation. */
bool generation_in_batch(const struct batch *b);
/* Whether the batch requires another generation than that of the store's rows. */
bool generation_is_over(struct store *s, const struct batch *b);
/* Removes that step. objects: also the indexes and the places that the batch puts. */
void generation_forget(struct batch *b, bool objects);
/* The least time of uploading of the indexes that the batch puts; UINT64_MAX: it puts none. */
uint64_t generation_begun_unix_s(const struct batch *b);

/* T; 0: none yet. */
MUST_USE int orphans_get(struct store *s, uint64_t *before_unix_s, struct err *e);
/* Requires that T is still `earlier`, and never lowers it. */
void orphans_put(struct batch *b, uint64_t before_unix_s, uint64_t earlier_unix_s);

struct condemned {
    uint64_t list; /* nonce */
    uint64_t objects, bytes;
};
void condemned_put(struct batch *b, const struct condemned *c);
/* Requires that it is still there, and removes it. */
void condemned_del(struct batch *b, const struct condemned *c);
MUST_USE int condemned_each(struct store *s, int (*each)(void *arg, const struct condemned *c),
                            void *arg, struct err *e);

/* The last collection, or the one that is running. */
struct collect_run {
    char node[33]; /* hex: who runs it */
    uint64_t number;
    uint64_t began_unix_s; /* by the bucket's clock, as all of its times */
    uint64_t ended_unix_s; /* 0: it is running, unless its mirror has died */
    uint64_t condemned, condemned_bytes;
    uint64_t orphans, orphan_bytes; /* deleted */
};
/* E_NOTFOUND: nothing was ever collected. */
MUST_USE int collect_run_get(struct store *s, struct collect_run *out, struct err *e);
/* Requires that the row is still `before`; NULL: that there is none. */
void collect_run_put(struct batch *b, const struct collect_run *run,
                     const struct collect_run *before);

#endif
