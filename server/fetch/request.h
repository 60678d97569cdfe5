/* request.h - one GET, HEAD or small POST at an origin: redirects hop by hop, admission,
 * credentials, and retries of requests without a response.
 *
 * Of an origin with several URLs (alternates.h) the next one is asked when the first gives no head,
 * or one of 500, 502, 503 or 504. One that breaks off later is not asked next, so a caller that
 * resumes by range goes on at another one.
 *
 * It is built on common/xfer. The caller gets the final head (never a 3xx that could be followed),
 * then bytes, then exactly one on_done. A request is only retried before a head was given: after
 * connection trouble, or a 429 or 503 with Retry-After within the budget. Later trouble is left to
 * the caller, which knows what has arrived and resumes by range.
 *
 * Requests to an S3 bucket (s3.h) are signed for each hop and each try. The body of a bucket's
 * refusal is read first and never passed on. A refusal that concerns the whole bucket (region,
 * keys, clock) ends the request with that sentence, E_CONFIG or E_DENIED.
 *
 * owns     a request is freed after on_done(), or by origin_request_cancel()
 * threads  the fetcher's own loop thread, where the caller lives, too (cache/fetch.c)
 * errors   on_done() gets the code and the reason
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
    /* for whom: clients take turns (origin_queue.h); 0: for no client in particular */
    uint64_t client;
    struct slice url; /* absolute */
    struct slice via; /* the page that named it, or p == NULL: the configuration did */
    bool head;        /* HEAD */
    bool stays_home;  /* a redirect to a host other than the origin's own is E_PROTOCOL */
    /* n != 0: send a POST with this body, which must be safe to repeat; a redirect of it is
     * E_PROTOCOL. */
    struct slice body;
    struct slice body_type; /* Content-Type */
    /* bytes [first, end); end == LENGTH_UNKNOWN: no Range is sent, and first is 0 */
    uint64_t first;
    uint64_t end;
    struct slice if_range;      /* strong validator, or p == NULL */
    struct slice if_match;      /* only this version, else 412; or p == NULL */
    struct slice if_none_match; /* conditional refresh; or p == NULL */
    struct slice if_modified_since;
    struct slice accept; /* Accept, or p == NULL */
    /* Further fields of the client. Preferences (Accept...) are also sent after redirects; all
     * others only go to the origin's own host, because an X-... field may have any meaning. */
    const struct http_field *fields;
    size_t nfields; /* up to ORIGIN_REQUEST_FIELDS */
    /* the caller's own, in pass-through repos; p == NULL: the origin's */
    struct slice authorization;
    /* for an origin with tokens (bearer.h): the scope of the token; or p == NULL */
    struct slice token_scope;
    /* The origin's name for these bytes, in ORIGIN_CONTENT_FIELD. A redirect or a response of the
     * origin with another name, and a response that had no name at all, is reported as a 412. p ==
     * NULL: names are ignored. */
    struct slice content;
    /* The caller asks elsewhere instead of here again: there is no second try, and a Retry-After is
     * only passed on. */
    bool once;
};
#define ORIGIN_CONTENT_FIELD "x-xet-hash"

struct origin_request_events {
    int (*on_head)(
        void *arg,
        const struct origin_head *h); /* nonzero: cancel; on_done follows with E_CANCELLED */
    int (*on_body)(
        void *arg,
        struct slice bytes); /* ORIGIN_REQUEST_PAUSE stops reading until origin_request_resume() */
    void (*on_done)(void *arg, int rc, const struct err *why);
};
enum { ORIGIN_REQUEST_PAUSE = 1 };

enum origin_client_use {
    ORIGIN_CLIENT_SHARED, /* shared by clients: none of them has all connections to an origin */
    ORIGIN_CLIENT_ALONE,
};
struct origin_client *origin_client_open(struct event_base *base, enum origin_client_use use);
struct origin_request *origin_request_start(struct origin_client *f,
                                            const struct origin_request_params *w,
                                            const struct origin_request_events *ev, void *arg);
void origin_request_resume(struct origin_request *x);
/* Another client needs the same: the request gets the turn of whichever comes first. */
void origin_request_share(struct origin_request *x, uint64_t client);
bool origin_request_has_turn(
    const struct origin_request *x); /* it has a connection, or is about to get one */
/* The bytes are not needed for now: when others wait for its connection, wanted() is called, once.
 * NULL: they are needed again. */
void origin_request_rest(struct origin_request *x, void (*wanted)(void *arg));
void origin_request_cancel(struct origin_request **xp); /* no event after it returns */
void origin_client_close(struct origin_client **fp);

/* Whether the host of that URL answers, as far as this fetcher knows; only known for the origin's
 * own host. why: set unless it has answered. */
enum origin_word origin_client_word(struct origin_client *f, const struct origin *o,
                                    struct slice url, struct err *why);
/* The host is silent: may one request probe it? True counts as that request. */
bool origin_client_probes(struct origin_client *f, const struct origin *o, struct slice url);

#endif
