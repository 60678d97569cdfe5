/* descriptor.h - limits the share of the process's descriptors for each use.
 *
 * Clients can make us open descriptors, by connections and by the files that we send and fetch
 * for them. When none is left, RocksDB cannot begin its next log, and accepts no writes until a
 * restart. So the clients' share ends below the limit, and connections end before the files that
 * they are for.
 *
 * threads  any
 */
#ifndef COMMON_OS_DESCRIPTOR_H
#define COMMON_OS_DESCRIPTOR_H

#include <stddef.h>

/* Eighths of RLIMIT_NOFILE. */
enum descriptor_share { DESCRIPTORS_OF_CONNECTIONS = 4, DESCRIPTORS_OF_FILES = 6 };

/* Returns fd; or -1 with errno == EMFILE, with fd closed, when the share is used up. Passes on -1
 * and its errno. */
int descriptor_within(enum descriptor_share share, int fd);
/* Raises the soft limit, if it is too low and the hard limit allows it, so that `n` fit in
 * addition to the program's others. */
void descriptor_allow(size_t n);

#endif
