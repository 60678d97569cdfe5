/* shelf.h - the node's own cache: files by SHA-256 in one folder, shared by all jobs of the node.
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
 * A key is a digest, or shelf_key_of_url() while the digest is not known yet. A sealed blob has mtime 1: what somebody
 * wrote into it through a hard link since shows another, is hashed anew, and thrown away when it differs.
 *
 * threads  any; blocks. shelf_note*() and shelf_recall(): one at a time
 * errors   E_NOTFOUND and E_BUSY are ordinary
 */
#ifndef AGENT_SHELF_SHELF_H
#define AGENT_SHELF_SHELF_H

#include <limits.h>

#include "common/base/buf.h"
#include "common/hash/digest.h"

struct shelf;
struct shelf_lock;

MUST_USE int shelf_open(const char *dir, struct shelf **out, struct err *e);
void shelf_close(struct shelf **sp);
const char *shelf_dir(const struct shelf *s);

void shelf_key_of_url(struct slice url, struct digest *out);
void shelf_blob_path(const struct shelf *s, const struct digest *d, char out[PATH_MAX]);
void shelf_tree_path(const struct shelf *s, const struct digest *key, char out[PATH_MAX]);
void shelf_partial_path(const struct shelf *s, const struct digest *key, const char *suffix,
                        char out[PATH_MAX]);

/* E_NOTFOUND, or the blob's size. */
MUST_USE int shelf_find(struct shelf *s, const struct digest *d, uint64_t *size_bytes,
                        struct err *e);
#define SHELF_STAGED ".whole" /* the suffix of a staged file (stage.h) */

struct shelf_sealing { /* partial/<key>.part, open as fd and known to hash to `digest` */
    struct digest key, digest;
    int fd;
    bool staged;    /* it is a staged file (stage.h), and no fd is needed */
    bool stateless; /* there is no .state */
    int rc;         /* how it went, and why */
    struct err why;
};
/* They become blobs. Alone: durable when it returns. Many share what a disk takes longest for: what has a name is whole after
 * a power cut, but the name may be missing, which costs a download. */
void shelf_seal(struct shelf *s, struct shelf_sealing *const *all, size_t n);

/* A name from a listing that stays below the folder it is put into: no '.', '..', empty segment or control byte. */
bool shelf_name_ok(struct slice name);
enum { SHELF_NAME_MAX = 4096, SHELF_SEGMENT_MAX = 240 }; /* leaves room for a temporary name */
/* The mtime of a sealed blob. */
MUST_USE int shelf_mark(int fd, struct err *e);
/* This file system, or the one where files are placed, is known to have no clones. */
_Atomic bool *shelf_no_clone(struct shelf *s);

/* A blob that was there is gone: E_CHANGED, with gc as the likely reason; or errno. */
int shelf_lost(const char *path, struct err *e);

/* Never waits: E_BUSY. Several may hold it shared; *out is NULL when the shelf is read-only to us or another user's, and there is
 * nothing to be held. */
MUST_USE int shelf_try_lock(struct shelf *s, const struct digest *key, bool shared,
                            struct shelf_lock **out, struct err *e);
void shelf_unlock(struct shelf_lock **lp);
/* The same, of a lock that is held alone on what is no more: its file goes too. */
void shelf_retire(struct shelf *s, const struct digest *key, struct shelf_lock **lp);

/* A use, for gc; url and etag (may be empty) let shelf_recall() find the digest again. */
void shelf_note(struct shelf *s, const struct digest *d, uint64_t size_bytes, struct slice etag,
                struct slice url);
/* The same for many at once: their lines, then all of them. */
void shelf_note_line(struct buf *lines, const struct digest *d, uint64_t size_bytes,
                     struct slice etag, struct slice url);
void shelf_note_lines(struct shelf *s, struct slice lines);
MUST_USE bool shelf_recall(struct shelf *s, struct slice url, struct slice etag,
                           struct digest *out);

/* The journal, for gc: a line a use, `<unix_s> <hex> <size> <etag or -> <url or ->`. Any number of processes add to it; gc writes it anew
 * when it is large. All of it is hints: a line that is torn or lost costs a download. A use's slices are the text's. */
enum { SHELF_JOURNAL_MAX = 64 << 20 };
struct shelf_use {
    uint64_t at_unix_s;
    struct digest digest;
    uint64_t size_bytes;
    struct slice etag;
    struct slice url;
};
MUST_USE int shelf_journal_read(const struct shelf *s, struct buf *out);
MUST_USE bool shelf_journal_line(struct slice *rest, struct shelf_use *out); /* false at the end */

struct shelf_gc_want {
    uint64_t keep_bytes; /* UINT64_MAX: any number */
    uint64_t keep_age_s; /* UINT64_MAX: any age */
    uint64_t now_unix_s;
};
struct shelf_totals {
    uint64_t blobs, blob_bytes, trees, tree_bytes, partials, partial_bytes;
};
MUST_USE int shelf_gc(struct shelf *s, const struct shelf_gc_want *w, struct shelf_totals *removed,
                      struct err *e);
MUST_USE int shelf_measure(struct shelf *s, struct shelf_totals *out, struct err *e);

#endif
