/* part.h - what has come of a large file, kept until the rest comes: across tries, attempts, runs, and the daemon's lives.
 *
 * The bytes lie in a named stage; a row in TABLE_PARTIAL (shared with fills and uploads), written after they are durable,
 * tells of which file they are the beginning, how many, under which validator, and their digest. A row is a promise about
 * bytes, not about the upstream: whether the rest belongs to them is for the engine to make sure.
 *
 * owns     part_free() frees the memory alone; part_drop() removes file and row
 * threads  any; rows and files block
 */
#ifndef SERVER_SYNC_PART_H
#define SERVER_SYNC_PART_H

#include "common/base/list.h"
#include "server/store/blob.h"
#include "server/sync/seen.h"

enum { PART_KEEP_S = 7 * 86400 };

struct part {
    struct list node;
    uint64_t stage_id;
    struct slice repo, path, upstream;
    bool digest_known;
    struct digest digest; /* announced, of the whole file */
    struct seen
        seen; /* as listed; size_bytes, digest, validator: of what has come; taken_unix_s: when */
    struct buf row; /* what the slices point into */
};

void part_put(struct batch *b, const struct part *p);
void part_del(struct batch *b, uint64_t stage_id);
/* It is the beginning of what is listed now, as far as a list can tell. */
bool part_fits(const struct part *p, const struct sync_entry *listed, struct slice upstream);
/* Those of a repo (none: of all) that are parked, appended to out. */
MUST_USE int parts_load(struct store *s, struct slice repo, struct list *out, struct err *e);
struct part *parts_take(struct list *parts, struct slice path); /* out of the list; or NULL */
void part_free(struct part **pp);
void part_drop(struct store *s, struct part **pp);
void parts_free(struct list *parts);
void parts_drop(struct store *s, struct slice repo); /* all of it */
/* Those that nobody has asked for in a long time, and those of repos that stays() denies. */
void parts_sweep(struct store *s, bool (*stays)(void *arg, struct slice repo), void *arg,
                 uint64_t now_unix_s);

#endif
