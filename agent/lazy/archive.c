/* archive.c - what agent/cache/unpack.c calls of libarchive, forwarded (lazy.h). */
#include <archive.h>
#include <archive_entry.h>

#include "agent/lazy/lazy.h"

static struct lazy_library archive = {.file = "libarchive.so.13", .package = "libarchive13"};

LAZY(archive, int, archive_version_number, (void), ())
LAZY(archive, int, archive_errno, (struct archive * a), (a))
LAZY(archive, const char *, archive_error_string, (struct archive * a), (a))

LAZY(archive, struct archive *, archive_read_new, (void), ())
LAZY(archive, int, archive_read_support_filter_bzip2, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_filter_gzip, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_filter_lz4, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_filter_xz, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_filter_zstd, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_format_ar, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_format_tar, (struct archive * a), (a))
LAZY(archive, int, archive_read_support_format_zip, (struct archive * a), (a))
LAZY(archive, int, archive_read_open_fd, (struct archive * a, int fd, size_t block), (a, fd, block))
LAZY(archive, int, archive_read_next_header, (struct archive * a, struct archive_entry **out),
     (a, out))
LAZY(archive, int, archive_read_data_block,
     (struct archive * a, const void **p, size_t *n, la_int64_t *at), (a, p, n, at))
LAZY(archive, int, archive_read_free, (struct archive * a), (a))

LAZY(archive, struct archive *, archive_write_disk_new, (void), ())
LAZY(archive, int, archive_write_disk_set_options, (struct archive * a, int flags), (a, flags))
LAZY(archive, int, archive_write_header, (struct archive * a, struct archive_entry *x), (a, x))
LAZY(archive, la_ssize_t, archive_write_data_block,
     (struct archive * a, const void *p, size_t n, la_int64_t at), (a, p, n, at))
LAZY(archive, int, archive_write_close, (struct archive * a), (a))
LAZY(archive, int, archive_write_free, (struct archive * a), (a))

LAZY(archive, void, archive_entry_copy_hardlink, (struct archive_entry * x, const char *to),
     (x, to))
LAZY(archive, void, archive_entry_copy_pathname, (struct archive_entry * x, const char *path),
     (x, path))
LAZY(archive, __LA_MODE_T, archive_entry_filetype, (struct archive_entry * x), (x))
LAZY(archive, const char *, archive_entry_hardlink, (struct archive_entry * x), (x))
LAZY(archive, const char *, archive_entry_pathname, (struct archive_entry * x), (x))
LAZY(archive, __LA_MODE_T, archive_entry_perm, (struct archive_entry * x), (x))
LAZY(archive, void, archive_entry_set_perm, (struct archive_entry * x, __LA_MODE_T mode), (x, mode))
LAZY(archive, la_int64_t, archive_entry_size, (struct archive_entry * x), (x))
LAZY(archive, const char *, archive_entry_symlink, (struct archive_entry * x), (x))
