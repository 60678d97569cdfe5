/* view.h - the part of a module that one client requested: entries of the shared list, and the
 * names that it sees for them.
 *
 * Several paths make one view: where two give the same name the first counts. Positions in the
 * view are the client's indices: it sorts as we do.
 *
 * A path is looked up, not searched for; the contents of a folder follow it in the list.
 *
 * view_choose() makes a view for a session. The functions before it do not need a session; unit
 * tests and fuzzing use them.
 *
 * owns     eight bytes an entry, twice that while they are sorted, four per entry of the list for
 *          hard links; view_fini()
 * threads  any; a choice is its session's, and blocks
 * errors   E_NOTFOUND: no such path; E_INVALID: it leads outside, or passes through a file;
 *          E_TOOBIG: too many paths give the same names, or the budget is spent
 */
#ifndef SERVER_RSYNC_VIEW_H
#define SERVER_RSYNC_VIEW_H

#include "common/codec/filter.h"
#include "server/rsync/budget.h"
#include "server/rsync/options.h"
#include "server/sync/rsync/list.h"

enum view_say {
    VIEW_TOP = 1, /* requested by its own name; with BARE: only on the way to it */
    VIEW_BARE =
        2, /* a folder whose contents are not listed: the client leaves its own files there alone */
    VIEW_DOT = 4, /* sent as "." */
};

struct ask { /* one path, parsed */
    char path[LIST_PATH_MAX + 1];
    size_t path_n;        /* without a pattern, and without '/' at its ends; 0: the top */
    struct slice pattern; /* pattern for names in it; part of the client's text */
    bool contents;        /* the folder's contents, not the folder */
    bool named;           /* from a list of names: a file may be requested as if it were a folder */
    bool dotted;          /* its name began with "./": the folder that it is in is sent too */
    size_t strip;         /* bytes of the path that are not sent */
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
    uint32_t settled; /* entries up to here are sorted and unique */
    /* The name that was added last; its first `strip` bytes are not sent. */
    char last[LIST_PATH_MAX + 1];
    size_t last_n, strip;
    bool mixed;     /* `strip` differs between names: positions do not give the order */
    int32_t *group; /* of hard links, by their first's index in the list; NULL: there are none */
};

/* "path/" is the contents of that folder, relative to ".", "path" the entry itself,
 * "path/pattern" the matching entries. Relative (-R): from the top, or from after "/./", with the
 * folders on the way. E_INVALID: it leads outside, or is too long. */
MUST_USE int ask_path(struct slice path, const struct client_options *o, struct ask *out,
                      struct err *e);
/* A name of a list, below the folder `base`: not a pattern, and it stays below the folder. */
MUST_USE int ask_name(const struct ask *base, struct slice name, const struct client_options *o,
                      struct ask *out, struct err *e);

void view_init(struct view *v, const struct file_list *l, struct budget *budget);
MUST_USE int view_add(struct view *v, const struct ask *a, const struct client_options *o,
                      const struct filter *f, struct err *e);
/* One of many: the view is sorted and valid only after view_settle(). */
MUST_USE int view_add_name(struct view *v, const struct ask *a, const struct client_options *o,
                           const struct filter *f, struct err *e);
MUST_USE int view_settle(struct view *v, struct err *e);
const struct list_entry *view_at(const struct view *v, uint32_t index);
/* Its name for the client; room as for list_path(). */
struct slice view_path(const struct view *v, uint32_t index, char *room);
/* Hard links: VIEW_LINK_NONE, VIEW_LINK_FIRST, or the index in the view of the entry that this
 * one is a link to. Call it for entries in order, from 0 on, once each. The first of a group in
 * the view leads the others, also when the tree's own first is left out. */
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

struct view_choice { /* of a session, whose caller sets all fields before the view */
    struct stream *stream;
    const char *module;
    unsigned version;                                  /* of the protocol */
    bool (*reads)(const void *arg, struct slice path); /* may the client read all below it? */
    const void *arg;
    const struct client_options *options;
    struct filter *filter;
    struct budget *budget;
    struct view view;
    bool missing; /* something was missing, and the client got a message */
    /* not all requested paths could be read: the client removes nothing */
    int32_t io_error;
    int32_t exit_code; /* for the client, when everything is refused */
};

/* The view of the client's paths, or of the names that it sends (--files-from), without the files
 * that -C excludes. A missing path is reported, and the others are served; a forbidden one
 * refuses the whole request. The caller calls view_fini() in any case. E_DENIED, E_INVALID,
 * E_TOOBIG, E_NOTFOUND, E_UNSUPPORTED: report it to the client, with exit_code; also E_TIMEOUT,
 * while it sends names; those of the stream. */
MUST_USE int view_choose(struct view_choice *c, const struct file_list *l, struct err *e);

#endif
