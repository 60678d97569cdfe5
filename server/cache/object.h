/* object.h - what is known of one pull-through object, and its row: object(repo NUL key [NUL
 * principal]).
 *
 * object_learn() takes the metadata from a response, object_renew() updates them by a 304, and
 * object_encode() and object_decode() convert them to and from the row. The row's first 34 bytes
 * are fixed (version, flags, digest), so that the keeper can mark from it without this module.
 *
 * owns     strings point into the arena that was passed to object_decode() or object_learn()
 * threads  plain data
 */
#ifndef SERVER_CACHE_OBJECT_H
#define SERVER_CACHE_OBJECT_H

#include "common/base/arena.h"
#include "common/hash/digest.h"
#include "server/cache/lookup.h"
#include "server/fetch/request.h"

/* A row's key, and its holder's, have room for LOOKUP_KEY_MAX bytes of the lookup's key, a
 * variant's vary key and the other parts. */
enum {
    OBJECT_FIELDS = 24,
    OBJECT_FIELD_BYTES = 8192,
    OBJECT_ROW_MAX = 64 << 10,
    OBJECT_KEY_MAX = 20 << 10
};

struct object {
    struct digest digest;
    uint64_t origin; /* origin_identity() of its origin; 0: not noted */
    uint64_t size_bytes;
    uint64_t stored_unix_s;      /* when its bytes arrived */
    uint64_t validated_unix_s;   /* when they arrived or the origin last confirmed them */
    uint64_t age_s;              /* the Age of the origin's answer then */
    uint64_t fresh_until_unix_s; /* as the origin said */
    uint32_t swr_s;              /* as the origin said */
    uint32_t sie_s;
    bool must_revalidate;
    /* Its origin has refused it since, or cache_expire() marked it: the origin is asked before it
     * is served. */
    bool must_ask;
    struct slice etag;          /* ours, as sent to clients; p == NULL only before the head */
    struct slice origin_etag;   /* as the origin wrote it, weak ones too; or p == NULL */
    struct slice last_modified; /* the same */
    struct slice content_type;
    struct slice url; /* final */
    struct http_field fields[OBJECT_FIELDS];
    size_t nfields;
};

/* repo NUL key, and NUL principal unless that is "". */
void object_key(struct buf *out, struct slice repo, struct slice key, struct slice principal);
/* Is it the row of that key, or of one of its variants or callers? With `below`: or of any key that
 * begins so. */
bool object_key_is(struct slice object_key, struct slice of, bool below);
/* The part after the repo: the name by which holder rows and the keeper refer to it. */
struct slice object_key_of_row(struct slice object_key);

void object_encode(const struct object *o, struct buf *out);
MUST_USE bool object_decode(struct slice row, struct arena *a, struct object *out);
/* Reads only the fixed part. */
MUST_USE bool object_row_digest(struct slice row, struct digest *out);

/* From an origin's 200 or 206: validators, type, the fields worth keeping. Not the freshness. */
void object_learn(struct object *o, const struct origin_head *h, struct arena *a);
/* Takes what a 304 renews: fields and validators. Of the fields that describe the bytes only the
 * parameters of their type are renewed (RFC 9111 3.2). */
void object_renew(struct object *o, const struct origin_head *h, struct arena *a);
struct slice object_field(const struct object *o, const char *name);

/* An object that was carried in from another mirror (server/hub/carry.h) is what the origin sent at
 * an earlier time. For so long (swr_s) it is served immediately, while the origin is asked in the
 * background. */
enum { OBJECT_CARRIED_S = 10 * 365 * 86400 };
MUST_USE bool object_row_is_carried(struct slice row);

/* "..." without W/: may be used in If-Range, and allows segments to be joined. */
bool etag_is_strong(struct slice etag);

#endif
