/* damage.h - a blob that is not what its row says: made sure of, then dropped, so that a later want refetches it.
 *
 * The objects that led to it go with it; a tree that holds it keeps its entry, and a new seal of the digest heals it.
 * A file is moved to quarantine/ for a look; eviction empties that folder first. Only what a tree or an upload held, which no
 * origin may be able to give again, stays there for 30 days, or until somebody brings the right bytes.
 */
#ifndef SERVER_STORE_DAMAGE_H
#define SERVER_STORE_DAMAGE_H

#include "server/store/store.h"

enum damage {
    DAMAGE_PLACE, /* bytes missing, or not as many as they should be: looked at again on the commit thread */
    DAMAGE_BYTES,      /* the caller has hashed them */
    DAMAGE_UNREADABLE, /* the disk gave an error */
};

/* 0: dropped. E_CHANGED: it is gone, or good by now. E_IO: it cannot be read and stays, for no origin has it: a disk, or the way
 * to it, may come back. */
MUST_USE int damage_confirm(struct store *s, const struct digest *d, enum damage how,
                            struct err *e);
/* Looks for DAMAGE_PLACE. E_NOTFOUND: no row; E_CORRUPT with a sentence. */
MUST_USE int damage_look(struct store *s, const struct digest *d, struct err *e);

#endif
