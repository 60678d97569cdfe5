/* transfer.h - the bytes of one file on their way into its partial file: parts of 8 MiB in
 * parallel, each checked against the mirror's chunk list before it is written, or without a list
 * one stream. Its SHA-256 follows as they come.
 *
 * Parts come from the mirror, and from peers where there are some. A connection that breaks goes on
 * where it was; one that crawls is replaced. What is to be done about trouble is the caller's to
 * say: it is told by events.
 *
 * owns     the partial file, by parts.h, whose lock the caller holds; transfer_close() needs it
 *          idle
 * events   on the loop; `on_event` may close the transfer, which does nothing after it
 * threads  the loop's; hashing and writing are done on the loop's pools
 */
#ifndef AGENT_PULL_TRANSFER_H
#define AGENT_PULL_TRANSFER_H

#include "agent/pull/loop.h"
#include "agent/pull/parts.h"

struct transfer;

struct pull_object { /* what is known of a file; a stream's head may add to it */
    struct slice url;
    struct digest digest;
    bool known;                 /* digest */
    bool no_ranges;             /* a range was answered by the whole */
    uint64_t size_bytes;        /* SIZE_UNKNOWN */
    char etag[PARTS_ETAG_ROOM]; /* strong, or "" */
};

enum transfer_event {
    TRANSFER_MOVED, /* a request, a write or a stretch of hashing has ended: is it whole, or idle? */
    TRANSFER_WRITTEN, /* the same, and a part is on the disk */
    TRANSFER_LATER,   /* trouble that may pass; after_s: the mirror said Retry-After */
    TRANSFER_CHANGED, /* what the mirror has is another object (E_CHANGED), or cannot be gone on with (E_AGAIN) */
    TRANSFER_FAILED,  /* another try would do no better */
    TRANSFER_CHECKED, /* transfer_check() has ended */
};

struct transfer_params {
    const struct digest *key; /* of the partial file */
    struct pull_object *object;
    struct pull_tally *tally;
    struct chunk_list *list; /* taken; NULL: one stream */
    void (*on_event)(void *arg, enum transfer_event what, int rc, const struct err *why,
                     uint64_t after_s);
    void *arg;
};

/* Takes up what an earlier run left. */
MUST_USE int transfer_open(struct pull_loop *l, const struct transfer_params *w,
                           struct transfer **out, struct err *e);
enum transfer_end {
    TRANSFER_WHOLE,   /* it got its name in the cache, and peers are given it on */
    TRANSFER_SAVE,    /* the partial file stays, and what is in it is noted */
    TRANSFER_KEEP,    /* the partial file stays, as far as it has been noted */
    TRANSFER_DISCARD, /* the partial file goes */
};
void transfer_close(struct transfer **tp, enum transfer_end how); /* NULL is fine */

/* Starts what can be started; the mirror is not asked before not_before_ms. */
void transfer_feed(struct transfer *t, uint64_t not_before_ms);
void transfer_tick(struct transfer *t, uint64_t now_ms); /* saves progress, replaces what crawls */
/* Cancels all requests; what is being written goes on until it is idle. */
void transfer_stop(struct transfer *t);
bool transfer_is_idle(const struct transfer *t);

/* True: all bytes are there, and hash to *got. */
MUST_USE bool transfer_is_whole(struct transfer *t, struct digest *got);
/* They hash to another digest than they should: what an earlier run wrote may have rotted. Reads
 * all of it anew; TRANSFER_CHECKED tells how many parts are not what the chunk list says, as rc, or
 * an E_*. Those are missing from then on. */
void transfer_check(struct transfer *t);
struct transfer_view { /* of its partial file */
    int fd;
    bool stateless; /* no .state beside it */
    bool chunked;   /* each part was checked against the chunk list */
    bool resumed;   /* some of it is an earlier run's */
};
struct transfer_view transfer_view(const struct transfer *t);

/* What a head means for the range first..last of the object, or without `ranged` for all of it: 0,
 * or why it is of no use. Adds to the object what the head tells of all of it. Pure. */
struct transfer_range {
    bool ranged;
    uint64_t first, last;
};
MUST_USE int transfer_judge(struct pull_object *o, const struct transfer_range *r,
                            const struct xfer_head *h);

#endif
