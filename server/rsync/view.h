/* view.h - what of a module one client asked for: entries of the shared list, below which names they are told.
 *
 * "path/" is what is in that folder, told from ".", "path" the entry itself, "path/pattern" those that match. Relative (-R): told from the
 * top, or from behind "/./", with the folders on the way. Several paths make one view: where two tell the same name the first
 * counts. Places in the view are the client's indices: it sorts as we do.
 *
 * A path is looked up, not searched for; what is below a folder stands behind it.
 *
 * owns     eight bytes an entry; view_fini()
 * threads  any
 * errors   E_NOTFOUND: there is nothing; E_INVALID: it leads elsewhere; E_TOOBIG: too many paths tell the same things
 */
#ifndef SERVER_RSYNC_VIEW_H
#define SERVER_RSYNC_VIEW_H

#include "common/codec/filter.h"
#include "server/rsync/options.h"
#include "server/sync/rsync/list.h"

struct view_ask { /* one path, as it was understood */
    char path[LIST_PATH_MAX + 1];
    size_t path_n;        /* without a pattern, and without '/' at its ends; 0: the top */
    struct slice pattern; /* of names in it; of the client's text */
    bool contents;        /* of the folder, not itself */
    size_t strip;         /* bytes that are not told */
};
MUST_USE int view_ask(struct slice path, const struct options *o, struct view_ask *out,
                      struct err *e);

enum view_say {
    VIEW_TOP = 1, /* asked for by its own name; with BARE: only on the way to that */
    VIEW_BARE =
        2, /* a folder of whose contents nothing is said: the client leaves alone what it has there */
    VIEW_DOT = 4, /* told as "." */
};

struct view_entry {
    uint32_t at; /* index in the list */
    uint16_t strip;
    uint8_t say;
};

struct view {
    const struct file_list *list;
    struct view_entry *entry;
    uint32_t count, room;
};

void view_init(struct view *v, const struct file_list *l);
MUST_USE int view_add(struct view *v, const struct view_ask *a, const struct options *o,
                      const struct filter *f, struct err *e);
const struct list_entry *view_at(const struct view *v, uint32_t index);
/* How the client knows it; room as for list_path(). */
struct slice view_path(const struct view *v, uint32_t index, char *room);
uint64_t view_size_bytes(const struct view *v); /* of all files */
void view_fini(struct view *v);

#endif
