/* s3_xml.h - parses XML as S3 writes it, element by element.
 *
 * It supports no more of XML than that: no DTD and so no entities of its own, a bounded depth, a
 * bounded length of texts.
 *
 * owns     nothing: an event's slices are borrowed
 * threads  any; pure
 * errors   E_INVALID: not such a document; or the code that an event returns
 */
#ifndef SERVER_FETCH_S3_XML_H
#define SERVER_FETCH_S3_XML_H

#include "common/base/buf.h"

enum { S3_XML_DEPTH = 16, S3_XML_TEXT = 16 << 10 };

struct s3_xml_events {
    /* depth 0: the root. Returns 0, or an E_* that ends the parsing. May be NULL. */
    int (*on_open)(void *arg, struct slice name, unsigned depth);
    /* text: the element's text after its last child. */
    int (*on_close)(void *arg, struct slice name, struct slice text, unsigned depth);
    void *arg;
};

MUST_USE int s3_xml_read(struct slice doc, const struct s3_xml_events *ev, struct err *e);

#endif
