/* filler.h - a filler from within, for filler.c and splice.c.
 *
 * threads  the fetch thread; its job: a pool thread, which touches `data` and what write_out() says
 */
#ifndef SERVER_CACHE_FILLER_H
#define SERVER_CACHE_FILLER_H

#include <event2/event.h>

#include "server/cache/cache_priv.h"

struct filler { /* one upstream request after the other, until its segment is there */
    struct fill *fill;
    unsigned slot;
    struct fetch *fetch;      /* NULL between two requests */
    const struct object *old; /* borrowed during the first request: what is revalidated */
    uint64_t end;             /* of the segment; LENGTH_UNKNOWN: to the end, wherever it is */
    uint64_t recv;            /* next byte to come */
    uint64_t ask_end;         /* of the request under way; LENGTH_UNKNOWN: no Range */
    struct buf gather;        /* what came, [recv - gather.n, recv) */
    bool paused;
    bool
        resting; /* nobody wants its bytes for the moment: the origin is not read from, nor asked again */
    bool replay; /* from byte 0 again: what is there is compared, not written */
    bool again;  /* the answer does not fit: ask anew, for all of it */
    bool other;  /* the first head was the owner's business */
    const struct fetch_head
        *no;       /* it is, once its text is in `gather`; or NULL. In the fill's arena */
    bool over;     /* the request ended, with rc */
    bool straight; /* this request went where an earlier one was led, */
    bool detour;   /* ... the next asks again where that is */
    bool dead;     /* stopped; its write is still out */
    int rc;
    struct err why;
    uint64_t fresh_bytes; /* new ones since the last trouble */
    unsigned tries;       /* since the last progress */
    unsigned cuts;        /* of these, the origin gave a head and no body */
    bool headed;          /* this request has its head */
    uint64_t wrote_ms;    /* when the last write was begun */
    struct event *timer;  /* gathered long enough; or the next try */
    bool writing;
    bool held;              /* `data` waits for room, the timer has it written again */
    uint64_t held_since_ms; /* since when no write had room; 0: the last one had */
    struct job job;
    struct buf data; /* being written */
    uint64_t data_at;
    bool write_waits; /* without room it is held: other fills of its client are not sealed yet */
    int write_rc;
    struct err write_why;
};

void filler_claim(struct filler *fl);
void filler_stop(struct filler *fl); /* no event comes any more; it may still be writing */

/* splice.c: the head of a request. 0: its body may come; else it is cancelled, and `other`, `again`, rc or the fill's end
 * say why. */
int splice_first(struct filler *fl, const struct fetch_head *h); /* of the fill */
/* The text that belongs to fl->no has come, whole or not. */
void splice_tell(struct filler *fl, bool whole);
int splice_later(struct filler *fl, const struct fetch_head *h);
void splice_forget_earlier(struct fill *f); /* what was parked is of another generation */
MUST_USE int splice_check_length(const struct fill *f, uint64_t n, bool whole, struct err *e);

#endif
