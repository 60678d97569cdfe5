/* repodata.h - parses repodata.json of a conda channel's subdirectory as a stream, and reports the
 * packages that it names.
 *
 * A whole channel has some 300 MB of it: only the current package is kept in memory.
 *
 * owns     repodata_close() frees the parser; an event's slices are borrowed
 * threads  one at a time; pure
 * errors   E_INVALID: not such a document, or an invalid file name; E_UNSUPPORTED: packages that
 *          are stored elsewhere; E_TOOBIG: a string or a depth beyond that of an index; the code
 *          that on_file() returns
 */
#ifndef SERVER_REPO_CONDA_REPODATA_H
#define SERVER_REPO_CONDA_REPODATA_H

#include "common/base/err.h"
#include "common/hash/sum.h"

struct repodata_file {
    struct slice name;   /* beside the index; a valid file name */
    uint64_t size_bytes; /* UINT64_MAX: unknown */
    struct sum sum;      /* SHA-256, else MD5, else SUM_NONE */
};

struct repodata_events {
    int (*on_file)(void *arg, const struct repodata_file *f, struct err *e); /* nonzero ends it */
    void *arg;
    /* The place of its packages (info.base_url), relative to the index. Not called for "./". NULL:
     * packages elsewhere are E_UNSUPPORTED. */
    int (*on_base)(void *arg, struct slice url, struct err *e);
    /* Invalid entries are skipped, and invalid digests and sizes ignored, as clients do. */
    bool lenient;
};

struct repodata; /* the parser of one index */
struct repodata *repodata_open(const struct repodata_events *ev);
MUST_USE int repodata_feed(struct repodata *r, struct slice bytes, struct err *e);
MUST_USE int repodata_finish(struct repodata *r, struct err *e);
void repodata_close(struct repodata **rp); /* NULL is fine */

#endif
