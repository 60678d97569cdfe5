/* plan.h - the list against the published tree and what earlier runs fetched: what becomes of each
 * entry.
 *
 * owns     sync_plan_free() frees the actions and the todo list; the entry list stays the caller's
 * threads  one at a time; blocks (rows and nodes are read), so a million entries take seconds
 */
#ifndef SERVER_SYNC_PLAN_H
#define SERVER_SYNC_PLAN_H

#include "server/sync/profile.h"
#include "server/sync/entry_list.h"
#include "server/sync/seen.h"
#include "server/sync/file_filter.h"

enum action {
    ACTION_SAME, /* the tree's own entry stands, to the last bit */
    ACTION_WRITE, /* an entry that needs no bytes: a link, a folder, other times on the same content */
    ACTION_STAGED, /* its bytes are here, a row in TABLE_STAGE tells which */
    ACTION_FETCH,
    ACTION_FOLLOW, /* a hard link: as its leader */
    ACTION_KEEP,   /* could not be had: what the tree has stays */
    ACTION_DROP,   /* could not be had, and there is nothing to keep */
};

struct sync_plan {
    struct store *store;
    struct slice repo;
    struct entry_list *entry_list;
    struct file_filter *file_filter; /* of what stays though it is not listed; NULL: all */
    const struct profile *profile;   /* its ranks order todo; NULL: all are of one */
    bool has_base;
    struct digest base; /* root of the published tree; the empty one without */
    uint64_t base_entries;
    struct slice own; /* an entry of ours, that no list has (trace of sync_conf); or n == 0 */
    uint8_t *action;  /* enum action, by the entry list's index */
    uint32_t *todo;
    size_t todo_count, todo_room;
    size_t twins; /* the last so many of todo: their bytes come with another's before them */
    /* In todo: what stands behind an end is taken when all before it is here. Twins come behind the
     * last rank. */
    size_t rank_end[PROFILE_RANKS + 1];
    uint64_t fresh, changed, same, gone, reused; /* entries */
    uint64_t fetch_bytes;                        /* as far as the list tells sizes */
    uint64_t reused_bytes;                       /* of those reused, and twins */
};

/* Fills the plan's actions; what the caller has set is store, repo, entry list, sift, profile,
 * has_base, base and base_entries. Where a digest is known and its blob is here, whoever brought
 * it, a stage row is written. */
MUST_USE int sync_plan_make(struct sync_plan *p, struct err *e);
/* The leader of a link, when that is a link too, listed with the same target, and leads itself;
 * else empty. The path of an entry that was got before is not valid any more. */
struct slice plan_link_leader(struct entry_list *r, const struct sync_entry *link);
void sync_plan_free(struct sync_plan *p);
/* What a conditional question may be asked with: the seen row of a published entry. E_NOTFOUND. */
MUST_USE int plan_seen(const struct sync_plan *p, struct slice path, struct buf *row,
                       struct seen *out, struct err *e);

#endif
