/* response_cache.h - resolved answers, in one bounded table per loop.
 *
 * A hit on a small object needs no row lookup and no plan. Neither does a HEAD that a listing could
 * answer, nor a document of ours. An entry is valid while its repo's generation is unchanged, until
 * it goes stale, and until its key is forgotten. An entry that an answer uses outlives its place in
 * the table.
 *
 * owns     entries are counted on their loop; the table holds one count
 * threads  one loop
 */
#ifndef SERVER_REQUEST_RESPONSE_CACHE_H
#define SERVER_REQUEST_RESPONSE_CACHE_H

#include "server/cache/cache.h"
#include "server/live/repo_set.h"
#include "server/http/range.h"

struct cached_response {          /* the fields that every hit reads come first */
    struct cached_response *next; /* in its slot of the table */
    uint64_t hash;                /* of name */
    struct slice name;            /* path, and what the rendering depends on */
    struct repo *repo;
    uint64_t generation; /* of the repo, when the answer was looked up */
    uint64_t stored_unix_s;
    uint64_t fresh_until_unix_s; /* UINT64_MAX: immutable */
    uint64_t moved_unix_s;       /* to the front of the LRU list */
    uint32_t floor_s;            /* as in struct lookup */
    unsigned holds;
    bool head_only;              /* it can answer a HEAD, and has no bytes */
    bool for_all;                /* see repo.h */
    bool whole;                  /* see repo.h: never sent in parts */
    struct answer *answer;       /* bytes come from here ... */
    struct blob *blob;           /* ... or here ... */
    struct rendering *rendering; /* ... or here ... */
    struct buf bytes;            /* ... or are these */
    struct validators valid;
    struct http_reply reply; /* 200, without the fields that depend on the request */
    /* Not NULL: the framing of a file of plain_bytes; valid.total_bytes is the framed length. */
    const struct framing *framing;
    uint64_t plain_bytes;
    struct list lru;
    struct list same_key; /* entries whose key falls into the same slot */
    struct repo_set *set; /* held: keeps repo alive */
    struct slice key;     /* the lookup's, for response_cache_forget() */
    struct arena arena;   /* all strings in here */
};

struct response_cache;
/* Bounds: the number of entries, the number of those that keep a file open, and the bytes that they
 * keep in memory. */
struct response_cache *response_cache_open(size_t entries, size_t files_max, uint64_t bytes_max);
void response_cache_close(struct response_cache **tp);
/* Repo, path and query (path points into req's target), the fields that select a rendering, and the
 * base of its links; in req's arena. p == NULL: not to be stored. */
/* by_target: in another frontend the same path is another document (frontend.h). */
struct slice cached_response_name(const struct http_req *req, const struct repo *r,
                                  struct slice path, bool by_target);
/* May it answer this request? Some entries are only for HEAD, some only for requests without a
 * credential. */
bool cached_response_serves(const struct cached_response *h, const struct http_req *req);
struct cached_response *response_cache_find(struct response_cache *t, const struct repo *r,
                                            struct slice name, uint64_t unix_s);
/* A fresh entry, held once for the caller and not yet in the table: complete it, then call
 * response_cache_add(). */
struct cached_response *cached_response_new(struct repo_set *set, struct repo *r, struct slice name,
                                            struct slice key);
void response_cache_add(struct response_cache *t,
                        struct cached_response *h); /* replaces one of the same name */
struct cached_response *cached_response_hold(struct cached_response *h);
void cached_response_release(struct cached_response **hp);
/* key.p == NULL: the whole repo. t may be NULL. */
void response_cache_forget(struct response_cache *t, struct slice repo, struct slice key);

#endif
