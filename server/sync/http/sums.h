/* sums.h - reads a file as sha256sum(1) writes it: a digest on each line, and a path below the
 * file's own folder.
 *
 * threads  any; pure
 * errors   E_INVALID: an invalid line; any result of on_file
 */
#ifndef SERVER_SYNC_HTTP_SUMS_H
#define SERVER_SYNC_HTTP_SUMS_H

#include "common/base/err.h"
#include "common/base/slice.h"
#include "common/hash/digest.h"

struct sums_events {
    int (*on_file)(void *arg, struct slice path, const struct digest *d, struct err *e);
    void *arg;
    uint64_t left_out; /* counted: invalid paths */
};

MUST_USE int sums_read(struct slice bytes, struct sums_events *ev, struct err *e);

#endif
