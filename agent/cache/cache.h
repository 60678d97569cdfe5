/* cache.h - the node's local cache: files by SHA-256 in one folder, shared by all jobs of the
 * node.
 *
 *   blobs/sha256/ab/<hex>    whole, verified, read-only; found by name: the folder is the index
 *   blobs/sha256/ab/<hex>    whole, verified, read-only; found by name: the folder is the index
 *   partial/<key>.part       growing; .state says which bytes of it are durable and right
 *   locks/<key>              flock: one download (exclusive), or jobs that use it (shared); the
 *                            folder belongs to its user alone
 *   partial/<key>.whole, locks/small-<0..f>   small files that come in batches (stage.h)
 *   jobs/<job>.json, jobs/<job>/   what a job of the node's scheduler uses (pins.h)
 *   spare/<key>/             folders of ended jobs for the next one with the same files (spare.h)
 *   known/<key>              the files of a folder, or of a Hub commit (agent/pull/artifact.c)
 *   journal                  a line per use: gc reads it, and it has the digest of a URL
 *
 * A key is a digest, or local_cache_key_of_url() while the digest is not known yet. A sealed blob
 * has mtime 1. If something was written into it through a hard link, its mtime differs; then it
 * is hashed again, and thrown away when its digest is wrong.
 *
 * threads  any; blocks. local_cache_note*() and local_cache_recall(): one at a time
 * errors   E_NOTFOUND and E_BUSY are ordinary
 */
#ifndef AGENT_CACHE_CACHE_H
#define AGENT_CACHE_CACHE_H

#include <limits.h>

#include "common/base/buf.h"
#include "common/hash/digest.h"

struct local_cache;
struct local_cache_lock;

MUST_USE int local_cache_open(const char *dir, struct local_cache **out, struct err *e);
void local_cache_close(struct local_cache **sp);
const char *local_cache_dir(const struct local_cache *s);

void local_cache_key_of_url(struct slice url, struct digest *out);
void local_cache_blob_path(const struct local_cache *s, const struct digest *d, char out[PATH_MAX]);
void local_cache_tree_path(const struct local_cache *s, const struct digest *key,
                           char out[PATH_MAX]);
void local_cache_partial_path(const struct local_cache *s, const struct digest *key,
                              const char *suffix, char out[PATH_MAX]);

/* The blob's size, or E_NOTFOUND. */
MUST_USE int local_cache_find(struct local_cache *s, const struct digest *d, uint64_t *size_bytes,
                              struct err *e);
#define LOCAL_CACHE_STAGED ".whole" /* the suffix of a staged file (stage.h) */

struct local_cache_sealing { /* partial/<key>.part, open as fd and known to hash to `digest` */
    struct digest key, digest;
    int fd;
    bool staged;    /* a staged file (stage.h): no fd is needed */
    bool stateless; /* there is no .state */
    int rc;         /* the result, and why */
    struct err why;
};
/* They become blobs. A single one is durable when it returns. Many share the slowest operation of
 * a disk: a file that has its name is whole after a power cut, but the name may be missing, which
 * costs a download. */
void local_cache_seal(struct local_cache *s, struct local_cache_sealing *const *all, size_t n);

/* Does a name from a listing stay below its folder: no '.', '..', empty segment or control byte? */
bool local_cache_name_ok(struct slice name);
enum {
    LOCAL_CACHE_NAME_MAX = 4096,
    LOCAL_CACHE_SEGMENT_MAX = 240
}; /* leaves room for a temporary name */
/* The mtime of a sealed blob. */
MUST_USE int local_cache_mark(int fd, struct err *e);
/* True: this file system, or the one where files are placed, does not support clones. */
_Atomic bool *local_cache_no_clone(struct local_cache *s);

/* A blob that was there is gone: E_CHANGED, probably by gc; or errno. */
int local_cache_lost(const char *path, struct err *e);

/* Never waits: E_BUSY. Several may hold it shared; *out is NULL when the local cache is read-only
 * for us or belongs to another user: then there is nothing to hold. */
MUST_USE int local_cache_try_lock(struct local_cache *s, const struct digest *key, bool shared,
                                  struct local_cache_lock **out, struct err *e);
void local_cache_unlock(struct local_cache_lock **lp);
/* The same for a lock that is held exclusively on something that does not exist any more: its
 * file is removed too. */
void local_cache_retire(struct local_cache *s, const struct digest *key,
                        struct local_cache_lock **lp);

/* Records a use, for gc; url and etag (may be empty) let local_cache_recall() find the digest
 * again. */
void local_cache_note(struct local_cache *s, const struct digest *d, uint64_t size_bytes,
                      struct slice etag, struct slice url);
/* The same for many: first their lines, then all of them. */
void local_cache_note_line(struct buf *lines, const struct digest *d, uint64_t size_bytes,
                           struct slice etag, struct slice url);
void local_cache_note_lines(struct local_cache *s, struct slice lines);
MUST_USE bool local_cache_recall(struct local_cache *s, struct slice url, struct slice etag,
                                 struct digest *out);

/* The journal, for gc: a line per use, `<unix_s> <hex> <size> <etag or -> <url or ->`. Any number
 * of processes append to it; gc rewrites it when it is large. All of it is hints: a torn or lost
 * line costs a download. A use's slices are the text's. */
enum { LOCAL_CACHE_JOURNAL_MAX = 64 << 20 };
struct local_cache_use {
    uint64_t at_unix_s;
    struct digest digest;
    uint64_t size_bytes;
    struct slice etag;
    struct slice url;
};
MUST_USE int local_cache_journal_read(const struct local_cache *s, struct buf *out);
MUST_USE bool local_cache_journal_line(struct slice *rest,
                                       struct local_cache_use *out); /* false at the end */

struct local_cache_gc_params {
    uint64_t keep_bytes; /* UINT64_MAX: any number */
    uint64_t keep_age_s; /* UINT64_MAX: any age */
    uint64_t now_unix_s;
};
struct local_cache_totals {
    uint64_t blobs, blob_bytes, trees, tree_bytes, partials, partial_bytes;
};
MUST_USE int local_cache_gc(struct local_cache *s, const struct local_cache_gc_params *w,
                            struct local_cache_totals *removed, struct err *e);
MUST_USE int local_cache_measure(struct local_cache *s, struct local_cache_totals *out,
                                 struct err *e);

#endif
