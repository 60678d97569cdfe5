/* repomd.h - parses repodata/repomd.xml of an rpm repository, which lists its indexes with
 * digests, and primary.xml, one of them, which lists the packages.
 *
 * A name that leads elsewhere (xml:base) is refused: clients would leave the mirror.
 *
 * owns     repomd_free() frees; slices live in the arena
 * threads  one at a time; pure
 * errors   E_INVALID: not XML, a document type, another document, or invalid paths or digests;
 *          E_UNSUPPORTED: xml:base, or an unknown kind of digest; E_TOOBIG; any result of on_file
 */
#ifndef SERVER_SYNC_RPM_REPOMD_H
#define SERVER_SYNC_RPM_REPOMD_H

#include "common/base/arena.h"
#include "common/hash/sum.h"

struct repomd_data {
    struct slice type;   /* "primary", "filelists", "modules"... */
    struct slice path;   /* below the repository; a valid one */
    uint64_t size_bytes; /* UINT64_MAX: not stated */
    struct sum sum;
};

struct repomd {
    struct arena arena;
    struct repomd_data *data;
    size_t count, room;
};

MUST_USE int repomd_read(struct slice bytes, struct repomd *out, struct err *e);
void repomd_free(struct repomd *r);
const struct repomd_data *repomd_find(const struct repomd *r, const char *type); /* or NULL */

struct primary_events {
    int (*on_file)(void *arg, struct slice path, uint64_t size_bytes, const struct sum *sum,
                   struct err *e); /* a nonzero result ends it */
    void *arg;
};

struct primary; /* one primary.xml */
struct primary *primary_open(const struct primary_events *ev);
MUST_USE int primary_feed(struct primary *p, struct slice bytes, struct err *e);
MUST_USE int primary_finish(struct primary *p, struct err *e);
void primary_close(struct primary **pp); /* NULL is fine */

#endif
