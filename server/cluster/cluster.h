/* cluster.h - this mirror as one of several over one bucket (docs/cluster.md).
 *
 *   bucket (bucket.h)      requests to S3
 *   sequencer              shared rows, in the order of the log (log.h)
 *   tree_content           content of trees: into the bucket before its names are in the log, and
 *                          from there to this node
 *   hints                  of new entries, through Redis, if it is configured
 *   collect                deletes content that no version names any more
 *   checker                probes the bucket (probe.h): before anything else, then every check_ms,
 *                          and when somebody asks
 *
 * If a later probe finds that a key can be created twice, all changes are refused: two mirrors
 * could write the same entry of the log, and an acknowledged change would be lost. This ends with a
 * check by hand that passes, or a new start. A check by the clock does not end it, and none is made
 * any more: a store that breaks this promise now and then passes most checks. The other promises
 * are only reported when they break. Content is checked by its SHA-256 wherever it is read, so it
 * may be missing but never wrong; old versions of objects cost money alone.
 *
 * A store with rows of its own over a bucket without a cluster stands alone, and commits by itself:
 * nothing is read from the bucket or written to it until cluster_adopt().
 *
 * The store's part: its sequencer takes batches with shared rows, and its source of blobs that are
 * elsewhere is tree_content_fetch().
 *
 * owns     borrows the store: cluster_open() right after store_open(), cluster_stop() before and
 *          cluster_close() after store_close()
 * threads  any but for open, stop and close; cluster_check() blocks for seconds
 * errors   of cluster_open(): E_UNSUPPORTED: the bucket breaks a promise; E_EXISTS: the store has
 *          rows of its own, and the bucket has a cluster; E_CONFIG: the store belongs to another
 *          cluster; those of bucket.h and log.h
 */
#ifndef SERVER_CLUSTER_CLUSTER_H
#define SERVER_CLUSTER_CLUSTER_H

#include "server/cache/lookup.h"
#include "server/cluster/adopt.h"
#include "server/cluster/claim.h"
#include "server/cluster/collect.h"
#include "server/cluster/content_verify.h"
#include "server/cluster/hints.h"
#include "server/cluster/leave.h"
#include "server/cluster/member.h"
#include "server/cluster/owners.h"
#include "server/cluster/probe.h"
#include "server/cluster/relay.h"
#include "server/cluster/tree_content.h"
#include "server/cluster/void.h"
#include "server/store/store.h"

struct cluster_settings {
    struct bucket_settings bucket;
    const char *address; /* of this mirror, for the others; NULL: they cannot reach it */
    const char *secret;  /* the same for all; NULL: they do not talk to each other */
    const char *hints;   /* as in struct hints_settings; NULL: none */
    const char *hints_authorization;
    uint32_t poll_ms;
    uint32_t heartbeat_ms;
    uint32_t stale_after_ms;
    uint32_t checkpoint_entries;
    uint32_t check_ms;  /* 0: only at the start */
    uint32_t collect_s; /* as in struct collect_settings */
    uint32_t collect_delay_s;
    uint32_t orphan_age_s;
    uint32_t weight;     /* of this mirror, relative to the others */
    uint32_t takeover_s; /* of claims: how long their holder must be silent */
    const char *limits;  /* "share" or "whole"; NULL is "share" */
};

struct cluster;

/* Waits for the bucket up to a minute, and reads the whole log. must_end(): whether that is to be
 * given up, with E_CANCELLED or, if it is done already, with a cluster that cannot reach its bucket
 * any more; asked again and again, on another thread. May be NULL. */
MUST_USE int cluster_open(const struct cluster_settings *set, struct store *s,
                          bool (*must_end)(void), struct cluster **out, struct err *e);
/* For a start without a cluster section. E_CONFIG: the store is that of a mirror of a cluster. */
MUST_USE int cluster_absent(struct store *s, struct err *e);
/* Without a daemon and without the bucket: as leave_offline(). */
MUST_USE int cluster_leave_offline(struct store *s, bool force, uint64_t *missing,
                                   uint64_t *missing_bytes, struct err *e);
