/* parts.h - a file that arrives in parts of 8 MiB: which of them are here, on disk and after a
 * crash.
 *
 * The partial file and its .state belong to a key of the local cache, whose lock the caller
 * holds. A part counts once parts_done() was called. parts_save() first makes the data durable,
 * then records the part in .state: after SIGKILL or a power cut every recorded part is there.
 *
 * threads  the table on one thread; parts_snapshot() there, parts_save() of the snapshot anywhere
 */
#ifndef AGENT_PULL_PARTS_H
#define AGENT_PULL_PARTS_H

#include "agent/cache/cache.h"
#include "common/os/pool.h"

#define PART_BYTES   CHUNK_BYTES
#define SIZE_UNKNOWN UINT64_MAX
#define PARTS_MAX    ((size_t)1 << 24) /* 128 TiB */

enum { PARTS_ETAG_ROOM = 256 };
enum part_state { PART_MISSING, PART_BUSY, PART_DONE };

struct parts {
    int fd;
    struct digest key;
    struct digest digest; /* of the whole; zero: unknown */
    uint64_t size_bytes;  /* SIZE_UNKNOWN until a stream has ended */
    char etag[PARTS_ETAG_ROOM];
    size_t count; /* so far, when the size is unknown */
    size_t ndone;
    size_t prefix;  /* consecutive finished parts from the first */
    size_t resumed; /* parts that an earlier run left */
    bool laid_out;  /* the file has its final length from the start: zeros in it may be holes */
    bool stateless; /* one part: there is nothing to resume, and no .state */
    uint8_t *state;
    size_t room;
    struct follow *follow; /* hashes; NULL: not requested */
    bool hashed;           /* it did, and `got` is the result */
    struct digest got;
};

/* Continues from what an earlier run left, if it is of the same object: the same digest, or
 * without one the same ETag; and the same size. Else begins anew. */
MUST_USE int parts_open(struct local_cache *s, const struct digest *key,
                        const struct digest *digest, uint64_t size_bytes, const char *etag,
                        struct parts **out, struct err *e);
/* discard_of: removes the files, which are that cache's; NULL: they stay. */
void parts_close(struct parts **pp, struct local_cache *discard_of);

size_t parts_next(const struct parts *p); /* the first missing one; == count when none is */
size_t parts_length(const struct parts *p, size_t i);
void parts_mark(struct parts *p, size_t i, enum part_state st); /* grows an unknown size */
void parts_end(struct parts *p, uint64_t size_bytes);           /* an unknown size is known now */
bool parts_complete(const struct parts *p);
uint64_t parts_prefix_bytes(const struct parts *p);
uint64_t parts_done_bytes(const struct parts *p);

void parts_snapshot(const struct parts *p, struct buf *out);
MUST_USE int parts_save(struct local_cache *s, const struct digest *key, int fd,
                        struct slice snapshot, struct err *e);

/* Starts to compute the SHA-256 of the whole. It needs the bytes in order, while parts arrive in
 * any order; so a thread reads complete parts out of the page cache, and has the result a moment
 * after the last part. moved() is called on the loop after each step. A second call starts again.
 */
void parts_hash(struct parts *p, struct pool *pool, struct message_queue *reply,
                void (*moved)(void *arg, int rc, const struct err *why), void *arg);
/* The hash is known already, because the only part is the whole file. */
void parts_hashed(struct parts *p, const struct digest *d);
bool parts_is_hashing(const struct parts *p); /* not while parts_close() is called */
/* True: all parts are there, and *out is their hash. */
MUST_USE bool parts_digest(struct parts *p, struct digest *out);

#endif
