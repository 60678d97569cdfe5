/* cache.h - one fetch, many readers.
 *
 * cache_lookup() answers once, on the caller's loop: a sealed object (blob), one that is filling
 * (fetch), or a status without a body (negative, refused, failed). One fill an object whatever the
 * number of clients; readers follow the growing file; a range far ahead starts its own segment.
 * Rows go through the store; the object's row is object(repo NUL key).
 *
 * owns     an answer is counted: answer_hold/answer_release; bodies made from it hold it
 * threads  cache_lookup, cache_cancel, answer_body: a loop. Fills run on the cache's fetch thread,
 *          disk work on the pool
 */
#ifndef SERVER_CACHE_CACHE_H
#define SERVER_CACHE_CACHE_H

#include "common/os/pool.h"
#include "server/cache/lookup.h"
#include "server/http/body.h"
#include "server/net/loop.h"
#include "server/store/blob.h"

struct cache;
struct cache_settings {              /* defaults and ranges stand in settings.def */
    uint64_t segment_bytes;          /* bounded upstream ranges */
    uint32_t fillers;                /* parallel ranges a fetch */
    uint64_t parallel_bytes;         /* from this size on */
    uint64_t jump_bytes;             /* a reader this far ahead of a range request gets its own */
    uint32_t tries;                  /* without progress */
    uint64_t document_bytes;         /* largest index document */
    uint32_t grace_ms;               /* a fetch that nobody reads goes on for so long */
    uint32_t default_ttl_s;          /* mutable, when the origin says nothing */
    uint64_t scrub_rate_bytes_per_s; /* 0: off */
    uint32_t scrub_every_s;          /* what was read since is left alone */
};

enum cache_state {                    /* RFC 9211 */
                   CACHE_HIT,         /* hit */
                   CACHE_MISS,        /* fwd=uri-miss; stored */
                   CACHE_COLLAPSED,   /* fwd=uri-miss; collapsed */
                   CACHE_REVALIDATED, /* fwd=stale; fwd-status=304 */
                   CACHE_REFRESHED,   /* fwd=stale: the origin had a new one */
                   CACHE_STALE,       /* hit; fwd=stale, the origin is in trouble */
                   CACHE_UPDATING,    /* hit; stale, the origin is asked in the background */
                   CACHE_NEGATIVE,    /* hit of a 404 */
                   CACHE_FAILED,      /* the origin is in trouble and there is nothing to serve */
};

static inline bool cache_state_is_stale(enum cache_state s)
{
    return s == CACHE_STALE || s == CACHE_UPDATING;
}

struct answer {
    int status; /* 200, 404, 410, 502, 503 ... */
    enum cache_state state;
    struct blob *blob;    /* sealed; or NULL */
    uint64_t total_bytes; /* LENGTH_UNKNOWN while a chunked origin is filling */
    struct slice etag;    /* with quotes, stable over sealing and restart; p == NULL for errors */
    struct slice etag_alias; /* "sha256-..." beside another form; or p == NULL */
    struct slice etag_weak;  /* the origin's, where it is weak; or p == NULL */
    bool digest_known;
    struct digest digest;
    struct slice content_type; /* the origin's, or p == NULL */
    /* of what is no object, as the origin wrote it; p == NULL: only the status is known */
    struct slice text;
    uint64_t last_modified_s; /* 0: none */
    struct slice url;         /* where it came from, final */
    /* The origin's other end-to-end fields worth keeping (x-..., link, ...); of 401, 403, 404 and
     * 410 x-error-... alone. */
    const struct http_field *fields;
    size_t nfields;
    bool once;              /* some of them are for whoever asked first alone */
    uint64_t stored_unix_s; /* for Age */
    uint64_t fresh_until_unix_s;
    uint32_t retry_after_s; /* with 429 and 503 */
    struct err why;         /* status >= 500: a sentence for the client */
};

struct cache_ask; /* an unanswered want */
struct object_info;

struct cache *cache_open(struct store *st, struct pool *disk, const struct cache_settings *set);
/* on_answer runs once on l's thread, maybe before cache_lookup returns NULL (then there is nothing
 * to cancel). The answer is held for the callee, who releases it. */
