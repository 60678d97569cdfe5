/* extract.h - the entries of an archive into a folder, by a child that can do nothing else.
 *
 * tar (plain, gzip, bzip2, xz, zstd, lz4), zip, ar. The child may read and write below its folder
 * only (Landlock, where the kernel has it), open no socket, start no program (seccomp; confine.h);
 * entries keep no owner, no setuid, no device, and no name or link that leads out. Bounds: a
 * million entries, 4 TiB, 100 times the archive's size (64 MiB at least), a twentieth of the disk
 * and of its inodes (10 GiB at most) stays free, 1 GiB of memory, and of processor time ten minutes
 * and 5 s for each MiB.
 *
 * threads  call it before threads are started, or when they are joined: it forks
 * errors   E_INVALID (not such an archive, or one that breaks the rules), E_TOOBIG, E_NOSPACE; what
 *          came out by then is the caller's to remove
 */
#ifndef AGENT_CACHE_EXTRACT_H
#define AGENT_CACHE_EXTRACT_H

#include "common/base/err.h"

/* fd: the archive, at its beginning. */
MUST_USE int extract_in_child(int fd, uint64_t size_bytes, const char *folder, struct err *e);

#endif
