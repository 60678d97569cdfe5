/* log.h - writes one line per event to stderr: logfmt for people and journald ("<3>" prefixes
 * when stderr is the journal).
 *
 * A line is one write(2), until log_begin(): from then on a thread writes, because a journal that
 * hangs must not block a loop.
 *
 * The form is log_info("fetch.done", "repo=%s bytes=%" PRIu64, ...). Values from outside go
 * through log_quote() or "%s" of a sanitised text. Control bytes never reach the terminal: each
 * line is escaped as a whole before it is written. The caller that decides logs; a function that
 * fails returns. Never log a token, a key or a signed URL.
 *
 * threads  any; log_begin() before other threads start, log_end() when they are gone
 */
#ifndef COMMON_BASE_LOG_H
#define COMMON_BASE_LOG_H

#include "common/base/check.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_line(enum log_level level, const char *event, const char *fmt, ...) PRINTF_LIKE(3, 4);
void log_set_level(enum log_level level); /* from main(): LOG_INFO is the default */
bool log_on(enum log_level level);
/* Passes lines only to `put`, as "event text" without a time; NULL: to stderr again. For programs
 * whose stderr no one reads. */
void log_divert(void (*put)(enum log_level level, const char *line));
struct log_writer;
void log_begin(void);
void log_end(void); /* writes what is left */
struct log_writer *
log_use_writer(void);       /* the writer of stderr, for other lines that go there; or NULL */
void log_settle(void);      /* before an abort: writes earlier lines first */
uint64_t log_dropped(void); /* lines that could not be written to stderr */

#define log_error(...) log_line(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_line(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_line(LOG_INFO, __VA_ARGS__)
#define log_debug(...)                                                                             \
    do {                                                                                           \
        if (log_on(LOG_DEBUG)) {                                                                   \
            log_line(LOG_DEBUG, __VA_ARGS__);                                                      \
        }                                                                                          \
    } while (0)

#endif
