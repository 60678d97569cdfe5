/* repo_index.h - what the cache has of repositories that are pulled through, from its rows: words
 * of the Hub, listings, files.
 *
 * A repository index is one spelling of one repository's name. Files lie with the canonical
 * spelling, listings and words with the one that was asked for; repo_indexes_ask() brings them
 * together. repo_index.c is the inventory (inventory.h) of such repos, too.
 *
 * owns     repo_indexes_free() ends all; what is read from them are slices of their arena
 * threads  one at a time; blocks
 */
#ifndef SERVER_HUB_REPO_INDEX_H
#define SERVER_HUB_REPO_INDEX_H

#include <uthash.h>

#include "server/hub/inventory.h"
#include "server/repo/repo.h"

struct repo_index_doc {
    struct repo_index_doc *next;
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

struct repo_index_blob; /* a file of it, whole or in part */
struct repo_index {
    UT_hash_handle hh;
    struct slice name; /* "models/org/name" */
    struct slice type, id;
    struct slice known_as; /* another spelling of that home; else empty */
    struct repo_index_doc *docs;
    struct repo_index_blob *blobs;
    uint64_t whole_bytes;
    uint64_t last_asked_unix_s;
};

struct repo_indexes {
    struct arena arena;
    const struct inventory_view *view;
    struct repo_index *by_name;
};
#define REPO_INDEXES_OF(v) ((struct repo_indexes){.view = (v)})

/* The home of what was asked for as `id`, by any spelling; NULL: nothing is known of it. Reads as
 * much as it takes. */
MUST_USE int repo_indexes_ask(struct repo_indexes *h, struct slice type, struct slice id,
                              struct repo_index **out, struct err *e);
void repo_indexes_free(struct repo_indexes *h);

/* The Hub's last word on a revision that was asked for: by its name, else by the commit that it is.
 * NULL: it is not here. */
const struct repo_index_doc *repo_index_word(const struct repo_index *x, struct slice rev);
/* A commit's listing part by part; `first` begins anew: what came before was of one that is not all
 * here. E_NOTFOUND: none is. */
MUST_USE int
repo_index_listing(const struct repo_indexes *h, const struct repo_index *x, struct slice commit,
                   int (*each)(void *arg, const struct paged_fetch_part *p, struct err *e),
                   void *arg, struct err *e);

#endif
