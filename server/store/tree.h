/* tree.h - a folder tree as a content-addressed, path-ordered Merkle manifest
 * (docs/protocols/sync.md).
 *
 * Entries are sorted by path bytes and cut into leaves where the low 6 bits of SHA-256(path) are
 * zero (at most 512 a leaf). Leaves are cut into upper nodes by further bits of the hash of their
 * first key. A node's id is the SHA-256 of its encoding. The same paths and blobs give the same
 * root on every machine, whatever the order of edits. The empty tree has a root, too.
 *
 * owns     nothing: entries point into the caller's arena or are borrowed during each()
 * threads  any; blocks (node rows are read from the store)
 * errors   E_NOTFOUND; E_CORRUPT for a node that does not match its id or cannot be decoded
 */
#ifndef SERVER_STORE_TREE_H
#define SERVER_STORE_TREE_H

#include "common/base/arena.h"
#include "server/store/store.h"

/* A folder needs no entry. One that has an entry exists even when it is empty, and has its own
 * time. */
enum entry_type { ENTRY_FILE = 1, ENTRY_LINK = 2, ENTRY_DIR = 3 };

struct entry {
    struct slice path; /* no leading '/', no empty, "." or ".." part, no NUL; at most 4095 bytes */
    enum entry_type type;
    bool executable;
    int64_t mtime_ns; /* unix; 0 when not known */
    uint64_t size_bytes;
    struct digest digest; /* files */
    struct slice target;  /* links; of a file that is a hard link: its group's first, else empty */
    struct slice leader;  /* of a link that is itself a hard link: its group's first, else empty */
};

struct tree_edit {
    struct entry entry;
    bool remove; /* removes entry.path, which may be absent */
};

MUST_USE bool tree_path_valid(struct slice path);
MUST_USE int tree_get(struct store *s, const struct digest *root, struct slice path,
                      struct arena *a, struct entry *out, struct err *e);
/* As tree_get(), but follows links on the way and at the end, within the tree. Whatever the result,
 * out->path is where the links led: with E_NOTFOUND it may still be a folder. E_INVALID: a loop of
 * links, or a link out of the tree. */
MUST_USE int tree_resolve(struct store *s, const struct digest *root, struct slice path,
                          struct arena *a, struct entry *out, struct err *e);
/* Entries with path > after (after.p == NULL: all) that begin with prefix, in order, until each()
 * returns nonzero. */
MUST_USE int tree_walk(struct store *s, const struct digest *root, struct slice prefix,
                       struct slice after, int (*each)(void *arg, const struct entry *en),
                       void *arg, struct err *e);
/* Applies edits to the tree `base` (in any order; a later edit of a path wins) and puts the new
 * node rows into b. A conflict of parent and child (a file where a folder is) is E_INVALID. */
MUST_USE int tree_edit(struct store *s, const struct digest *base, const struct tree_edit *edits,
                       size_t count, struct batch *b, struct digest *root, uint64_t *entries,
                       uint64_t *bytes, struct err *e);
void tree_empty_root(struct digest *out);
/* The differences from old to new, each path once. old_en or new_en is NULL when the tree lacks the
 * path. Equal nodes are skipped. */
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

/* The live snapshot. E_NOTFOUND. */
MUST_USE int head_get(struct store *s, struct slice repo, struct slice name, struct snap *out,
                      struct err *e);
/* Finds a snapshot by "v<seq>", by a root's hex or its first 40 digits (then the newest such), or
 * by the name of a branch, a tag or a label (ref.h). "" and "main" are the head.
 * "refs/heads/<name>" is a branch, "refs/tags/<name>" a tag or label, "refs/<name>" any of these,
 * whatever else the name looks like. */
MUST_USE int snap_find(struct store *s, struct slice repo, struct slice name, struct slice version,
                       struct snap *out, struct err *e);
/* Finds a snapshot by its number. */
MUST_USE int snap_get(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                      struct snap *out, struct err *e);
MUST_USE int snap_list(struct store *s, struct slice repo, struct slice name,
                       int (*each)(void *arg, const struct snap *sn), void *arg, struct err *e);
MUST_USE int head_list(struct store *s, struct slice repo,
                       int (*each)(void *arg, struct slice name, const struct snap *sn), void *arg,
                       struct err *e);
/* Adds to b: a new snap with `root`, and the head moved to it. It requires that the head still has
 * if_root (NULL: that there is no head, or, with any == true, any head). The caller adds the holder
 * rows of the new digests. Fills *out. */
MUST_USE int head_publish(struct store *s, struct slice repo, struct slice name,
                          const struct digest *root, uint64_t entries, uint64_t bytes,
                          const struct digest *if_root, bool any, uint64_t now_unix_s,
                          struct batch *b, struct snap *out, struct err *e);
/* As head_publish(), but the head does not move: the snapshot waits to be approved with head_set().
 * There must be a head. */
MUST_USE int head_park(struct store *s, struct slice repo, struct slice name,
                       const struct digest *root, uint64_t entries, uint64_t bytes,
                       uint64_t now_unix_s, struct batch *b, struct snap *out, struct err *e);
/* True: rolled back, so a sync must not publish over it on its own. */
MUST_USE int head_held(struct store *s, struct slice repo, struct slice name, bool *held,
                       struct err *e);
MUST_USE int head_hold(struct store *s, struct slice repo, struct slice name, bool hold,
                       struct err *e);
/* Adds to b, after head_publish() or head_park(), which set *sn: the time of the tree's top
 * folder. */
void snap_note_time(struct batch *b, struct slice repo, struct slice name, struct snap *sn,
                    int64_t top_mtime_ns);
/* Names a snapshot; "" removes the name. E_EXISTS: another snapshot, a branch or a tag has the
 * name. */
MUST_USE int snap_tag(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                      struct slice label, struct err *e);
/* Forgets a snapshot. E_BUSY: it is live, or a branch or tag names it. What only it had is removed
 * by the next collection. */
MUST_USE int snap_remove(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                         struct err *e);
/* Rollback, adds to b: the head points at an older snapshot. This is one row, to be committed with
 * COMMIT_SYNC. */
MUST_USE int head_set(struct store *s, struct slice repo, struct slice name, uint64_t seq,
                      struct batch *b, struct err *e);

#endif
