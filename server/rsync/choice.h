/* choice.h - what of a module a client chooses: the paths of its arguments, or a list of names that it sends (--files-from).
 *
 * Names end with a NUL, the list with a name of nothing; before protocol 31 they stand between the frames, not in them. What is
 * not there is told, and the rest comes; what may not be had refuses all. A list has bounds: CHOICE_BYTES_MAX, CHOICE_STALLS
 * times the stall from its first byte to its last.
 *
 * owns     the view; view_fini() is the caller's
 * threads  its session's own; blocks
 * errors   E_DENIED, E_INVALID, E_TOOBIG, E_NOTFOUND: the client is to be told, with exit_code; E_TIMEOUT too, while it sends names;
 *          those of the stream
 * source   sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_CHOICE_H
#define SERVER_RSYNC_CHOICE_H

#include "server/rsync/view.h"
#include "server/rsync/welcome.h"

enum { CHOICE_BYTES_MAX = 256 << 20, CHOICE_STALLS = 10 };
enum {
    CHOICE_EXIT_SYNTAX = 1,
    CHOICE_EXIT_REFUSED = 4,
    CHOICE_EXIT_SELECTING = 3,
    CHOICE_EXIT_TIMEOUT = 30
}; /* rsync(1) */

struct choice { /* the first five are the caller's to fill */
    struct stream *stream;
    const struct welcome *welcome;
    const struct options *options;
    const struct filter *filter;
    struct budget *budget;
    struct view view;
    bool missing; /* something was, and the client was told */
    int32_t
        io_error; /* not all that was asked for could be looked at: the client removes nothing */
    int32_t exit_code; /* of the client, when all is refused */
};

MUST_USE int choice_make(struct choice *c, const struct file_list *l, struct err *e);

#endif
