/* repo_index.h - what the cache has of pull-through repositories, from its rows: the Hub's
 * documents, listings, files.
 *
 * A repository index is for one spelling of one repository's name. Files are stored under the
 * canonical spelling, listings and documents under the one that was requested; repo_indexes_ask()
 * combines them. repo_index.c also implements the inventory (inventory.h) of such repos.
 *
 * owns     repo_indexes_free() ends all; results are slices of their arena
 * threads  one at a time; blocks
 * errors   E_NOTFOUND
 */
#ifndef SERVER_HUB_REPO_INDEX_H
#define SERVER_HUB_REPO_INDEX_H

#include <uthash.h>

#include "server/hub/inventory.h"
#include "server/repo/repo.h"

struct repo_index_doc {
    struct repo_index_doc *next;
    bool listing;         /* of a commit; else the Hub's document on a revision */
    struct slice rev;     /* p == NULL: the default branch */
    struct slice row_key; /* with the caller's mark, if it came by a caller's right */
    bool callers;
    struct digest digest;
    uint64_t asked_unix_s;
    /* of the content that was read: */
    bool understood;
    bool closed;
    struct slice id, commit;
};

struct repo_index_blob; /* a file of it, complete or in part */
struct repo_index {
    UT_hash_handle hh;
    struct slice name; /* "models/org/name" */
    struct slice type, id;
    struct slice known_as; /* another spelling of the same repository; else empty */
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

/* The index of the repository that was requested as `id`, by any spelling; NULL: nothing is known
 * of it. Reads as many rows as it needs. */
MUST_USE int repo_indexes_ask(struct repo_indexes *h, struct slice type, struct slice id,
                              struct repo_index **out, struct err *e);
void repo_indexes_free(struct repo_indexes *h);

/* The Hub's latest document on a requested revision: by the revision's name, else by its commit.
 * NULL: it is not here. */
const struct repo_index_doc *repo_index_word(const struct repo_index *x, struct slice rev);
/* A commit's listing, part by part. A part that is `first` starts again: the earlier parts were of
 * a listing that is incomplete here. E_NOTFOUND: there is none. */
MUST_USE int
repo_index_listing(const struct repo_indexes *h, const struct repo_index *x, struct slice commit,
                   int (*each)(void *arg, const struct paged_fetch_part *p, struct err *e),
                   void *arg, struct err *e);

#endif
