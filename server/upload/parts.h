/* parts.h - uploads of large loose objects in numbered parts (PUT_PART, by part_sink of sink.h),
 * which are then closed (PUT_PARTS_END): after an interruption only one part is sent again.
 *
 * Rows of the upload grant (upload_grant.h):
 *   "part/<hex>"       what is to come: its size, the size of a part, and the stage, if any
 *   "part/<hex>/<n>"   a part that is durable: its size and a check sum
 * The tree also remembers which upload grant receives the digest (upload_grant_remember()). So a
 * client that asks for addresses again continues there, and no second stage fills the disk.
 *
 * Parts are written to their place in the one stage, in any order and several at a time, each by
 * one request at a time. A durable part is never written again: if it is sent twice, the bytes are
 * compared, and if they differ both are void. SHA-256 is computed while parts come in order. What
 * came out of order, or before a restart, is read from the file: a little with each part, the rest
 * at the end. Only this digest is trusted: what is sealed has it.
 *
 * owns     a part is among the writers (live.h) until its sink is closed
 * threads  pool threads: different parts at the same time, the calls of one part in order
 * errors   as upload.h; E_BUSY: another request writes this part (and was asked to yield), or the
 *          object is being closed
 */
#ifndef SERVER_UPLOAD_PARTS_H
#define SERVER_UPLOAD_PARTS_H

#include "server/upload/live.h"
#include "server/upload/session.h"

/* Smaller objects are one PUT. Over 1 Gbit/s such a PUT takes two seconds, and so does sending it
 * again. A disk of 100 MB/s has it durable well within the ten seconds that clients wait for an
 * answer. */
#define PARTS_FROM_BYTES ((uint64_t)256 << 20)
#define PART_BYTES       ((uint64_t)64 << 20)
enum {
    PARTS_MAX = 2048, /* of one object: beyond 128 GiB its parts are larger */
    PARTS_BATCH_MAX =
        16384 /* of all objects of one upload grant, whose addresses are in one answer */
};

/* The size of each object's parts; 0: it comes in one piece. */
void parts_divide(const struct put_object *object, size_t count, uint64_t *part_bytes);
uint32_t parts_count(uint64_t size_bytes, uint64_t part_bytes);

/* Adds to b the row that lets parts of an object come to this upload grant. */
void parts_await(const struct session *s, const struct put_object *o, uint64_t part_bytes,
                 struct batch *b);
/* Finds an upload grant of this tree, younger than half its life, that already awaits the object in
 * parts: its id, and the size of the parts. E_NOTFOUND: none. */
MUST_USE int parts_recall(struct store *s, const struct put *p, const struct put_object *o,
                          uint64_t now_unix_s, char id[UPLOAD_ID + 1], uint64_t *part_bytes,
                          struct err *e);
/* From a file row's path: the hex digest whose parts it awaits; p == NULL: it is another kind of
 * row. */
struct slice parts_awaited(struct slice path);

/* PUT_PARTS_END: 200, also when it is repeated; 400 when parts are missing; 422 when they do not
 * match the digest, and then all are dropped. It takes as long as hashing the bytes that were not
 * hashed yet. */
MUST_USE int parts_end(struct uploads *u, const struct put *p, struct upload_reply *out,
                       struct err *e);
#endif
