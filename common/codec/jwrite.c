#include "common/codec/jwrite.h"

#include <inttypes.h>

#include "common/codec/utf8.h"

static bool stands_in_string(uint8_t c)
{
    return c >= 0x20 && c != '"' && c != '\\' && c < 0x7f;
}

void jwrite_quoted(struct buf *out, struct slice s)
{
    buf_byte(out, '"');
    while (s.n > 0) {
        size_t plain = 0;
        size_t n;
        enum utf8 kind;

        while (plain < s.n && stands_in_string((uint8_t)s.p[plain])) {
            plain++;
        }
        buf_add(out, s.p, plain);
        s = slice_from(s, plain);
        if (s.n == 0) {
            break;
        }
        kind = utf8_next(s, &n);
        if (kind != UTF8_WHOLE) {
            buf_str(out, "\xef\xbf\xbd");
        } else if (n > 1) {
            buf_add(out, s.p, n);
        } else if (s.p[0] == '"' || s.p[0] == '\\') {
            buf_byte(out, '\\');
            buf_byte(out, (uint8_t)s.p[0]);
        } else {
            buf_addf(out, "\\u%04x", (uint8_t)s.p[0]);
        }
        s = slice_from(s, n);
    }
    buf_byte(out, '"');
}

/* A value ends in none of these bytes. */
static void comma(struct buf *out)
{
    if (out->n > 0 && memchr("{[:\n", out->p[out->n - 1], 4) == NULL) {
        buf_byte(out, ',');
    }
}

void jwrite_key(struct buf *out, struct slice key)
{
    comma(out);
    jwrite_quoted(out, key);
    buf_byte(out, ':');
}

static void lead_in(struct buf *out, const char *key)
{
    if (key != NULL) {
        jwrite_key(out, slice_str(key));
    } else {
        comma(out);
    }
}

void jwrite_open(struct buf *out, const char *key, char bracket)
{
    lead_in(out, key);
    buf_byte(out, (uint8_t)bracket);
}

void jwrite_close(struct buf *out, char bracket)
{
    buf_byte(out, (uint8_t)bracket);
}

void jwrite_text(struct buf *out, const char *key, struct slice value)
{
    lead_in(out, key);
    jwrite_quoted(out, value);
}

void jwrite_str(struct buf *out, const char *key, const char *value)
{
    jwrite_text(out, key, slice_str(value));
}

void jwrite_hex(struct buf *out, const char *key, const uint8_t *bytes, size_t n)
{
    lead_in(out, key);
    buf_byte(out, '"');
    for (size_t i = 0; i < n; i++) {
        buf_byte(out, (uint8_t) "0123456789abcdef"[bytes[i] >> 4]);
        buf_byte(out, (uint8_t) "0123456789abcdef"[bytes[i] & 15]);
    }
    buf_byte(out, '"');
}

void jwrite_u64(struct buf *out, const char *key, uint64_t value)
{
    char room[U64_DIGITS];

    lead_in(out, key);
    buf_adds(out, slice_of_u64(room, value));
}

void jwrite_double(struct buf *out, const char *key, double value)
{
    lead_in(out, key);
    buf_addf(out, "%.6g", value);
}

void jwrite_ratio(struct buf *out, const char *key, double value)
{
    lead_in(out, key);
    buf_addf(out, "%.4f", value);
}

void jwrite_bool(struct buf *out, const char *key, bool value)
{
    jwrite_word(out, key, value ? SLICE("true") : SLICE("false"));
}

void jwrite_null(struct buf *out, const char *key)
{
    jwrite_word(out, key, SLICE("null"));
}

void jwrite_word(struct buf *out, const char *key, struct slice word)
{
    lead_in(out, key);
    buf_adds(out, word);
}

/* "file:line: " before a sentence: where the file's name ends, or -1. A name may have colons of its
 * own. */
static ptrdiff_t place_in(struct slice text, uint64_t *line)
{
    for (size_t i = 0; i < text.n; i++) {
        struct slice rest = slice_from(text, i), number;

        if (text.p[i] != ':') {
            continue;
        }
        (void)slice_cut(&rest, ':');
        number = slice_cut(&rest, ':');
        if (i > 0 && slice_u64(number, line) && slice_starts(rest, SLICE(" "))) {
            return (ptrdiff_t)i;
        }
    }
    return -1;
}

void jwrite_err(struct buf *out, const char *key, const struct err *e)
{
    struct slice text = slice_str(e->text[0] != '\0' ? e->text : err_plain(e->code));
    uint64_t line;
    ptrdiff_t at = e->code == E_CONFIG ? place_in(text, &line) : -1;

    jwrite_open(out, key, '{');
    jwrite_str(out, "code", err_name(e->code));
    jwrite_u64(out, "exit", (uint64_t)err_sysexit(e->code));
    jwrite_text(out, "text", text);
    if (at > 0) {
        jwrite_text(out, "file", slice_first(text, (size_t)at));
        jwrite_u64(out, "line", line);
    }
    jwrite_close(out, '}');
}

int jwrite_dumped(const char *p, size_t n, void *out)
{
    struct buf *b = out;

    buf_add(b, p, n);
    return b->rc != 0 ? -1 : 0;
}
