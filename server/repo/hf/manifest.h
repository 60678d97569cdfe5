/* manifest.h - everything in a commit: every file with its size and its git id or SHA-256.
 *
 * It is read from the Hub once (page by page) and used ever after, for listings, HEADs and the
 * verification of files. A manifest is bytes without pointers: manifest_add() takes the Hub's pages
 * in order, and after the last one the bytes are a manifest. Listings are written from the parsed
 * values, so they have nothing of the Hub's chunk store.
 *
 * owns     results are slices of the manifest's bytes
 * threads  any; reading is O(log entries), or O(listed)
 * errors   E_PROTOCOL: the listing is malformed
 */
#ifndef SERVER_REPO_HF_MANIFEST_H
#define SERVER_REPO_HF_MANIFEST_H

#include "common/base/buf.h"
#include "common/hash/digest.h"
#include "common/hash/git_oid.h"

/* url: where the page came from, after redirects; it has the repository's canonical id. */
MUST_USE int manifest_add(struct slice page, struct slice url, bool first, bool last,
                          struct buf *out, struct err *e);

struct manifest {
    struct slice bytes;
    struct slice id; /* canonical; "" if the URL does not have it */
    size_t count;
    const char *index;
};
MUST_USE bool manifest_open(struct slice bytes, struct manifest *out);

struct manifest_entry {
    struct slice path;
    struct slice json; /* an object; manifest_say() */
    bool folder;
    bool lfs; /* named by sha256; else by oid */
    uint64_t size_bytes;
    struct digest sha256;
    struct git_oid oid;
};
/* in order of path */
void manifest_at(const struct manifest *m, size_t i, struct manifest_entry *out);
MUST_USE bool manifest_find(const struct manifest *m, struct slice path,
                            struct manifest_entry *out);
/* The smallest file that is not a card (path.h), to check a right with; false: there is none. */
MUST_USE bool manifest_smallest(const struct manifest *m, struct manifest_entry *out);
/* The file with this SHA-256 that has the smallest index; false: there is none. O(entries). */
MUST_USE bool manifest_find_lfs(const struct manifest *m, const struct digest *d,
                                struct manifest_entry *out);
struct manifest_wanted {
    struct digest sha256;
    bool found;
    struct manifest_entry file;
};
/* The same for n of them, which must be sorted, in one pass. O(entries * log n). */
void manifest_find_all_lfs(const struct manifest *m, struct manifest_wanted **wanted, size_t n);
/* Its JSON, as in listings. LFS files of xet_from bytes or more also get their name in our chunk
 * store. */
void manifest_say(const struct manifest_entry *e, uint64_t xet_from, struct buf *out);
MUST_USE bool manifest_has_folder(const struct manifest *m, struct slice folder); /* "": always */
/* A JSON array. E_NOTFOUND: no such folder. */
MUST_USE int manifest_list(const struct manifest *m, struct slice folder, bool recursive,
                           uint64_t xet_from, struct buf *out);

#endif
