/* parts.h - large loose objects, brought in numbered parts (PUT_PART, by part_sink of sink.h) and
 * then closed (PUT_PARTS_END): who is cut off sends one part again, not all of them.
 *
 * Rows of the upload grant (upload_grant.h):
 *   "part/<hex>"       what is to come: its size, the size of a part, and the stage once there is one
 *   "part/<hex>/<n>"   a part that is durable: its size and a check sum
 * and the tree remembers which upload grant brings the digest (upload_grant_remember), so that who
 * asks for addresses anew goes on there and no second stage fills the disk.
 *
 * Parts are written where they belong in the one stage, in any order, several at once, each by one
 * request at a time. A part that is durable is never written again: of one that is sent twice the
 * bytes are compared, and when they differ both are void. SHA-256 runs along while parts come in
 * order; of what came otherwise, or before a restart, it is taken from the file: a little with each
 * part, the rest at the end. Nothing is believed but this digest: what is sealed has it.
 *
 * owns     a part takes its place among the writers (live.h) until its sink is closed
 * threads  pool threads: different parts at the same time, the calls of one part in order
 * errors   as upload.h; E_BUSY: another request writes this part (and was asked to yield), or the
 *          object is being closed
 */
#ifndef SERVER_UPLOAD_PARTS_H
#define SERVER_UPLOAD_PARTS_H

#include "server/upload/live.h"
#include "server/upload/session.h"

/* Up to here one PUT: over a wire of 1 Gbit/s it takes two seconds, to send it again costs as much,
 * and a disk of 100 MB/s has it durable well within the ten seconds that clients wait for an
 * answer. */
#define PARTS_FROM_BYTES ((uint64_t)256 << 20)
#define PART_BYTES       ((uint64_t)64 << 20)
enum {
    PARTS_MAX = 2048, /* of one object: beyond 128 GiB its parts are larger */
    PARTS_BATCH_MAX =
        16384 /* of all objects of one upload grant: their addresses go out in one answer */
};

/* The size of each object's parts; 0: it comes in one piece. */
void parts_divide(const struct put_object *object, size_t count, uint64_t *part_bytes);
uint32_t parts_count(uint64_t size_bytes, uint64_t part_bytes);

/* Adds to b what lets parts of an object come to this upload grant. */
void parts_await(const struct session *s, const struct put_object *o, uint64_t part_bytes,
                 struct batch *b);
/* An upload grant of this tree, younger than half its life, that awaits the object in parts
 * already: its id, and their size. E_NOTFOUND: none. */
MUST_USE int parts_recall(struct store *s, const struct put *p, const struct put_object *o,
                          uint64_t now_unix_s, char id[UPLOAD_ID + 1], uint64_t *part_bytes,
                          struct err *e);
/* Of a file row's path: the digest, in hex, whose parts it awaits; p == NULL: it is another row. */
struct slice parts_awaited(struct slice path);

/* PUT_PARTS_END: 200, also when it is asked twice; 400 when parts are missing, 422 when they are
 * not the digest's: then all are dropped. Takes as long as the digest of what it had not run along
 * with. */
MUST_USE int parts_end(struct uploads *u, const struct put *p, struct upload_reply *out,
                       struct err *e);
#endif
