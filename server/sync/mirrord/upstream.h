/* upstream.h - the inside of the engine for an upstream that is a mirrord, whose downstream we
 * are.
 *
 * One conditional request finds out whether anything is new. If so, the new tree is walked from
 * its root: nodes that are already here, of the published tree or of an interrupted walk, are
 * read here; the others are fetched, checked against their ids and stored. So only what changed
 * is transferred. Blobs are fetched by their digests.
 *
 * Everything that an upstream sends is checked: an id binds a node's bytes; levels fall by one; a
 * child begins where its parent says and ends before the next; the entries that a head and each
 * node announce are those that arrive. So a walk ends after as many entries as the head stated,
 * and that number has a limit. The end of the run checks that the whole is the tree that its root
 * names, cut as we would cut it: the tree that the pipeline builds of the entries must have the
 * same root (engine_listed.root).
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

/* One document in memory, with a size limit. */
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
    void (*done)(struct query *a, int rc); /* then call query_free(): it does not free itself */
    void *arg;
};
/* Takes url. Retries temporary failures. done() never runs inside this call. */
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
    struct event *soon; /* for results that may not be reported inside a call */
    void (*news)(struct upstream *g);
    struct query *head_ask;
    bool has_head; /* the probe has fetched it */
    struct snap head;
    struct walk *walk;
    uint64_t wire_bytes;  /* of heads and nodes */
    char *lists;          /* "http://core:8080/-/sync/cdc/" */
    struct delta delta;   /* results of piece lists, by names' endings */
    struct set64 patched; /* digests that are not patched again */
    unsigned jobs;        /* on the disk pool */

    /* download.c, small files: */
    struct list small; /* downloads that wait for a batch, their number, their bytes */
    size_t nsmall;
    uint64_t small_bytes;
    struct list blob_batches; /* in progress */
    unsigned nsheaves;
    size_t most;          /* files in one */
    struct event *bind;   /* decides which batch may be sent */
    bool proven;          /* the upstream has answered one */
    bool singly;          /* no more batches */
    unsigned barren;      /* consecutive ones that brought nothing */
    unsigned wrong;       /* wrong records */
    uint64_t usual_bytes; /* of a small file, on average */
};
extern const struct engine_ops engine_mirrord;

/* The error for an upstream's status that is not 200. */
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
    char validator[DIGEST_HEX + 1]; /* the digest: it vouches for parts that arrived earlier */
    struct digest digest;
    uint64_t size;
    uint64_t got;                  /* received up to here */
    uint64_t end;                  /* of the current request */
    uint64_t beside;               /* bytes of piece lists */
    struct err why;                /* ours: more precise than the fetch's error */
    struct patching *patching;     /* built from its former version; NULL: downloaded whole */
    struct list waits;             /* in upstream.small */
    struct blob_batch *blob_batch; /* the batch that requests it; or NULL */
    size_t place;                  /* in that batch */
};
struct download *upstream_download(struct engine *g, const struct download_params *w,
                                   const struct download_events *ev, void *arg);
void upstream_download_resume(struct download *t);
void upstream_download_cancel(struct download **tp);
void upstream_downloads_init(struct upstream *g);
void upstream_downloads_fini(struct upstream *g); /* cancels those in progress */

/* Small files are requested in batches. */
unsigned blob_batches_smalls(const struct upstream *g, uint64_t *upto_bytes);

#endif
