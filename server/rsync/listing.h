/* listing.h - the file list of a module's published snapshot, in the order and with the indices
 * of the wire.
 *
 * It is made once per snapshot and shared by all sessions that began while that snapshot was
 * published: no folder is walked, and nothing changes during a session. Trees of a hosted
 * repository are below their names. Folders without an entry are implied by paths; they get the
 * newest time of their contents. The top folder of a mirrored tree has its upstream's time.
 *
 * owns     counted; memory is that of a struct file_list, some 60 bytes an entry, one list a
 *          module
 * threads  any; blocks
 * errors   E_NOTFOUND: nothing has been published
 */
#ifndef SERVER_RSYNC_LISTING_H
#define SERVER_RSYNC_LISTING_H

#include <stdatomic.h>

#include "server/store/blob.h"
#include "server/store/tree.h"
#include "server/sync/rsync/list.h"

struct listings; /* the newest of each module */
struct listing;

/* stop: once set, no list is made any more: E_CANCELLED. */
struct listings *listings_open(struct store *s, const atomic_bool *stop);
void listings_close(struct listings **lp);

/* tree: the whole module is this tree; p == NULL: all trees of the repository, below their names.
 */
MUST_USE int listing_acquire(struct listings *ls, struct slice repo, struct slice tree,
                             struct listing **out, struct err *e);
void listing_release(struct listing **lp);
const struct file_list *listing_list(const struct listing *l);
/* Opens a file of the list. */
MUST_USE int listing_open(const struct listing *l, struct slice path, struct blob **out,
                          struct err *e);

#endif
