/* info.h - what a Hub says of a repository at a revision, and JSON of its as we pass it on.
 *
 * Nothing that leads to the Hub's chunk store leaves: "xetHash" (but of buckets' files),
 * "xetEnabled", "casUrl" and access tokens go, at any depth.
 *
 * errors   E_PROTOCOL: the document is broken
 */
#ifndef SERVER_REPO_HF_INFO_H
#define SERVER_REPO_HF_INFO_H

#include "common/base/buf.h"

struct repo_info {
    struct slice id;     /* the canonical one */
    struct slice number; /* "_id"; "" where the Hub does not tell */
    struct slice commit;
    bool closed; /* private, or gated: its files are not for everybody */
    bool private;
    struct slice json; /* for clients */
};

/* The document -> bytes that info_read() reads. */
MUST_USE int info_make(struct slice doc, struct buf *out, struct err *e);
/* The same document, without what changes though the commit does not (downloads, likes); for a
 * tree. */
MUST_USE int info_plain(struct slice doc, struct buf *out, struct err *e);
MUST_USE bool info_read(struct slice bytes, struct repo_info *out); /* slices of bytes */

/* A document about a repository, which has an id; whatever else a Hub has at the path is
 * E_PROTOCOL. */
MUST_USE int info_about(struct slice doc, struct buf *out, struct err *e);
/* What auth-check said with a 200: nothing, or an object ("{}"). A login page in its place is no
 * yes, nor is an error. */
MUST_USE int right_read(struct slice doc, struct err *e);

/* A listing without the files and folders that are not wanted, or the document above without such
 * siblings (size_bytes UINT64_MAX: it tells none). */
MUST_USE int json_filter(struct slice doc,
                         bool (*wanted)(void *arg, struct slice path, bool folder,
                                        uint64_t size_bytes),
                         void *arg, struct buf *out, struct err *e);

/* Any document of the API, one part of several behind the other: arrays become one. */
MUST_USE int json_join(struct slice doc, bool first, struct buf *out, struct err *e);
/* The same of a document about buckets. Clients expect the Xet hash of each file, which leads
 * nowhere without the address of a chunk store. hashes: it is kept, for our own store has the file
 * under it; else it is null. */
MUST_USE int json_bucket(struct slice doc, bool hashes, bool first, struct buf *out, struct err *e);
struct json_t;
void json_bucket_file(struct json_t *file, bool hashes); /* one file of it */

#endif
