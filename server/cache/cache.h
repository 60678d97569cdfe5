/* cache.h - the cache of one mirror: many readers share one fetch of an object.
 *
 * A caller passes a lookup and gets exactly one answer. The answer is a sealed object (blob), an
 * object that is still being downloaded (fetch), or a status without a body (negative, refused,
 * failed). However many clients ask for an object, the origin is asked once. Readers follow the
 * growing file; a range far ahead of it starts a segment of its own. All rows go through the store;
 * an object's row is object(repo NUL key).
 *
 * owns     an answer is counted (answer_hold(), answer_release()); bodies made from it hold it
 * threads  cache_lookup(), cache_cancel() and answer_body() run on a loop; fetches run on the
 *          cache's fetch thread, disk work runs on the pool
 * errors   an answer with status >= 500 carries a sentence for the client in `why`
 */
#ifndef SERVER_CACHE_CACHE_H
#define SERVER_CACHE_CACHE_H

#include "common/os/pool.h"
#include "server/cache/lookup.h"
#include "server/cache/neighbor.h"
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
    uint32_t grace_ms;               /* a fetch without readers continues for so long */
    uint32_t default_ttl_s;          /* for mutable objects, when the origin does not say */
    uint64_t scrub_rate_bytes_per_s; /* 0: off */
    uint32_t scrub_every_s;          /* blobs that were read since then are not scrubbed */
};

enum cache_state {                    /* RFC 9211 */
                   CACHE_HIT,         /* hit */
                   CACHE_MISS,        /* fwd=uri-miss; stored */
                   CACHE_COLLAPSED,   /* fwd=uri-miss; collapsed */
                   CACHE_REVALIDATED, /* fwd=stale; fwd-status=304 */
                   CACHE_REFRESHED,   /* fwd=stale: the origin had a new one */
                   CACHE_STALE,       /* hit; fwd=stale, the origin is in trouble */
                   CACHE_UPDATING,    /* hit; stale, and being revalidated in the background */
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
    uint64_t total_bytes; /* LENGTH_UNKNOWN while an origin is sending chunks */
    struct slice etag;    /* with quotes, stable over sealing and restart; p == NULL for errors */
    struct slice etag_alias;  /* "sha256-..." beside another form; or p == NULL */
    struct slice etag_weak;   /* the origin's, where it is weak; or p == NULL */
    struct slice origin_etag; /* the origin's, as it wrote it; or p == NULL */
    bool digest_known;
    struct digest digest;
    struct slice content_type; /* the origin's, or p == NULL */
    /* The body of an answer that is not an object, as the origin wrote it. p == NULL: only the
     * status is known. */
    struct slice text;
    uint64_t last_modified_s; /* 0: none */
    struct slice url;         /* where it came from, final */
    /* The origin's other end-to-end fields that are worth keeping (x-..., link, ...). Of a 401,
     * 403, 404 or 410 only x-error-... is kept. */
    const struct http_field *fields;
    size_t nfields;
    bool once;              /* some fields are only for the first client that asked */
    uint64_t stored_unix_s; /* for Age */
    /* when the origin gave or confirmed it; its Age was age_s then */
    uint64_t validated_unix_s;
    uint64_t age_s;
    uint64_t fresh_until_unix_s;
    uint32_t retry_after_s; /* with 429 and 503 */
    struct err why;         /* status >= 500: a sentence for the client */
};

struct cache_ask; /* a lookup without an answer yet */
struct object_info;

struct cache *cache_open(struct store *st, struct pool *disk, const struct cache_settings *set);
/* on_answer runs exactly once, on l's thread. It may run before cache_lookup() returns; then NULL
 * is returned, and there is nothing to cancel. The answer is held for the callee, who releases
 * it. */
struct cache_ask *cache_lookup(struct cache *c, struct loop *l, const struct lookup *w,
                               void (*on_answer)(void *arg, struct answer *a), void *arg);
void cache_cancel(struct cache_ask **kp);
/* Another client waits for the same answer. Work queued for this lookup is done at the turn of
 * whichever client comes first. */