/* on_row() is called for each shared row that this mirror or another one has changed, once it is
 * applied, on a thread of the cluster; after the rows of an entry once more, with TABLES. Earlier
 * changes are not reported. */
void cluster_on_row(struct cluster *c, void (*on_row)(void *arg, enum table t, struct slice key),
                    void *arg);
/* make_room() makes room in the store for content of the bucket. */
void cluster_on_full(struct cluster *c, int (*make_room)(void *arg, uint64_t n), void *arg);
/* From now on this mirror answers clients, and the others may rely on it. */
void cluster_serve(struct cluster *c);
/* The other mirrors and those who choose one learn that this one is about to leave. cluster_serve()
 * takes it back. */
void cluster_leave(struct cluster *c);
/* It is not announced any more. It still answers. */
void cluster_withdraw(struct cluster *c);
/* Waits until the other mirrors know what was announced, up to three seconds. */
void cluster_let_know(struct cluster *c);
/* Whether a mirror of this cluster says that it is `node`, and that its state has changed. */
MUST_USE bool cluster_signed_hello(struct cluster *c, struct slice node, struct slice signature);
/* Reads of the mirrors now: blocks, up to a second. False: not yet. */
MUST_USE bool cluster_hello(struct cluster *c, const char *node);
/* Whether the process must end: another mirror runs with this one's id. The code is E_CONFIG. */
bool cluster_must_end(struct cluster *c, struct err *why);
/* What mirrors tell each other about limits, every few seconds. */
struct cluster_limit_ops {
    /* So many mirrors share what the settings allow (settings.limits). */
    void (*share)(void *arg, uint32_t mirrors);
    /* The origins that have asked this mirror for a pause, which is not over. */
    size_t (*pauses)(void *arg, struct member_pause *out, size_t room);
    /* An origin has asked another mirror for a pause. */
    void (*pause)(void *arg, const struct member_pause *r);
};
void cluster_on_limits(struct cluster *c, const struct cluster_limit_ops *ops, void *arg);
/* Whoever waits for the bucket gets E_CANCELLED or E_AGAIN, and so does whoever comes later. A
 * second call and NULL are fine. */
void cluster_stop(struct cluster *c);
void cluster_close(struct cluster **cp);

/* The name of no repository, for lookups of the bucket's content. */
#define CONTENT_REPO "/cluster"
/* For a large blob that lies in the bucket, and not in the store, as the caller has seen: fills a
 * lookup by which the cache streams it while it arrives. Texts are in the arena. False: blob_open()
 * is quick, or the blob is nowhere. Reads rows: blocks. */
MUST_USE bool cluster_lookup(struct cluster *c, const struct digest *d, struct arena *a,
                             struct lookup *out);

/* The list of chunks of such a blob. E_NOTFOUND: it is not known before the bytes are here.
 * Blocks. */
MUST_USE int cluster_chunks(struct cluster *c, const struct digest *d, struct buf *out,
                            struct err *e);

/* Where uploads lie. NULL: this mirror stands alone, or the mirrors do not talk to each other. It
 * lives until cluster_close(). */
struct relay *cluster_relay(struct cluster *c);

/* Which mirror fetches an object from its origin. NULL: each one does for itself, because the
 * mirrors do not talk to each other. It lives until cluster_close(). */
struct owners *cluster_owners(struct cluster *c);

/* Whether another mirror of this cluster says that the log has this entry (poke.h). */
MUST_USE bool cluster_signed_poke(struct cluster *c, uint64_t seq, struct slice signature);
/* Waits until the entry is applied, up to 250 ms: blocks. False: not yet. */
MUST_USE bool cluster_poke(struct cluster *c, uint64_t seq);
/* A name is not here that another mirror may just have published: reads the log, unless that was
 * done too often lately. True: look again. Blocks. */
MUST_USE bool cluster_catch_up(struct cluster *c);
/* This mirror, then the others, also those that have been silent for up to a day; the number of
 * them. At least one fits into `out`. Does not block. */
size_t cluster_nodes(struct cluster *c, struct member *out, size_t room);

