/* tree_content.h - content of trees: from this node's store into the cluster's bucket, before names
 * of it are in the log; and from the bucket to this node.
 *
 *   a batch that adds a version of a tree
 *     -> walk of the tree: nodes without a place, and what they name, as the batch will have it
 *     -> their bytes and lists of chunks, into packs and objects (content_upload.h), then the
 *        indexes
 *     -> into the batch: a row of TABLE_INDEX for each index, which the other nodes get by the log,
 *        and the places of the items, for this node
 *   a row of TABLE_INDEX, from another node
 *     -> the places of its items, and the nodes of the trees: so trees can be walked on every node
 *        without the bucket
 *   a file that somebody asks for
 *     -> its bytes, by its place
 *
 * A place says where in the bucket an item lies (place.h). A node whose place counts stands for all
 * that is below it: what its tree needs is uploaded before the node's index is written, the whole
 * index counts at once, and collection (collect.h) ends no place that a node above relies on. The
 * walk does not go below such a node, so its cost is that of what is new. The batch requires the
 * generation (generation.h) of the places that the walk has found.
 *
 * owns     borrows the store and the bucket
 * threads  any except a loop's; all block. TREE_UPLOADS publish at the same time, and further ones
 *          wait. Of several calls for one blob, one brings it and the others wait for it
 * errors   those of content_upload.h and content_fetch.h, E_NOTFOUND of the latter is E_CORRUPT
 *          here: the bucket lacks what an index names. After a failed publish the batch is as
 *          before
 */
#ifndef SERVER_CLUSTER_TREE_CONTENT_H
#define SERVER_CLUSTER_TREE_CONTENT_H

#include "server/cluster/bucket.h"
#include "server/cluster/content.h"
#include "server/store/store.h"

enum { TREE_UPLOADS = 2 };

struct tree_content;

struct tree_content_settings {
    struct store *store;
    struct bucket *bucket; /* for content alone (content_upload.h) */
    uint64_t retry_ms;     /* 0: 30 s */
    /* Returns 0 when n bytes may fit into the store now. */
    int (*make_room)(void *arg, uint64_t n);
    void *arg;
};

struct tree_content *tree_content_open(const struct tree_content_settings *set);
void tree_content_close(struct tree_content **tp); /* no call is under way; NULL is fine */
/* Calls under way and later ones return E_CANCELLED. */
void tree_content_interrupt(struct tree_content *t);

/* From now on what is uploaded is read back: the bucket does not check bodies any more. */
void tree_content_read_back(struct tree_content *t);
bool tree_content_reads_back(const struct tree_content *t);

/* Whether the batch adds a version of a tree. */
bool tree_content_is_new(const struct batch *b);
/* Uploads what the batch's trees need, and adds the rows about it. A batch that is outdated can be
 * given again: it keeps what it has uploaded. */
MUST_USE int tree_content_upload(struct tree_content *t, struct batch *b, struct err *e);
/* Places on which the batch relied may have ended since tree_content_upload(). */
bool tree_content_is_outdated(struct tree_content *t, const struct batch *b);
/* Uploads what all trees of the store need, for a store that was alone. What is there is committed
 * little by little, places and indexes together, so that a later call goes on from there: what is
 * uploaded again is at most that of some seconds, and a large file. on_bytes(): so many bytes of
 * files are there now; nonzero ends the call with E_CANCELLED. *bytes: the same at the end. */
enum { TREE_SAVE_BYTES = 1 << 30 };
MUST_USE int tree_content_upload_all(struct tree_content *t, int (*on_bytes)(void *arg, uint64_t n),
                                     void *arg, uint64_t *bytes, struct err *e);
/* Prepares this node for the rows that another node has put: commits the places and the nodes of
 * indexes, and adds to `own` the rows by which this node's store knows what its trees hold
 * (keep.h), to be written together with those of the batch. Repeating it changes nothing.
 * E_NOTFOUND: the bucket lacks an index or a node; a later entry may have ended it. */
MUST_USE int tree_content_learn(struct tree_content *t, const struct batch *b, struct batch *own,
                                struct err *e);
/* What was learned is applied: the rows of the indexes are there. */
void tree_content_applied(struct tree_content *t);
/* Removes the rows of places that have ended. E_BUSY: an entry is being applied. */
MUST_USE int tree_content_sweep_places(struct tree_content *t, struct err *e);
/* Afterwards the store has the blob. E_NOTFOUND: it has no place. */
MUST_USE int tree_content_fetch(struct tree_content *t, const struct digest *d, struct err *e);
/* The list of chunks of a blob that the store does not have (chunk_lists.h). */
MUST_USE int tree_content_chunks(struct tree_content *t, const struct digest *d, struct buf *out,
                                 struct err *e);
/* Whether a blob that the store does not have is an object of its own. */
MUST_USE bool tree_content_is_object(struct tree_content *t, const struct digest *d,
                                     struct content_object *out);
struct tree_content_stats {
    unsigned uploads, fetches;               /* under way: publishes, and blobs */
    uint64_t uploaded, uploaded_bytes;       /* objects with content, of publishes that succeeded */
    uint64_t fetched, fetched_bytes, failed; /* blobs */
};
void tree_content_stats(struct tree_content *t, struct tree_content_stats *out);
/* Whether a blob, or a node, has a place that counts. */
bool tree_content_has(struct tree_content *t, const struct digest *d, uint64_t *size_bytes);
bool tree_content_has_node(struct tree_content *t, const struct digest *id);

#endif
