/* wheel.h - the core metadata inside a wheel, which is a zip file: it tells which bytes it wants,
 * whoever has them gives them.
 *
 *     wheel_begin(&w, project, size);
 *     while (wheel_wants(&w, &first, &end)) { ...bytes [first, end)...; rc = wheel_feed(&w, first, bytes, &out, &e); }
 *
 * Mostly the file's end is all that it takes. A file that two readers could take for two things is
 * refused: an end that is not the only one, a directory that does not lie right in front of it,
 * METADATA more than once, sizes or sums that are not so.
 *
 * owns     nothing; project is borrowed
 * threads  one at a time; pure
 * errors   E_INVALID: no such wheel, or one that lies; E_TOOBIG; E_UNSUPPORTED: encrypted, or
 *          packed in another way
 * source   PEP 427; APPNOTE.TXT 6.3.10, sections 4.3 and 4.4
 */
#ifndef SERVER_REPO_PYTHON_WHEEL_H
#define SERVER_REPO_PYTHON_WHEEL_H

#include "common/base/buf.h"

enum wheel_step { WHEEL_END, WHEEL_DIRECTORY, WHEEL_HEADER, WHEEL_DATA, WHEEL_DONE };

enum { WHEEL_METADATA_BYTES = 4 << 20 };

struct wheel {
    struct slice project; /* normalized */
    uint64_t size_bytes;
    enum wheel_step step;
    uint64_t first, end; /* what the step needs at least */
    uint64_t directory;  /* where it begins */
    uint64_t entries;
    uint64_t header; /* of METADATA: where, and what the directory says of it */
    uint16_t how;
    uint32_t crc;
    uint64_t packed_bytes, bytes;
    size_t name_bytes;
};

void wheel_begin(struct wheel *w, struct slice project, uint64_t size_bytes);
/* False: it is done. Never beyond the file. */
MUST_USE bool wheel_wants(const struct wheel *w, uint64_t *first, uint64_t *end);
/* bytes begin at `first`, and are at least what is wanted; all of the file is fine. Appends
 * METADATA when it comes to it. */
MUST_USE int wheel_feed(struct wheel *w, uint64_t first, struct slice bytes, struct buf *out,
                        struct err *e);

#endif
