/* ingest.h - an object on its way into the store: its bytes are written, hashed behind the writer,
 * made durable now and then, and become a blob in the end; or they are parked, and the next ingest
 * goes on from there.
 *
 *   ingest_open()             ingest_resume()
 *        |                          |
 *     MEMORY -- more than a row --> FILE -- the disk did not take it --> LOST
 *        |         holds            |                                    |
 *        +---- ingest_finish() -----+                                    |
 *                     |             |                                    |
 *                   WHOLE           |                                    |
 *        ingest_seal(), ingest_park(), ingest_drop(): ENDED <------------+
 *
 * What is on disk is always in this order: bytes, then the rows that speak of them (ingest_save),
 * then the blob's name, then its row (ingest_seal). A parked one is found by its struct partial.
 *
 * owns     the one who opened it; the last three calls take it, also when they fail
 * threads  any; all block. One thread calls ingest_append(), any number ingest_write(), in places
 *          that do not overlap; beside them any number ingest_hash() and ingest_save(). The others
 *          are called when nobody is at it
 * errors   E_NOSPACE after make_room() was asked once; E_IO: a LOST one cannot be saved or sealed
 */
#ifndef SERVER_STORE_INGEST_H
#define SERVER_STORE_INGEST_H

#include "common/base/state.h"
#include "common/hash/sha512.h"
#include "server/store/blob.h"
#include "server/store/partial.h"

enum ingest_state {
    INGEST_MEMORY, /* there is no file yet */
    INGEST_FILE,   /* bytes go to a stage */
    INGEST_LOST, /* the disk did not take all: bytes can be read, nothing is saved or sealed any more */
    INGEST_WHOLE, /* it is hashed to its end, and nothing comes any more */
    INGEST_ENDED,
};

struct ingest_how {
    uint64_t length_bytes; /* of the whole, as far as is known; 0: it is not */
    bool reserve;          /* space for it is taken now, else as bytes come */
    bool named;            /* it may be saved, parked and resumed */
    bool small;            /* it begins in MEMORY */
    bool blocks;           /* what is appended is gathered into whole blocks: ingest_flush() */
    /* ingest_append() hashes as far as this, the rest is for ingest_hash(); */
    uint64_t hash_bytes;
    /* which is spared reading what it finds in memory: of all that count here together, so much.
     * NULL: nothing is kept. */
    _Atomic uint64_t *recent_bytes;
    /* Returns 0 when n bytes may fit now. NULL: nothing can be done. */
    int (*make_room)(void *arg, uint64_t n);
    void *make_room_arg;
};

struct ingest;
MUST_USE int ingest_open(struct store *s, const struct ingest_how *how, struct ingest **out,
                         struct err *e);
/* Goes on with what p says is there: what is appended goes behind its first run. E_NOTFOUND,
 * E_BUSY; E_CORRUPT: p has a sum, and it is another (all of it is read for that). */
MUST_USE int ingest_resume(struct store *s, const struct partial *p, const struct ingest_how *how,
                           struct ingest **out, struct err *e);
MUST_USE int ingest_append(struct ingest *in, struct slice bytes, struct err *e);
MUST_USE int ingest_flush(struct ingest *in, struct err *e);
MUST_USE int ingest_write(struct ingest *in, const void *p, size_t n, uint64_t off, struct err *e);
/* Bytes that were written there: they are hashed if they are next, and nobody else is at it. Never
 * waits. */
void ingest_hash_along(struct ingest *in, struct slice bytes, uint64_t off);
/* Hashes what was written, as far as upto. */
MUST_USE int ingest_hash(struct ingest *in, uint64_t upto, struct err *e);
/* Makes durable what was written before. What the disk has not taken is lost for all who have part
 * in it. */
MUST_USE int ingest_sync(struct ingest *in, struct err *e);
/* The same, then commits b with p as the stage's row: sets its id and time, and the sum of what it
 * has, where it is to have one. Takes *bp (NULL: a batch of its own). */
MUST_USE int ingest_save(struct ingest *in, struct partial *p, struct batch **bp,
                         enum durability how, struct err *e);
/* What lies there goes: no row speaks of it, or will any more. The digest goes back to where
 * ingest_mark() was called last, or to the front. */
MUST_USE int ingest_cut(struct ingest *in, uint64_t off, uint64_t n, struct err *e);
void ingest_mark(struct ingest *in);
/* [0, size) are all. */
MUST_USE int ingest_finish(struct ingest *in, uint64_t size_bytes, struct digest *out,
                           struct err *e);
/* A WHOLE one becomes a blob with b, as any number of others may: stage_seal(). Its row goes with
 * b. */
MUST_USE int ingest_seal(struct ingest **ip, struct batch *b, struct blob **out, struct err *e);
/* A hasher outlives a parked one: taken before it is parked (NULL: it has come to its end), given
 * to one that was resumed, whose beginning it has seen. */
struct hasher *ingest_hasher_take(struct ingest *in);
void ingest_hasher_give(struct ingest *in, struct hasher **hp);
/* The file stays, for ingest_resume(); dropped when no row speaks of it. */
void ingest_park(struct ingest **ip);
void ingest_drop(struct ingest **ip); /* with its row; NULL is fine */

/* --- what it is like --- */
enum ingest_state ingest_state(const struct ingest *in);
extern const struct state_table ingest_states;
uint64_t ingest_id(const struct ingest *in);      /* 0: it has no name */
uint64_t ingest_bytes(const struct ingest *in);   /* appended, and those before; */
uint64_t ingest_written(const struct ingest *in); /* of them, what the file has */
uint64_t ingest_hashed(const struct ingest *in);  /* from the front */
/* Enough has come since the last save, which its owner begins now. */
bool ingest_save_is_due(struct ingest *in, uint64_t have_bytes, uint64_t now_ms);
int ingest_fd(const struct ingest *in); /* -1: MEMORY */
/* A handle without a digest. Not of one in MEMORY. */
MUST_USE int ingest_peek(const struct ingest *in, uint64_t size_bytes, struct blob **out,
                         struct err *e);
MUST_USE int ingest_sha512(const struct ingest *in, uint64_t size_bytes, struct sha512 *out,
                           struct err *e);

#endif
