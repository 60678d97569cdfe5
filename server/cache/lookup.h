/* lookup.h - what an adapter requests from the cache: a key, where the object comes from, and how
 * long it is fresh.
 *
 * An adapter fills a struct lookup and passes it to cache_lookup(). It is plain data.
 *
 * owns     nothing: slices point into the exchange's arena; the cache copies what it keeps
 * threads  plain data
 */
#ifndef SERVER_CACHE_LOOKUP_H
#define SERVER_CACHE_LOOKUP_H

#include "common/hash/digest.h"
#include "common/hash/git_oid.h"
#include "common/hash/sha512.h"
#include "server/cache/request_cache_control.h"
#include "server/fetch/origin.h"
#include "server/http/msg.h"

enum lookup_class {
    /* never revalidated; the origin's no-store and the client's no-cache are ignored */
    LOOKUP_IMMUTABLE,
    LOOKUP_MUTABLE, /* fresh for its ttl, then revalidated */
};

enum {
    LOOKUP_KEY_MAX = 12 << 10
}; /* rows have no room for more: a longer key is answered with 414 */

struct batch;
struct lookup;

/* Where a reader puts its rows. */
struct lookup_rows {
    struct batch *batch; /* a new one after each reported() */
    /* Call it after each item that the index names: once the batch is large it is committed, so
     * memory stays bounded however well the index was compressed. Nonzero ends the reading.
     * E_TOOBIG: the index names too many items. */
    int (*reported)(struct lookup_rows *rows, struct err *e);
};

/* Reads an index once all its bytes have arrived and before the last of them are sent. What it says
 * of other keys becomes rows, and an index that no client could use is refused. It knows no repo,
 * because a fetch may outlive a reload. Pool threads, one at a time. */
struct lookup_reader {
    const char *name; /* for other mirrors (neighbor.h); unique within the protocol */
    /* url: after redirects. modified: by the origin, or 0. asked: when the origin sent it. */
    void *(*open)(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                  uint64_t asked_unix_s);
    /* E_CHANGED: by the rows' present state, another plan is right for this index; a request that
     * has had no byte of it is planned again. */
    int (*feed)(void *state, struct slice bytes, struct lookup_rows *rows, struct err *e);
    int (*finish)(void *state, struct lookup_rows *rows, struct err *e);
    /* compares values of a row; NULL: always replace */
    bool (*replaces)(struct slice old, struct slice fresh);
    void (*close)(void *state);
};

#define TTL_ORIGIN   UINT32_MAX       /* the origin's freshness, else 60 s */
#define SWR_LIKE_TTL (UINT32_MAX - 2) /* stale for as long as it was fresh */
#define FLOOR_NEVER  UINT32_MAX       /* no client's Cache-Control causes a request to the origin */

/* A field of the client's request by which answers may vary (variant.h). */
enum lookup_sent {
    SENT,            /* the repo forwards it */
    SENT_ONCE_NAMED, /* once an answer's Vary has named it */
    NEVER_SENT,
};
struct lookup_field {
    enum lookup_sent sent;
    struct slice name;  /* lower case */
    struct slice value; /* for the origin; p == NULL: the request has none */
    struct slice same;  /* the value by which requests are compared; p == NULL as well */
};

/* A digest of another kind than SHA-256. It is checked like one, once all bytes are present. */
struct lookup_sum {
    enum { LOOKUP_SUM_NONE, LOOKUP_SUM_GIT_OID, LOOKUP_SUM_SHA512 } kind;
    union {
        struct git_oid git_oid;
        struct sha512 sha512;
    };
};

/* How the origin's Repr-Digest (origin_head_digest()) is used. */
enum lookup_repr_digest {
    REPR_DIGEST_IGNORED,
    REPR_DIGEST_CHECKED, /* once the head is here, it is the digest of the bytes */
    /* A HEAD returns it, too. A mutable object is revalidated by that, and its bytes are only sent
     * when they differ. */
    REPR_DIGEST_ASKED,
};

enum lookup_redirects {
    REDIRECTS_ANEW,    /* each request of a fetch begins at the lookup's url */
    REDIRECTS_HOLD,    /* later requests go straight to where the first was led, until refused */
    REDIRECTS_AT_HOME, /* they must lead to the origin's own host */
};

/* These times are set by a rule and count whatever the origin says. */
enum { RULED_NEG_TTL = 1, RULED_SWR = 2, RULED_SIE = 4, RULED_FLOOR = 8 };

/* Who asks (neighbor.h). */
enum lookup_asker {
    CLIENT_ASKS,
    NEIGHBOR_ASKS,     /* another mirror: no parent is asked */
    NEIGHBOR_ASKS_HELD /* the same, for what is here, or arrives from the origin */
};

/* What the neighbor that asks knows of the mirror that it has asked before. */
enum lookup_parent { PARENT_IS_UNKNOWN, PARENT_IS_DEAD };

