/* held.h - branches that an administrator has rolled back: each stays at one commit, whatever the
 * Hub says of it since.
 *
 * A table is built completely and then replaces the former one, which stays valid for requests
 * under way. Ids are compared without regard to case, as at the Hub.
 *
 * owns     held_put() takes the table; repo_close() frees all
 * threads  held_find(), held_refs(): any, without a lock. held_put(): one at a time
 */
#ifndef SERVER_REPO_HF_HELD_H
#define SERVER_REPO_HF_HELD_H

#include "common/base/arena.h"
#include "common/base/buf.h"

struct held_branch {
    struct slice type, id, branch, commit;
    uint64_t since_unix_s;
};

struct held {
    struct held *older;
    struct arena arena; /* of the slices */
    struct held_branch *at;
    size_t count;
};

struct hf;
struct held *held_new(void);
void held_add(struct held *h, const struct held_branch *b); /* copies b */
void held_put(struct hf *state, struct held *h);
void held_free_all(struct hf *state);
/* NULL: it is not held. */
const struct held_branch *held_find(const struct hf *state, struct slice type, struct slice id,
                                    struct slice branch);
/* A Hub's list of branches, changed to the commits that they are held at. False: none of them is
 * held, or it is not such a list. */
MUST_USE bool held_refs(const struct hf *state, struct slice type, struct slice id,
                        struct slice json, struct buf *out);

#endif
