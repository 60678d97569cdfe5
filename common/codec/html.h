/* html.h - text put into a page. */
#ifndef COMMON_CODEC_HTML_H
#define COMMON_CODEC_HTML_H

#include "common/base/buf.h"

/* For element text and for attributes in double quotes: & < > " ' become references, other control
 * bytes than blanks go. */
void html_escape(struct slice s, struct buf *out);

#endif
