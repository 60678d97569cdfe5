/* wheel.h - finds the core metadata inside a wheel, which is a zip file: it says which bytes it
 * needs, and the caller provides them.
 *
 *     wheel_begin(&w, project, size);
 *     while (wheel_wants(&w, &first, &end)) {
 *         ...bytes [first, end)...
 *         rc = wheel_feed(&w, first, bytes, &out, &e);
 *     }
 *
 * Usually it only needs the end of the file. A file that two readers could interpret differently is
 * refused: more than one end record, a directory that is not right before it, METADATA more than
 * once, wrong sizes or check sums.
 *
 * owns     nothing; project is borrowed
 * threads  one at a time; pure
 * errors   E_INVALID: not such a wheel, or an inconsistent one; E_TOOBIG; E_UNSUPPORTED: encrypted,
 *          or compressed in another way
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
    uint64_t first, end; /* the least that the step needs */
    uint64_t directory;  /* its offset */
    uint64_t entries;
    uint64_t header; /* of METADATA: its offset, and what the directory says of it */
    uint16_t how;
    uint32_t crc;
    uint64_t packed_bytes, bytes;
    size_t name_bytes;
};

void wheel_begin(struct wheel *w, struct slice project, uint64_t size_bytes);
/* False: it is done. The range is never beyond the file. */
MUST_USE bool wheel_wants(const struct wheel *w, uint64_t *first, uint64_t *end);
/* bytes begin at `first` and cover at least the needed range; the whole file is fine. Appends
 * METADATA when it is reached. */
MUST_USE int wheel_feed(struct wheel *w, uint64_t first, struct slice bytes, struct buf *out,
                        struct err *e);

#endif
