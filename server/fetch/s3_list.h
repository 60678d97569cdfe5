/* s3_list.h - reads one page of an S3 bucket's list below a prefix (ListObjectsV2, 1,000 keys a
 * page): its objects, and where the next page begins.
 *
 * threads  any; pure
 * errors   E_INVALID: not such a page; any result of on_object
 * source   AWS, "ListObjectsV2"
 */
#ifndef SERVER_FETCH_S3_LIST_H
#define SERVER_FETCH_S3_LIST_H

#include "common/base/buf.h"

enum { S3_KEY_MAX = 1024, S3_TOKEN_MAX = 4096 };

#define S3_SIZE_UNKNOWN UINT64_MAX
#define S3_TIME_UNKNOWN INT64_MIN

struct s3_object {
    struct slice key;    /* decoded: bytes; at most S3_KEY_MAX */
    uint64_t size_bytes; /* S3_SIZE_UNKNOWN */
    int64_t mtime_ns;    /* S3_TIME_UNKNOWN */
    struct slice etag;   /* with its quotes; or empty */
};

struct s3_list_events {
    int (*on_object)(void *arg, const struct s3_object *o, struct err *e); /* nonzero ends it */
    void *arg;
};

struct s3_list_page {
    uint64_t objects;
    uint64_t left_out; /* keys that S3 could not have sent: too long, badly encoded */
    bool more;
    char token[S3_TOKEN_MAX + 1]; /* if there is more: for the next page */
};

MUST_USE int s3_list_read(struct slice doc, const struct s3_list_events *ev,
                          struct s3_list_page *out, struct err *e);

#endif
