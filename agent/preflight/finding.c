#include "agent/preflight/finding.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *level_name(enum level l)
{
    switch (l) {
    case LEVEL_OK:
        return "OK";
    case LEVEL_WARN:
        return "WARN";
    case LEVEL_CRIT:
        return "CRIT";
    case LEVEL_SKIP:
        return "SKIP";
    }
    return "?";
}

/* What others wrote (a kernel's line, a driver's name) stays one line. */
static void one_line(char *text)
{
    for (; *text != '\0'; text++) {
        if ((uint8_t)*text < ' ' || *text == 0x7f) {
            *text = ' ';
        }
    }
}

/* Whole, or not at all: half a sentence tells less than that there are more. */
static void append_sentence(struct finding *f, const char *sentence)
{
    size_t have = strlen(f->text);
    size_t n = strlen(sentence);
    size_t between = have > 0 ? 2 : 0;

    if (have > 0 && have + between + n >= sizeof f->text) {
        f->more++;
        return;
    }
    snprintf(f->text + have, sizeof f->text - have, "%s%s", between > 0 ? "; " : "", sentence);
    f->reported++;
}

static void set_finding_text(struct finding *f, enum level level, const char *code,
                             const char *hint, const char *fmt, va_list ap)
{
    char sentence[sizeof f->text];

    if (level == LEVEL_OK && f->level == LEVEL_SKIP) {
        return;
    }
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    one_line(sentence);
    if (f->level == LEVEL_SKIP || level > f->level) {
        f->level = (uint8_t)level;
        f->text[0] = '\0';
        f->reported = 0;
        f->more = 0;
        snprintf(f->code, sizeof f->code, "%s", code);
        snprintf(f->hint, sizeof f->hint, "%s", hint);
    }
    if (level == f->level) {
        append_sentence(f, sentence);
    }
}

void finding_bad(struct finding *f, const char *code, const char *hint, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_finding_text(f, (enum level)f->worst_allowed, code, hint, fmt, ap);
    va_end(ap);
}

void finding_warn(struct finding *f, const char *code, const char *hint, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_finding_text(f, LEVEL_WARN, code, hint, fmt, ap);
    va_end(ap);
}

void finding_ok(struct finding *f, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_finding_text(f, LEVEL_OK, "", "", fmt, ap);
    va_end(ap);
}

void finding_skip(struct finding *f, const char *fmt, ...)
{
    va_list ap;

    if (f->level != LEVEL_OK || f->reported > 0) {
        return;
    }
    va_start(ap, fmt);
    vsnprintf(f->text, sizeof f->text, fmt, ap);
    va_end(ap);
    one_line(f->text);
    f->level = LEVEL_SKIP;
}
