/* log_writer.h - writes lines to a file on its own thread, so that no caller waits for a disk or
 * a pipe.
 *
 * Lines are buffered in memory; a line for which there is no room is dropped and counted. A burst
 * becomes one write(2). A disk or a journal that hangs costs only the lines that do not fit.
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
/* Could a log writer open this file? Creates none. */
MUST_USE int log_writer_try(const char *path, struct err *e);
/* Whole lines. False: dropped. now: write them without waiting for more. */
bool log_writer_add(struct log_writer *s, struct slice lines, bool now);
/* Lines added before go into the old file, later ones into the file that has the name now. */
void log_writer_reopen(struct log_writer *s);
uint64_t log_writer_dropped(const struct log_writer *s); /* lines */
/* Waits until everything is written, at most this long. For a thread that is about to abort,
 * whatever locks it holds. */
void log_writer_settle(struct log_writer *s, uint64_t at_most_ms);
/* Writes what is left; for a limited time if the other end does not read. */
void log_writer_close(struct log_writer **sp);

#endif
