#include "common/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/os/log_writer.h"

enum { RING_BYTES = 4 << 20, SETTLE_MS = 500 };

static _Atomic int level_now = LOG_INFO;      /* set once by main(), read everywhere */
static struct log_writer *_Atomic log_writer; /* NULL: lines are written at once */
static _Atomic uint64_t dropped_reported;
static void (*_Atomic divert)(enum log_level level, const char *line);

void log_set_level(enum log_level level)
{
    level_now = (int)level;
}

bool log_on(enum log_level level)
{
    return (int)level <= level_now;
}

void log_divert(void (*to)(enum log_level level, const char *line))
{
    divert = to;
}

/* Journald reads a "<n>" prefix as the priority; elsewhere people read a time and a word. */
static int put_prefix(char *to, size_t room, enum log_level level, const char *event)
{
    static const char *const word[] = {"error", "warn", "info", "debug"};
    static const int syslog_level[] = {3, 4, 6, 7};
    struct timespec ts;
    struct tm tm;

    if (getenv("JOURNAL_STREAM") != NULL) {
        return snprintf(to, room, "<%d>%s ", syslog_level[level], event);
    }
    clock_gettime(CLOCK_REALTIME, &ts);
    gmtime_r(&ts.tv_sec, &tm);
    return snprintf(to, room, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ %-5s %s ", tm.tm_year + 1900,
                    tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                    ts.tv_nsec / 1000000, word[level], event);
}

static void put_log_line(struct slice line)
{
    struct log_writer *s = log_writer;
    uint64_t dropped, reported;
    char lost[128];
    int n;

    if (s == NULL) {
        if (write(STDERR_FILENO, line.p, line.n) == -1) {
            return; /* nowhere to say it */
        }
        return;
    }
    dropped = log_writer_dropped(s);
    reported = dropped_reported;
    if (log_writer_add(s, line, true) && dropped > reported &&
        atomic_compare_exchange_strong(&dropped_reported, &reported, dropped)) {
        n = put_prefix(lost, sizeof lost - 32, LOG_WARN, "log.dropped");
        n += snprintf(lost + n, sizeof lost - (size_t)n, "lines=%" PRIu64 "\n", dropped - reported);
        (void)log_writer_add(s, slice_of(lost, (size_t)n), true);
    }
}

void log_line(enum log_level level, const char *event, const char *fmt, ...)
{
    char line[1536];
    void (*elsewhere)(enum log_level, const char *) = divert;
    va_list ap;
    int n;
    int m;

    if (!log_on(level)) {
        return;
    }
    n = elsewhere != NULL ? snprintf(line, sizeof line, "%s ", event)
                          : put_prefix(line, sizeof line, level, event);
    va_start(ap, fmt);
    m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    n += m < (int)sizeof line - n - 2 ? m : (int)sizeof line - n - 2;
    for (int i = 0; i < n; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    if (elsewhere != NULL) {
        line[n] = '\0';
        elsewhere(level, line);
        return;
    }
    line[n++] = '\n';
    put_log_line(slice_of(line, (size_t)n));
}

void log_begin(void)
{
    struct log_writer *s = NULL;
    int rc = log_writer_open("log", NULL, RING_BYTES, &s, NULL);

    CHECK(rc == 0 && log_writer == NULL);
    dropped_reported = 0;
    log_writer = s;
}

void log_end(void)
{
    struct log_writer *s = atomic_exchange(&log_writer, NULL);

    log_writer_close(&s);
}

struct log_writer *log_use_writer(void)
{
    return log_writer;
}

void log_settle(void)
{
    struct log_writer *s = log_writer;

    if (s != NULL) {
        log_writer_settle(s, SETTLE_MS);
    }
}

uint64_t log_dropped(void)
{
    struct log_writer *s = log_writer;

    return s != NULL ? log_writer_dropped(s) : 0;
}
