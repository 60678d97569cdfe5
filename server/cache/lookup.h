/* lookup.h - what an adapter wants from the cache: a key, where it comes from, and for how long it
 * is good.
 *
 * Plain data; slices live in the exchange's arena, the cache copies what it keeps.
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
    LOOKUP_IMMUTABLE, /* never revalidated; no-store of the origin and no-cache of the client are ignored */
    LOOKUP_MUTABLE, /* fresh for ttl, then revalidated */
};

enum {
    LOOKUP_KEY_MAX = 12 << 10
}; /* rows have room for no more: a want with a longer key is answered with 414 */

struct batch;
struct lookup;

/* Where a reader puts its rows. */
struct lookup_rows {
    struct batch *batch; /* another one after reported() */
    /* Behind each thing that the index names: what is there is kept when it is much, however little
     * it was packed. Nonzero ends the reading. E_TOOBIG: no index names so many. */
    int (*reported)(struct lookup_rows *rows, struct err *e);
};

/* Reads an index whose bytes have all come, before the last of them leave: what it tells of other
 * keys becomes rows, and one that nobody could use is refused. It knows no repo: a fetch may
 * outlive a reload. Pool threads, one at a time. */
struct lookup_reader {
    /* url: behind redirects; modified: by the origin, 0: it does not say; asked: when it gave this
     * one. */
    void *(*open)(const struct lookup *w, struct slice url, uint64_t modified_unix_s,
                  uint64_t asked_unix_s);
    /* E_CHANGED: for this one another plan is right, as the rows say by now: who has had no byte of
     * it is planned for anew. */
    int (*feed)(void *state, struct slice bytes, struct lookup_rows *rows, struct err *e);
    int (*finish)(void *state, struct lookup_rows *rows, struct err *e);
    bool (*replaces)(struct slice old, struct slice fresh); /* values of a row; NULL: always */
    void (*close)(void *state);
};

#define TTL_ORIGIN   UINT32_MAX       /* the origin's freshness, else 60 s */
#define SWR_LIKE_TTL (UINT32_MAX - 2) /* stale for as long as it was fresh */
#define FLOOR_NEVER  UINT32_MAX       /* no client's Cache-Control asks the origin */

/* One of the client's fields that answers may vary by (variant.h). */
enum lookup_sent {
    SENT,            /* the repo forwards it */
    SENT_ONCE_NAMED, /* when an answer's Vary has named it */
    NEVER_SENT,
};
struct lookup_field {
    enum lookup_sent sent;
    struct slice name;  /* lower case */
    struct slice value; /* for the origin; p == NULL: the request has none */
    struct slice same;  /* by it requests are held against each other; p == NULL as well */
};

/* A digest of another kind than SHA-256, checked like it once all bytes are here. */
struct lookup_sum {
    enum { LOOKUP_SUM_NONE, LOOKUP_SUM_GIT_OID, LOOKUP_SUM_SHA512 } kind;
    union {
        struct git_oid git_oid;
        struct sha512 sha512;
    };
};

/* What the origin's Repr-Digest (origin_head_digest) is good for. */
enum lookup_repr_digest {
    REPR_DIGEST_IGNORED,
    REPR_DIGEST_CHECKED, /* it is the digest of the bytes, once the head is here */
    /* ... and a HEAD tells it, too: that is how a mutable object is revalidated, and bytes come
     * only when they are others. */
    REPR_DIGEST_ASKED,
};

enum lookup_redirects {
    REDIRECTS_ANEW, /* each request of a fetch begins at the want's url */
    REDIRECTS_HOLD, /* where the first is led, the others go straight, until they are refused there */
    REDIRECTS_AT_HOME, /* they lead to the origin's own host, or nowhere */
};

/* These times are a rule's own, and count whatever the origin says. */
enum { RULED_NEG_TTL = 1, RULED_SWR = 2, RULED_SIE = 4, RULED_FLOOR = 8 };

/* How the origin's errors are answered. */
enum {
    ERRORS_PASSED_ON = 1,   /* as the origin says them: status, fields, text */
    REFUSALS_END_KEPT = 2,  /* a 401 or 403 ends what is kept, as a 404 does */
    TROUBLE_IS_ABSENCE = 4, /* of what is not here: a 404, clients do without */
};

