/* newfile.h - a file that appears whole or not at all.
 *
 * Written under a temporary name beside its place, then fsync, rename, fsync of the folder. Keeps
 * its first error; newfile_commit() reports it. What was not committed is removed by
 * newfile_abort().
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
/* The first error so far, for whoever would write on for long; 0: none. */
MUST_USE int newfile_check(const struct newfile *f, struct err *e);
MUST_USE int newfile_commit(struct newfile **fp, struct err *e);
/* Whole for whoever looks, but after a power cut it may be missing, or empty. */
MUST_USE int newfile_commit_unsynced(struct newfile **fp, struct err *e);
void newfile_abort(struct newfile **fp);

/* Whole buffers, riding over EINTR and short counts. */
MUST_USE int fd_write_all(int fd, const void *p, size_t n, struct err *e);
/* All of it behind what the file holds, or nothing: what a full disk took of it is cut off again.
 * For a file's only writer. */
MUST_USE int fd_append(int fd, const void *p, size_t n, struct err *e);
MUST_USE int fd_pwrite_all(int fd, const void *p, size_t n, uint64_t off, struct err *e);
/* As fd_pwrite_all(), but whole blocks of zeros (SPARSE_BLOCK bytes, where the file has such)
 * become holes. The file reaches at least to off + n already. */
enum { SPARSE_BLOCK = 64 * 1024 };
MUST_USE int fd_pwrite_sparse(int fd, const void *p, size_t n, uint64_t off, struct err *e);
MUST_USE int fd_pread_all(int fd, void *p, size_t n, uint64_t off,
                          struct err *e); /* a short file is E_CORRUPT */
/* With parents, as mkdir -p; the names of those that are new are synced. */
MUST_USE int dir_make(const char *path, mode_t mode, struct err *e);
MUST_USE int dir_make_unsynced(const char *path, mode_t mode, struct err *e);
MUST_USE int dir_sync(const char *path, struct err *e);
MUST_USE int dir_sync_above(const char *path, struct err *e); /* the folder that holds path */
MUST_USE int dir_remove_tree(const char *path,
                             struct err *e); /* never follows links; absent is fine */

#endif
