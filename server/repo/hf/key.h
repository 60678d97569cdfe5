/* key.h - the cache's keys for what a Hub sent: the adapter makes lookups with them, and
 * server/hub/ finds them among the rows.
 *
 *   api/{type}/{id}                   the Hub's document on the default branch
 *   api/{type}/{id}/revision/{rev}    the same on another; one segment, escaped
 *   api/{type}/{id}/tree/{commit}     a commit's listing, its first part (plan/paged_fetch.h)
 *   {type}/{id}/blobs/{etag}          a file, under whatever paths and in whatever commits
 *   buckets/{id}/blobs/{hash}         a bucket's file, by its Xet hash;
 *                                     .../resolve/{path}: one without a hash from the Hub
 *   rights/auth-check/{type}/{id}     a caller's right, by auth-check;
 *                                     rights/file/...: by a request for a file
 *
 * Keys that begin with "api/" are also the Hub's paths. The Hub's documents are under the id as the
 * caller spelled it; listings, files and rights are under the Hub's own spelling.
 *
 * owns     nothing: results live in the given arena
 * threads  any
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
/* The prefix of all keys of a repository's files; and that of the documents on it. */
struct slice key_files(struct slice type, struct slice id, struct arena *a);
struct slice key_words(struct slice type, struct slice id, struct arena *a);
/* Splits a file's key; false: it is not one. Slices of key. */
MUST_USE bool key_read_file(struct slice key, struct slice *type, struct slice *id,
                            struct slice *etag);

/* A bucket's file, by the hash of its content. */
struct slice key_bucket_file(struct slice id, const struct digest *hash, struct arena *a);
MUST_USE bool key_is_bucket_file(struct slice key);

/* The Hub's path that says whether a caller may read the repository. Answers are stored under other
 * keys, one for each caller. */
struct slice key_auth_check(struct slice type, struct slice id, struct arena *a);

/* A file's name, without quotes: its SHA-256, or git's id. */
enum { ETAG_HEX = DIGEST_HEX };
struct slice key_etag(const struct manifest_entry *f, char room[ETAG_HEX + 1]);
/* The path of a client's request for a file, below the repo: "{prefix}{id}/resolve/{rev}/{path}",
 * escaped. */
struct slice key_resolve(struct slice prefix, struct slice id, struct slice rev, struct slice path,
                         struct arena *a);

#endif