/* Moves the rows and the content of this mirror, which stood alone, into the empty bucket, and goes
 * on as a mirror of the cluster (adopt.h). on_progress(): bytes; nonzero ends it. Blocks while the
 * upload lasts. E_EXISTS; E_BUSY: it is running already. */
MUST_USE int cluster_adopt(struct cluster *c,
                           int (*on_progress)(void *arg, uint64_t done, uint64_t total), void *arg,
                           struct adopted *out, struct err *e);
/* The other way: fetches all that its trees hold, and stands alone (leave.h). */
MUST_USE int cluster_leave_local(struct cluster *c,
                                 int (*on_progress)(void *arg, uint64_t done, uint64_t total),
                                 void *arg, struct left *out, struct err *e);

/* Looks at a damaged entry of the log; digest.n != 0: and declares it void (void.h). E_EXISTS:
 * also if a mirror that is alive has applied it. */
MUST_USE int cluster_void(struct cluster *c, uint64_t seq, struct slice digest,
                          struct void_look *out, struct err *e);

enum cluster_state {
    CLUSTER_UP,
    CLUSTER_AWAY,     /* the last request to the log failed, or its entry cannot be applied here */
    CLUSTER_IN_DOUBT, /* the outcome of an entry is unknown: changes are refused meanwhile */
    CLUSTER_BROKEN,   /* it failed the last check of creating keys: changes are refused */
    CLUSTER_STOPPED,  /* for good: the log cannot be followed any further */
    CLUSTER_NOT_JOINED, /* its rows are its own: it stands alone until cluster_adopt() */
};
const char *cluster_state_name(enum cluster_state s); /* "up", "in doubt" */

/* A check that could be made: the bucket was there. */
struct cluster_checked {
    uint64_t at_unix_s;
    uint64_t took_ms;
    const char *step; /* that failed (probe.h); NULL: none did */
    struct err why;
};

struct cluster_status {
    const char *place; /* of the bucket */
    char node[33];     /* hex */
    enum member_state member;
    enum cluster_state state;
    bool parted;            /* NOT_JOINED, because it has left since its start */
    struct err why;         /* of AWAY, IN_DOUBT and STOPPED */
    uint64_t failures;      /* in a row, of requests to the log */
    uint64_t since_unix_s;  /* when the first of them failed; 0: none has */
    uint64_t format;        /* of the cluster (format.h) */
    uint64_t applied;       /* entries of the log */
    uint64_t lag_ms;        /* since the log was last known to have no further entry */
    bool fresh;             /* cluster_is_fresh() */
    size_t commits_waiting; /* changes without an answer */
    struct bucket_stats bucket;
    struct tree_content_stats content;
    struct cluster_checked checked; /* the last check */
    bool hinted;                    /* there are hints */
    struct hints_status hints;
    struct collect_status collect;
    bool owned; /* objects have owners */
    struct origin_request_stats owners;
    bool relays; /* this mirror passes requests on to others */
    struct relay_stats relayed;
};
void cluster_status(struct cluster *c, struct cluster_status *out);
/* Probes the bucket now, as probe_run() with many rounds. E_BUSY: another check is running. */
MUST_USE int cluster_check(struct cluster *c, void (*step)(void *arg, const struct probe_step *s),
                           void *arg, struct err *e);
/* Collects now (collect.h). */
MUST_USE int cluster_collect(struct cluster *c, bool dry, collect_progress *progress, void *arg,
                             struct collect_report *out, struct err *e);
/* Checks that the bucket has what the log and the trees name (content_verify.h). */
struct cluster_verify {
    bool deep;
    void (*finding)(void *arg, const char *what);
    int (*progress)(void *arg, const char *what, uint64_t done, uint64_t total);
    void *arg;
};
MUST_USE int cluster_verify(struct cluster *c, const struct cluster_verify *how,
                            struct content_verified *out, struct err *e);
/* Whether rights may be judged: the log was confirmed within stale_after. */
bool cluster_is_fresh(struct cluster *c);
/* What only one of the mirrors may do at a time. Until cluster_close(). */
struct claims *cluster_claims(struct cluster *c);

#endif
