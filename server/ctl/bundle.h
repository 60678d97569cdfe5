/* bundle.h - bundles, which carry Hub repositories across an air gap: the manifest of one
 * (docs/protocols/carry.md).
 *
 *   SHA256SUMS                                      for `sha256sum -c`; the manifest comes first
 *   MANIFEST.json                                   revisions, their files, each with its SHA-256
 *   words/{repo}/{revision}/info.json, tree.json    what the Hub said
 *   hub/{repo}/refs/{revision}                      the commit
 *   hub/{repo}/snapshots/{commit}/{path}            the files
 *
 * {repo} is "models--owner--name": hub/ is a cache of huggingface_hub, and HF_HOME can point to
 * the bundle. Paths are made from checked names, never taken from outside.
 *
 * owns     strings live in the bundle's arena; bundle_free()
 * threads  one at a time; no I/O
 * errors   E_INVALID: not a manifest of ours, or a false one; E_UNSUPPORTED: of a later version
 */
#ifndef SERVER_CTL_BUNDLE_H
#define SERVER_CTL_BUNDLE_H

#include <uthash.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/hash/digest.h"

#define BUNDLE_MANIFEST "MANIFEST.json"
#define BUNDLE_SUMS     "SHA256SUMS"

enum {
    BUNDLE_VERSION = 1,
    BUNDLE_NAMES = 8,
    BUNDLE_REVISIONS = 256,
    BUNDLE_MANIFEST_BYTES = 512 << 20,
};

struct bundle_file {
    const char *path; /* in the repository; NULL for Hub responses (words/) */
    uint64_t size_bytes;
    struct digest sha256;
    bool left_out; /* the other side has it already */
};

struct bundle_revision {
    const char *type, *id, *revision, *commit, *repo;
    const char *names[BUNDLE_NAMES]; /* other spellings that clients use */
    size_t names_count;
    bool closed;
    uint64_t seen_unix_s;
    struct bundle_file info, tree;
    struct bundle_file *file; /* malloc()ed */
    size_t files;
};

enum item_kind { ITEM_INFO, ITEM_TREE, ITEM_REF, ITEM_FILE };

struct bundle_item { /* one path of a bundle */
    UT_hash_handle hh;
    const char *path;
    enum item_kind kind;
    uint64_t size_bytes;
    struct digest sha256;
    bool left_out;
    unsigned revision;        /* the last of those that name it */
    const char *file;         /* its path in the repository */
    struct bundle_item *next; /* the same path of another revision that names the same commit */
    /* for the caller: */
    bool seen, wanted;
};

struct bundle {
    struct arena arena;
    uint64_t made_unix_s;
    struct bundle_revision *revision;
    size_t revisions;
    struct bundle_item *items; /* by path; bundle_index() */
};

/* Checks everything: names, digests, sizes, no repeated path. Then indexes it. */
MUST_USE int bundle_read(struct slice json, struct bundle *out, struct err *e);
void bundle_write(const struct bundle *b, struct buf *out);
/* A new revision to fill in; make strings with arena_cstr() of b->arena. */
struct bundle_revision *bundle_add(struct bundle *b);
/* Makes items of the revisions. E_INVALID: one path twice, with different bytes. */
MUST_USE int bundle_index(struct bundle *b, struct err *e);
struct bundle_item *bundle_find(const struct bundle *b, struct slice path); /* or NULL */
/* "<hex>  <path>" for MANIFEST.json and all files in it. */
void bundle_sums(const struct bundle *b, const struct digest *manifest, struct buf *out);
/* MANIFEST.json's digest, from the first line. */
MUST_USE bool bundle_sums_read(struct slice text, struct digest *manifest);
void bundle_free(struct bundle *b);

#endif
