#include "common/codec/settings_scan.h"

#include <stdlib.h>

enum { DEPTH_MAX = 8 };

struct scan {
    const char *file;
    char *start, *p, *end;
    unsigned line;
    bool long_texts;
    unsigned depth, opened[DEPTH_MAX]; /* lines of the braces that are open */
    struct err *e;
};

static int settings_scan_error(const struct scan *s, unsigned line, const char *what)
{
    return err_set(s->e, E_CONFIG, "%s:%u: %s", s->file, line, what);
}

static char peek(const struct scan *s, size_t ahead)
{
    return (size_t)(s->end - s->p) > ahead ? s->p[ahead] : '\0';
}

static void blank(struct scan *s)
{
    if (*s->p == '\n') {
        s->line++;
    } else {
        *s->p = ' ';
    }
    s->p++;
}

static void line_comment(struct scan *s)
{
    while (s->p < s->end && *s->p != '\n') {
        blank(s);
    }
}

static int block_comment(struct scan *s)
{
    unsigned from = s->line;

    blank(s);
    blank(s);
    while (s->p < s->end && !(peek(s, 0) == '*' && peek(s, 1) == '/')) {
        blank(s);
    }
    if (s->p == s->end) {
        return settings_scan_error(
            s, from, "a comment is not closed: the file ends before \"*/\"; close it");
    }
    blank(s);
    blank(s);
    return 0;
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* "${NAME}" or "${NAME:-default}": libconfuse puts the value in, we see to it that there is one. */
static int scan_variable(struct scan *s)
{
    char name[64];
    size_t n = 0;
    char *p = s->p + 2;

    while (p < s->end && name_byte(*p) && n < sizeof(name) - 1) {
        name[n++] = *p++;
    }
    name[n] = '\0';
    if (n == 0 || p == s->end || (*p != '}' && !(*p == ':' && p + 1 < s->end && p[1] == '-'))) {
        return settings_scan_error(
            s, s->line,
            "a variable is invalid: it is written ${NAME} or ${NAME:-default}; write \\$ "
            "for a dollar sign");
    }
    if (*p == '}' && getenv(name) == NULL) {
        return err_set(s->e, E_CONFIG,
                       "%s:%u: variable %s is not set: its value would be empty; export it or "
                       "write ${%s:-default}",
                       s->file, s->line, name, name);
    }
    while (p < s->end && *p != '}' && *p != '\n' && *p != '"') {
        p++;
    }
    if (p == s->end || *p != '}') {
        return settings_scan_error(s, s->line,
                                   "a variable is not closed: \"}\" is missing; close it");
    }
    s->p = p + 1;
    return 0;
}

static int quoted(struct scan *s)
{
    char quote = *s->p++;
    unsigned from = s->line;
    int rc;

    while (s->p < s->end && *s->p != quote) {
        if (*s->p == '\n' && !s->long_texts) {
            return settings_scan_error(
                s, from, "a string is not closed: the line ends before its quote; close it");
        }
        if (quote == '"' && *s->p == '$' && peek(s, 1) == '{') {
            rc = scan_variable(s);
            if (rc != 0) {
                return rc;
            }
            continue;
        }
        if (*s->p == '\\') {
            char c = peek(s, 1);
            if (c == '\0' || c == '\n' || (quote == '"' && strchr("\"\\$nrt", c) == NULL)) {
                return settings_scan_error(
                    s, s->line,
                    "an escape is unknown: in double quotes there are \\\" \\\\ \\$ \\n "
                    "\\r \\t; single quotes keep everything else unchanged");
            }
            s->p++;
        }
        s->line += *s->p == '\n';
        s->p++;
    }
    if (s->p == s->end) {
        return settings_scan_error(
            s, from, "a string is not closed: the file ends before its quote; close it");
    }
    s->p++;
    return 0;
}

static int outside(struct scan *s)
{
    char c = *s->p;

    if (c == '"' || c == '\'') {
        return quoted(s);
    }
    if (c == '/' && peek(s, 1) == '/' && s->p > s->start && s->p[-1] == ':') {
        return settings_scan_error(
            s, s->line, "a URL is not quoted: \"//\" begins a comment; put it in quotes");
    }
    if (c == '/' && peek(s, 1) == '*') {
        return block_comment(s);
    }
    if (c == '#' || (c == '/' && peek(s, 1) == '/')) {
        line_comment(s);
        return 0;
    }
    if (strchr("$|*;", c) != NULL || (c == '+' && peek(s, 1) != '=')) {
        return err_set(
            s->e, E_CONFIG,
            "%s:%u: '%c' is outside of a string: it has no meaning there; put the text in quotes",
            s->file, s->line, c);
    }
    if (c == '{' && s->depth == DEPTH_MAX) {
        return settings_scan_error(
            s, s->line, "braces are nested too deeply: no section has as many levels; close some");
    }
    if (c == '{') {
        s->opened[s->depth++] = s->line;
    } else if (c == '}' && s->depth > 0) {
        s->depth--; /* one too many is libconfuse's to find, one too few it takes */
    }
    s->line += c == '\n';
    s->p++;
    return 0;
}

static int control_bytes(struct scan *s)
{
    for (const char *p = s->start; p < s->end; p++) {
        if (((uint8_t)*p < ' ' && *p != '\n' && *p != '\r' && *p != '\t') || *p == 0x7f) {
            return settings_scan_error(
                s, s->line,
                "the text has a control byte: this may not be a configuration file; remove it");
        }
        s->line += *p == '\n';
    }
    s->line = 1;
    return 0;
}

int settings_scan(const char *file, char *text, size_t n, bool long_texts, struct err *e)
{
    struct scan s = {.file = file,
                     .start = text,
                     .p = text,
                     .end = text + n,
                     .line = 1,
                     .long_texts = long_texts,
                     .e = e};
    int rc = control_bytes(&s);

    while (rc == 0 && s.p < s.end) {
        rc = outside(&s);
    }
    if (rc == 0 && s.depth > 0) {
        rc = settings_scan_error(&s, s.opened[s.depth - 1],
                                 "a brace is not closed: the file ends before its \"}\"; close it");
    }
    return rc;
}
