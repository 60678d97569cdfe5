/* manifest.h - all that a commit has: every file with its size and its name by git or SHA-256,
 * crawled once (page by page) and looked into ever after. From it come listings, HEADs and what
 * files are verified against.
 *
 * Bytes without pointers: manifest_add() takes the Hub's pages one behind the other, with the last
 * one the bytes become a manifest. What listings say is written anew from what was understood:
 * nothing of the Hub's chunk store is in it.
 *
 * owns     everything read from a manifest are slices of its bytes
 * threads  any; reading is O(log entries), or O(listed)
 * errors   E_PROTOCOL: the listing is broken
 */
#ifndef SERVER_REPO_HF_MANIFEST_H
#define SERVER_REPO_HF_MANIFEST_H

#include "common/base/buf.h"
#include "common/hash/digest.h"
#include "common/hash/git_oid.h"

/* url: where the page came from, behind redirects: it tells the repository's canonical id. */
MUST_USE int manifest_add(struct slice page, struct slice url, bool first, bool last,
                          struct buf *out, struct err *e);

struct manifest {
    struct slice bytes;
    struct slice id; /* canonical; "" when the URL did not tell */
    size_t count;
    const char *index;
};
MUST_USE bool manifest_open(struct slice bytes, struct manifest *out);

struct manifest_entry {
    struct slice path;
    struct slice json; /* an object; manifest_say() */
    bool folder;
    bool lfs; /* named by sha256, not by oid */
    uint64_t size_bytes;
    struct digest sha256;
    struct git_oid oid;
};
void manifest_at(const struct manifest *m, size_t i, struct manifest_entry *out); /* by path */
MUST_USE bool manifest_find(const struct manifest *m, struct slice path,
                            struct manifest_entry *out);
/* The smallest file that is no card (path.h), to try a right on; false: there is none. */
MUST_USE bool manifest_smallest(const struct manifest *m, struct manifest_entry *out);
/* The smallest index of a file with this SHA-256; false: there is none. O(entries). */
MUST_USE bool manifest_find_lfs(const struct manifest *m, const struct digest *d,
                                struct manifest_entry *out);
struct manifest_wanted {
    struct digest sha256;
    bool found;
    struct manifest_entry file;
};
/* The same for n of them, which are sorted, in one walk. O(entries * log n). */
void manifest_find_all_lfs(const struct manifest *m, struct manifest_wanted **wanted, size_t n);
/* Its JSON, as listings have it; LFS files from xet_from bytes on with the name that our chunk
 * store knows them by. */
void manifest_say(const struct manifest_entry *e, uint64_t xet_from, struct buf *out);
MUST_USE bool manifest_has_folder(const struct manifest *m, struct slice folder); /* "": always */
/* A JSON array. E_NOTFOUND: no such folder. */
MUST_USE int manifest_list(const struct manifest *m, struct slice folder, bool recursive,
                           uint64_t xet_from, struct buf *out);

#endif
