/* upstream.h - the engine for an upstream that is a mirrord itself (the upstream; we are its
 * downstream), from within.
 *
 * One conditional request tells whether anything is new. Else the new tree is walked from its root:
 * nodes that are here already, of the published tree or of a walk that broke off, are read here,
 * the others fetched, checked against their ids and stored. So what travels is what changed. Blobs
 * come by their digests.
 *
 * What an upstream may get wrong: an id binds a node's bytes; levels fall by one; a child begins
 * where its parent says and ends before the next; the entries that a head and each node announce
 * are those that come. So a walk ends after as many entries as the head said, and that number has a
 * limit. That the whole is the tree which its root names, cut as we would cut it, is seen at the
 * end: what the pipeline builds of the entries must have the same root (engine_listed.root).
 *
 * threads  the run's
 * source   docs/protocols/sync.md
 */
#ifndef SERVER_SYNC_MIRRORD_UPSTREAM_H
#define SERVER_SYNC_MIRRORD_UPSTREAM_H

#include <event2/event.h>

#include "common/base/arena.h"
#include "common/base/list.h"
#include "server/store/node.h"
#include "server/store/set64.h"
#include "server/sync/engine.h"
#include "server/sync/rsync/delta.h"

struct upstream;

/* One document, in memory, of a known maximum. */
struct query {
    struct list node; /* in the engine's list */
    struct upstream *g;
    struct origin_request *request;
    struct event *retry;
    struct buf body;
    char *url;
    const char *accept;        /* static */
    char etag[DIGEST_HEX + 3]; /* sent as If-None-Match; or "" */
    unsigned tries;
    int status; /* 200, 304 */
    struct err why;
    void (*done)(struct query *a, int rc); /* then query_free(): it is not freed by itself */
    void *arg;
};
/* Takes url. Retries what may pass. done() never runs inside. */
struct query *query_start(struct upstream *g, char *url, const char *accept,
                          const struct digest *etag, size_t max_bytes,
                          void (*done)(struct query *a, int rc), void *arg);
void query_free(struct query **ap); /* NULL is fine; cancels */

struct walk;

struct upstream {
    const struct engine_ops *ops;
    const struct engine_site *site;
    struct engine_events ev;
    void *arg;
    char *tree;  /* "http://core:8080/-/sync/debian" */
    char *blobs; /* "http://core:8080/-/blob/" */
    struct list asks, downloads;
    char *upstream;     /* "http://core:8080" */
    struct event *soon; /* news that may not be told inside a call */
    void (*news)(struct upstream *g);
    struct query *head_ask;
    bool has_head; /* the probe has brought it */
    struct snap head;
    struct walk *walk;
    uint64_t wire_bytes;  /* of heads and nodes */
    char *lists;          /* "http://core:8080/-/sync/cdc/" */
    struct delta delta;   /* what came of lists, by names' endings */
    struct set64 patched; /* digests that are not put together again */
    unsigned jobs;        /* on the disk pool */

    /* download.c, of small files: */
    struct list small; /* takes that wait for one, so many, of so many bytes */
    size_t nsmall;
    uint64_t small_bytes;
    struct list blob_batches; /* under way */
    unsigned nsheaves;
    size_t most;          /* files in one */
    struct event *bind;   /* looks what may go */
    bool proven;          /* the upstream has answered one */
    bool singly;          /* no more of them */
    unsigned barren;      /* in a row that brought nothing */
    unsigned wrong;       /* records */
    uint64_t usual_bytes; /* of a small file, about */
};
extern const struct engine_ops engine_mirrord;

/* What an upstream's status means where 200 was hoped for. */
int upstream_refused(int status, struct err *e);

/* download.c */
struct patching;
struct blob_batch;
struct download {
    struct list node;
    struct upstream *g;
    struct download_events ev;
    void *arg;
    struct origin_request *request;
    char *url;
    char validator[DIGEST_HEX + 1]; /* the digest: it vouches for parts that came before */
    struct digest digest;
    uint64_t size;
    uint64_t got;                  /* up to here it is there */
    uint64_t end;                  /* of what is asked for now */
    uint64_t beside;               /* bytes of lists */
    struct err why;                /* ours: says more than what fetch makes of it */
    struct patching *patching;     /* put together of its former version; NULL: whole */
    struct list waits;             /* in core.small */
    struct blob_batch *blob_batch; /* it is asked for in; or NULL */
    size_t place;                  /* there */
};
struct download *upstream_download(struct engine *g, const struct download_params *w,
                                   const struct download_events *ev, void *arg);
void upstream_download_resume(struct download *t);
void upstream_download_cancel(struct download **tp);
void upstream_downloads_init(struct upstream *g);
void upstream_downloads_fini(struct upstream *g); /* cancels those that are under way */

/* Small files come many in a request. */
unsigned blob_batches_smalls(const struct upstream *g, uint64_t *upto_bytes);

#endif
