/* s3_page.h - one page of a bucket's list, as ListObjectsV2 answers: its objects, and where the next page begins.
 *
 * threads  any; pure
 * errors   E_INVALID: no such page; what on_object gives
 * source   AWS, "ListObjectsV2"
 */
#ifndef SERVER_SYNC_HTTP_S3_PAGE_H
#define SERVER_SYNC_HTTP_S3_PAGE_H

#include "common/base/buf.h"
#include "server/sync/entry.h"

enum { S3_KEY_MAX = 1024, S3_TOKEN_MAX = 4096 };

struct s3_object {
    struct slice key;    /* decoded: bytes; at most S3_KEY_MAX */
    uint64_t size_bytes; /* SYNC_SIZE_UNKNOWN */
    int64_t mtime_ns;    /* SYNC_TIME_UNKNOWN */
    struct slice etag;   /* with its quotes; or empty */
};

struct s3_page_events {
    int (*on_object)(void *arg, const struct s3_object *o, struct err *e); /* nonzero ends it */
    void *arg;
};

struct s3_page {
    uint64_t objects;
    uint64_t left_out; /* keys that S3 could not have given: too long, badly encoded */
    bool more;
    char token[S3_TOKEN_MAX + 1]; /* with more: for the next page */
};

MUST_USE int s3_page_read(struct slice doc, const struct s3_page_events *ev, struct s3_page *out,
                          struct err *e);

#endif
