/* content_upload.h - uploads to a cluster's bucket what a publish needs and the bucket lacks, and
 * writes the index that says where it lies.
 *
 *   add      an item of less than 1 MiB goes into the open pack, and a full pack is uploaded. A
 *            larger item is uploaded as an object of its own, in parts if it has more than 64 MiB.
 *            An item that has a place, or that the open index has, is skipped.
 *   finish   waits until every object but the last pack is there, then writes that pack and the
 *            index at the same time, and waits for both. So all that a reported index names is in
 *            the bucket. An index that was not reported, because the process ended or the pack
 *            failed, may lack its last pack.
 *
 * An object counts as uploaded when the bucket has acknowledged it under its true SHA-256. If the
 * bucket does not check bodies (probe.h), each object is also read back. An item is checked against
 * its digest before its object counts. A request whose outcome is unknown is repeated with the same
 * bytes.
 *
 * Nothing is deleted after a failure: a request may still arrive later. What was uploaded is then
 * orphaned, because no entry of the log names its index. Only the parts of an object that was never
 * completed are discarded, if the bucket can be reached.
 *
 * Large items are read twice (to hash and to send) instead of being held in memory. The second read
 * runs on the thread of the bucket's connections, so a slow disk delays the other requests of the
 * same struct bucket: uploads should have one of their own.
 *
 * memory   (parallel + 1) packs of 16 to 19 MiB, 25 MB for the rows of an index and 22 MB to write
 *          it, and up to 32 MiB for a node of 1 MiB or more: about 150 MB with 4 in parallel,
 *          whatever the size of the publish. With read_back, 4 MiB more for each in parallel
 * owns     copies the settings; opens and closes items of the source
 * threads  add, finish and close: one at a time; they block. interrupt: any. It starts up to
 *          `parallel` threads, and none before it needs one
 * errors   E_CORRUPT: an item does not match its digest, or the bucket stored other bytes;
 *          E_CANCELLED: interrupted; the codes of bucket.h, and E_AGAIN, E_NETWORK, E_TIMEOUT and
 *          E_PROTOCOL only after they were repeated for retry_ms; the source's own. After an error
 *          the upload can only be closed
 */
#ifndef SERVER_CLUSTER_CONTENT_UPLOAD_H
#define SERVER_CLUSTER_CONTENT_UPLOAD_H

#include "server/cluster/bucket.h"
#include "server/cluster/content.h"

struct content_source {
    /* *yes: the bucket has the item already. */
    int (*has_place)(void *arg, enum content_kind kind, const struct digest *d, bool *yes,
                     struct err *e);
    int (*open)(void *arg, enum content_kind kind, const struct digest *d, void **item,
                uint64_t *length_bytes, struct err *e);
    /* Reads exactly n bytes. Any thread, and several at a time. */
    int (*read)(void *item, uint64_t offset, void *p, size_t n, struct err *e);
    void (*close)(void *item);
};

struct content_upload_settings {
    struct bucket *bucket;
    bool read_back;    /* the bucket does not check the SHA-256 of bodies */
    unsigned parallel; /* requests at the same time; 0: 4, at most 16 */
    uint64_t retry_ms; /* how long failures are repeated; 0: 30 s */
    const struct content_source *source;
    /* Gets each index that was written (content_index_open() reads it), or NULL. */
    int (*on_index)(void *arg, uint64_t nonce, struct slice bytes, struct err *e);
    void *arg; /* of the source and of on_index() */
};

struct content_upload_counts {
    uint64_t items, item_bytes; /* uploaded */
    uint64_t skipped;
    uint64_t objects, object_bytes; /* without indexes */
};

struct content_upload;
struct content_upload *content_upload_open(const struct content_upload_settings *set);
void content_upload_close(struct content_upload **up); /* waits for requests under way */
MUST_USE int content_upload_add(struct content_upload *u, enum content_kind kind,
                                const struct digest *d, struct err *e);
/* *index: the nonces of the indexes (content_index_key()), in the order in which they were written;
 * borrowed. None if every item had a place. */
MUST_USE int content_upload_finish(struct content_upload *u, const uint64_t **index, size_t *n,
                                   struct err *e);
/* Makes the call under way and all later ones fail with E_CANCELLED, once the requests under way
 * have ended. */
void content_upload_interrupt(struct content_upload *u);
void content_upload_counts(const struct content_upload *u, struct content_upload_counts *out);

#endif
