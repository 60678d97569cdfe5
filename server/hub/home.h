/* home.h - what the cache has of repositories that are pulled through, from its rows: words of the Hub, listings, files.
 *
 * A home is one spelling of one repository's name. Files lie with the canonical spelling, listings and words with the one that
 * was asked for; homes_ask() brings them together. home.c is the stock (stock.h) of such repos, too.
 *
 * owns     homes_free() ends all; what is read from them are slices of their arena
 * threads  one at a time; blocks
 */
#ifndef SERVER_HUB_HOME_H
#define SERVER_HUB_HOME_H

#include <uthash.h>

#include "server/hub/stock.h"
#include "server/repo/repo.h"

struct home_doc {
    struct home_doc *next;
    bool listing;         /* of a commit, else the Hub's word on a revision */
    struct slice rev;     /* p == NULL: the default branch */
    struct slice row_key; /* with the caller's mark, when it came by one's right */
    bool callers;
    struct digest digest;
    uint64_t asked_unix_s;
    /* of what was read: */
    bool understood;
    bool closed;
    struct slice id, commit;
};

struct home_blob; /* a file of it, whole or in part */
struct home {
    UT_hash_handle hh;
    struct slice name; /* "models/org/name" */
    struct slice type, id;
    struct slice known_as; /* another spelling of that home; else empty */
    struct home_doc *docs;
    struct home_blob *blobs;
    uint64_t whole_bytes;
    uint64_t last_asked_unix_s;
};

struct homes {
    struct arena arena;
    const struct stock_view *view;
    struct home *by_name;
};
#define HOMES_OF(v) ((struct homes){.view = (v)})

/* The home of what was asked for as `id`, by any spelling; NULL: nothing is known of it. Reads as much as it takes. */
MUST_USE int homes_ask(struct homes *h, struct slice type, struct slice id, struct home **out,
                       struct err *e);
void homes_free(struct homes *h);

/* The Hub's last word on a revision that was asked for: by its name, else by the commit that it is. NULL: it is not here. */
const struct home_doc *home_word(const struct home *x, struct slice rev);
/* A commit's listing part by part; `first` begins anew: what came before was of one that is not all here. E_NOTFOUND: none is. */
MUST_USE int home_listing(const struct homes *h, const struct home *x, struct slice commit,
                          int (*each)(void *arg, const struct gather_part *p, struct err *e),
                          void *arg, struct err *e);

#endif
