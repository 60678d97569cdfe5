/* keep.h - what may go and what must stay: eviction, collection, scrub and the store's fsck.
 *
 * Eviction (pressure) takes blobs reachable from pull-through objects alone, in two pools by size,
 * by sampled LRU; pinned and tree-held blobs never go. Collection takes what nothing refers to.
 * Scrub reads blobs again and compares.
 *
 * threads  any one at a time per function; all block: they run on the keeper's own thread or a pool
 */
#ifndef SERVER_STORE_KEEP_H
#define SERVER_STORE_KEEP_H

#include "server/store/blob.h"

/* holder keys: digest, repo, NUL, kind, key. Kinds: 'o' an object row, 't' a tree (key: its name),
 * 'u' an upload session (key: its id in TABLE_UPLOAD), 's' what a sync has fetched (key: the path
 * in TABLE_STAGE). A holder is believed: whoever points an object's row at another digest removes
 * the old holder in the same batch, and 't' holders go into the batch that publishes. Blobs with a
 * holder other than 'o', or with none, are never evicted. */
void holder_key(struct buf *out, const struct digest *d, struct slice repo, char kind,
                struct slice key);
MUST_USE int holder_each(struct store *s, const struct digest *d,
                         int (*each)(void *arg, struct slice repo, char kind, struct slice key),
                         void *arg, struct err *e);

/* Of one repo and kind. */
MUST_USE int holder_each_of(struct store *s, const struct digest *d, struct slice repo, char kind,
                            int (*each)(void *arg, struct slice repo, char kind, struct slice key),
                            void *arg, struct err *e);
/* As holder_each(), for those who look for few among many: each() may return HOLDER_SKIP, and what
 * is not of interest is passed over, up to the kind and key of this repo that it has written to
 * `to`, or, when that is empty, to the next repo. */
enum { HOLDER_SKIP = 1 << 20 };
MUST_USE int holder_seek(struct store *s, const struct digest *d,
                         int (*each)(void *arg, struct slice repo, char kind, struct slice key,
                                     struct buf *to),
                         void *arg, struct err *e);

struct evict_events {
    /* After the batch that dropped an object's row is committed (a lookup in between would find the
     * row again): the cache forgets it on every loop. Whoever holds the blob reads on. */
    void (*on_forget)(void *arg, struct slice repo, struct slice key);
    void *arg;
    void (*on_gone)(void *arg, const struct digest *d); /* likewise, of the blob; or NULL */
};
/* Frees space until `used` is at the low mark (or need_bytes fit); *freed says how much. E_NOSPACE:
 * nothing left to evict. */
MUST_USE int evict_run(struct store *s, uint64_t need_bytes, const struct evict_events *ev,
                       uint64_t *freed, struct err *e);
/* For somebody who may not put out what others use: makes need_bytes fit below the low mark, and no
 * more, by `own`, in that order, and then by what nobody has used in that hour or later. E_NOSPACE:
 * it is not enough. *others: something of others was in the way; without that a full store harms
 * nobody. */
struct evict_bounds {
    const struct digest *own; /* or NULL */
    size_t count;
    uint32_t unused_since_hour; /* 0: `own` alone */
};
MUST_USE int evict_bounded(struct store *s, uint64_t need_bytes, const struct evict_bounds *bounds,
                           const struct evict_events *ev, uint64_t *freed, bool *others,
                           struct err *e);
/* What could go so: of what nobody has used in that hour or later, up to enough_bytes. Removes
 * nothing. */
MUST_USE int evict_measure(struct store *s, uint32_t unused_since_hour, uint64_t enough_bytes,
                           uint64_t *bytes, struct err *e);
/* True when the high mark is passed (or the disk's reserve is touched). */
bool evict_needed(struct store *s);

/* Pins: scope is "repo" or "repo/key-prefix". With keys (of object rows, without NUL) the scope is
 * only its name: those and no others stay, also such as come later. */
MUST_USE int pin_set(struct store *s, struct slice scope, struct slice owner, struct err *e);
MUST_USE int pin_set_keys(struct store *s, struct slice scope, struct slice owner,
                          const struct slice *keys, size_t count, struct err *e);
MUST_USE int pin_clear(struct store *s, struct slice scope, struct err *e);
struct pin_info {
    struct slice scope, owner;
    struct slice keys; /* each with a NUL behind it; n == 0: all below the scope */
};
MUST_USE int pin_list(struct store *s, int (*each)(void *arg, const struct pin_info *p), void *arg,
                      struct err *e);

struct gc_report {
    uint64_t blobs, bytes, nodes;
};
/* Mark from object rows, heads, snaps, upload sessions and pins; sweep older than grace_s. dry:
 * only count. */
MUST_USE int gc_run(struct store *s, uint64_t grace_s, bool dry, struct gc_report *out,
                    struct err *e);

struct verify_report {
    uint64_t blobs, bytes, orphans, damaged, missing, bad_rows, repaired;
};
static inline bool verify_is_clean(const struct verify_report *r) /* orphans are no damage */
{
    return r->damaged + r->missing + r->bad_rows <= r->repaired;
}
/* The invariants of verify.c. deep: hashes every blob. repair: removes orphans always; with repair
 * also rows that point nowhere and damaged blobs (quarantined, to be refetched). progress may be
 * NULL; when it returns false, no more is looked at: E_CANCELLED. Works on a live store. */
MUST_USE int verify_run(struct store *s, bool deep, bool repair,
                        bool (*progress)(void *arg, uint64_t done, uint64_t total),
                        void (*finding)(void *arg, const char *what), void *arg,
                        struct verify_report *out, struct err *e);

/* A blob that is not what its row says: made sure of, then dropped, so that a later want refetches
 * it. The objects that led to it go with it; a tree that holds it keeps its entry, and a new seal
 * of the digest heals it. A file is moved to quarantine/ for a look; eviction empties that folder
 * first. Only what a tree or an upload held, which no origin may be able to give again, stays there
 * for 30 days, or until somebody brings the right bytes. */
enum damage {
    DAMAGE_PLACE, /* bytes missing, or not as many as they should be: looked at again on the commit thread */
    DAMAGE_BYTES,      /* the caller has hashed them */
    DAMAGE_UNREADABLE, /* the disk gave an error */
};

/* 0: dropped. E_CHANGED: it is gone, or good by now. E_IO: it cannot be read and stays, for no
 * origin has it: a disk, or the way to it, may come back. */
MUST_USE int damage_confirm(struct store *s, const struct digest *d, enum damage how,
                            struct err *e);

/* One step of the scrubber: hashes blobs from the persisted cursor until `budget_bytes` are read;
 * those written or hashed at before_unix_s or later are passed over. Nothing read: none is due. */
MUST_USE int scrub_step(struct store *s, uint64_t budget_bytes, uint64_t before_unix_s,
                        uint64_t *read_bytes, uint64_t *damaged, struct err *e);

#endif
