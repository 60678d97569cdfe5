/* packages.h - parses Packages and Sources of a Debian archive: gives the files that they name,
 * as the index streams by.
 *
 * threads  one at a time; pure
 * errors   E_INVALID: a stanza names a file without its size or SHA256, or an invalid path
 */
#ifndef SERVER_SYNC_DEBIAN_PACKAGES_H
#define SERVER_SYNC_DEBIAN_PACKAGES_H

#include "common/hash/digest.h"
#include "server/sync/debian/deb822.h"
#include "server/repo/unpack.h"

struct packages_events {
    int (*on_file)(void *arg, struct slice path, uint64_t size_bytes, const struct digest *d,
                   struct err *e);
    void *arg;
};

struct packages; /* one index */
struct packages *packages_open(bool sources, const struct packages_events *ev);
MUST_USE int packages_feed(struct packages *p, struct slice bytes, struct err *e);
MUST_USE int packages_finish(struct packages *p, struct err *e);
void packages_close(struct packages **pp); /* NULL is fine */

/* Release names an index in several packings: the first of these that exists is read. */
struct packages_form {
    const char *ending;
    enum packing how;
};
enum { PACKAGES_FORMS = 5 };
extern const struct packages_form packages_form[PACKAGES_FORMS];
/* True: path is a Packages or Sources file, packed in one of the forms; *bare is its path without
 * the ending. */
bool packages_named(struct slice path, struct slice *bare, bool *sources);

#endif
