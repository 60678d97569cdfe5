/* tree.h - a folder tree as a content-addressed, path-ordered Merkle manifest
 * (docs/protocols/sync.md).
 *
 * Entries sorted by path bytes are cut into leaves where the low 6 bits of SHA-256(path) are zero
 * (at most 512 a leaf), leaves into upper nodes by further bits of their first key's hash; a node's
 * id is the SHA-256 of its encoding. The same paths and blobs give the same root on every machine,
 * whatever the order of edits. The empty tree has a root too.
 *
 * threads  any; blocks (node rows are read from the store)
 * errors   E_NOTFOUND; E_CORRUPT for a node whose bytes do not match its id or decode
 */
#ifndef SERVER_STORE_TREE_H
#define SERVER_STORE_TREE_H

#include "common/base/arena.h"
#include "server/store/store.h"

/* A folder needs no entry; one that has it exists even when it is empty, and has a time of its
 * own. */
enum entry_type { ENTRY_FILE = 1, ENTRY_LINK = 2, ENTRY_DIR = 3 };

struct entry {
    struct slice path; /* no leading '/', no empty, "." or ".." part, no NUL; at most 4095 bytes */
    enum entry_type type;
    bool executable;
    int64_t mtime_ns; /* unix; 0 when not kept */
    uint64_t size_bytes;
    struct digest digest; /* files */
    struct slice target;  /* links; of a file that is a hard link: its group's first, else empty */
    struct slice leader;  /* of a link that is itself a hard link: its group's first, else empty */
};

struct tree_edit {
    struct entry entry;
    bool remove; /* entry.path is taken away; absent is fine */
};

MUST_USE bool tree_path_valid(struct slice path);
MUST_USE int tree_get(struct store *s, const struct digest *root, struct slice path,
                      struct arena *a, struct entry *out, struct err *e);
/* As tree_get(), but links on the way and at the end are followed, inside the tree alone. Whatever
 * comes of it, out->path is where the way led: E_NOTFOUND may still be a folder. E_INVALID: a ring,
 * or a way out of the tree. */
MUST_USE int tree_resolve(struct store *s, const struct digest *root, struct slice path,
                          struct arena *a, struct entry *out, struct err *e);
/* Entries with path > after (after.p == NULL: all) that begin with prefix, in order, until each()
 * returns nonzero. */
MUST_USE int tree_walk(struct store *s, const struct digest *root, struct slice prefix,
                       struct slice after, int (*each)(void *arg, const struct entry *en),
                       void *arg, struct err *e);
/* The tree `base` with edits (any order; a later edit of a path wins) applied: new node rows go
 * into b. Parent-child clashes (a file where a folder is) are E_INVALID. */
MUST_USE int tree_edit(struct store *s, const struct digest *base, const struct tree_edit *edits,
                       size_t count, struct batch *b, struct digest *root, uint64_t *entries,
                       uint64_t *bytes, struct err *e);
void tree_empty_root(struct digest *out);
/* Differences from old to new, each path once; old_en or new_en is NULL when it is not there. Skips
 * equal nodes. */
MUST_USE int
tree_diff(struct store *s, const struct digest *old_root, const struct digest *new_root,
          int (*each)(void *arg, const struct entry *old_en, const struct entry *new_en), void *arg,
          struct err *e);

/* --- heads and snapshots of one named tree ("owner/name" in a hosted repo) --- */
struct snap {
    uint64_t seq; /* 1, 2, ... */
    struct digest root;
    uint64_t parent_seq; /* 0: none */
    uint64_t created_unix_s;
    uint64_t entries;
    uint64_t bytes;
    char label[64];       /* tag, or "" */
    int64_t top_mtime_ns; /* of the tree's own top folder, which has no entry; 0: not known */
};

/* The live one. E_NOTFOUND. */
MUST_USE int head_get(struct store *s, struct slice repo, struct slice name, struct snap *out,
                      struct err *e);
/* By "v<seq>", a root's hex or its first 40 digits (then the newest such), the name of a branch, a
 * tag or a label (ref.h); "" is the head, and so is "main". "refs/heads/<name>" is a branch,
 * "refs/tags/<name>" a tag or label, "refs/<name>" any of these, whatever else the name looks
 * like. */
MUST_USE int snap_find(struct store *s, struct slice repo, struct slice name, struct slice version,
                       struct snap *out, struct err *e);
/* By its number. */
MUST_USE int snap_get(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                      struct snap *out, struct err *e);
MUST_USE int snap_list(struct store *s, struct slice repo, struct slice name,
                       int (*each)(void *arg, const struct snap *sn), void *arg, struct err *e);
MUST_USE int head_list(struct store *s, struct slice repo,
                       int (*each)(void *arg, struct slice name, const struct snap *sn), void *arg,
                       struct err *e);
/* Adds to b: a new snap with `root` and the head moved to it; requires that the head still has
 * if_root (NULL: that there is none, or, with any == true, whatever it has). holder rows of the new
 * digests are added by the caller. Fills *out. */
MUST_USE int head_publish(struct store *s, struct slice repo, struct slice name,
                          const struct digest *root, uint64_t entries, uint64_t bytes,
                          const struct digest *if_root, bool any, uint64_t now_unix_s,
                          struct batch *b, struct snap *out, struct err *e);
/* As head_publish(), but the head stays where it is: a snapshot that waits to be approved with
 * head_set(). There is a head. */
MUST_USE int head_park(struct store *s, struct slice repo, struct slice name,
                       const struct digest *root, uint64_t entries, uint64_t bytes,
                       uint64_t now_unix_s, struct batch *b, struct snap *out, struct err *e);
/* True: rolled back, a sync must not publish over it by itself. */
MUST_USE int head_held(struct store *s, struct slice repo, struct slice name, bool *held,
                       struct err *e);
MUST_USE int head_hold(struct store *s, struct slice repo, struct slice name, bool hold,
                       struct err *e);
/* Adds to b, behind head_publish() or head_park(), which gave *sn: the time of the tree's top
 * folder. */
void snap_note_time(struct batch *b, struct slice repo, struct slice name, struct snap *sn,
                    int64_t top_mtime_ns);
/* Names a snapshot; "" takes the name away. E_EXISTS: another has it, or a branch or tag. */
MUST_USE int snap_tag(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                      struct slice label, struct err *e);
/* Forgets a snapshot that is not the live one nor named by a branch or tag (E_BUSY); what only it
 * had goes with the next collection. */
MUST_USE int snap_remove(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                         struct err *e);
/* Rollback, adds to b: the head points at an older snap again. One row, to be committed with
 * COMMIT_SYNC. */
MUST_USE int head_set(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                      struct batch *b, struct err *e);

#endif
