/* listing.h - a module's files as its published snapshot has them, in the order and with the
 * indices of the wire.
 *
 * Made once a snapshot and shared by all sessions that began while it was the published one: no
 * folder is walked, nothing changes under a client. Trees of a hosted repo stand below their names.
 * Folders without an entry are implied by paths; theirs is the newest time of what is in them. The
 * top folder of a mirrored tree has the time of its upstream's.
 *
 * owns     counted; memory is that of a struct file_list, some 60 bytes an entry, one list a module
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

/* tree: the one that is all of it; p == NULL: all of the repo's, below their names. */
MUST_USE int listing_acquire(struct listings *ls, struct slice repo, struct slice tree,
                             struct listing **out, struct err *e);
void listing_release(struct listing **lp);
const struct file_list *listing_list(const struct listing *l);
/* The bytes of a file of the list. */
MUST_USE int listing_open(const struct listing *l, struct slice path, struct blob **out,
                          struct err *e);

#endif
