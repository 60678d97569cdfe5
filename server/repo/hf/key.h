/* key.h - under which keys the cache has what a Hub gave: the adapter asks by them, server/hub/
 * looks for them among the rows.
 *
 *   api/{type}/{id}                   the Hub's word on the default branch
 *   api/{type}/{id}/revision/{rev}    ... on another; one segment, escaped
 *   api/{type}/{id}/tree/{commit}     a commit's listing, its first part (plan/paged_fetch.h)
 *   {type}/{id}/blobs/{etag}          a file, under whatever paths and in whatever commits
 *   buckets/{id}/blobs/{hash}         a bucket's file, by its Xet hash; .../resolve/{path}: one that the Hub tells no hash of
 *   rights/auth-check/{type}/{id}     a caller's right, by auth-check; rights/file/...: tried on a file
 *
 * What begins with "api/" is where the Hub has it, too. The Hub's word is under the id as the
 * caller spells it; listings, files and rights are under the Hub's own.
 *
 * threads  any; what is made lives in the arena that is given
 */
#ifndef SERVER_REPO_HF_KEY_H
#define SERVER_REPO_HF_KEY_H

#include "common/base/arena.h"
#include "server/repo/hf/manifest.h"

/* rev.p == NULL: the default branch. */
struct slice key_info(struct slice type, struct slice id, struct slice rev, struct arena *a);
struct slice key_tree(struct slice type, struct slice id, struct slice commit, struct arena *a);
struct slice key_file(struct slice type, struct slice id, const struct manifest_entry *f,
                      struct arena *a);
/* What all keys of a repository's files begin with, and those of the words on it. */
struct slice key_files(struct slice type, struct slice id, struct arena *a);
struct slice key_words(struct slice type, struct slice id, struct arena *a);
/* A file's key, taken apart; false: it is none. Slices of key. */
MUST_USE bool key_read_file(struct slice key, struct slice *type, struct slice *id,
                            struct slice *etag);

/* A bucket's file, by the hash of its content. */
struct slice key_bucket_file(struct slice id, const struct digest *hash, struct arena *a);
MUST_USE bool key_is_bucket_file(struct slice key);

/* Where the Hub says whether a caller may read it; answers are kept under other keys, each caller's
 * own. */
struct slice key_auth_check(struct slice type, struct slice id, struct arena *a);

/* A file's name, without quotes: its SHA-256, or git's id. */
enum { ETAG_HEX = DIGEST_HEX };
struct slice key_etag(const struct manifest_entry *f, char room[ETAG_HEX + 1]);
/* Where a client asks for a file, below the repo: "{prefix}{id}/resolve/{rev}/{path}", escaped. */
struct slice key_resolve(struct slice prefix, struct slice id, struct slice rev, struct slice path,
                         struct arena *a);

#endif
