/* origin.h - which hosts may be reached for a repo, and how (docs/security.md).
 *
 * An origin is made from the configuration and does not change after that, apart from its counters.
 *
 * owns     counted: fetches under way hold theirs, so a reload may free the configuration's
 * threads  any
 * errors   E_CONFIG: the settings are invalid; E_DENIED: the host may not be reached
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
    /* `url` and others with the same files (alternates.h); may be empty: there are no others. */
    const char *const *urls;
    size_t urls_count;
    /* The protocol that is spoken to it: the same URL with another protocol is another origin. Or
     * NULL. */
    const char *kind;
    const char *const *moved_from; /* URLs where the same files were earlier */
    size_t moved_from_count;
    /* host[:port] that links and redirects may name; NULL with hosts_count 0: the defaults of
     * docs/security.md */
    const char *const *hosts;
    size_t hosts_count;
    bool hosts_set;    /* `hosts` was configured, even if empty */
    const char *proxy; /* or NULL */
    const char *no_proxy;
    /* Names of pages and redirects are resolved and checked here before the proxy is asked. */
    bool proxy_resolve;
    const char *ca_file;
    /* only sent to the origin's own host: "Bearer ..."; or a bucket's keys */
    const char *authorization;
    const char *endpoint;      /* of a bucket: "https://minio.example:9000"; NULL: Amazon's */
    const char *region;        /* NULL: us-east-1 */
    const char *addressing;    /* "path", "virtual"; NULL: path with an endpoint, virtual without */
    bool tokens;               /* it may require tokens of its token server (bearer.h) */
    uint32_t connections;      /* 16 at a time to this origin */
    uint32_t waiting;          /* 4096; see struct crowd */
    uint32_t connect_ms;       /* 10 s */
    uint32_t stall_ms;         /* 30 s without a byte */
    uint32_t patience_ms;      /* 1.5 s; see origin_patience_ms() */
    uint64_t rate_bytes_per_s; /* 0: no limit */
};

struct origin;
MUST_USE int origin_new(const char *repo, const struct origin_settings *set, struct origin **out,
                        struct err *e);
struct origin *origin_hold(const struct origin *o);
void origin_free(struct origin **op); /* releases one count; NULL is fine */
/* http or https, with a '/' at the end; the first one if there are several */
const char *origin_url(const struct origin *o);
/* Is this a URL that an origin can have? http, https and s3 are; others (rsync) are reached
 * differently. */
bool origin_speaks(const char *url);
struct origin_bucket {
    char *name;   /* "models" */
    char *url;    /* of the bucket itself, with a '/' at the end */
    char *prefix; /* of all keys, raw; empty, or with a '/' at the end */
    char *region;
};
const struct origin_bucket *origin_bucket(const struct origin *o); /* NULL: it is not a bucket */
/* The header lines that authorize a GET or HEAD of one of its URLs; they are as secret as the
 * credential. Those of a bucket are only for this URL at this time, and *url is changed to the form
 * that is signed. */
enum { ORIGIN_LINES = 5 };
MUST_USE int origin_credential(const struct origin *o, bool head, uint64_t unix_s, struct buf *url,
                               struct arena *a, struct slice lines[ORIGIN_LINES], size_t *n,
                               struct err *e);
/* The id of an origin in stored data; never 0. */
uint64_t origin_identity_of(struct slice kind, struct slice url);
uint64_t origin_identity(const struct origin *o);
/* Is that this origin, or one that it has moved from? 0: the origin was not noted, so it counts as
 * this one. */
bool origin_owns(const struct origin *o, uint64_t identity);
/* scheme://host[:port] of a URL, lower case, without the default port: the key of file-origin
 * tables. */
MUST_USE int url_origin_key(struct slice url, struct buf *out, struct err *e);
/* May this absolute URL be fetched for the repo? via: the URL of the page or redirect that named it
 * (p == NULL: the configuration). The sentence of E_DENIED says why not. Literal addresses are
 * checked here, those of names when connecting. */
MUST_USE int origin_admits(const struct origin *o, struct slice url, struct slice via,
                           struct err *e);

/* The requests that wait for the origin's first byte. Only for the cache, on its thread. */
struct crowd *origin_crowd(struct origin *o);

/* Of a cluster: so many mirrors share connections and rate. A sync's requests are one mirror's and
 * do not count. 0 is 1. */
void origin_share(struct origin *o, uint32_t mirrors);
/* For how long the origin still wants no requests, as it has said to this mirror. */
uint64_t origin_asked_rest_ms(const struct origin *o);
/* Another mirror has heard this from it: requests pause for so long. */
void origin_rest(struct origin *o, uint64_t ms);

/* How long a client waits for the origin if there is another answer, or if the origin did not
 * answer just now. */
uint64_t origin_patience_ms(const struct origin *o);

struct origin_health { /* how an origin's latest requests went */
    /* Failures in a row: no answer, an answer that was cut off, or a 5xx. 0: the last request
     * succeeded. */
    uint64_t failures;
    uint64_t since_unix_s, last_unix_s; /* when the first and the latest of them failed */
    char why[200];                      /* of the latest */
};

struct origin_request_counters { /* origin_request_counters_init() */
    _Atomic uint64_t requests, bytes, errors, throttled;
    struct lock lock; /* guards all below */
    struct origin_health health;
    uint64_t identity; /* of the origin that `health` is about */
    /* the latest answer began and did not end: a head alone does not count as success */
    bool broke_off;
    _Atomic bool failing; /* health.failures > 0; read without the lock */
};
void origin_request_counters_init(struct origin_request_counters *c);
void origin_request_counters_fini(struct origin_request_counters *c);
/* Counts there from now on, because a counter must not go back when a reload makes new origins. The
 * counters are borrowed for good. Call it before the origin is used. */
void origin_count_in(struct origin *o, struct origin_request_counters *c);

struct origin_request_stats { /* for /metrics and status: racy reads */
    uint64_t requests, bytes, errors, throttled;
};
void origin_request_stats_read(const struct origin_request_counters *c,
                               struct origin_request_stats *out);
void origin_stats(const struct origin *o, struct origin_request_stats *out);
/* Report results for the origin's health. whole: the answer has arrived to its end, not only its
 * head. */
void origin_answered(const struct origin *o, bool whole);
void origin_failed(const struct origin *o, bool broke_off, const char *why);
/* Of several URLs: how many have failed so often in a row, although others answer. *url: one of
 * them. */
unsigned origin_away(const struct origin *o, unsigned failures, const char **url);
/* All zero for a new origin that a reload has put in the place of one that failed. */
void origin_health(const struct origin *o, struct origin_health *out);

#endif
