#include "common/base/log.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "common/os/scribe.h"

enum { RING_BYTES = 4 << 20, SETTLE_MS = 500 };

static _Atomic int level_now = LOG_INFO; /* set once by main(), read everywhere */
static struct scribe *_Atomic scribe;    /* NULL: lines are written at once */
static _Atomic uint64_t dropped_told;
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

static void put(struct slice line)
{
    struct scribe *s = scribe;
    uint64_t dropped, told;
    char lost[128];
    int n;

    if (s == NULL) {
        if (write(STDERR_FILENO, line.p, line.n) == -1) {
            return; /* nowhere to say it */
        }
        return;
    }
    dropped = scribe_dropped(s);
    told = dropped_told;
    if (scribe_add(s, line, true) && dropped > told &&
        atomic_compare_exchange_strong(&dropped_told, &told, dropped)) {
        n = put_prefix(lost, sizeof lost - 32, LOG_WARN, "log.dropped");
        n += snprintf(lost + n, sizeof lost - (size_t)n, "lines=%" PRIu64 "\n", dropped - told);
        (void)scribe_add(s, slice_of(lost, (size_t)n), true);
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
    put(slice_of(line, (size_t)n));
}

void log_begin(void)
{
    struct scribe *s = NULL;
    int rc = scribe_open("log", NULL, RING_BYTES, &s, NULL);

    CHECK(rc == 0 && scribe == NULL);
    dropped_told = 0;
    scribe = s;
}

void log_end(void)
{
    struct scribe *s = atomic_exchange(&scribe, NULL);

    scribe_close(&s);
}

struct scribe *log_scribe(void)
{
    return scribe;
}

void log_settle(void)
{
    struct scribe *s = scribe;

    if (s != NULL) {
        scribe_settle(s, SETTLE_MS);
    }
}

uint64_t log_dropped(void)
{
    struct scribe *s = scribe;

    return s != NULL ? scribe_dropped(s) : 0;
}
