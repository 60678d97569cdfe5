/* access_line.h - formats one line of the access log, as JSON or combined.
 *
 * It does not use printf and strftime: with them a line took as much CPU as two thirds of the
 * response that it describes. Values from outside are cut at 1 KiB each; of our tokens only the
 * id stays; bytes that are not printable ASCII are escaped.
 *
 * threads  one at a time per struct access_second
 */
#ifndef SERVER_GATE_ACCESS_LINE_H
#define SERVER_GATE_ACCESS_LINE_H

#include "server/gate/gate.h"

enum { ACCESS_LINE_BYTES = 12 << 10 }; /* no line is longer */

/* The text of the last line's second; zeroed at first. */
struct access_second {
    uint64_t unix_s;
    char iso[24], clf[32]; /* 2026-11-24T00:20:35 and 24/Nov/2026:00:20:35 +0000 */
};

/* The line and its newline, in `room`. */
struct slice access_line(char room[ACCESS_LINE_BYTES], struct access_second *second, bool json,
                         const struct access_entry *en, uint64_t unix_ms);

#endif
