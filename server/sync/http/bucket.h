/* bucket.h - reads one page of an S3 bucket's list below a prefix (ListObjectsV2, 1,000 keys a
 * page): its objects, and where the next page begins. bucket.c also has the lister of that name.
 *
 * threads  any; pure
 * errors   E_INVALID: not such a page; any result of on_object
 * source   AWS, "ListObjectsV2"
 */
#ifndef SERVER_SYNC_HTTP_BUCKET_H
#define SERVER_SYNC_HTTP_BUCKET_H

#include "common/base/buf.h"
#include "server/sync/entry.h"

enum { BUCKET_KEY_MAX = 1024, BUCKET_TOKEN_MAX = 4096 };

struct bucket_object {
    struct slice key;    /* decoded: bytes; at most BUCKET_KEY_MAX */
    uint64_t size_bytes; /* SYNC_SIZE_UNKNOWN */
    int64_t mtime_ns;    /* SYNC_TIME_UNKNOWN */
    struct slice etag;   /* with its quotes; or empty */
};

struct bucket_page_events {
    int (*on_object)(void *arg, const struct bucket_object *o, struct err *e); /* nonzero ends it */
    void *arg;
};

struct bucket_page {
    uint64_t objects;
    uint64_t left_out; /* keys that S3 could not have sent: too long, badly encoded */
    bool more;
    char token[BUCKET_TOKEN_MAX + 1]; /* if there is more: for the next page */
};

MUST_USE int bucket_page_read(struct slice doc, const struct bucket_page_events *ev,
                              struct bucket_page *out, struct err *e);

#endif
