/* bucket.h - the S3 bucket that the mirrors of a cluster share: one request, signed, sent, and its
 * response judged.
 *
 * Nothing is retried here, because only the caller knows what a repetition means. (libcurl sends a
 * request again on a new connection when a kept one turns out to be closed. All requests here may
 * be repeated with the same bytes; only bucket_create() may then find the key that it created
 * itself.) A write whose response was lost may have happened, and may still happen later:
 * bucket_is_undecided() says so of an error code. Of the bucket's features only bucket_create() is
 * trusted for correctness (PutObject with "If-None-Match: *"); the probe (probe.h) checks that the
 * bucket keeps that promise. Lists may be late.
 *
 * key      below the cluster's prefix; of our own making: letters, digits and "-_./"
 * owns     struct bucket owns a thread and its connections, from bucket_open() to bucket_close()
 * threads  any except a loop's; every call blocks until its response is there
 * errors   E_NOTFOUND: there is no such key (a 404 that S3 did not send is E_PROTOCOL);
 *          E_EXISTS: bucket_create() found one; E_AGAIN: the bucket is busy or failed (409, 429,
 *          5xx); E_NOSPACE; E_DENIED, E_CONFIG: no request can succeed before a person fixes
 *          something; E_NETWORK, E_TIMEOUT, E_PROTOCOL
 * source   AWS, "Amazon S3 API Reference"; docs/decisions/0025
 */
#ifndef SERVER_CLUSTER_BUCKET_H
#define SERVER_CLUSTER_BUCKET_H

#include "common/base/buf.h"
#include "common/base/err.h"

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

struct bucket;
MUST_USE int bucket_open(const struct bucket_settings *set, struct bucket **out, struct err *e);
void bucket_close(struct bucket **bp);            /* no call is under way; NULL is fine */
const char *bucket_place(const struct bucket *b); /* "s3://bucket/prefix/ at https://..." */

/* Of a write: may it have happened, or happen yet? All but success, E_EXISTS and a refusal. */
bool bucket_is_undecided(int rc);

/* The whole object; out is cleared first. E_TOOBIG: it does not fit. */
MUST_USE int bucket_get(struct bucket *b, const char *key, struct buf *out, struct err *e);
/* n bytes from `first`; E_PROTOCOL: the bucket sent other ones. */
MUST_USE int bucket_get_range(struct bucket *b, const char *key, uint64_t first, uint64_t n,
                              struct buf *out, struct err *e);
/* Creates or replaces. */
MUST_USE int bucket_put(struct bucket *b, const char *key, struct slice body, struct err *e);
/* Creates, or E_EXISTS. */
MUST_USE int bucket_create(struct bucket *b, const char *key, struct slice body, struct err *e);
/* As bucket_create(), but announces this SHA-256 (hex) instead of the true one: for the probe. */
MUST_USE int bucket_create_as(struct bucket *b, const char *key, struct slice body,
                              const char *sha256_hex, struct err *e);
/* 0 also when there is no such key. */
MUST_USE int bucket_delete(struct bucket *b, const char *key, struct err *e);

struct bucket_key {
    const char *key; /* below the prefix of the cluster */
    uint64_t size_bytes;
    uint64_t modified_unix_s; /* by the bucket's clock; 0: it did not say */
};
/* Keys that begin with `prefix` and come after `after` ("": from the start), in order, at most max
 * of them, until each() returns nonzero, which is then returned. */
MUST_USE int bucket_list(struct bucket *b, const char *prefix, const char *after, size_t max,
                         int (*each)(void *arg, const struct bucket_key *k), void *arg,
                         struct err *e);
/* Does the bucket keep old versions of objects? */
MUST_USE int bucket_is_versioned(struct bucket *b, bool *yes, struct err *e);
/* The Date of the latest response; 0: none yet. */
uint64_t bucket_date_unix_s(const struct bucket *b);

#endif
