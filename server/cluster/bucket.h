/* bucket.h - requests to the S3 bucket that the mirrors of a cluster share. Each request is
 * signed and sent, and its response is judged.
 *
 * Nothing is retried here, because only the caller knows what a repetition means. (libcurl sends a
 * request again on a new connection when a kept one turns out to be closed. All requests here may
 * be repeated with the same bytes; only bucket_create() may then find the key that it created
 * itself.) A write whose response was lost may have happened, and may still happen later.
 * bucket_is_undecided() says which error codes leave that open. Only one feature of the bucket is
 * trusted for correctness: PutObject with "If-None-Match: *", in bucket_create(). The probe
 * (probe.h) checks that the bucket keeps that promise. A list may lack the latest changes.
 *
 * key      below the cluster's prefix; we choose all keys, of letters, digits and "-_./"
 * owns     struct bucket owns a thread and its connections, from bucket_open() to bucket_close()
 * threads  any except a loop's; every call blocks until its response is there
 * errors   E_NOTFOUND: there is no such key (a 404 that S3 did not send is E_PROTOCOL);
 *          E_EXISTS: the key of bucket_create() exists; E_AGAIN: the bucket is busy or failed (409,
 *          429, 5xx); E_NOSPACE; E_DENIED, E_CONFIG: no request can succeed before a person fixes
 *          something; E_NETWORK, E_TIMEOUT, E_PROTOCOL; E_CANCELLED, after bucket_interrupt()
 * source   AWS, "Amazon S3 API Reference"; docs/decisions/0025
 */
#ifndef SERVER_CLUSTER_BUCKET_H
#define SERVER_CLUSTER_BUCKET_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/hash/digest.h"

enum { BUCKET_KEY_ROOM = 256 };

struct bucket_settings {
    const char *url;           /* "s3://bucket/prefix/" */
    const char *endpoint;      /* "https://rgw.example:8080"; NULL: Amazon's */
    const char *region;        /* NULL: us-east-1 */
    const char *addressing;    /* "path", "virtual"; NULL: path with an endpoint */
    const char *authorization; /* access_key:secret_key[:session_token] */
    const char *ca_file;       /* NULL: the system's */
    uint64_t connect_ms;       /* 0: 5 s */
    unsigned stall_s;          /* 0: 20 s without a byte */
};

/* Whether bucket_open() accepts them; sends nothing. E_CONFIG. */
MUST_USE int bucket_check_settings(const struct bucket_settings *set, struct err *e);

struct bucket;
MUST_USE int bucket_open(const struct bucket_settings *set, struct bucket **out, struct err *e);
void bucket_close(struct bucket **bp); /* no call is under way; NULL is fine */
/* All calls return E_CANCELLED from now on, also those that are under way. For a program that is
 * about to end. A write that is cancelled may have happened. */
void bucket_interrupt(struct bucket *b);
bool bucket_is_interrupted(const struct bucket *b);
const char *bucket_place(const struct bucket *b); /* "s3://bucket/prefix/ at https://..." */

/* Whether a write that returned rc may have happened, or may still happen. False for success,
 * E_EXISTS and a refusal; true for every other code. */
bool bucket_is_undecided(int rc);

/* Reads the whole object; out is cleared first. E_TOOBIG: the object does not fit into out. */
MUST_USE int bucket_get(struct bucket *b, const char *key, struct buf *out, struct err *e);
/* Reads n bytes from offset `first`. E_CORRUPT: the object ends before that; E_PROTOCOL: the bucket
 * sent another range. */
MUST_USE int bucket_get_range(struct bucket *b, const char *key, uint64_t first, uint64_t n,
                              struct buf *out, struct err *e);
/* Creates or replaces the object. */
MUST_USE int bucket_put(struct bucket *b, const char *key, struct slice body, struct err *e);
/* As bucket_get() and bucket_create(). *date_unix_s gets the Date field of this response, of
 * whatever status; 0: there was no response, or none with a Date. */
MUST_USE int bucket_get_dated(struct bucket *b, const char *key, struct buf *out,
                              uint64_t *date_unix_s, struct err *e);
MUST_USE int bucket_create_dated(struct bucket *b, const char *key, struct slice body,
                                 uint64_t *date_unix_s, struct err *e);
