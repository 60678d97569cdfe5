/* view.h - what of a module one client asked for: entries of the shared list, below which name they are told.
 *
 * "path/" is what is in that folder, told from ".", "path" the entry itself, "path/pattern" those that match. Places in the view are
 * the client's indices: it sorts as we do.
 *
 * owns     four bytes an entry; view_fini()
 * threads  any
 */
#ifndef SERVER_RSYNC_VIEW_H
#define SERVER_RSYNC_VIEW_H

#include "common/codec/filter.h"
#include "server/rsync/options.h"
#include "server/sync/rsync/list.h"

struct view {
    const struct file_list *list;
    uint32_t *at; /* index here -> index there */
    uint32_t count;
    size_t strip;        /* bytes of a path that are not told */
    bool top;            /* the first is the folder itself, told as "." */
    uint64_t size_bytes; /* of all files */
};

/* path: below the module, as the client wrote it. E_NOTFOUND: there is nothing; E_INVALID: it leads elsewhere. */
MUST_USE int view_make(const struct file_list *l, struct slice path, const struct options *o,
                       const struct filter *f, struct view *out, struct err *e);
/* How the client knows it; room as for list_path(). */
struct slice view_path(const struct view *v, uint32_t index, char *room);
void view_fini(struct view *v);

#endif
