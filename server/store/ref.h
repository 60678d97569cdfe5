/* ref.h - names that a tree's owner gives to versions: branches, which move with each publish on
 * them, and tags, which stay.
 *
 * All branches of a tree share its numbers, snapshots and holders; the head is the branch "main"
 * and has no row here. So a new branch is one row, whatever the tree's size, and collection, diff
 * and removal treat the snapshots of branches like all others. Every change of a ref also changes
 * the head's row (head.names), so a precondition on that row covers the refs. A version that a ref
 * names cannot be removed. A name is either a branch, a tag or a label (snap_tag()).
 *
 * owns     nothing
 * threads  any; blocks
 * errors   E_NOTFOUND: no such tree, ref or version; E_EXISTS; E_INVALID: not a valid name for a
 *          ref
 */
#ifndef SERVER_STORE_REF_H
#define SERVER_STORE_REF_H

#include "server/store/tree.h"

enum { REF_NAME_MAX = 200, REF_MESSAGE_MAX = 2048, REFS_MAX = 10000 /* of a tree */ };
enum ref_kind { REF_BRANCH = 'b', REF_TAG = 't' };

struct ref {
    enum ref_kind kind;
    struct slice name;
    uint64_t seq;
    uint64_t created_unix_s;
    struct slice message; /* of a tag; or "" */
};

/* A name that git accepts and that has no other meaning here; those are "main", "HEAD", "refs/..."
 * and a commit's id. */
bool ref_name_valid(struct slice name);
MUST_USE int ref_get(struct store *s, struct slice repo, struct slice tree, enum ref_kind kind,
                     struct slice name, struct snap *out, struct err *e);
/* Branches, then tags, sorted by name, until each() returns nonzero. */
MUST_USE int ref_list(struct store *s, struct slice repo, struct slice tree,
                      int (*each)(void *arg, const struct ref *r), void *arg, struct err *e);
/* E_TOOBIG: the tree has too many refs. E_CHANGED: the tree was published in the meantime; try
 * again. */
MUST_USE int ref_create(struct store *s, struct slice repo, struct slice tree, const struct ref *r,
                        struct err *e);
MUST_USE int ref_remove(struct store *s, struct slice repo, struct slice tree, enum ref_kind kind,
                        struct slice name, struct err *e);
/* As head_publish() and head_set(), for a branch. if_root is the root that it must have. */
MUST_USE int branch_publish(struct store *s, struct slice repo, struct slice tree,
                            struct slice branch, const struct digest *root, uint64_t entries,
                            uint64_t bytes, const struct digest *if_root, uint64_t now_unix_s,
                            struct batch *b, struct snap *out, struct err *e);
MUST_USE int branch_set(struct store *s, struct slice repo, struct slice tree, struct slice branch,
                        uint64_t seq, struct batch *b, struct err *e);

/* --- rows, for the store's fsck and for a tree's new name --- */
/* The key is repo NUL tree NUL kind name. kind 0: the prefix of all keys of a tree. */
MUST_USE int ref_decode(struct slice value, struct ref *out, struct err *e);

#endif
