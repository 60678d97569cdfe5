/* view.h - what of a module one client asked for: entries of the shared list, below which names
 * they are told.
 *
 * Several paths make one view: where two tell the same name the first counts. Places in the view
 * are the client's indices: it sorts as we do.
 *
 * A path is looked up, not searched for; what is below a folder stands behind it.
 *
 * view_choose() makes one for a session; what it is made of stands before it, without a session,
 * for unit tests and fuzzing.
 *
 * owns     eight bytes an entry, twice that while they are sorted, four an entry of the list for
 *          hard links; view_fini()
 * threads  any; a choice is its session's, and blocks
 * errors   E_NOTFOUND: there is nothing; E_INVALID: it leads elsewhere, or its way is no folder;
 *          E_TOOBIG: too many paths tell the same things, or the budget is spent
 */
#ifndef SERVER_RSYNC_VIEW_H
#define SERVER_RSYNC_VIEW_H

#include "common/codec/filter.h"
#include "server/rsync/budget.h"
#include "server/rsync/options.h"
#include "server/sync/rsync/list.h"

enum view_say {
    VIEW_TOP = 1, /* asked for by its own name; with BARE: only on the way to that */
    VIEW_BARE =
        2, /* a folder of whose contents nothing is said: the client leaves alone what it has there */
    VIEW_DOT = 4, /* told as "." */
};

struct ask { /* one path, as it was understood */
    char path[LIST_PATH_MAX + 1];
    size_t path_n;        /* without a pattern, and without '/' at its ends; 0: the top */
    struct slice pattern; /* of names in it; of the client's text */
    bool contents;        /* of the folder, not itself */
    bool named;           /* by a list of names: a file may be asked for as if it were a folder */
    bool dotted;          /* its name began with "./": the folder that it stands in is told too */
    size_t strip;         /* bytes that are not told */
};

struct view_entry {
    uint32_t at; /* index in the list */
    uint16_t strip;
    uint8_t say;
};

struct view {
    const struct file_list *list;
    struct budget *budget; /* borrowed */
    struct view_entry *entry;
    uint32_t count, room;
    uint32_t settled; /* so many are in order, each once */
    /* The name that was added last; its first `strip` bytes are not told. */
    char last[LIST_PATH_MAX + 1];
    size_t last_n, strip;
    bool mixed;     /* what is not told differs between names: places say nothing of the order */
    int32_t *group; /* of hard links, by its first's index in the list; NULL: there are none */
};

/* "path/" is what is in that folder, told from ".", "path" the entry itself, "path/pattern" those
 * that match. Relative (-R): told from the top, or from behind "/./", with the folders on the way.
 * E_INVALID: it leads elsewhere, or is too long. */
MUST_USE int ask_path(struct slice path, const struct client_options *o, struct ask *out,
                      struct err *e);
/* A name of a list that stands below the folder `base`: no pattern, and what leads above it stays
 * in it. */
MUST_USE int ask_name(const struct ask *base, struct slice name, const struct client_options *o,
                      struct ask *out, struct err *e);

void view_init(struct view *v, const struct file_list *l, struct budget *budget);
MUST_USE int view_add(struct view *v, const struct ask *a, const struct client_options *o,
                      const struct filter *f, struct err *e);
/* One of many: what is told stands in order, and counts, after view_settle() alone. */
MUST_USE int view_add_name(struct view *v, const struct ask *a, const struct client_options *o,
                           const struct filter *f, struct err *e);
MUST_USE int view_settle(struct view *v, struct err *e);
const struct list_entry *view_at(const struct view *v, uint32_t index);
/* How the client knows it; room as for list_path(). */
struct slice view_path(const struct view *v, uint32_t index, char *room);
/* Hard links: VIEW_LINK_NONE, VIEW_LINK_FIRST, or the index in the view of the entry that this one
 * is a link to. Of entries in their order, from 0 on, once each. Whoever of a group comes first
 * leads the others, also when the tree's own first is left out. */
enum { VIEW_LINK_NONE = -1, VIEW_LINK_FIRST = -2 };
int32_t view_link(struct view *v, uint32_t index);
uint64_t view_size_bytes(const struct view *v); /* of all files */
void view_fini(struct view *v);

enum {
    CHOICE_EXIT_SYNTAX = 1,
    CHOICE_EXIT_SELECTING = 3,
    CHOICE_EXIT_REFUSED = 4,
    CHOICE_EXIT_TIMEOUT = 30
}; /* rsync(1) */

struct stream;

struct view_choice { /* of a session, whose to fill is all before the view */
    struct stream *stream;
    const char *module;
    unsigned version;                                  /* of the protocol */
    bool (*reads)(const void *arg, struct slice path); /* may the client read all below it? */
    const void *arg;
    const struct client_options *options;
    struct filter *filter;
    struct budget *budget;
    struct view view;
    bool missing; /* something was, and the client was told */
    /* not all that was asked for could be looked at: the client removes nothing */
    int32_t io_error;
    int32_t exit_code; /* of the client, when all is refused */
};

/* The view of the client's paths, or of the names that it sends (--files-from), less what -C leaves
 * out. What is not there is told, and the rest comes; what may not be had refuses all. view_fini()
 * is the caller's in any case. E_DENIED, E_INVALID, E_TOOBIG, E_NOTFOUND, E_UNSUPPORTED: the client
 * is to be told, with exit_code; E_TIMEOUT too, while it sends names; those of the stream. */
MUST_USE int view_choose(struct view_choice *c, const struct file_list *l, struct err *e);

#endif
