/* groups.h - hard links of a list: a tree says them by the path of a group's first, the list by its place.
 *
 * owns     paths, until groups_fini()
 * threads  one at a time; plain memory
 */
#ifndef SERVER_RSYNC_GROUPS_H
#define SERVER_RSYNC_GROUPS_H

#include "common/base/arena.h"
#include "server/rsync/view.h"
#include "server/sync/rsync/list.h"

struct group;
struct groups {
    struct arena arena;
    struct group *table;
};

/* The entry that arrived as such is one of the group whose first has this path. */
void groups_note(struct groups *gs, struct slice first, uint32_t arrival);
/* Before the list is sorted. */
void groups_place(const struct groups *gs, struct file_list *l);
void groups_fini(struct groups *gs);

/* What a view has of them: whoever of a group comes first in it leads the others, also when the tree's own first is left out. */
struct groups_view {
    int32_t *at; /* by the first's place in the list; NULL: there are none */
};
enum { GROUP_NONE = -1, GROUP_FIRST = -2 };

void groups_view_init(struct groups_view *gv, const struct view *v);
/* Of entries in their order, once each: GROUP_NONE, GROUP_FIRST, or the index in the view of the one that it is a link to. */
int32_t groups_view_next(struct groups_view *gv, const struct view *v, uint32_t index);
void groups_view_fini(struct groups_view *gv);

#endif
