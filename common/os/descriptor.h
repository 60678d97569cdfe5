/* descriptor.h - who may have how many of the process's descriptors.
 *
 * Whoever asks from outside can make us open them, by connections and by what is sent and filled
 * for these. When none is left RocksDB cannot begin its next log, and takes no more writes before a
 * restart: so strangers' stop short of the end, and connections before the files that they are for.
 *
 * threads  any
 */
#ifndef COMMON_OS_DESCRIPTOR_H
#define COMMON_OS_DESCRIPTOR_H

#include <stddef.h>

/* Eighths of RLIMIT_NOFILE. */
enum descriptor_share { DESCRIPTORS_OF_CONNECTIONS = 4, DESCRIPTORS_OF_FILES = 6 };

/* fd, or -1 with errno == EMFILE, and fd is closed: as many are open as may be for this. -1 and its
 * errno are passed on. */
int descriptor_within(enum descriptor_share share, int fd);
/* Raises the soft limit, where it is too low and the hard one allows it, so that `n` fit beside
 * what a program has open otherwise. */
void descriptor_allow(size_t n);

#endif
