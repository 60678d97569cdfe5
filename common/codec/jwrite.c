#include "common/codec/jwrite.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/codec/utf8.h"

static void before_value(struct jwrite *j)
{
    if (j->keyed) {
        j->keyed = false;
        return;
    }
    if ((j->some >> j->depth & 1) != 0) {
        buf_byte(j->out, ',');
    }
    j->some |= (uint64_t)1 << j->depth;
}

void jwrite_open(struct jwrite *j, char bracket)
{
    before_value(j);
    buf_byte(j->out, (uint8_t)bracket);
    if (j->depth == JWRITE_DEPTH) {
        j->out->rc = j->out->rc != 0 ? j->out->rc : E_TOOBIG;
        return;
    }
    j->depth++;
    j->some &= ~((uint64_t)1 << j->depth);
}

void jwrite_close(struct jwrite *j, char bracket)
{
    if (j->depth > 0) {
        j->depth--;
    }
    buf_byte(j->out, (uint8_t)bracket);
}

static bool stands_in_string(uint8_t c)
{
    return c >= 0x20 && c != '"' && c != '\\' && c < 0x7f;
}

static void quoted(struct buf *out, struct slice s)
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

void jwrite_key(struct jwrite *j, struct slice key)
{
    before_value(j);
    quoted(j->out, key);
    buf_byte(j->out, ':');
    j->keyed = true;
}

void jwrite_text(struct jwrite *j, struct slice s)
{
    before_value(j);
    quoted(j->out, s);
}

void jwrite_u64(struct jwrite *j, uint64_t n)
{
    before_value(j);
    buf_addf(j->out, "%" PRIu64, n);
}

void jwrite_word(struct jwrite *j, struct slice w)
{
    before_value(j);
    buf_adds(j->out, w);
}

void jwrite_slice_of(struct jwrite *j, const char *key, struct slice value)
{
    jwrite_key(j, slice_str(key));
    jwrite_text(j, value);
}

void jwrite_word_of(struct jwrite *j, const char *key, const char *word)
{
    jwrite_key(j, slice_str(key));
    jwrite_word(j, slice_str(word));
}

void jwrite_text_of(struct jwrite *j, const char *key, const char *value)
{
    jwrite_key(j, slice_str(key));
    jwrite_text(j, slice_str(value));
}

void jwrite_u64_of(struct jwrite *j, const char *key, uint64_t n)
{
    jwrite_key(j, slice_str(key));
    jwrite_u64(j, n);
}

void jwrite_double_of(struct jwrite *j, const char *key, double x)
{
    char text[32];

    snprintf(text, sizeof text, "%.6g", x);
    jwrite_key(j, slice_str(key));
    jwrite_word(j, slice_str(text));
}

/* "file:line: " before a sentence: where the file's name ends, or -1. A name may have colons of its own. */
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

void jwrite_err(struct jwrite *j, const struct err *e)
{
    struct slice text = slice_str(e->text[0] != '\0' ? e->text : err_plain(e->code));
    uint64_t line;
    ptrdiff_t at = e->code == E_CONFIG ? place_in(text, &line) : -1;

    jwrite_open(j, '{');
    jwrite_key(j, SLICE("code"));
    jwrite_text(j, slice_str(err_name(e->code)));
    jwrite_key(j, SLICE("exit"));
    jwrite_u64(j, (uint64_t)err_sysexit(e->code));
    jwrite_key(j, SLICE("text"));
    jwrite_text(j, text);
    if (at > 0) {
        jwrite_key(j, SLICE("file"));
        jwrite_text(j, slice_first(text, (size_t)at));
        jwrite_key(j, SLICE("line"));
        jwrite_u64(j, line);
    }
    jwrite_close(j, '}');
}
