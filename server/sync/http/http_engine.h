/* http_engine.h - the engine for upstreams that speak HTTP, from within: documents for its lists,
 * takes for its files.
 *
 * How an upstream tells what it has (folder pages, checksum files, a Debian archive, a bucket's
 * list) is a lister: it asks for documents and gives entries. Takes are the same for all. The
 * engine "s3" is this one, with another lister.
 *
 * threads  the run's
 */
#ifndef SERVER_SYNC_HTTP_HTTP_ENGINE_H
#define SERVER_SYNC_HTTP_HTTP_ENGINE_H

#include <event2/event.h>

#include "common/base/arena.h"
#include "common/base/list.h"
#include "common/hash/git_oid.h"
#include "server/sync/http/heads.h"
#include "common/hash/sum.h"
#include "server/sync/engine.h"

struct http_engine;
struct keep;

/* One document, in memory or kept in the store, of a known maximum. */
struct doc_want {
    const char *url;
    struct slice via;   /* the page that named the URL; p == NULL: the settings did */
    const char *accept; /* or NULL */
    uint64_t max_bytes;
    /* Bytes [first, end) of it, or all of it where the upstream knows no ranges; end == 0: all. */
    uint64_t first, end;
    /* Into the store, as the run's file of this path: `keep` then has it, and `body` nothing. NULL:
     * in memory. */
    const char *keep_as;
    /* A doc's validator: the same document is E_EXISTS, another E_CHANGED, and neither is read.
     * NULL: it is. */
    const char *unlike;
};

struct doc {
    struct list node; /* in the engine's list while it comes */
    struct http_engine *g;
    struct origin_request *request;
    struct event *retry;
    struct buf body;
    struct keep *keep; /* or NULL */
    char *url, *accept, *unlike, *via;
    char *final_url; /* after redirects */
    char *content_type;
    char *next;      /* URL of what its Link names as "next", at the same origin; or NULL */
    char *validator; /* ETag, else Last-Modified; "" */
    int64_t mtime_ns;
    unsigned tries;
    uint64_t first, end; /* as wanted; end == LENGTH_UNKNOWN: all */
    uint64_t total;      /* of a 206 */
    int status;          /* with rc 0: 200, all of it, or 206, what was wanted and is there */
    struct err why;
    struct err no;                       /* the upstream's own words for its status */
    void (*done)(struct doc *d, int rc); /* then doc_free(): it is not freed by itself */
    void *arg;
};
/* Retries what may pass. Texts are copied. done() never runs inside. */
struct doc *doc_open(struct http_engine *g, const struct doc_want *w,
                     void (*done)(struct doc *d, int rc), void *arg);
/* In memory, and no more. */
struct doc *doc_ask(struct http_engine *g, const char *url, const char *accept, size_t max_bytes,
                    void (*done)(struct doc *d, int rc), void *arg);
void doc_free(struct doc **dp); /* NULL is fine; cancels */
/* Of a document that is kept, once done(0) was called: its name in the store, and its bytes. */
const struct digest *keep_digest(const struct keep *k);
uint64_t keep_size(const struct keep *k);

/* Where the bytes of an entry come from, when not from its path below the upstream. */
struct source {
    char *url;          /* malloc()ed, the taker's; NULL: as its path says */
    struct slice via;   /* the page that named it: it may lead to other hosts; or p == NULL */
    struct slice bytes; /* made here; the lister's */
    bool git_known;     /* their name by git */
    struct git_oid git;
    bool whole; /* without this file the whole list is worth nothing: its trouble is the run's */
};

struct lister {
    const char *name; /* as `list =` says it */
    void (*start)(struct http_engine *g);
    void (*free)(struct http_engine *g); /* g->lister_state; may be NULL */
    /* Optional: has anything changed since `cursor`? Ends with http_probed(). */
    void (*probe)(struct http_engine *g, struct slice cursor);
    /* Optional: fills *out, which is empty. */
    void (*source)(struct http_engine *g, const struct sync_entry *en, struct source *out);
};
extern const struct lister lister_index, lister_sums, lister_debian, lister_bucket, lister_hf,
    lister_pypi, lister_conda, lister_rpm;
extern const struct engine_ops engine_http, engine_s3;

struct http_engine {
    const struct engine_ops *ops;
    const struct engine_site *site;
    struct engine_events ev;
    void *arg;
    char *base;  /* the URL with its '/' */
    char *probe; /* path of the file whose digest is the cursor; or NULL */
    const struct lister *lister;
    void *lister_state;
    struct list docs;
    struct list downloads;
    struct event *soon; /* bad or good news that may not be told inside a call */
    void (*news)(struct http_engine *g);
    struct err why;      /* of a lister, on its way to http_listed() */
    uint64_t list_bytes; /* of documents so far */
    struct buf cursor;
    struct heads *heads; /* or NULL */
    struct doc *probe_doc;
    struct digest probe_digest;
};

/* `ref` of an entry: */
enum {
    REF_BY_HASH =
        1, /* it also lies at by-hash/SHA256/<its digest> beside it, where it does not change under us */
    REF_OPTIONAL = 2, /* the index names it, but it need not be there */
};

/* The URL of a path below the upstream; a malloc()ed string. */
char *http_url_of(const struct http_engine *g, struct slice path);
/* An entry of an index. SUM_NONE and UINT64_MAX: it does not say. ref: REF_*. */
MUST_USE int http_give(struct http_engine *g, struct slice path, uint64_t size_bytes,
                       const struct sum *sum, uint64_t ref, struct err *e);
/* Ends the list; the lister gives nothing after it. */
void http_listed(struct http_engine *g, int rc, const struct err *why,
                 const struct engine_listed *l);

/* Runs soon, one such at a time: for what may not be told inside a call. */
void http_soon(struct http_engine *g, void (*news)(struct http_engine *g));
void http_probed(struct http_engine *g, enum probe_answer a);

#endif
