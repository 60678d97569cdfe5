#include "server/page/html.h"

#include <inttypes.h>

#include "common/codec/base64.h"
#include "common/codec/units.h"
#include "common/codec/utf8.h"
#include "common/hash/digest.h"

#include "page.gen.h" /* page_css, copy_js: from server/admin/page/, by the Makefile */

#define REPLACEMENT "\xef\xbf\xbd"

/* Marks of direction, joiners, breaks, the byte order mark: a name may look like another by
 * them. */
static bool is_unseen(uint32_t c)
{
    return c < ' ' || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x61c || c == 0x180e ||
           (c >= 0x200b && c <= 0x200f) || (c >= 0x2028 && c <= 0x202e) ||
           (c >= 0x2060 && c <= 0x206f) || c == 0xfeff || (c >= 0xfff9 && c <= 0xfffb) ||
           (c >= 0xe0000 && c <= 0xe007f);
}

void html_text(struct buf *out, struct slice s)
{
    while (s.n != 0) {
        size_t n = 1;
        bool whole = utf8_next(s, &n) == UTF8_WHOLE;
        char c = s.p[0];
        if (!whole || is_unseen(utf8_char(s))) {
            buf_str(out, REPLACEMENT);
        } else if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'') {
            buf_addf(out, "&#%d;", c);
        } else {
            buf_add(out, s.p, n);
        }
        s = slice_from(s, n);
    }
}

void html_words(struct buf *out, struct slice s)
{
    for (bool code = false; s.n > 0; code = !code) {
        struct slice part = slice_cut(&s, '`');
        if (part.n > 0) {
            buf_str(out, code ? "<code>" : "");
            html_text(out, part);
            buf_str(out, code ? "</code>" : "");
        }
    }
}

void html_size(struct buf *out, uint64_t bytes)
{
    char text[UNITS_TEXT];

    size_format(bytes, text);
    buf_str(out, text);
}

void html_ago(struct buf *out, uint64_t unix_s, uint64_t now_unix_s)
{
    if (unix_s != 0) {
        html_span(out, now_unix_s - min_u64(now_unix_s, unix_s));
        buf_str(out, " ago");
    }
}

void html_span(struct buf *out, uint64_t seconds)
{
    char text[UNITS_TEXT];

    if (seconds < 60) { /* "5.0 s" would be more exact than we are */
        buf_addf(out, "%" PRIu64 " s", seconds);
        return;
    }
    span_format(seconds * 1000, text);
    buf_str(out, text);
}

void html_shell_word(struct buf *out, struct slice s)
{
    bool plain = s.n != 0;

    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        plain = plain && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || (c != '\0' && strchr("._-/@:+", c) != NULL));
    }
    if (plain) {
        buf_adds(out, s);
        return;
    }
    buf_byte(out, '\'');
    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] == '\'') {
            buf_str(out, "'\\''");
        } else {
            buf_byte(out, (uint8_t)s.p[i]);
        }
    }
    buf_byte(out, '\'');
}

/* --- the frame -------------------------------------------------------------------------------- */

void html_begin(struct buf *out, struct slice title)
{
    buf_str(out, "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
                 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
                 "<meta name=\"color-scheme\" content=\"light dark\">\n" HTML_ICON "<title>");
    html_text(out, title);
    buf_addf(out, "</title>\n<style>%s</style>\n", page_css);
}

void html_nav_begin(struct buf *out, struct slice href)
{
    buf_addf(out, "<a href=" SLICE_FMT " >", SLICE_ARG(href));
}

void html_end(struct buf *out, enum html_page kind)
{
    buf_str(out, "<footer>");
    html_nav_begin(out, SLICE("/"));
    buf_str(out, "status</a> <span>mirrord " MIRROR_VERSION "</span></footer>\n");
    if (kind == HTML_REPOSITORY) {
        buf_addf(out, "<script>%s</script>\n", copy_js);
    }
    buf_str(out, "</html>\n");
}

void html_hash(struct buf *out, const char *text)
{
    char base64[BASE64_ROOM(DIGEST_BYTES)];
    struct digest d;

    digest_of(slice_str(text), &d);
    base64_encode(d.b, DIGEST_BYTES, base64);
    buf_addf(out, "'sha256-%s'", base64);
}

void html_policy(struct buf *out, enum html_page kind)
{
    buf_str(out, "default-src 'none'; style-src ");
    html_hash(out, page_css);
    if (kind == HTML_REPOSITORY) {
        buf_str(out, "; script-src ");
        html_hash(out, copy_js);
    }
    buf_addf(out, "; img-src data:; form-action %s; frame-ancestors 'none'; base-uri 'none'",
             kind == HTML_REPOSITORY ? "'self'" : "'none'");
}
