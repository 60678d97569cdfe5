/* info.h - a Hub's document on a repository at a revision, and other JSON of a Hub as we pass it
 * on.
 *
 * Everything that leads to the Hub's chunk store is removed, at any depth: "xetHash" (except of
 * buckets' files), "xetEnabled", "casUrl" and access tokens.
 *
 * owns     nothing: slices are of the given bytes
 * threads  any; pure
 * errors   E_PROTOCOL: the document is malformed
 */
#ifndef SERVER_REPO_HF_INFO_H
#define SERVER_REPO_HF_INFO_H

#include "common/base/buf.h"

struct repo_info {
    struct slice id;     /* the canonical one */
    struct slice number; /* "_id"; "" if the Hub does not give it */
    struct slice commit;
    bool closed; /* private or gated: its files are not for everybody */
    bool private;
    struct slice json; /* for clients */
};

/* Converts the document to bytes for info_read(). */
MUST_USE int info_make(struct slice doc, struct buf *out, struct err *e);
/* The same document without what changes while the commit does not (downloads, likes); for a
 * tree. */
MUST_USE int info_plain(struct slice doc, struct buf *out, struct err *e);
MUST_USE bool info_read(struct slice bytes, struct repo_info *out); /* slices of bytes */

/* A document about a repository, which has an id; any other document at the path is E_PROTOCOL. */
MUST_USE int info_about(struct slice doc, struct buf *out, struct err *e);
/* Checks the body of a 200 from auth-check, which is empty or an object ("{}"). A login page or an
 * error in its place grants nothing. */
MUST_USE int right_read(struct slice doc, struct err *e);

/* A listing without the files and folders that wanted() rejects, or the document above without such
 * siblings (size_bytes UINT64_MAX: unknown there). */
MUST_USE int json_filter(struct slice doc,
                         bool (*wanted)(void *arg, struct slice path, bool folder,
                                        uint64_t size_bytes),
                         void *arg, struct buf *out, struct err *e);

/* Joins any document of the API from its parts: arrays become one. */
MUST_USE int json_join(struct slice doc, bool first, struct buf *out, struct err *e);
/* The same for a document about buckets. Clients expect the Xet hash of each file, which is of no
 * use without the address of a chunk store. hashes: it is kept, because our own store has the file
 * under it; else it is null. */
MUST_USE int json_bucket(struct slice doc, bool hashes, bool first, struct buf *out, struct err *e);
struct json_t;
void json_bucket_file(struct json_t *file, bool hashes); /* for one file of it */

#endif
