/* ingest.h - writes one object into the store.
 *
 * Its bytes are written, hashed after they were written, and made durable from time to time. In the
 * end they become a blob, or they are parked and the next ingest resumes them.
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
 * The order on disk is always the same: bytes, then the rows that mention them (ingest_save()),
 * then the blob's name, then its row (ingest_seal()). A parked ingest is found by its struct
 * partial.
 *
 * owns     the opener owns it; ingest_seal(), ingest_park() and ingest_drop() take it, also when
 *          they fail
 * threads  any; all block. One thread calls ingest_append(); any number call ingest_write(), for
 *          ranges that do not overlap; at the same time any number call ingest_hash() and
 *          ingest_save(). The other calls must not run in parallel with these
 * errors   E_NOSPACE after make_room() was asked once; E_IO: a LOST ingest cannot be saved or
 *          sealed
 */
#ifndef SERVER_STORE_INGEST_H
#define SERVER_STORE_INGEST_H

#include "common/base/state.h"
#include "common/hash/sha512.h"
#include "server/store/blob.h"
#include "server/store/partial.h"

enum ingest_state {
    INGEST_MEMORY, /* without a file */
    INGEST_FILE,   /* bytes go to a stage */
    INGEST_LOST,   /* the disk failed: bytes can be read, but no longer saved or sealed */
    INGEST_WHOLE,  /* hashed to its end; no more bytes are accepted */
    INGEST_ENDED,
};

struct ingest_how {
    uint64_t length_bytes; /* of the whole object, as far as it is known; 0: unknown */
    bool reserve;          /* space is reserved at the start; else as bytes arrive */
    bool named;            /* it can be saved, parked and resumed */
    bool small;            /* it begins in MEMORY */
    bool blocks;           /* appended bytes are gathered into whole blocks: ingest_flush() */
    /* ingest_append() hashes up to this offset; the rest is left to ingest_hash(). */
    uint64_t hash_bytes;
    /* The bytes that are kept in memory so that ingest_hash() need not read them, summed over all
     * ingests that share this counter. NULL: nothing is kept. */
    _Atomic uint64_t *recent_bytes;
    /* Returns 0 when n bytes may fit now. NULL: no room can be made. */
    int (*make_room)(void *arg, uint64_t n);
    void *make_room_arg;
};

struct ingest;
MUST_USE int ingest_open(struct store *s, const struct ingest_how *how, struct ingest **out,
                         struct err *e);
/* Continues from the bytes that p describes: appended bytes follow its first run. E_NOTFOUND,
 * E_BUSY; E_CORRUPT: p has a sum and the bytes have another (all of them are read to check it). */
MUST_USE int ingest_resume(struct store *s, const struct partial *p, const struct ingest_how *how,
                           struct ingest **out, struct err *e);
MUST_USE int ingest_append(struct ingest *in, struct slice bytes, struct err *e);
MUST_USE int ingest_flush(struct ingest *in, struct err *e);
MUST_USE int ingest_write(struct ingest *in, const void *p, size_t n, uint64_t off, struct err *e);
/* Hashes bytes that were just written at `off`, if they are the next ones and no other thread is
 * hashing. Never waits. */
void ingest_hash_along(struct ingest *in, struct slice bytes, uint64_t off);
/* Hashes the written bytes up to `upto`. */
MUST_USE int ingest_hash(struct ingest *in, uint64_t upto, struct err *e);
/* Makes the bytes written so far durable. If the disk fails, they are lost for all users of this
 * ingest. */
MUST_USE int ingest_sync(struct ingest *in, struct err *e);
/* As ingest_sync(), then commits b with p as the stage's row. Sets p's id and time, and the sum of
 * its bytes where it needs one. Takes *bp (NULL: a batch of its own). */
MUST_USE int ingest_save(struct ingest *in, struct partial *p, struct batch **bp,
                         enum durability how, struct err *e);
/* Removes the bytes at `off`: no row may mention them, now or later. The digest goes back to the
 * last ingest_mark(), or to the front. */
MUST_USE int ingest_cut(struct ingest *in, uint64_t off, uint64_t n, struct err *e);
void ingest_mark(struct ingest *in);
/* Declares that [0, size) is the whole object. */
MUST_USE int ingest_finish(struct ingest *in, uint64_t size_bytes, struct digest *out,
                           struct err *e);
/* Makes a blob of a WHOLE ingest, in b, together with any number of others: stage_seal(). Its row
 * is removed with b. */
MUST_USE int ingest_seal(struct ingest **ip, struct batch *b, struct blob **out, struct err *e);
/* A hasher can outlive a parked ingest. It is taken before the parking (NULL: it has reached the
 * end) and given to the resumed ingest, whose beginning it has hashed. */
struct hasher *ingest_hasher_take(struct ingest *in);
void ingest_hasher_give(struct ingest *in, struct hasher **hp);
/* The file stays, for ingest_resume(). It is dropped if no row mentions it. */
void ingest_park(struct ingest **ip);
void ingest_drop(struct ingest **ip); /* with its row; NULL is fine */

/* --- properties --- */
enum ingest_state ingest_state(const struct ingest *in);
extern const struct state_table ingest_states;
uint64_t ingest_id(const struct ingest *in);      /* 0: it has no name */
uint64_t ingest_bytes(const struct ingest *in);   /* appended, now and in earlier ingests */
uint64_t ingest_written(const struct ingest *in); /* of them, those in the file */
uint64_t ingest_hashed(const struct ingest *in);  /* from the front */
/* Enough has arrived since the last save; the owner must save now. */
bool ingest_save_is_due(struct ingest *in, uint64_t have_bytes, uint64_t now_ms);
int ingest_fd(const struct ingest *in); /* -1: MEMORY */
/* A handle without a digest. Not in the state MEMORY. */
MUST_USE int ingest_peek(const struct ingest *in, uint64_t size_bytes, struct blob **out,
                         struct err *e);
MUST_USE int ingest_sha512(const struct ingest *in, uint64_t size_bytes, struct sha512 *out,
                           struct err *e);

#endif
