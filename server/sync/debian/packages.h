/* packages.h - Packages and Sources of a Debian archive: the files that they name, as the index streams by.
 *
 * threads  one at a time; pure
 * errors   E_INVALID: a stanza that names a file and not its size or SHA256, or a path that cannot be
 */
#ifndef SERVER_SYNC_DEBIAN_PACKAGES_H
#define SERVER_SYNC_DEBIAN_PACKAGES_H

#include "common/hash/digest.h"
#include "server/sync/debian/deb822.h"

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

/* A gzip file in pieces, unpacked. */
struct gunzip;
struct gunzip *gunzip_open(int (*on_bytes)(void *arg, struct slice bytes, struct err *e), void *arg,
                           uint64_t max_bytes);
MUST_USE int gunzip_feed(struct gunzip *g, struct slice bytes, struct err *e);
MUST_USE int gunzip_finish(struct gunzip *g, struct err *e); /* E_INVALID: it was cut */
void gunzip_close(struct gunzip **gp);

#endif
