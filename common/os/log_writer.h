/* log_writer.h - lines for a file, written by a thread of its own: whoever has a line never waits
 * for a disk or a pipe.
 *
 * Lines are gathered in memory; those that find no room are dropped and counted. A burst becomes
 * one write(2), a disk or a journal that hangs costs what does not fit, never more.
 *
 * owns     the file that it opened; stderr stays open
 * threads  any
 */
#ifndef COMMON_OS_LOG_WRITER_H
#define COMMON_OS_LOG_WRITER_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct log_writer;

/* path NULL: stderr, which cannot fail. name: of the thread. */
MUST_USE int log_writer_open(const char *name, const char *path, size_t room_bytes,
                             struct log_writer **out, struct err *e);
/* Whether a log writer could open this file; makes none. */
MUST_USE int log_writer_try(const char *path, struct err *e);
/* Whole lines. False: dropped. now: they are not to wait for others. */
bool log_writer_add(struct log_writer *s, struct slice lines, bool now);
/* What was added before goes into the old file, the rest into the one that has the name now. */
void log_writer_reopen(struct log_writer *s);
uint64_t log_writer_dropped(const struct log_writer *s); /* lines */
/* Waits until all is written, so long at most. For a thread that is about to abort, whatever it
 * holds. */
void log_writer_settle(struct log_writer *s, uint64_t at_most_ms);
/* Writes what is left; where nobody reads the other end, for a bounded time. */
void log_writer_close(struct log_writer **sp);

#endif