struct cache_ask *cache_lookup(struct cache *c, struct loop *l, const struct lookup *w,
                               void (*on_answer)(void *arg, struct answer *a), void *arg);
void cache_cancel(struct cache_ask **kp);
/* Another client waits for the same answer: what is queued for it is done in whichever's turn comes
 * first. */
void cache_share(struct cache_ask *k, uint64_t client);
struct answer *answer_hold(struct answer *a);
void answer_release(struct answer **ap);
struct slice answer_field(const struct answer *a, const char *name); /* p == NULL: none */
/* What an answer without a 200 is as an error: E_NOTFOUND (404, 410), E_DENIED (401, 403), else
 * why. */
int answer_rc(const struct answer *a);
/* Bytes [first, end) of a 200 answer, for loop l; end LENGTH_UNKNOWN: to the end. Tells the fetch
 * where a reader waits. */
struct body *answer_body(struct cache *c, struct answer *a, struct loop *l, uint64_t first,
                         uint64_t end);

/* Told on the fetch thread when a key's answer is no longer what it was (refilled, evicted,
 * removed): loops drop theirs. On a pool thread, with key.p == NULL, when an index has told of
 * other keys what no plan made before it knew. */
void cache_on_change(struct cache *c, void (*fn)(void *arg, struct slice repo, struct slice key),
                     void *arg);
/* Removes an object with its variants and what callers have of it, and what is parked of them;
 * below: all objects whose keys begin so, too. Fetches and revalidations under way go on for those
 * who read, but leave nothing: once this returns, only what began after it was called can be there.
 * Blocks: pool thread. */
MUST_USE int cache_remove(struct cache *c, struct slice repo, struct slice key, bool below,
                          uint64_t *removed, struct err *e);

/* Mutable objects below a prefix are revalidated before they are served again, and what is
 * remembered to be absent is asked for anew. want: is the object one of those? Blocks: pool
 * thread. */
MUST_USE int cache_expire(struct cache *c, struct slice repo, struct slice key_prefix,
                          bool (*lookup)(void *arg, const struct object_info *o), void *arg,
                          uint64_t *expired, struct err *e);

struct fetch_info { /* for status and the page */
    char repo[64];
    char key[256];
    uint64_t have_bytes, total_bytes, readers, rate_bytes_per_s, age_ms;
};
size_t cache_fetches(struct cache *c, struct fetch_info *out, size_t room);
struct cache_stats {
    uint64_t hits, misses, collapsed, revalidated, stale, negative, failed, fetches,
        fetch_total_bytes, verify_failures, evicted_bytes, evicted_blobs, waiting, crowded;
};
void cache_stats(struct cache *c, struct cache_stats *out);
/* Objects of a repo from the rows, in key order: for `cache ls`. Blocks. */
struct object_info {
    struct slice repo, key;
    uint64_t size_bytes;
    struct digest digest;
    uint64_t origin; /* origin_identity() */
    uint64_t stored_unix_s, validated_unix_s;
    uint64_t fresh_until_unix_s; /* by the origin's word */
    bool must_ask;               /* cache_expire(): stale, whatever the times say */
};
MUST_USE int cache_list(struct cache *c, struct slice repo, struct slice prefix,
                        int (*each)(void *arg, const struct object_info *o), void *arg,
                        struct err *e);
/* What is not whole yet, under way or parked. tail: the row's key behind the repo. each() may not
 * ask the cache anything. */
void cache_unfinished(struct cache *c, struct slice repo,
                      void (*each)(void *arg, struct slice tail, uint64_t have_bytes,
                                   uint64_t total_bytes),
                      void *arg);
/* What one client's fetches may write within an hour before they put out only what is theirs, or
 * unused (share.h). 0: half of the quota. */
void cache_limit(struct cache *c, uint64_t client_store_bytes);
/* Stops fetches (parks them for the next start) and the keeper; no loop may want any more. */
void cache_close(struct cache **cp);
/* Evicts until need_bytes fit (0: down to the low mark). E_NOSPACE: what is left must stay. Blocks:
 * pool thread. */
MUST_USE int cache_make_room(struct cache *c, uint64_t need_bytes, struct err *e);

#endif