void cache_share(struct cache_ask *k, uint64_t client);
struct answer *answer_hold(struct answer *a);
void answer_release(struct answer **ap);
struct slice answer_field(const struct answer *a, const char *name); /* p == NULL: none */
/* The error that corresponds to an answer other than a 200: E_NOTFOUND (404, 410), E_DENIED (401,
 * 403), else why. */
int answer_rc(const struct answer *a);
/* Bytes [first, end) of a 200 answer, for loop l. With end == LENGTH_UNKNOWN it reads to the end.
 * The fetch learns where the reader waits. */
struct body *answer_body(struct cache *c, struct answer *a, struct loop *l, uint64_t first,
                         uint64_t end);
/* The disk failed to read this blob while it was sent: it is looked at (keep.h), on the pool. Any
 * thread. */
void cache_suspect(struct cache *c, const struct blob *b);

/* Other mirrors are asked before origins. Call it before the first lookup; ops are borrowed. */
void cache_ask_neighbors(struct cache *c, const struct neighbor_ops *ops, void *arg);

/* fn is called on the fetch thread when a key's answer has changed (it was fetched again, evicted
 * or removed); loops then drop their copy. It is called on a pool thread with key.p == NULL when an
 * index has reported facts about other keys that plans made earlier did not know. */
void cache_on_change(struct cache *c, void (*fn)(void *arg, struct slice repo, struct slice key),
                     void *arg);
/* Removes an object with its variants and its callers' copies, and its parked bytes. With `below`,
 * it also removes all objects whose keys begin so. Fetches and revalidations under way continue for
 * their readers but leave nothing: after the return, only what began after the call can be present.
 * Blocks: pool thread. */
MUST_USE int cache_remove(struct cache *c, struct slice repo, struct slice key, bool below,
                          uint64_t *removed, struct err *e);

/* Mutable objects below a prefix are revalidated before they are served again, and remembered
 * absences are asked for again. lookup() selects the objects. Blocks: pool thread. */
MUST_USE int cache_expire(struct cache *c, struct slice repo, struct slice key_prefix,
                          bool (*lookup)(void *arg, const struct object_info *o), void *arg,
                          uint64_t *expired, struct err *e);

struct fetch_info { /* for the status and the page */
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
/* Lists the objects of a repo from the rows, in key order: for `cache ls`. Blocks. */
struct object_info {
    struct slice repo, key;
    uint64_t size_bytes;
    struct digest digest;
    uint64_t origin; /* origin_identity() */
    uint64_t stored_unix_s, validated_unix_s;
    uint64_t fresh_until_unix_s; /* as the origin said */
    bool must_ask;               /* set by cache_expire(): stale, whatever the times say */
};
MUST_USE int cache_list(struct cache *c, struct slice repo, struct slice prefix,
                        int (*each)(void *arg, const struct object_info *o), void *arg,
                        struct err *e);
/* Lists incomplete objects, under way or parked. tail: the part of the row's key after the repo.
 * each() must not call the cache. */
void cache_unfinished(struct cache *c, struct slice repo,
                      void (*each)(void *arg, struct slice tail, uint64_t have_bytes,
                                   uint64_t total_bytes),
                      void *arg);
/* The bytes that one client's fetches may write within an hour. Beyond that, they may only evict
 * the client's own objects or unused ones (share.h). 0: half of the quota. */
void cache_limit(struct cache *c, uint64_t client_store_bytes);
/* Stops the fetches, which are parked for the next start, and the keeper. No loop may have a lookup
 * under way. */
void cache_close(struct cache **cp);
/* Evicts until need_bytes fit (0: down to the low mark). E_NOSPACE: nothing more may be evicted.
 * Blocks: pool thread. */
MUST_USE int cache_make_room(struct cache *c, uint64_t need_bytes, struct err *e);

/* Copies w with its strings into the arena; the origin is not held. */
void lookup_copy(struct arena *a, const struct lookup *w, struct lookup *out);

#endif
