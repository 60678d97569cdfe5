/* member.h - the mirrors of a cluster, as they announce themselves in the bucket.
 *
 * Each node writes node/<id> every beat, and reads what the others have written:
 *
 *   {"address": "http://10.0.0.1:8080", "version": "0.1.0", "format": 1, "state": "ready",
 *    "weight": 1, "applied": 1234, "stopped": false, "boot": "5d1c...", "beat": 17,
 *    "pauses": [{"origin": "9f86d081884c7d65", "until": 1789000000}]}
 *
 *   joining ──> ready <──> leaving ──> left (the object is removed)
 *                 ^______________________/
 *
 * A node is alive while the bucket's own clock says that its object is younger than
 * MEMBER_DEAD_BEATS beats.
 * The clocks of nodes do not count. The list may lag: it serves to find nodes, and nothing that
 * must be right depends on it.
 *
 * pauses: origins that have asked the node for a pause (429 or 503 with Retry-After), and until
 * when, by the clock of the bucket.
 *
 * A node that finds another boot's words under its own id leaves them alone until they have not
 * changed for two beats, or for one if they name its own address: they are of its own past. If they
 * change twice, another mirror writes them, and one of the two has a copy of the other's state_dir:
 * members_is_cloned().
 *
 * owns     a thread; borrows the bucket
 * threads  any but for open, start and close
 * errors   none: what fails is tried again with the next beat
 */
#ifndef SERVER_CLUSTER_MEMBER_H
#define SERVER_CLUSTER_MEMBER_H

#include "server/cluster/bucket.h"

enum {
    MEMBER_BEAT_MS = 5000,
    MEMBER_GONE_S = 60,
    MEMBER_DEAD_BEATS = 4,
    MEMBER_DEAD_MIN_S = 3, /* the bucket's clock has whole seconds */
    MEMBER_ID_ROOM = 33,   /* hex */
    MEMBER_ADDRESS_ROOM = 128,
    MEMBER_WEIGHT_MAX = 1000,
    MEMBERS_MAX = 64,
    /* after its last announcement, a node may come back: it was restarted, or stopped for a
     * moment */
    MEMBER_AWAY_MS = 30000,
};

enum member_state {
    MEMBER_JOINING, /* it does not answer clients yet */
    MEMBER_READY,
    MEMBER_LEAVING, /* it answers, but new requests should go to others */
    MEMBER_LEFT,    /* likewise, and it is not announced any more */
};

struct member {
    char node[MEMBER_ID_ROOM];
    /* "": it cannot be reached by others, or another one has the address now */
    char address[MEMBER_ADDRESS_ROOM];
    char version[32];
    uint64_t format; /* the newest one that it reads (format.h) */
    enum member_state state;
    uint32_t weight; /* its share of the work, relative to the others; at least 1 */
    bool alive;
    uint64_t applied;        /* entries of the log, when it wrote this */
    bool stopped;            /* it applies no further ones */
    uint64_t written_unix_s; /* by the bucket's clock */
    uint64_t silent_s;       /* since then, by the same clock */
};

enum { MEMBER_PAUSES_MAX = 64 };
struct member_pause { /* an origin wants no requests */
    uint64_t origin;  /* origin_identity() */
    uint64_t left_ms;
};

struct members;

struct members_settings {
    struct bucket *bucket;
    /* node, address, version, format, weight; it begins as MEMBER_JOINING */
    struct member self;
    uint64_t boot;    /* random, of each start */
    uint64_t beat_ms; /* 0: MEMBER_BEAT_MS */
    uint64_t gone_s;  /* 0: MEMBER_GONE_S */
    uint64_t (*applied)(void *arg);
    bool (*stopped)(void *arg);
    /* What origins have asked of this node now: at most `room`. NULL: nothing. */
    size_t (*pauses)(void *arg, struct member_pause *out, size_t room);
    /* The others have been read. On the thread of the members; may be NULL. */
    void (*read)(void *arg, struct members *m);
    /* The state of this node has changed, and is in the bucket: these, which are alive, should read
     * of it now. Likewise. */
    void (*tell)(void *arg, const struct member *other, size_t n);
    void *arg;
};

struct members *members_open(const struct members_settings *set);
/* Begins to announce this node, and to read of the others. A second call is fine. */
void members_start(struct members *m);
/* Waits until the others have been read, or could not be read, for the first time: at most so long.
 */
void members_await_first(struct members *m, uint64_t ms);
/* There are no others from now on, and this node is not announced, until members_start(). */
void members_rest(struct members *m);
/* Announces another state, at once. */
void members_set_state(struct members *m, enum member_state state);
/* Announces this node and reads of the others now, tells them of another state, and waits for all
 * that. False: it is not done within wait_ms. What the bucket refuses is done. */
MUST_USE bool members_beat_now(struct members *m, uint64_t wait_ms);
/* The same, without telling. Many who call it share a beat. */
MUST_USE bool members_read_now(struct members *m, uint64_t wait_ms);
enum member_state members_state(struct members *m);
/* Another mirror announces itself under the id of this one; *address gets where, or "". */
bool members_is_cloned(struct members *m, char address[MEMBER_ADDRESS_ROOM]);
/* Ends the announcements, and removes this node's object if the bucket answers. The others are
 * poked if they do not know yet. A second call and NULL are fine. */
void members_leave(struct members *m);
void members_close(struct members **mp); /* after members_leave(); NULL is fine */
/* The other nodes that are alive, at most `room`; the number of them. */
size_t members_others(struct members *m, struct member *out, size_t room);
bool members_is_alive(struct members *m, const char *node); /* another one */
/* This node, then all others, also those that have been silent for up to a day. */
size_t members_all(struct members *m, struct member *out, size_t room);

/* The newest format that this node and all others read, also those that have been silent for up to
 * a day, and those that ended in the last MEMBER_AWAY_MS: they may be started again. 0: not known.
 */
uint64_t members_format(struct members *m);

const char *member_state_name(enum member_state state);
enum member_presence { MEMBER_ALIVE, MEMBER_AWAY, MEMBER_UNKNOWN };
/* The other nodes with an address that were heard of within MEMBER_AWAY_MS, at most `room`. */
size_t members_recent(struct members *m, struct member *out, size_t room);
/* False: this node has announced itself, and has not read yet who the others are. */
bool members_are_known(struct members *m);
/* The other node whose id begins with these digits, of those that were heard of a moment ago.
 * Before the others have been read, MEMBER_AWAY. *out is set if it is alive. */
enum member_presence members_find(struct members *m, struct slice digits, struct member *out);
/* What origins have asked of the other nodes that are alive. */
size_t members_pauses(struct members *m, struct member_pause *out, size_t room);
/* Whether this node has been silent for gone_s, by the bucket's clock. False as long as that is not
 * known: a node that is not in the list counts as heard of when it is first asked about. */
bool members_is_gone(struct members *m, const char *node);

#endif
