/* http_engine.h - the inside of the engine for HTTP upstreams: documents for its lists, downloads
 * for its files.
 *
 * A lister knows how an upstream says what it has (folder pages, checksum files, a Debian
 * archive, a bucket's list): it requests documents and gives entries. Downloads are the same for
 * all listers. The engine "s3" is this one with another lister.
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

/* One document with a size limit, in memory or kept in the store. */
struct doc_want {
    const char *url;
    struct slice via;   /* the page that named the URL; p == NULL: the settings named it */
    const char *accept; /* or NULL */
    uint64_t max_bytes;
    /* Bytes [first, end), or the whole document where the upstream does not support ranges; end
     * == 0: all. */
    uint64_t first, end;
    /* Store it as the run's file of this path: `keep` then has it, and `body` is empty. NULL: in
     * memory. */
    const char *keep_as;
    /* A document's validator: an equal one ends with E_EXISTS, another with E_CHANGED, and the
     * body is not read. NULL: it is read. */
    const char *unlike;
};

struct doc {
    struct list node; /* in the engine's list until it ends */
    struct http_engine *g;
    struct origin_request *request;
    struct event *retry;
    struct buf body;
    struct keep *keep; /* or NULL */
    char *url, *accept, *unlike, *via;
    char *final_url; /* after redirects */
    char *content_type;
    /* the URL that its Link field names as "next", if at the same origin; or NULL */
    char *next;
    char *validator; /* ETag, else Last-Modified; "" */
    int64_t mtime_ns;
    unsigned tries;
    uint64_t first, end; /* as requested; end == LENGTH_UNKNOWN: all */
    uint64_t total;      /* of a 206 */
    /* with rc 0: 200, all of it, or 206, the requested part as far as it exists */
    int status;
    struct err why;
    struct err no;                       /* the upstream's own explanation of its status */
    void (*done)(struct doc *d, int rc); /* then call doc_free(): it does not free itself */
    void *arg;
};
/* Retries temporary failures. Texts are copied. done() never runs inside this call. */
struct doc *doc_open(struct http_engine *g, const struct doc_want *w,
                     void (*done)(struct doc *d, int rc), void *arg);
/* In memory, with no other options. */
struct doc *doc_ask(struct http_engine *g, const char *url, const char *accept, size_t max_bytes,
                    void (*done)(struct doc *d, int rc), void *arg);
void doc_free(struct doc **dp); /* NULL is fine; cancels */
/* Of a kept document, after done(0): its digest in the store, and its size. */
const struct digest *keep_digest(const struct keep *k);
uint64_t keep_size(const struct keep *k);

/* Where the bytes of an entry come from, if not from its path below the upstream. */
struct source {
    char *url;          /* malloc()ed, the receiver frees it; NULL: by its path */
    struct slice via;   /* the page that named it, which may lead to other hosts; or p == NULL */
    struct slice bytes; /* made here; owned by the lister */
    bool git_known;     /* the file's Git object id */
    struct git_oid git;
    bool whole; /* the list is worthless without this file: its failure fails the run */
};

struct lister {
    const char *name; /* the value of `list =` */
    void (*start)(struct http_engine *g);
    void (*free)(struct http_engine *g); /* g->lister_state; may be NULL */
    /* Optional: has anything changed since `cursor`? Ends with http_probed(). */
    void (*probe)(struct http_engine *g, struct slice cursor);
    /* Optional: sets the fields of *out, which is empty. */
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
    struct event *soon; /* for results that may not be reported inside a call */
    void (*news)(struct http_engine *g);
    struct err why;      /* a lister's error on its way to http_listed() */
    uint64_t list_bytes; /* of documents so far */
    struct buf cursor;
    struct heads *heads; /* or NULL */
    struct doc *probe_doc;
    struct digest probe_digest;
};

/* `ref` of an entry: */
enum {
    REF_BY_HASH =
        1, /* it also exists at by-hash/SHA256/<its digest> next to it, where it does not change */
    REF_OPTIONAL = 2, /* the index names it, but it need not exist */
};

/* The URL of a path below the upstream; a malloc()ed string. */
char *http_url_of(const struct http_engine *g, struct slice path);
/* An entry of an index. SUM_NONE and UINT64_MAX: the index does not say. ref: REF_*. */
MUST_USE int http_give(struct http_engine *g, struct slice path, uint64_t size_bytes,
                       const struct sum *sum, uint64_t ref, struct err *e);
/* Ends the list; the lister gives nothing after it. */
void http_listed(struct http_engine *g, int rc, const struct err *why,
                 const struct engine_listed *l);

/* Runs news() soon, one at a time: for results that may not be reported inside a call. */
void http_soon(struct http_engine *g, void (*news)(struct http_engine *g));
void http_probed(struct http_engine *g, enum probe_answer a);

#endif