/* Doubted: it was removed where the client asks. It counts only if its digest is known. */
enum lookup_stored { STORED_COUNTS, STORED_IS_DOUBTED };

/* How the origin's errors are answered. */
enum {
    ERRORS_PASSED_ON = 1,   /* as the origin sent them: status, fields, text */
    REFUSALS_END_KEPT = 2,  /* a 401 or 403 ends the stored object, as a 404 does */
    TROUBLE_IS_ABSENCE = 4, /* for a missing object: a 404, which clients can do without */
};

struct lookup {
    struct slice repo; /* name */
    struct slice key;  /* canonical, unique within the repo */
    enum lookup_class class;

    /* --- How the origin is asked. --- */
    const struct origin *origin;
    struct slice url; /* absolute */
    struct slice via; /* the page that named the url, or p == NULL */
    /* For the origin; p == NULL: none. It is constant for a key. If the repo forwards Accept, it is
     * in `forward` and not here. */
    struct slice accept;
    const struct lookup_field *forward; /* sorted by name, no duplicates */
    size_t forwards;
    /* answers vary by any field that their Vary names, not only by those in `forward` */
    bool varies;
    struct slice token_scope;   /* see fetch/request.h; or p == NULL */
    struct slice authorization; /* the caller's own credential; p == NULL: the origin's */
    /* The owner of the credential that fetches it; "" for the service's. Only equal ones may join a
     * fetch, and a 401 or 403 ends the stored object. */
    struct slice principal;
    enum lookup_redirects redirects;

    /* --- Which bytes are expected. --- */
    bool digest_known;
    struct digest digest;  /* checked before the last 64 KiB are sent */
    struct lookup_sum sum; /* where an index has no SHA-256 */
    enum lookup_repr_digest repr_digest;
    /* The origin's name for these bytes (fetch/request.h), or p == NULL; others are a 412. */
    struct slice content;
    /* With a digest: any object of the repo with that digest will do if its key contains this text
     * ("/blobs/"). Or p == NULL. */
    struct slice held_by;
    uint64_t size_bytes; /* from an index, or LENGTH_UNKNOWN; any other size is refused early */
    uint64_t max_bytes;  /* a larger object is refused, by a setting; 0: no limit */
    bool document;       /* an index that is read as a whole; refused beyond document_bytes */
    bool no_html;        /* a web page in its place is a login form; and it is never empty */
    const struct lookup_reader *reader; /* or NULL */

    /* --- How long it is fresh. --- */
    /* Header fields, in lower case, that replace Cache-Control and Expires: the first one that an
     * answer has counts (RFC 9213). */
    const struct slice *targets;
    size_t ntargets;
    uint32_t ttl_s;         /* seconds, or TTL_ORIGIN */
    uint32_t neg_ttl_s;     /* for 404 and 410 */
    uint32_t refusal_ttl_s; /* for 401 and 403; 0: they are not remembered */
    uint32_t swr_s;         /* stale while revalidating; or SWR_LIKE_TTL */
    uint32_t sie_s;         /* stale if error; UINT32_MAX: without bound */
    /* Mutable objects: a client's Cache-Control counts so long after the last validation; or
     * FLOOR_NEVER. */
    uint32_t floor_s;
    unsigned ruled; /* the RULED_ bits of these */
    /* Mutable objects: one that the origin last confirmed before this time is stale, because
     * another of its group has changed. 0: none has. */
    uint64_t since_unix_s;

    /* --- What its errors mean. --- */
    const struct status_map *status_map; /* maps the origin's 403 to 404, for example; or NULL */
    size_t status_maps;
    unsigned errors; /* ERRORS_PASSED_ON ... */

    /* --- The client, and the part that it requests. --- */
    enum lookup_asker asker;
    enum lookup_parent parent;
    enum lookup_stored stored;
    uint64_t client; /* the first client that asks (http/principal.h); 0: the program itself */
    struct request_cache_control request_cache_control; /* of the client */
    bool head_only;  /* HEAD: for a missing object the origin gets a HEAD, not a fetch */
    bool background; /* no client waits for the answer, and it is fetched to its end all the same */
    /* The last answer was stale because of trouble at the origin: it may be stale again, while the
     * origin is asked. */
    bool in_trouble;
    uint64_t hint_first,
        /* the range of a missing object to fetch first; end LENGTH_UNKNOWN: open; 0,
         * LENGTH_UNKNOWN: none */
        hint_end;
    uint64_t hint_suffix; /* the same: so many bytes at the end; 0: none */
    /* How long the client waits for a silent origin (entry.c); 0: until the request ends. */
    uint64_t patience_ms;
};

static inline bool lookup_varies(const struct lookup *w)
{
    return w->varies || w->forwards != 0;
}

/* False for a lookup of a range or of the head alone. */
static inline bool lookup_is_whole(const struct lookup *w)
{
    return !w->head_only && w->hint_first == 0 && w->hint_end == LENGTH_UNKNOWN &&
           w->hint_suffix == 0;
}

struct status_map {
    int from;
    int to;
};

#endif
