#include "common/codec/html.h"

static const char *reference(char c)
{
    switch (c) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void html_escape(struct slice s, struct buf *out)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        const char *ref = reference(c);

        if (ref != NULL) {
            buf_str(out, ref);
        } else if ((uint8_t)c >= 0x20 || c == '\t' || c == '\n') {
            buf_byte(out, (uint8_t)c);
        }
    }
}
