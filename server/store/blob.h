/* blob.h - one immutable sequence of bytes, named by its SHA-256.
 *
 * A blob is staged (partial/<id>, or without a name) or sealed (blobs/ab/cd/<hex>, or inline in a
 * row up to 32 KiB). stage_seal() is the only way from the one to the other: it syncs the data,
 * links the file, syncs the folder, and puts the rows into the caller's batch, so that the blob and
 * the rows that refer to it are committed together. A crash leaves at worst an orphan file, which
 * mirrorctl verify removes.
 *
 * owns     blob handles are counted (blob_hold(), blob_release()); the file stays readable while
 *          one is held, also after eviction
 * threads  handles: any. A stage: one thread at a time, except that stage_write() and stage_fd()
 *          may run in parallel. All block
 * errors   E_NOTFOUND is ordinary; E_CORRUPT, E_NOSPACE and E_IO carry a sentence
 */
#ifndef SERVER_STORE_BLOB_H
#define SERVER_STORE_BLOB_H

#include "common/hash/git_oid.h"
#include "server/store/store.h"

enum { BLOB_INLINE_BYTES = 32 << 10, BLOB_SMALL_BYTES = 4 << 20 };

struct blob;

/* E_NOTFOUND; E_CORRUPT when the file is missing or has the wrong size (the row is then removed, so
 * that a later request downloads it again). */
MUST_USE int blob_open(struct store *s, const struct digest *d, struct blob **out, struct err *e);
/* As blob_open(), for a blob whose rows may be in a batch that is not committed yet. */
struct batch_rows;
MUST_USE int blob_open_early(struct store *s, const struct batch_rows *rows, const struct digest *d,
                             struct blob **out, struct err *e);
/* The bytes of a blob that is inline in a row, by one lookup instead of two. *out is cleared first.
 * E_NOTFOUND: there is no such blob, it is in a file, or it is damaged; blob_open() says which. */
MUST_USE int blob_inline(struct store *s, const struct digest *d, struct buf *out, struct err *e);
struct blob *blob_hold(struct blob *b);
void blob_release(struct blob **bp);
uint64_t blob_size_bytes(const struct blob *b);
const struct digest *blob_digest(const struct blob *b);
int blob_fd(const struct blob *b);             /* -1: inline */
struct slice blob_bytes(const struct blob *b); /* inline ones only */
MUST_USE int blob_read(struct blob *b, uint64_t off, void *p, size_t n,
                       struct err *e); /* either kind; blocks */
/* Appends all bytes to out. E_TOOBIG: the blob is longer than out may grow. */
MUST_USE int blob_read_whole(struct store *s, const struct digest *d, struct buf *out,
                             struct err *e);
/* hashes all bytes */
MUST_USE int blob_git_oid(struct blob *b, struct git_oid *out, struct err *e);
/* The size of what blob_open() would open. What is elsewhere (store.h) is not brought here. */
MUST_USE int blob_length(struct store *s, const struct digest *d, uint64_t *size_bytes,
                         struct err *e);
/* Here, or elsewhere (store.h). */
MUST_USE int blob_exists(struct store *s, const struct digest *d, bool *yes, struct err *e);
MUST_USE int blob_is_here(struct store *s, const struct digest *d, bool *yes, struct err *e);
/* Notes an access (cheap, in memory; flushed lazily to the atime table). Any thread, never
 * blocks. */
void blob_touch(struct store *s, const struct digest *d, uint64_t unix_s);

struct stage;
/* expect_bytes reserves space (0: unknown, reserved while writing). named: survives a crash and can
 * be resumed. E_NOSPACE. */
MUST_USE int stage_open(struct store *s, uint64_t expect_bytes, bool named, struct stage **out,
                        struct err *e);
/* Reopens a named stage of an earlier process, by its id. E_NOTFOUND. */
MUST_USE int stage_resume(struct store *s, uint64_t id, uint64_t expect_bytes, struct stage **out,
                          struct err *e);
/* Announces the final length. Nothing is reserved; space is taken as bytes are written. */
void stage_expect(struct stage *st, uint64_t length_bytes);
uint64_t stage_written_bytes(const struct stage *st);
uint64_t stage_id(const struct stage *st); /* 0 when not named */
/* A handle without a digest that reads the present content of [0, size_bytes). */
MUST_USE int stage_peek(const struct stage *st, uint64_t size_bytes, struct blob **out,
                        struct err *e);
enum { STAGE_KEY_BYTES = 8 };
void stage_key(uint64_t id, char key[STAGE_KEY_BYTES]); /* the key of its row in TABLE_PARTIAL */
/* read and write; stays open while the stage or a dup lives */
int stage_fd(const struct stage *st);
MUST_USE int stage_write(struct stage *st, const void *p, size_t n, uint64_t off, struct err *e);
/* Frees bytes that no row mentions, on disk and in the account; they read as zeros. */
MUST_USE int stage_unwrite(struct stage *st, uint64_t off, uint64_t n, struct err *e);
/* Syncs bytes and name; call it before rows describe them. */
MUST_USE int stage_sync(struct stage *st, struct err *e);
/* A sync failed: the disk lacks bytes that the page cache still shows. Such a stage is not
 * sealed. */
bool stage_lost(const struct stage *st);
/* Seals [0, size) as `digest`, which the caller has computed. chunk, count: its chunk list, or
 * NULL. Adds the rows to b (blob, inline, chunks). If the blob exists already, the stage is dropped
 * and the existing blob opened. Until b is committed or freed, eviction and collection do not touch
 * the blob, so the caller never has to retry. If b fails, a file that no row names is removed
 * again. The name under partial/ is removed after the commit. Takes *sp, also when it fails; out
 * may be NULL. */
MUST_USE int stage_seal(struct stage **sp, const struct digest *digest, uint64_t size_bytes,
                        const struct digest *chunk, size_t count, struct batch *b,
                        struct blob **out, struct err *e);
/* Hashes and seals small content from memory in one call. */
MUST_USE int blob_put_bytes(struct store *s, struct slice bytes, struct batch *b, struct blob **out,
                            struct err *e);
/* The same for up to BLOB_INLINE_BYTES whose digest is known. */
void blob_put_small(struct store *s, const struct digest *d, struct slice bytes, struct batch *b,
                    struct blob **out);
void stage_abort(struct stage **sp); /* removes it; NULL is fine */
/* closes a named stage and keeps its file for stage_resume() */
void stage_park(struct stage **sp);
/* At the start: removes names under partial/ that no row in TABLE_PARTIAL describes, and rows
 * without a file. The rest counts as parked. */
MUST_USE int stage_sweep(struct store *s, struct err *e);

/* The chunk list of a sealed blob, encoded as in common/hash/digest.h. For blobs of one chunk it is
 * computed. */
MUST_USE int blob_chunks(struct store *s, const struct digest *d, struct buf *out, struct err *e);

#endif
