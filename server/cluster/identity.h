/* identity.h - cluster.json: which cluster a bucket is that of. It is created once, and never
 * changed.
 *
 *   {"cluster": "<32 hex digits>", "format": 1, "created": 1795000000, "adopted_by": "<node>"}
 *
 * adopted_by is there if the cluster begins with the rows of that node, which stood alone
 * (adopt.h). Nobody else may write to such a bucket before its log has entry 1.
 *
 * threads  any except a loop's; they block
 * errors   E_UNSUPPORTED: of a later format; E_CORRUPT; E_NOTFOUND: there is none; those of
 *          bucket.h
 */
#ifndef SERVER_CLUSTER_IDENTITY_H
#define SERVER_CLUSTER_IDENTITY_H

#include "server/cluster/bucket.h"

/* In TABLE_META of a store: the text of the bucket to which it belongs. */
#define IDENTITY_ROW SLICE("cluster id")

enum { IDENTITY_BYTES_MAX = 4096, IDENTITY_ID_BYTES = 16, IDENTITY_ID_ROOM = 33 };

struct identity {
    struct buf text;                   /* what the bucket has, to be compared as a whole */
    char adopted_by[IDENTITY_ID_ROOM]; /* "": nobody */
    bool created;                      /* by this identity_create() */
};

#define IDENTITY_INIT ((struct identity){.text = BUF_INIT(IDENTITY_BYTES_MAX)})

MUST_USE int identity_read(struct bucket *b, struct identity *out, struct err *e);
/* Creates it, unless there is one, and reads what is there. adopted_by may be NULL. */
MUST_USE int identity_create(struct bucket *b, const char *adopted_by, struct identity *out,
                             struct err *e);
void identity_free(struct identity *id);

uint64_t identity_random(void);
void identity_draw(char hex[IDENTITY_ID_ROOM]);

#endif
