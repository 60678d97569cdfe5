#include "server/admin/jo.h"

#include <inttypes.h>

/* Length of the UTF-8 sequence at s (RFC 3629), 0 when there is none. */
static size_t utf8_at(struct slice s)
{
    uint8_t c = (uint8_t)s.p[0];
    size_t n = c < 0x80                ? 1
               : c >= 0xc2 && c < 0xe0 ? 2
               : c >= 0xe0 && c < 0xf0 ? 3
               : c >= 0xf0 && c < 0xf5 ? 4
                                       : 0;
    uint8_t second;

    if (n == 0 || n > s.n) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if (((uint8_t)s.p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    second = n > 1 ? (uint8_t)s.p[1] : 0;
    if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) || /* overlong, surrogates */
        (c == 0xf0 && second < 0x90) || (c == 0xf4 && second > 0x8f)) {
        return 0;
    }
    return n;
}

void jo_text(struct buf *out, struct slice value)
{
    size_t n;

    buf_byte(out, '"');
    for (size_t i = 0; i < value.n; i += n) {
        uint8_t c = (uint8_t)value.p[i];
        n = utf8_at(slice_from(value, i));
        if (n == 0) {
            n = 1;
            buf_str(out, "\\ufffd");
        } else if (c == '"' || c == '\\') {
            buf_byte(out, '\\');
            buf_byte(out, c);
        } else if (c < ' ' || c == 0x7f || c == '<') { /* '<': safe inside a page's script, too */
            buf_addf(out, "\\u%04x", c);
        } else {
            buf_add(out, value.p + i, n);
        }
    }
    buf_byte(out, '"');
}

static void lead_in(struct buf *out, const char *key)
{
    char last = out->n > 0 ? out->p[out->n - 1] : '{';

    if (last != '{' && last != '[' && last != '\n') {
        buf_byte(out, ',');
    }
    if (key != NULL) {
        jo_text(out, slice_str(key));
        buf_byte(out, ':');
    }
}

void jo_open(struct buf *out, const char *key, char bracket)
{
    lead_in(out, key);
    buf_byte(out, (uint8_t)bracket);
}

void jo_shut(struct buf *out, char bracket)
{
    buf_byte(out, (uint8_t)bracket);
}

void jo_str(struct buf *out, const char *key, struct slice value)
{
    lead_in(out, key);
    jo_text(out, value);
}

void jo_u64(struct buf *out, const char *key, uint64_t value)
{
    lead_in(out, key);
    buf_addf(out, "%" PRIu64, value);
}

void jo_ratio(struct buf *out, const char *key, double value)
{
    lead_in(out, key);
    buf_addf(out, "%.4f", value);
}

void jo_bool(struct buf *out, const char *key, bool value)
{
    lead_in(out, key);
    buf_str(out, value ? "true" : "false");
}

void jo_null(struct buf *out, const char *key)
{
    lead_in(out, key);
    buf_str(out, "null");
}
