/* lasting.h - a condition that is checked again and again, and when the log is due a line of it.
 *
 * A line is due when the condition begins, once an hour while it lasts, and when it has been absent
 * for a minute: one that comes and goes is the same one.
 *
 * owns     nothing; all zero: the condition is absent
 * threads  the caller's, one at a time
 */
#ifndef COMMON_BASE_LASTING_H
#define COMMON_BASE_LASTING_H

#include <stdbool.h>
#include <stdint.h>

enum { LASTING_AGAIN_MS = 3600 * 1000, LASTING_OVER_MS = 60 * 1000 };
enum lasting_line { LASTING_NONE, LASTING_BEGINS, LASTING_LASTS, LASTING_OVER };

struct lasting {
    bool lasts;
    uint64_t since_ms, line_ms, seen_ms; /* began; last line; last time that it was there */
};

/* Is it there now? The line that is due. After LASTING_OVER, since_ms is still when it began. */
enum lasting_line lasting_check(struct lasting *l, bool there, uint64_t now_ms);

#endif
