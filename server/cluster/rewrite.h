/* rewrite.h - writes indexes of a cluster's bucket anew, without what is dead.
 *
 * An index names objects, and which item lies where in them. Each object is named by one index.
 * Of an index that is rewritten,
 *
 *   an object without a live item      is dead
 *   a pack that is over half dead      is dead, and its live items are copied into new packs
 *   another object                     stays where it is, and a new index names its live items
 *   the index itself                   is dead
 *
 * Several indexes become one. Nothing is deleted here: the dead objects are listed (dead_list.h),
 * and one batch ends the old indexes, makes the new ones count, and condemns the list.
 *
 * memory   about 150 MB while items are copied, 47 MB to write an index, the batch (100 bytes for
 *          each live item), and 40 bytes for each dead one
 * threads  one at a time; blocks
 * errors   E_NOTFOUND: an index is gone; E_CORRUPT: it is damaged; the codes of bucket.h and
 *          content_upload.h. After an error it can only be closed; what was written is orphaned
 */
#ifndef SERVER_CLUSTER_REWRITE_H
#define SERVER_CLUSTER_REWRITE_H

#include <stdatomic.h>

#include "server/cluster/bucket.h"
#include "server/cluster/place.h"
#include "server/store/gc.h"

struct index_survey {
    uint64_t rows, dead_rows;
    uint64_t objects, bytes;           /* of the objects that it names */
    uint64_t dead_objects, dead_bytes; /* of those, including those whose items are copied */
    uint64_t copied_bytes;
};

/* Whether a version of a tree names it. */
bool item_is_live(const struct mark *m, const struct content_item *it);
/* Adds what rewriting this index would do. merge: small packs are copied, too. */
void index_survey(const struct content_index *ix, const struct mark *m, bool merge,
                  struct index_survey *sum);
/* Whether rewriting would change anything. */
static inline bool index_survey_is_clean(const struct index_survey *s)
{
    return s->dead_rows == 0 && s->dead_objects == 0;
}
/* Marks all dead items of the index, and what is below its dead nodes. */
MUST_USE int index_keep(const struct content_index *ix, struct store *s, struct mark *m,
                        struct err *e);

struct rewrite_settings {
    struct bucket *bucket;
    const struct mark *mark; /* what is live */
    const atomic_bool *stop;
    bool merge;
    bool read_back; /* the bucket does not check bodies */
};

struct rewrite;
struct rewrite *rewrite_open(const struct rewrite_settings *set);
void rewrite_close(struct rewrite **rp);
MUST_USE int rewrite_index(struct rewrite *r, const struct index_row *row,
                           const struct content_index *ix, struct err *e);
struct rewritten {
    uint64_t objects, bytes; /* that are dead now, with their indexes */
    uint64_t copied_bytes;
    uint64_t dropped; /* items */
    uint64_t list;    /* nonce; 0: nothing is dead */
};
/* Writes what is left to write, then adds to the batch: the end of the old indexes, which it
 * requires, the new ones and their places, and the condemned list. */
MUST_USE int rewrite_finish(struct rewrite *r, struct batch *b, struct rewritten *out,
                            struct err *e);
/* Whether one of the items that were left out is marked now. */
bool rewrite_lost_any(const struct rewrite *r);

#endif
