/* ask.h - one path that a client asks for, understood: where it is, and what of its name is told.
 *
 * "path/" is what is in that folder, told from ".", "path" the entry itself, "path/pattern" those that match. Relative (-R): told from the
 * top, or from behind "/./", with the folders on the way.
 *
 * threads  any; a plain value, whose pattern is borrowed
 * errors   E_INVALID: it leads elsewhere, or is too long
 * source   sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_ASK_H
#define SERVER_RSYNC_ASK_H

#include "server/rsync/options.h"
#include "server/sync/rsync/list.h"

struct ask { /* one path, as it was understood */
    char path[LIST_PATH_MAX + 1];
    size_t path_n;        /* without a pattern, and without '/' at its ends; 0: the top */
    struct slice pattern; /* of names in it; of the client's text */
    bool contents;        /* of the folder, not itself */
    bool named;           /* by a list of names: a file may be asked for as if it were a folder */
    bool dotted;          /* its name began with "./": the folder that it stands in is told too */
    size_t strip;         /* bytes that are not told */
};
MUST_USE int ask_path(struct slice path, const struct client_options *o, struct ask *out,
                      struct err *e);
/* A name of a list that stands below the folder `base`: no pattern, and what leads above it stays in it. */
MUST_USE int ask_name(const struct ask *base, struct slice name, const struct client_options *o,
                      struct ask *out, struct err *e);

#endif
