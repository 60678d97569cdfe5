/* html.h - what our pages are written with: text from outside made harmless, sizes, spans, the
 * parts that all pages share.
 *
 * threads  one at a time per buf
 */
#ifndef SERVER_PAGE_HTML_H
#define SERVER_PAGE_HTML_H

#include "common/base/buf.h"

/* Everything that did not come from our own sources passes here. Of bytes that are no UTF-8, and of
 * characters that turn the direction of a text or take no room, something visible is left. */
void html_text(struct buf *out, struct slice s);
/* The same of a sentence of ours; commands stand in `backticks`. */
void html_words(struct buf *out, struct slice s);
void html_size(struct buf *out, uint64_t bytes);
void html_span(struct buf *out, uint64_t seconds);
void html_ago(struct buf *out, uint64_t unix_s, uint64_t now_unix_s); /* nothing for 0 */
/* One argument of a shell command; quoted where it has to be. Not yet harmless: html_text()
 * follows. */
void html_shell_word(struct buf *out, struct slice s);

/* The line of a page's head that names its icon: a data: URL, so that no further request is
 * made. */
#define HTML_ICON                                                                                  \
    "<link rel=\"icon\" href=\"data:image/svg+xml,"                                                \
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E"                             \
    "%3Crect width='32' height='32' rx='7' fill='%230b6bcb'/%3E"                                   \
    "%3Cpath d='M7 23V9l9 9 9-9v14' fill='none' stroke='white' stroke-width='3.4' "                \
    "stroke-linecap='round' stroke-linejoin='round'/%3E%3C/svg%3E\">\n"

enum html_page {
    HTML_FOLDER,     /* links only */
    HTML_REPOSITORY, /* a search form, and commands in <pre>: a script adds a copy button to each */
};

/* <!doctype> to the end of <style>; title is text from outside. <header> follows. */
void html_begin(struct buf *out, struct slice title);
/* The start tag of a navigation link; href is a path without quotes and blanks. The attribute is
 * not quoted, because clients that search a page for href="..." (fsspec) take every such link for
 * an entry of the folder. */
void html_nav_begin(struct buf *out, struct slice href);
void html_end(struct buf *out, enum html_page kind);
/* The page's Content-Security-Policy: our own style and script by their hashes, nothing else. */
void html_policy(struct buf *out, enum html_page kind);
/* A policy's source that admits this very text, "'sha256-...'". */
void html_hash(struct buf *out, const char *text);

#endif
