/* plan.h - the list against the published tree and what earlier runs fetched: what becomes of each entry.
 *
 * owns     plan_free() frees the fates and the todo list; the roster stays the caller's
 * threads  one at a time; blocks (rows and nodes are read), so a million entries take seconds
 */
#ifndef SERVER_SYNC_PLAN_H
#define SERVER_SYNC_PLAN_H

#include "server/sync/profile.h"
#include "server/sync/roster.h"
#include "server/sync/seen.h"
#include "server/sync/sift.h"

enum fate {
    FATE_SAME,  /* the tree's own entry stands, to the last bit */
    FATE_WRITE, /* an entry that needs no bytes: a link, a folder, other times on the same content */
    FATE_STAGED, /* its bytes are here, a row in TABLE_STAGE tells which */
    FATE_FETCH,
    FATE_FOLLOW, /* a hard link: as its leader */
    FATE_KEEP,   /* could not be had: what the tree has stays */
    FATE_DROP,   /* could not be had, and there is nothing to keep */
};

struct plan_of_run {
    struct store *store;
    struct slice repo;
    struct roster *roster;
    struct sift *sift;             /* of what stays though it is not listed; NULL: all */
    const struct profile *profile; /* its ranks order todo; NULL: all are of one */
    bool has_base;
    struct digest base; /* root of the published tree; the empty one without */
    uint64_t base_entries;
    struct slice own; /* an entry of ours, that no list has (trace of sync_conf); or n == 0 */
    uint8_t *fate;    /* enum fate, by the roster's index */
    uint32_t *todo;
    size_t todo_count, todo_room;
    size_t twins; /* the last so many of todo: their bytes come with another's before them */
    /* In todo: what stands behind an end is taken when all before it is here. Twins come behind the last rank. */
    size_t rank_end[PROFILE_RANKS + 1];
    uint64_t fresh, changed, same, gone, reused; /* entries */
    uint64_t fetch_bytes;                        /* as far as the list tells sizes */
    uint64_t reused_bytes;                       /* of those reused, and twins */
};

/* Fills the plan's fates; what the caller has set is store, repo, roster, sift, profile, has_base, base and base_entries. Where a digest is
 * known and its blob is here, whoever brought it, a stage row is written. */
MUST_USE int plan_make(struct plan_of_run *p, struct err *e);
/* The leader of a link, when that is a link too, listed with the same target, and leads itself; else empty. The path of an entry
 * that was got before is not valid any more. */
struct slice plan_link_leader(struct roster *r, const struct sync_entry *link);
void plan_free(struct plan_of_run *p);
/* What a conditional question may be asked with: the seen row of a published entry. E_NOTFOUND. */
MUST_USE int plan_seen(const struct plan_of_run *p, struct slice path, struct buf *row,
                       struct seen *out, struct err *e);

#endif
