/* carry.h - one revision of a Hub's repository that moves from one mirror to another as a file
 * (docs/decisions/0012).
 *
 * Out: everything that this mirror knows of the revision, wherever it is: in rows of a pull-through
 * repo, in the tree of a synced one, or in a hosted tree. In: the same documents and files, each
 * checked against the documents, held by an upload session until all are present, then made visible
 * together. mirrorctl reads and writes the carried file; the daemon only gets descriptors (talk.h).
 *
 * owns     carry_free() frees what carry_find() read
 * threads  the control connection's own; everything blocks
 * errors   E_NOTFOUND: this mirror does not have it
 */
#ifndef SERVER_HUB_CARRY_H
#define SERVER_HUB_CARRY_H

#include "server/hub/inventory.h"
#include "server/repo/hf/synced.h"

enum { CARRY_WORDS_BYTES = 512 << 20 }; /* bound on the info and listing of a revision */

struct carry { /* one revision, as this mirror has it */
    const struct hub_deps *hub;
    const struct repo *repo;
    enum inventory_kind kind;
    struct arena arena; /* of the fields below */
    struct slice type;
    struct slice asked; /* the name as the caller wrote it */
    struct slice id;    /* canonical */
    struct slice rev, commit;
    bool closed;           /* private or gated at the Hub */
    uint64_t seen_unix_s;  /* when the Hub last said that the revision is this commit */
    struct buf info, tree; /* the Hub's documents, as JSON: an object and an array */
    struct buf listing;
    struct manifest files;
    struct digest root;  /* of the tree that it is taken from */
    struct slice folder; /* in a synced tree, with its '/' */
};

/* E_UNSUPPORTED: the repo keeps no such repositories. */
MUST_USE int carry_kind_of(const struct repo *r, enum inventory_kind *out, struct err *e);
/* E_NOTFOUND: this mirror does not know the revision, or not its listing. Always call
 * carry_free(). */
MUST_USE int carry_find(const struct hub_deps *hub, const struct inventory_name *n,
                        struct carry *out, struct err *e);
/* A file's SHA-256, and whether its bytes are here. E_NOTFOUND: they never were, and the digest is
 * unknown. */
MUST_USE int carry_digest(const struct carry *c, const struct manifest_entry *f, struct digest *out,
                          bool *here, struct err *e);
void carry_free(struct carry *c);

#endif
