/* listpriv.h - the inside of a file list, for its decoder and its order. */
#ifndef SERVER_SYNC_RSYNC_LISTPRIV_H
#define SERVER_SYNC_RSYNC_LISTPRIV_H

#include "server/sync/rsync/list.h"

enum {
    LIST_TEXT_BITS = 20,
    LIST_TEXT_BLOCK = 1 << LIST_TEXT_BITS,
    LIST_TEXT_BLOCKS = 2047, /* a text's place fits 31 bits: it stands in `leader` too */
};
#define LIST_NO_TEXT UINT32_MAX

struct file_list {
    struct list_form form;
    struct list_limits limits;
    void **blocks; /* of LIST_BLOCK entries, as they arrived */
    size_t blocks_n, blocks_room;
    void **texts; /* of LIST_TEXT_BLOCK bytes */
    size_t texts_n, texts_room;
    size_t text_used; /* of the last */
    uint64_t text_bytes;
    uint32_t count;
    uint32_t *order;  /* index on the wire -> arrival; NULL before list_sort() */
    uint32_t *wanted; /* of each block: entries that list_forget() has not had yet */
    bool led;         /* there are hard links */
    int32_t io_error;
    uint32_t folder; /* of the entry before */
    size_t last_n;
    int64_t last_mtime_s;
    uint32_t last_mode;
    char last[LIST_PATH_MAX + 1];
};

static inline struct list_entry *list_arrived(const struct file_list *l, uint32_t at)
{
    return (struct list_entry *)l->blocks[at / LIST_BLOCK] + at % LIST_BLOCK;
}

static inline char *list_text(const struct file_list *l, uint32_t ref)
{
    return (char *)l->texts[ref >> LIST_TEXT_BITS] + (ref & (LIST_TEXT_BLOCK - 1));
}

static inline struct slice list_counted(const struct file_list *l, uint32_t ref)
{
    const char *p = list_text(l, ref);
    uint16_t n;

    memcpy(&n, p, sizeof n);
    return slice_of(p + sizeof n, n);
}

#endif
