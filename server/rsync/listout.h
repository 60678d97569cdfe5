/* listout.h - a list as it is written for a client: names by what they share, facts only where they change.
 *
 * threads  one at a time; plain memory
 * source   research/sync 1.1 (6); sessions of the installed client and server
 */
#ifndef SERVER_RSYNC_LISTOUT_H
#define SERVER_RSYNC_LISTOUT_H

#include "server/sync/rsync/list.h"

struct list_written { /* what client and server agreed on, and the client asked for */
    bool varint_flags, safe, nsec;
    bool owner, group, numeric, links;
};

struct list_writer {
    struct list_written form;
    bool any; /* has been written; the rest is of the last one */
    int64_t mtime_s;
    uint32_t mode;
    size_t name_n;
    char name[LIST_PATH_MAX + 1];
};

/* path: as the client is to know it. say: VIEW_... of view.h; link: of hard links, as groups.h says it. */
void list_write(struct list_writer *w, struct buf *to, const struct file_list *l,
                const struct list_entry *en, struct slice path, unsigned say, int32_t link);
/* io_error: nonzero when not all could be listed. */
void list_write_end(const struct list_written *form, struct buf *to, int32_t io_error);

#endif
