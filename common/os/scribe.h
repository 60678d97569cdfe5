/* scribe.h - lines for a file, written by a thread of its own: whoever has a line never waits for a
 * disk or a pipe.
 *
 * Lines are gathered in memory; those that find no room are dropped and counted. A burst becomes
 * one write(2), a disk or a journal that hangs costs what does not fit, never more.
 *
 * owns     the file that it opened; stderr stays open
 * threads  any
 */
#ifndef COMMON_OS_SCRIBE_H
#define COMMON_OS_SCRIBE_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct scribe;

/* path NULL: stderr, which cannot fail. name: of the thread. */
MUST_USE int scribe_open(const char *name, const char *path, size_t room_bytes, struct scribe **out,
                         struct err *e);
/* Whether a scribe could open this file; makes none. */
MUST_USE int scribe_try(const char *path, struct err *e);
/* Whole lines. False: dropped. now: they are not to wait for others. */
bool scribe_add(struct scribe *s, struct slice lines, bool now);
/* What was added before goes into the old file, the rest into the one that has the name now. */
void scribe_reopen(struct scribe *s);
uint64_t scribe_dropped(const struct scribe *s); /* lines */
/* Waits until all is written, so long at most. For a thread that is about to abort, whatever it
 * holds. */
void scribe_settle(struct scribe *s, uint64_t at_most_ms);
/* Writes what is left; where nobody reads the other end, for a bounded time. */
void scribe_close(struct scribe **sp);

#endif
