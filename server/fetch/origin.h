/* origin.h - who may be reached for a repo, and how (docs/security.md). Made from the
 * configuration; immutable after that.
 *
 * owns     counted: fetches under way hold theirs, so a reload may free the configuration's
 * threads  any
 */
#ifndef SERVER_FETCH_ORIGIN_H
#define SERVER_FETCH_ORIGIN_H

#include <stdatomic.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/slice.h"
#include "common/os/lock.h"
#include "server/fetch/crowd.h"

struct origin_settings {
    /* "https://pypi.example/": http or https, no query; or "s3://bucket/prefix/" */
    const char *url;
    /* the protocol it is spoken to by: the same URL spoken otherwise is another origin; or NULL */
    const char *kind;
    const char *const *moved_from; /* URLs where the same files were before */
    size_t moved_from_count;
    const char *const *
        hosts; /* host[:port] that links and redirects may name; NULL with hosts_count 0: what docs/security.md says */
    size_t hosts_count;
    bool hosts_set;    /* `hosts` was written, maybe empty */
    const char *proxy; /* or NULL */
    const char *no_proxy;
    /* names of pages and redirects are looked up here, and judged, before the proxy is asked */
    bool proxy_resolve;
    const char *ca_file;
    const char
        *authorization;     /* sent to the origin's own host only: "Bearer ..."; a bucket's keys */
    const char *endpoint;   /* of a bucket: "https://minio.example:9000"; NULL: Amazon's */
    const char *region;     /* NULL: us-east-1 */
    const char *addressing; /* "path", "virtual"; NULL: path with an endpoint, virtual without */
    bool tokens;            /* it may want one of its token server's (bearer.h) */
    uint32_t connections;   /* 16 at once to this origin */
    uint32_t waiting;       /* 4096; see struct crowd */
    uint32_t connect_ms;    /* 10 s */
    uint32_t stall_ms;      /* 30 s without a byte */
    uint32_t patience_ms;   /* 1.5 s; see origin_patience_ms() */
    uint64_t rate_bytes_per_s; /* 0: no limit */
};

struct origin;
MUST_USE int origin_new(const char *repo, const struct origin_settings *set, struct origin **out,
                        struct err *e);
struct origin *origin_hold(const struct origin *o);
void origin_free(struct origin **op);           /* gives one count back; NULL is fine */
const char *origin_url(const struct origin *o); /* http or https, with a '/' at the end */
/* Can there be an origin of this URL? http, https and s3; others (rsync) are reached otherwise. */
bool origin_speaks(const char *url);
struct origin_bucket {
    char *name;   /* "models" */
    char *url;    /* of the bucket itself, with a '/' at the end */
    char *prefix; /* of all keys, raw; empty, or with a '/' at the end */
    char *region;
};
const struct origin_bucket *origin_bucket(const struct origin *o); /* NULL: it is none */
/* The lines that let a GET or HEAD of a URL of its own in, to be kept as secret as what they are
 * made of. Those of a bucket are for this URL at this time, and bring *url into the form that is
 * signed. */
enum { ORIGIN_LINES = 5 };
MUST_USE int origin_credential(const struct origin *o, bool head, uint64_t unix_s, struct buf *url,
                               struct arena *a, struct slice lines[ORIGIN_LINES], size_t *n,
                               struct err *e);
/* Names an origin in what is kept of it; never 0. */
uint64_t origin_identity_of(struct slice kind, struct slice url);
uint64_t origin_identity(const struct origin *o);
/* Is that this origin, or one it has moved from? 0: nobody noted where it came from, so it is
 * ours. */
bool origin_owns(const struct origin *o, uint64_t identity);
/* scheme://host[:port], lower case, default port dropped, written for a URL: the key of file-origin
 * tables. */
MUST_USE int url_origin_key(struct slice url, struct buf *out, struct err *e);
/* May this absolute URL be fetched for the repo? via: the URL of the page or redirect that named it
 * (p == NULL: the configuration). E_DENIED says why. Addresses that are written out are judged
 * here, those of names when connected. */
MUST_USE int origin_admits(const struct origin *o, struct slice url, struct slice via,
                           struct err *e);

/* Who waits for the origin's first word. The cache's, on its thread alone. */
struct crowd *origin_crowd(struct origin *o);

/* How long a client waits for its word where there is another answer, or where it did not answer
 * just now. */
uint64_t origin_patience_ms(const struct origin *o);

struct origin_health { /* how an origin's latest requests went */
    /* in a row: no answer, an answer that broke off, or a 5xx; 0: the last one went well */
    uint64_t failures;
    uint64_t since_unix_s, last_unix_s; /* when the first and the latest of them failed */
    char why[200];                      /* of the latest */
};

struct origin_request_counters { /* origin_request_counters_init() */
    _Atomic uint64_t requests, bytes, errors, throttled;
    struct lock lock; /* over all below */
    struct origin_health health;
    uint64_t identity;    /* of the origin that `health` is about */
    bool broke_off;       /* the latest answer began and did not end: a head alone proves nothing */
    _Atomic bool failing; /* health.failures > 0; read without the lock */
};
void origin_request_counters_init(struct origin_request_counters *c);
void origin_request_counters_fini(struct origin_request_counters *c);
/* Counts there from now on: a counter must not go back when a reload makes new origins. Borrowed
 * for good; before use. */
void origin_count_in(struct origin *o, struct origin_request_counters *c);

struct origin_request_stats { /* for /metrics and status: racy reads */
    uint64_t requests, bytes, errors, throttled;
};
void origin_request_stats_read(const struct origin_request_counters *c,
                               struct origin_request_stats *out);
void origin_stats(const struct origin *o, struct origin_request_stats *out);
/* What the health of an origin is made of. whole: the answer has come to its end, not only its
 * head. */
void origin_answered(const struct origin *o, bool whole);
void origin_failed(const struct origin *o, bool broke_off, const char *why);
/* All zero for an origin that a reload has put in the place of one that failed. */
void origin_health(const struct origin *o, struct origin_health *out);

#endif
