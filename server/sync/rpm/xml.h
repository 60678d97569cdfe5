/* xml.h - the XML of rpm repositories as it comes: elements with their attributes, then their text at their end.
 *
 * A stranger wrote it: no document type, so no entities of its own; depth, text and tags have bounds.
 *
 * threads  one at a time; pure
 * errors   E_INVALID: no XML, or a document type; E_TOOBIG; what the events give
 */
#ifndef SERVER_SYNC_RPM_XML_H
#define SERVER_SYNC_RPM_XML_H

#include "common/base/err.h"
#include "common/base/slice.h"

struct xml;

struct xml_events { /* names without prefix ("rpm:sourcerpm" is "sourcerpm"). Nonzero ends it */
    int (*on_open)(void *arg, unsigned depth, const char *name, const char **attributes,
                   struct err *e); /* the root's depth is 1; attributes: name, value, ..., NULL */
    int (*on_end)(void *arg, unsigned depth, const char *name, struct slice text, struct err *e);
    void *arg;
};

struct xml *xml_open(const struct xml_events *ev);
MUST_USE int xml_feed(struct xml *x, struct slice bytes, struct err *e);
MUST_USE int xml_finish(struct xml *x, struct err *e);
void xml_close(struct xml **xp); /* NULL is fine */
/* NULL: there is no such attribute; prefixes count ("xml:base"). */
const char *xml_attribute(const char **attributes, const char *name);

#endif
