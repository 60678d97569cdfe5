/* transfer.h - moves the bytes of one file into its partial file: parts of 8 MiB in parallel,
 * each checked against the mirror's chunk list before it is written, or one stream if there is no
 * list. Its SHA-256 is computed as they arrive.
 *
 * Parts come from the mirror, and from peers if there are any. A connection that breaks is
 * resumed; one that is too slow is replaced. Of several mirrors (agent/mirrors.h) the next goes on
 * where one has failed, with the byte after the last one that came. The caller decides what to do
 * about failures that no other mirror helps with, which are reported as events.
 *
 * owns     the partial file, by parts.h, whose lock the caller holds; transfer_close() requires it
 *          to be idle
 * events   on the loop; `on_event` may close the transfer, which does nothing after it
 * threads  the loop's; hashing and writing are done on the loop's pools
 */
#ifndef AGENT_PULL_TRANSFER_H
#define AGENT_PULL_TRANSFER_H

#include "agent/pull/loop.h"
#include "agent/pull/parts.h"

struct transfer;

struct pull_object { /* what is known about a file; a stream's header section may add to it */
    struct slice url;
    struct digest digest;
    bool known;                 /* digest */
    bool several;               /* mirrors: the ETag is that of one of them */
    struct digest key;          /* of the order of the mirrors */
    bool no_ranges;             /* the response to a range request was the whole file */
    uint64_t size_bytes;        /* SIZE_UNKNOWN */
    char etag[PARTS_ETAG_ROOM]; /* strong, or "" */
};

enum transfer_event {
    /* a request, a write or a step of hashing has ended: check whether it is complete or idle */
    TRANSFER_MOVED,
    TRANSFER_WRITTEN, /* the same, and a part is on the disk */
    TRANSFER_LATER,   /* a temporary failure; after_s: the mirror's Retry-After */
    /* the mirror has a different object (E_CHANGED), or one that cannot be resumed (E_AGAIN) */
    TRANSFER_CHANGED,
    TRANSFER_FAILED,  /* permanent: another try would not help */
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
    TRANSFER_WHOLE,   /* it got its name in the cache, and peers may have it */
    TRANSFER_SAVE,    /* the partial file stays, and its contents are recorded */
    TRANSFER_KEEP,    /* the partial file stays, as far as it has been recorded */
    TRANSFER_DISCARD, /* the partial file is removed */
};
void transfer_close(struct transfer **tp, enum transfer_end how); /* NULL is fine */

/* Starts what can be started; no request goes to the mirror before not_before_ms. */
void transfer_feed(struct transfer *t, uint64_t not_before_ms);
/* saves progress, replaces slow connections */
void transfer_tick(struct transfer *t, uint64_t now_ms);
/* Cancels all requests; running writes go on until it is idle. */
void transfer_stop(struct transfer *t);
bool transfer_is_idle(const struct transfer *t);

/* True: all bytes are there, and *got is their hash. */
MUST_USE bool transfer_is_whole(struct transfer *t, struct digest *got);
/* The hash differs from the required digest: parts of an earlier run may be damaged. Reads
 * everything again; TRANSFER_CHECKED reports the number of parts that do not match the chunk
 * list, as rc, or an E_*. Those are missing from then on. */
void transfer_check(struct transfer *t);
struct transfer_view { /* of its partial file */
    int fd;
    bool stateless; /* no .state next to it */
    bool chunked;   /* each part was checked against the chunk list */
    bool resumed;   /* parts of it are an earlier run's */
    /* a bit for each mirror that some of the bytes are from, since the transfer was opened */
    uint64_t mirrors;
};
struct transfer_view transfer_view(const struct transfer *t);

/* Judges a header section for the range first..last of the object, or without `ranged` for all of
 * it: 0, or why it cannot be used. Adds to the object what the header section states about the
 * whole. Pure. */
struct transfer_range {
    bool ranged;
    uint64_t first, last;
};
MUST_USE int transfer_judge(struct pull_object *o, const struct transfer_range *r,
                            const struct xfer_head *h);

#endif
