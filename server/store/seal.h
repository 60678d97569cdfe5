/* seal.h - the register of digests that are being sealed: their file is linked, or about to be, and
 * their row is about to be committed.
 *
 * A blob's row is only written by a batch that has entered its digest here. A blob's file is only
 * removed by seal_remove_file(), which refuses, under this register's lock, while the digest is
 * entered or has a row. So a seal and an eviction of the same digest cannot leave a row without a
 * file, whatever their order. The opposite, an orphan file, is the worst that can happen.
 *
 * owns     struct seals, from seals_init() to seals_fini()
 * threads  any; blocks (a row lookup, an unlink)
 */
#ifndef SERVER_STORE_SEAL_H
#define SERVER_STORE_SEAL_H

#include "common/os/lock.h"
#include "server/store/store.h"

struct seals {
    struct lock lock;
    struct list *bucket;    /* SEAL_BUCKETS heads */
    uint64_t durable[1024]; /* a bit for each blobs/ab/cd: its name is durable */
};

void seals_init(struct seals *x);
void seals_fini(struct seals *x);

void seal_enter(struct store *s, const struct digest *d);
/* The last to leave removes the file if no row names it: its batch failed or was abandoned. named:
 * the batch put the row, which stays as long as the digest is entered. */
void seal_leave(struct store *s, const struct digest *d, bool named);
bool seal_entered(struct store *s, const struct digest *d);
enum seal_removal { SEAL_UNLINK, SEAL_QUARANTINE, SEAL_SET_ASIDE };
#define SET_ASIDE ".only" /* the suffix of names in quarantine/; the file's mtime says since when */
/* Removes the blob's file, or moves it to quarantine/, unless it is needed. Returns a descriptor of
 * the removed file, or -1. Closing the descriptor is the slow part. */
int seal_remove_file(struct store *s, const struct digest *d, enum seal_removal how);
/* Makes blobs/ab/cd and its name durable. */
MUST_USE int seal_folder(struct store *s, const struct digest *d, struct err *e);

#endif
