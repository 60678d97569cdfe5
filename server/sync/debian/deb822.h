/* deb822.h - parses the stanzas of Debian's indexes as they stream by: fields with their lines,
 * then the end of each stanza.
 *
 * owns     deb822_fini() frees the incomplete line
 * threads  one at a time; pure
 * errors   E_TOOBIG: a line of more than 1 MiB; E_INVALID: a field is missing where one is
 *          required; any result of on_line
 */
#ifndef SERVER_SYNC_DEBIAN_DEB822_H
#define SERVER_SYNC_DEBIAN_DEB822_H

#include "common/base/buf.h"

struct deb822_events {
    /* The first line of a field's value (may be empty), then each further one, without
     * surrounding blanks. A nonzero result ends it. */
    int (*on_line)(void *arg, struct slice field, bool first, struct slice value, struct err *e);
    int (*on_end)(void *arg, struct err *e); /* of a stanza that had a field */
    void *arg;
};

struct deb822 {
    struct deb822_events ev;
    struct buf line;  /* an incomplete line */
    struct buf field; /* the field that further lines belong to */
    bool any;         /* in this stanza */
};

void deb822_init(struct deb822 *d, const struct deb822_events *ev);
MUST_USE int deb822_feed(struct deb822 *d, struct slice bytes, struct err *e);
/* The last line may lack its newline. */
MUST_USE int deb822_finish(struct deb822 *d, struct err *e);
void deb822_fini(struct deb822 *d);

#endif
