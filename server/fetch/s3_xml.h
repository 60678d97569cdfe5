/* s3_xml.h - XML as S3 writes it, element by element, and no more of XML than that: no DTD and so
 * no entities of its own, a stated depth, a stated length of texts.
 *
 * threads  any; pure
 * errors   E_INVALID: no such document; what an event gives
 */
#ifndef SERVER_FETCH_S3_XML_H
#define SERVER_FETCH_S3_XML_H

#include "common/base/buf.h"

enum { S3_XML_DEPTH = 16, S3_XML_TEXT = 16 << 10 };

struct s3_xml_events {
    /* depth 0: the root. 0, or an E_* that ends it. May be NULL. */
    int (*on_open)(void *arg, struct slice name, unsigned depth);
    /* text: what stood in the element behind the last that it had inside. */
    int (*on_close)(void *arg, struct slice name, struct slice text, unsigned depth);
    void *arg;
};

MUST_USE int s3_xml_read(struct slice doc, const struct s3_xml_events *ev, struct err *e);

#endif
