/* repodata.h - repodata.json of a conda channel's subdirectory: the packages that it names, as the
 * index streams by.
 *
 * Whole channels have some 300 MB of it: nothing is kept but the package at hand.
 *
 * threads  one at a time; pure
 * errors   E_INVALID: no such document, or a name that cannot be a file's; E_UNSUPPORTED: packages
 *          that lie elsewhere; E_TOOBIG: a single word, or depth, beyond what an index has; what
 *          on_file gives
 */
#ifndef SERVER_REPO_CONDA_REPODATA_H
#define SERVER_REPO_CONDA_REPODATA_H

#include "common/base/err.h"
#include "common/hash/sum.h"

struct repodata_file {
    struct slice name;   /* beside the index; one that can be */
    uint64_t size_bytes; /* UINT64_MAX: not told */
    struct sum sum;      /* SHA-256, else MD5, else SUM_NONE */
};

struct repodata_events {
    int (*on_file)(void *arg, const struct repodata_file *f, struct err *e); /* nonzero ends it */
    void *arg;
    /* Where its packages are (info.base_url), relative to the index; NULL: elsewhere is
     * E_UNSUPPORTED. Not called for "./". */
    int (*on_base)(void *arg, struct slice url, struct err *e);
    /* an entry that cannot be is passed over, a digest or size that is none is not told: clients
     * do without, too */
    bool lenient;
};

struct repodata; /* one index */
struct repodata *repodata_open(const struct repodata_events *ev);
MUST_USE int repodata_feed(struct repodata *r, struct slice bytes, struct err *e);
MUST_USE int repodata_finish(struct repodata *r, struct err *e);
void repodata_close(struct repodata **rp); /* NULL is fine */

#endif
