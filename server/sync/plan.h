/* plan.h - compares the list with the published tree and with what earlier runs fetched, and
 * decides on an action for each entry.
 *
 * owns     sync_plan_free() frees the actions and the todo list; the entry list stays the caller's
 * threads  one at a time; blocks (it reads rows and nodes), so a million entries take seconds
 */
#ifndef SERVER_SYNC_PLAN_H
#define SERVER_SYNC_PLAN_H

#include "server/sync/profile.h"
#include "server/sync/entry_list.h"
#include "server/sync/seen.h"
#include "server/sync/file_filter.h"

enum action {
    ACTION_SAME, /* the tree's entry stays as it is */
    /* an entry that needs no bytes: a link, a folder, or new times for the same content */
    ACTION_WRITE,
    ACTION_STAGED, /* its bytes are here; a row in TABLE_STAGE says which */
    ACTION_FETCH,
    ACTION_FOLLOW, /* a hard link: as its leader */
    ACTION_KEEP,   /* could not be downloaded: the tree's entry stays */
    ACTION_DROP,   /* could not be downloaded, and the tree has none */
};

struct sync_plan {
    struct store *store;
    struct slice repo;
    struct entry_list *entry_list;
    /* for what stays although it is not listed; NULL: everything */
    struct file_filter *file_filter;
    const struct profile *profile; /* its ranks order todo; NULL: all have one rank */
    bool has_base;
    struct digest base; /* root of the published tree; the empty tree if there is none */
    uint64_t base_entries;
    /* an entry that mirrord adds and no list has (trace of sync_conf); or n == 0 */
    struct slice own;
    uint8_t *action; /* enum action, indexed like the entry list */
    uint32_t *todo;
    size_t todo_count, todo_room;
    size_t twins; /* the last entries of todo: their bytes arrive with those of an earlier entry */
    /* In todo: entries after an end are downloaded when all before it are here. Twins follow the
     * last rank. */
    size_t rank_end[PROFILE_RANKS + 1];
    uint64_t fresh, changed, same, gone, reused; /* entries */
    uint64_t fetch_bytes;                        /* where the list states sizes */
    uint64_t reused_bytes;                       /* of the reused ones and the twins */
};

/* Computes the plan's actions. The caller sets store, repo, entry list, file_filter, profile,
 * has_base, base and base_entries. Where a digest is known and its blob is here, from whatever
 * source, a stage row is written. */
MUST_USE int sync_plan_make(struct sync_plan *p, struct err *e);
/* The leader of a link, if the leader is a link too, is listed with the same target, and has no
 * leader; else empty. Invalidates the path of an entry that was fetched from the list before. */
struct slice plan_link_leader(struct entry_list *r, const struct sync_entry *link);
void sync_plan_free(struct sync_plan *p);
/* The seen row of a published entry, for a conditional request. E_NOTFOUND. */
MUST_USE int plan_seen(const struct sync_plan *p, struct slice path, struct buf *row,
                       struct seen *out, struct err *e);

#endif
