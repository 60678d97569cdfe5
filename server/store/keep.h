/* keep.h - what may be removed and what must stay: eviction, collection, scrub and the store's
 * fsck.
 *
 * Eviction makes room. It removes blobs that only pull-through objects refer to, in two pools by
 * size, by sampled LRU; blobs that are pinned or held by a tree are never evicted. Collection
 * removes blobs that nothing refers to. Scrub reads blobs again and compares their digests.
 *
 * owns     nothing
 * threads  any, one at a time per function; all block: they run on the keeper's own thread or on a
 *          pool
 * errors   E_NOSPACE: eviction could not make enough room
 */
#ifndef SERVER_STORE_KEEP_H
#define SERVER_STORE_KEEP_H

#include "server/store/blob.h"

/* Holder keys: digest, repo, NUL, kind, key. Kinds: 'o' an object row, 't' a tree (key: its name),
 * 'u' an upload session (key: its id in TABLE_UPLOAD), 's' a file that a sync has fetched (key: the
 * path in TABLE_STAGE). Holders are not verified: code that points an object's row at another
 * digest must remove the old holder in the same batch, and 't' holders go into the batch that
 * publishes. Blobs with a holder other than 'o', or with none, are never evicted. */
void holder_key(struct buf *out, const struct digest *d, struct slice repo, char kind,
                struct slice key);
MUST_USE int holder_each(struct store *s, const struct digest *d,
                         int (*each)(void *arg, struct slice repo, char kind, struct slice key),
                         void *arg, struct err *e);

/* Only those of one repo and kind. */
MUST_USE int holder_each_of(struct store *s, const struct digest *d, struct slice repo, char kind,
                            int (*each)(void *arg, struct slice repo, char kind, struct slice key),
                            void *arg, struct err *e);
/* As holder_each(), for a caller that needs few holders among many. When each() returns
 * HOLDER_SKIP, the scan continues at the kind and key of this repo that it has written to `to`, or
 * at the next repo if `to` is empty. */
enum { HOLDER_SKIP = 1 << 20 };
MUST_USE int holder_seek(struct store *s, const struct digest *d,
                         int (*each)(void *arg, struct slice repo, char kind, struct slice key,
                                     struct buf *to),
                         void *arg, struct err *e);

struct evict_events {
    /* Called after the commit of the batch that removed an object's row (a lookup in between would
     * find the row again). The cache forgets the object on every loop. Holders of the blob can go
     * on reading it. */
    void (*on_forget)(void *arg, struct slice repo, struct slice key);
    void *arg;
    void (*on_gone)(void *arg, const struct digest *d); /* the same, for the blob; or NULL */
};
/* Frees space until `used` is at the low mark (or need_bytes fit). *freed: how much. E_NOSPACE:
 * nothing is left to evict. */
MUST_USE int evict_run(struct store *s, uint64_t need_bytes, const struct evict_events *ev,
                       uint64_t *freed, struct err *e);
/* For a client that must not evict what others use. Makes need_bytes fit below the low mark, and no
 * more: it removes `own`, in that order, and then blobs that have not been used in that hour or
 * later. E_NOSPACE: that is not enough. *others: used blobs of other clients were in the way; if
 * not, a full store does no harm. */
struct evict_bounds {
    const struct digest *own; /* or NULL */
    size_t count;
    uint32_t unused_since_hour; /* 0: only `own` */
};
MUST_USE int evict_bounded(struct store *s, uint64_t need_bytes, const struct evict_bounds *bounds,
                           const struct evict_events *ev, uint64_t *freed, bool *others,
                           struct err *e);
/* Measures what evict_bounded() could remove: bytes not used in that hour or later, up to
 * enough_bytes. Removes nothing. */
MUST_USE int evict_measure(struct store *s, uint32_t unused_since_hour, uint64_t enough_bytes,
                           uint64_t *bytes, struct err *e);
/* True when the high mark is exceeded (or the disk's reserve is touched). */
bool evict_needed(struct store *s);

/* Pins. scope is "repo" or "repo/key-prefix". With keys (of object rows, without NUL) the scope is
 * only the pin's name: exactly these keys stay, including those that arrive later. */
MUST_USE int pin_set(struct store *s, struct slice scope, struct slice owner, struct err *e);
MUST_USE int pin_set_keys(struct store *s, struct slice scope, struct slice owner,
                          const struct slice *keys, size_t count, struct err *e);
MUST_USE int pin_clear(struct store *s, struct slice scope, struct err *e);
struct pin_info {
    struct slice scope, owner;
    struct slice keys; /* each followed by a NUL; n == 0: all below the scope */
};
MUST_USE int pin_list(struct store *s, int (*each)(void *arg, const struct pin_info *p), void *arg,
                      struct err *e);

struct gc_report {
    uint64_t blobs, bytes, nodes;
};
/* Marks from object rows, heads, snaps, upload sessions and pins, and sweeps what is older than
 * grace_s. dry: only count. */
MUST_USE int gc_run(struct store *s, uint64_t grace_s, bool dry, struct gc_report *out,
                    struct err *e);

struct verify_report {
    uint64_t blobs, bytes, orphans, damaged, missing, bad_rows, repaired;
};
static inline bool
verify_is_clean(const struct verify_report *r) /* orphans do not count as damage */
{
    return r->damaged + r->missing + r->bad_rows <= r->repaired;
}
/* Checks the invariants of verify.c. deep: hashes every blob. Orphans are always removed; with
 * `repair`, rows that point nowhere and damaged blobs are removed, too (quarantined, to be
 * downloaded again). progress may be NULL; when it returns false, the check ends with E_CANCELLED.
 * Works on a live store. */
MUST_USE int verify_run(struct store *s, bool deep, bool repair,
                        bool (*progress)(void *arg, uint64_t done, uint64_t total),
                        void (*finding)(void *arg, const char *what), void *arg,
                        struct verify_report *out, struct err *e);

/* A blob that does not match its row: this is confirmed, then the blob is dropped, so that a later
 * request downloads it again. The objects that refer to it are removed with it. A tree that holds
 * it keeps its entry, and a new seal of the digest heals it. A file is moved to quarantine/ for
 * inspection; eviction empties that folder first. A file that only a tree or an upload held, which
 * perhaps no origin can deliver again, stays there for 30 days, or until the right bytes are stored
 * again. */
enum damage {
    DAMAGE_PLACE,      /* bytes missing, or of another size: checked again on the commit thread */
    DAMAGE_BYTES,      /* the caller has hashed them */
    DAMAGE_UNREADABLE, /* the disk reported an error */
};

/* 0: dropped. E_CHANGED: it is gone, or good by now. E_IO: it cannot be read, and it stays because
 * no origin has it and it is not elsewhere (store.h): the disk, or the path to it, may come
 * back. */
MUST_USE int damage_confirm(struct store *s, const struct digest *d, enum damage how,
                            struct err *e);

/* The disk has failed to read the blob. If it fails again, or the bytes are wrong, and the blob is
 * elsewhere (store.h), it is dropped, so that blob_open() brings it again. Reads all of it:
 * blocks. */
void damage_suspect(struct store *s, const struct digest *d);

/* One step of the scrubber: hashes blobs from the persisted cursor until `budget_bytes` are read.
 * Blobs written or hashed at before_unix_s or later are skipped. If nothing was read, none is
 * due. */
MUST_USE int scrub_step(struct store *s, uint64_t budget_bytes, uint64_t before_unix_s,
                        uint64_t *read_bytes, uint64_t *damaged, struct err *e);

#endif