/* Creates the object. E_EXISTS: the key exists already. */
MUST_USE int bucket_create(struct bucket *b, const char *key, struct slice body, struct err *e);
/* As bucket_create(), but announces the given SHA-256 (hex) instead of the true one. For the probe
 * only. */
MUST_USE int bucket_create_as(struct bucket *b, const char *key, struct slice body,
                              const char *sha256_hex, struct err *e);

/* A body that the caller has hashed, in memory or read while it is sent. */
struct bucket_body {
    struct digest sha256;
    struct slice bytes;  /* p == NULL: it is read */
    uint64_t size_bytes; /* of what is read */
    /* Reads 1 to n bytes, or fails with a negative E_*. It runs on the bucket's thread, where it
     * delays all other requests, and may be called for an offset again. */
    ptrdiff_t (*read)(void *arg, uint64_t offset, void *p, size_t n);
    void *arg;
};
/* As bucket_create(). A body that does not match its SHA-256 is refused by a bucket that checks
 * bodies. */
MUST_USE int bucket_create_body(struct bucket *b, const char *key, const struct bucket_body *body,
                                struct err *e);

/* An object in parts, each of at least 5 MiB but the last. create, then put each part, numbered
 * from 1, in any order and in parallel, then complete or abort. The object appears when it is
 * complete. E_NOTFOUND: the bucket does not know (or no longer knows) this upload. */
enum { BUCKET_UPLOAD_ID_ROOM = 512, BUCKET_ETAG_ROOM = 80, BUCKET_PARTS_MAX = 10000 };
MUST_USE int bucket_parts_create(struct bucket *b, const char *key, char id[BUCKET_UPLOAD_ID_ROOM],
                                 struct err *e);
MUST_USE int bucket_part_put(struct bucket *b, const char *key, const char *id, unsigned number,
                             const struct bucket_body *body, char etag[BUCKET_ETAG_ROOM],
                             struct err *e);
MUST_USE int bucket_parts_complete(struct bucket *b, const char *key, const char *id,
                                   char (*etag)[BUCKET_ETAG_ROOM], unsigned parts, struct err *e);
MUST_USE int bucket_parts_abort(struct bucket *b, const char *key, const char *id, struct err *e);

/* Deletes the object. The result is 0 also when there is no such key. */
MUST_USE int bucket_delete(struct bucket *b, const char *key, struct err *e);

struct bucket_key {
    const char *key; /* below the prefix of the cluster */
    uint64_t size_bytes;
    uint64_t modified_unix_s; /* by the bucket's clock; 0: the bucket gave none */
};
/* Calls each() for the keys that begin with `prefix` and come after `after` ("": from the first
 * key), in order, for at most max keys. If each() returns nonzero, the list ends there, and that
 * value is returned. */
MUST_USE int bucket_list(struct bucket *b, const char *prefix, const char *after, size_t max,
                         int (*each)(void *arg, const struct bucket_key *k), void *arg,
                         struct err *e);
/* *yes: the bucket keeps old versions of objects. */
MUST_USE int bucket_is_versioned(struct bucket *b, bool *yes, struct err *e);
/* The latest Date field of a response. 0: none yet. */
uint64_t bucket_date_unix_s(const struct bucket *b);

enum bucket_method { BUCKET_GET, BUCKET_PUT, BUCKET_POST, BUCKET_DELETE };
enum bucket_result {
    BUCKET_OK,
    BUCKET_ABSENT, /* E_NOTFOUND */
    BUCKET_EXISTS, /* E_EXISTS */
    BUCKET_BUSY,   /* E_AGAIN */
    BUCKET_DENIED, /* E_DENIED, E_CONFIG */
    BUCKET_FAILED, /* every other code */
};
enum { BUCKET_METHODS = BUCKET_DELETE + 1, BUCKET_RESULTS = BUCKET_FAILED + 1 };
struct bucket_stats {
    uint64_t requests[BUCKET_METHODS][BUCKET_RESULTS]; /* that have ended */
    uint64_t sent_bytes, received_bytes;               /* of bodies */
};
/* Adds to *sum what there was since bucket_open(). */
void bucket_stats(struct bucket *b, struct bucket_stats *sum);

#endif
