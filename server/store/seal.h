/* seal.h - digests whose file is linked, or about to be, and whose row is about to be committed.
 *
 * A blob's row is written only by a batch that has entered its digest here. A blob's file is
 * removed only through seal_remove_file(), which, under this register's lock, refuses while the
 * digest is entered or has a row. So a seal and an eviction of the same digest cannot end in a row
 * without a file, whatever their order; the other way round leaves at worst an orphan file.
 *
 * threads  any; blocks (a row lookup, an unlink)
 */
#ifndef SERVER_STORE_SEAL_H
#define SERVER_STORE_SEAL_H

#include "common/os/lock.h"
#include "server/store/store.h"

struct seals {
    struct lock lock;
    struct list *bucket;    /* SEAL_BUCKETS heads */
    uint64_t durable[1024]; /* a bit for each blobs/ab/cd: its name is known to be on disk */
};

void seals_init(struct seals *x);
void seals_fini(struct seals *x);

void seal_enter(struct store *s, const struct digest *d);
/* The last to leave removes the file when no row names it: its batch failed or was given up. named:
 * the batch put the row, which stays as long as the digest is entered. */
void seal_leave(struct store *s, const struct digest *d, bool named);
bool seal_entered(struct store *s, const struct digest *d);
enum seal_removal { SEAL_UNLINK, SEAL_QUARANTINE, SEAL_SET_ASIDE };
#define SET_ASIDE ".only" /* behind the name in quarantine/; its mtime says since when */
/* Removes the blob's file, or moves it to quarantine/, unless it is needed. Returns a file
 * descriptor that still holds the removed file (closing it is what takes long), or -1. */
int seal_remove_file(struct store *s, const struct digest *d, enum seal_removal how);
/* Makes blobs/ab/cd and its name durable. */
MUST_USE int seal_folder(struct store *s, const struct digest *d, struct err *e);

#endif