struct lookup {
    struct slice repo; /* name */
    struct slice key;  /* canonical, unique within the repo */
    enum lookup_class class;

    /* How the origin is asked. */
    const struct origin *origin;
    struct slice url; /* absolute */
    struct slice via; /* page that named the url, or p == NULL */
    /* For the origin; p == NULL: none. Constant for a key, unless it is among what the repo
     * forwards: then not here. */
    struct slice accept;
    const struct lookup_field *forward; /* by name; without a repeat */
    size_t forwards;
    /* answers are told apart by any field that their Vary names, not by those in `forward` alone */
    bool varies;
    struct slice token_scope;   /* fetch.h; or p == NULL */
    struct slice authorization; /* the caller's own credential, or p == NULL: the origin's */
    /* whose credential fetches it; "" for the service's: only equals may join a fetch, and a 401
     * or 403 ends what is kept */
    struct slice principal;
    enum lookup_redirects redirects;

    /* Which bytes they are. */
    bool digest_known;
    struct digest digest;  /* checked before the last 64 KiB leave */
    struct lookup_sum sum; /* where an index tells no SHA-256 */
    enum lookup_repr_digest repr_digest;
    /* what the origin calls these bytes (fetch.h): others are a 412; or p == NULL */
    struct slice content;
    /* With a digest: an object of the repo that has it will do, under whatever key with this in it
     * ("/blobs/"); or p == NULL. */
    struct slice held_by;
    uint64_t size_bytes; /* that an index told, or LENGTH_UNKNOWN: another is refused early */
    uint64_t max_bytes;  /* a larger one is refused, by a setting; 0: any */
    bool document;       /* an index that is read as a whole: refused beyond document_bytes */
    bool no_html; /* a web page in its place is somebody's login form; and it is never empty */
    const struct lookup_reader *reader; /* or NULL */

    /* For how long it is good. */
    /* Header fields, in small messages, that are obeyed in place of Cache-Control and Expires: the
     * first that an answer has (RFC 9213). */
    const struct slice *targets;
    size_t ntargets;
    uint32_t ttl_s;         /* seconds, or TTL_ORIGIN */
    uint32_t neg_ttl_s;     /* of 404 and 410 */
    uint32_t refusal_ttl_s; /* of 401 and 403; 0: they are not remembered */
    uint32_t swr_s;         /* stale while it is revalidated; or SWR_LIKE_TTL */
    uint32_t sie_s;         /* stale if error; UINT32_MAX: without bound */
    /* mutable: a client's Cache-Control counts so long after the last validation; or FLOOR_NEVER */
    uint32_t floor_s;
    unsigned ruled; /* RULED_ bits of these */
    /* Mutable: what the origin has not spoken for since then is stale, another of its group has
     * changed. 0: none has. */
    uint64_t since_unix_s;

    /* What its errors mean. */
    const struct status_map *status_map; /* origin's 403 -> 404, say; or NULL */
    size_t status_maps;
    unsigned errors; /* ERRORS_PASSED_ON ... */

    /* Who asks, and for what of it. */
    uint64_t client; /* who asks first (http/principal.h); 0: the program itself */
    struct request_cache_control request_cache_control; /* of the client */
    bool head_only;  /* HEAD: a cold object costs the origin a HEAD, no fetch */
    bool background; /* nobody waits for the answer: it is fetched to its end all the same */
    /* stale for the origin's trouble when last given: so it may be again, while the origin is
     * asked */
    bool in_trouble;
    uint64_t hint_first,
        hint_end; /* a cold range to fetch first; LENGTH_UNKNOWN end: open. 0, LENGTH_UNKNOWN: none */
    uint64_t hint_suffix; /* the same, so many bytes at the end; 0: none */
    /* how long whoever asks waits for a silent origin (entry.c); 0: until the request ends */
    uint64_t patience_ms;
};

static inline bool lookup_varies(const struct lookup *w)
{
    return w->varies || w->forwards != 0;
}

/* Not for a range of it, nor for its head alone. */
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
