/* extract.h - extracts the entries of an archive into a folder, in a confined child process.
 *
 * It reads tar (plain, gzip, bzip2, xz, zstd, lz4), zip and ar. The child may read and write only
 * below its folder (Landlock, if the kernel has it), and can open no socket and start no program
 * (seccomp; confine.h). Entries keep no owner, no setuid bit, no device, and no name or link that
 * leads outside. Limits: a million entries, 4 TiB, 100 times the archive's size (at least 64
 * MiB); a twentieth of the disk and of its inodes (at most 10 GiB) stays free; 1 GiB of memory;
 * ten minutes of processor time, and 5 s for each MiB.
 *
 * threads  call it before threads are started, or when they are joined: it forks
 * errors   E_INVALID (not such an archive, or one that breaks the rules), E_TOOBIG, E_NOSPACE; the
 *          caller removes what was extracted by then
 */
#ifndef AGENT_CACHE_EXTRACT_H
#define AGENT_CACHE_EXTRACT_H

#include "common/base/err.h"

/* fd: the archive, at its beginning. */
MUST_USE int extract_in_child(int fd, uint64_t size_bytes, const char *folder, struct err *e);

#endif
