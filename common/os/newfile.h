/* newfile.h - writes a file that appears whole or not at all.
 *
 * It is written under a temporary name next to its final place, followed by fsync, rename and
 * fsync of the folder. It keeps its first error, which newfile_commit() reports. newfile_abort()
 * removes an uncommitted file.
 *
 * owns     newfile_commit and newfile_abort both free it and NULL your pointer
 * threads  one at a time; blocks
 */
#ifndef COMMON_OS_NEWFILE_H
#define COMMON_OS_NEWFILE_H

#include <sys/types.h>

#include "common/base/err.h"
#include "common/base/slice.h"

struct newfile;

MUST_USE int newfile_open(const char *path, mode_t mode, struct newfile **out, struct err *e);
void newfile_write(struct newfile *f, const void *p, size_t n);
int newfile_fd(struct newfile *f);
/* The first error so far, for callers that write for long; 0: none. */
MUST_USE int newfile_check(const struct newfile *f, struct err *e);
MUST_USE int newfile_commit(struct newfile **fp, struct err *e);
/* Readers see it whole, but after a power cut it may be missing or empty. */
MUST_USE int newfile_commit_unsynced(struct newfile **fp, struct err *e);
void newfile_abort(struct newfile **fp);

/* Writes everything, through EINTR and short writes. */
MUST_USE int fd_write_all(int fd, const void *p, size_t n, struct err *e);
/* Appends everything, or nothing: a partial write to a full disk is cut off again. For a file
 * with one writer. */
MUST_USE int fd_append(int fd, const void *p, size_t n, struct err *e);
MUST_USE int fd_pwrite_all(int fd, const void *p, size_t n, uint64_t off, struct err *e);
/* As fd_pwrite_all(), but whole blocks of zeros (SPARSE_BLOCK bytes, if the file system supports
 * it) become holes. The file must already reach to off + n. */
enum { SPARSE_BLOCK = 64 * 1024 };
MUST_USE int fd_pwrite_sparse(int fd, const void *p, size_t n, uint64_t off, struct err *e);
MUST_USE int fd_pread_all(int fd, void *p, size_t n, uint64_t off,
                          struct err *e); /* a short file is E_CORRUPT */
/* With parents, as mkdir -p; syncs the names of the new folders. */
MUST_USE int dir_make(const char *path, mode_t mode, struct err *e);
MUST_USE int dir_make_unsynced(const char *path, mode_t mode, struct err *e);
MUST_USE int dir_sync(const char *path, struct err *e);
MUST_USE int dir_sync_above(const char *path, struct err *e); /* the folder that holds path */
MUST_USE int dir_remove_tree(const char *path,
                             struct err *e); /* never follows links; a missing one is fine */

#endif
