/* html.h - escapes text for a page. */
#ifndef COMMON_CODEC_HTML_H
#define COMMON_CODEC_HTML_H

#include "common/base/buf.h"

/* For element text and for attributes in double quotes: & < > " ' become references; control
 * bytes other than blanks are removed. */
void html_escape(struct slice s, struct buf *out);

#endif
