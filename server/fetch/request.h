/* request.h - one GET, HEAD or small POST at an origin: redirects hop by hop, admission,
 * credentials, retry of what never began.
 *
 * Built on common/xfer. Runs on the fetcher's own loop thread; the caller lives there too
 * (cache/fill does). A fetch gives the final head (never a 3xx that could be followed), then bytes,
 * then exactly one done. It retries by itself only while no head was given: connection trouble,
 * 429/503 with Retry-After within the budget; later trouble is the caller's, who knows what has
 * arrived and resumes by range.
 *
 * Requests to a bucket of S3 (s3.h) are signed hop by hop and try by try. Of its refusals the body
 * is read first, none is given on: what concerns the whole bucket (region, keys, clock) ends the
 * fetch with the sentence, E_CONFIG or E_DENIED.
 */
#ifndef SERVER_FETCH_REQUEST_H
#define SERVER_FETCH_REQUEST_H

#include "server/fetch/head.h"
#include "server/fetch/origin.h"
#include "server/fetch/silence.h"

struct event_base;
struct origin_client;
struct origin_request;

enum { ORIGIN_REQUEST_FIELDS = 8 };
struct origin_request_params {
    const struct origin *origin;
    uint64_t client;  /* for whom: they take turns (origin_queue.h); 0: nobody in particular */
    struct slice url; /* absolute */
    struct slice via; /* page that named it, or p == NULL: the configuration did */
    bool head;        /* HEAD */
    bool stays_home;  /* a redirect to another host than the origin's own is E_PROTOCOL */
    /* n != 0: a POST of that, safe to be sent again; a redirect of it is E_PROTOCOL */
    struct slice body;
    struct slice body_type; /* Content-Type */
    uint64_t first; /* bytes [first, end); end == LENGTH_UNKNOWN: no Range is sent, first is 0 */
    uint64_t end;
    struct slice if_range;      /* strong validator, or p == NULL */
    struct slice if_match;      /* that or nothing (412); or p == NULL */
    struct slice if_none_match; /* conditional refresh; or p == NULL */
    struct slice if_modified_since;
    struct slice accept; /* Accept, or p == NULL */
    /* Further ones of the client's. What names a taste (Accept...) goes along with redirects,
     * others are for the origin's own host: who knows what an X-... says. */
    const struct http_field *fields;
    size_t nfields; /* up to ORIGIN_REQUEST_FIELDS */
    /* the caller's own, in pass-through repos; or p == NULL: the origin's */
    struct slice authorization;
    /* of an origin with tokens (bearer.h): what one would be for; or p == NULL */
    struct slice token_scope;
    /* What the origin calls these bytes in ORIGIN_CONTENT_FIELD. A redirect or an answer of the
     * origin that names others, and an answer after no name at all, is given as a 412. p == NULL:
     * no name is looked at. */
    struct slice content;
};
#define ORIGIN_CONTENT_FIELD "x-xet-hash"

struct origin_request_events {
    int (*on_head)(
        void *arg,
        const struct origin_head *h); /* nonzero: cancel; on_done follows with E_CANCELLED */
    int (*on_body)(
        void *arg,
        struct slice bytes); /* ORIGIN_REQUEST_PAUSE pushes back, until origin_request_resume() */
    void (*on_done)(void *arg, int rc, const struct err *why);
};
enum { ORIGIN_REQUEST_PAUSE = 1 };

enum origin_client_use {
    ORIGIN_CLIENT_SHARED, /* by clients: none of them has all connections to an origin */
    ORIGIN_CLIENT_ALONE,
};
struct origin_client *origin_client_open(struct event_base *base, enum origin_client_use use);
struct origin_request *origin_request_start(struct origin_client *f,
                                            const struct origin_request_params *w,
                                            const struct origin_request_events *ev, void *arg);
void origin_request_resume(struct origin_request *x);
/* Another client wants the same: they take its turns by whichever's comes first. */
void origin_request_share(struct origin_request *x, uint64_t client);
bool origin_request_has_turn(
    const struct origin_request *x); /* it has a connection, or is about to */
/* Nobody reads it for the moment: when others wait for its connection, wanted() is called, once.
 * NULL: somebody does again. */
void origin_request_rest(struct origin_request *x, void (*wanted)(void *arg));
void origin_request_cancel(struct origin_request **xp); /* no event after it returns */
void origin_client_close(struct origin_client **fp);

/* Does the host of that URL answer, as far as this fetcher has seen? Of the origin's own it knows.
 * why: unless it was heard. */
enum origin_word origin_client_word(struct origin_client *f, const struct origin *o,
                                    struct slice url, struct err *why);
/* It is silent: may one request ask whether it is back? A yes counts as that request. */
bool origin_client_probes(struct origin_client *f, const struct origin *o, struct slice url);

#endif
