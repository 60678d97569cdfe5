#include "server/rsync/listout.h"

#include "server/rsync/groups.h"
#include "server/sync/rsync/varint.h"

enum {
    SAY_TOP = 1,
    SAY_SAME_MODE = 2,
    SAY_MORE = 4,
    SAY_SAME_UID = 8,
    SAY_SAME_GID = 0x10,
    SAY_SAME_NAME = 0x20,
    SAY_LONG_NAME = 0x40,
    SAY_SAME_TIME = 0x80,
    SAY_BARE = 0x100,
    SAY_LINKED = 0x200,
    SAY_LINKED_FIRST = 0x1000,
    SAY_NSEC = 0x2000,
    SAY_ERROR_END = 0x1000,
    SHARED_MAX = 255,
};

static void put_flags(const struct list_written *form, struct buf *b, uint32_t flags)
{
    if (form->varint_flags) {
        put_varint(b, (int32_t)(flags != 0 ? flags : SAY_MORE));
    } else if (flags > 0xff || flags == 0) {
        buf_byte(b, (uint8_t)(flags | SAY_MORE));
        buf_byte(b, (uint8_t)(flags >> 8));
    } else {
        buf_byte(b, (uint8_t)flags);
    }
}

static void put_name(struct buf *b, uint32_t flags, size_t shared, struct slice path)
{
    if ((flags & SAY_SAME_NAME) != 0) {
        buf_byte(b, (uint8_t)shared);
    }
    if ((flags & SAY_LONG_NAME) != 0) {
        put_varint(b, (int32_t)(path.n - shared));
    } else {
        buf_byte(b, (uint8_t)(path.n - shared));
    }
    buf_adds(b, slice_from(path, shared));
}

static size_t shared_with(const struct list_writer *w, struct slice path)
{
    size_t n = 0;

    while (n < w->name_n && n < path.n && n < SHARED_MAX && w->name[n] == path.p[n]) {
        n++;
    }
    return n;
}

/* An owner is told with the first entry, and is the same from there on. */
static uint32_t flags_of(const struct list_writer *w, const struct list_entry *en, int64_t mtime_s,
                         int32_t nsec, size_t shared, struct slice path)
{
    uint32_t flags = 0;

    flags |= shared > 0 ? SAY_SAME_NAME : 0;
    flags |= path.n - shared > SHARED_MAX ? SAY_LONG_NAME : 0;
    flags |= w->any && w->mtime_s == mtime_s ? SAY_SAME_TIME : 0;
    flags |= w->any && w->mode == en->mode ? SAY_SAME_MODE : 0;
    flags |= !w->form.owner || w->any ? SAY_SAME_UID : 0;
    flags |= !w->form.group || w->any ? SAY_SAME_GID : 0;
    flags |= nsec != 0 && w->form.nsec ? SAY_NSEC : 0;
    return flags;
}

static int64_t seconds_of(const struct list_entry *en)
{
    int64_t s = en->mtime_ns / 1000000000;
    return s - (s * 1000000000 > en->mtime_ns);
}

static int32_t nsec_of(const struct list_entry *en)
{
    return (int32_t)(en->mtime_ns - seconds_of(en) * 1000000000);
}

static void put_facts(const struct list_writer *w, struct buf *to, const struct file_list *l,
                      const struct list_entry *en, uint32_t flags)
{
    put_varlong(to, (int64_t)list_size(l, en), 3);
    if ((flags & SAY_SAME_TIME) == 0) {
        put_varlong(to, seconds_of(en), 4);
    }
    if ((flags & SAY_NSEC) != 0) {
        put_varint(to, nsec_of(en));
    }
    if ((flags & SAY_SAME_MODE) == 0) {
        put_int(to, en->mode);
    }
    if ((flags & SAY_SAME_UID) == 0) {
        put_varint(to, 0);
    }
    if ((flags & SAY_SAME_GID) == 0) {
        put_varint(to, 0);
    }
    if (w->form.links && list_type(en) == LIST_LINK) {
        struct slice target = list_target(l, en);
        put_varint(to, (int32_t)target.n);
        buf_adds(to, target);
    }
}

void list_write(struct list_writer *w, struct buf *to, const struct file_list *l,
                const struct list_entry *en, struct slice path, unsigned say, int32_t link)
{
    int64_t mtime_s = seconds_of(en);
    size_t shared = shared_with(w, path);
    uint32_t flags = flags_of(w, en, mtime_s, nsec_of(en), shared, path);

    flags |= (say & VIEW_TOP) != 0 ? SAY_TOP : 0;
    flags |= (say & VIEW_BARE) != 0 ? SAY_BARE : 0;
    flags |= link != GROUP_NONE ? SAY_LINKED : 0;
    flags |= link == GROUP_FIRST ? SAY_LINKED_FIRST : 0;
    put_flags(&w->form, to, flags);
    put_name(to, flags, shared, path);
    if (link >= 0) { /* all else is as it was said of that one */
        put_varint(to, link);
    } else {
        put_facts(w, to, l, en, flags);
    }
    memcpy(w->name, path.p, path.n);
    w->name_n = path.n;
    w->mtime_s = mtime_s;
    w->mode = en->mode;
    w->any = true;
}

void list_write_end(const struct list_written *form, struct buf *to, int32_t io_error)
{
    if (form->varint_flags) {
        put_varint(to, 0);
        put_varint(to, io_error);
    } else if (form->safe && io_error != 0) {
        buf_byte(to, SAY_MORE);
        buf_byte(to, SAY_ERROR_END >> 8);
        put_varint(to, io_error);
    } else {
        buf_byte(to, 0);
    }
    /* Names of owners: all is root's, whose number needs none. */
    if (form->owner && !form->numeric) {
        put_varint(to, 0);
    }
    if (form->group && !form->numeric) {
        put_varint(to, 0);
    }
}
