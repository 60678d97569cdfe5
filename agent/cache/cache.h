/* cache.h - the node's own cache: files by SHA-256 in one folder, shared by all jobs of the node.
 *
 *   blobs/sha256/ab/<hex>    whole, verified, read-only; seen by name, so the index is the folder itself
 *   partial/<key>.part       growing; .state says which bytes of it are durable and right
 *   trees/<key>/             an unpacked archive, read-only; <key>.stamp beside it tells whether it is untouched
 *   locks/<key>              flock: one download (exclusive), or jobs that use it (shared); the folder is its user's alone
 *   partial/<key>.whole, locks/small-<0..f>   small files that come many at once (stage.h)
 *   jobs/<job>.json, jobs/<job>/   what a job of the node's scheduler uses (pins.h)
 *   spare/<key>/             what such jobs left for the next one that wants the same (spare.h)
 *   known/<key>              what a folder, or a commit of a Hub's repository, consists of (agent/pull/artifact.c)
 *   journal                  a line a use: what gc goes by, and which digest a URL had
 *
 * A key is a digest, or local_cache_key_of_url() while the digest is not known yet. A sealed blob
 * has mtime 1: what somebody wrote into it through a hard link since shows another, is hashed anew,
 * and thrown away when it differs.
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

/* E_NOTFOUND, or the blob's size. */
MUST_USE int local_cache_find(struct local_cache *s, const struct digest *d, uint64_t *size_bytes,
                              struct err *e);
#define LOCAL_CACHE_STAGED ".whole" /* the suffix of a staged file (stage.h) */

struct local_cache_sealing { /* partial/<key>.part, open as fd and known to hash to `digest` */
    struct digest key, digest;
    int fd;
    bool staged;    /* it is a staged file (stage.h), and no fd is needed */
    bool stateless; /* there is no .state */
    int rc;         /* how it went, and why */
    struct err why;
};
/* They become blobs. Alone: durable when it returns. Many share what a disk takes longest for: what
 * has a name is whole after a power cut, but the name may be missing, which costs a download. */
void local_cache_seal(struct local_cache *s, struct local_cache_sealing *const *all, size_t n);

/* A name from a listing that stays below the folder it is put into: no '.', '..', empty segment or
 * control byte. */
bool local_cache_name_ok(struct slice name);
enum {
    LOCAL_CACHE_NAME_MAX = 4096,
    LOCAL_CACHE_SEGMENT_MAX = 240
}; /* leaves room for a temporary name */
/* The mtime of a sealed blob. */
MUST_USE int local_cache_mark(int fd, struct err *e);
/* This file system, or the one where files are placed, is known to have no clones. */
_Atomic bool *local_cache_no_clone(struct local_cache *s);

/* A blob that was there is gone: E_CHANGED, with gc as the likely reason; or errno. */
int local_cache_lost(const char *path, struct err *e);

/* Never waits: E_BUSY. Several may hold it shared; *out is NULL when the local cache is read-only
 * to us or another user's, and there is nothing to be held. */
MUST_USE int local_cache_try_lock(struct local_cache *s, const struct digest *key, bool shared,
                                  struct local_cache_lock **out, struct err *e);
void local_cache_unlock(struct local_cache_lock **lp);
/* The same, of a lock that is held alone on what is no more: its file goes too. */
void local_cache_retire(struct local_cache *s, const struct digest *key,
                        struct local_cache_lock **lp);

/* A use, for gc; url and etag (may be empty) let local_cache_recall() find the digest again. */
void local_cache_note(struct local_cache *s, const struct digest *d, uint64_t size_bytes,
                      struct slice etag, struct slice url);
/* The same for many at once: their lines, then all of them. */
void local_cache_note_line(struct buf *lines, const struct digest *d, uint64_t size_bytes,
                           struct slice etag, struct slice url);
void local_cache_note_lines(struct local_cache *s, struct slice lines);
MUST_USE bool local_cache_recall(struct local_cache *s, struct slice url, struct slice etag,
                                 struct digest *out);

/* The journal, for gc: a line a use, `<unix_s> <hex> <size> <etag or -> <url or ->`. Any number of
 * processes add to it; gc writes it anew when it is large. All of it is hints: a line that is torn
 * or lost costs a download. A use's slices are the text's. */
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
