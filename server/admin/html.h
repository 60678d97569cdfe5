/* html.h - what our pages are written with: text from outside made harmless, sizes, spans, the parts that all pages share.
 *
 * threads  one at a time per buf
 */
#ifndef SERVER_ADMIN_HTML_H
#define SERVER_ADMIN_HTML_H

#include "common/base/buf.h"

/* Everything that did not come from our own sources passes here. Of bytes that are no UTF-8, and of characters that turn the
 * direction of a text or take no room, something visible is left. */
void html_text(struct buf *out, struct slice s);
void html_size(struct buf *out, uint64_t bytes);
void html_ago(struct buf *out, uint64_t unix_s, uint64_t now_unix_s); /* "-" for 0 */
/* One argument of a shell command; quoted where it has to be. Not yet harmless: html_text() follows. */
void html_shell_word(struct buf *out, struct slice s);

/* <!doctype> to the end of <style>; title is text from outside. Behind it stands <header>. */
void html_begin(struct buf *out, struct slice title);
void html_end(struct buf *out);
/* The Content-Security-Policy of pages made so: our style by its hash, forms that lead here, nothing else. */
void html_policy(struct buf *out);

#endif
