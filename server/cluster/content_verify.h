/* content_verify.h - checks that a cluster's bucket has what the log and the trees name.
 *
 *   the log      each entry that is still there follows the one before it, and the newest
 *                checkpoint can be read
 *   the indexes  each one that has a row can be read
 *   the places   each file and each folder of each version of each tree has a place that counts,
 *                and the object is there with its length (by lists, not by reading it)
 *   deep         each object is read, and each live item is compared with its SHA-256
 *   orphans      objects that nothing names are counted; they are no damage
 *
 * It changes nothing. What is published or collected meanwhile may be reported although nothing is
 * wrong, so a finding is looked at a second time before it is reported.
 *
 * threads  any except a loop's; blocks
 * errors   E_CANCELLED; E_CORRUPT: a tree cannot be read; the codes of bucket.h
 */
#ifndef SERVER_CLUSTER_CONTENT_VERIFY_H
#define SERVER_CLUSTER_CONTENT_VERIFY_H

#include <stdatomic.h>

#include "server/cluster/bucket.h"
#include "server/store/store.h"

struct content_verify {
    struct store *store;
    struct bucket *bucket;
    const atomic_bool *stop;
    bool deep;
    void (*finding)(void *arg, const char *what);
    /* what: "reading the log". total 0: unknown. Nonzero ends it. */
    int (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
};

struct content_verified {
    uint64_t entries;        /* of the log, that were checked */
    uint64_t indexes;        /* that have a row */
    uint64_t objects, bytes; /* that they name */
    uint64_t files;          /* of all trees, each digest of a tree once */
    uint64_t deep_bytes;     /* that were read */
    uint64_t findings;
    uint64_t orphans, orphan_bytes; /* uploads under way are among them */
    uint64_t condemned;             /* objects that wait for their deletion */
    uint64_t unknown;               /* keys of no known form */
};

MUST_USE int content_verify(const struct content_verify *v, struct content_verified *out,
                            struct err *e);

#endif
