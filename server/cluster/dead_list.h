/* dead_list.h - dead/<nonce>: objects of a cluster's bucket that nothing names any more.
 *
 *   "mrddel01"           8 bytes
 *   objects              each: kind (1: enum dead_kind), nonce (8), size (8); big-endian
 *   SHA-256              32, of all that precedes
 *
 * A collection writes the list before the entry of the log that condemns its objects. So an entry
 * is small whatever it condemns, and every mirror can delete what another one has condemned.
 *
 * threads  any; pure
 * errors   E_CORRUPT, E_UNSUPPORTED
 */
#ifndef SERVER_CLUSTER_DEAD_LIST_H
#define SERVER_CLUSTER_DEAD_LIST_H

#include "server/cluster/content.h"

enum { DEAD_LIST_BYTES_MAX = 64 << 20 };
#define DEAD_LISTS "dead/"

/* The numbers are those of the format. The first two are those of enum content_object_kind. */
enum dead_kind { DEAD_PACK = 1, DEAD_BLOB = 2, DEAD_INDEX = 3, DEAD_LIST = 4 };

struct dead_object {
    enum dead_kind kind;
    uint64_t nonce;
    uint64_t size_bytes; /* 0: unknown */
};

void dead_list_key(uint64_t nonce, char key[CONTENT_KEY_ROOM]);
void dead_object_key(const struct dead_object *o, char key[CONTENT_KEY_ROOM]);
/* What "pack/4f/4f1c...", "blob/...", "idx/...", "dead/..." names. False: something else. */
MUST_USE bool dead_object_parse(struct slice key, struct dead_object *out);

void dead_list_begin(struct buf *list); /* clears it */
void dead_list_add(struct buf *list, const struct dead_object *o);
void dead_list_finish(struct buf *list);
/* *objects: for dead_list_next(). */
MUST_USE int dead_list_open(struct slice bytes, struct slice *objects, struct err *e);
bool dead_list_next(struct slice *objects, struct dead_object *out);

#endif
