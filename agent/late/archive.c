/* archive.c - what agent/shelf/unpack.c calls of libarchive, forwarded (late.h). */
#include <archive.h>
#include <archive_entry.h>

#include "agent/late/late.h"

static struct late_library archive = {.file = "libarchive.so.13", .package = "libarchive13"};

LATE(archive, int, archive_version_number, (void), ())
LATE(archive, int, archive_errno, (struct archive * a), (a))
LATE(archive, const char *, archive_error_string, (struct archive * a), (a))

LATE(archive, struct archive *, archive_read_new, (void), ())
LATE(archive, int, archive_read_support_filter_bzip2, (struct archive * a), (a))
LATE(archive, int, archive_read_support_filter_gzip, (struct archive * a), (a))
LATE(archive, int, archive_read_support_filter_lz4, (struct archive * a), (a))
LATE(archive, int, archive_read_support_filter_xz, (struct archive * a), (a))
LATE(archive, int, archive_read_support_filter_zstd, (struct archive * a), (a))
LATE(archive, int, archive_read_support_format_ar, (struct archive * a), (a))
LATE(archive, int, archive_read_support_format_tar, (struct archive * a), (a))
LATE(archive, int, archive_read_support_format_zip, (struct archive * a), (a))
LATE(archive, int, archive_read_open_fd, (struct archive * a, int fd, size_t block), (a, fd, block))
LATE(archive, int, archive_read_next_header, (struct archive * a, struct archive_entry **out),
     (a, out))
LATE(archive, int, archive_read_data_block,
     (struct archive * a, const void **p, size_t *n, la_int64_t *at), (a, p, n, at))
LATE(archive, int, archive_read_free, (struct archive * a), (a))

LATE(archive, struct archive *, archive_write_disk_new, (void), ())
LATE(archive, int, archive_write_disk_set_options, (struct archive * a, int flags), (a, flags))
LATE(archive, int, archive_write_header, (struct archive * a, struct archive_entry *x), (a, x))
LATE(archive, la_ssize_t, archive_write_data_block,
     (struct archive * a, const void *p, size_t n, la_int64_t at), (a, p, n, at))
LATE(archive, int, archive_write_close, (struct archive * a), (a))
LATE(archive, int, archive_write_free, (struct archive * a), (a))

LATE(archive, void, archive_entry_copy_hardlink, (struct archive_entry * x, const char *to),
     (x, to))
LATE(archive, void, archive_entry_copy_pathname, (struct archive_entry * x, const char *path),
     (x, path))
LATE(archive, __LA_MODE_T, archive_entry_filetype, (struct archive_entry * x), (x))
LATE(archive, const char *, archive_entry_hardlink, (struct archive_entry * x), (x))
LATE(archive, const char *, archive_entry_pathname, (struct archive_entry * x), (x))
LATE(archive, __LA_MODE_T, archive_entry_perm, (struct archive_entry * x), (x))
LATE(archive, void, archive_entry_set_perm, (struct archive_entry * x, __LA_MODE_T mode), (x, mode))
LATE(archive, la_int64_t, archive_entry_size, (struct archive_entry * x), (x))
LATE(archive, const char *, archive_entry_symlink, (struct archive_entry * x), (x))
