/* list.h - the peer's file list: decoded, checked, and sorted as both ends sort it.
 *
 * An entry is 32 bytes and its own name; names of folders are stored once. A million entries take
 * less than 100 MiB. Names are bytes and are checked here: "..", ".", empty parts, a leading '/',
 * a NUL or more than 4,095 bytes are refused. The position of an entry after list_sort() is its
 * index on the wire, so no entry is ever removed: a second entry of a name is blanked.
 *
 * owns     all entries and names; slices live as long as the list
 * threads  one at a time; any may read a finished one
 * errors   E_PROTOCOL: bytes that are not a list, or names that lead outside; E_TOOBIG: above a
 *          limit
 * source   recorded sessions of the installed program (tests/fuzz/corpus/rsync_list)
 */
#ifndef SERVER_SYNC_RSYNC_LIST_H
#define SERVER_SYNC_RSYNC_LIST_H

#include "common/base/buf.h"

enum {
    LIST_PATH_MAX = 4095,
    LIST_BLOCK = 1 << 14, /* entries */
    LIST_NONE = -1,
};

enum list_type {
    LIST_BLANK = 0, /* a repeated name: only its index counts */
    LIST_FILE,
    LIST_FOLDER,
    LIST_LINK,
    LIST_OTHER, /* devices, sockets, pipes: never fetched */
};

struct list_entry {
    uint64_t size_bytes; /* links: the target's text; see list_size() */
    int64_t mtime_ns;    /* limited to what 64 bits of nanoseconds hold: the years 1677 to 2262 */
    uint32_t folder;     /* texts: of all before the last '/' */
    uint32_t name;
    int32_t leader; /* files and links: position of the group's first, or LIST_NONE */
    uint16_t name_bytes;
    uint16_t mode; /* st_mode */
};

struct list_limits {
    uint32_t entries;
    uint64_t text_bytes; /* of all names; at most 2 GiB */
};
#define LIST_LIMITS ((struct list_limits){.entries = 50000000, .text_bytes = (uint64_t)2 << 30})

struct list_form { /* agreed beforehand */
    bool varint_flags;
    bool safe; /* the sender reports its errors at the end */
    bool hard_links;
};

struct file_list;

struct file_list *list_new(struct list_form form, struct list_limits limits);
void list_free(struct file_list **lp);
/* Consumes whole entries of *in; the rest of *in is the beginning of one. *done: the end was
 * reached. */
MUST_USE int list_feed(struct file_list *l, struct slice *in, bool *done, struct err *e);
/* The opposite direction, for a list that we send: a folder's mtime may still change until the
 * sort. */
MUST_USE int list_add(struct file_list *l, struct slice path, uint32_t mode, uint64_t size_bytes,
                      int64_t mtime_ns, struct slice target, struct err *e);
/* A file, or a link, that is a hard link to another one. */
void list_set_leader(struct file_list *l, uint32_t arrival, uint32_t leader);
void list_set_mtime(struct file_list *l, uint32_t arrival, int64_t mtime_ns);
/* Once, after the last entry: from here on positions are indices of the wire. */
MUST_USE int list_sort(struct file_list *l, struct err *e);

/* The order of two paths at both ends; a folder comes right before its contents. */
int list_compare(struct slice a, bool a_folder, struct slice b, bool b_folder);
/* In a sorted list. */
bool list_find(const struct file_list *l, struct slice path, bool is_folder, uint32_t *index);

uint32_t list_count(const struct file_list *l);
/* Nonzero: the peer could not read all of its files; what is not listed may still exist. */
int32_t list_io_error(const struct file_list *l);
const struct list_entry *list_at(const struct file_list *l, uint32_t index);
enum list_type list_type(const struct list_entry *en);
struct slice list_name(const struct file_list *l, const struct list_entry *en); /* last part */
struct slice list_folder(const struct file_list *l, const struct list_entry *en);
/* The whole path, in a buffer of LIST_PATH_MAX + 1 bytes; "." is the top. */
struct slice list_path(const struct file_list *l, const struct list_entry *en, char *room);
uint64_t list_size(const struct file_list *l, const struct list_entry *en);
struct slice list_target(const struct file_list *l, const struct list_entry *en); /* of a link */
/* The index of the first of its hard links; LIST_NONE when it is not a hard link or is the first
 * itself. */
int32_t list_leader(const struct file_list *l, const struct list_entry *en);
/* This entry is not used any more; call it once per entry. Memory that no entry uses is freed,
 * unless hard links may still refer to it. */
void list_forget(struct file_list *l, uint32_t index);
size_t list_memory(const struct file_list *l);

/* Is it a name that a peer may send, below the top? */
MUST_USE bool list_name_valid(struct slice path);

#endif
