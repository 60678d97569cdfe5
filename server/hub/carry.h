/* carry.h - a repository of a Hub at one revision, on its way from one mirror to another
 * (docs/decisions/0012).
 *
 * Out: what this mirror knows of the revision, wherever it keeps it: rows of a pull-through repo,
 * the tree of a synced one, a hosted tree. In: the same words and files, each checked against them,
 * held by an upload session until all are here, then visible at once. mirrorctl reads and writes
 * what is carried; the daemon sees descriptors (talk.h).
 *
 * threads  the control connection's own; all of it blocks
 */
#ifndef SERVER_HUB_CARRY_H
#define SERVER_HUB_CARRY_H

#include "server/hub/inventory.h"
#include "server/repo/hf/synced.h"

enum { CARRY_WORDS_BYTES = 512 << 20 }; /* info and listing of a revision */

struct carry { /* a revision, as this mirror has it */
    const struct hub_deps *hub;
    const struct repo *repo;
    enum inventory_kind kind;
    struct arena arena; /* of what follows */
    struct slice type;
    struct slice asked; /* as the caller spells it */
    struct slice id;    /* canonical */
    struct slice rev, commit;
    bool closed;           /* private or gated at the Hub */
    uint64_t seen_unix_s;  /* when the Hub last said that the revision is this commit */
    struct buf info, tree; /* the Hub's words, as JSON: an object, an array */
    struct buf listing;
    struct manifest files;
    struct digest root;  /* of the tree it comes out of */
    struct slice folder; /* of a synced one, with its '/' */
};

/* E_UNSUPPORTED: repo keeps no such repositories. */
MUST_USE int carry_kind_of(const struct repo *r, enum inventory_kind *out, struct err *e);
/* E_NOTFOUND: this mirror does not know it, or not its listing. Always to be freed. */
MUST_USE int carry_find(const struct hub_deps *hub, const struct inventory_name *n,
                        struct carry *out, struct err *e);
/* A file's SHA-256, and whether its bytes are here. E_NOTFOUND: they never were, and it is not
 * known. */
MUST_USE int carry_digest(const struct carry *c, const struct manifest_entry *f, struct digest *out,
                          bool *here, struct err *e);
void carry_free(struct carry *c);

#endif
