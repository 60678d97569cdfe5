/* hf.h - repositories of a Hub as a list, from within, for hf.c (what is asked of the Hub) and hf_give.c (entries made of it) alone.
 *
 * owns     struct hub_repo its strings and documents, until the engine is closed
 * threads  the run's
 */
#ifndef SERVER_SYNC_HTTP_HF_H
#define SERVER_SYNC_HTTP_HF_H

#include "server/repo/hf/synced.h"
#include "server/sync/http/http_engine.h"

struct hub_repo {
    struct hub_lister *all;
    const char *asked; /* as the setting says it */
    struct hf_spec spec;
    struct doc *doc;
    bool known; /* info and commit are */
    char *id;   /* canonical */
    char *commit;
    char *folder; /* in the tree */
    struct buf info, tree, manifest;
    unsigned pages;
};

struct hub_lister {
    struct http_engine *g;
    struct hub_repo *repo;
    size_t count, next, done;
    unsigned busy;
    bool over;
    void (*each)(struct hub_repo *r); /* what is asked of each */
    void (*then)(struct hub_lister *l);
    void (*failed)(struct hub_lister *l, int rc, const struct err *why);
    struct digest before; /* probe: what it was */
    uint64_t made_bytes;
};

/* All entries of a repository whose commit is listed; frees its manifest. Trouble is in g->why. */
MUST_USE int hf_give_repo(struct hub_repo *r);
/* Of all: from each commit, and from each spelling that was asked for, to the folder. */
MUST_USE int hf_give_links(struct hub_lister *l);
void hf_source(struct http_engine *g, const struct sync_entry *en, struct source *out);

#endif
