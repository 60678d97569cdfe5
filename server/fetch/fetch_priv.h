/* fetch_priv.h - a fetch from within, for fetch.c (its life: the lane, the answers, tries and redirects) and fetch_ask.c (what
 * goes out at each hop) alone.
 */
#ifndef SERVER_FETCH_FETCH_PRIV_H
#define SERVER_FETCH_FETCH_PRIV_H

#include "common/xfer/xfer.h"
#include "server/fetch/bearer.h"
#include "server/fetch/fetch.h"
#include "server/fetch/lane.h"

enum { FETCH_MAGIC = 0x66657463 };

struct fetcher {
    struct event_base *base;
    struct xfer_loop *xfers;
    struct list lanes;
    enum fetcher_use use;
    uint64_t seed;
};

struct fetch {
    uint32_t magic;
    struct fetcher *fetcher;
    struct lane *lane;
    struct lane_seat seat;
    struct fair_clients clients; /* for whom; the want's first */
    struct origin *origin;       /* held */
    struct arena arena;
    struct fetch_want want;
    struct fetch_events ev;
    void *arg;
    void (*wanted)(void *arg); /* while it rests */
    struct xfer *xfer;
    struct event *timer; /* a retry, or bad news that may not be told inside fetch_start() */
    struct buf url;      /* of this hop */
    struct buf via;      /* of the hop before */
    bool via_set;
    bool home;    /* this hop's host is the origin's own */
    bool swallow; /* this answer is not for the caller */
    bool follow;  /* ... it leads elsewhere: next_url */
    bool head_given;
    bool content_named; /* the origin has said that these are the bytes of want.content */
    int status;         /* of that head */
    bool held_by_user;
    bool held_by_rate;
    bool in_event;
    bool dead; /* cancelled inside an event: freed when that returns */
    unsigned hops;
    unsigned tries;
    uint64_t wait_ms; /* of the answer that is swallowed */
    uint64_t swallowed_bytes;
    uint64_t got_bytes;
    uint64_t due_bytes;      /* of a 206 */
    struct refusal *refusal; /* a bucket's no, while its reason comes; else NULL */
    int rc;                  /* bad news on its way */
    struct err why;
    struct bearer_wait token; /* one is awaited */
    uint64_t token_number;    /* of the one that was shown; 0: none */
    bool challenged;          /* the origin has asked for one: not twice */
    uint64_t began_ms;        /* its first try went out; 0: none has */
    bool unheard;             /* a try is out to the origin's own host, and has no word */
    bool unanswered;          /* so ended the last one */
};

/* Asks the hop that x->url names, or waits for a token first: x->token.go goes on then. An error: it may not be asked, *x has why. */
MUST_USE int fetch_ask(struct fetch *x, const struct xfer_events *events);
/* Does this hop go to where tokens are good? A caller's own credential stands for itself. */
bool fetch_shows_tokens(const struct fetch *x);

#endif
